// Bases of keys and queries that some policies need for a model before they see a prompt: principal components (Loki),
// columns that contain most of the query (InfiniGen's skewed weights). `kvcast profile --bases` measures them and
// writes a safetensors file that configurations name.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/matrix.hpp"
#include "policy/parameters.hpp"
#include "trace/trace.hpp"

namespace kvcast::policy {

// The kinds of bases. keys: principal components of a KV head's cached keys; keys_before_rope: of its keys before
// rotary embedding; queries: right singular vectors of the queries of its group.
const std::vector<std::string>& basis_kinds();

// A file of bases. Metadata: format = kvcast-bases/1, n_layers, n_kv_heads, head_dim. Tensors: layers.L.KIND, F32,
// [n_kv_heads, head_dim, head_dim], with orthonormal rows for each head, in descending order of their share. Layers and
// kinds may be missing.
class Bases {
 public:
  // Throws UserError (file, tensor) for anything else.
  static std::shared_ptr<const Bases> read(const std::string& path);

  bool holds(const std::string& kind) const { return kinds_.contains(kind); }
  // Throws UserError unless the trace has the same layers and heads.
  void check_shape(const trace::TraceInfo& info) const;
  // Returns the basis of the layer in the file that is nearest to `layer`, the lower one of two equally near.
  MatrixView of(const std::string& kind, int layer, int kv_head) const;

 private:
  std::string path_;
  int n_layers_ = 0, n_kv_heads_ = 0, head_dim_ = 0;
  std::map<std::string, std::map<int, std::vector<float>>> kinds_;  // by kind, then layer
};

// Declares the parameter `basis`: "prompt", or a file.
Parameter basis_parameter(std::string meaning);
// Reads the parameter; null for "prompt". Throws UserError if the file lacks the kind.
std::shared_ptr<const Bases> load_basis(const ParameterValues& values, const std::string& kind);

// Second moments of one KV head over a layer's prompt, [d × d]; their eigenvectors are the basis of that kind. Moments
// of several traces add up. Throws UserError if the trace lacks prompt queries.
std::vector<float> basis_moments(const std::string& kind, const trace::Layer& layer, int kv_head);

}  // namespace kvcast::policy

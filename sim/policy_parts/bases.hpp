// Directions of keys and queries that some policies know of a model before they see a prompt: principal components
// (Loki), columns that hold most of the query (InfiniGen's skewed weights). `kvcast profile --bases` measures them and
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

// keys: principal components of the keys of a KV head as they are cached; keys_before_rope: of the keys before rotary
// embedding; queries: right singular vectors of the queries of its group.
const std::vector<std::string>& basis_kinds();

// The file: metadata format = kvcast-bases/1, n_layers, n_kv_heads, head_dim; tensors layers.L.KIND, F32, [n_kv_heads,
// head_dim, head_dim], a head's rows orthonormal, the one of the largest share first. Some layers and kinds may be
// missing.
class Bases {
 public:
  // UserError (file, tensor) for anything else.
  static std::shared_ptr<const Bases> read(const std::string& path);

  bool holds(const std::string& kind) const { return kinds_.contains(kind); }
  // UserError where the trace's layers or heads are others.
  void check_shape(const trace::TraceInfo& info) const;
  // Of any layer: of the nearest one that the file holds, the lower where two are equally near.
  MatrixView of(const std::string& kind, int layer, int kv_head) const;

 private:
  std::string path_;
  int n_layers_ = 0, n_kv_heads_ = 0, head_dim_ = 0;
  std::map<std::string, std::map<int, std::vector<float>>> kinds_;  // by kind, then layer
};

// The parameter `basis`: "prompt", or a file.
Parameter basis_parameter(std::string meaning);
// Reads it; null for "prompt". UserError where the file lacks the kind.
std::shared_ptr<const Bases> load_basis(const ParameterValues& values, const std::string& kind);

// Second moments of one KV head of a layer's prompt, [d × d], whose eigenvectors are the directions of that kind; those
// of several traces add up. UserError where the trace lacks prompt queries.
std::vector<float> basis_moments(const std::string& kind, const trace::Layer& layer, int kv_head);

}  // namespace kvcast::policy

// What some policies must know of a model before they see a prompt: which heads retrieve, which layers suffer. Measured
// once on probes, kept in a YAML file that configurations name.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "policy/parameters.hpp"
#include "trace/trace.hpp"

namespace kvcast::policy {

// Kinds of head scores, all ≥ 0, one a query head:
//   semantic:  attention on the whole answer span while it is answered (CompressKV's equation 5)
//   retrieval: mean share of attention on the positions that each step must attend to
//   echo:      mean attention on earlier occurrences of the current token (RazorAttention)
//   induction: mean attention on the token after these
const std::vector<std::string>& head_score_kinds();

struct Profile {
  std::string path;    // of the file it was read from, for messages
  std::string model;   // a name, for people
  std::string source;  // what it was measured on, for people
  int n_layers = 0, n_q_heads = 0, n_kv_heads = 0;
  // By kind, then by layer: one score a query head. Some layers may be missing.
  std::map<std::string, std::map<int, std::vector<double>>> heads;
  std::map<int, double> layer_errors;  // ≥ 0; CompressKV's equation 9, of some layers

  // UserError where the trace's layers or heads are others.
  void check_shape(const trace::TraceInfo& info) const;
  // Of any layer of the model: those of the nearest layer that has them, the lower where two are equally near.
  const std::vector<double>& head_scores(const std::string& kind, int layer) const;
  // Over all layers of the model by the same rule, adding up to 1.
  std::vector<double> layer_shares() const;
};

// UserError (place; what was found) for anything that is not a whole, well-formed profile.
Profile read_profile(const std::string& path);
// The text that read_profile takes.
std::string write_profile(const Profile& profile);

// The parameter `profile`; a name under configs/profiles or a path.
Parameter profile_parameter(const std::string& needed_for);
// Reads it. UserError where none is named, or where it lacks `kind` (a kind of head scores, or "layer_errors").
std::shared_ptr<const Profile> load_profile(const ParameterValues& values, const std::vector<std::string>& kinds);

}  // namespace kvcast::policy

// Prior knowledge of a model that some policies need: which heads retrieve, and which layers suffer from compression.
// It is measured once on probes and stored in a YAML file that configurations name.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "policy/parameters.hpp"
#include "trace/trace.hpp"

namespace kvcast::policy {

// Kinds of head scores, all ≥ 0, one per query head.
//
// semantic: attention on the whole answer span while the answer is generated (CompressKV's equation 5).
//
// retrieval: mean share of attention on the positions that each step must attend to.
//
// echo: mean attention on earlier occurrences of the current token (RazorAttention).
//
// induction: mean attention on the tokens after these occurrences.
const std::vector<std::string>& head_score_kinds();

struct Profile {
  std::string path;    // file from which it was read, for messages
  std::string model;   // name of the model, for readers
  std::string source;  // data that it was measured on, for readers
  int n_layers = 0, n_q_heads = 0, n_kv_heads = 0;
  // One score per query head, by kind, then by layer. Layers may be missing.
  std::map<std::string, std::map<int, std::vector<double>>> heads;
  std::map<int, double> layer_errors;  // ≥ 0; CompressKV's equation 9; layers may be missing

  // Throws UserError unless the trace has the same layers and heads.
  void check_shape(const trace::TraceInfo& info) const;
  // Scores of any layer of the model: those of the nearest layer that has them, the lower one of two equally near.
  const std::vector<double>& head_scores(const std::string& kind, int layer) const;
  // Layer errors of all layers of the model by the same rule, normalised to add up to 1.
  std::vector<double> layer_shares() const;
};

// Throws UserError (location; text found) for anything but a complete, well-formed profile.
Profile read_profile(const std::string& path);
// Writes the text that read_profile reads.
std::string write_profile(const Profile& profile);

inline constexpr const char* kProfileKey = "profile";
// Declares the parameter `profile`: a name under configs/profiles or a path.
Parameter profile_parameter(const std::string& needed_for);
// Reads the profile. Throws UserError if the parameter names none, or if the profile lacks `kind` (a kind of head
// scores, or "layer_errors").
std::shared_ptr<const Profile> load_profile(const ParameterValues& values, const std::vector<std::string>& kinds);

}  // namespace kvcast::policy

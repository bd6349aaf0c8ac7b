// Measures on traces what some policies must know of a model beforehand: which heads retrieve, which layers suffer from
// compression. `kvcast profile` writes it to a file that configurations name (policy/profile.hpp).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "policy/policy.hpp"
#include "policy/profile.hpp"
#include "replay/oracle.hpp"
#include "trace/targets.hpp"

namespace kvcast::replay {

// Scores of every query head of one captured layer over the decode steps of full attention. All are means over the
// steps that have targets, but for the first, which is a sum as its equation says.
struct HeadProbe {
  // Σ over the steps that must attend to something, of the attention on all positions that any step must attend to: the
  // answer's span (CompressKV, arXiv 2508.02401, equation 5; a step that has targets counts as a correct answer).
  std::vector<double> semantic;
  std::vector<double> retrieval;  // attention on the step's own targets
  // RazorAttention measures these two on a text that repeats. A target is what the step goes on with, so the position
  // before it stands for the earlier occurrence of the current token, and the target for the token after that.
  std::vector<double> echo, induction;
};
// UserError where no step has targets.
HeadProbe probe_heads(const Oracle& oracle, const trace::Targets& targets);

// Σ over decode steps of ‖O_kept − O_full‖ / (‖O_full‖ + 1e-6), O the outputs of all query heads of the layer side by
// side, of a cache that keeps what `policy` does (CompressKV, equation 9, before the output projection).
double layer_error(const Oracle& oracle, const policy::Policy& policy);

// Equations 10 to 12: errors of each data set by layer, each set divided by its sum, their mean, divided by its sum.
// Every set has as many layers, not all errors zero.
std::vector<double> average_errors(std::span<const std::vector<double>> sets);

// The whole profile from traces of one model with the same captured layers, each a data set: heads' scores are means
// over the traces. kept: tokens a layer in the runs that give its error (the paper's 32), by SnapKV with a window of 8,
// average pooling over 5. UserError for traces of different shape, without targets or with fewer prompt queries than 8.
policy::Profile make_profile(std::span<const trace::Trace* const> traces, std::int64_t kept, int threads);

// Writes the directions that Loki and InfiniGen may know beforehand (policy/bases.hpp), of the layers that the traces
// hold: second moments of the prompts' keys and queries, each trace's with its own mean removed where the kind says so,
// added up over the traces. Kinds that a trace lacks the queries for are left out; returns those written. UserError as
// above, and where the file cannot be written.
std::vector<std::string> write_bases(std::span<const trace::Trace* const> traces, const std::string& path, int threads);

}  // namespace kvcast::replay

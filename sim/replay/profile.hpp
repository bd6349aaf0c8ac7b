// Measures, on traces, the prior knowledge of a model that some policies need: the heads that retrieve, and the layers
// that suffer from compression. `kvcast profile` writes it to a file that configurations name (policy/profile.hpp).
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
// steps that have targets, except the first, which is a sum as its equation says.
struct HeadProbe {
  // Σ over the steps with targets, of the attention on all positions that any step needs: the answer's span
  // (CompressKV, arXiv 2508.02401, equation 5; a step that has targets counts as a correct answer).
  std::vector<double> semantic;
  std::vector<double> retrieval;  // attention on the step's own targets
  // RazorAttention measures these two on repeated text. A target is the token that the step continues with, so the
  // position before it represents the earlier occurrence of the current token, and the target the token after that.
  // Only the position before the first of several adjacent targets counts.
  std::vector<double> echo, induction;
};
// targets: as read_targets returns them. Throws UserError if no step has any.
HeadProbe probe_heads(const Oracle& oracle, const trace::Targets& targets);

// Σ over decode steps of ‖O_kept − O_full‖ / (‖O_full‖ + 1e-6), O the concatenated outputs of all query heads of the
// layer, for a cache that keeps what `policy` does (CompressKV, equation 9, before the output projection).
double layer_error(const Oracle& oracle, const policy::Policy& policy);

// Equations 10 to 12: errors of each data set by layer, each set divided by its sum, their mean, divided by its sum.
// All sets have the same number of layers, and not all errors are zero.
std::vector<double> average_errors(std::span<const std::vector<double>> sets);

// The origin of a profile as its `source` states it: the file's name, synthetic or captured, and the content hash.
std::string source_text(const trace::Trace& trace);
// Throws UserError for a trace whose shape or layers are not those of a profile's first trace, naming both files.
[[noreturn]] void refuse_unlike(const trace::TraceInfo& first, const trace::TraceInfo& other);

// The whole profile from traces of one model with the same captured layers, each a data set: heads' scores are means
// over the traces. kept: tokens per layer in the runs that give its error (the paper's 32), by SnapKV with a window of
// 8, average pooling over 5. Throws UserError for traces of different shape, without targets or with fewer than 8
// prompt queries.
policy::Profile make_profile(std::span<const trace::Trace* const> traces, std::int64_t kept, int threads);

// Writes the directions that Loki and InfiniGen may know beforehand (policy_parts/bases.hpp), for the layers in the
// traces: second moments of the prompts' keys and queries, each trace's with its own mean removed if the kind says so,
// summed over the traces. Kinds for which a trace lacks the queries are left out; returns those written. Throws
// UserError as above, and if the file cannot be written.
std::vector<std::string> write_bases(std::span<const trace::Trace* const> traces, const std::string& path, int threads);

}  // namespace kvcast::replay

// Provenance of the fitted part of a profile, and the shapes that it is valid for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvcast::config {

class Section;

// A closed range.
struct SizeRange {
  double low = 0, high = 1e18;
  bool holds(double x) const { return low <= x && x <= high; }
};

// The shapes that attention parameters were established for; all shapes if a profile does not say. (Curves, such as
// those of GEMMs, have their own range.)
struct KernelRange {
  SizeRange attention_rows, attention_tokens, attention_head_dim;  // (sequence, KV head) pairs; KV pairs per row
};

// The measurements that part of a profile was fitted to, and the residuals of the fit. Errors are relative and
// unsigned, as fractions.
struct Calibration {
  struct Residuals {
    std::int64_t n = 0;
    double median = 0, p90 = 0;
  };
  std::string kernel;  // "attention", "gemm", or a benchmark of the measuring programs
  std::string points;  // file of the points, from the root of the repository: CSV, or JSON of the measuring programs
  std::string source, date;
  Residuals fit, held_out;
  // Repeatability of cases measured in several passes: longest over shortest time, less 1. No model's error can be
  // below it.
  std::optional<Residuals> repeated;
  std::optional<Residuals> beyond_cache;     // of the held-out points, those that read more than twice the L2
  double budget_median = 0, budget_p90 = 0;  // limits for beyond_cache, or for held_out if there is none
  const Residuals& judged() const { return beyond_cache ? *beyond_cache : held_out; }
};

// `range:` of a gpu section: a map of the members of KernelRange to [low, high]; all keys are optional.
KernelRange read_range(Section& gpu);

// `calibration:` of a profile: a list, empty where absent. UserError for residuals above the stated budget.
std::vector<Calibration> read_calibrations(Section& profile);

// A short text that changes with every number, for config::canonical.
std::string canonical(const KernelRange& range);

}  // namespace kvcast::config

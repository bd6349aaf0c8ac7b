// Suite `times`: are times that others measured reproduced, by kind of measurement, and do the intervals contain them?
#pragma once

#include <string>
#include <vector>

#include "validate/papers.hpp"
#include "validate/suite.hpp"

namespace kvcast::validate {

// Groups of the suite in addition to those of transfer.hpp.
inline constexpr const char* kFittedCards = "kernels, fitted cards";
inline constexpr const char* kFusedRuntimes = "fused runtimes";
inline constexpr const char* kEagerFrameworks = "eager frameworks";
inline constexpr const char* kEagerPrompts = "prompts in eager frameworks";
inline constexpr const char* kPoliciesInEngines = "policies in engines";
inline constexpr const char* kPoliciesInEagerFrameworks = "policies in eager frameworks";
inline constexpr const char* kLatentAttention = "latent attention and experts";
inline constexpr const char* kExperts = "mixtures of experts";
inline constexpr const char* kModelsOf2026 = "models of 2026";
inline constexpr const char* kTransformers5 = "transformers 5 on an H100";
inline constexpr const char* kOtherKernels = "other kernels and copies";

// Source of a file whose claims name their own sources before the location.
inline constexpr const char* kOthers = "others";

// Cases are the claims of these papers that name a group of times, the kernels of a table (see
// configs/validation/times), and the held-out points of the profiles, each predicted by its own profile and by those of
// other GPUs.
Suite times(const std::vector<Paper>& papers, const std::string& kernel_table, const RunAll& run_all);

// The interval half-width that a group's residuals require.
struct Widening {
  std::string key, group;  // key in configs/validation/intervals.yaml; groups of the suite
  int n = 0, sources = 0;
  double learnt = 0;          // half-width of the logarithm with which four fifths of the group lie in their intervals
  double half_width = 0;      // the same, or a larger minimum (times.cpp)
  double coverage_apart = 0;  // share of each source's numbers within the interval that the others require
  std::string costs_key;      // key of the next in the file; empty: always 1
  double costs = 1;           // share of stated uncertainties in the intervals
};

// In the order of the file. A suite's intervals include the half-widths in use, which are removed first.
std::vector<Widening> widenings(const Suite& suite);

// The text of configs/validation/intervals.yaml.
std::string intervals_text(const std::vector<Widening>& widenings);

}  // namespace kvcast::validate

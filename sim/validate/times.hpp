// Suite `times`: do times that others measured come out, by what they were measured of, and do the intervals hold them?
#pragma once

#include <string>
#include <vector>

#include "validate/papers.hpp"
#include "validate/suite.hpp"

namespace kvcast::validate {

// Groups of the suite beside those of transfer.hpp.
inline constexpr const char* kFittedCards = "kernels, fitted cards";
inline constexpr const char* kFusedRuntimes = "fused runtimes";
inline constexpr const char* kEagerFrameworks = "eager frameworks";
inline constexpr const char* kPoliciesInEngines = "policies in engines";
inline constexpr const char* kOtherKernels = "other kernels and copies";

// The source of a file whose claims name their own, in front of the place.
inline constexpr const char* kOthers = "others";

// Claims of these papers that belong to a group of times, among them all of a paper whose claims name such a group;
// kernels of a table (see configs/validation/times); held-out points of the profiles, by their own and by each other.
Suite times(const std::vector<Paper>& papers, const std::string& kernel_table, const RunAll& run_all);

// What a group's residuals ask of its intervals.
struct Widening {
  std::string key, group;  // of configs/validation/intervals.yaml, of the suite
  int n = 0, sources = 0;
  double learnt = 0;          // with it, of a logarithm, four fifths of the group lie in their intervals
  double half_width = 0;      // the same, or what is known to be left out beside
  double coverage_apart = 0;  // of each source's numbers by the half-width that the others ask for
};

// In the order of the file. A suite's intervals hold the half-widths in use, which are taken out before.
std::vector<Widening> widenings(const Suite& suite);

// The text of configs/validation/intervals.yaml.
std::string intervals_text(const std::vector<Widening>& widenings);

}  // namespace kvcast::validate

// Comparison of two sets of results, such as the stores of two sweeps that differ in the version of kvcast, the
// machine, or the profile of a machine.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/compare.hpp"
#include "plan/question.hpp"
#include "result/result.hpp"

namespace kvcast::plan {

struct StoreResults {
  std::string name;  // as the user knows it: a folder
  std::vector<result::Result> results;
  std::map<std::string, std::vector<result::MachineNumber>> machines;
};

// Two experiments of the same setting, by their indices in `results`.
struct Pair {
  std::size_t before = 0, after = 0;
  std::string setting;  // distinguishes it from the other pairs: "quest, budget 1024, prompt_tokens 32768"
};

struct MatchedResults {
  std::vector<Pair> pairs;  // in the order of `after`
  // "hardware: h100-sxm against h200": keys that have one value in each set, and another one in the other, and machines
  // whose numbers are changed in one of them. Pairs differ in these and in nothing else.
  std::vector<std::string> differences;
  std::vector<std::string> disjoint;            // without any pair: keys of which no value occurs in both sets
  std::size_t only_before = 0, only_after = 0;  // experiments without a counterpart
};

// Pairs experiments whose keys are equal, except keys that have one value throughout each set and keys that only one of
// the sets knows. Of several machines, each is paired with the one of the same name whose numbers are changed, if a set
// has it once. A policy's parameters are compared policy by policy. Settings that several experiments of a set share
// are left unpaired.
MatchedResults match_settings(const StoreResults& before, const StoreResults& after);

// Returns one answer of kind "changes" per metric that changed, preceded by one of kind "compared" that states how the
// two sets differ and which numbers did not change. `data` of "changes": {metric, before, after, changes: [{setting,
// before, after, times, interval, beyond, better}]}, the largest changes first; times is after over before in the
// metric's own unit. A change below 0.1 % counts as none; one beyond its interval cannot come from the uncertain costs
// that both share.
std::vector<Answer> changes(const StoreResults& before, const StoreResults& after);

}  // namespace kvcast::plan

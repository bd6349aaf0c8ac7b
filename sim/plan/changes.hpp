// What changed between two sets of results, such as the stores of two sweeps: of two versions of kvcast, two machines,
// two profiles of the same machine.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/compare.hpp"
#include "plan/question.hpp"
#include "result/result.hpp"

namespace kvcast::plan {

struct Results {
  std::string name;  // as the user knows them: a folder
  std::vector<result::Result> results;
  std::map<std::string, std::vector<result::MachineNumber>> machines;
};

// Two experiments of the same setting, by their places in `results`.
struct Pair {
  std::size_t before = 0, after = 0;
  std::string setting;  // "quest, budget 1024, prompt_tokens 32768": what tells it from the other pairs
};

struct Matched {
  std::vector<Pair> pairs;  // in the order of `after`
  // "hardware: h100-sxm, h200": keys that have one value in each set, and another one in the other. Pairs differ by
  // these and by nothing else.
  std::vector<std::string> differences;
  std::size_t only_before = 0, only_after = 0;  // experiments without a partner
};

// Pairs experiments whose keys are equal, but for keys that have one value throughout each set and for keys that only
// one of the sets knows. A policy's parameters are looked at policy by policy. Settings that several experiments of a
// set share are left without a partner.
Matched match_settings(const Results& before, const Results& after);

// One answer a metric that changed, of kind "changes", and before them one of kind "compared" that says how the two
// sets differ and what changed nothing. `data` of "changes": {metric, before, after, changes: [{setting, before, after,
// times, interval, beyond, better}]}, the largest changes first; times is after over before in the metric's own unit.
// A change below 0.1 % counts as none; one beyond its interval cannot come from the uncertain costs that both share.
std::vector<Answer> changes(const Results& before, const Results& after);

}  // namespace kvcast::plan

// The first questions about a sweep, answered from its results: which policy, from which batch on it pays, what its
// bottleneck is, and which cost the answer depends on most.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/run.hpp"
#include "plan/target.hpp"
#include "result/result.hpp"
#include "store/finding.hpp"

namespace kvcast::plan {

// Numbers of the machine that are off together, a list of keys, as one name: the first, and how many more.
std::string name_of(const std::vector<std::string>& keys);
// Whether costs that make a step so many times as long, longer or shorter, move it by a per cent.
bool is_significant(double longer, double shorter);

// The `score:` of a configuration, or the default.
config::ScoreChoice score_choice(const config::Node& config);
// The target that a score is at least the floor; none where the configuration says `score: none`.
std::vector<Target> floor_target(const config::ScoreChoice& choice);

// A yardstick, not a system: never recommended.
bool is_oracle(const result::Result& result);

// The results that fit, meet the targets and are no oracles, fastest first.
std::vector<const result::Result*> recommended(const std::vector<const result::Result*>& results,
                                               const std::vector<Target>& targets);

using Finding = store::Finding;

// On each machine (where the sweep varies them, for each model, trace and number of generated tokens), at the longest
// context at which anything fits:
//  - the fastest setting of any batch whose predicted score meets the floor, with its intervals, how many times as fast
//    as full KV at the batch that is best for full KV, and as the fastest setting of another policy;
//  - from which batch that policy setting beats full KV, by context;
//  - the bottleneck of its decode step;
//  - the numbers of the machine that may move that step most.
// Always these four, in this order. Settings without a predicted score are not recommended where there is a floor, and
// the detail says how many and why. Failed results are left out. Seeds are no places of their own: of experiments that
// differ in them alone the one with the middle throughput is told of.
std::vector<Finding> findings(std::span<const result::Result> results, const config::ScoreChoice& score);

}  // namespace kvcast::plan

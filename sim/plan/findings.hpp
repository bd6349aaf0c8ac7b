// The main conclusions of a sweep, from its results: which policy to use, the batch from which it pays, its bottleneck,
// and the cost that the answer depends on most.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/run.hpp"
#include "plan/best_batch.hpp"
#include "plan/rows.hpp"
#include "plan/target.hpp"
#include "result/result.hpp"
#include "store/finding.hpp"

namespace kvcast::plan {

// A name for numbers of the machine that err together, given as a list of keys: the first, and how many more.
std::string name_of(const std::vector<std::string>& keys);
// Returns whether costs that multiply a step by these factors, longer or shorter, move it by a per cent.
bool is_significant(double longer, double shorter);

// Returns the `score:` of a configuration, or the default.
config::ScoreChoice score_choice(const config::Node& config);
// Returns the target that a score is at least the floor; none if the configuration says `score: none`.
std::vector<Target> floor_target(const config::ScoreChoice& choice);

// Returns whether the policy is an oracle: a yardstick, never recommended.
bool is_oracle(const result::Result& result);

using Finding = store::Finding;

// Findings describe this many groups, in order of appearance.
inline constexpr std::size_t kMostGroups = 64;

// The best batches of settings, one line for each of these results, all of which fit; none where nothing was searched.
using SearchBatches = std::function<std::vector<BatchLine>(const std::vector<const result::Result*>&)>;

// Conclusions on each group of results, at the longest context at which anything fits:
//  - the setting that serves most requests among those whose predicted score meets the floor, each at its own best
//  batch,
//    with its intervals, the settings that tie with it, and its requests per second relative to full KV's and to those
//    of another policy: at the best batch of each if `search` finds it, and at equal batch;
//  - the batch from which that policy setting beats full KV, by context;
//  - the bottleneck of its decode step;
//  - the numbers of the machine that may move that step most.
// A group has one machine, model, trace, number of generated tokens, and benchmark of the score; experiments that
// differ only in seeds are of one group. Always these four, in this order. Batches are searched in the first
// `kSearchedGroups` groups. Settings without a predicted score are not recommended if there is a floor; the detail says
// how many and why. Failed results are left out. Of experiments that differ only in seeds, the one with the median
// throughput is reported.
inline constexpr std::size_t kSearchedGroups = 8;
std::vector<Finding> findings(const ResultRows& rows, Texts& texts, const LoadResult& load,
                              const config::ScoreChoice& score, const SearchBatches& search = {});

}  // namespace kvcast::plan

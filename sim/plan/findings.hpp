// The first questions about a sweep, answered from its results: which policy at the memory limit, from which batch on
// it pays, what its bottleneck is, and which cost the answer depends on most.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/interval.hpp"
#include "result/result.hpp"
#include "store/finding.hpp"

namespace kvcast::plan {

// What findings need of one experiment.
struct Row {
  // What a comparison of policies holds fixed.
  std::string model, hardware;
  std::string trace;  // "recipe needle, seed 1", or its file
  std::int64_t decode_tokens = 0;
  std::int64_t context = 0;
  std::int64_t batch = 0;
  std::string policy;       // name with its parameters as swept: "quest, budget 1024"
  std::string policy_name;  // "quest"
  bool oracle = false;      // a yardstick, not a system
  bool oom = false;
  double tokens_per_s = 0;
  double low = 0, high = 0;       // interval of tokens_per_s
  double recall = 0;              // kept share of the attention mass
  std::optional<Interval> score;  // share of the uncompressed model's task score; where the trace has a task
  std::string bound;              // the bottleneck of a decode step
  // By the numbers of the machine that are off together ("gpu.gap_graph"): how many times as long a step takes with
  // them shorter, and longer. Numbers that are not listed do not move it.
  struct Factors {
    double shorter = 1, longer = 1;
  };
  std::map<std::string, Factors> moved_by;
  Factors of_trace;  // the same of the layers and steps that the trace happens to hold
};

// Numbers of the machine that are off together, a list of keys, as one name: the first, and how many more.
std::string name_of(const std::vector<std::string>& keys);
// Whether the costs move a step by a per cent.
bool is_significant(const Row::Factors& factors);

// How many times as fast as b a is, on one machine. Costs that move both cancel; what the trace's layers and steps do
// does not: what one policy finds hard another finds easy.
Interval times_as_fast(const Row& a, const Row& b);

using Finding = store::Finding;

// The row of a result that ran or did not fit.
Row row_of(const result::Result& result);

// A policy is recommended only if it keeps at least this share of the attention mass that the best one there keeps.
inline constexpr double kRecallShare = 0.95;

// Which policy: on each machine (where the sweep varies them, for each model, trace and number of generated tokens), at
// the longest context and the largest batch that any policy fits there, the fastest that keeps enough (kRecallShare;
// oracles are no candidates), and how far it leads the next one of another name. From which batch: the smallest at
// which it beats full KV, or full KV no longer fits, by context. The bottleneck of its decode step. What to measure:
// the numbers of the machine that may move that step most. Always these four, in this order; a machine on which nothing
// fits says so.
std::vector<Finding> findings(const std::vector<Row>& rows);
// The same from results; failed ones are left out.
std::vector<Finding> findings(std::span<const result::Result> results);

}  // namespace kvcast::plan

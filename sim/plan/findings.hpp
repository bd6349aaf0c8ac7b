// What a reader of a sweep asks first, from the store alone: which policy at the memory limit, from which batch on it
// pays, what holds it back, and which cost the answer hangs on.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/interval.hpp"
#include "store/store.hpp"

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
  std::string bound;              // what sets the pace of a decode step
  // By the numbers of the machine that are off together ("gpu.gap_graph"): how many times as long a step takes with
  // them shorter, and longer. What is not there does not move it.
  struct Factors {
    double shorter = 1, longer = 1;
  };
  std::map<std::string, Factors> moved_by;
  Factors of_trace;  // the same of the layers and steps that the trace happens to hold
};

// Numbers of the machine that are off together, a list of keys, as one name: the first, and how many more.
std::string name_of(const nlohmann::json& keys);
// Whether what is off moves a step by a per cent.
bool worth_telling(const Row::Factors& factors);

// How many times as fast as b a is, on one machine. Costs that move both cancel; what the trace's layers and steps do
// does not: what one policy finds hard another finds easy.
Interval times_as_fast(const Row& a, const Row& b);

struct Finding {
  std::string title;
  std::string text;    // a line a place: what
  std::string detail;  // a line a place, or one for all: how sure, beside what
};

std::vector<Row> read_rows(const store::Store& store);

// A policy is recommended only if it keeps at least this share of the attention mass that the best one there keeps.
inline constexpr double kRecallShare = 0.95;

// Which policy: in each place (a card; where the sweep varies them, with the model, the trace and the tokens
// generated), at the longest context and the largest batch that any policy fits there, the fastest that keeps enough
// (kRecallShare; oracles are no candidates), and how far it leads the next one of another name. From which batch: the
// smallest at which it beats full KV, or full KV no longer fits, by context. What binds: what sets the pace of its
// decode step. What to measure: the numbers of the machine that may move that step most. Always these four, in this
// order; a place where nothing fits says so.
std::vector<Finding> findings(const std::vector<Row>& rows);

}  // namespace kvcast::plan

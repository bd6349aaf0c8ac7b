// The selection of a policy in one layer at one step: the record that connects function (replay) and work (lowering).
#pragma once

#include <cstdint>
#include <vector>

namespace kvcast::policy {

// Counts of one head at one step that determine its cost; in tokens unless stated otherwise.
struct HeadCounts {
  std::int64_t attended = 0;       // KV pairs that attention reads on the GPU
  std::int64_t cpu_attended = 0;   // KV pairs that attention reads on the CPU
  std::int64_t scored = 0;         // units (pages, tokens, centroids) whose score is estimated
  std::int64_t candidates = 0;     // units that are reranked or looked up after the first estimate
  std::int64_t fetched = 0;        // tokens copied from host memory
  std::int64_t fetched_runs = 0;   // pieces that are copied separately: pages
  std::int64_t evicted = 0;        // tokens that lost their slot
  std::int64_t attended_runs = 0;  // contiguous pieces of the tokens that attention reads
  bool corrected = false;          // the step waited for this head's fetch

  bool operator==(const HeadCounts&) const = default;
};

struct HeadSelection {
  std::vector<std::int32_t> attended;  // ascending positions of all tokens that the step's attention reads
  std::vector<std::int32_t> fetched;   // ascending
  std::vector<std::int32_t> evicted;   // ascending
  HeadCounts counts;
  void clear() {
    attended.clear(), fetched.clear(), evicted.clear();
    counts = {};
  }
};

// Appends the numbers first … end − 1, none if end ≤ first.
void append_range(std::int64_t first, std::int64_t end, std::vector<std::int32_t>& out);
// Number of contiguous pieces of ascending positions.
std::int64_t count_runs(const std::vector<std::int32_t>& positions);
// Sets the counts that follow from the lists: attended (without cpu_attended), attended_runs, fetched, evicted. The
// policy sets the others.
void count_lists(HeadSelection& head);

// One entry per KV head, or per query head if the policy selects by query head.
struct LayerSelection {
  bool per_query_head = false;
  std::vector<HeadSelection> heads;
  // Empties the lists of this many heads and keeps their storage.
  void reset(std::size_t n, bool per_query) {
    per_query_head = per_query;
    heads.resize(n);
    for (HeadSelection& head : heads) head.clear();
  }
};

}  // namespace kvcast::policy

// What a policy did in one layer at one step: the record between function (replay) and work (lowering).
#pragma once

#include <cstdint>
#include <vector>

namespace kvcast::policy {

// Numbers of one head at one step that its cost follows from. All in tokens unless said otherwise.
struct HeadCounts {
  std::int64_t attended = 0;       // KV pairs that attention reads on the GPU
  std::int64_t cpu_attended = 0;   // KV pairs that attention reads on the CPU
  std::int64_t scored = 0;         // units (pages, tokens, centroids) whose score is estimated
  std::int64_t candidates = 0;     // units reranked or looked up after the first estimate
  std::int64_t fetched = 0;        // tokens copied from host memory
  std::int64_t fetched_runs = 0;   // pieces that are copied one by one: pages
  std::int64_t evicted = 0;        // tokens that lost their slot
  std::int64_t attended_runs = 0;  // contiguous pieces of what attention reads
  bool corrected = false;          // the step waited for this head's fetch

  bool operator==(const HeadCounts&) const = default;
};

struct HeadSelection {
  std::vector<std::int32_t> attended;  // ascending positions, all that the step's attention reads
  std::vector<std::int32_t> fetched;   // ascending
  std::vector<std::int32_t> evicted;   // ascending
  HeadCounts counts;
  void clear() {
    attended.clear(), fetched.clear(), evicted.clear();
    counts = {};
  }
};

// Contiguous pieces of ascending positions.
std::int64_t count_runs(const std::vector<std::int32_t>& positions);
// Sets the counts that the lists alone determine: attended (without cpu_attended), attended_runs, fetched, evicted. The
// rest is the policy's to state.
void count_lists(HeadSelection& head);

// One entry a KV head, or a query head where the policy selects per query head.
struct LayerSelection {
  bool per_query_head = false;
  std::vector<HeadSelection> heads;
  // Empty lists for this many heads; keeps their storage.
  void reset(std::size_t n, bool per_query) {
    per_query_head = per_query;
    heads.resize(n);
    for (HeadSelection& head : heads) head.clear();
  }
};

}  // namespace kvcast::policy

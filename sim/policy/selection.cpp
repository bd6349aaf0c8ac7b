#include "policy/selection.hpp"

#include <numeric>

namespace kvcast::policy {

void append_range(std::int64_t first, std::int64_t end, std::vector<std::int32_t>& out) {
  if (end <= first) return;
  out.resize(out.size() + static_cast<std::size_t>(end - first));
  std::iota(out.end() - (end - first), out.end(), static_cast<std::int32_t>(first));
}

std::int64_t count_runs(const std::vector<std::int32_t>& positions) {
  std::int64_t runs = positions.empty() ? 0 : 1;
  for (std::size_t i = 1; i < positions.size(); ++i) runs += positions[i] != positions[i - 1] + 1 ? 1 : 0;
  return runs;
}

void count_lists(HeadSelection& head) {
  head.counts.attended = static_cast<std::int64_t>(head.attended.size()) - head.counts.cpu_attended;
  head.counts.attended_runs = count_runs(head.attended);
  head.counts.fetched = static_cast<std::int64_t>(head.fetched.size());
  head.counts.evicted = static_cast<std::int64_t>(head.evicted.size());
}

}  // namespace kvcast::policy

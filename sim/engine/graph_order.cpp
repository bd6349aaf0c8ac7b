// Kahn's algorithm, rows in the order in which they become free. For a graph with a cycle it leaves the rows on cycles
// and those behind them; walking back from any of these along what is left must return to a row already seen.
#include <algorithm>

#include "base/error.hpp"
#include "engine/graph_input.hpp"

namespace kvcast::engine {

namespace {

template <typename Visit>
void each_wait(const Predecessors& waits, std::size_t row, const Visit& visit) {
  for (const std::uint32_t earlier : waits.after[row]) visit(earlier);
  if (waits.lane_before[row] >= 0) visit(static_cast<std::uint32_t>(waits.lane_before[row]));
}

std::vector<std::uint32_t> find_cycle(const Predecessors& waits, const std::vector<std::uint32_t>& open) {
  const auto blocked = [&](std::uint32_t row) { return open[row] > 0; };
  std::uint32_t at = 0;
  while (!blocked(at)) ++at;
  std::vector<std::uint32_t> path;
  std::vector<char> on_path(open.size(), 0);
  while (!on_path[at]) {
    on_path[at] = 1;
    path.push_back(at);
    // A blocked row waits for a blocked row.
    std::uint32_t next = at;
    bool found = false;
    each_wait(waits, at, [&](std::uint32_t earlier) {
      if (!found && blocked(earlier)) {
        next = earlier;
        found = true;
      }
    });
    KVCAST_CHECK(found);
    at = next;
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), at));
  return path;
}

}  // namespace

Ordering order_rows(const Predecessors& waits) {
  const std::size_t rows = waits.after.size();
  std::vector<std::uint32_t> open(rows, 0);  // number of predecessors that a row still waits for
  std::vector<std::size_t> first(rows + 1, 0);
  for (std::size_t row = 0; row < rows; ++row) {
    each_wait(waits, row, [&](std::uint32_t earlier) {
      ++open[row];
      ++first[earlier + 1];
    });
  }
  for (std::size_t row = 0; row < rows; ++row) first[row + 1] += first[row];
  std::vector<std::uint32_t> followers(first[rows]);
  std::vector<std::size_t> end(first.begin(), first.end() - 1);
  for (std::size_t row = 0; row < rows; ++row) {
    each_wait(waits, row, [&](std::uint32_t earlier) { followers[end[earlier]++] = static_cast<std::uint32_t>(row); });
  }
  Ordering result;
  result.order.reserve(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    if (open[row] == 0) result.order.push_back(static_cast<std::uint32_t>(row));
  }
  for (std::size_t done = 0; done < result.order.size(); ++done) {
    const std::uint32_t row = result.order[done];
    for (std::size_t f = first[row]; f < first[row + 1]; ++f) {
      if (--open[followers[f]] == 0) result.order.push_back(followers[f]);
    }
  }
  if (result.order.size() < rows) {
    result.order.clear();
    result.cycle = find_cycle(waits, open);
  }
  return result;
}

}  // namespace kvcast::engine

// Grids of numbers between which times of passes are nearly linear.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace kvcast::simulate {

// 1, 2, 3, 4, 6, 8, 12, 16, 24, …
inline std::int64_t grid_below(std::int64_t n) {
  std::int64_t power = 1;
  while (power * 2 <= n) power *= 2;
  return power >= 2 && power * 3 / 2 <= n ? power * 3 / 2 : power;
}
inline std::int64_t grid_above(std::int64_t n) {
  const std::int64_t below = grid_below(n);
  if (below == n) return n;
  std::int64_t power = 1;
  while (power * 2 <= n) power *= 2;
  return below == power && power >= 2 ? power * 3 / 2 : power * 2;
}

inline double line(double a, double b, double share) { return a + share * (b - a); }
inline double share_of(std::int64_t x, std::int64_t low, std::int64_t high) {
  return low == high ? 0 : static_cast<double>(x - low) / static_cast<double>(high - low);
}

// Value at x of a function that is simulated at grid numbers.
inline double between(std::int64_t x, const std::function<double(std::int64_t)>& at) {
  const std::int64_t low = grid_below(x), high = grid_above(x);
  return low == high ? at(low) : line(at(low), at(high), share_of(x, low, high));
}

template <typename Key, typename Make>
double remembered(std::map<Key, double>& memo, const Key& key, const Make& make) {
  const auto found = memo.find(key);
  return found != memo.end() ? found->second : memo.emplace(key, make()).first->second;
}

// Index of the cell of an ascending grid that x is in; the outer ones reach beyond it.
inline std::size_t cell_of(const std::vector<std::int64_t>& grid, std::int64_t x) {
  const auto above = std::upper_bound(grid.begin(), grid.end(), x);
  const auto cells = static_cast<std::ptrdiff_t>(grid.size()) - 1;
  return static_cast<std::size_t>(
      std::clamp<std::ptrdiff_t>(above - grid.begin() - 1, 0, std::max<std::ptrdiff_t>(0, cells - 1)));
}

}  // namespace kvcast::simulate

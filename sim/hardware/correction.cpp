#include <algorithm>
#include <array>
#include <cmath>

#include "hardware/work.hpp"

namespace kvcast::hardware {
namespace {

// Position of a number on an axis: the two nodes around it (the same one at the ends), and the share of their
// correction that is kept beyond the ends.
struct Place {
  std::array<std::size_t, 2> node{};
  std::array<double, 2> weight{};
  double kept = 1;
};

Place place(const std::vector<double>& axis, double x) {
  const auto faded = [](double octaves) { return std::max(0.0, 1 - octaves); };
  const std::size_t last = axis.size() - 1;
  if (x <= axis.front()) return {{0, 0}, {1, 0}, faded(std::log2(axis.front() / x))};
  if (x >= axis.back()) return {{last, last}, {1, 0}, faded(std::log2(x / axis.back()))};
  const auto above = static_cast<std::size_t>(std::upper_bound(axis.begin(), axis.end(), x) - axis.begin());
  const double share = std::log(x / axis[above - 1]) / std::log(axis[above] / axis[above - 1]);
  return {{above - 1, above}, {1 - share, share}};
}

}  // namespace

double attention_factor(const config::AttentionCorrection& correction, const graph::DecodeAttention& work) {
  const Place row = place(correction.rows, work.rows);
  const Place token = place(correction.tokens, work.tokens / work.rows);
  const Place group = place(correction.groups, work.group);
  double excess = 0;
  for (int g = 0; g < 2; ++g) {
    for (int r = 0; r < 2; ++r) {
      for (int t = 0; t < 2; ++t) {
        const double weight = group.weight[g] * row.weight[r] * token.weight[t];
        if (weight > 0) excess += weight * correction.at(group.node[g], row.node[r], token.node[t]);
      }
    }
  }
  return 1 + row.kept * token.kept * group.kept * excess;
}

}  // namespace kvcast::hardware

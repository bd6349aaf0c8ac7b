// Each function follows the released code that it names, including its rounding: totals differ from the nominal budget
// as they do there.
#include "policy_parts/budgets.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "policy_parts/ranking.hpp"

namespace kvcast::policy {

Budgets pyramid_budgets(const Pyramid& p, int layers) {
  KVCAST_CHECK(p.base >= 0 && p.beta >= 1 && layers >= 1);
  const auto n = static_cast<std::size_t>(layers);
  if (p.available + p.window < 2 * p.base) return Budgets(n, p.base);
  std::int64_t least = p.base / p.beta, most = 2 * p.base - least;
  if (most >= p.available) {
    most = p.available;
    least = 2 * p.base - most;
  }
  const std::int64_t step = layers > 1 ? (most - least) / (layers - 1) : 0;
  Budgets out(n);
  for (std::size_t l = 0; l < n; ++l) out[l] = most - static_cast<std::int64_t>(l) * step;
  return out;
}

Budgets smooth_pyramid_budgets(const Pyramid& p, int layers) {
  KVCAST_CHECK(p.base >= 0 && p.beta >= 1 && layers >= 1);
  const auto base = static_cast<double>(p.base), available = static_cast<double>(p.available);
  double least = base / static_cast<double>(p.beta), most = 2 * base - least;
  if (most >= available) {
    most = available;
    least = 2 * base - most;
  }
  Budgets out(static_cast<std::size_t>(layers), p.base);
  // The code has no pyramid if its last layer could not contain the window, or would have more than the first one.
  if (least < static_cast<double>(p.window) || most < least || layers == 1) return out;
  const double step = (most - least) / (layers - 1);
  for (std::size_t l = 0; l < out.size(); ++l) {
    out[l] = static_cast<std::int64_t>(std::nearbyint(most - static_cast<double>(l) * step));
  }
  return out;
}

Budgets error_aware_budgets(std::span<const double> scores, std::int64_t total, std::int64_t least, std::int64_t most) {
  KVCAST_CHECK(!scores.empty() && least >= 0 && most >= least);
  const auto rest = static_cast<double>(total - least * static_cast<std::int64_t>(scores.size()));
  Budgets out;
  for (const double score : scores) {
    out.push_back(std::clamp(least + static_cast<std::int64_t>(std::nearbyint(score * rest)), least, most));
  }
  std::int64_t open = total - std::accumulate(out.begin(), out.end(), std::int64_t{0});
  for (; open != 0; open += open > 0 ? -1 : 1) {
    std::size_t chosen = scores.size();
    for (std::size_t l = 0; l < scores.size(); ++l) {
      if (open > 0 ? out[l] >= most : out[l] <= least) continue;
      const bool better =
          chosen == scores.size() || (open > 0 ? scores[l] > scores[chosen] : scores[l] < scores[chosen]);
      if (better) chosen = l;
    }
    if (chosen == scores.size()) break;
    out[chosen] += open > 0 ? 1 : -1;
  }
  return out;
}

Budgets preference_budgets(std::span<const double> preferences, std::int64_t total, std::int64_t available) {
  KVCAST_CHECK(!preferences.empty() && total >= 0 && available >= 0);
  const double sum = std::accumulate(preferences.begin(), preferences.end(), 0.0);
  const auto layers = static_cast<double>(preferences.size());
  Budgets out;
  for (const double p : preferences) {
    const double share = sum > 0 ? p / sum : 1 / layers;
    out.push_back(std::min(available, static_cast<std::int64_t>(share * static_cast<double>(total))));
  }
  std::int64_t open = total - std::accumulate(out.begin(), out.end(), std::int64_t{0});
  while (open > 0) {
    const auto below = std::count_if(out.begin(), out.end(), [&](std::int64_t b) { return b < available; });
    if (below == 0) break;
    const std::int64_t each = open / below;
    for (std::int64_t& b : out) {
      if (b >= available || open == 0) continue;
      const std::int64_t given = std::min(available - b, std::max<std::int64_t>(each, 1));
      b += std::min(given, open);
      open -= std::min(given, open);
    }
  }
  return out;
}

namespace {

// Appends a head's scores in the form in which they compete with those of the other heads of the layer.
void append_competing(const Adaptive& setting, std::size_t base, const std::vector<float>& head,
                      std::vector<float>& all) {
  Ranking ranking;
  std::vector<std::int32_t> best;
  double factor = 1;
  if (setting.normalise && !setting.forced) {
    ranking.select(head, base, best);
    double top = 0;
    for (const std::int32_t i : best) top += static_cast<double>(head[i]);
    const double sum = std::accumulate(head.begin(), head.end(), 0.0);
    factor = sum > 0 ? top / sum : 0;
  }
  const std::size_t first = all.size();
  for (const float x : head) all.push_back(static_cast<float>(factor * x));
  if (!setting.forced) return;
  ranking.select(head, static_cast<std::size_t>(static_cast<double>(base) * setting.floor), best);
  for (const std::int32_t i : best) all[first + i] = HUGE_VALF;
}

}  // namespace

Budgets adaptive_budgets(const Adaptive& setting, std::span<const std::vector<float>> scores) {
  KVCAST_CHECK(setting.base >= 0 && !scores.empty());
  const auto base = static_cast<std::size_t>(setting.base);
  std::vector<float> all;
  std::vector<std::int32_t> ends;  // end of each head's scores among all
  for (const std::vector<float>& head : scores) {
    append_competing(setting, base, head, all);
    ends.push_back(static_cast<std::int32_t>(all.size()));
  }
  Ranking ranking;
  std::vector<std::int32_t> best;
  ranking.select(all, base * scores.size(), best);
  Budgets out(scores.size(), 0);
  std::size_t owner = 0;
  for (const std::int32_t i : best) {
    while (i >= ends[owner]) ++owner;
    ++out[owner];
  }
  if (setting.forced) return out;
  const double least = std::floor(static_cast<double>(setting.base) * setting.floor);
  for (std::size_t h = 0; h < out.size(); ++h) {
    const double shared = static_cast<double>(out[h]) * (1 - setting.floor) + least;
    out[h] = std::min(static_cast<std::int64_t>(scores[h].size()), static_cast<std::int64_t>(std::nearbyint(shared)));
  }
  return out;
}

std::vector<double> importance_budgets(std::span<const double> importance, std::int64_t base, double beta) {
  KVCAST_CHECK(base >= 0 && beta > 0);
  const double each = std::floor(static_cast<double>(base) / beta);
  const double pool = each * static_cast<double>(importance.size());
  std::vector<double> out;
  for (const double share : importance) {
    out.push_back(std::nearbyint(share * pool + static_cast<double>(base) - each));
  }
  return out;
}

}  // namespace kvcast::policy

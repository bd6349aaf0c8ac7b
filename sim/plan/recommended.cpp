// Selects the results that may be recommended, and words the costs that move them.
#include <fmt/format.h>

#include <algorithm>

#include "plan/findings.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {

using Rows = std::vector<const result::Result*>;
using result::Result;

std::string name_of(const std::vector<std::string>& keys) {
  if (keys.empty()) return "?";
  return keys.size() == 1 ? keys[0] : fmt::format("{} and {} of the same source", keys[0], keys.size() - 1);
}

bool is_significant(double longer, double shorter) {
  constexpr double kTimesAsLong = 1.01;
  return std::max(longer, 1 / shorter) >= kTimesAsLong;
}

config::ScoreChoice score_choice(const config::Node& config) {
  const config::Node* const score = config.find("score");
  return score == nullptr ? config::ScoreChoice{} : config::read_score(*score);
}

std::vector<Target> floor_target(const config::ScoreChoice& choice) {
  if (choice.benchmark == config::ScoreChoice::kNone) return {};
  return {{result::find_metric("score.share_of_full"), false, false, choice.floor}};
}

bool is_oracle(const Result& result) { return result.subject.category == policy::Category::kOracle; }

Rows recommended(const Rows& results, const std::vector<Target>& targets) {
  Rows good;
  for (const Result* r : results) {
    if (!is_oracle(*r) && r->has_times() && !missed(*r, targets)) good.push_back(r);
  }
  const result::Metric& rate = *result::find_metric("request.requests_per_s");
  std::ranges::stable_sort(
      good, [&rate](const Result* a, const Result* b) { return *result::value(*a, rate) > *result::value(*b, rate); });
  return good;
}

}  // namespace kvcast::plan

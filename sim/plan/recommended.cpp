// Which results may be recommended, and words for the costs that move them.
#include <fmt/format.h>

#include <algorithm>

#include "plan/findings.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {

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

}  // namespace kvcast::plan

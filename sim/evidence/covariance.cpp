#include "evidence/covariance.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace kvcast::evidence {
namespace {

// Length scales of the functions of the budget and the scores.
constexpr double kShareLength = 2;   // powers of two of the budget's share of the prompt
constexpr double kTokensLength = 4;  // powers of two of the budget in tokens
constexpr double kAngleLength = .375;
constexpr double kFullLength = 40;  // points
// Correlation of the errors in two models if query heads share KV heads in one of them alone: a group of heads that
// share selects together. Chosen with all rows in view: 0.4 to 0.8 lower the mean error of a model left out from 8.5
// to 8.2 or 8.3 points of RULER, where one such model has been published, and change nothing for LongBench.
constexpr double kOtherHeads = .8;

using S = ScoredTask;

struct LevelRow {
  const char* name;
  bool budget, score, full;            // variables of its functions
  std::array<std::string S::*, 5> of;  // rows of one group agree on these
};
constexpr LevelRow kRows[kLevels] = {
    {"benchmark", true, true, true, {&S::benchmark}},
    {"task", true, true, false, {&S::benchmark, &S::task}},
    {"method", true, true, false, {&S::method, &S::benchmark}},
    {"paper_method", true, true, false, {&S::paper, &S::method, &S::benchmark}},
    {"paper_method_task", true, false, false, {&S::paper, &S::method, &S::benchmark, &S::task}},
    {"model_task", false, false, false, {&S::model, &S::benchmark, &S::task}},
    {"model_method", true, true, false, {&S::model, &S::paper, &S::method, &S::benchmark}},
    {"model_method_task", true, false, false, {&S::model, &S::paper, &S::method, &S::benchmark, &S::task}},
    {"model_method_score", true, true, false, {&S::model, &S::method, &S::benchmark, &S::task}}};

std::string group_of(const ScoredTask& s, const LevelRow& level) {
  std::string group;
  for (const auto part : level.of) group += part == nullptr ? "" : s.*part + "\n";
  return group;
}

// Settings without a paper have none of the levels that involve one.
bool has_level(const ScoredTask& s, const LevelRow& level) {
  return !s.paper.empty() || std::ranges::count(level.of, &S::paper) == 0;
}

double squared(double x) { return x * x; }

constexpr std::size_t kNamed = std::size_t{1} << 40;  // lower numbers are groups of a single setting

}  // namespace

double pooled_angle(const ScoredTask& setting, const SettingPoint& at, std::span<const ScoreRecord* const> records,
                    std::span<const SettingPoint> points, const std::function<bool(std::size_t index)>& is_seen) {
  constexpr double kShare = .5, kTokens = 1;  // length scales, in powers of two
  constexpr double kLeast = .3;               // minimum weight of a model's rows: distant budgets do not count
  struct Sum {
    double weight = 0, angle = 0;
  };
  std::map<std::string, Sum> models;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const ScoreRecord& r = *records[i];
    const bool same_policy = r.method == setting.method && r.paper == setting.paper;
    if (!same_policy || r.task != setting.task || r.model == setting.model || !is_seen(i)) continue;
    const double weight = std::exp(
        -.5 * (squared((at.share - points[i].share) / kShare) + squared((at.tokens - points[i].tokens) / kTokens)));
    Sum& sum = models[r.model];
    sum.weight += weight, sum.angle += weight * to_angle(r.simulated, r.full);
  }
  double angle = to_angle(setting.simulated, setting.full), count = 1;
  for (const auto& [model, sum] : models) {
    if (sum.weight > kLeast) angle += sum.angle / sum.weight, count += 1;
  }
  return angle / count;
}

std::string_view level_name(Level level) { return kRows[static_cast<std::size_t>(level)].name; }

Covariance::Covariance(const Components& components, const std::string& benchmark)
    : components_(components),
      scale_(components.scale[static_cast<std::size_t>(family_of(benchmark))]),
      noise_(components.noise[static_cast<std::size_t>(family_of(benchmark))]) {}

SettingPoint Covariance::point(const ScoredTask& s) {
  SettingPoint p;
  p.angle = to_angle(s.simulated, s.full), p.full = s.full;
  p.share = s.budget > 0 ? std::log2(s.budget_share()) : 0, p.tokens = s.budget > 0 ? std::log2(s.budget) : 0;
  p.shares_heads = s.group != 1;
  const double kept = s.budget > 0 ? std::min(1.0, s.budget_share()) : 0;
  p.loss = 1 - kept * kept;
  for (std::size_t l = 0; l < kLevels; ++l) {
    p.group[l] = has_level(s, kRows[l]) ? number(group_of(s, kRows[l])) : alone_++;
  }
  return p;
}

double Covariance::operator()(const SettingPoint& a, const SettingPoint& b) const {
  const double budget =
      std::exp(-.5 * (squared((a.share - b.share) / kShareLength) + squared((a.tokens - b.tokens) / kTokensLength)));
  const double score = std::exp(-.5 * squared((a.angle - b.angle) / kAngleLength));
  const double full = std::exp(-.5 * squared((a.full - b.full) / kFullLength));
  double k = 0;
  for (std::size_t l = 0; l < kLevels; ++l) {
    if (a.group[l] != b.group[l]) continue;
    const LevelRow& row = kRows[l];
    k += components_.variance[l] * (row.budget ? budget : 1) * (row.score ? score : 1) * (row.full ? full : 1);
  }
  return scale_ * k * a.loss * b.loss * (a.shares_heads == b.shares_heads ? 1 : kOtherHeads);
}

double Covariance::noise(const ScoredTask& s) const {
  constexpr double kSmall = 10;  // points
  const double small = kSmall / std::max(s.full, 1.0);
  return noise_ * (1 + small * small);
}

std::size_t Covariance::number(const std::string& group) {
  return numbers_.try_emplace(group, kNamed + numbers_.size()).first->second;
}

}  // namespace kvcast::evidence

#include "evidence/predictor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "config/section.hpp"

namespace kvcast::evidence {
namespace {

// Visits the values of all novelties and families with their names.
template <typename Values, typename Visit>
void for_each(Values& values, const Visit& visit) {
  for (const Novelty novelty : kAllNovelties) {
    for (std::size_t f = 0; f < kFamilies; ++f) {
      visit(fmt::format("{}_{}", novelty_name(novelty), family_name(static_cast<Family>(f))),
            values[static_cast<std::size_t>(novelty)][f]);
    }
  }
}

constexpr std::array<const char*, kRanges> kRangeNames{"", "_between"};  // suffixes

// "256", or "256 to 4096".
std::string range_text(double low, double high) {
  return low == high ? fmt::format("{:.0f}", low) : fmt::format("{:.0f} to {:.0f}", low, high);
}

// Tables, models, budgets and prompt lengths of rows.
class Rows {
 public:
  void add(const ScoreRecord& r) {
    const bool both = !r.paper.empty() && !r.table.empty();
    tables_.insert(r.paper + (both ? " " : "") + r.table), models_.insert(r.model);
    if (r.budget > 0) budget_low_ = std::min(budget_low_, r.budget), budget_high_ = std::max(budget_high_, r.budget);
    context_low_ = std::min(context_low_, r.context), context_high_ = std::max(context_high_, r.context);
  }
  bool any() const { return !tables_.empty(); }
  std::string text() const {
    constexpr std::size_t kMost = 3;
    std::vector<std::string> first(tables_.begin(),
                                   std::next(tables_.begin(), static_cast<long>(std::min(kMost, tables_.size()))));
    if (tables_.size() > kMost) first.push_back(fmt::format("{} more", tables_.size() - kMost));
    const char* const budget = budget_low_ == budget_high_ ? "a budget of " : "budgets of ";
    return fmt::format("{} ({}, {}prompts of {} tokens)", fmt::join(first, ", "), fmt::join(models_, ", "),
                       budget_high_ > 0 ? budget + range_text(budget_low_, budget_high_) + " tokens, " : "",
                       range_text(context_low_, context_high_));
  }

 private:
  static constexpr double kFar = std::numeric_limits<double>::infinity();
  std::set<std::string> tables_, models_;
  double budget_low_ = kFar, budget_high_ = 0, context_low_ = kFar, context_high_ = 0;
};

}  // namespace

Parameters read_parameters(const std::string& path) {
  config::Section section(config::load_yaml(path), "evidence");
  Parameters parameters;
  parameters.components = read_components(section.section("components", "components"));
  config::Section spread = section.section("spread", "spread");
  for_each(parameters.spread, [&](const std::string& name, auto& spreads) {
    for (std::size_t range = 0; range < kRanges; ++range)
      spreads[range] = spread.number(name + kRangeNames[range], 0, 100);
  });
  config::Section common = section.section("common", "common");
  for_each(parameters.common, [&](const std::string& name, double& c) { c = common.number(name, 0, 1); });
  spread.finish(), common.finish(), section.finish();
  return parameters;
}

std::string write_parameters(const Parameters& parameters) {
  std::string text = "components:\n" + write_components(parameters.components) + "spread:\n";
  for_each(parameters.spread, [&](const std::string& name, const auto& spreads) {
    for (std::size_t range = 0; range < kRanges; ++range)
      text += fmt::format("  {}{}: {:.3g}\n", name, kRangeNames[range], spreads[range]);
  });
  text += "common:\n";
  for_each(parameters.common,
           [&](const std::string& name, double c) { text += fmt::format("  {}: {:.3g}\n", name, c); });
  return text;
}

Parameters with_spreads(const JointFit& fit, const Components& components) {
  Parameters parameters;
  parameters.components = components;
  const Comparisons comparisons(fit.records());
  constexpr auto kNewTable = static_cast<std::size_t>(Novelty::kTable);
  for (const Novelty novelty : kAllNovelties) {
    std::array<std::vector<LeftOutScore>, kFamilies> families;
    for (LeftOutScore& l : leave_out(fit, novelty))
      families[static_cast<std::size_t>(family_of(l.record->benchmark))].push_back(std::move(l));
    for (std::size_t f = 0; f < kFamilies; ++f) {
      auto& spreads = parameters.spread[static_cast<std::size_t>(novelty)][f];
      double& common = parameters.common[static_cast<std::size_t>(novelty)][f];
      if (families[f].empty() && novelty == Novelty::kLength) {
        // Tasks of fixed length have no longer prompts, and get the intervals of a new table.
        spreads = parameters.spread[kNewTable][f], common = parameters.common[kNewTable][f];
        continue;
      }
      std::array<std::vector<const LeftOutScore*>, kRanges> ranges;
      for (const LeftOutScore& l : families[f])
        ranges[static_cast<std::size_t>(range_of(l.estimate.mean, l.record->full))].push_back(&l);
      for (std::size_t range = 0; range < kRanges; ++range) spreads[range] = spread_of(ranges[range]);
      common = common_of(held_out_means(held_out(families[f]), comparisons));
    }
  }
  return parameters;
}

Components fit_components(const std::vector<ScoreRecord>& records, Components components,
                          const std::function<void(std::size_t done, std::size_t total)>& advance) {
  // Outliers stay outliers: rows keep the noise fitted with the first components, in proportion to the variance of
  // noise.
  const JointFit first(records, components);
  const Components at_first = components;
  const auto error = [&](const Components& c) {
    std::vector<ScoreRecord> weighed = first.records();
    for (ScoreRecord& r : weighed) {
      const auto family = static_cast<std::size_t>(family_of(r.benchmark));
      r.noise *= c.noise[family] / at_first.noise[family];
    }
    const JointFit fit(std::move(weighed), c, JointFit::Noise::kOfRecords);
    double sum = 0;
    for (const Novelty novelty : kAllNovelties) sum += log_error(leave_out(fit, novelty));
    return sum;
  };
  std::vector<double*> all;
  for_each_component(components, [&all](const std::string&, double& value) { all.push_back(&value); });
  constexpr double kFactors[] = {2, .5};
  constexpr double kGain = 3e-3;
  const std::size_t in_pass = std::size(kFactors) * all.size();
  double best = error(components);
  for (bool changed = true; changed;) {
    changed = false;
    std::size_t done = 0;
    for (double* const value : all) {
      for (const double factor : kFactors) {
        const double before = *value;
        *value *= factor;
        const double now = error(components);
        if (now < best - kGain) {
          best = now, changed = true;
        } else {
          *value = before;
        }
        advance(++done, in_pass);
      }
    }
  }
  return components;
}

Predictor::Predictor(std::vector<ScoreRecord> records, Parameters parameters)
    : estimator_(std::move(records), parameters.components), parameters_(std::move(parameters)) {}

std::optional<Novelty> Predictor::novelty(const ScoredTask& s, const IsLeftOut& is_left_out) const {
  bool benchmark = false, model = false, method = false;
  double longest = 0;
  for (const ScoreRecord& r : estimator_.records()) {
    if (r.benchmark != s.benchmark || (is_left_out && is_left_out(r))) continue;
    benchmark = true, method = method || r.method == s.method;
    if (r.model == s.model) model = true, longest = std::max(longest, r.task == s.task ? r.context : 0);
  }
  if (!benchmark) return {};
  const bool longer = longest > 0 && s.context >= kLonger * longest;
  return !method ? Novelty::kMethod : !model ? Novelty::kModel : longer ? Novelty::kLength : Novelty::kTable;
}

Prediction Predictor::predict(const ScoredTask& s, const IsLeftOut& is_left_out) const {
  constexpr std::size_t kMost = 4096;
  if (is_left_out) return predicted(s, is_left_out);
  {
    const std::lock_guard lock(kept_->mutex);
    if (const auto known = kept_->predictions.find(s); known != kept_->predictions.end()) return known->second;
  }
  const Prediction made = predicted(s, {});
  const std::lock_guard lock(kept_->mutex);
  if (kept_->predictions.size() >= kMost) kept_->predictions.clear();
  kept_->predictions.emplace(s, made);
  return made;
}

Prediction Predictor::predicted(const ScoredTask& s, const IsLeftOut& is_left_out) const {
  const auto family = static_cast<std::size_t>(family_of(s.benchmark));
  // The errors of other methods say as little about a new benchmark as about a new method.
  const auto novel = static_cast<std::size_t>(novelty(s, is_left_out).value_or(Novelty::kMethod));
  const Estimate estimate = estimator_.estimate(s, is_left_out);
  const auto range = static_cast<std::size_t>(range_of(estimate.mean, s.full));
  const double half = parameters_.spread[novel][family][range] * estimate.deviation;
  const double angle = to_angle(estimate.mean, s.full);
  Prediction p;
  p.points = estimate.mean, p.common = parameters_.common[novel][family];
  p.low = std::min(p.points, to_points(angle - half, s.full));
  p.high = std::max(p.points, to_points(angle + half, s.full));
  return p;
}

std::string Predictor::nearest_paper(const ScoredTask& s, const std::set<std::string>& papers) const {
  constexpr double kFar = 100;  // powers of two between a budget and none
  const auto ratio = [](double a, double b) { return a > 0 && b > 0 ? std::abs(std::log2(a / b)) : a == b ? 0 : kFar; };
  const auto distance = [&](const ScoreRecord& r) {
    return std::tuple(r.model != s.model, r.task != s.task, ratio(r.budget, s.budget) + ratio(r.context, s.context),
                      r.paper == s.paper);
  };
  const ScoreRecord* nearest = nullptr;
  for (const ScoreRecord& r : estimator_.records()) {
    if (r.benchmark != s.benchmark || r.method != s.method || !papers.contains(r.paper)) continue;
    if (nearest == nullptr || distance(r) < distance(*nearest)) nearest = &r;
  }
  return nearest == nullptr ? s.paper : nearest->paper;
}

std::string Predictor::origin(const ScoredTask& s,
                              const std::function<bool(const std::string& paper)>& has_settings) const {
  struct {
    Rows same, other;  // settings
    bool any() const { return same.any() || other.any(); }
    std::string text() const {
      const std::string own = fmt::format("in {}", same.text());
      if (!other.any()) return own;
      const std::string others = fmt::format("at other settings of the policy, which count less, in {}", other.text());
      return same.any() ? fmt::format("{}; {}", own, others) : others;
    }
  } own, others;
  for (const ScoreRecord& r : estimator_.records()) {
    if (r.benchmark != s.benchmark || r.method != s.method) continue;
    auto& of_model = r.model == s.model ? own : others;
    (has_settings(r.paper) ? of_model.same : of_model.other).add(r);
  }
  if (own.any()) return fmt::format("published scores {}; the difference is simulated", own.text());
  if (others.any()) return fmt::format("published scores of other models {}; this model is simulated", others.text());
  return "the simulation alone: no published score of this method on this benchmark is known; the interval has the "
         "spread between methods";
}

}  // namespace kvcast::evidence

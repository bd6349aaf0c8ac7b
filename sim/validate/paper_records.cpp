// The effect of a source is the change of the formula's value if that source's costs are longer, or shorter, in every
// run.
#include "validate/paper_records.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "result/metric.hpp"

namespace kvcast::validate {
namespace {

using result::Direction;
using result::Result;

constexpr double kLeastEffect = 1e-3;  // smallest effect, as a share of the value, that makes the value uncertain

bool moves(const std::vector<double>& moved, double middle) {
  return std::ranges::any_of(moved,
                             [middle](double v) { return std::abs(v - middle) >= kLeastEffect * std::abs(middle); });
}

Origin origin_at(const Result& r, const std::string& name) {
  const result::Metric* const metric = result::find_metric(name);
  // Bytes and counts follow from selections; the uncertain size of activations widens their interval but is not their
  // origin.
  const bool is_time = metric != nullptr && metric->unit != result::Unit::kBytes &&
                       metric->unit != result::Unit::kCount && metric->basis != result::Basis::kReplay &&
                       metric->basis != result::Basis::kTaskScore;
  return is_time ? result::origin(r, *metric) : Origin::kExact;
}

std::string what_did_not_fit(const Result& r) {
  if (!r.experiment.oom) return "";
  return fmt::format(": does not fit in {} at {}", r.experiment.oom->pool, r.experiment.oom->moment);
}

}  // namespace

std::pair<const Result&, std::string> Records::find(const std::string& name) const {
  const std::size_t dot = name.find('.');
  return {results_.at(name.substr(0, dot)), name.substr(dot + 1)};
}

std::optional<double> Records::value(const Formula& formula, std::string& missing) const {
  std::map<std::string, double> numbers;
  for (const std::string& name : formula.names()) {
    const auto [r, number] = find(name);
    const std::optional<double> value = result::number_named(r, number);
    if (!value) {
      missing = fmt::format("{} is missing{}", name, what_did_not_fit(r));
      return {};
    }
    numbers[name] = *value;
  }
  return formula.value([&numbers](const std::string& name) { return numbers.at(name); });
}

std::optional<Interval> Records::interval(const Formula& formula) const {
  std::string missing;
  const std::optional<double> middle = value(formula, missing);
  if (!middle) return {};
  Spread spread(*middle);
  for (const std::string& source : sources(formula)) {
    std::vector<double> moved;
    for (const Direction direction : {Direction::kLonger, Direction::kShorter}) {
      moved.push_back(formula.value([&](const std::string& name) {
        const auto [r, number] = find(name);
        return result::number_shifted(r, source, direction, number).value();
      }));
    }
    if (moves(moved, *middle)) spread.add(moved);
  }
  spread.add(on_other_traces(formula));
  return spread.interval();
}

std::set<std::string> Records::sources(const Formula& formula) const {
  std::set<std::string> all;
  for (const std::string& name : formula.names()) {
    for (std::string& source : result::sources_of(find(name).first)) all.insert(std::move(source));
  }
  return all;
}

std::vector<double> Records::on_other_traces(const Formula& formula) const {
  std::size_t most = 0;
  const auto others_of = [this](const std::string& name) -> const std::vector<Result>* {
    const auto found = others_.find(name.substr(0, name.find('.')));
    return found == others_.end() ? nullptr : &found->second;
  };
  for (const std::string& name : formula.names()) {
    if (const auto* others = others_of(name)) most = std::max(most, others->size());
  }
  std::vector<double> values;
  for (std::size_t i = 0; i < most; ++i) {
    values.push_back(formula.value([&](const std::string& name) {
      const auto* others = others_of(name);
      const auto [r, number] = find(name);
      const bool there = others != nullptr && i < others->size();
      const auto value = there ? result::number_named((*others)[i], number) : std::nullopt;
      return value ? *value : result::number_named(r, number).value();
    }));
  }
  return values;
}

Origin Records::origin(const Formula& formula) const {
  Origin worst = Origin::kExact;
  for (const std::string& name : formula.names()) {
    const auto [r, number] = find(name);
    worst = worse(worst, origin_at(r, number));
  }
  return worst;
}

}  // namespace kvcast::validate

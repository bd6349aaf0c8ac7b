#include "result/metric.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "base/units.hpp"
#include "graph/owner.hpp"
#include "result/metric_rows.hpp"

namespace kvcast::result {
namespace {

// An origin counts from this share of the time on.
constexpr double kOriginShare = 0.05;

bool is_estimate(const PoolUse& use) { return use.uncounted > 0 || temporary_bytes(use) > 0; }

// Converts the name of an owner for formulas: "low-rank keys" is low_rank_keys.
std::string as_name(std::string text) {
  for (char& c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return text;
}

double bytes_of(const PoolUse& use, const std::string& name) {
  for (const OwnedBytes& o : use.owners) {
    if (as_name(o.owner) == name) return o.bytes;
  }
  return 0;
}

std::optional<std::string> after(std::string_view name, std::string_view prefix) {
  if (name.substr(0, prefix.size()) != prefix) return {};
  return std::string(name.substr(prefix.size()));
}

bool is_time(Basis basis) {
  return basis == Basis::kStepTime || basis == Basis::kPrefillTime || basis == Basis::kBuildTime ||
         basis == Basis::kRequestTime;
}

bool is_rate(Unit unit) { return unit == Unit::kTokensPerSecond || unit == Unit::kRequestsPerSecond; }

const std::vector<Effect>& effects_of(const Result& result) {
  return result.build ? result.build->effects : result.experiment.effects;
}

std::optional<Interval> time_interval(const Result& result, const Metric& metric, double middle) {
  FactorSpread spread;
  for (const Effect& effect : effects_of(result)) {
    spread.add(std::array{time_factor(result, metric, effect.longer), time_factor(result, metric, effect.shorter)});
  }
  return spread.interval(middle);
}

// Returns whether the policy's work differs between texts, or between steps and layers of the only one.
bool depends_on_text(const Result& result) {
  const auto is_sample = [](const Effect& e) { return e.source == kTraceSample; };
  return std::ranges::any_of(result.experiment.effects, is_sample);
}

// Returns whether a score follows from the method alone, as full attention's share of itself does.
template <class Score>
bool is_certain(const std::optional<Score>& score) {
  return score && score->interval.low == score->interval.high;
}

}  // namespace

std::string_view better_name(Better better) {
  static constexpr std::array<std::string_view, 3> kNames = {"higher", "lower", "neither"};
  return kNames[static_cast<std::size_t>(better)];
}

std::string_view unit_name(Unit unit) {
  static constexpr std::array<std::string_view, 8> kNames = {"s",      "bytes", "tokens/s", "requests/s",
                                                             "tokens", "share", "count",    "money"};
  return kNames[static_cast<std::size_t>(unit)];
}

std::span<const Metric> all_metrics() {
  static const std::vector<Metric> rows = metric_rows();
  return rows;
}

const Metric* find_metric(std::string_view name) {
  static const auto by_name = [] {
    std::map<std::string, const Metric*, std::less<>> all;
    for (const Metric& m : all_metrics()) {
      for (const std::string& key : {m.path, m.alias}) {
        if (!key.empty()) KVCAST_CHECK(all.emplace(key, &m).second);
      }
    }
    return all;
  }();
  const auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : found->second;
}

std::optional<double> value(const Result& result, const Metric& metric) {
  if (metric.derived != nullptr) return metric.derived(result, metric.which);
  // The accessor returns a mutable field; nothing is written here.
  const double* const field = metric.field(const_cast<Result&>(result), metric.which);
  return field == nullptr ? std::nullopt : std::optional<double>(*field);
}

Origin origin(const Result& result, const Metric& metric) {
  switch (metric.basis) {
    case Basis::kStepTime:
    case Basis::kStepPart:
      return origin_of(result.experiment.step);
    case Basis::kPrefillTime:
    case Basis::kPrefillPart:
      return origin_of(result.experiment.prefill);
    case Basis::kRequestTime: {
      const double share = *prefill_share(result, metric);
      const Origin step = origin_of(result.experiment.step), prefill = origin_of(result.experiment.prefill);
      return share < kOriginShare ? step : share > 1 - kOriginShare ? prefill : worse(step, prefill);
    }
    case Basis::kBuildTime:
    case Basis::kBuildPart:
      return result.build ? origin_of(result.build->time) : Origin::kExact;
    case Basis::kServing:
      return result.service ? result.service->origin : Origin::kExact;
    case Basis::kCapacity:
      return metric.capacity_of(result).capacity_spread > 0 ? metric.capacity_of(result).capacity_origin
                                                            : Origin::kExact;
    case Basis::kPeakMemory:
      return result.has_times() && is_estimate(result.experiment.hbm) ? Origin::kAssumed : Origin::kExact;
    case Basis::kDecodeMemory:
      return result.has_times() && is_estimate(result.experiment.decode_hbm) ? Origin::kAssumed : Origin::kExact;
    case Basis::kReplay:
      return result.accuracy.origin;
    case Basis::kTraffic:
      return depends_on_text(result) ? result.accuracy.origin : Origin::kExact;
    case Basis::kTaskScore:
      return is_certain(result.accuracy.task) ? Origin::kExact : Origin::kFitted;
    case Basis::kBenchmark:
      return is_certain(result.benchmark) ? Origin::kExact : Origin::kFitted;
    case Basis::kExact:
    case Basis::kProgram:
      break;
  }
  return Origin::kExact;
}

std::optional<double> prefill_share(const Result& result, const Metric& metric) {
  if (metric.basis == Basis::kStepTime) return 0;
  if (metric.basis == Basis::kPrefillTime) return 1;
  if (metric.basis != Basis::kRequestTime || !result.has_times()) return {};
  return metric.prefill_share(result);
}

double time_factor(const Result& result, const Metric& metric, const ShiftedTimes& shifted) {
  double factor = 1;
  if (metric.basis == Basis::kBuildTime) {
    factor = shifted.build;
  } else if (const auto share = prefill_share(result, metric)) {
    factor = *share * shifted.prefill + (1 - *share) * shifted.step;
  }
  return is_rate(metric.unit) ? 1 / factor : factor;
}

bool has_interval(const Metric& metric) {
  const Basis b = metric.basis;
  return is_time(b) || b == Basis::kCapacity || b == Basis::kPeakMemory || b == Basis::kDecodeMemory ||
         b == Basis::kTaskScore || b == Basis::kBenchmark || b == Basis::kReplay || b == Basis::kTraffic ||
         b == Basis::kServing;
}

std::optional<Interval> interval(const Result& result, const Metric& metric) {
  const auto middle = value(result, metric);
  if (!middle) return {};
  if (is_time(metric.basis)) return time_interval(result, metric, *middle);
  if (metric.basis == Basis::kCapacity) {
    const PoolUse& pool = metric.capacity_of(result);
    return Interval{pool.capacity - pool.capacity_spread, pool.capacity + pool.capacity_spread};
  }
  if (metric.basis == Basis::kPeakMemory) return peak_interval(result.experiment.hbm);
  if (metric.basis == Basis::kDecodeMemory) return peak_interval(result.experiment.decode_hbm);
  if (metric.basis == Basis::kTaskScore) return result.accuracy.task->interval;
  if (metric.basis == Basis::kBenchmark) return result.benchmark->interval;
  for (const TextInterval& other : result.by_text) {
    if (other.metric == metric.path) return other.interval;
  }
  return {};
}

std::optional<double> number_named(const Result& result, const std::string& name) {
  if (name == "fits") return result.status == Status::kOk ? 1 : 0;
  if (name == "batch") return static_cast<double>(result.subject.batch);
  if (const Metric* const metric = find_metric(name)) return value(result, *metric);
  if (const auto key = after(name, "config.")) return result.subject.number(*key);
  const bool has_memory = result.status != Status::kFailed && !result.build;
  if (const auto owner = after(name, "hbm_of."); owner && has_memory) {
    return bytes_of(result.experiment.decode_hbm, *owner);
  }
  if (const auto owner = after(name, "dram_of."); owner && has_memory) return bytes_of(result.experiment.dram, *owner);
  return {};
}

std::optional<double> number_shifted(const Result& result, const std::string& source, Direction direction,
                                     const std::string& name) {
  for (const Alternative& other : result.alternatives) {
    const auto& instead = direction == Direction::kLonger ? other.longer : other.shorter;
    if (other.source != source || !instead) continue;
    const bool speaks = name == "fits" || instead->status == Status::kOk;
    const auto number = speaks ? number_named(*instead, name) : std::nullopt;
    return number ? number : number_named(result, name);
  }
  return number_named(shifted(result, source, direction), name);
}

bool is_number_name(const std::string& name) {
  return name == "fits" || name == "batch" || find_metric(name) != nullptr || after(name, "config.") ||
         after(name, "hbm_of.") || after(name, "dram_of.");
}

std::string label_in_sentence(const Metric& metric) {
  std::string label = metric.label.substr(0, metric.label.find(", mean"));
  const bool word = label.size() > 1 && std::islower(static_cast<unsigned char>(label[1])) != 0;
  if (word) label[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(label[0])));
  return label;
}

std::string format_value(const Metric& metric, double value) {
  switch (metric.unit) {
    case Unit::kSeconds:
      return format_seconds(value);
    case Unit::kBytes:
      return format_quantity(value, Dimension::kBytes);
    case Unit::kTokensPerSecond:
      return format_digits(value, 4) + " tokens/s";
    case Unit::kRequestsPerSecond:
      return format_digits(value, 3) + " requests/s";
    case Unit::kTokens:
      return fmt::format("{:.0f} tokens", value);
    case Unit::kShare:
      return fmt::format("{} %", std::round(1e4 * value) / 100);
    case Unit::kMoney:
      return format_digits(value, 4);
    case Unit::kCount:
      break;
  }
  return format_digits(value, value == std::round(value) ? 6 : 4);
}

bool is_of_prefill(const Metric& metric) {
  return metric.basis == Basis::kPrefillTime || metric.basis == Basis::kPrefillPart;
}

std::string_view bottleneck(const metrics::Attribution& time) {
  const auto largest = std::ranges::max_element(time.bound);
  return metrics::bound_name(static_cast<metrics::Bound>(largest - time.bound.begin()));
}

Origin origin_of(const metrics::Attribution& time) {
  Origin worst = Origin::kExact;
  for (std::size_t o = 0; o < time.origin.size(); ++o) {
    if (time.origin[o] > 0 && time.origin[o] >= kOriginShare * time.total()) {
      worst = worse(worst, static_cast<Origin>(o));
    }
  }
  return worst;
}

bool is_temporary(const std::string& owner) {
  const auto known = graph::find_owner(owner);
  return known && graph::is_temporary(*known);
}

double temporary_bytes(const PoolUse& use) {
  double bytes = 0;
  for (const OwnedBytes& o : use.owners) {
    if (is_temporary(o.owner)) bytes += o.bytes;
  }
  return bytes;
}

double peak_shifted(const PoolUse& use, Direction direction) {
  const double sign = direction == Direction::kLonger ? 1 : -1;
  return use.peak + sign * kTemporarySpread * temporary_bytes(use);
}

Interval peak_interval(const PoolUse& use) {
  if (!is_estimate(use)) return {use.peak, use.peak};
  return {peak_shifted(use, Direction::kShorter), peak_shifted(use, Direction::kLonger) + use.uncounted};
}

}  // namespace kvcast::result

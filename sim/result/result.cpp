#include "result/result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "result/metric.hpp"

namespace kvcast::result {
namespace {

constexpr std::string_view kStatusNames[] = {"ok", "oom", "failed"};

template <typename Number>
std::optional<Number> whole_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

const ShiftedTimes& side_of(const Effect& effect, Direction direction) {
  return direction == Direction::kLonger ? effect.longer : effect.shorter;
}

void apply(const ShiftedTimes& times, Experiment& e) {
  for (double* seconds : {&e.tpot_mean_s, &e.tpot_p50_s, &e.tpot_p99_s}) *seconds *= times.step;
  e.tokens_per_s /= times.step;
  e.ttft_s *= times.prefill, e.first_ttft_s *= times.prefill;
  if (times.step_parts) e.step = *times.step_parts;
  if (times.prefill_parts) e.prefill = *times.prefill_parts;
}

}  // namespace

std::string_view status_name(Status status) { return kStatusNames[static_cast<std::size_t>(status)]; }

std::optional<Status> status_from_name(std::string_view name) {
  const auto found = std::find(std::begin(kStatusNames), std::end(kStatusNames), name);
  if (found == std::end(kStatusNames)) return {};
  return static_cast<Status>(found - std::begin(kStatusNames));
}

MemoryFit fit_of(const Result& result) {
  if (result.borderline) return MemoryFit::kBorderline;
  return result.status == Status::kOk ? MemoryFit::kFits : MemoryFit::kDoesNotFit;
}

std::string_view fit_name(MemoryFit fit) {
  static constexpr std::string_view kNames[] = {"fits", "borderline", "does not fit"};
  return kNames[static_cast<std::size_t>(fit)];
}

std::string text_of(const SettingValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *integer);
  if (const double* number = std::get_if<double>(&value)) return fmt::format("{}", *number);
  return std::get<std::string>(value);
}

std::optional<double> number_of(const SettingValue& value) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return static_cast<double>(*integer);
  if (const double* number = std::get_if<double>(&value)) return *number;
  if (const auto* text = std::get_if<std::string>(&value)) return whole_number<double>(*text);
  return {};
}

SettingValue setting_value(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  // "007" and "+1" are texts: text_of() would not give them back.
  if (const auto integer = whole_number<std::int64_t>(text); integer && fmt::format("{}", *integer) == text) {
    return *integer;
  }
  if (const auto number = whole_number<double>(text); number && fmt::format("{}", *number) == text) return *number;
  return text;
}

const SettingValue* Subject::find(std::string_view key) const {
  const auto at = std::lower_bound(settings.begin(), settings.end(), key,
                                   [](const Setting& s, std::string_view k) { return s.key < k; });
  return at == settings.end() || at->key != key ? nullptr : &at->value;
}

std::optional<double> Subject::number(std::string_view key) const {
  const SettingValue* const found = find(key);
  return found == nullptr ? std::nullopt : number_of(*found);
}

std::string Subject::text(std::string_view key) const {
  const SettingValue* const found = find(key);
  return found == nullptr ? "" : text_of(*found);
}

Result shifted(const Result& result, const std::string& source, Direction direction) {
  Result moved = result;
  moved.alternatives.clear();
  moved.experiment.timeline.clear();
  moved.experiment.effects.clear();
  if (source == kTemporaries) {
    for (PoolUse* use : {&moved.experiment.hbm, &moved.experiment.decode_hbm})
      use->peak = peak_shifted(*use, direction);
  }
  for (const Effect& effect : result.experiment.effects) {
    if (effect.source == source) apply(side_of(effect, direction), moved.experiment);
  }
  if (!result.build) return moved;
  moved.build->effects.clear();
  for (const Effect& effect : result.build->effects) {
    if (effect.source != source) continue;
    const ShiftedTimes& times = side_of(effect, direction);
    moved.build->seconds *= times.build;
    if (times.build_parts) moved.build->time = *times.build_parts;
  }
  return moved;
}

std::vector<Effect> by_reach(std::vector<Effect> effects) {
  const auto reach = [](const Effect& e) { return std::max(e.longer.step, 1 / e.shorter.step); };
  std::stable_sort(effects.begin(), effects.end(),
                   [&](const Effect& a, const Effect& b) { return reach(a) > reach(b); });
  return effects;
}

std::vector<std::string> sources_of(const Result& result) {
  std::set<std::string> all;
  for (const Effect& effect : result.build ? result.build->effects : result.experiment.effects) {
    all.insert(effect.source);
  }
  for (const Alternative& other : result.alternatives) all.insert(other.source);
  if (result.has_times()) all.insert(kTemporaries);
  return {all.begin(), all.end()};
}

}  // namespace kvcast::result

#include "plan/chart.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <utility>

#include "plan/target.hpp"

namespace kvcast::plan {

namespace {

using nlohmann::json;

constexpr double kFarApart = 4;  // ratio of high to low from which an axis is logarithmic, as in the search of a plan

// Formats whole numbers with a comma between thousands.
std::string grouped(double value) {
  std::string text = fmt::format("{:.0f}", std::abs(value));
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3) {
    text.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return fmt::format("{}{}", value < 0 ? "-" : "", text);
}

std::string symbol_of(const std::string& unit) {
  static const std::map<std::string, std::string> symbols = {{"bytes", "B"}, {"bytes/s", "B/s"}, {"seconds", "s"}};
  const auto found = symbols.find(unit);
  return found == symbols.end() ? unit : found->second;
}

std::pair<double, const char*> prefix_for(double largest) {
  static constexpr std::pair<double, const char*> kPrefixes[] = {{1e12, "T"}, {1e9, "G"},  {1e6, "M"}, {1e3, "k"},
                                                                 {1, ""},     {1e-3, "m"}, {1e-6, "µ"}};
  for (const auto& prefix : kPrefixes) {
    if (largest >= prefix.first) return prefix;
  }
  return {1e-9, "n"};
}

const result::MachineNumber* find_number(const Machines& machines, const std::string& name) {
  for (const auto& [machine, numbers] : machines) {
    for (const result::MachineNumber& n : numbers) {
      if (n.key == name) return &n;
    }
  }
  return nullptr;
}

KeyAxis axis_of_machine(const std::string& name, double largest, const Machines& machines) {
  const result::MachineNumber* const number = find_number(machines, name);
  if (number == nullptr) return {name, "", 1, false};
  if (!number->value) return {name + ", times the machine's own", "times", 1, false};
  const std::string unit = symbol_of(number->unit);
  if (unit.empty() || unit == "number") return {name, "", 1, false};
  const auto [factor, prefix] = prefix_for(largest);
  return {fmt::format("{}, {}{}", name, prefix, unit), prefix + unit, 1 / factor, false};
}

}  // namespace

std::string number_text(double value) {
  if (value == std::round(value) || std::abs(value) >= 1000) return grouped(std::round(value));
  return fmt::format("{:.3g}", value);
}

std::string KeyAxis::text(double value) const {
  const double number = shown(value);
  if (tokens && number >= 1024 && std::fmod(number, 1024) == 0) return grouped(number / 1024) + "K";
  return number_text(number) + (unit.empty() ? "" : " " + unit);
}

KeyAxis axis_of(const std::string& key, double largest, const Machines& machines) {
  static const std::map<std::string, std::pair<std::string, bool>> counts = {
      {"workload.batch", {"batch, sequences", false}},
      {"workload.prompt_tokens", {"prompt, tokens", true}},
      {"workload.decode_tokens", {"generated, tokens", true}},
      {"policy.budget", {"budget, tokens", true}}};
  if (const auto count = counts.find(key); count != counts.end()) {
    return {count->second.first, "", 1, count->second.second};
  }
  constexpr std::string_view kMachine = "hardware.";
  if (key.starts_with(kMachine)) return axis_of_machine(key.substr(kMachine.size()), largest, machines);
  return {key, "", 1, false};
}

Chart KeyAxis::chart(const char* spec, double from, double to) const {
  const bool far_apart = from > 0 && to / from >= kFarApart;
  return {.spec = spec,
          .signals = {{"from", shown(from)}, {"to", shown(to)}, {"x_title", title}, {"x_tokens", tokens}},
          .scales = {{"x", far_apart ? json{{"type", "log"}, {"base", 2}} : json{{"type", "linear"}}}}};
}

json KeyAxis::mark(double value, double low, double high) const {
  return {{"value", shown(value)}, {"low", shown(low)}, {"high", shown(high)}, {"text", text(value)}};
}

void Chart::set_measure_axis(double least, double most) {
  constexpr double kManyTimes = 8;
  if (least <= 0 || most <= kManyTimes * least) {
    scales["y"] = {{"type", "linear"}, {"zero", true}, {"nice", true}};
    return;
  }
  scales["y"] = {{"type", "log"}, {"base", 10}, {"padding", 8}};
  json& ticks = signals["y_values"] = json::array();
  for (double power = std::pow(10, std::floor(std::log10(least))); power <= most; power *= 10) {
    for (const double step : {1, 2, 5}) {
      if (step * power >= least && step * power <= most) ticks.push_back(step * power);
    }
  }
}

std::string signed_text(double value) {
  return fmt::format("{}{}", value < 0 ? "−" : "+", number_text(std::abs(value)));
}

const result::Metric& metric_of(const json& data) { return metric_named(data.at("metric").get<std::string>(), {}); }

std::string axis_title(const result::Metric& metric, const std::string& unit) {
  std::string title = metric.label;
  const bool word = title.size() > 1 && std::islower(static_cast<unsigned char>(title[1])) != 0;
  if (word) title[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(title[0])));
  return unit.empty() ? title : title + ", " + unit;
}

}  // namespace kvcast::plan

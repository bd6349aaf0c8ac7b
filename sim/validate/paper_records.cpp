// The effect of a source: the formula's value with each run's times as they are with that source's costs longer, and
// shorter. A record states them under `shifted`.
#include "validate/paper_records.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "validate/papers.hpp"

namespace kvcast::validate {
namespace {

using nlohmann::json;

constexpr double kFelt = 1e-3;  // share of a value from which an effect makes it uncertain

bool felt(const std::vector<double>& moved, double middle) {
  return std::any_of(moved.begin(), moved.end(),
                     [middle](double v) { return std::abs(v - middle) >= kFelt * std::abs(middle); });
}

// Of a record, with what `other` says instead: times, peaks of memory, or all of a run at another batch, unless that
// does not fit.
double number_with(const json& record, const json* other, const std::string& name) {
  const bool whole = other != nullptr && other->contains("oom");
  if (name == "fits" ? whole : other != nullptr && !(whole && (*other)["oom"].is_object())) {
    if (const auto value = number_of(*other, name)) return *value;
  }
  return number_of(record, name).value();
}

// The times of a record with the costs of a source longer or shorter; none where it does not rest on that source.
const json* shifted(const json& record, const std::string& source, const char* which) {
  if (!record.contains("shifted")) return nullptr;
  for (const json& entry : record["shifted"]) {
    if (entry["source"] == source) return &entry[which];
  }
  return nullptr;
}

Origin origin_at(const json& record, const std::string& name) {
  const std::string phase = phase_of(name);
  if (phase.empty() || !record.contains("origin")) return Origin::kExact;
  const char* key = phase == "build" ? "build.seconds" : phase == "prefill" ? "prefill.ttft_s" : "decode.tpot_s";
  const json& origins = record["origin"];
  return origins.contains(key) ? origin_from_name(origins[key].get<std::string>()) : Origin::kExact;
}

}  // namespace

std::string phase_of(const std::string& name) {
  const auto begins = [&name](const char* prefix) { return name.rfind(prefix, 0) == 0; };
  if (begins("prefill.") || name == "ttft") return "prefill";
  if (begins("exposed.") || begins("hidden.") || begins("decode.") || name == "tpot" || name == "tps") return "decode";
  if (begins("build")) return "build";
  return "";
}

std::pair<const json&, std::string> Records::find(const std::string& name) const {
  const std::size_t dot = name.find('.');
  return {records_.at(name.substr(0, dot)), name.substr(dot + 1)};
}

std::optional<double> Records::value(const Formula& formula, std::string& missing) const {
  std::map<std::string, double> numbers;
  for (const std::string& name : formula.names()) {
    const auto [record, number] = find(name);
    const std::optional<double> value = number_of(record, number);
    if (!value) {
      missing = fmt::format("{} is missing", name);
      if (record.contains("oom") && record["oom"].is_object()) {
        missing += fmt::format(": does not fit in {} at {}", record["oom"].value("pool", ""),
                               record["oom"].value("moment", ""));
      }
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
    for (const char* which : {"longer", "shorter"}) {
      moved.push_back(formula.value([&](const std::string& name) {
        const auto [record, number] = find(name);
        return number_with(record, shifted(record, source, which), number);
      }));
    }
    if (felt(moved, *middle)) spread.add(moved);
  }
  spread.add(on_other_traces(formula));
  return spread.interval();
}

std::set<std::string> Records::sources(const Formula& formula) const {
  std::set<std::string> all;
  for (const std::string& name : formula.names()) {
    const json& record = find(name).first;
    if (!record.contains("shifted")) continue;
    for (const json& entry : record["shifted"]) all.insert(entry["source"].get<std::string>());
  }
  return all;
}

std::vector<double> Records::on_other_traces(const Formula& formula) const {
  std::size_t most = 0;
  const auto others_of = [this](const std::string& name) -> const std::vector<json>* {
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
      const auto [record, number] = find(name);
      const bool there = others != nullptr && i < others->size();
      const auto value = there ? number_of((*others)[i], number) : std::nullopt;
      return value ? *value : number_of(record, number).value();
    }));
  }
  return values;
}

Origin Records::origin(const Formula& formula) const {
  Origin worst = Origin::kExact;
  for (const std::string& name : formula.names()) {
    const auto [record, number] = find(name);
    worst = worse(worst, origin_at(record, number));
  }
  return worst;
}

}  // namespace kvcast::validate

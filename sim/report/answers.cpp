#include "report/answers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "plan/question.hpp"

namespace kvcast::report {

namespace {

using nlohmann::json;

// Replaces the names of colours and symbols by those of the palette.
void paint(plan::Chart& chart, const std::set<std::string>& policies, Palette& palette) {
  std::map<std::string, std::string> variants;
  std::map<std::string, std::size_t> shades;  // of each policy so far
  for (const std::string& label : chart.variants) {
    const std::string first = label.substr(0, label.find(','));
    const std::string& name = policies.contains(first) ? first : label;
    variants[label] = palette.variant_color(name, shades[name]++);
  }
  for (json& rows : chart.data) {
    for (json& row : rows) {
      for (const char* field : {"color", "machine_color"}) {
        if (!row.contains(field)) continue;
        const std::string named = row[field], group = named.substr(0, named.find('/'));
        const std::string name = named.substr(group.size() + 1);
        row[field] = group == "variants" ? variants.at(name) : palette.color(group, name);
      }
      if (row.contains("symbol")) row["symbol"] = palette.symbol(row["symbol"]);
    }
  }
}

}  // namespace

std::set<std::string> policies_of(const Table& experiments) {
  std::set<std::string> policies;
  for (std::size_t r = 0; r < experiments.rows(); ++r) policies.insert(experiments.text(r, "policy"));
  return policies;
}

json answers_json(const std::vector<store::Answer>& answers, const plan::Machines& machines, const Table& experiments,
                  Palette& palette) {
  const std::set<std::string> policies = policies_of(experiments);
  json list = json::array();
  for (const store::Answer& a : answers) {
    const std::string name = fmt::format("plan_{}_{}", list.size() + 1, a.kind);
    try {
      list.push_back({{"name", name},
                      {"kind", a.kind},
                      {"question", a.question},
                      {"text", a.text},
                      {"details", a.details},
                      {"runs", a.runs},
                      {"chart", chart_json(a, machines, policies, palette)}});
    } catch (const json::exception& error) {
      throw UserError(fmt::format("answer {} of the store cannot be read: {}", name, error.what()));
    }
  }
  return list;
}

json chart_json(const store::Answer& answer, const plan::Machines& machines, const std::set<std::string>& policies,
                Palette& palette) {
  plan::Chart chart = plan::chart_of(answer, machines);
  if (chart.spec.empty()) return nullptr;
  paint(chart, policies, palette);
  return {{"name", chart.spec},
          {"data", chart.data},
          {"signals", chart.signals},
          {"scales", chart.scales},
          {"unused", chart.unused}};
}

json filled_spec(const Assets& assets, const json& chart) {
  if (chart.is_object()) {
    for (const ChartFile& known : assets.plan_charts) {
      if (known.name == chart.at("name")) return filled_spec(known.spec, chart);
    }
  }
  return nullptr;
}

json filled_spec(const json& spec, const json& chart) {
  json filled = spec;
  for (json& set : filled["data"]) {
    const auto rows = chart.at("data").find(set.value("name", ""));
    if (rows != chart.at("data").end()) set["values"] = *rows;
  }
  for (json& signal : filled["signals"]) {
    const auto value = chart.at("signals").find(signal.value("name", ""));
    if (value != chart.at("signals").end()) signal["value"] = *value;
  }
  for (json& scale : filled["scales"]) {
    const auto more = chart.at("scales").find(scale.value("name", ""));
    if (more != chart.at("scales").end()) scale.update(*more);
  }
  json legends = json::array();
  for (const json& legend : filled.value("legends", json::array())) {
    const std::string scale = legend.value("fill", legend.value("shape", ""));
    const auto& unused = chart.at("unused");
    if (std::find(unused.begin(), unused.end(), scale) == unused.end()) legends.push_back(legend);
  }
  filled["legends"] = std::move(legends);
  return filled;
}

namespace {

// NaN for null, which means a ratio without a reference.
double number_of(const json& value) { return value.is_null() ? std::nan("") : value.get<double>(); }

}  // namespace

Table changes_table(const std::vector<store::Answer>& answers) {
  Table table;
  for (const store::Answer& answer : answers) {
    if (answer.kind != "changes") continue;
    const json& data = answer.data;
    for (const json& change : data.at("changes")) {
      table.begin_row();
      table.set("from", data.at("before").get<std::string>());
      table.set("to", data.at("after").get<std::string>());
      table.set("metric", data.at("metric").get<std::string>());
      table.set("setting", change.at("setting").get<std::string>());
      for (const char* key : {"before", "after", "times"}) table.set(key, number_of(change.at(key)));
      table.set("low", number_of(change.at("interval").at(0)));
      table.set("high", number_of(change.at("interval").at(1)));
      for (const char* key : {"beyond", "better"}) table.set(key, change.at(key).get<bool>() ? 1.0 : 0.0);
    }
  }
  return table;
}

}  // namespace kvcast::report

#include "report/figures.hpp"

#include "report/answers.hpp"

namespace kvcast::report {

using nlohmann::json;

const Table* table_named(const Content& content, const std::string& name) {
  if (name == "experiments") return &content.experiments;
  if (name == "breakdown") return &content.breakdown;
  if (name == "owners") return &content.owners;
  if (name == "heads") return &content.heads;
  if (name == "timeline") return &content.timeline;
  if (name == "series") return &content.series;
  if (name == "moments") return &content.moments;
  if (name == "curves") return &content.curves;
  if (name == "capacities") return &content.capacities;
  return nullptr;
}

std::vector<std::string> table_names(const Content& content) {
  std::vector<std::string> names = {"experiments", "breakdown", "owners", "timeline", "heads", "series"};
  for (const char* name : {"moments", "curves", "capacities"}) {
    if (table_named(content, name)->rows() > 0) names.emplace_back(name);
  }
  return names;
}

namespace {

// Returns whether the sweep has nothing of what a chart draws: no rows of a table, or no column of the experiments.
bool lacks_rows(const ChartFile& chart, const Content& content) {
  const std::string needs = chart.spec.at("usermeta").value("absent_when", "");
  if (needs.empty()) return false;
  const Table* const table = table_named(content, needs);
  return table != nullptr ? table->rows() == 0 : !content.experiments.has_column(needs);
}

}  // namespace

std::vector<ChartFile> charts_of(const Assets& assets, const Content& content) {
  std::vector<ChartFile> charts;
  if (content.experiments.has_column("state")) charts = assets.service_charts;
  charts.insert(charts.end(), assets.charts.begin(), assets.charts.end());
  std::erase_if(charts, [&](const ChartFile& chart) { return lacks_rows(chart, content); });
  return charts;
}

json drawn_answers(const Assets& assets, const json& answers) {
  json drawn = answers;
  for (json& answer : drawn) {
    json spec = filled_spec(assets, answer["chart"]);
    answer.erase("chart");
    if (spec.is_object()) answer["spec"] = std::move(spec);
  }
  return drawn;
}

namespace {

// Returns a self-contained specification: it opens in any Vega 5, with the light theme and the page's initial
// selection.
json standalone(const ChartFile& chart, const Content& content, const json& themes, const RowsOf& rows_of) {
  json spec = chart.spec;
  for (json& signal : spec["signals"]) {
    const auto chosen = content.defaults.find(signal.value("name", ""));
    if (chosen != content.defaults.end()) signal["value"] = *chosen;
  }
  for (json& data : spec["data"]) {
    const std::string name = data.value("name", "");
    const Table* table = table_named(content, name);
    if (table != nullptr && !data.contains("source")) data["values"] = rows_of ? rows_of(name) : table->objects();
  }
  spec["config"] = themes.value("light", json::object());
  return spec;
}

}  // namespace

std::vector<ChartFile> standalone_figures(const Assets& assets, const Content& content, const json& answers,
                                          const RowsOf& rows_of) {
  std::vector<ChartFile> figures;
  for (const json& answer : answers) {
    if (!answer.contains("spec")) continue;
    json spec = answer["spec"];
    spec["config"] = assets.themes.value("light", json::object());
    figures.push_back({answer["name"], std::move(spec)});
  }
  if (!content.sweep["swept"]) return figures;
  for (const ChartFile& chart : charts_of(assets, content)) {
    figures.push_back({chart.name, standalone(chart, content, assets.themes, rows_of)});
  }
  return figures;
}

}  // namespace kvcast::report

#include "report/defaults.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace kvcast::report {

namespace {

using nlohmann::json;

constexpr std::size_t kMostPanels = 4;

json choose_name(const Table& experiments, const std::string& column) {
  std::map<std::string, int> rows;
  for (std::size_t r = 0; r < experiments.rows(); ++r) ++rows[experiments.text(r, column)];
  if (rows.size() <= kMostPanels) return nullptr;
  return std::ranges::max_element(rows, [](const auto& a, const auto& b) { return a.second < b.second; })->first;
}

json choose_context(const Table& experiments) {
  std::set<std::string> policies;
  std::map<double, std::set<std::string>> fitting;  // context → policies that fit at some setting
  for (std::size_t r = 0; r < experiments.rows(); ++r) {
    const double context = experiments.number(r, "context");
    if (std::isnan(context) || experiments.text(r, "status") == "failed") continue;
    policies.insert(experiments.text(r, "policy"));
    if (experiments.text(r, "status") == "ok") fitting[context].insert(experiments.text(r, "policy"));
  }
  if (fitting.empty()) return nullptr;
  for (auto entry = fitting.rbegin(); entry != fitting.rend(); ++entry) {
    if (2 * entry->second.size() >= policies.size()) return entry->first;
  }
  return fitting.begin()->first;
}

json choose_budget(const Table& experiments) {
  std::map<double, std::set<std::string>> swept;  // budget → policies that have an experiment with it
  for (std::size_t r = 0; r < experiments.rows(); ++r) {
    const double budget = experiments.number(r, "budget");
    if (std::isnan(budget)) continue;
    auto& policies = swept[budget];  // failed experiments make the budget known, but nothing of them is drawn
    if (experiments.text(r, "status") != "failed") policies.insert(experiments.text(r, "policy"));
  }
  std::size_t most = 0;
  for (const auto& [budget, policies] : swept) most = std::max(most, policies.size());
  std::vector<double> candidates;
  for (const auto& [budget, policies] : swept) {
    if (policies.size() == most) candidates.push_back(budget);
  }
  return candidates.empty() ? json() : json(candidates[candidates.size() / 2]);
}

// A predicted score measures the loss; attention mass does not, and is shown only if nothing better is known.
json choose_measure(const Table& experiments) {
  for (const char* measure : {"score", "predicted"}) {
    if (experiments.has_column(measure)) return measure;
  }
  return "recall";
}

}  // namespace

json choose_defaults(const Table& experiments, const Table& series) {
  json hidden = json::array();
  for (std::size_t r = 0; r < series.rows(); ++r) {
    if (series.number(r, "preferred") == 0) hidden.push_back(series.text(r, "series"));
  }
  return {{"model", choose_name(experiments, "model")},     {"hardware", choose_name(experiments, "hardware")},
          {"context", choose_context(experiments)},         {"batch", nullptr},
          {"budget", choose_budget(experiments)},           {"hidden", hidden},
          {"accuracy_measure", choose_measure(experiments)}};
}

}  // namespace kvcast::report

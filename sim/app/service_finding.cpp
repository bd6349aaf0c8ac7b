#include "app/service_finding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "plan/findings.hpp"
#include "plan/replicas.hpp"
#include "plan/target.hpp"
#include "result/metric.hpp"

namespace kvcast::app {
namespace {

using nlohmann::json;

bool is_told_otherwise(const std::string& key) {
  for (const char* known : {"model", "hardware", "policy", "policy.name", "policy.budget", "traffic.rate",
                            "traffic.concurrency", "traffic.speedup", "traffic.prompt_tokens"}) {
    if (key == known) return true;
  }
  return plan::is_seed(key);
}

std::string name_of(const result::Subject& subject) {
  std::string name = subject.policy;
  if (const auto budget = subject.number("policy.budget")) name += fmt::format(", budget {}", *budget);
  for (const auto& [key, value] : subject.swept) {
    if (!is_told_otherwise(key)) name += fmt::format(", {} {}", key, value);
  }
  return name;
}

struct Capacity {
  std::string name, text;
  double most = 0;  // 0: none of the loads
  bool recommended = false;
};

// Those that may be recommended first, and of these the largest capacity; of equal ones in the order of the sweep.
std::map<std::string, std::vector<Capacity>> sorted(std::map<std::string, std::vector<Capacity>> places) {
  for (auto& [place, all] : places)
    std::ranges::stable_sort(all, [](const Capacity& a, const Capacity& b) {
      return std::pair(a.recommended, a.most) > std::pair(b.recommended, b.most);
    });
  return places;
}

}  // namespace

void ServiceFinding::add(const result::Result& result) {
  const result::Subject& subject = result.subject;
  if (!report::serves(subject)) return;
  any_ = true;
  const auto id = static_cast<double>(settings_.size());
  settings_.push_back({fmt::format("{}{}{} tokens", subject.model.empty() ? "" : subject.model + ", ",
                                   subject.hardware.empty() ? "" : subject.hardware + ", ", subject.prompt_tokens),
                       name_of(subject), result::value(result, *result::find_metric("score")),
                       plan::is_oracle(result)});
  tables_.add(id, settings_.back().name, result);
}

std::optional<store::Finding> ServiceFinding::finding(const config::ScoreChoice& choice) const {
  const std::vector<plan::Target> floor = plan::floor_target(choice);
  const report::Table table = tables_.capacities();
  if (table.rows() == 0) return {};
  std::map<std::string, std::vector<Capacity>> places;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const Setting& setting = settings_[static_cast<std::size_t>(table.number(row, "id"))];
    const double most = table.number(row, "most"), fails = table.number(row, "fails");
    const std::string range = std::isnan(most)    ? fmt::format("less than {}", table.number(row, "least"))
                              : std::isnan(fails) ? fmt::format("{} or more", most)
                                                  : fmt::format("{} to {}", most, fails);
    const bool below = !floor.empty() && !(setting.score && floor.front().holds_for(*setting.score));
    const std::string score = setting.oracle  ? " (an oracle)"
                              : !below        ? ""
                              : setting.score ? fmt::format(" (score {:.1f} %, below the floor)", 100 * *setting.score)
                                              : " (no predicted score)";
    places[setting.place].push_back({setting.name, range + " " + table.text(row, "load_unit") + score,
                                     std::isnan(most) ? 0 : most, !below && !setting.oracle});
  }
  store::Finding finding{"Capacity within the SLO", "", "", "[]"};
  json shown = json::array();
  for (const auto& [place, all] : sorted(std::move(places))) {
    std::string line;
    for (const Capacity& c : all) line += fmt::format("{}{} at {}", line.empty() ? "" : "; ", c.name, c.text);
    finding.text += fmt::format("{}{}: {}", finding.text.empty() ? "" : "\n", place, line);
    shown.push_back({{"place", place}, {"text", line}, {"number", all.front().text}, {"bars", json::array()}});
  }
  finding.detail =
      "The largest load at which 99 % of the requests are within the SLO, without a queue that grows, lies between two "
      "loads of the sweep.";
  if (!floor.empty()) finding.detail += fmt::format(" The floor is {}.", plan::target_text(floor));
  finding.places = shown.dump();
  return finding;
}

}  // namespace kvcast::app

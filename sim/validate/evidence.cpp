#include "validate/evidence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "accuracy/score.hpp"

namespace kvcast::validate {
namespace {

using evidence::LeftOut;
using evidence::Novelty;
using nlohmann::json;

constexpr double kAboveBest = 1.03;         // of the best null's error
constexpr double kHeld = 80, kHeldOff = 7;  // per cent within intervals
constexpr std::array<const char*, 4> kNames{"evidence", "simulation", "lookup", "full"};

struct Errors {
  std::array<std::vector<double>, 4> predicted;  // as kNames
  std::vector<double> published;
  std::size_t within = 0;

  double error(std::size_t which) const {
    double sum = 0;
    for (std::size_t i = 0; i < published.size(); ++i) sum += std::abs(predicted[which][i] - published[i]);
    return sum / static_cast<double>(published.size());
  }
};

Errors errors_of(const std::vector<LeftOut>& rows, const evidence::Unseen& unseen) {
  Errors errors;
  for (const LeftOut& l : rows) {
    const double full = l.record->full, points = l.stacked(unseen.stack), published = l.record->published;
    const std::array values{points, l.record->simulated, l.lookup, full};
    for (std::size_t i = 0; i < values.size(); ++i) errors.predicted[i].push_back(values[i]);
    errors.published.push_back(published);
    const double off = std::abs(evidence::to_angle(published, full) - evidence::to_angle(points, full));
    if (off <= unseen.spread * l.estimate.deviation) ++errors.within;
  }
  return errors;
}

void add(Suite& suite, const std::string& of, json entry, const Errors& e) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    entry["error"][kNames[i]] = e.error(i);
    entry["kendall"][kNames[i]] = accuracy::kendall(e.predicted[i], e.published);
  }
  const double within = static_cast<double>(e.within) / static_cast<double>(e.published.size());
  entry["n"] = e.published.size(), entry["within"] = within;
  const double best = std::min({e.error(1), e.error(2), e.error(3)});
  suite.budgets.push_back({fmt::format("{}: mean error (simulation {:.1f}, lookup {:.1f}, full score {:.1f})", of,
                                       e.error(1), e.error(2), e.error(3)),
                           "points", kAboveBest * best, e.error(0)});
  suite.budgets.push_back({of + ": within the interval, at least", "%", kHeld - kHeldOff, 100 * within, true});
  suite.budgets.push_back({of + ": within the interval, at most", "%", kHeld + kHeldOff, 100 * within});
  suite.detail.push_back(std::move(entry));
}

}  // namespace

Suite evidence_suite(const std::vector<evidence::Record>& records, const evidence::Parameters& parameters) {
  Suite suite;
  suite.name = "evidence";
  suite.question = "How far off are scores whose table, model or method the evidence lacks?";
  suite.expected_is = "published";
  suite.detail = json::array();
  const evidence::JointFit fit(records, parameters.components);
  for (const Novelty novelty : {Novelty::kTable, Novelty::kModel, Novelty::kMethod}) {
    std::map<evidence::Family, std::vector<LeftOut>> families;
    for (LeftOut& l : evidence::leave_out(fit, novelty))
      families[evidence::family_of(l.record->benchmark)].push_back(l);
    for (const auto& [family, rows] : families) {
      const std::string name(evidence::family_name(family));
      const evidence::Unseen& unseen =
          parameters.unseen[static_cast<std::size_t>(novelty)][static_cast<std::size_t>(family)];
      add(suite, fmt::format("{}, new {}", name, novelty_name(novelty)),
          {{"novelty", novelty_name(novelty)}, {"benchmark", name}}, errors_of(rows, unseen));
    }
  }
  return suite;
}

}  // namespace kvcast::validate

#include "validate/evidence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "accuracy/score.hpp"

namespace kvcast::validate {
namespace {

using evidence::HeldOut;
using evidence::LeftOut;
using evidence::Novelty;
using nlohmann::json;

constexpr double kAboveBest = 1.03;         // of the error of the best null model
constexpr double kHeld = 80, kHeldOff = 7;  // per cent within intervals
constexpr double kBest = 90, kRegret = 2;   // per cent of choices that lose at most so many points
constexpr std::array<const char*, 4> kNames{"evidence", "simulation", "lookup", "full"};

struct Errors {
  std::array<std::vector<double>, 4> predicted;  // in the order of kNames
  std::vector<double> published;
  std::size_t within = 0;

  double error(std::size_t which) const {
    double sum = 0;
    for (std::size_t i = 0; i < published.size(); ++i) sum += std::abs(predicted[which][i] - published[i]);
    return sum / static_cast<double>(published.size());
  }
};

Errors errors_of(const std::vector<const HeldOut*>& rows) {
  Errors errors;
  for (const HeldOut* h : rows) {
    const evidence::Record& r = *h->row->record;
    const std::array values{h->row->estimate.mean, r.simulated, h->row->lookup, r.full};
    for (std::size_t i = 0; i < values.size(); ++i) errors.predicted[i].push_back(values[i]);
    errors.published.push_back(r.published);
    if (h->within) ++errors.within;
  }
  return errors;
}

// Share of the tables, models, prompts and budgets with several methods on the same tasks for which the method
// predicted to be best is within kRegret points of the best published one. Empty if there are none.
std::optional<double> best_chosen(const std::vector<const HeldOut*>& rows) {
  struct Means {
    std::set<std::string> tasks;
    double predicted = 0, published = 0;
  };
  std::map<std::string, std::map<std::string, Means>> places;  // mapped to means by method
  for (const HeldOut* h : rows) {
    const evidence::Record& r = *h->row->record;
    if (r.budget <= 0) continue;
    const std::string length =
        evidence::family_of(r.benchmark) == evidence::Family::kRuler ? fmt::format("{:.0f}", r.context) : "";
    Means& m = places[fmt::format("{}|{}|{}|{}|{}|{:.0f}", r.paper, r.table, r.model, r.benchmark, length, r.budget)]
                     [r.method];
    m.tasks.insert(r.task), m.predicted += h->row->estimate.mean, m.published += r.published;
  }
  double chosen = 0, all = 0;
  for (const auto& [place, methods] : places) {
    std::map<std::set<std::string>, std::vector<const Means*>> alike;
    for (const auto& [method, m] : methods) alike[m.tasks].push_back(&m);
    for (const auto& [tasks, means] : alike) {
      if (means.size() < 2) continue;
      const auto by = [](double Means::*score) {
        return [score](const Means* a, const Means* b) { return a->*score < b->*score; };
      };
      const Means* const best = *std::max_element(means.begin(), means.end(), by(&Means::published));
      const Means* const ours = *std::max_element(means.begin(), means.end(), by(&Means::predicted));
      ++all;
      if (best->published - ours->published <= kRegret * static_cast<double>(tasks.size())) ++chosen;
    }
  }
  return all > 0 ? std::optional(chosen / all) : std::nullopt;
}

void add(Suite& suite, const std::string& of, json entry, const std::vector<const HeldOut*>& rows) {
  const Errors e = errors_of(rows);
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
  if (const auto chosen = best_chosen(rows)) {
    entry["best_chosen"] = *chosen;
    suite.budgets.push_back({fmt::format("{}: best method of a table, within {:.0f} points", of, kRegret), "%", kBest,
                             100 * *chosen, true});
  }
  suite.detail.push_back(std::move(entry));
}

}  // namespace

Suite evidence_suite(const std::vector<evidence::Record>& records, const evidence::Components& components) {
  Suite suite;
  suite.name = "evidence";
  suite.question = "How far off are scores whose table, model or method the evidence lacks?";
  suite.expected_is = "published";
  suite.detail = json::array();
  const evidence::JointFit fit(records, components);
  for (const Novelty novelty : evidence::kAllNovelties) {
    const std::vector<LeftOut> left_out = evidence::leave_out(fit, novelty);
    std::map<evidence::Family, std::vector<LeftOut>> families;
    for (const LeftOut& l : left_out) families[evidence::family_of(l.record->benchmark)].push_back(l);
    for (const auto& [family, rows] : families) {
      const std::string name(evidence::family_name(family));
      const std::vector<HeldOut> held_out = evidence::held_out(rows);
      std::vector<const HeldOut*> all;
      for (const HeldOut& h : held_out) all.push_back(&h);
      add(suite, fmt::format("{}, new {}", name, novelty_name(novelty)),
          {{"novelty", novelty_name(novelty)}, {"benchmark", name}}, all);
    }
  }
  return suite;
}

}  // namespace kvcast::validate

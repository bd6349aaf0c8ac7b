#include "validate/evidence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "accuracy/score.hpp"
#include "base/or_null.hpp"

namespace kvcast::validate {
namespace {

using evidence::HeldOut;
using evidence::LeftOutScore;
using evidence::Novelty;
using nlohmann::json;

constexpr double kAboveBest = 1.03;               // of the error of the best null model
constexpr double kHeld = 80, kHeldTolerance = 7;  // per cent within intervals
constexpr double kBest = 90, kRegret = 2;         // per cent of choices that lose at most so many points
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

Errors errors_of(const std::vector<HeldOut>& rows) {
  Errors errors;
  for (const HeldOut& h : rows) {
    const evidence::ScoreRecord& r = *h.row->record;
    const std::array values{h.row->estimate.mean, r.simulated, h.row->lookup, r.full};
    for (std::size_t i = 0; i < values.size(); ++i) errors.predicted[i].push_back(values[i]);
    errors.published.push_back(r.published);
    if (h.within()) ++errors.within;
  }
  return errors;
}

// Choices of the best of several methods on the same tasks, each right if the chosen method's published mean is within
// kRegret points of the best one.
class Choices {
 public:
  struct Score {
    std::string method;
    std::set<std::string> tasks;
    double predicted = 0, simulated = 0, published = 0;  // sums over the tasks
  };

  // Counts the choices among methods that have the same tasks. With a method: those alone in which it takes part.
  void add(const std::vector<Score>& scores, const std::string& method = "") {
    std::map<std::set<std::string>, std::vector<const Score*>> by_tasks;
    for (const Score& s : scores) by_tasks[s.tasks].push_back(&s);
    for (const auto& [tasks, among] : by_tasks) {
      const bool takes_part =
          method.empty() || std::ranges::any_of(among, [&](const Score* s) { return s->method == method; });
      if (among.size() > 1 && takes_part) count(among, kRegret * static_cast<double>(tasks.size()));
    }
  }

  bool any() const { return all_ > 0; }
  // Per cent of the choices that are right by the prediction, by the simulation alone, and of any method on average.
  double predicted() const { return 100 * predicted_ / all_; }
  double simulated() const { return 100 * simulated_ / all_; }
  double of_any() const { return 100 * of_any_ / all_; }

 private:
  void count(const std::vector<const Score*>& among, double regret) {
    const auto highest = [&](double Score::*score) {
      return *std::ranges::max_element(among,
                                       [score](const Score* a, const Score* b) { return a->*score < b->*score; });
    };
    const double best = highest(&Score::published)->published;
    const auto is_right = [&](const Score* chosen) { return best - chosen->published <= regret ? 1. : 0.; };
    ++all_, predicted_ += is_right(highest(&Score::predicted)), simulated_ += is_right(highest(&Score::simulated));
    for (const Score* s : among) of_any_ += is_right(s) / static_cast<double>(among.size());
  }

  double all_ = 0, predicted_ = 0, simulated_ = 0, of_any_ = 0;
};

class Scores {
 public:
  explicit Scores(const evidence::Comparisons& comparisons) : comparisons_(comparisons) {}

  void add(const evidence::ScoreRecord& r, double predicted) {
    if (r.budget <= 0) return;
    Choices::Score& s = by_comparison_[comparisons_.of(r)][r.method];
    s.method = r.method, s.tasks.insert(r.task);
    s.predicted += predicted, s.simulated += r.simulated, s.published += r.published;
  }
  void count(Choices& choices, const std::string& method = "") const {
    for (const auto& [comparison, methods] : by_comparison_) {
      std::vector<Choices::Score> scores;
      for (const auto& [name, score] : methods) scores.push_back(score);
      choices.add(scores, method);
    }
  }

 private:
  const evidence::Comparisons& comparisons_;
  std::map<std::string, std::map<std::string, Choices::Score>> by_comparison_;  // by method
};

Choices choices_of(const std::vector<LeftOutScore>& rows, const evidence::Comparisons& comparisons) {
  Scores scores(comparisons);
  for (const LeftOutScore& l : rows) scores.add(*l.record, l.estimate.mean);
  Choices choices;
  scores.count(choices);
  return choices;
}

// Choices among a table's methods one of which is new. All of them are predicted from the same rows, those without the
// table and without the new method on the benchmark: predictions from different rows cannot be compared, because the
// fit without a bad method expects more of it than the fit with it expects of others.
Choices choices_of_new_method(const evidence::JointFit& fit, evidence::Family family,
                              const evidence::Comparisons& comparisons) {
  const std::vector<evidence::ScoreRecord>& records = fit.records();
  using Table = std::tuple<std::string, std::string, std::string, std::string>;
  const auto table_of = [](const evidence::ScoreRecord& r) { return Table(r.paper, r.table, r.model, r.benchmark); };
  std::map<Table, std::set<std::string>> tables;  // to methods
  for (const evidence::ScoreRecord& r : records) {
    if (evidence::family_of(r.benchmark) == family && r.budget > 0) tables[table_of(r)].insert(r.method);
  }
  Choices choices;
  for (const auto& [table, methods] : tables) {
    for (const std::string& method : methods) {
      std::vector<std::size_t> indices;
      for (std::size_t i = 0; i < records.size(); ++i) {
        const bool of_method = records[i].benchmark == std::get<3>(table) && records[i].method == method;
        if (of_method || table_of(records[i]) == table) indices.push_back(i);
      }
      const std::vector<evidence::Estimate> estimates = fit.leave_out(indices);
      Scores scores(comparisons);
      for (std::size_t i = 0; i < indices.size(); ++i) {
        if (table_of(records[indices[i]]) == table) scores.add(records[indices[i]], estimates[i].mean);
      }
      scores.count(choices, method);
    }
  }
  return choices;
}

void add_share_within(Suite& suite, const std::string& of, double share) {
  suite.budgets.push_back({of + ", at least", "%", kHeld - kHeldTolerance, 100 * share, true});
  suite.budgets.push_back({of + ", at most", "%", kHeld + kHeldTolerance, 100 * share});
}

void add(Suite& suite, const std::string& of, json entry, const std::vector<HeldOut>& rows,
         const evidence::Comparisons& comparisons, const Choices& choices) {
  const Errors e = errors_of(rows);
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    entry["error"][kNames[i]] = e.error(i);
    entry["kendall"][kNames[i]] = or_null(accuracy::kendall(e.predicted[i], e.published));
  }
  const double within = static_cast<double>(e.within) / static_cast<double>(e.published.size());
  entry["n"] = e.published.size(), entry["within"] = within;
  const double best = std::min({e.error(1), e.error(2), e.error(3)});
  suite.budgets.push_back({fmt::format("{}: mean error (simulation {:.1f}, lookup {:.1f}, full score {:.1f})", of,
                                       e.error(1), e.error(2), e.error(3)),
                           "points", kAboveBest * best, e.error(0)});
  add_share_within(suite, of + ": within the interval", within);
  const std::vector<evidence::HeldOutMean> means = evidence::held_out_means(rows, comparisons);
  if (!means.empty()) {
    entry["means"] = means.size(), entry["means_within"] = evidence::share_of_means_within(means);
    add_share_within(suite, of + ": means of tasks within the interval", entry["means_within"]);
  }
  if (choices.any()) {
    entry["best_chosen"] = {{"evidence", choices.predicted() / 100},
                            {"simulation", choices.simulated() / 100},
                            {"any", choices.of_any() / 100}};
    suite.budgets.push_back({fmt::format("{}: best method of a table, within {:.0f} points (simulation {:.0f}, any "
                                         "method {:.0f})",
                                         of, kRegret, choices.simulated(), choices.of_any()),
                             "%", kBest, choices.predicted(), true});
  }
  suite.detail.push_back(std::move(entry));
}

}  // namespace

Suite evidence_suite(const std::vector<evidence::ScoreRecord>& records, const evidence::Components& components) {
  Suite suite;
  suite.name = "evidence";
  suite.question = "How far off are scores whose table, model or method the evidence lacks?";
  suite.expected_is = "published";
  suite.detail = json::array();
  const evidence::JointFit fit(records, components);
  const evidence::Comparisons comparisons(fit.records());
  for (const Novelty novelty : evidence::kAllNovelties) {
    const std::vector<LeftOutScore> left_out = evidence::leave_out(fit, novelty);
    std::map<evidence::Family, std::vector<LeftOutScore>> families;
    for (const LeftOutScore& l : left_out) families[evidence::family_of(l.record->benchmark)].push_back(l);
    for (const auto& [family, rows] : families) {
      const std::string name(evidence::family_name(family));
      add(suite, fmt::format("{}, new {}", name, novelty_name(novelty)),
          {{"novelty", novelty_name(novelty)}, {"benchmark", name}}, evidence::held_out(rows), comparisons,
          novelty == Novelty::kMethod ? choices_of_new_method(fit, family, comparisons)
                                      : choices_of(rows, comparisons));
    }
  }
  return suite;
}

}  // namespace kvcast::validate

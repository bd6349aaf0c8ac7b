#include "validate/accuracy.hpp"

#include <functional>
#include <set>

#include "accuracy/records.hpp"
#include "base/build.hpp"
#include "config/find.hpp"

namespace kvcast::validate {
namespace {

// Error of a published average, relative to it, within which a case agrees.
constexpr double kTolerance = 0.1;

Case case_of(const accuracy::Average& average, bool held_out) {
  const score::PublishedRow& r = average.row;
  Case c;
  c.id = fmt::format("{}, {}, {}, {} {}: {} at {}, {}", r.paper, r.table, r.model, r.benchmark, r.context, r.method,
                     r.budget, r.task);
  c.group = fmt::format("{}, {}, {}", r.paper, r.table, r.benchmark);
  c.quantity = fmt::format("{} of {}", r.task, r.benchmark);
  c.unit = "points";
  c.expected = r.value;
  c.tolerance = kTolerance;
  c.origin = Origin::kFitted;
  c.depends_on = average.simulated ? "published rows of other tables, synthetic traces and the fitted score model"
                                   : "synthetic traces and the fitted score model";
  c.depends_on += "; the uncompressed model's scores are inputs";
  c.source = fmt::format("{}, {}", r.paper, r.table);
  c.held_out = held_out;
  if (!average.refused.empty()) {
    c.verdict = Verdict::kUnanswered;
    c.note = average.refused;
    return c;
  }
  c.predicted = average.predicted;
  c.low = average.low;
  c.high = average.high;
  c.verdict = verdict_of(c, false);
  return c;
}

void add_budgets(Suite& suite, const accuracy::ScoreComparison& plan, bool held_out, double least_kendall,
                 double most_error) {
  std::vector<const accuracy::Cell*> cells;
  for (const accuracy::Cell& cell : plan.cells) {
    if (cell.row.held_out == held_out) cells.push_back(&cell);
  }
  if (cells.empty()) return;
  const accuracy::Agreement a = accuracy::agreement(cells);
  const std::string of = held_out ? "rows not fitted" : "fitted rows";
  const double refused = static_cast<double>(a.refused) / static_cast<double>(cells.size());
  // Equal published scores have no order to predict; equal predictions of others have none of theirs.
  std::set<double> published;
  for (const accuracy::Cell* cell : cells) {
    if (cell->refused.empty()) published.insert(cell->row.value);
  }
  const auto tau = published.size() > 1 ? std::optional(a.kendall.value_or(0)) : std::nullopt;
  suite.budgets.push_back({of + ", Kendall's tau", "", least_kendall, tau, true});
  suite.budgets.push_back({of + ", mean error", "points", most_error, a.mae});
  const auto order = a.pairs > 0 ? std::optional(100 * a.order) : std::nullopt;
  suite.budgets.push_back({of + ", order of pairs 10 points apart", "%", 93, order, true});
  suite.budgets.push_back({of + ", refused", "%", 10, 100 * refused});
}

using Judge = std::function<void(accuracy::ScoreComparison&, const score::Catalogue&, const score::RecallMap&)>;

// `judge` adds what else predicts the scores to the simulation, or replaces the simulation with it.
Suite suite_of(const std::vector<score::PublishedRow>& rows, const accuracy::EvaluateOptions& options,
               const Ablations& ablations, const Judge& judge) {
  Suite suite;
  suite.name = "accuracy";
  suite.question = "Do predicted task scores rank and match published ones?";
  suite.expected_is = "published";
  const score::Catalogue catalogue;
  const accuracy::ScoreComparison rows_alone = accuracy::make_comparison(rows, catalogue);
  const score::RecallMap link = score::read_recall_map(config::find_config("accuracy", "link", {}));
  accuracy::ScoreComparison plan = rows_alone;
  accuracy::evaluate(plan, link, options);
  if (judge) judge(plan, catalogue, link);
  suite.detail = accuracy::report(plan);
  for (const accuracy::Ablation& ablation : ablations) {
    accuracy::ScoreComparison without{rows_alone.cells, {}};
    accuracy::EvaluateOptions again = options;
    again.change = accuracy::change_of(ablation);
    accuracy::evaluate(without, link, again);
    suite.detail["ablations"].push_back(accuracy::ablation_report(ablation, plan, without));
  }
  for (const accuracy::Average& average : plan.averages) {
    suite.cases.push_back(case_of(average, average.row.held_out));
  }
  add_budgets(suite, plan, false, 0.80, 6);
  add_budgets(suite, plan, true, 0.75, 10);
  return suite;
}

}  // namespace

Suite accuracy_of_table(const std::vector<score::PublishedRow>& rows, const accuracy::EvaluateOptions& options,
                        const Ablations& ablations, const evidence::Predictor* predictor) {
  Judge judge;
  if (predictor != nullptr) {
    judge = [predictor](accuracy::ScoreComparison& plan, const score::Catalogue& catalogue,
                        const score::RecallMap& link) { accuracy::estimate(plan, *predictor, catalogue, link); };
  }
  return suite_of(rows, options, ablations, judge);
}

Suite accuracy_of_own_tables(const accuracy::EvaluateOptions& options, const Ablations& ablations,
                             const evidence::Predictor& predictor) {
  std::vector<score::PublishedRow> rows;
  for (const char* name : {"ruler", "longbench", "scbench", "ctkvr"}) {
    const std::vector<score::PublishedRow> more = score::read_table(score::own_table(name));
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return suite_of(
      rows, options, ablations,
      [&predictor](accuracy::ScoreComparison& plan, const score::Catalogue& catalogue, const score::RecallMap& link) {
        accuracy::add_lookups(plan, predictor.records(), catalogue, link);
      });
}

}  // namespace kvcast::validate

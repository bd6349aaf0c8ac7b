#include "accuracy/evaluate.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/or_null.hpp"
#include "base/quantile.hpp"
#include "evidence/intervals.hpp"

namespace kvcast::accuracy {
namespace {

using nlohmann::json;

// Published scores have one decimal; smaller differences do not count.
double rounded(double points) { return std::round(10 * points) / 10; }

template <typename Predicted>
json entry(const Predicted& p) {
  const PublishedRow& row = p.row;
  json j = {{"paper", row.paper},         {"table", row.table},     {"model", row.model},
            {"benchmark", row.benchmark}, {"context", row.context}, {"task", row.task},
            {"method", row.method},       {"budget", row.budget},   {"budget_unit", row.budget_unit},
            {"published", row.value}};
  if (!p.refused.empty()) {
    j["refused"] = p.refused;
  } else {
    j["predicted"] = p.predicted;
    j["interval"] = {p.low, p.high};
    j["full"] = p.full;
    if (p.simulated) j["simulated"] = *p.simulated;
    if (p.lookup) j["lookup"] = *p.lookup;
  }
  return j;
}

// Predicts an average as the mean over its tasks, scaled to the average's full score: if the table lacks the tasks' own
// full scores, this is the average's full score times the mean share.
void settle(Average& average, const RecallMap& link) {
  if (!average.refused.empty()) return;
  average.predicted = average.low = average.high = 0;
  const auto n = static_cast<double>(average.parts.size());
  double full = 0, simulated = 0, lookup = 0, common = 0;
  for (const Cell& part : average.parts) {
    if (!part.refused.empty()) {
      average.refused = part.row.task + ": " + part.refused;
      return;
    }
    full += part.full / n, common = std::max(common, part.common.value_or(link.common));
    average.predicted += part.predicted / n;
    average.low += part.low / n;
    average.high += part.high / n;
    simulated += part.simulated.value_or(0) / n, lookup += part.lookup.value_or(0) / n;
  }
  const double width = evidence::width_of_mean(common, average.parts.size());
  average.low = average.predicted - width * (average.predicted - average.low);
  average.high = average.predicted + width * (average.high - average.predicted);
  for (double* points : {&average.predicted, &average.low, &average.high, &simulated, &lookup}) {
    *points = rounded(full > 0 ? *points * average.full / full : 0);
  }
  if (average.parts.front().simulated) average.simulated = simulated;
  if (average.parts.front().lookup) average.lookup = lookup;
}

}  // namespace

std::vector<CellSamples> replay_cells(std::vector<Cell>& cells, const EvaluateOptions& options) {
  RecallReplays samples(options.cache, options.threads, options.change);
  for (const Cell& cell : cells) {
    if (!cell.refused.empty()) continue;
    for (const PartTrace& t : traces_of(cell, options.plan.seeds)) samples.request(t.trace, cell.policy);
  }
  samples.run(options.advance);
  std::vector<CellSamples> replays(cells.size());
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!cells[i].refused.empty()) continue;
    try {
      for (const PartTrace& t : traces_of(cells[i], options.plan.seeds)) {
        replays[i].push_back({t.trace.prompt_tokens, samples.recall(t.trace, cells[i].policy), t.part, t.weight});
      }
    } catch (const UserError& error) {
      cells[i].refused = error.what();
      replays[i].clear();
    }
  }
  return replays;
}

void predict_cells(std::vector<Cell>& cells, const std::vector<CellSamples>& replays, const RecallMap& link) {
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (replays[i].empty()) continue;
    Cell& cell = cells[i];
    const SharePrediction p = predict(link, parts_of(cell.task, cell.each_turn), replays[i], cell.full);
    cell.predicted = rounded(cell.full * p.share);
    cell.low = rounded(cell.full * cell.full_low * p.low);
    cell.high = rounded(std::min(100.0, cell.full * cell.full_high * p.high));
  }
}

std::vector<Cell> all_cells(const ScoreComparison& plan) {
  std::vector<Cell> all = plan.cells;
  for (const Average& average : plan.averages) all.insert(all.end(), average.parts.begin(), average.parts.end());
  return all;
}

void settle(ScoreComparison& plan, std::vector<Cell> all, const RecallMap& link) {
  std::size_t next = 0;
  for (Cell& cell : plan.cells) cell = std::move(all[next++]);
  for (Average& average : plan.averages) {
    for (Cell& part : average.parts) part = std::move(all[next++]);
    settle(average, link);
  }
}

void evaluate(ScoreComparison& plan, const RecallMap& link, const EvaluateOptions& options) {
  std::vector<Cell> all = all_cells(plan);
  predict_cells(all, replay_cells(all, options), link);
  settle(plan, std::move(all), link);
}

Agreement agreement(const std::vector<const Cell*>& cells) {
  Agreement a;
  std::vector<double> predicted, published;
  for (const Cell* cell : cells) {
    if (!cell->refused.empty()) {
      ++a.refused;
      continue;
    }
    predicted.push_back(cell->predicted);
    published.push_back(cell->row.value);
    a.mae += std::fabs(cell->predicted - cell->row.value);
    a.full += std::fabs(cell->full - cell->row.value);
    if (cell->lookup) a.lookup = a.lookup.value_or(0) + std::fabs(*cell->lookup - cell->row.value);
    if (cell->simulated) a.simulated = a.simulated.value_or(0) + std::fabs(*cell->simulated - cell->row.value);
    if (cell->low <= cell->row.value && cell->row.value <= cell->high) a.within += 1;
  }
  a.n = predicted.size();
  if (a.n == 0) return a;
  const auto n = static_cast<double>(a.n);
  a.mae /= n, a.full /= n, a.within /= n;
  if (a.lookup) *a.lookup /= n;
  if (a.simulated) *a.simulated /= n;
  a.kendall = kendall(predicted, published);
  a.spearman = spearman(predicted, published);
  double right = 0;
  for (std::size_t i = 0; i < a.n; ++i) {
    for (std::size_t j = 0; j < a.n; ++j) {
      if (published[i] - published[j] < 10) continue;
      ++a.pairs;
      right += predicted[i] > predicted[j] ? 1 : predicted[i] == predicted[j] ? 0.5 : 0;
    }
  }
  a.order = a.pairs > 0 ? right / static_cast<double>(a.pairs) : 1;
  return a;
}

json to_json(const Agreement& a) {
  json j = {{"n", a.n},
            {"kendall", or_null(a.kendall)},
            {"spearman", or_null(a.spearman)},
            {"mae", a.mae},
            {"order", a.order},
            {"pairs", a.pairs},
            {"refused", a.refused},
            {"mae_full", a.full},
            {"within", a.within}};
  if (a.lookup) j["mae_lookup"] = *a.lookup;
  if (a.simulated) j["mae_simulated"] = *a.simulated;
  return j;
}

json report(const ScoreComparison& plan) {
  std::vector<const Cell*> cells;
  std::map<std::string, std::vector<const Cell*>> tables;
  json list = json::array(), averages = json::array();
  for (const Cell& cell : plan.cells) {
    cells.push_back(&cell);
    const PublishedRow& r = cell.row;
    tables[fmt::format("{}, {}, {}, {}{}{}", r.paper, r.table, r.model, r.benchmark, r.context.empty() ? "" : " ",
                       r.context)]
        .push_back(&cell);
    list.push_back(entry(cell));
  }
  for (const Average& average : plan.averages) averages.push_back(entry(average));
  json out = to_json(agreement(cells));
  out["cells"] = std::move(list);
  out["averages"] = std::move(averages);
  for (const auto& [name, of_table] : tables) out["by_table"][name] = to_json(agreement(of_table));
  return out;
}

}  // namespace kvcast::accuracy

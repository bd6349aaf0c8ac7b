// Predicted scores of a published table, with their rank correlation and errors.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "accuracy/score.hpp"

namespace kvcast::accuracy {

struct EvaluateOptions {
  ComparisonOptions plan;
  std::string cache;  // file of replays to read and append to; empty: none
  int threads = 1;
  score::RecipeChange change;  // applied to the generator
  std::function<void(std::int64_t done, std::int64_t total)> advance = [](std::int64_t, std::int64_t) {};
};

// The samples of one cell, per seed; empty if the cell was refused.
using CellSamples = std::vector<Sample>;

// Runs the replays that the cells need; sets `refused` if a policy or a trace refuses. Returns one entry per cell.
std::vector<CellSamples> replay_cells(std::vector<Cell>& cells, const EvaluateOptions& options);

// Sets predicted, low and high.
void predict_cells(std::vector<Cell>& cells, const std::vector<CellSamples>& replays, const RecallMap& link);

// The cells of a plan and, after them, the parts of its averages.
std::vector<Cell> all_cells(const ScoreComparison& plan);
// Puts these cells, once predicted, back into the plan and predicts the averages from them.
void settle(ScoreComparison& plan, std::vector<Cell> all, const RecallMap& link);

// Replays and predicts both cells and averages.
void evaluate(ScoreComparison& plan, const RecallMap& link, const EvaluateOptions& options);

// Agreement over the cells that have a prediction.
struct Agreement {
  std::size_t n = 0, refused = 0;
  std::optional<double> kendall, spearman;
  double mae = 0;
  double order = 0;  // share of pairs whose published scores differ by 10 points or more that are in the right order
  std::size_t pairs = 0;
  double within = 0;  // share of published scores within their intervals
  // Mean errors of predictions without kvcast, by the full score and by a lookup in the evidence, and of the simulation
  // alone. The last two are only set if cells are predicted from evidence.
  double full = 0;
  std::optional<double> lookup, simulated;
};
Agreement agreement(const std::vector<const Cell*>& cells);
// {n, kendall, spearman, mae, order, pairs, refused, within, mae_full[, mae_lookup, mae_simulated]}; kendall and
// spearman are null where they are undefined.
nlohmann::json to_json(const Agreement& agreement);

// The same over all cells, with cells: [...], averages: [...], by_table: {...}: what `validate accuracy --published
// --json` prints.
nlohmann::json report(const ScoreComparison& plan);

}  // namespace kvcast::accuracy

// Predicted accuracy compared with published accuracy, cell by cell.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "score/catalogue.hpp"
#include "score/recall_map.hpp"
#include "score/recall_replays.hpp"
#include "score/table.hpp"
#include "score/task_replay.hpp"

namespace kvcast::accuracy {

using score::Catalogue, score::RecallMap, score::MethodSpec, score::MapParameter, score::PartTrace,
    score::SharePrediction, score::PromptLength;
using score::RecallReplays, score::PublishedRow, score::Sample, score::TraceRequest, score::bare_name,
    score::context_tokens, score::traces_of;
using score::Score, score::TaskPart, score::TaskSpec;

// One score to be predicted.
struct Cell : score::TaskReplay {
  PublishedRow row;
  int group = 0;    // query heads of the model that share a KV head
  double full = 0;  // the uncompressed model's published score
  // Uncertainty if prompts were truncated and the score is of whole ones: what the model may lose or keep by that, as
  // factors of `full`; otherwise 1.
  double full_low = 1, full_high = 1;
  std::string refused;  // why there is no prediction
  double predicted = 0, low = 0, high = 0;
  // If the prediction is from evidence: the simulation alone, and a lookup in the evidence.
  std::optional<double> simulated, lookup;
  std::optional<double> common;  // then also the share of its error that all tasks of a mean have in common
};

// A published mean over tasks, predicted from them.
struct Average {
  PublishedRow row;
  double full = 0;
  std::vector<Cell> parts;  // their `full` is that of the mean if the table does not give their own
  std::string refused;
  double predicted = 0, low = 0, high = 0;
  std::optional<double> simulated, lookup;  // as for a cell
};

struct ScoreComparison {
  std::vector<Cell> cells;
  std::vector<Average> averages;
};

struct ComparisonOptions {
  int seeds = 2;
};

// Returns whether a row is of the uncompressed model, an input: Full, Full-KV, Full Attention or Full Cache in any
// spelling; combined with another method: X+FullKV.
bool is_full(const PublishedRow& row);

// A row that cannot be predicted becomes a cell with the reason.
ScoreComparison make_comparison(const std::vector<PublishedRow>& rows, const Catalogue& catalogue);

// Rank correlations of two lists of the same length: Kendall's tau-b, Spearman's rho with mean ranks of ties. Undefined
// if all numbers of a list are equal.
std::optional<double> kendall(const std::vector<double>& a, const std::vector<double>& b);
std::optional<double> spearman(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace kvcast::accuracy

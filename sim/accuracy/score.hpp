// Predicted beside published accuracy, cell by cell.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "score/catalogue.hpp"
#include "score/link.hpp"
#include "score/recall_replays.hpp"
#include "score/table.hpp"
#include "score/task_replay.hpp"

namespace kvcast::accuracy {

using score::Catalogue, score::Link, score::MethodSpec, score::Parameter, score::PartTrace, score::Prediction,
    score::PromptLength;
using score::RecallReplays, score::Row, score::Sample, score::TraceRequest, score::bare_name, score::context_tokens,
    score::traces_of;
using score::Score, score::TaskPart, score::TaskSpec;

// One score to be predicted.
struct Cell : score::TaskReplay {
  Row row;
  double full = 0;  // the uncompressed model's published score
  // Where prompts were cut and the score is of whole ones: what the model can lose or keep of it by that, as factors of
  // `full`; 1 elsewhere.
  double full_low = 1, full_high = 1;
  std::string refused;  // why there is no prediction
  double predicted = 0, low = 0, high = 0;
  // Where the prediction is from evidence: what the simulation says alone, and a lookup in the evidence.
  std::optional<double> simulated, lookup;
};

// A published mean over tasks, predicted from them.
struct Average {
  Row row;
  double full = 0;
  std::vector<Cell> parts;  // their `full` is the mean's where the table does not give their own
  std::string refused;
  double predicted = 0, low = 0, high = 0;
  std::optional<double> simulated, lookup;  // as a cell's
};

struct Plan {
  std::vector<Cell> cells;
  std::vector<Average> averages;
};

struct PlanOptions {
  int seeds = 2;
};

// A row of the uncompressed model, an input: Full, Full-KV, Full Attention, Full Cache in any spelling; beside
// something else: X+FullKV.
bool is_full(const Row& row);

// A row that cannot be predicted is a cell with its reason.
Plan make_plan(const std::vector<Row>& rows, const Catalogue& catalogue);

// Rank correlations of two lists of the same length: Kendall's tau-b, Spearman's rho with mean ranks of ties.
double kendall(const std::vector<double>& a, const std::vector<double>& b);
double spearman(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace kvcast::accuracy

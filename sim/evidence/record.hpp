// Published scores with the simulator's score for each: the evidence that predictions are based on.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace kvcast::evidence {

// A method on a task: a published row, or a score to be predicted. Names are compared literally; those of tasks,
// benchmarks and methods consist of lower-case letters and digits.
struct ScoredTask {
  std::string paper;      // empty: no paper
  std::string table;      // of the paper; empty: none
  std::string model;      // a name under configs/models
  std::string benchmark;  // "ruler"
  std::string task;       // "single1"
  std::string method;     // "rocketkv"
  double context = 0;     // tokens of the prompt
  double budget = 0;      // tokens; 0: the method has none
  double full = 0;        // points of the uncompressed model
  double simulated = 0;   // points that the simulator predicts
  double group = 0;       // query heads of the model that share a KV head; 0: unknown, taken for several

  double budget_share() const { return context > 0 ? budget / context : 0; }
  bool operator<(const ScoredTask& other) const;
};

struct ScoreRecord : ScoredTask {
  double published = 0;  // points
  double noise = 0;      // fitted variance of y about the estimator's model; 0: unknown
};

// Returns whether a prediction ignores a row; an empty function: it ignores none.
using IsLeftOut = std::function<bool(const ScoreRecord&)>;

// Reads a file with a column for each member. Throws UserError with the location for an unreadable file, a missing or
// duplicate column, a row of the wrong length, and a number that is invalid or out of range.
std::vector<ScoreRecord> read_records(const std::string& path);
// Returns the text of such a file: rows sorted, and without the repetitions of a paper's rows in several tables.
std::string write_records(std::vector<ScoreRecord> records);

}  // namespace kvcast::evidence

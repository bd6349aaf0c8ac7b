// Published scores, each with what the simulator makes of it: the evidence that predictions rest on.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace kvcast::evidence {

// A method on a task: a published row, or a score to be predicted. Names are compared as they stand; those of tasks,
// benchmarks and methods are bare (letters and digits, lower case).
struct Setting {
  std::string paper;      // empty: of no paper
  std::string table;      // of the paper; empty: none
  std::string model;      // a name under configs/models
  std::string benchmark;  // "ruler"
  std::string task;       // "single1"
  std::string method;     // "rocketkv"
  double context = 0;     // tokens of the prompt
  double budget = 0;      // tokens; 0: the method has none
  double full = 0;        // points of the uncompressed model
  double simulated = 0;   // points that the simulator predicts

  double budget_share() const { return context > 0 ? budget / context : 0; }
};

struct Record : Setting {
  double published = 0;  // points
  double noise = 0;      // variance of y about what the estimator makes of it, as a fit found it; 0: not known
};

// Rows that a prediction is not to see; an empty function: it sees all.
using IsLeftOut = std::function<bool(const Record&)>;

// Columns as the members are named. UserError with the place for a file that cannot be read, a missing column, a number
// that is none or out of range, and a row that stands twice.
std::vector<Record> read_records(const std::string& path);
// The text of such a file: rows sorted, and once where a paper repeats them in several tables.
std::string write_records(std::vector<Record> records);

}  // namespace kvcast::evidence

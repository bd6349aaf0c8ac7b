// Tables of scores that need no replay: configs/accuracy/scores/ruler.csv, written by `kvcast fit scores`.
//
// One row per model, context and policy; one column per task, with the predicted share of the full score and the two
// ends of its interval, in thousandths; the interval includes the parameter ranges and the residuals of the score
// model. `made_with` is a hash of generator version, recipes, tasks, score model and model: rows of another version are
// not used.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "result/result.hpp"

namespace kvcast::score {

struct ScoreRow {
  std::string made_with, model, policy;  // the policy as policy_text() writes it
  std::int64_t context = 0;
  std::vector<result::BenchmarkTask> tasks;
};

class ScoreTable {
 public:
  ScoreTable() = default;
  // Throws UserError with the location of anything invalid.
  explicit ScoreTable(const std::string& path);

  const std::vector<ScoreRow>& rows() const { return rows_; }
  // Null if there is no row of this version.
  const ScoreRow* find(const std::string& made_with, const std::string& model, std::int64_t context,
                       const std::string& policy) const;

 private:
  std::vector<ScoreRow> rows_;
  std::map<std::string, std::size_t> by_key_;
};

// configs/accuracy/scores/ruler.csv, from the working directory or the source tree; empty if it is missing.
std::optional<std::string> score_table_file();

// The text of a table as ScoreTable reads it, with sorted rows.
std::string write_score_table(std::vector<ScoreRow> rows);

}  // namespace kvcast::score

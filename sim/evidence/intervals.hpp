// Half-widths of intervals, chosen so that 80 % of the published scores left out are within them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "evidence/leave_out.hpp"
#include "evidence/record.hpp"

namespace kvcast::evidence {

// The rows of a table that its reader compares.
class Comparisons {
 public:
  explicit Comparisons(const std::vector<ScoreRecord>& records);

  // Names the comparison of a row: the table, its model and benchmark, the prompt length if the benchmark states one,
  // and the budget as the table states it. A budget that is a share of the prompt is another number of tokens for each
  // task.
  std::string of(const ScoreRecord& record) const;

 private:
  std::set<std::string> in_shares_;  // tables whose budgets are shares of the prompt
};

// Scores that are neither lost nor kept have larger errors, so predictions above a tenth and below nine tenths of the
// full score have a spread of their own; the limits are those of the score model's residuals (score/recall_map.hpp).
enum class ScoreRange { kEnds, kBetween };
inline constexpr std::size_t kRanges = 2;
ScoreRange range_of(double points, double full);

// Half-width of the intervals that contain 80 % of these published scores, in standard deviations of the estimate. Rows
// of a table err together and count as correlated. One table whose errors are as the estimator states is added, so that
// few tables cannot make intervals much narrower or wider than that; without rows, it alone gives 1.28.
double spread_of(const std::vector<const LeftOutScore*>& left_out);

// A record left out, with an interval whose spread was chosen on the other groups. Its own group affects only the
// components and the noise of the other rows.
struct HeldOut {
  const LeftOutScore* row;
  double low = 0, high = 0;  // points
  bool within() const { return low <= row->record->published && row->record->published <= high; }
};
// The rows must outlive the answer.
std::vector<HeldOut> held_out(const std::vector<LeftOutScore>& left_out);

// The mean over the tasks of a comparison for one method. Its error has a part that all tasks share, `common`, which
// the number of tasks does not reduce.
struct HeldOutMean {
  std::string group;
  std::size_t tasks = 0;
  double error = 0;       // |published − predicted|, points
  double half_width = 0;  // mean half-width of the tasks' intervals on the side of the published mean, points
};
// Means over at least four tasks.
std::vector<HeldOutMean> held_out_means(const std::vector<HeldOut>& rows, const Comparisons& comparisons);

// Ratio of the half-width of the mean of n tasks to the mean half-width of their intervals.
double width_of_mean(double common, std::size_t n);
// The least common share of errors for which a mean with this error is within its interval; n > 1.
double common_needed(double error, double half_width, std::size_t n);
// The common share of errors for which 80 % of the means are within their intervals, without the means of one group; 1
// without means.
double common_of(const std::vector<HeldOutMean>& means, const std::string& without_group = "");
// The share of the means that are within their intervals, each with the common share that the other groups require.
double share_of_means_within(const std::vector<HeldOutMean>& means);

}  // namespace kvcast::evidence

// Suite `serving`: are latencies and throughput of engines under load predicted, and better than by a static batch?
//
// Each load point is served request by request and next to it the static batch of as many requests is simulated: as
// many as clients of a closed loop, otherwise as many as ran at a time in the served run.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "study/point.hpp"
#include "validate/load_points.hpp"
#include "validate/served_numbers.hpp"
#include "validate/suite.hpp"

namespace kvcast::validate {

// Runs the points and returns their results in order; one that cannot be run has the status kFailed.
using RunEach = std::function<std::vector<result::Result>(std::vector<study::Point>)>;

// Predictions of the first complete run, from before any number was compared, by id and name of the number.
using FirstPredictions = std::map<std::pair<std::string, std::string>, double>;
// Reads a table with the columns id, metric, predicted, measured. Throws UserError.
FirstPredictions read_first_predictions(const std::string& path);
// The text of such a table: all predictions of a suite.
std::string first_predictions_text(const Suite& suite);

// A load point and its predictions. Measured times of each request, for a trace whose columns have them.
struct ServedPoint {
  LoadPoint point;
  result::Result served, batch;
  std::vector<ServedRequest> requests, measured;
  MeanRequest mean;
};
std::vector<ServedPoint> serve_points(const std::vector<LoadPoint>& points, const RunEach& run_each);

// The number of the served run, in the unit of its name; empty if the run has none.
std::optional<double> predicted_number(const ServedPoint& p, const std::string& name);

// Adds ratios of the pairs of points, measured and predicted, and a budget for each kind of pair.
void add_pairs(const std::vector<ServedPoint>& points, Suite& suite);
std::string pairs_text(const nlohmann::json& lines);

// A case for each compared number of each point, the summaries and budgets.
Suite serving_suite(const std::vector<ServedPoint>& points, const FirstPredictions& first);

// The suite's tables for a terminal.
std::string serving_text(const Suite& suite);

// Reads the times of each request from a trace in kvcast's format; empty if it has none.
std::vector<ServedRequest> read_measured_requests(const std::string& path);

}  // namespace kvcast::validate

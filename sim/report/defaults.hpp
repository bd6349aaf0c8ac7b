// A report's initial selection.
#pragma once

#include <nlohmann/json.hpp>

#include "report/table.hpp"

namespace kvcast::report {

// Values for the signals of charts that have them, from the tables `experiments` and `series` of Content:
//   model, hardware  null (all, one panel each) if there are at most two, else the one with the most experiments
//   context          the longest at which at least half of the policies fit somewhere, null if there is none
//   batch            null: the fastest batch that fits
//   budget           the one with the most policies; of several, the middle one; null if no policy has a budget
//   hidden           the names of all series except the preferred one of each policy
//   accuracy_measure the metric that stands for accuracy: a predicted score where there is one
nlohmann::json choose_defaults(const Table& experiments, const Table& series);

}  // namespace kvcast::report

// Published rows with their simulated scores as evidence, and predictions of rows from the evidence of other rows.
#pragma once

#include <vector>

#include "accuracy/score.hpp"
#include "evidence/predictor.hpp"

namespace kvcast::accuracy {

// Records of the predicted cells of a plan, with the first name that the catalogue has for a method. Prompts that came
// in blocks form a benchmark of their own ("longbench block"), because a method's loss on them is different.
std::vector<evidence::ScoreRecord> records_of(const ScoreComparison& plan, const Catalogue& catalogue);

// Adds to each cell and average of a simulated plan the score that a lookup in the evidence gives. The lookup ignores
// the cell's own table, and the same score in another table.
void add_lookups(ScoreComparison& plan, const std::vector<evidence::ScoreRecord>& records, const Catalogue& catalogue,
                 const RecallMap& link);

// Predicts the cells and averages from that evidence and their simulation, and also keeps the simulated score.
void estimate(ScoreComparison& plan, const evidence::Predictor& predictor, const Catalogue& catalogue,
              const RecallMap& link);

}  // namespace kvcast::accuracy

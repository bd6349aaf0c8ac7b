// Published rows beside their simulation, as evidence, and predictions of such rows from the evidence of others.
#pragma once

#include <vector>

#include "accuracy/score.hpp"
#include "evidence/predictor.hpp"

namespace kvcast::accuracy {

// Of the predicted cells of a plan, with the first name that the catalogue has for a method. Prompts that came in
// blocks make a benchmark of their own ("longbench block"), as what a method loses then is another thing.
std::vector<evidence::Record> records_of(const Plan& plan, const Catalogue& catalogue);

// Puts a lookup in the evidence beside the cells and averages of a simulated plan. Evidence of a cell's own table is
// not seen, nor the same score in another one.
void add_lookups(Plan& plan, const std::vector<evidence::Record>& records, const Catalogue& catalogue,
                 const Link& link);

// Predicts them from the same evidence and their simulation together, and keeps the simulation beside the prediction.
void estimate(Plan& plan, const evidence::Predictor& predictor, const Catalogue& catalogue, const Link& link);

}  // namespace kvcast::accuracy

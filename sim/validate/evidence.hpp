// Suite `evidence`: how large are the errors of scores whose table, model or method is missing from the evidence?
#pragma once

#include <string>

#include "evidence/predictor.hpp"
#include "validate/suite.hpp"

namespace kvcast::validate {

// Leaves out each table, model and method of the records, and the longer prompts of each model, in turn; the spreads of
// intervals are those that the other tables, models and methods require. Budgets for each novelty and benchmark: the
// mean error in points, at most 3 % above the best of the simulation alone, a lookup in the published rows that prefers
// the same model, and the uncompressed model's score, all of which appear in the budget's name; the share of published
// scores within their 80 % intervals; and the share of tables for which the best method, or one within 2 points of it,
// was chosen. `detail` has the same as numbers: [{novelty, benchmark, n, error: {evidence, simulation, lookup, full},
// kendall: {...}, within, best_chosen}]. The components and the noise of the records were chosen on all of the records.
Suite evidence_suite(const std::vector<evidence::Record>& records, const evidence::Components& components);

}  // namespace kvcast::validate

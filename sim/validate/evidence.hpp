// Suite `evidence`: how large are the errors of scores whose table, model or method is missing from the evidence?
#pragma once

#include "evidence/predictor.hpp"
#include "validate/suite.hpp"

namespace kvcast::validate {

// Leaves out each table, model and method of the records, and the longer prompts of each model, in turn; the spreads of
// intervals are those that the other tables, models and methods require. Budgets for each novelty and benchmark: the
// mean error in points, at most 3 % above the best of the simulation alone, a lookup in the published rows that prefers
// the same model, and the uncompressed model's score, all of which appear in the budget's name; the share of published
// scores within their 80 % intervals, and of means over the tasks of a table; and the share of comparisons of methods
// in a table in which the best method, or one within 2 points of it, was chosen, next to the shares for a choice by the
// simulation alone and for any of the methods. For new methods, all methods of a comparison are predicted without its
// table and without one of the methods. `detail` has the same as numbers: [{novelty, benchmark, n, error: {evidence,
// simulation, lookup, full}, kendall: {...}, within, means, means_within, best_chosen: {evidence, simulation, any}}].
// The components and the noise of the records were chosen on all of the records.
Suite evidence_suite(const std::vector<evidence::ScoreRecord>& records, const evidence::Components& components);

}  // namespace kvcast::validate

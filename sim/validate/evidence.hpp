// Suite `evidence`: how far off are scores whose table, model or method the evidence lacks?
#pragma once

#include <string>

#include "evidence/predictor.hpp"
#include "validate/suite.hpp"

namespace kvcast::validate {

// Leaves out each table, model and method of the records in turn. For each novelty and benchmark a budget: the mean
// error in points, at most 3 % above the best of the simulation alone, a lookup in the published rows that prefers the
// same model, and the uncompressed model's score, which stand in its name; and one for the share of published scores
// within their 80 % intervals. `detail` has the same as numbers: [{novelty, benchmark, n, error: {evidence, simulation,
// lookup, full}, kendall: {...}, within}]. Shares and spreads (evidence.yaml) were chosen on these rows.
Suite evidence_suite(const std::vector<evidence::Record>& records, const evidence::Parameters& parameters);

}  // namespace kvcast::validate

// Suite `accuracy`: do predicted task scores rank and match published ones?
#pragma once

#include <string>
#include <vector>

#include "accuracy/ablation.hpp"
#include "accuracy/evaluate.hpp"
#include "evidence/predictor.hpp"
#include "validate/suite.hpp"

namespace kvcast::validate {

// A file of published scores (score/table.hpp), predicted from the simulation and, where a predictor is given, from the
// evidence beside it but for what it has of the row's own table. `detail` is what `validate accuracy --published
// --json` prints (accuracy::report); cases are the published averages, predicted from their tasks. Budgets: rank
// correlation, mean error, order of pairs, share of refused cells, over the rows held out of the link's fit and over
// the others. UserError as read_table. `no_score` in detail counts the rows that read_table leaves out. With ablations,
// the cells are predicted once more for each, the link frozen, and `detail` gains `ablations`, a list of
// accuracy::ablation_report; they go with the simulation alone.
using Ablations = std::vector<accuracy::Ablation>;
Suite accuracy_of_table(const std::string& path, const accuracy::EvaluateOptions& options,
                        const Ablations& ablations = {}, const evidence::Predictor* predictor = nullptr);

// The simulation of the tables under configs/validation/accuracy that take minutes, all but blocks, with a lookup in
// the evidence beside it.
Suite accuracy_of_own_tables(const accuracy::EvaluateOptions& options, const Ablations& ablations,
                             const evidence::Predictor& predictor);

}  // namespace kvcast::validate

// Suite `accuracy`: do predicted task scores match published ones, in rank and value?
#pragma once

#include <vector>

#include "accuracy/ablation.hpp"
#include "accuracy/evaluate.hpp"
#include "evidence/predictor.hpp"
#include "validate/suite.hpp"

namespace kvcast::validate {

// Predicts published scores (score/table.hpp) from the simulation and, if a predictor is given, also from the evidence
// without the row's own table. `detail` is accuracy::report, to which `validate accuracy --published --json` adds
// `passed` and `budgets`; cases are the published averages, predicted from their tasks. Budgets: rank correlation
// (without a value if all published scores are equal), mean error, order of pairs and share of refused cells, over the
// rows held out of the fit of the score model and over the others. For each ablation the cells are predicted once more
// by the simulation alone with the score model unchanged, and `detail` gains `ablations`, a list of
// accuracy::ablation_report.
using Ablations = std::vector<accuracy::Ablation>;
Suite accuracy_of_table(const std::vector<score::PublishedRow>& rows, const accuracy::EvaluateOptions& options,
                        const Ablations& ablations = {}, const evidence::Predictor* predictor = nullptr);

// The simulation of the tables under configs/validation/accuracy that take minutes (all but blocks.csv), together with
// a lookup in the evidence.
Suite accuracy_of_own_tables(const accuracy::EvaluateOptions& options, const Ablations& ablations,
                             const evidence::Predictor& predictor);

}  // namespace kvcast::validate

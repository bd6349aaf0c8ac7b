// Suite `accuracy`: do predicted task scores rank and match published ones?
#pragma once

#include <string>
#include <vector>

#include "accuracy/ablation.hpp"
#include "accuracy/evaluate.hpp"
#include "validate/suite.hpp"

namespace kvcast::validate {

// A file of published scores (score/table.hpp). `detail` is what `validate accuracy --published --json` prints
// (accuracy::report); cases are the published averages, predicted from their tasks. Budgets: rank correlation, mean
// error, order of pairs, share of refused cells, over the rows held out and over the others. UserError as read_table.
// `no_score` in detail counts the rows that read_table leaves out.
// With ablations, the cells are predicted once more for each, the link frozen, and `detail` gains `ablations`, a list
// of accuracy::ablation_report.
using Ablations = std::vector<accuracy::Ablation>;
Suite accuracy_of_table(const std::string& path, const accuracy::EvaluateOptions& options,
                        const Ablations& ablations = {});

// The same over the tables under configs/validation/accuracy that take minutes: all but blocks.
Suite accuracy_of_own_tables(const accuracy::EvaluateOptions& options, const Ablations& ablations = {});

}  // namespace kvcast::validate

// The answers of a plan in the form that the page shows.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "plan/chart.hpp"
#include "report/assets.hpp"
#include "report/palette.hpp"
#include "report/table.hpp"
#include "store/finding.hpp"

namespace kvcast::report {

// [{name, kind, question, text, details, runs, chart}]: `name` is unique ("plan_1_why"), `details` a list of lines,
// `chart` as chart_json() returns it. Throws UserError if an answer cannot be read.
nlohmann::json answers_json(const std::vector<store::Answer>& answers, const plan::Machines& machines,
                            const Table& experiments, Palette& palette);

// Policies in a content's table of experiments.
std::set<std::string> policies_of(const Table& experiments);

// Returns the chart of one answer, with colours and symbols of the palette; null if it has none. `policies`: those in
// the store's experiments; variants of one have shades of its colour.
nlohmann::json chart_json(const store::Answer& answer, const plan::Machines& machines,
                          const std::set<std::string>& policies, Palette& palette);

// Returns the specification with an answer's rows, signals and scales; `chart` as in answers_json().
nlohmann::json filled_spec(const nlohmann::json& spec, const nlohmann::json& chart);
// The same with the specification that the chart names; null for a null chart.
nlohmann::json filled_spec(const Assets& assets, const nlohmann::json& chart);

// The rows of Content::changes.
Table changes_table(const std::vector<store::Answer>& answers);

}  // namespace kvcast::report

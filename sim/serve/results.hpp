// Results and answers as JSON: printed by `kvcast run --json` and `kvcast plan --json`, and sent to the planner's page.
#pragma once

#include <nlohmann/json.hpp>

#include "plan/question.hpp"
#include "study/study.hpp"

namespace kvcast::serve {

// result::to_json() with
//   machine_changes   [{key, value, base, follows, rule}]: numbers of the machine that the run sets, and those that
//                     follow from them
//   rests_on          every number of the machine with its origin, uncertainty and source
nlohmann::json run_json(const study::Task& task, const result::Result& result);

// The answer's data with kind, question, text, details and runs.
nlohmann::json answer_json(const plan::Answer& answer);

}  // namespace kvcast::serve

#include "serve/results.hpp"

#include "result/json.hpp"
#include "serve/catalogue.hpp"

namespace kvcast::serve {

using nlohmann::json;

json run_json(const study::Task& task, const result::Result& result) {
  json out = result::to_json(result);
  const config::Hardware& machine = task.prepared.run.hardware;
  if (!machine.changes.empty()) out["machine_changes"] = changes_json(machine);
  for (const auto& number : study::machine_numbers(machine)) {
    out["rests_on"].push_back(result::to_json(machine.name, number));
  }
  return out;
}

json answer_json(const plan::Answer& answer) {
  json out = answer.data;
  out["kind"] = answer.kind, out["runs"] = answer.runs;
  out["question"] = answer.question, out["text"] = answer.text, out["details"] = answer.details;
  return out;
}

}  // namespace kvcast::serve

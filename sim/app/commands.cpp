#include "app/commands.hpp"

namespace kvcast::app {

void add_commands(CLI::App& app, int& result) {
  add_run(app, result);
  add_sweep(app, result);
  add_merge(app, result);
  add_plan(app, result);
  add_serve(app, result);
  add_report(app, result);
  add_replay(app, result);
  add_simulate(app, result);
  add_trace(app, result);
  add_policies(app, result);
  add_hardware(app, result);
  add_models(app, result);
  add_frameworks(app, result);
  add_metrics(app, result);
  add_keys(app, result);
  add_explain(app, result);
  add_calibrate(app, result);
  add_validate(app, result);
  add_profile(app, result);
  add_fit(app, result);
  add_schema(app, result);
  add_completion(app, result);
}

}  // namespace kvcast::app

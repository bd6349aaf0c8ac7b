// The commands of kvcast, one file each.
#pragma once

#include <CLI/CLI.hpp>

namespace kvcast::app {

// Each adds its command, which stores its exit code in `result`; failures are thrown.

void add_run(CLI::App& app, int& result);
void add_sweep(CLI::App& app, int& result);
void add_merge(CLI::App& app, int& result);
void add_plan(CLI::App& app, int& result);
void add_serve(CLI::App& app, int& result);
void add_report(CLI::App& app, int& result);
void add_replay(CLI::App& app, int& result);
void add_simulate(CLI::App& app, int& result);
void add_trace(CLI::App& app, int& result);
void add_policies(CLI::App& app, int& result);
void add_hardware(CLI::App& app, int& result);
void add_models(CLI::App& app, int& result);
void add_frameworks(CLI::App& app, int& result);
void add_metrics(CLI::App& app, int& result);
void add_keys(CLI::App& app, int& result);
void add_explain(CLI::App& app, int& result);
void add_calibrate(CLI::App& app, int& result);
void add_calibrate_steps(CLI::App& calibrate, int& result);  // kvcast calibrate steps
void add_validate(CLI::App& app, int& result);
void add_profile(CLI::App& app, int& result);
void add_fit(CLI::App& app, int& result);
void add_fit_scores(CLI::App& fit, int& result);    // kvcast fit scores
void add_fit_evidence(CLI::App& fit, int& result);  // kvcast fit evidence
void add_init(CLI::App& app, int& result);
void add_schema(CLI::App& app, int& result);
void add_completion(CLI::App& app, int& result);  // covers the commands that were added before

}  // namespace kvcast::app

// Questions about a small run.
#pragma once

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>
#include <string>

#include "config/run.hpp"
#include "plan/question.hpp"
#include "result/metric.hpp"

namespace kvcast::tests {

inline constexpr const char* kRun =
    "model: llama-3.2-1b\nhardware: l40s\npolicy: {name: quest, budget: 256}\n"
    "workload: {prompt_tokens: 2048, decode_tokens: 32, batch: 2, prefill_chunk: 1024, prefill_batch: 1}\n"
    "trace: {recipe: needle, layers: 1, steps: 4}\nscore: none\n";

inline config::Node run_with(const std::string& settings) {
  config::Node run = config::parse_yaml(kRun, "run.yaml");
  const config::Node map = config::parse_yaml(settings, "settings.yaml");
  for (const auto& [key, value] : map.entries()) run = run.with(key, value);
  return run;
}

struct Asked {
  nlohmann::json data;
  int runs;
};

inline Asked ask(plan::Experiments& experiments, const std::string& question, const std::string& settings = "{}") {
  const config::Node list = config::parse_yaml("- " + question, "plan.yaml");
  const auto questions = plan::read_plan(run_with(settings).with("plan", list));
  experiments.take_requested();
  const plan::Answer answer = questions.front()->answer(experiments);
  CHECK_FALSE(answer.text.empty());
  return {answer.data, static_cast<int>(experiments.take_requested().size())};
}

inline const result::Metric& metric(const char* name) { return *result::find_metric(name); }

inline plan::Experiments make_experiments() {
  study::StudyOptions options;
  options.threads = 2;
  return plan::Experiments(options);
}

}  // namespace kvcast::tests

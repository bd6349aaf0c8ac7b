// Results that use every member, to test that storage preserves all of them.
#pragma once

#include "support/small_result.hpp"

namespace kvcast::tests {

inline metrics::Attribution filled_attribution(double start) {
  metrics::Attribution a;
  for (double* list : {a.exposed.data(), a.hidden.data(), a.uncertain.data()}) {
    for (int k = 0; k < graph::kKindCount; ++k) list[k] = start += 1.0 / 3;
  }
  for (double& seconds : a.bound) seconds = start += 1e-3;
  for (auto& of_kind : a.path) {
    for (double& seconds : of_kind) seconds = start += 1e-3;
  }
  for (double& seconds : a.origin) seconds = start += 1e-6;
  a.idle = start / 7;
  return a;
}

// small_result() with every optional part: attributions without a zero, a timeline, a task score, detailed effects,
// texts that are not UTF-8, and an alternative result for shifted memory.
inline result::Result full_result() {
  using namespace result;
  Result r = small_result();
  r.subject.name = std::string("zero \0 in the \"name\"", 20);
  r.subject.trace = "\xff\xfe.safetensors";
  r.subject.settings = {{"flag", true},
                        {"integer", std::int64_t{-4}},
                        {"integer_text", std::string("007")},
                        {"number", 1.0},
                        {"other.\"quoted\"", std::string("a, b\r\n")},
                        {"other.flag", false},
                        {"policy.budget", std::int64_t{1024}},
                        {"true_text", std::string("true")}};
  r.subject.swept = {{"z", "last first"}, {"a", "\xff"}};
  Experiment& e = r.experiment;
  e.step = filled_attribution(1), e.prefill = filled_attribution(2);
  e.by_trace = {{0.01, 2, 0.1, 0.05}, {0.03, 2.5, 0.2, 0}};
  e.traffic = {1.1, 2.2, 3.3, 4.4, 5.5, 6.6, 7.7};
  e.decode_hbm.capacity = 79e9;
  e.timeline = {{"compute", "gemm", "label \xc3\x28", 3, 0.1, 0.2, {}, 1},
                {"host", "launch", "", -1, 0.05, 0.01, 4096.0, {}}};
  e.effects[0].longer.step_parts = filled_attribution(3);
  e.effects[0].shorter.prefill_parts = filled_attribution(4);
  e.effects.push_back({kTraceSample, {kTraceSample}, {}, {}});
  e.engine_wall_s = 0.125;
  r.accuracy = {0.9, 0.8, 0.1, 0.7, 1024.5, 2048.5, 0.125, 0.25, 0.975, Origin::kExact, {}, {}};
  r.accuracy.task = TaskScore{"needle", true, 0.95, {0.9, 1}, 8, 0.97, 0.5, 0.25, "fitted to three papers"};
  r.accuracy.layers = {{0, {512, 256.5}, {1024, 1024}, {0.5, 0.25}}, {5, {64, 64}, {}, {1, 1}}};
  r.benchmark = BenchmarkScore{
      "RULER", 16384, 0.875, {0.75, 0.9375}, {{"vt", 0.5, {0.25, 0.75}}, {"cwe", 1, {1, 1}}}, "26 replays"};
  auto other = std::make_shared<Result>(small_result());
  other->subject.batch = 1, other->experiment.tokens_per_s = 120;
  r.alternatives = {{"device memory", other, nullptr}};
  r.wall_s = 0.375;
  return r;
}

inline result::Result misfit_result() {
  result::Result r = small_result();
  r.key = "misfit", r.status = result::Status::kOom;
  r.experiment.oom = result::OutOfMemory{
      "hbm", "prefill, layer 17", 30e9, 20e9, 40e9, {{"weights", 16e9}, {"KV", 4e9}}, "activations"};
  r.accuracy.prompt_density = 0.5;
  r.benchmark_refused = "it rounds";
  return r;
}

inline result::Result failed_result() {
  result::Result r;
  r.key = "failed", r.status = result::Status::kFailed;
  r.error = "run.yaml:3:5: window 64 is longer than the prompt";
  r.subject = small_result().subject;
  return r;
}

inline result::Result build_result() {
  result::Result r;
  r.key = "build", r.subject = small_result().subject;
  r.build = result::IndexBuild{0.25, filled_attribution(5), small_result().experiment.effects};
  r.build->effects[0].longer.build = 1.5;
  r.build->effects[0].longer.build_parts = filled_attribution(6);
  return r;
}

}  // namespace kvcast::tests

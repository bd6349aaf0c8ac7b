// Experiments that are replayed once and timed under other numbers.
#pragma once

#include <catch2/catch.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <memory>
#include <set>

#include "config/find.hpp"
#include "config/hardware.hpp"
#include "replay/replay.hpp"
#include "result/metric.hpp"
#include "simulate/experiment.hpp"
#include "study/accuracy.hpp"
#include "study/prepare.hpp"
#include "study/simulation.hpp"
#include "study/study.hpp"
#include "support/run_experiment.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using config::Node;

// Small experiments that together use every engine, link, host call and kernel class of a machine.
inline std::vector<std::string> experiments() {
  const std::string small =
      "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\nworkload: {prompt_tokens: 1024, decode_tokens: 32, batch: 2}\n"
      "trace: {recipe: needle, layers: 2, steps: 6}\nframework: {warmup_steps: 2, measured_steps: 3, sampled_contexts: "
      "2}\n";
  const auto with_policy = [&](const std::string& policy) { return small + "policy: " + policy + "\n"; };
  return {
      with_policy("full"),
      with_policy("{name: freekv, budget: 256, sink: 32, recent: 32, page: 32}"),
      with_policy("{file: freekv-nhd, budget: 256, sink: 32, recent: 32}"),
      with_policy("{file: freekv-nhd, budget: 256, sink: 32, recent: 32, recall: strided}"),
      with_policy("{name: freekv, budget: 256, sink: 32, recent: 32, recall: batched}"),
      with_policy("{file: arkvale-released, budget: 192, topk: 6, selection_heads: kv_head}"),
      with_policy("{name: arkvale, budget: 256}"),
      with_policy("{name: shadowkv, budget: 256, factorisation: library}"),
      with_policy("{name: ctkvr, budget: 128, centroids: 64, retrieved_centroids: 4, recent: 32}"),
      with_policy("{name: hsa, budget: 256}"),
      with_policy("{name: infinigen}"),
      small.substr(0, small.find("framework:")) +
          "policy: full\nframework: {attention_kernels: flash_2, warmup_steps: 2, measured_steps: 3}\n",
      with_policy("full") + "deployment: {weights: fp8, tensor_parallel: 2}\n",
      with_policy("full") + "deployment: {weights: int8, kv_cache: int8}\n",
      with_policy("full") + "deployment: {weights: nvfp4}\n",
      with_policy("{name: magicpig}"),
      with_policy("{name: retrieval_attention, index: ivf, budget: 128, sink: 16, recent: 32}"),
  };
}

// Predictions of a run, without values that depend on the machine that runs the test.
inline std::string prediction(const config::Run& run, const policy::Policy& policy,
                              const replay::ReplayResult& replayed) {
  static const score::ScoreModel scores;
  result::Result r;
  r.experiment = run_experiment({&run, &policy, &replayed}, {});
  r.status = r.experiment.oom ? result::Status::kOom : result::Status::kOk;
  r.accuracy = study::accuracy_of(replayed, scores);
  std::string text = fmt::format("{} {}", result::status_name(r.status), result::bottleneck(r.experiment.step));
  for (const result::Metric& metric : result::all_metrics()) {
    if (metric.basis == result::Basis::kProgram) continue;
    const auto number = result::value(r, metric);
    text += fmt::format("\n{} {} {}", metric.path, number.value_or(-1), origin_name(result::origin(r, metric)));
  }
  // Uncertainties and origins of costs, from which intervals follow.
  for (const metrics::Attribution* time : {&r.experiment.step, &r.experiment.prefill}) {
    text += fmt::format("\n{} {}", fmt::join(time->uncertain, " "), fmt::join(time->origin, " "));
  }
  return text;
}

// An experiment replayed once, to be timed on many machines.
class Timed {
 public:
  explicit Timed(const Node& config) : prepared_(study::prepare(config)), policy_(study::make_policy(prepared_)) {
    const auto trace = study::make_trace(prepared_.run, prepared_.run.traces.front());
    replayed_ = replay::replay(replay::prepare(*trace, 1), *policy_, {.request = study::lengths_of(prepared_.run)});
  }
  std::string on(const config::Hardware& hardware) const {
    config::Run run = prepared_.run;
    run.hardware = hardware;
    return prediction(run, *policy_, replayed_);
  }
  simulate::Experiment predicted_on(const config::Hardware& hardware,
                                    simulate::Effects effects = simulate::Effects::kTimes) const {
    config::Run run = prepared_.run;
    run.hardware = hardware;
    simulate::ExperimentOptions options;
    options.effects = effects;
    return run_experiment({&run, policy_.get(), &replayed_}, options);
  }
  const config::Hardware& hardware() const { return prepared_.run.hardware; }
  std::string here() const { return on(hardware()); }

 private:
  study::Prepared prepared_;
  std::unique_ptr<policy::Policy> policy_;
  replay::ReplayResult replayed_;
};

inline Node parsed(const std::string& text) { return config::parse_yaml(text, "test"); }

}  // namespace kvcast::tests

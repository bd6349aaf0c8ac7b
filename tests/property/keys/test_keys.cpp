// No key is silent: every number of a machine, every key of a run and every key of a model changes some prediction of
// some experiment. Parameters of policies have a suite of their own (property/policies).
#include <catch2/catch.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>

#include "config/find.hpp"
#include "config/hardware.hpp"
#include "replay/replay.hpp"
#include "result/metric.hpp"
#include "simulate/experiment.hpp"
#include "study/prepare.hpp"
#include "study/simulation.hpp"
#include "study/study.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {
namespace {

using config::Node;

// Small experiments that between them use every engine, link, host call and kernel class of a machine.
std::vector<std::string> experiments() {
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

// What a run predicts, without what depends on the machine that the test runs on.
std::string prediction(const config::Run& run, const policy::Policy& policy, const replay::ReplayResult& replayed) {
  static const score::ScoreModel scores;
  result::Result r;
  r.experiment = simulate::run_experiment({&run, &policy, &replayed}, {});
  r.status = r.experiment.oom ? result::Status::kOom : result::Status::kOk;
  r.accuracy = study::accuracy_of(replayed, scores);
  std::string text = fmt::format("{} {}", result::status_name(r.status), result::bottleneck(r.experiment.step));
  for (const result::Metric& metric : result::all_metrics()) {
    if (metric.basis == result::Basis::kProgram) continue;
    const auto number = result::value(r, metric);
    text += fmt::format("\n{} {} {}", metric.path, number.value_or(-1), origin_name(result::origin(r, metric)));
  }
  // Uncertainties and origins of costs, which intervals follow from.
  for (const metrics::Attribution* time : {&r.experiment.step, &r.experiment.prefill}) {
    text += fmt::format("\n{} {}", fmt::join(time->uncertain, " "), fmt::join(time->origin, " "));
  }
  return text;
}

// An experiment replayed once, to be timed on many machines.
class Timed {
 public:
  explicit Timed(const Node& config) : prepared_(study::prepare(config)), policy_(study::make_policy(prepared_)) {
    const auto trace = study::make_trace(prepared_.run, prepared_.run.trace);
    replayed_ = replay::replay(replay::prepare(*trace, 1), *policy_, {});
  }
  std::string on(const config::Hardware& hardware) const {
    config::Run run = prepared_.run;
    run.hardware = hardware;
    return prediction(run, *policy_, replayed_);
  }
  simulate::Experiment predicted_on(const config::Hardware& hardware) const {
    config::Run run = prepared_.run;
    run.hardware = hardware;
    simulate::ExperimentOptions options;
    options.effects = simulate::Effects::kTimes;
    return simulate::run_experiment({&run, policy_.get(), &replayed_}, options);
  }
  const config::Hardware& hardware() const { return prepared_.run.hardware; }
  std::string here() const { return on(hardware()); }

 private:
  study::Prepared prepared_;
  std::unique_ptr<policy::Policy> policy_;
  replay::ReplayResult replayed_;
};

Node parsed(const std::string& text) { return config::parse_yaml(text, "test"); }

// 0.6 of the number; memories shrink to what holds next to nothing, as the experiments fit easily into 0.6 of them. The
// prompts are too short for many parts of rows, and the cores too slow to fill the memory: these two shrink further.
void turn(const config::Knob& knob) {
  if (knob.key == "gpu.attention_parts" || knob.key == "host.dram_bandwidth") {
    knob.value->value *= knob.key == "gpu.attention_parts" ? 0.01 : 0.2;
  } else if (knob.curve != nullptr) {
    for (double& y : knob.curve->y) y *= 0.6;
  } else if (knob.key == "gpu.hbm_capacity") {
    knob.value->value *= 0.03;
  } else {
    knob.value->value *= knob.key == "host.dram_capacity" || knob.key == "host.pinned_fraction" ? 1e-6 : 0.6;
  }
}

}  // namespace

TEST_CASE("every number of a machine moves a prediction") {
  std::vector<Timed> all;
  for (const std::string& text : experiments()) {
    INFO(text);
    all.emplace_back(parsed(text));
    // Launches from the host show where kernels are not in a graph.
    all.emplace_back(parsed(text).with("framework.launch", Node::scalar("eager", {})));
  }
  std::vector<std::string> before;
  for (const Timed& experiment : all) before.push_back(experiment.here());

  config::Hardware listed = all.front().hardware();
  for (std::size_t k = 0; k < config::knobs(listed).size(); ++k) {
    config::Hardware turned = all.front().hardware();
    const config::Knob knob = config::knobs(turned)[k];
    if (knob.key == "link.theory_bandwidth") continue;  // bounds the others when a profile is read
    // What is read again at once; a step reads every KV pair once. Points measured without a flush need it.
    if (knob.key == "gpu.l2_capacity" || knob.key == "gpu.l2_bandwidth") continue;
    turn(knob);
    bool moved = false;
    for (std::size_t i = 0; i < all.size() && !moved; ++i) moved = all[i].on(turned) != before[i];
    INFO(knob.key);
    CHECK(moved);
  }
}

namespace {

// A number in the base unit of its dimension, to the last bit.
std::string base_quantity(double value, Dimension dimension) {
  static const std::map<Dimension, std::string> units = {{Dimension::kBytes, " B"},
                                                         {Dimension::kBytesPerSecond, " B/s"},
                                                         {Dimension::kFlopPerSecond, " FLOP/s"},
                                                         {Dimension::kSeconds, " s"},
                                                         {Dimension::kHertz, " Hz"}};
  const auto unit = units.find(dimension);
  return fmt::format("{}{}", value, unit == units.end() ? "" : unit->second);
}

// The machine of a run after `--set hardware.KEY=VALUE`.
config::Hardware machine_with(const std::string& name, const std::string& key, const std::string& value) {
  const auto [path, node] = config::parse_setting("hardware." + key + "=" + value);
  return config::read_hardware(*parsed("hardware: " + name).with(path, node).find("hardware"));
}

std::string scaled_points(const config::ConstKnob& knob, double factor) {
  std::vector<std::string> points;
  for (std::size_t i = 0; i < knob.curve->x.size(); ++i) {
    points.push_back(fmt::format("[{}, {}]", base_quantity(knob.curve->x[i], knob.x),
                                 base_quantity(knob.curve->y[i] * factor, knob.y)));
  }
  return fmt::format("{{points: [{}]}}", fmt::join(points, ", "));
}

}  // namespace

TEST_CASE("every number of a machine is a key of a run, as a quantity and as a factor") {
  for (const char* name : {"a100-40gb-pcie4", "a100-80gb-sxm-trtllm"}) {
    const config::Hardware base = config::read_hardware(config::find_config("hardware", name, {}));
    const std::string before = config::canonical(base);
    const auto numbers = config::knobs(base);
    for (std::size_t k = 0; k < numbers.size(); ++k) {
      const config::ConstKnob& knob = numbers[k];
      // Down, but for what is bound from below by another number.
      const bool bound = knob.key.ends_with("l2_bandwidth") || knob.key == "link.both_bandwidth" ||
                         knob.key == "gpu.gemm_overlap" || knob.key.ends_with("attention_overlap");
      const double factor = bound ? 1.0625 : 0.9375;
      INFO(name << " " << knob.key << " x" << factor);
      const config::Hardware scaled = machine_with(name, knob.key, fmt::format("x{}", factor));
      CHECK(config::canonical(scaled) != before);
      CHECK(scaled.name != base.name);
      REQUIRE_FALSE(scaled.changes.empty());
      CHECK(scaled.changes.front().key == knob.key);
      const config::ConstKnob now = config::knobs(scaled)[k];
      REQUIRE(now.key == knob.key);
      if (knob.value != nullptr) {
        CHECK(now.value->value == knob.value->value * factor);
        const std::string quantity = base_quantity(knob.value->value * factor, knob.y);
        CHECK(config::canonical(machine_with(name, knob.key, quantity)) == config::canonical(scaled));
      } else {
        for (std::size_t i = 0; i < knob.curve->y.size(); ++i) CHECK(now.curve->y[i] == knob.curve->y[i] * factor);
        const config::Hardware replaced = machine_with(name, knob.key, scaled_points(knob, factor));
        CHECK(config::knobs(replaced)[k].curve->y == now.curve->y);
        CHECK(config::canonical(replaced) != before);
      }
      const std::string same =
          knob.value != nullptr ? base_quantity(knob.value->value, knob.y) : scaled_points(knob, 1);
      for (const std::string& nothing : {std::string("x1"), same, std::string("{value: x1}")}) {
        const config::Hardware untouched = machine_with(name, knob.key, nothing);
        CHECK(config::canonical(untouched) == before);
        CHECK(untouched.name == base.name);
        CHECK(untouched.changes.empty());
      }
      // Its uncertainty is a key of its own.
      CHECK(config::canonical(machine_with(name, knob.key + ".uncertainty", "87 %")) != before);
    }
  }
}

TEST_CASE("every way to alter a machine moves a prediction") {
  // Copies, work of the host's cores, and launches one by one.
  const Node base = parsed(experiments()[8]).with("framework.launch", Node::scalar("eager", {}));
  const std::string before = Timed(base).here();
  for (const char* setting :
       {"like=l40s", "like.uncertainty=60 %", "host=epyc-2-cores", "host.cores=2",
        "link.pcie={generation: 3, lanes: 4}", "link.pcie.generation=6", "link.theory_bandwidth=x0.5", "gpu.clock=x0.5",
        "gpu.stream_efficiency.uncertainty=60 %", "gpu.hbm_bandwidth={value: x0.5, origin: measured}",
        "host.core_bandwidth=x0.5", "host.core_bandwidth={points: [[64 B, 1 GB/s]]}",
        "host.core_bandwidth.uncertainty=90 %", "gpu.range={attention_rows: [1000, 2000]}",
        "gpu.attention_correction={rows: [1, 64], tokens: [64, 4096], groups: [1, 8], repeated: false, source: made "
        "up, "
        "percent: [[[90, 90], [90, 90]], [[90, 90], [90, 90]]]}"}) {
    INFO(setting);
    const auto [path, value] = config::parse_setting(std::string("hardware.") + setting);
    CHECK(Timed(base.with(path, value)).here() != before);
  }
}

TEST_CASE("an effect is what a machine whose number is off by its uncertainty does to a step") {
  for (const char* policy : {"full", "{name: freekv, budget: 256, sink: 32, recent: 32, page: 32}"}) {
    INFO(policy);
    // One context and two steps, as effects are taken from; the host's operators are the pace.
    const Timed timed(parsed(
        "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\nworkload: {prompt_tokens: 1024, decode_tokens: 32, batch: 2}\n"
        "trace: {recipe: needle, layers: 2, steps: 6}\npolicy: " +
        std::string(policy) +
        "\nframework: {launch: eager, warmup_steps: 2, measured_steps: 2, sampled_contexts: 1}\n"));
    const Value& calls = timed.hardware().host.eager_op;
    const simulate::Experiment as_is = timed.predicted_on(timed.hardware());
    const auto effect = std::find_if(as_is.effects.begin(), as_is.effects.end(),
                                     [&](const result::Effect& e) { return e.source == calls.source; });
    REQUIRE(effect != as_is.effects.end());
    const auto with_calls = [&](double factor) {
      config::Hardware off = timed.hardware();
      off.host.eager_op.value *= factor;
      return timed.predicted_on(off);
    };
    const simulate::Experiment longer = with_calls(1 + calls.uncertainty), shorter = with_calls(1 - calls.uncertainty);
    // The pass keeps how much sharing stretched an op, so that a tenth of the width is allowed.
    const double step_longer = longer.tpot_mean_s / as_is.tpot_mean_s;
    const double step_shorter = shorter.tpot_mean_s / as_is.tpot_mean_s;
    CHECK(effect->longer.step == Approx(step_longer).margin(0.1 * (step_longer - step_shorter)));
    CHECK(effect->shorter.step == Approx(step_shorter).margin(0.1 * (step_longer - step_shorter)));
    CHECK(effect->longer.prefill == Approx(longer.ttft_s / as_is.ttft_s));
    CHECK(effect->shorter.prefill == Approx(shorter.ttft_s / as_is.ttft_s));
    CHECK(effect->longer.step > 1.2);
  }
}

TEST_CASE("what does not fit in memory has no effects") {
  const Timed timed(parsed(experiments().front()));
  config::Hardware small = timed.hardware();
  small.gpu.hbm_capacity.value = 1e9;
  const simulate::Experiment none = timed.predicted_on(small);
  CHECK(none.oom);
  CHECK(none.effects.empty());
}

TEST_CASE("every key of a run moves a prediction") {
  const std::string base =
      "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\npolicy: {name: quest, budget: 256}\n"
      "workload: {prompt_tokens: 1024, decode_tokens: 32, batch: 3}\n"
      "trace: {recipe: needle, seed: 1, layers: 2, steps: 6}\n"
      "framework: {warmup_steps: 2, measured_steps: 3, sampled_contexts: 2}\n";
  const std::string before = Timed(parsed(base)).here();
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"model", "llama-3.2-3b"},
      {"hardware", "h100-sxm"},
      {"policy.budget", "128"},
      {"workload.prompt_tokens", "1536"},
      {"workload.decode_tokens", "96"},
      {"workload.batch", "4"},
      {"workload.prefill_chunk", "256"},
      {"workload.prefill_batch", "1"},
      {"trace.recipe", "local"},
      {"trace.seed", "2"},
      {"trace.layers", "3"},
      {"trace.steps", "9"},
      {"framework.launch", "compiled"},
      {"framework.expand_kv_heads", "true"},
      {"framework.reread_kv_heads", "true"},
      {"framework.unfused", "true"},
      {"framework.torch_topk", "true"},
      {"framework.eager_attention", "true"},
      {"framework.concatenate_cache", "true"},
      {"framework.quadratic_mask", "true"},
      {"framework.mlp_slice", "256"},
      {"framework.page", "500"},
      {"framework.engine_step", "1 ms"},
      {"framework.warmup_steps", "0"},
      {"framework.measured_steps", "7"},
      {"framework.sampled_contexts", "4"},
      {"deployment.weights", "int4"},
      {"deployment.kv_cache", "fp8"},
      {"deployment.tensor_parallel", "2"},
      {"deployment.pipeline_parallel", "2"},
  };
  for (const auto& [key, value] : changes) {
    INFO(key << " = " << value);
    CHECK(Timed(parsed(base).with(key, Node::scalar(value, {}))).here() != before);
  }
}

TEST_CASE("experts dealt out whole and a price move a prediction") {
  const std::string base =
      "hardware: h100-sxm\npolicy: full\nworkload: {prompt_tokens: 256, decode_tokens: 16, batch: 3}\n"
      "trace: {recipe: needle, layers: 1, steps: 2}\n";
  const Node experts = parsed("model: qwen3-30b-a3b\ndeployment: {tensor_parallel: 2}\n" + base);
  CHECK(Timed(experts.with("deployment.expert_parallel", Node::scalar("true", {}))).here() != Timed(experts).here());
  const auto cost = [&](const std::string& price) {
    const Node run = parsed("model: llama-3.2-1b\nprice_per_hour: " + price + "\n" + base);
    const result::Result r = study::run_all({{run, {}, {}}}, {}).front();
    // Dollars an hour over tokens an hour.
    CHECK(*result::value(r, *result::find_metric("cost")) ==
          Approx(std::stod(price) / (3600 * r.experiment.tokens_per_s) * 1e6));
    return *result::value(r, *result::find_metric("cost"));
  };
  CHECK(cost("4") == Approx(2 * cost("2")));
}

TEST_CASE("every quantity of a match moves a prediction") {
  const Node base = parsed(
      "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\npolicy: {name: snapkv, window: 16}\n"
      "workload: {prompt_tokens: 1024, decode_tokens: 16}\ntrace: {recipe: needle, layers: 1, steps: 2}\n");
  const auto predicted = [&](const std::string& key, const std::string& value) {
    const study::Point point{base.with("match." + key, Node::scalar(value, {})), {}, {}};
    const result::Result r = study::run_all({point}, {}).front();
    return r.experiment.tpot_mean_s;
  };
  CHECK(predicted("tokens_attended", "128") != predicted("tokens_attended", "256"));
  CHECK(predicted("bytes_read", "0.4 MB") != predicted("bytes_read", "0.8 MB"));
  CHECK(predicted("bytes_resident", "8 MB") != predicted("bytes_resident", "16 MB"));
}

TEST_CASE("trace.window captures the prompt queries that a policy needs") {
  const Node base = parsed(
      "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\npolicy: {name: ctkvr, budget: 64, centroids: 200}\n"
      "workload: {prompt_tokens: 1024, decode_tokens: 16}\ntrace: {recipe: needle, layers: 1, steps: 2}\n");
  CHECK_THROWS_AS(Timed(base), UserError);  // the recipe captures 128
  CHECK_NOTHROW(Timed(base.with("trace.window", Node::scalar("200", {}))));
}

TEST_CASE("what a policy names inside itself is part of an experiment's key") {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/inner.yaml";
  const auto key = [&](const std::string& inner) {
    std::ofstream(path, std::ios::trunc) << inner;
    return study::prepare(
               parsed("model: llama-3.2-1b\nhardware: a100-40gb-pcie4\npolicy: {name: minference, then: {file: " +
                      path + "}}\nworkload: {prompt_tokens: 1024, decode_tokens: 16}\n"))
        .replays;
  };
  const std::string small = key("name: quest\nbudget: 64\n");
  CHECK(key("name: quest\nbudget: 64\n") == small);
  CHECK(key("name: quest\nbudget: 128\n") != small);
}

TEST_CASE("every key of a model moves a prediction") {
  const TemporaryDirectory directory;
  const std::string model =
      "title: Test\naliases: [tested]\nlayers: 4\nhidden: 512\nn_q_heads: 8\nn_kv_heads: 4\nhead_dim: 64\nffn: 1024\n"
      "vocab: 32000\ntie_embeddings: false\nqkv_bias: false\nqk_norm: false\nmax_context: 8192\n"
      "rope: {theta: 500000, scaling: llama3, factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_context: "
      "512}\nsource: \"made up\"\n";
  int written = 0;
  const auto predicted = [&](const Node& shape) {
    const std::string path = directory.path() + "/model-" + std::to_string(written++) + ".yaml";
    std::ofstream(path) << shape.canonical();
    const std::string run = "model: " + path +
                            "\nhardware: a100-40gb-pcie4\npolicy: {name: quest, budget: 256}\n"
                            "workload: {prompt_tokens: 1024, decode_tokens: 16, batch: 2}\n"
                            "trace: {recipe: needle, layers: 2, steps: 6}\n"
                            "framework: {warmup_steps: 2, measured_steps: 3, sampled_contexts: 2}\n";
    return Timed(parsed(run)).here();
  };
  const Node base = parsed(model);
  const std::string before = predicted(base);
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"layers", "6"},
      {"hidden", "768"},
      {"n_q_heads", "16"},
      {"n_kv_heads", "2"},
      {"head_dim", "128"},
      {"ffn", "2048"},
      {"vocab", "64000"},
      {"tie_embeddings", "true"},
      {"qkv_bias", "true"},
      {"qk_norm", "true"},
      {"rope.theta", "10000"},
      {"rope", "{theta: 500000}"},
      {"rope.factor", "4"},
      {"rope.low_freq_factor", "2"},
      {"rope.high_freq_factor", "6"},
      {"rope.original_context", "256"},
  };
  for (const auto& [key, value] : changes) {
    INFO(key << " = " << value);
    CHECK(predicted(base.with(key, parsed(value))) != before);
  }
}

}  // namespace kvcast::tests

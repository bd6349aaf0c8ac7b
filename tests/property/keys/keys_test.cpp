// No key is without effect: every number of a machine, every key of a run and every key of a model changes some
// prediction of some experiment. Parameters of policies have a suite of their own (property/policies).
#include <cmath>
#include <tuple>

#include "config/left_out.hpp"
#include "property/keys/timed.hpp"

namespace kvcast::tests {
namespace {

// 0.6 of the number; memories shrink to almost nothing, as the experiments fit easily into 0.6 of them. The prompts are
// too short for many parts of rows and for staging to take longer than the starts of copies, and the cores are too slow
// to saturate the memory: these numbers shrink further.
void turn(const config::Knob& knob) {
  if (knob.key == "link.peer_bandwidth") {
    knob.value->value = 300e9;  // a link of their own
  } else if (knob.value != nullptr && knob.value->value == 0) {
    knob.value->value = 1e-6;  // a time that the profile does not state
  } else if (knob.key == "gpu.attention_parts" || knob.key == "host.dram_bandwidth" ||
             knob.key == "link.pageable_bandwidth") {
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

TEST_CASE("every number of a machine changes a prediction") {
  std::vector<Timed> all;
  for (const std::string& text : experiments()) {
    INFO(text);
    all.emplace_back(parsed(text));
    // Launches from the host matter if kernels are not in a graph.
    all.emplace_back(parsed(text).with("framework.launch", Node::scalar("eager", {})));
  }
  std::vector<std::string> before;
  for (const Timed& experiment : all) before.push_back(experiment.here());

  config::Hardware listed = all.front().hardware();
  for (std::size_t k = 0; k < config::knobs(listed).size(); ++k) {
    config::Hardware turned = all.front().hardware();
    const config::Knob knob = config::knobs(turned)[k];
    if (knob.key == "link.theory_bandwidth") continue;  // bounds the others when a profile is read
    // Data that are read again immediately. A step reads every KV pair once; points measured without a flush need it.
    if (knob.key == "gpu.l2_capacity" || knob.key == "gpu.l2_bandwidth") continue;
    // Has an effect only while both directions of the link are saturated, which these small experiments never reach;
    // tested in unit/hardware.
    if (knob.key == "link.both_h2d_share") continue;
    // Have an effect on passes of unequal sequences or with prompts and decodes, which a run of equal ones lacks;
    // tested in unit/hardware and unit/lower.
    if (knob.key == "gpu.unequal_contexts" || knob.key == "gpu.mixed_pass_rereads") continue;
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
      // Smaller values, except for numbers with another number as their lower bound.
      const bool bound = knob.key.ends_with("l2_bandwidth") || knob.key == "link.both_bandwidth" ||
                         knob.key == "gpu.gemm_overlap" || knob.key == "gpu.unequal_contexts" ||
                         knob.key.ends_with("attention_overlap");
      const double factor = bound ? 1.0625 : 0.9375;
      INFO(name << " " << knob.key << " x" << factor);
      if (knob.value != nullptr && knob.value->value == 0) {  // no factor changes it
        const double some = knob.key == "link.peer_bandwidth" ? 1e9 : 1e-6;
        CHECK(config::canonical(machine_with(name, knob.key, base_quantity(some, knob.y))) != before);
        continue;
      }
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

TEST_CASE("every way to alter a machine changes a prediction") {
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

TEST_CASE("an effect is the change of a step on a machine whose number is shifted by its uncertainty") {
  // Frameworks that launch operators one by one keep a share of an effect, unless left_out is fitted to measured steps.
  const double narrowed = config::left_out().eager_costs;
  for (const auto& [policy, own, share] :
       {std::tuple{"full", "", narrowed},
        {"{name: freekv, budget: 256, sink: 32, recent: 32, page: 32}", "", narrowed},
        {"full", ", left_out: 5 %", 1.0}}) {
    INFO(policy << own);
    // One context and two steps, from which effects are derived; the host's operators are the bottleneck.
    const Timed timed(parsed(
        "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\nworkload: {prompt_tokens: 1024, decode_tokens: 32, batch: 2}\n"
        "trace: {recipe: needle, layers: 2, steps: 6}\npolicy: " +
        std::string(policy) + "\nframework: {launch: eager, warmup_steps: 2, measured_steps: 2, sampled_contexts: 1" +
        own + "}\n"));
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
    // The pass assumes that sharing slows an op down as before, so that a tenth of the width is allowed.
    const double step_longer = std::pow(longer.tpot_mean_s / as_is.tpot_mean_s, share);
    const double step_shorter = std::pow(shorter.tpot_mean_s / as_is.tpot_mean_s, share);
    CHECK(effect->longer.step == Approx(step_longer).margin(0.1 * (step_longer - step_shorter)));
    CHECK(effect->shorter.step == Approx(step_shorter).margin(0.1 * (step_longer - step_shorter)));
    CHECK(effect->longer.prefill == Approx(std::pow(longer.ttft_s / as_is.ttft_s, share)));
    CHECK(effect->shorter.prefill == Approx(std::pow(shorter.ttft_s / as_is.ttft_s, share)));
    CHECK(effect->longer.step > 1.07);
  }
}

TEST_CASE("an out-of-memory result has no effects") {
  const Timed timed(parsed(experiments().front()));
  config::Hardware small = timed.hardware();
  small.gpu.hbm_capacity.value = 1e9;
  const simulate::Experiment none = timed.predicted_on(small);
  CHECK(none.oom);
  CHECK(none.effects.empty());
}

}  // namespace kvcast::tests

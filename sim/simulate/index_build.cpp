#include "simulate/index_build.hpp"

#include "engine/engine.hpp"
#include "lower/block.hpp"
#include "simulate/effects.hpp"
#include "simulate/timed.hpp"

namespace kvcast::simulate {
namespace {

using graph::Lane;
using graph::OpId;

constexpr double kLeastBuildEffect = 0.01;  // share of the time

// One block: the policy's work on a layer, then the synchronisation of the host that measures the time.
class OneLayer final : public graph::WorkSource {
 public:
  OneLayer(const config::Run& run, const policy::Policy& policy, const config::Model& model)
      : run_(run), policy_(policy), model_(model) {}

  bool next_block(std::vector<graph::Op>& out) override {
    out.clear();
    if (std::exchange(done_, true)) return false;
    lower::LoweredBlock block(run_.framework, 0, -1, events_, out);
    block.set_ready(block.join(Lane::kCompute, {}));
    policy_.prefill_layer({.model = &model_,
                           .batch = run_.workload.batch,
                           .prompt_tokens = run_.workload.prompt_tokens,
                           .decode_steps = run_.workload.decode_tokens},
                          block);
    OpId gpu = -1, cpu = -1;
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out[i].lane == Lane::kCompute) gpu = static_cast<OpId>(i);
      if (out[i].lane == Lane::kCpu) cpu = static_cast<OpId>(i);
    }
    block.host(Lane::kHost, graph::Kind::kSync, "index built", graph::HostCall::kStreamSync, 1, {gpu, cpu});
    return true;
  }

 private:
  const config::Run& run_;
  const policy::Policy& policy_;
  const config::Model& model_;
  lower::Events events_;
  bool done_ = false;
};

config::Model with_heads(const config::Run& run, int kv_heads) {
  KVCAST_CHECK(kv_heads >= 1 && kv_heads <= run.model.n_kv_heads);
  config::Model model = config::attending(run.model);
  model.n_q_heads = model.group() * kv_heads;
  model.n_kv_heads = kv_heads;
  model.layers = 1;
  return model;
}

}  // namespace

IndexBuild build_index(const config::Run& run, const policy::Policy& policy, int kv_heads, bool effects) {
  const config::Model model = with_heads(run, kv_heads);
  OneLayer layer(run, policy, model);
  lower::Works works;
  const lower::FlatStream stream = lower::flatten(layer, works);
  const hardware::CostModel machine(run.hardware, run.framework);
  CostTable costs(works, machine);
  TimedSource source(stream, costs);
  Recorder recorder(source, 0);
  const engine::System system = make_system(machine);
  engine::run(system, source, &recorder);
  const RecordedBlocks built{&system, &source, &recorder};
  IndexBuild build;
  build.seconds = to_seconds(recorder.block_ends().front());
  build.time = attribute_blocks(built);
  if (!effects) return build;
  for (TimeEffect& e : time_effects({&built, 1}, kLeastBuildEffect, true)) {
    result::Effect& effect = build.effects.emplace_back();
    effect.source = e.source, effect.keys = keys_of(run.hardware, run.framework, e.source);
    effect.longer.build = e.longer, effect.shorter.build = e.shorter;
    effect.longer.build_parts = std::move(e.longer_time), effect.shorter.build_parts = std::move(e.shorter_time);
  }
  return build;
}

}  // namespace kvcast::simulate

#include "workload/index_build.hpp"

#include "engine/engine.hpp"
#include "lower/block.hpp"
#include "workload/record_parts.hpp"
#include "workload/timed.hpp"

namespace kvcast::workload {
namespace {

using graph::Lane;
using graph::OpId;

// One block: the policy's work on a layer, then the wait of a host that takes the time.
class OneLayer final : public graph::WorkSource {
 public:
  OneLayer(const config::Run& run, const policy::Policy& policy, const config::Model& model)
      : run_(run), policy_(policy), model_(model) {}

  bool next_block(std::vector<graph::Op>& out) override {
    out.clear();
    if (std::exchange(done_, true)) return false;
    lower::Block block(run_.framework, 0, -1, events_, out);
    block.set_ready(block.join(Lane::kCompute, {}));
    policy_.prefill_layer({&model_, 0, run_.workload.batch, run_.workload.prompt_tokens}, block);
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
  config::Model model = run.model;
  model.n_q_heads = model.group() * kv_heads;
  model.n_kv_heads = kv_heads;
  model.layers = 1;
  return model;
}

}  // namespace

std::map<std::string, double> uncertain_of_build(const config::Run& run, const policy::Policy& policy, int kv_heads) {
  const config::Model model = with_heads(run, kv_heads);
  const hardware::CostModel costs(run.hardware, run.framework);
  OneLayer layer(run, policy, model);
  return uncertain_seconds(layer, costs);
}

IndexBuild build_index(const config::Run& run, const policy::Policy& policy, int kv_heads,
                       const hardware::Shift& shift) {
  const config::Model model = with_heads(run, kv_heads);
  const hardware::CostModel costs(run.hardware, run.framework, shift);
  OneLayer layer(run, policy, model);
  TimedSource source(layer, costs);
  Recorder recorder(source, 0);
  engine::run(make_system(costs, {}), source, &recorder);
  const Picoseconds end = recorder.block_ends().front();
  return {to_seconds(end), metrics::attribute(recorder.spans(0, end), 0, end)};
}

nlohmann::json to_json(const IndexBuild& build) {
  return {{"oom", nullptr},
          {"build", {{"seconds", build.seconds}, {"breakdown", breakdown_json(build.time)}}},
          {"origin", {{"build.seconds", origin_name(resting_on(build.time))}}}};
}

}  // namespace kvcast::workload

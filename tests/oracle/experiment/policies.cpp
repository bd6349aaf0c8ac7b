#include "oracle/experiment/policies.hpp"

#include "policies/all.hpp"
#include "support/memory_trace.hpp"

namespace kvcast::tests {
namespace {

constexpr std::int64_t kPrompt = 400, kGenerated = 64, kBudget = 64;

config::Run run_on(const std::string& machine, config::Framework::Launch launch, const TraceShape& shape) {
  config::Run run;
  run.hardware = config::read_hardware(config::find_config("hardware", machine, {}));
  run.framework.launch = launch;
  run.model.layers = shape.n_layers;
  run.model.n_q_heads = shape.kv_heads * shape.group, run.model.n_kv_heads = shape.kv_heads;
  // Heads of a realistic size, whatever the replay that their counts come from.
  run.model.head_dim = 128, run.model.hidden = 2048, run.model.ffn = 8192, run.model.vocab = 32000;
  run.workload.prompt_tokens = kPrompt, run.workload.decode_tokens = kGenerated, run.workload.batch = 16;
  return run;
}

}  // namespace

Cases::Cases(const std::string& machine, config::Framework::Launch launch) {
  const TraceShape shape{.kv_heads = 4,
                         .group = 2,
                         .head_dim = 16,
                         .prompt = kPrompt,
                         .steps = 12,
                         .window = kPrompt,
                         .layers = {1, 5},
                         .n_layers = 8};
  const MemoryTrace trace = random_trace(shape, 3);
  const auto layers = replay::prepare(trace, 1);
  const std::string profile = profiles_.of(shape);
  for (const policy::Descriptor& d : policy::all_policies()) {
    auto one = std::make_unique<Case>();
    one->name = d.name;
    one->run = run_on(machine, launch, shape);
    one->policy = make(d.name, small_settings(d, kBudget, profile), {kPrompt, kGenerated});
    one->replay = replay::replay(layers, *one->policy, {.request = policy::Lengths{kPrompt, kGenerated}});
    cases_.push_back(std::move(one));
  }
}

}  // namespace kvcast::tests

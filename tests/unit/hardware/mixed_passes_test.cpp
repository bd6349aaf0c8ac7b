// Decode attention of unequal sequences, and in passes that read prompts, on the round machine of 1 TB/s.
#include <algorithm>

#include "hardware/work.hpp"
#include "unit/hardware/support.hpp"

namespace kvcast::tests {

using hardware::Resource;

TEST_CASE("unequal contexts and prompts in the pass make attention read its pairs for longer") {
  config::Hardware machine = round_machine();
  machine.gpu.unequal_contexts.value = 1.1, machine.gpu.mixed_pass_rereads.value = 0.5;
  const hardware::CostModel model(machine, {});
  // 200 rows of 100 tokens and 4 query heads; a KV pair of 125 dimensions is 500 B.
  graph::DecodeAttention work;
  work.rows = 200, work.group = 4, work.head_dim = 125;
  work.tokens = 200 * 100, work.longest = 100;
  // 10 MB of pairs and 0.4 MB of queries and outputs at 0.8 of the bandwidth.
  CHECK(amount(model.cost(op_of(work)), Resource::kHbm) == Approx((10e6 + 0.4e6) / 0.8));
  work.unequal = true;
  CHECK(amount(model.cost(op_of(work)), Resource::kHbm) == Approx((1.1 * 10e6 + 0.4e6) / 0.8));
  // Half of the three other query heads of a group read the pairs again: 1 + 0.5 · 3 times.
  work.unequal = false, work.beside_prompts = true;
  CHECK(amount(model.cost(op_of(work)), Resource::kHbm) == Approx((2.5 * 10e6 + 0.4e6) / 0.8));
  machine.gpu.mixed_pass_rereads.value = 0;
  CHECK(amount(hardware::CostModel(machine, {}).cost(op_of(work)), Resource::kHbm) == Approx((10e6 + 0.4e6) / 0.8));
}

TEST_CASE("FlashAttention-2 splits no row beside prompts, and reads pairs again on every GPU") {
  config::Hardware machine = round_machine();
  machine.gpu.mixed_pass_rereads.value = 0;
  config::Framework flash_2;
  flash_2.attention_kernels = config::Framework::AttentionKernels::kFlash2;
  const hardware::CostModel packed(machine, {}), whole(machine, flash_2);
  graph::DecodeAttention work;
  work.rows = 8, work.group = 4, work.head_dim = 125, work.beside_prompts = true;
  const auto seconds = [&](const hardware::CostModel& model, double longest) {
    work.tokens = 8 * longest, work.longest = longest;
    return model.cost(op_of(work)).alone;
  };
  // A block takes 88 cycles for each token of its row, which is more than 8 rows need of the memory.
  for (const double longest : {1e6, 2e6}) CHECK(seconds(whole, longest) == Approx(88 * longest / machine.gpu.clock));
  CHECK(seconds(packed, 1e6) < 0.5 * seconds(whole, 1e6));
  // Many rows read 500 B a token and KV head four times at 0.8 of 1 TB/s, which hides what one block takes.
  work.rows = 3200, work.tokens = 3200 * 1e4, work.longest = 1e4;
  CHECK(amount(whole.cost(op_of(work)), Resource::kHbm) > 3.9 * amount(packed.cost(op_of(work)), Resource::kHbm));
  const hardware::Terms hidden = whole.terms(work, graph::Lane::kCompute);
  CHECK(std::ranges::none_of(hidden.parts(),
                             [](const auto& term) { return std::string(term.what) == "rows that are not split"; }));
  // vLLM V0 has kernels of their own for prompts and decodes.
  flash_2.scheduler.kind = config::SchedulerRules::Kind::kVllmV0;
  const hardware::CostModel apart(machine, flash_2);
  CHECK(apart.cost(op_of(work)).alone == packed.cost(op_of(work)).alone);
  work.beside_prompts = false;
  CHECK(whole.cost(op_of(work)).alone == packed.cost(op_of(work)).alone);
}

}  // namespace kvcast::tests

// Decode attention of unequal sequences, and in passes that read prompts, on the round machine of 1 TB/s.
#include "hardware/work.hpp"
#include "unit/hardware/support.hpp"

using namespace kvcast;
using namespace kvcast::test;
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

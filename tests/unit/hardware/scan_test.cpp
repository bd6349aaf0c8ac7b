// Recurrences over prompts on the round machine (round_machine.hpp).
#include "unit/hardware/support.hpp"

namespace kvcast::tests {

using hardware::Cost;

TEST_CASE("a recurrence takes its chunks one after another, in rounds over the SMs") {
  config::Framework framework;
  framework.scan_chunk.value = 3e-6;
  graph::Kernel work{graph::KernelClass::kScan, 8e6, 8e6};
  work.blocks = 150, work.passes = 4;
  // 150 heads on 100 SMs: 2 rounds of 4 chunks. Its bytes alone do not matter.
  CHECK(hardware::CostModel(round_machine(), framework).cost(op_of(work)).alone == us(2 + 2 * 4 * 3));
  work.blocks = 100;
  CHECK(hardware::CostModel(round_machine(), framework).cost(op_of(work)).alone == us(2 + 4 * 3));
  // Through memory at half of its rate: 16 MB at 0.4 TB/s.
  framework.scan_share.value = 0.5;
  CHECK(hardware::CostModel(round_machine(), framework).cost(op_of(work)).alone == us(2 + 40));
}

}  // namespace kvcast::tests

// The memory's rate under kernels that read and write, on the round machine: 1 TB/s, of which streams reach 0.8.
#include "unit/hardware/support.hpp"

using namespace kvcast;
using namespace kvcast::test;

TEST_CASE("a kernel that reads and writes loses a part of the memory's rate") {
  config::Hardware machine = round_machine();
  machine.gpu.mixed_efficiency.value = 0.8;
  const hardware::CostModel model(machine, {});
  const auto seconds = [&](double read, double written) {
    const hardware::Cost cost = model.cost(op_of(graph::Kernel{graph::KernelClass::kElementwise, read, written}));
    return amount(cost, hardware::Resource::kHbm) / machine.gpu.hbm_bandwidth;
  };
  // 0.8 TB/s for reads or writes alone, 0.64 for as many of both, and 0.8 · (1 - 0.2 · 2 · 1 / 4) = 0.72 for three to
  // one.
  CHECK(seconds(8e9, 0) == Approx(0.01));
  CHECK(seconds(0, 8e9) == Approx(0.01));
  CHECK(seconds(3.2e9, 3.2e9) == Approx(0.01));
  CHECK(seconds(5.4e9, 1.8e9) == Approx(0.01));
}

TEST_CASE("a kernel of few blocks waits for the loads that a block has in flight") {
  config::Hardware machine = round_machine();
  machine.gpu.block_bandwidth.value = 10e9;
  const hardware::CostModel model(machine, {});
  const auto alone = [&](double blocks) {
    return model.cost(op_of(graph::Kernel{graph::KernelClass::kScore, 7.9e6, 0.1e6, 0, 0, blocks})).alone;
  };
  // 8 MB take 10 us at 0.8 TB/s. Eight blocks move 80 GB/s and need 100 us, 90 of them waiting; 80 blocks keep up.
  CHECK(alone(8) - alone(0) == us(90));
  CHECK(alone(80) == us(alone(0) * 1e6));
  CHECK(alone(800) == us(alone(0) * 1e6));
  // The memory is free for others meanwhile.
  const hardware::Cost cost = model.cost(op_of(graph::Kernel{graph::KernelClass::kScore, 7.9e6, 0.1e6, 0, 0, 8}));
  CHECK(amount(cost, hardware::Resource::kHbm) / machine.gpu.hbm_bandwidth == us(10));
}

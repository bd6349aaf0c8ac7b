// The memory's rate under kernels that read and write, on the round machine: 1 TB/s, of which streams reach 0.8.
#include "unit/hardware/support.hpp"

namespace kvcast::tests {

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

}  // namespace kvcast::tests

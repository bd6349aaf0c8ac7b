// Kernels whose blocks are stated, on the round machine: 100 SMs, streams of 0.8 TB/s; a block of 512 threads moves 10
// GB/s. If the exponent of the overlap is 100, only the longer of two times counts.
#include "unit/hardware/support.hpp"

namespace kvcast::tests {

using graph::Kernel;
using graph::KernelClass;

namespace {

hardware::CostModel model_of(double overlap) {
  config::Hardware machine = round_machine();
  machine.gpu.block_bandwidth.value = 10e9;
  machine.gpu.attention.overlap.value = overlap;
  return {machine, {}};
}

Kernel reduction(double bytes, double blocks, double threads = 0, double per_sm = 0) {
  Kernel kernel{KernelClass::kReduce, bytes};
  kernel.blocks = blocks, kernel.threads = threads, kernel.per_sm = per_sm;
  return kernel;
}

// Time in addition to that of a kernel that is bound by memory alone.
double beyond(const hardware::CostModel& model, const Kernel& kernel) {
  return model.cost(op_of(kernel)).alone - model.cost(op_of(reduction(kernel.read_bytes, 0))).alone;
}

}  // namespace

TEST_CASE("a kernel of few blocks waits for the loads that a block has in flight") {
  const hardware::CostModel model = model_of(100);
  // 8 MB take 10 us at 0.8 TB/s. Eight blocks move 80 GB/s and need 100 us, 90 of them waiting; 160 blocks keep up.
  CHECK(beyond(model, reduction(8e6, 8)) == us(90));
  CHECK(beyond(model, reduction(8e6, 160)) < 1e-9);
  // Blocks of 256 threads move half as much.
  CHECK(beyond(model, reduction(8e6, 8, 256)) == us(190));
  // The memory is free for other ops meanwhile.
  const hardware::Cost cost = model.cost(op_of(reduction(8e6, 8)));
  CHECK(amount(cost, hardware::Resource::kHbm) / round_machine().gpu.hbm_bandwidth == us(10));
}

TEST_CASE("blocks wait for their turn on an SM") {
  const hardware::CostModel model = model_of(100);
  // A block of 128 threads moves 2.5 GB/s. Of a thousand, 100 SMs hold one each at a time: 250 GB/s, 32 us for 8 MB.
  CHECK(beyond(model, reduction(8e6, 1000, 128, 1)) == us(22));
  // Their 2048 threads leave room for 16 blocks on an SM, and all thousand move 2.5 TB/s.
  CHECK(beyond(model, reduction(8e6, 1000, 128)) < 1e-9);
}

TEST_CASE("blocks and memory overlap in part") {
  // 24 MB take 30 us; sixty blocks need 40 us for them. Together (30^2 + 40^2)^(1/2) = 50.
  CHECK(beyond(model_of(2), reduction(24e6, 60)) == us(20));
  CHECK(beyond(model_of(1), reduction(24e6, 60)) == us(40));
}

TEST_CASE("a block that rereads cached data takes longer, but the memory does not") {
  const hardware::CostModel model = model_of(100);
  Kernel kernel = reduction(8e6, 8);
  kernel.passes = 3;
  CHECK(beyond(model, kernel) == us(290));
  CHECK(amount(model.cost(op_of(kernel)), hardware::Resource::kHbm) / round_machine().gpu.hbm_bandwidth == us(10));
}

TEST_CASE("scores whose blocks are stated have the floor of any kernel") {
  const hardware::CostModel model = model_of(100);
  // Floors of 3 us, which includes the time of the blocks, and of 1 us.
  Kernel scores = reduction(8e6, 0);
  scores.cls = KernelClass::kScore;
  const double without = model.cost(op_of(scores)).alone;
  scores.blocks = 160;
  CHECK(without - model.cost(op_of(scores)).alone == us(2));
}

}  // namespace kvcast::tests

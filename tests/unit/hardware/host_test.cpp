// The round host: 8 cores, 0.65 of their rate when all are busy, 100 GB/s of memory.
#include "unit/hardware/support.hpp"

namespace kvcast::tests {

using graph::HostCall;
using graph::Lane;
using hardware::Cost;
using hardware::Resource;

TEST_CASE("host calls occupy their thread") {
  const auto seconds = [](HostCall call, double count) {
    const Cost cost = round_model().cost(op_of(graph::HostWork{call, count}, Lane::kHost));
    CHECK(cost.latency == 0);
    CHECK(cost.alone == Approx(amount(cost, Resource::kHostThread)));
    return cost.alone;
  };
  CHECK(seconds(HostCall::kLaunch, 3) == us(15));
  CHECK(seconds(HostCall::kGraphLaunch, 100) == us(8 + 100 * 0.01));  // one graph of 100 kernels
  CHECK(seconds(HostCall::kEagerOp, 2) == us(20));
  CHECK(seconds(HostCall::kEagerLayer, 2) == us(200));
  CHECK(seconds(HostCall::kStreamSync, 2) == us(12));
  CHECK(seconds(HostCall::kItemSync, 2) == us(24));
  CHECK(seconds(HostCall::kPythonPage, 2) == us(140));
  CHECK(seconds(HostCall::kPythonHead, 2) == us(300));
  CHECK(seconds(HostCall::kTask, 2) == us(6));
}

TEST_CASE("an engine's time is taken from the framework, with its source") {
  config::Framework framework;
  framework.engine_step = {2e-3, Origin::kLiterature, 0.5, "a trace"};
  framework.engine_sequence = {3e-6, Origin::kAssumed, 0.5, "a guess"};
  framework.policy_step = {4e-4, Origin::kAssumed, 0.5, "a count"};
  framework.attention_plan = {5e-3, Origin::kMeasured, 0.3, "a step"};
  const hardware::CostModel model(round_machine(), framework);
  const auto of = [&](HostCall call, double count) {
    return model.cost(op_of(graph::HostWork{call, count}, Lane::kHost));
  };
  CHECK(of(HostCall::kEngineStep, 1).alone == us(2000));
  CHECK(of(HostCall::kEngineStep, 1).origin == Origin::kLiterature);
  CHECK(of(HostCall::kEngineSequence, 64).alone == us(192));
  CHECK(of(HostCall::kPolicyStep, 1).alone == us(400));
  CHECK(of(HostCall::kPlanAttention, 1).alone == us(5000));
  CHECK(model.shifted({"a trace", 1}).cost(op_of(graph::HostWork{HostCall::kEngineStep, 1}, Lane::kHost)).alone ==
        us(3000));
}

TEST_CASE("each host thread has a fifo of its own") {
  const graph::HostWork launch{HostCall::kLaunch, 1};
  const auto of = [&](Lane lane) { return round_model().cost(op_of(launch, lane)); };
  CHECK(amount(of(Lane::kHost), Resource::kHostThread) == us(5));
  CHECK(amount(of(Lane::kRecallThread), Resource::kRecallThread) == us(5));
  CHECK(amount(of(Lane::kBackupThread), Resource::kBackupThread) == us(5));
}

namespace {

// Items of 7 MB in pieces of 500 B: half-way from 2 to 12 GB/s, so 7 GB/s and 1 ms on one core alone.
Cost cpu(double items, double flops = 0, double bytes = 7e6) {
  return round_model().cost(op_of(graph::CpuWork{items, bytes, flops, 500}, Lane::kCpu));
}

}  // namespace

TEST_CASE("a library's matrix products have their own rate per core, scaled by the all-core clock") {
  graph::CpuWork work;
  work.items = 1, work.product_flops_per_item = 50e6;
  // 50 MFLOP at 50 GFLOP/s of one core; dot products would take 5 ms at 10 GFLOP/s.
  CHECK(round_model().cost(op_of(work, Lane::kCpu)).alone == us(20 + 1000));
  work.items = 16;  // two rounds at 0.65
  CHECK(round_model().cost(op_of(work, Lane::kCpu)).alone == us(20 + 2000 / 0.65));
}

TEST_CASE("CPU work runs in rounds over the cores, which slow each other down") {
  CHECK(cpu(1).alone == us(20 + 1000));
  // Four busy of eight: 1 − 0.35 · 3/7 = 0.85 of the rate. All: 0.65.
  CHECK(cpu(4).alone == us(20 + 1000 / 0.85));
  CHECK(cpu(8).alone == us(20 + 1000 / 0.65));
  // The ninth item needs a second round of its own, at the clock of a single busy core.
  CHECK(cpu(9).alone == us(20 + 1000 / 0.65 + 1000));
  CHECK(cpu(12).alone == us(20 + 1000 / 0.65 + 1000 / 0.85));  // four items are left
  CHECK(cpu(16).alone == us(20 + 2000 / 0.65));
  CHECK(cpu(17).alone == us(20 + 2000 / 0.65 + 1000));
  CHECK(cpu(0).alone == us(20));
  // All cores belong to the work while it runs: alone it takes 8 cores · 1 ms.
  CHECK(amount(cpu(1), Resource::kCores) == Approx(8e-3));
  CHECK(amount(cpu(9), Resource::kDram) == Approx(63e6));
}

TEST_CASE("an operator of a framework wakes only as many threads as it has work for") {
  const auto seconds = [](double threads, double items) {
    graph::CpuWork work{items, 7e6, 0, 500};
    work.threads = threads;
    return round_model().cost(op_of(work, Lane::kCpu)).alone;
  };
  // 10 us of an operator; of the 20 us to wake 8 workers, an eighth for each worker that it wakes.
  CHECK(seconds(2, 0) == us(10 + 5));
  CHECK(seconds(1, 0) == us(10));  // the calling thread alone
  CHECK(seconds(100, 0) == us(10 + 20));
  // Three items on two of eight cores: a round at 1 - 0.35 / 7, and one of a core alone.
  CHECK(seconds(2, 3) == us(10 + 5 + 1000 / 0.95 + 1000));
}

TEST_CASE("a core gathers, multiplies, selects and counts in sequence") {
  CHECK(cpu(1, 5e6).alone == us(20 + 1000 + 500));  // 5 MFLOP at 10 GFLOP/s: 0.5 ms
  CHECK(cpu(1, 20e6).alone == us(20 + 1000 + 2000));
  // 1000 scores of 2 ns, 3000 entries of 1 ns in 50 buckets of 0.1 us.
  const graph::CpuWork look_up{1, 0, 0, 256, 1000, 3000, 50};
  CHECK(round_model().cost(op_of(look_up, Lane::kCpu)).alone == us(20 + 2 + 3 + 5));
}

TEST_CASE("neighbouring pieces share lines of the page tables") {
  const auto nanoseconds = [](double items, double places, double region) {
    const graph::CpuWork work{.items = items, .places_per_item = places, .region_bytes = region};
    return round_model().cost(op_of(work, Lane::kCpu)).alone * 1e9 - 20e3;
  };
  constexpr double kLine = 32768, kRegion = 8 * kLine;  // 50 ns a line
  // An eighth of what a page of entries covers: an eighth of the two lines that such a page takes.
  constexpr double kTable = 0.25;
  CHECK(nanoseconds(1, 1, kRegion) == Approx((1 + kTable) * 50));
  // The second meets the first's line once in eight times.
  CHECK(nanoseconds(1, 2, kRegion) == Approx((1.875 + kTable) * 50));
  CHECK(nanoseconds(1, 1e6, kRegion) == Approx((8 + kTable) * 50));
  CHECK(nanoseconds(1, 3, 1e15) == Approx((3 + 3 * 2) * 50));  // each takes a line of its own and a page of lines
  // 4 MiB: 128 lines, two pages of them, of which three positions touch 2 · (1 − 1/8).
  CHECK(nanoseconds(1, 3, 128 * kLine) == Approx((1 + 127 / 128.0 + 127 * 127 / 16384.0 + 2 * 1.75) * 50));
  // An item's share of a region can be less than a line.
  CHECK(nanoseconds(1, 5, kLine / 4) == Approx((0.25 + kTable / 32) * 50));
  CHECK(nanoseconds(9, 1, kRegion) ==
        Approx((1 + kTable) * 50 * (1 / 0.65 + 1)));  // two rounds, one core alone in the last
  CHECK(nanoseconds(1, 0, kRegion) == Approx(0).margin(1e-9));
  CHECK(nanoseconds(1, 5, 0) == Approx(0).margin(1e-9));
}

TEST_CASE("ranking time grows with the entropy of which scores are kept") {
  const auto seconds = [](double kept) {
    return round_model()
        .cost(op_of(graph::CpuWork{.items = 1, .ranked_per_item = 1e6, .kept_per_item = kept}, Lane::kCpu))
        .alone;
  };
  CHECK(seconds(0) == us(20 + 2000));
  CHECK(seconds(1e6) == us(20 + 2000));
  // Half of them: ln 2 = 0.693147 for each of a million scores, 3 ns; a quarter: 0.25 · ln 4 + 0.75 · ln (4/3) =
  // 0.562335.
  CHECK(seconds(5e5) == us(20 + 2000 + 3000 * 0.693147).epsilon(1e-6));
  CHECK(seconds(2.5e5) == us(20 + 2000 + 3000 * 0.562335).epsilon(1e-6));
}

TEST_CASE("memory can be slower than the cores together") {
  config::Hardware machine = round_machine();
  machine.host.dram_bandwidth.value = 14e9;
  const Cost cost = hardware::CostModel(machine, {}).cost(op_of(graph::CpuWork{8, 7e6, 0, 500}, Lane::kCpu));
  CHECK(cost.alone == us(20 + 4000));  // 56 MB at 14 GB/s
  CHECK(cost.bound == Resource::kDram);
}

}  // namespace kvcast::tests

// Copies on the round machine: 10 GB/s to the device, 8 back, 16 both ways; 4 us a call, 1 us in which the engine
// starts a copy, copy latency 1 us.
#include <algorithm>

#include "base/random.hpp"
#include "unit/hardware/support.hpp"

namespace kvcast::tests {

using graph::Copy;
using graph::CopyKind;
using graph::Direction;
using graph::Lane;
using hardware::Cost;
using hardware::Resource;

namespace {

Copy copy_of(CopyKind kind, double runs, double run_bytes) {
  Copy copy;
  copy.kind = kind, copy.runs = runs, copy.run_bytes = run_bytes;
  return copy;
}

Cost cost_of(const Copy& copy) { return round_model().cost(op_of(copy, Lane::kCopyA)); }

}  // namespace

TEST_CASE("small copies are bound by their calls and occupy the thread") {
  // 16 KiB: 4 us to issue, 1 + 16384 B / 10 GB/s = 2.6384 us in the engine. 100 of them: 400 us of calls; the engine's
  // 264 us run concurrently except for the last copy.
  const Cost cost = cost_of(copy_of(CopyKind::kMemcpyAsync, 100, 16384));
  CHECK(amount(cost, Resource::kHostThread) == us(400));
  CHECK(amount(cost, Resource::kH2d) == us(263.84));
  CHECK(latency_s(cost) == us(1 + 2.6384));
  CHECK(cost.alone == us(400 + 1 + 2.6384));
  CHECK(cost.bound == Resource::kHostThread);
  CHECK_FALSE(cost.issue);
  for (const Resource r : {Resource::kLinkIn, Resource::kLink, Resource::kDram, Resource::kHbm}) {
    CHECK(amount(cost, r) == Approx(1638400));
  }
  CHECK(amount(cost, Resource::kLinkOut) == 0);
}

TEST_CASE("large copies are bound by the link and do not occupy the thread") {
  // 1 MiB: 1 + 104.8576 us in the engine. The first call of 4 us comes before, the other 99 run concurrently.
  const Cost cost = cost_of(copy_of(CopyKind::kMemcpyAsync, 100, 1 << 20));
  REQUIRE(cost.issue);
  CHECK(cost.issue->thread == Resource::kHostThread);
  CHECK(cost.issue->first == us(4));
  CHECK(cost.issue->rest == us(396));
  CHECK(amount(cost, Resource::kHostThread) == 0);
  CHECK(amount(cost, Resource::kH2d) == us(10585.76));
  CHECK(cost.alone == us(4 + 1 + 10585.76));
  CHECK(cost.bound == Resource::kH2d);
}

TEST_CASE("each tiny copy takes the time that the engine needs to start it") {
  // 100 B are 0.01 us on the wire; the engine takes 1 us before.
  CHECK(amount(cost_of(copy_of(CopyKind::kMemcpyAsync, 10, 100)), Resource::kH2d) == us(10.1));
}

TEST_CASE("issue and engine are a pipeline: the closed form equals the loop") {
  const Stream stream(7);
  for (std::uint64_t i = 0; i < 500; ++i) {
    config::Hardware machine = round_machine();
    const double issue = 1e-6 * (0.1 + 9 * stream.uniform(4 * i)), start = 1e-6 * (0.1 + 9 * stream.uniform(4 * i + 1));
    machine.link.issue_call = curve({1, 1e9}, {issue, issue});
    machine.link.engine_piece = curve({1, 1e9}, {start, start});
    const double runs = 1 + static_cast<double>(stream.below(4 * i + 2, 50));
    const double bytes = 100 + 1e5 * stream.uniform(4 * i + 3);
    const Cost cost = hardware::CostModel(machine, {}).cost(op_of(copy_of(CopyKind::kMemcpyAsync, runs, bytes)));
    // A call takes `issue` on the thread; the engine starts a run when its call has returned and the run before is
    // through.
    const double engine = start + bytes / 10e9;
    double called = 0, served = 0;
    for (int run = 0; run < runs; ++run) {
      called += issue;
      served = std::max(called, served) + engine;
    }
    INFO("issue " << issue << " engine " << engine << " runs " << runs);
    CHECK(cost.alone == Approx(served + 1e-6).epsilon(1e-6));  // and the copy latency
  }
}

TEST_CASE("the other direction has its own engine and rate") {
  Copy back = copy_of(CopyKind::kMemcpyAsync, 100, 16384);
  back.direction = Direction::kDeviceToHost;
  const Cost cost = cost_of(back);
  CHECK(amount(cost, Resource::kD2h) == us(304.8));  // 1 + 2.048 us each
  CHECK(amount(cost, Resource::kH2d) == 0);
  CHECK(amount(cost, Resource::kLinkOut) == Approx(1638400));
  CHECK(amount(cost, Resource::kLink) == Approx(1638400));
}

TEST_CASE("the engine may need a different time to start copies to the host") {
  config::Hardware machine = round_machine();
  machine.link.engine_d2h_ratio.value = 0.5;
  Copy back = copy_of(CopyKind::kMemcpyAsync, 100, 16384);
  back.direction = Direction::kDeviceToHost;
  const hardware::CostModel model(machine, {});
  CHECK(amount(model.cost(op_of(back, Lane::kCopyA)), Resource::kD2h) == us(254.8));  // 0.5 + 2.048 us each
  back.direction = Direction::kHostToDevice;
  CHECK(amount(model.cost(op_of(back, Lane::kCopyA)), Resource::kH2d) == us(263.84));  // 1 + 1.6384 us each
}

TEST_CASE("the engine takes longer for copies that alternate between two streams") {
  Copy one = copy_of(CopyKind::kMemcpyAsync, 100, 16384);
  one.in_turn = true;
  CHECK(amount(cost_of(one), Resource::kH2d) == us(333.84));  // 1 + 0.7 + 1.6384 us each
  // Nothing is started again between the pieces of one call.
  one = copy_of(CopyKind::kBatched, 100, 16384), one.in_turn = true;
  CHECK(amount(cost_of(one), Resource::kH2d) == us(163.84));
}

TEST_CASE("pieces of one batched call have no order, so that the engine's starts are hidden") {
  // 1000 B are 0.1 us on the wire, and a piece takes 0.5 us at least.
  CHECK(amount(cost_of(copy_of(CopyKind::kBatched, 100, 1000)), Resource::kH2d) == us(50));
  CHECK(amount(cost_of(copy_of(CopyKind::kBatched, 100, 16384)), Resource::kH2d) == us(163.84));
}

TEST_CASE("copies occupy the thread that issues them") {
  Copy recall = copy_of(CopyKind::kMemcpyAsync, 1, 16384);
  recall.issuer = Lane::kRecallThread;
  CHECK(amount(cost_of(recall), Resource::kRecallThread) == us(4));
  recall.issuer = Lane::kBackupThread;
  CHECK(amount(cost_of(recall), Resource::kBackupThread) == us(4));
}

TEST_CASE("2D copies pay for rows in the call and in the engine") {
  // 64 rows of 256 B a call: issue 4 + 64 · 0.1 = 10.4 us; engine 1 + 64 · 0.05 = 4.2 us, since the rows take more than
  // 1.6384 us of wire.
  Copy rows = copy_of(CopyKind::kMemcpy2D, 10, 16384);
  rows.rows = 64;
  const Cost cost = cost_of(rows);
  CHECK(amount(cost, Resource::kHostThread) == us(104));
  CHECK(amount(cost, Resource::kH2d) == us(42));
  CHECK(cost.alone == us(104 + 1 + 4.2));
  CHECK(amount(cost, Resource::kLink) == Approx(163840));  // run_bytes are those of all rows
}

TEST_CASE("the call of a 2D copy costs more than that of a plain one, which a single row is") {
  config::Hardware machine = round_machine();
  machine.link.issue_2d.value = 2e-6;
  Copy rows = copy_of(CopyKind::kMemcpy2D, 10, 16384);
  const auto issued = [&] {
    return amount(hardware::CostModel(machine, {}).cost(op_of(rows, Lane::kCopyA)), Resource::kHostThread);
  };
  rows.rows = 64;  // 4 + 2 + 64 · 0.1 us a call
  CHECK(issued() == us(124));
  rows.rows = 1;
  CHECK(issued() == us(41));
}

TEST_CASE("one batched call issues cheaply") {
  // 4 us for the call and 0.5 us a piece: 54 us for 100, below the engine's 163.84 us.
  const Cost cost = cost_of(copy_of(CopyKind::kBatched, 100, 16384));
  REQUIRE(cost.issue);
  CHECK(cost.issue->first + cost.issue->rest == us(54));
  CHECK(cost.alone == us(0.54 + 1 + 163.84));
}

TEST_CASE("pageable copies are staged by the thread") {
  // 4 MB: the call of 4 us copies at 4 GB/s for 1000 us; the engine needs 401 us concurrently. Host memory is read for
  // the staging buffer, which is written and read: 12 MB.
  const Cost cost = cost_of(copy_of(CopyKind::kPageable, 1, 4e6));
  CHECK(amount(cost, Resource::kHostThread) == us(1004));
  CHECK(amount(cost, Resource::kDram) == Approx(12e6));
  CHECK(amount(cost, Resource::kLink) == Approx(4e6));
  CHECK(cost.alone == us(1 + 1004));
}

TEST_CASE("zero-copy loads need neither calls nor the copy engine") {
  // Pieces of 500 B: half-way from 0.1 to 0.6, 0.35 of 10 GB/s; 50 kB take 14.2857 us. Gap of a copy stream 2 + floor 1
  // + first load 1.
  const Cost cost = cost_of(copy_of(CopyKind::kZeroCopy, 100, 500));
  CHECK(latency_s(cost) == us(4));
  CHECK(amount(cost, Resource::kZeroCopy) == us(50e3 / 3.5e9 * 1e6));
  CHECK(amount(cost, Resource::kLinkIn) == Approx(50e3));
  CHECK(amount(cost, Resource::kH2d) == 0);
  CHECK(amount(cost, Resource::kHostThread) == 0);
  CHECK_FALSE(cost.issue);
}

TEST_CASE("a copy of nothing takes nothing") {
  for (const CopyKind kind :
       {CopyKind::kMemcpyAsync, CopyKind::kMemcpy2D, CopyKind::kBatched, CopyKind::kZeroCopy, CopyKind::kPageable}) {
    for (const Copy& copy : {copy_of(kind, 0, 100), copy_of(kind, 100, 0)}) {
      const Cost cost = cost_of(copy);
      CHECK(cost.alone == 0);
      CHECK(cost.demands.empty());
    }
  }
}

TEST_CASE("host memory slower than the link is the bottleneck of copies") {
  config::Hardware machine = round_machine();
  machine.host.dram_bandwidth.value = 5e9;  // half of the link
  const Cost cost = hardware::CostModel(machine, {}).cost(op_of(copy_of(CopyKind::kMemcpyAsync, 1, 1e6), Lane::kCopyA));
  CHECK(cost.alone == us(4 + 1 + 200));
  CHECK(cost.bound == Resource::kDram);
}

TEST_CASE("copies to the host reduce the share of a saturated link for copies to the device") {
  config::Hardware machine = round_machine();
  Copy in = copy_of(CopyKind::kMemcpyAsync, 1, 1e9), out = in;
  out.direction = Direction::kDeviceToHost;
  const auto weight = [&](const Copy& copy) { return hardware::CostModel(machine, {}).cost(op_of(copy)).weight; };
  // 10 GB/s in and 8 out alone, 16 together: without a share both keep the same fraction of their own rate.
  CHECK(weight(in) == 1);
  CHECK(weight(out) == 1);
  // A share of 0.375 is 6 GB/s in, 0.6 of that alone. 10 would be left, more than 8: out grows 1.25 / 0.6 times as
  // fast.
  machine.link.both_h2d_share = {0.375, Origin::kAssumed, 0, ""};
  CHECK(weight(in) == 1);
  CHECK(weight(out) == Approx(1.25 / 0.6));
}

}  // namespace kvcast::tests

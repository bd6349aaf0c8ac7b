// torch.topk's kernels, counted by hand from its source, and how a framework launches them.
#include "lower/torch_topk.hpp"

#include <catch2/catch.hpp>

#include "graph/traffic.hpp"
#include "lower/block.hpp"

namespace kvcast::tests {

using namespace lower;
using graph::HostCall;
using graph::Kind;
using graph::Lane;
using graph::TopK;

namespace {

std::size_t calls(const std::vector<graph::Op>& ops, HostCall call) {
  std::size_t n = 0;
  for (const graph::Op& op : ops) {
    const auto* host = std::get_if<graph::HostWork>(&op.work);
    n += host != nullptr && host->call == call ? 1 : 0;
  }
  return n;
}

struct Launched {
  config::Framework framework;
  Events events;
  std::vector<graph::Op> ops;
  graph::OpId last = -1;
  Launched(config::Framework::Launch launch, bool torch, const TopK& work) {
    framework.launch = launch;
    framework.torch_topk = torch;
    LoweredBlock block(framework, 0, -1, events, ops);
    last = block.kernel(Lane::kCompute, Kind::kTopK, "top-k", work, {});
  }
};

}  // namespace

TEST_CASE("a short row takes one block: two bits per pass, then a sort") {
  const TopKKernels half = torch_topk({8, 1000, 10, 2});
  REQUIRE(half.size() == 2);
  // 16 bits: 8 passes and two to write, where eight bits at a time make 2 and one.
  CHECK(std::get<TopK>(half[0]).passes == Approx(10.0 / 3));
  CHECK(std::get<TopK>(half[0]).columns == 1000);
  CHECK(std::get<TopK>(half[1]).columns == 10);  // the picks
  CHECK(std::get<TopK>(half[1]).k == 0);
  // 32 bits: 16 passes and two to write, where eight bits at a time make 4 and one.
  CHECK(std::get<TopK>(torch_topk({8, 1000, 10, 4})[0]).passes == Approx(18.0 / 5));
  CHECK(torch_topk({8, 1000, 1, 4}).size() == 1);  // one pick needs no sort
}

TEST_CASE("a long row is split over blocks and takes a dozen kernels") {
  const TopKKernels half = torch_topk({64, 131072, 1280, 2});
  // Two digits of two kernels, two scans of two, the gather, the sort.
  REQUIRE(half.size() == 2 * 2 + 2 * 2 + 1 + 1);
  double read = 0, written = 0;
  for (const graph::Work& work : half) {
    read += graph::traffic_of(work).hbm_read;
    written += graph::traffic_of(work).hbm_write;
  }
  const double scores = 64.0 * 131072 * 2, blocks = 64 * 32;  // 4096 scores a block
  // Scores three times, counts of 512 bytes a block for each digit, 4 bytes a block in each scan; the sort's picks.
  CHECK(read == 3 * scores + 2 * blocks * 512 + 2 * blocks * 4 + 64 * 1280 * 2);
  CHECK(written >= 64 * 1280 * (2 + 8));
  CHECK(torch_topk({64, 131072, 1280, 4}).size() == 4 * 2 + 2 * 2 + 1 + 1);
}

TEST_CASE("PyTorch's table determines which rows are split") {
  CHECK(!shares_rows(20, 19999));
  CHECK(shares_rows(20, 20000));
  CHECK(!shares_rows(21, 9999));
  CHECK(shares_rows(21, 10000));
  CHECK(shares_rows(80, 8000));
  CHECK(shares_rows(81, 5000));
  CHECK(!shares_rows(200, 2999));
  CHECK(shares_rows(200, 3000));
  CHECK(shares_rows(800, 800));
  CHECK(!shares_rows(4001, 399));
  CHECK(shares_rows(4001, 400));
}

TEST_CASE("additional kernels of an operator cost a launch each, not an operator") {
  using Launch = config::Framework::Launch;
  const TopK shared{64, 131072, 1280, 2};
  const Launched eager(Launch::kEager, true, shared);
  CHECK(calls(eager.ops, HostCall::kEagerOp) == 1);
  CHECK(calls(eager.ops, HostCall::kLaunch) == 9);
  CHECK(eager.last == static_cast<graph::OpId>(eager.ops.size()) - 1);
  const Launched compiled(Launch::kCompiled, true, shared);
  CHECK(calls(compiled.ops, HostCall::kLaunch) == 10);
  const Launched graph(Launch::kCudaGraph, true, shared);
  CHECK(calls(graph.ops, HostCall::kGraphLaunch) == 1);
  CHECK(calls(Launched(Launch::kEager, false, shared).ops, HostCall::kEagerOp) == 1);
  CHECK(calls(Launched(Launch::kEager, false, shared).ops, HostCall::kLaunch) == 0);
}

}  // namespace kvcast::tests

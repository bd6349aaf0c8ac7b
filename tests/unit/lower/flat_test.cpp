// Streams of work as flat arrays: equal works are stored once, all other data as in the source.
#include "lower/flat.hpp"

#include <catch2/catch.hpp>

namespace kvcast::tests {

using graph::Kind;
using graph::Lane;

namespace {

// Two blocks of a kernel and a copy each, of which the kernels are equal.
class TwoBlocks final : public graph::WorkSource {
 public:
  bool next_block(std::vector<graph::Op>& out) override {
    out.clear();
    if (block_ == 2) return false;
    graph::Op& kernel = out.emplace_back();
    kernel.kind = Kind::kSmall, kernel.layer = 3, kernel.label = "kernel";
    kernel.work = graph::Kernel{graph::KernelClass::kElementwise, 100, 50};
    if (block_ == 1) kernel.after.push_back(1);
    graph::Op& copy = out.emplace_back();
    copy.kind = Kind::kCopyIn, copy.lane = Lane::kCopyA, copy.label = "copy";
    copy.work = graph::Copy{.runs = 2, .run_bytes = 10.0 + block_};
    copy.after.push_back(2 * block_);
    copy.memory.push_back({graph::Pool::kDram, graph::Owner::kIndex, 64});
    ++block_;
    return true;
  }

 private:
  int block_ = 0;
};

}  // namespace

TEST_CASE("equal works on one lane are merged, those of different lanes are not") {
  lower::Works works;
  const graph::Work gemm = graph::Gemm{8, 16, 32, 2};
  CHECK(works.add(gemm, Lane::kCompute) == 0);
  CHECK(works.add(graph::Gemm{8, 16, 33, 2}, Lane::kCompute) == 1);
  CHECK(works.add(gemm, Lane::kCompute) == 0);
  CHECK(works.add(gemm, Lane::kSelect) == 2);
  CHECK(works.add(graph::Marker{}, Lane::kCompute) == 3);
  // The two zeros are equal, and a thousand other works are not: the table grows.
  CHECK(works.add(graph::HostWork{graph::HostCall::kTask, 0.0}, Lane::kHost) == 4);
  CHECK(works.add(graph::HostWork{graph::HostCall::kTask, -0.0}, Lane::kHost) == 4);
  for (int i = 1; i <= 1000; ++i) {
    CHECK(works.add(graph::HostWork{graph::HostCall::kTask, static_cast<double>(i)}, Lane::kHost) ==
          static_cast<lower::WorkId>(4 + i));
  }
  CHECK(works.add(graph::HostWork{graph::HostCall::kTask, 500}, Lane::kHost) == 504);
  CHECK(works.size() == 1005);
}

TEST_CASE("a flat stream has the blocks, predecessors, memory and traffic of its source") {
  TwoBlocks source;
  lower::Works works;
  const lower::FlatStream flat = lower::flatten(source, works);
  CHECK(works.size() == 3);  // one kernel, two copies
  REQUIRE(flat.ops.size() == 4);
  CHECK(flat.ops[0].work == flat.ops[2].work);
  CHECK(flat.ops[1].work != flat.ops[3].work);
  REQUIRE(flat.blocks.size() == 2);
  CHECK(flat.begin_of(1) == 2);
  CHECK(flat.blocks[1].end == 4);
  CHECK(flat.after_of(flat.ops[0]).empty());
  CHECK(flat.after_of(flat.ops[2])[0] == 1);
  CHECK(flat.after_of(flat.ops[3])[0] == 2);
  REQUIRE(flat.memory_of(flat.ops[3]).size() == 1);
  CHECK(flat.memory_of(flat.ops[3])[0].owner == graph::Owner::kIndex);
  CHECK(flat.memory_of(flat.ops[2]).empty());
  CHECK(flat.ops[2].layer == 3);
  CHECK(flat.ops[3].lane == Lane::kCopyA);
  // A kernel of 100 + 50 bytes; two runs of 10 bytes in the first block, of 11 in the second.
  CHECK(flat.blocks[0].traffic.hbm_read == 100);
  CHECK(flat.blocks[1].traffic.hbm_write == 50);
  CHECK(flat.blocks[0].traffic.h2d == 20);
  CHECK(flat.blocks[1].traffic.h2d == 22);
}

}  // namespace kvcast::tests

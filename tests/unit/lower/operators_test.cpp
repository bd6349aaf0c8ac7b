// The operators that serving systems would fuse, counted by hand on a tiny model.
#include "lower/operators.hpp"

#include <catch2/catch.hpp>

#include "graph/traffic.hpp"
#include "lower/dense.hpp"

namespace kvcast::tests {

using namespace lower;
using graph::Kind;
using graph::Lane;

namespace {

struct Layer {
  config::Framework framework;
  config::Model model;
  Events events;
  std::vector<graph::Op> ops;
  Layer() {
    framework.launch = config::Framework::Launch::kEager;
    framework.unfused = true;
    model.layers = 2, model.hidden = 64, model.n_q_heads = 4, model.n_kv_heads = 2, model.head_dim = 16;
    model.ffn = 128, model.vocab = 1000;
  }
  std::size_t kernels() const {
    std::size_t n = 0;
    for (const graph::Op& op : ops) n += op.lane == Lane::kCompute && op.kind != Kind::kMarker ? 1 : 0;
    return n;
  }
  std::size_t launches() const {
    std::size_t n = 0;
    for (const graph::Op& op : ops) {
      const auto* host = std::get_if<graph::HostWork>(&op.work);
      n += host != nullptr && host->call == graph::HostCall::kEagerOp ? 1 : 0;
    }
    return n;
  }
  double weights() const {
    double bytes = 0;
    for (const graph::Op& op : ops) {
      if (const auto* gemm = std::get_if<graph::Gemm>(&op.work)) bytes += gemm->n * gemm->k * gemm->element_bytes;
    }
    return bytes;
  }
};

}  // namespace

TEST_CASE("an unfused layer has forty operators, including attention") {
  Layer unfused;
  LoweredBlock block(unfused.framework, 0, -1, unfused.events, unfused.ops);
  const graph::OpId ready = before_attention(block, unfused.model, 0, 3, -1);
  // Nine for the norm, three projections, five for each rotation of queries and of keys, two appends.
  CHECK(unfused.kernels() == 9 + 3 + 10 + 2);
  after_attention(block, unfused.model, 0, 3, ready);
  // Output projection, nine for the norm, gate, up, SiLU, product, down; 39 without attention.
  CHECK(unfused.kernels() == 24 + 1 + 9 + 5);
  CHECK(unfused.launches() == 39);

  Layer fused;
  fused.framework.unfused = false;
  LoweredBlock other(fused.framework, 0, -1, fused.events, fused.ops);
  after_attention(other, fused.model, 0, 3, before_attention(other, fused.model, 0, 3, -1));
  CHECK(fused.kernels() == 8);
  CHECK(unfused.weights() == fused.weights());
}

TEST_CASE("generate() runs about forty operators outside its layers") {
  Layer unfused;
  LoweredBlock block(unfused.framework, 0, -1, unfused.events, unfused.ops);
  enter_layers(block, unfused.model, 3, -1);
  // The embedding; inputs, positions, angles, and whether the mask is full, for which the host waits.
  CHECK(unfused.kernels() == 1 + 4 + 5 + 10 + 2);
  CHECK(std::get<graph::HostWork>(unfused.ops.back().work).call == graph::HostCall::kItemSync);
  head_and_sample(block, unfused.model, 3, block.last());
  // Nine for the norm, the head, its maximum; logits to single; 5, 1 and 8 to choose, append and stop.
  CHECK(unfused.kernels() == 22 + 9 + 1 + 1 + 1 + (5 + 1 + 8));
  CHECK(unfused.launches() == unfused.kernels());
  Layer fused;
  fused.framework.unfused = false;
  LoweredBlock other(fused.framework, 0, -1, fused.events, fused.ops);
  CHECK(enter_layers(other, fused.model, 3, -1) == -1);
  head_and_sample(other, fused.model, 3, -1);
  CHECK(fused.kernels() == 3);
}

TEST_CASE("an unfused norm passes over its row in single precision") {
  Layer layer;
  LoweredBlock block(layer.framework, 0, -1, layer.events, layer.ops);
  unfused_norm(block, 100, -1);
  graph::ByteCounts traffic;
  for (const graph::Op& op : layer.ops) traffic += graph::traffic_of(op.work);
  // Read: sum 2·2, to single 2, square 4, mean 4, product 4, to half 4, weight 2 bytes a value. Written: 2, 4, 4, 0, 4,
  // 2, 2.
  CHECK(traffic.hbm_read == 100 * (4 + 2 + 4 + 4 + 4 + 4 + 2));
  CHECK(traffic.hbm_write == 100 * (2 + 4 + 4 + 4 + 2 + 2));
}

TEST_CASE("a policy's merge of two outputs takes ten operators, its top-k one") {
  Layer layer;
  LoweredBlock block(layer.framework, 0, -1, layer.events, layer.ops);
  const graph::Kernel merge{graph::KernelClass::kElementwise, 400, 100};
  const graph::OpId merged = block.kernel(Lane::kCompute, Kind::kAttention, "merge", merge, {});
  CHECK(layer.kernels() == 10);
  CHECK(merged == block.last());
  graph::ByteCounts traffic;
  for (const graph::Op& op : layer.ops) traffic += graph::traffic_of(op.work);
  CHECK(traffic.hbm_read == 400 + 9 * 100);  // the others read the output of the first
  block.kernel(Lane::kCompute, Kind::kTopK, "top-k", graph::TopK{8, 100, 10, 4}, {merged});
  CHECK(layer.kernels() == 11);
  // Kernels of other streams are a system's own.
  block.kernel(Lane::kSelect, Kind::kScore, "estimate", merge, {});
  CHECK(layer.ops.back().lane == Lane::kSelect);
  CHECK(layer.kernels() == 11);
}

TEST_CASE("an engine's operators around a top-k read and write its scores once each") {
  Layer layer;
  layer.framework.unfused = false, layer.framework.selection_operators = 3;
  LoweredBlock block(layer.framework, 0, -1, layer.events, layer.ops);
  const graph::OpId chosen = block.kernel(Lane::kCompute, Kind::kTopK, "top-k", graph::TopK{8, 100, 10, 4}, {});
  CHECK(chosen == block.last());
  CHECK(layer.kernels() == 4);
  graph::ByteCounts all, chain;
  for (const graph::Op& op : layer.ops) {
    all += graph::traffic_of(op.work);
    if (std::holds_alternative<graph::Kernel>(op.work)) chain += graph::traffic_of(op.work);
  }
  CHECK(chain.hbm_read == 3 * 8 * 100 * 4);
  CHECK(chain.hbm_write == 3 * 8 * 100 * 4);
  CHECK(all.hbm_read > chain.hbm_read);  // the top-k itself
  block.kernel(Lane::kSelect, Kind::kTopK, "top-k", graph::TopK{8, 100, 10, 4}, {});
  CHECK(layer.kernels() == 4);  // on another stream a system's own kernel chooses
}

TEST_CASE("operators on the CPU wake a thread for each 32768 numbers") {
  Layer layer;
  LoweredBlock block(layer.framework, 0, -1, layer.events, layer.ops);
  // 8 heads of 2000 keys of 128 numbers: 2 048 000, 62.5 times 32768. Four query heads: 64000 scores, twice.
  const graph::CpuWork work{8, 2000 * 256.0, 2 * 4 * 2000 * 128.0, 256};
  const graph::OpId first = block.cpu("rerank", work, {});
  // Gather, product, softmax, maximum: four, of which the first carries the work.
  REQUIRE(layer.ops.size() == 4);
  CHECK(first == block.last());
  CHECK(std::get<graph::CpuWork>(layer.ops[0].work).items == 8);
  for (std::size_t i = 1; i < 4; ++i) {
    CHECK(std::get<graph::CpuWork>(layer.ops[i].work).items == 0);
    CHECK(layer.ops[i].after.front() == static_cast<graph::OpId>(i - 1));
  }
  const auto threads = [&layer](std::size_t i) { return std::get<graph::CpuWork>(layer.ops[i].work).threads; };
  CHECK(threads(0) == 63);
  CHECK(threads(1) == 63);
  CHECK(threads(2) == 2);
  CHECK(threads(3) == 2);
  block.cpu("CPU attention", work, {first});  // a system of its own in C++
  REQUIRE(layer.ops.size() == 5);
  CHECK(threads(4) == 0);
  // 16000 scores of 8 heads ranked: fewer than one thread's share. Then the positions of the best.
  block.cpu("top-k on the CPU", {8, 32000, 8000, 32000, 2000}, {first});
  REQUIRE(layer.ops.size() == 7);
  CHECK(threads(5) == 1);
  CHECK(threads(6) == 1);
  // Keys and values of 500 tokens: 512000 numbers each, 15.6 shares; 16000 scores. Three operators process the former
  // and two the latter, after the first.
  block.cpu("attention to recalled tokens", {8, 500 * 512.0, 4 * 4 * 500 * 128.0, 256}, {first});
  REQUIRE(layer.ops.size() == 13);
  for (std::size_t i = 7; i < 11; ++i) CHECK(threads(i) == 16);
  CHECK(threads(11) == 1);
  CHECK(threads(12) == 1);
}

TEST_CASE("lists of positions are shifted and shortened after their selection") {
  Layer layer;
  LoweredBlock block(layer.framework, 0, -1, layer.events, layer.ops);
  block.kernel(Lane::kCompute, Kind::kIndex, "centroid lists", graph::TopK{8, 100, 10, 2}, {});
  CHECK(layer.kernels() == 3);
  CHECK(std::get<graph::Kernel>(layer.ops.back().work).read_bytes == 8 * 10 * 8);
}

TEST_CASE("softmax and maximum over a group take four operators in PyTorch") {
  Layer layer;
  LoweredBlock block(layer.framework, 0, -1, layer.events, layer.ops);
  // 4000 bytes of scores, 1000 of maxima over four heads.
  const graph::Kernel fused{graph::KernelClass::kReduce, 4000, 1000};
  const graph::OpId last = block.kernel(Lane::kCompute, Kind::kIndex, kGroupSoftmax.data(), fused, {});
  CHECK(last == block.last());
  CHECK(layer.kernels() == 4);
  CHECK(layer.launches() == 4);
  graph::ByteCounts traffic;
  for (const graph::Op& op : layer.ops) traffic += graph::traffic_of(op.work);
  CHECK(traffic.hbm_read == 3 * 4000 + 1000);  // quotient, softmax, maximum; copy
  CHECK(traffic.hbm_write == 2 * 4000 + 2 * 1000);
}

TEST_CASE("softmax reads rows three times if one exceeds shared memory and all exceed the L2") {
  const auto read = [](double rows, double columns) {
    Layer layer;
    LoweredBlock block(layer.framework, 0, -1, layer.events, layer.ops);
    graph::Kernel fused{graph::KernelClass::kReduce, rows * columns * 2, rows * columns / 2};
    fused.blocks = rows;
    block.kernel(Lane::kCompute, Kind::kIndex, kGroupSoftmax.data(), fused, {});
    graph::ByteCounts traffic;
    for (const graph::Op& op : layer.ops) traffic += graph::traffic_of(op.work);
    return traffic.hbm_read / (rows * columns * 2);
  };
  const double once = 3 + 0.25;              // quotient, softmax, maximum; copy of the maxima
  CHECK(read(1000, 24000) == Approx(once));  // rows of 48 kB
  CHECK(read(80, 32768) == Approx(once));    // 5.2 MB in all
  CHECK(read(80, 65536) == Approx(once + 2));
}

}  // namespace kvcast::tests

// Products in eight and four bits, groups of products, and exchanges between GPUs, on the round machine.
#include "config/find.hpp"
#include "hardware/work.hpp"
#include "unit/hardware/support.hpp"

namespace kvcast::tests {

using graph::Exchange;
using graph::Products;
using hardware::Cost;
using hardware::Resource;

TEST_CASE("products of FP8 numbers take half the time of 16-bit ones") {
  // Weights 25 MB: 0.625 of 1 TB/s; with 0.2 MB of activations 25.2 MB. Products as in 16 bits 26.67 us, at twice the
  // rate.
  const Cost cost = round_model().cost(op_of(graph::Gemm{10, 5000, 5000, 2, 1, 1, Products::kFp8}));
  CHECK(amount(cost, Resource::kHbm) == Approx(25.2e6 / 0.625));
  CHECK(amount(cost, Resource::kTensor) == Approx(0.8e9 / 0.3 / 2));
  CHECK(amount(cost, Resource::kVector) == 0);
  CHECK(cost.alone == us(3 + 25.2 / 0.625));
}

TEST_CASE("weights in a format without tensor-core support are unpacked for every row of tiles") {
  // 12.5 MB at 0.5625; two operations for each of 25 M weights over 5 TFLOP/s: 10 us.
  const Cost few = round_model().cost(op_of(graph::Gemm{10, 5000, 5000, 2, 0.5, 1, Products::kFp4}));
  CHECK(amount(few, Resource::kHbm) == Approx(12.7e6 / 0.5625));
  CHECK(amount(few, Resource::kVector) == Approx(50e6 / 0.5));
  CHECK(few.alone == us(3 + 800 / 30.0));
  // 1000 rows compute as 1008: eleven rows of tiles of 100.
  const Cost many = round_model().cost(op_of(graph::Gemm{1000, 5000, 5000, 2, 0.5, 1, Products::kFp4}));
  CHECK(amount(many, Resource::kVector) == Approx(11 * 50e6 / 0.5));
}

TEST_CASE("weights of four bits with activations of eight multiply at the rate of eight") {
  config::Hardware machine = round_machine();
  const auto products = [&](Products of) {
    const hardware::CostModel model(machine, framework(config::Framework::Launch::kCudaGraph));
    return amount(model.cost(op_of(graph::Gemm{10, 5000, 5000, 2, 0.5, 1, of})), Resource::kTensor);
  };
  CHECK(products(Products::kMxfp4) == Approx(products(Products::kHalf)));  // unpacked
  machine.gpu.fp4_rate.value = 6, machine.gpu.fp8_rate.value = 2;
  CHECK(products(Products::kMxfp4) == Approx(products(Products::kFp8)));
  CHECK(products(Products::kFp4) == Approx(products(Products::kFp8) / 3));
}

TEST_CASE("products of a group read their own weights and fill the SMs together") {
  // 4 · 50 MB at the full bandwidth, 4 · 0.2 MB of activations. Four times 50 tiles over 100 SMs are 2 a SM: 0.55.
  const Cost cost = round_model().cost(op_of(graph::Gemm{10, 5000, 5000, 2, 0, 4}));
  CHECK(amount(cost, Resource::kHbm) == Approx(200.8e6));
  CHECK(amount(cost, Resource::kTensor) == Approx(4 * 0.8e9 / 0.55));
}

TEST_CASE("attention over latent vectors computes products of their length") {
  graph::DecodeAttention work;
  work.rows = 200, work.group = 16, work.head_dim = 50, work.tokens = 20000, work.longest = 100;
  CHECK(amount(round_model().cost(op_of(work)), Resource::kTensor) == Approx(2.0 * 20000 * 16 * 100 / 0.5));
  work.product_dims = 180;
  CHECK(amount(round_model().cost(op_of(work)), Resource::kTensor) == Approx(2.0 * 20000 * 16 * 180 / 0.5));
}

TEST_CASE("an all-reduce takes one round if it is small, two if it is large") {
  const auto cost = [](Exchange exchange, double bytes) {
    return round_model().cost(op_of(graph::Collective{exchange, bytes, 4}));
  };
  // Gap 1, floor 1, a round of 4 us. 10 KB from each of three others at 50 GB/s: 0.6 us.
  CHECK(cost(Exchange::kAllReduce, 10e3).alone == us(6 + 0.6));
  // 1 MB: three others' 3 MB would take 60 us; a quarter of each in, three quarters back: 1.5 MB in 30 us.
  CHECK(cost(Exchange::kAllReduce, 1e6).alone == us(2 + 8 + 30));
  CHECK(amount(cost(Exchange::kAllReduce, 1e6), Resource::kPeer) == Approx(1.5e6));
  CHECK(amount(cost(Exchange::kAllReduce, 1e6), Resource::kHbm) == Approx(2.5e6));
  CHECK(cost(Exchange::kAllGather, 10e3).alone == us(6 + 0.6));
  CHECK(cost(Exchange::kNext, 10e3).alone == us(6 + 0.2));
  CHECK(round_model().cost(op_of(graph::Collective{Exchange::kAllReduce, 1e6, 1})).alone == us(1));
}

TEST_CASE("GPUs without a link of their own exchange data in a ring over the host link") {
  config::Hardware machine = round_machine();
  const auto op = [](Exchange exchange, double ranks) { return op_of(graph::Collective{exchange, 1e6, ranks}); };
  CHECK(amount(hardware::CostModel(machine, {}).cost(op(Exchange::kAllReduce, 4)), Resource::kLinkIn) == 0);
  machine.link.peer_bandwidth = known(0);
  machine.link.peer_share = known(0.5);
  // Half of the wire's 10 GB/s. Gap and floor take 2 us, and fences of long messages 9. An all-reduce of four takes
  // 2 · 3 rounds of 4 us, in which a GPU receives 6 quarters of 1 MB, in 300 us; both directions carry them, so that
  // copies get the rest.
  const hardware::CostModel model(machine, {});
  const Cost reduce = model.cost(op(Exchange::kAllReduce, 4));
  CHECK(reduce.alone == us(2 + 9 + 24 + 300));
  CHECK(amount(reduce, Resource::kPeer) == Approx(1.5e6));
  CHECK(amount(reduce, Resource::kLinkIn) == Approx(1.5e6));
  CHECK(amount(reduce, Resource::kLink) == Approx(3e6));
  // Two rounds of half of it; three rounds of all others' parts; one round to the next GPU.
  CHECK(model.cost(op(Exchange::kAllReduce, 2)).alone == us(2 + 9 + 8 + 200));
  CHECK(model.cost(op(Exchange::kAllGather, 4)).alone == us(2 + 9 + 12 + 600));
  CHECK(model.cost(op(Exchange::kNext, 4)).alone == us(2 + 9 + 4 + 200));
  // 20 KB for two: 4 us, less than the fences. With a flag next to every four bytes 8 us.
  const Cost small = model.cost(op_of(graph::Collective{Exchange::kAllReduce, 20e3, 2}));
  CHECK(small.alone == us(2 + 8 + 8));
  CHECK(amount(small, Resource::kLinkIn) == Approx(40e3));
  CHECK(amount(small, Resource::kHbm) == Approx(40e3));
  // A quarter of the lanes: a quarter of the rate.
  machine.link.h2d_bandwidth = known(2.5e9);
  CHECK(hardware::CostModel(machine, {}).cost(op(Exchange::kNext, 4)).alone == us(2 + 9 + 4 + 800));
}

TEST_CASE("exchanges over PCIe take the times that were measured") {
  // NCCL 2.29 and 2.27 on two cards (ai-dynamo/aiconfigurator, comm), bytes and us. On the RTX PRO 6000 0.70 of the
  // link was reached; the profile has the mean of other machines as well.
  const auto off = [](const config::Hardware& machine, double bytes, double measured) {
    const Cost cost = hardware::CostModel(machine, {}).cost(op_of(graph::Collective{Exchange::kAllReduce, bytes, 2}));
    return std::abs(cost.alone / (1e-6 * measured) - 1);
  };
  const auto read = [](const char* machine) {
    return config::read_hardware(config::find_config("hardware", machine, {}));
  };
  config::Hardware pro = read("rtx-pro-6000");
  pro.link.peer_share.value = 0.70;
  for (const auto& [bytes, measured] : std::vector<std::pair<double, double>>{{16384, 7.36},
                                                                              {131072, 12.2},
                                                                              {262144, 18.5},
                                                                              {524288, 31.3},
                                                                              {1048576, 44.4},
                                                                              {2097152, 72.0},
                                                                              {8388608, 244}}) {
    CHECK(off(pro, bytes, measured) < 0.45);
    if (bytes > 1e6) CHECK(off(pro, bytes, measured) < 0.15);
  }
  for (const auto& [bytes, measured] : std::vector<std::pair<double, double>>{
           {131072, 18.8}, {262144, 30.7}, {524288, 50.0}, {1048576, 74.8}, {2097152, 120.7}, {8388608, 429}}) {
    CHECK(off(read("l40s"), bytes, measured) < 0.3);
  }
  // Both cards without direct access: vLLM 0.19 in a CUDA graph.
  pro.link.peer_share.value = 0.29, pro.link.peer_latency.value = 8e-6;
  for (const auto& [bytes, measured] : std::vector<std::pair<double, double>>{
           {65536, 22.3}, {262144, 39.3}, {524288, 55.5}, {1048576, 91.5}, {2097152, 157.5}, {8388608, 567}}) {
    CHECK(off(pro, bytes, measured) < 0.25);
  }
}

TEST_CASE("GPUs of one host have equal shares of its memory and cores") {
  const hardware::CostModel four(round_machine(), {}, {}, 4);
  CHECK(four.rate(Resource::kDram) == 25e9);
  CHECK(four.rate(Resource::kCores) == 2);
  CHECK(four.capacity(graph::Pool::kDram) == Approx(100e9 * 0.9 / 4));
  CHECK(four.capacity(graph::Pool::kHbm) == 39e9);
  // 10 MB in one copy: 1 ms of wire at 10 GB/s, and 0.4 ms of a quarter of the host's memory bandwidth.
  const graph::Copy copy{graph::Direction::kHostToDevice, graph::CopyKind::kMemcpyAsync, 1, 10e6};
  CHECK(amount(four.cost(copy, graph::Lane::kCopyA), Resource::kDram) == Approx(10e6));
}

}  // namespace kvcast::tests

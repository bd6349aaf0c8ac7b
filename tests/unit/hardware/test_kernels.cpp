// Kernels on the round machine (round_machine.hpp): 1 TB/s, 100 TFLOP/s, 100 SMs, gap 1 us in a CUDA graph.
#include "hardware/work.hpp"
#include "unit/hardware/support.hpp"

using namespace kvcast;
using namespace kvcast::test;
using hardware::Cost;
using hardware::Resource;

TEST_CASE("a GEMM of few rows is bound by its weights") {
  // Weights 5000 · 5000 · 2 = 50 MB, half-way on the curve from 0.5 at 0 to 1.0 at 100 MB: 0.75 of 1 TB/s.
  // Bytes 50 MB + 10 · 5000 · 2 in and as many out = 50.2 MB: 66.93 us.
  // Tiles: 10 rows fill one of 100; 1 · 50 over 100 SMs = 0.5, half-way from 0.1 to 0.5: 0.3 of 100 TFLOP/s.
  // 10 rows compute as 16: 2 · 16 · 25e6 = 0.8 GFLOP: 26.67 us.
  const Cost cost = round_model().cost(op_of(graph::Gemm{10, 5000, 5000, 2}));
  CHECK(latency_s(cost) == us(3));                               // gap 1 + floor 2
  CHECK(amount(cost, Resource::kHbm) == Approx(50.2e6 / 0.75));  // alone it takes 66.93 us of 1 TB/s
  CHECK(amount(cost, Resource::kTensor) == Approx(0.8e9 / 0.3));
  CHECK(cost.alone == us(3 + 50.2 / 0.75));
  CHECK(cost.bound == Resource::kHbm);
}

TEST_CASE("a GEMM of many rows is bound by its products") {
  // 1000 · 5000 outputs are 500 tiles, 5 a SM: 0.5 + 0.45 · 4/9 = 0.7. 1000 rows compute as 1008:
  // 2 · 1008 · 25e6 = 50.4 GFLOP over 70 TFLOP/s = 720 us. Bytes 70 MB / 0.75 TB/s = 93.3 us.
  const Cost cost = round_model().cost(op_of(graph::Gemm{1000, 5000, 5000, 2}));
  CHECK(cost.alone == us(3 + 720));
  CHECK(amount(cost, Resource::kHbm) == Approx(70e6 / 0.75));
  CHECK(cost.bound == Resource::kTensor);
}

TEST_CASE("eight-bit weights move half the bytes") {
  // 25 MB of weights: 0.625 of the bandwidth; bytes 25.1 MB: 40.16 us.
  CHECK(round_model().cost(op_of(graph::Gemm{10, 5000, 5000, 1})).alone == us(3 + 25.1 / 0.625));
}

namespace {

// 200 rows of 4 query heads, head dimension 125: a KV pair is 2 · 125 · 2 = 500 B.
graph::DecodeAttention attention_of(double context) {
  graph::DecodeAttention work;
  work.rows = 200, work.group = 4, work.head_dim = 125;
  work.tokens = 200 * context, work.longest = context;
  return work;
}

}  // namespace

TEST_CASE("decode attention rounds rows up to the tile") {
  // 100 tokens fill one tile of 100: 20000 tokens · 500 B / 0.8 TB/s = 12.5 us, queries and outputs
  // 2 · 200 · 4 · 125 · 2 B = 0.4 MB / 0.8 TB/s = 0.5 us. Latency: gap 1 + floor 10.
  const Cost whole = round_model().cost(op_of(attention_of(100)));
  CHECK(whole.alone == us(11 + 12.5 + 0.5));
  // Products as of 16 query rows: 4 · 20000 · 16 · 125 = 160 MFLOP at half of the peak.
  CHECK(amount(whole, Resource::kTensor) == Approx(160e6 / 0.5));
  // One token costs as much as 100.
  CHECK(round_model().cost(op_of(attention_of(1))).alone == Approx(whole.alone));
  // One more than a tile costs a second tile, and the merging of 5 us: 11 + 5 + 25 + 0.5.
  CHECK(round_model().cost(op_of(attention_of(101))).alone == us(41.5));
}

TEST_CASE("rows of different lengths are rounded by half a tile on average") {
  graph::DecodeAttention work = attention_of(100);
  work.longest = 5000;  // same tokens in all, one long row
  CHECK(hardware::rounded_tokens(work, 100) == Approx(20000 + 200 * 49.5));
  work.tokens = 2000;  // 10 a row: 2000 + 9900 is less than a tile a row
  CHECK(hardware::rounded_tokens(work, 100) == Approx(20000));
  work.longest = 50;  // within a tile of the mean: as equal rows
  CHECK(hardware::rounded_tokens(work, 100) == Approx(20000));
  CHECK(hardware::rounded_tokens(graph::DecodeAttention{}, 100) == 0);
}

TEST_CASE("fewer tiles than SMs take as long as one tile a SM, but leave bandwidth to others") {
  graph::DecodeAttention work = attention_of(100);
  work.rows = 10, work.tokens = 1000;
  // 10 tiles, 1000 · 500 B / 0.8 TB/s = 0.625 us with all SMs; on 10 of 100 SMs ten times as long: 6.25 us, of which
  // 5.625 us are waiting. Queries and outputs 20 kB: 0.025 us.
  const Cost cost = round_model().cost(op_of(work));
  CHECK(latency_s(cost) == us(11 + 5.625));
  CHECK(amount(cost, Resource::kHbm) == Approx(0.65e6));
  CHECK(cost.alone == us(11 + 6.25 + 0.025));
  CHECK_FALSE(cost.bound);  // latency sets the pace
}

TEST_CASE("gathered, repeated and scored attention move more") {
  const double plain = round_model().cost(op_of(attention_of(1000))).alone;  // 16 us + 125 us + 0.5 us
  CHECK(plain == us(141.5));
  graph::DecodeAttention gathered = attention_of(1000);
  gathered.unit_bytes = 500;  // half-way from 0.25 to 0.75: half the rate
  CHECK(round_model().cost(op_of(gathered)).alone == us(16 + 250 + 0.5));
  graph::DecodeAttention expanded = attention_of(1000);
  expanded.kv_reads = 9;
  CHECK(round_model().cost(op_of(expanded)).alone == us(16 + 9 * 125 + 0.5));
  graph::DecodeAttention scored = attention_of(1000);
  scored.score_bytes = 8e6;  // written at 0.8 TB/s: 10 us
  CHECK(round_model().cost(op_of(scored)).alone == us(16 + 125 + 0.5 + 10));
}

TEST_CASE("attention over nothing is a launch") {
  CHECK(round_model().cost(op_of(graph::DecodeAttention{})).alone == us(11));
}

TEST_CASE("prefill attention is bound by its products") {
  // 50 GFLOP at half of 100 TFLOP/s: 1 ms; 8 MB at 0.8 TB/s: 10 us.
  const Cost cost = round_model().cost(op_of(graph::PrefillAttention{50e9, 4e6, 4e6}));
  CHECK(cost.alone == us(11 + 1000));
  CHECK(amount(cost, Resource::kHbm) == Approx(10e6));
}

TEST_CASE("streaming kernels by class") {
  using graph::Kernel;
  using graph::KernelClass;
  const auto alone = [](const Kernel& work) { return round_model().cost(op_of(work)).alone; };
  // 16 MB at 0.8 TB/s = 20 us; 50 MFLOP at half of 10 TFLOP/s = 10 us beside it; gap 1 + floor 1.
  CHECK(alone({KernelClass::kElementwise, 8e6, 8e6, 50e6, 0}) == us(2 + 20));
  CHECK(alone({KernelClass::kElementwise, 8e6, 8e6, 500e6, 0}) == us(2 + 100));
  CHECK(alone({KernelClass::kReduce, 8e6, 8e6, 0, 0}) == us(2 + 20));
  CHECK(alone({KernelClass::kScore, 8e6, 8e6, 0, 0}) == us(1 + 3 + 20));
  CHECK(alone({KernelClass::kConvert, 8e6, 8e6, 0, 0}) == us(2 + 40));  // half the stream rate
  // Reads of 500-byte pieces at half the rate, 20 us; dense writes 10 us.
  CHECK(alone({KernelClass::kGather, 8e6, 8e6, 0, 500}) == us(2 + 30));
}

TEST_CASE("top-k by columns, picks and rows") {
  // 6000 columns: half-way from 2 us at 1000 to 12 us at 11000. 100 picks of 1 ns. Gap 1 + floor 4.
  // Read 50 · 6000 · 4 B, written 50 · 100 · 4 B: 1.22 MB / 0.8 TB/s = 1.525 us.
  CHECK(round_model().cost(op_of(graph::TopK{50, 6000, 100, 4})).alone == us(5 + 7 + 0.1 + 1.525));
  // 250 rows on 100 SMs: 2.5 times as long; bytes five times as many.
  CHECK(round_model().cost(op_of(graph::TopK{250, 6000, 100, 4})).alone == us(5 + 17.5 + 0.25 + 7.625));
}

TEST_CASE("the clock shortens what is bound by latency and nothing else") {
  config::Hardware fast = round_machine();
  fast.gpu.clock.value = 2e9;
  const hardware::CostModel model(fast, framework(config::Framework::Launch::kCudaGraph));
  // The floor of 2 us halves, the 66.93 us of weights stay.
  CHECK(model.cost(op_of(graph::Gemm{10, 5000, 5000, 2})).alone == us(1 + 1 + 50.2 / 0.75));
  CHECK(model.cost(op_of(graph::TopK{50, 6000, 100, 4})).alone == us(1 + 2 + 3.5 + 0.05 + 1.525));
}

TEST_CASE("kernels follow each other closely only in the model's CUDA graphs") {
  const graph::Kernel nothing;
  const auto latency = [&](config::Framework::Launch launch, graph::Lane lane) {
    return latency_s(round_model(launch).cost(op_of(nothing, lane)));
  };
  using Launch = config::Framework::Launch;
  CHECK(latency(Launch::kCudaGraph, graph::Lane::kCompute) == us(1 + 1));
  CHECK(latency(Launch::kCudaGraph, graph::Lane::kSelect) == us(1 + 1));
  CHECK(latency(Launch::kCudaGraph, graph::Lane::kCopyA) == us(2 + 1));
  CHECK(latency(Launch::kCompiled, graph::Lane::kCompute) == us(2 + 1));
  CHECK(latency(Launch::kEager, graph::Lane::kCompute) == us(2 + 1));
}

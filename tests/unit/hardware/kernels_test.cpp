// Kernels on the round machine (round_machine.hpp): 1 TB/s, 100 TFLOP/s, 100 SMs, gap 1 us in a CUDA graph.
#include <cmath>

#include "hardware/work.hpp"
#include "unit/hardware/support.hpp"

namespace kvcast::tests {

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
  // 1000 rows compute as 1008: 1008 · 5000 outputs are 504 tiles, 5.04 a SM: 0.5 + 0.45 · 4.04/9 = 0.702.
  // 2 · 1008 · 25e6 = 50.4 GFLOP over 70.2 TFLOP/s = 717.9 us. Bytes 70 MB / 0.75 TB/s = 93.3 us.
  const Cost cost = round_model().cost(op_of(graph::Gemm{1000, 5000, 5000, 2}));
  CHECK(cost.alone == us(3 + 50400 / 70.2));
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

TEST_CASE("decode attention runs parts of rows in rounds over the SMs, and the tiles of a part in sequence") {
  // 200 rows of 100 tokens, one part each: 2 rounds over 100 SMs of 2 us, and one tile of 0.5 us: 4.5 us.
  // 20000 tokens · 500 B / 0.8 TB/s = 12.5 us, queries and outputs 2 · 200 · 4 · 125 · 2 B = 0.4 MB / 0.8 TB/s = 0.5
  // us. Latency: gap 1 + floor 10. With overlap 1 all of it adds up.
  const Cost whole = round_model().cost(op_of(attention_of(100)));
  CHECK(whole.alone == us(11 + 4.5 + 12.5 + 0.5));
  CHECK(latency_s(whole) == us(11 + 4.5));
  // Products are computed as for 16 query rows: 4 · 20000 · 16 · 125 = 160 MFLOP at half of the peak.
  CHECK(amount(whole, Resource::kTensor) == Approx(160e6 / 0.5));
  // One token: half of the 99 that fill its tile are read as well, 50.5 tokens a row: 6.3125 us.
  CHECK(round_model().cost(op_of(attention_of(1))).alone == us(11 + 4.5 + 6.3125 + 0.5));
  // One more than a part: 400 parts, 4 rounds, merged for 5 us; 101 + 99 / 2 tokens a row: 18.8125 us.
  CHECK(round_model().cost(op_of(attention_of(101))).alone == us(11 + 5 + 8.5 + 18.8125 + 0.5));
}

TEST_CASE("rows are split until there are enough parts, and no further") {
  const config::Gpu gpu = round_gpu();
  // 10 parts of 100 tokens in a row would make 2000; 4 per SM are required: 400, two per row of 5 tiles each.
  const hardware::AttentionParts parts = hardware::attention_parts(attention_of(1000), gpu);
  CHECK(parts.count == 400);
  CHECK(parts.split);
  CHECK(parts.rounds == 4);
  CHECK(parts.tiles == 5);
  graph::DecodeAttention many = attention_of(1000);
  many.rows = 500, many.tokens = 500 * 1000;
  CHECK_FALSE(hardware::attention_parts(many, gpu).split);
  CHECK(hardware::attention_parts(many, gpu).rounds == 5);
  CHECK(hardware::attention_parts(many, gpu).tiles == 10);
}

TEST_CASE("query heads with separate KV heads use the profile's kernel for them") {
  config::Hardware machine = round_machine();
  config::AttentionKernel& mha = machine.gpu.attention_mha.emplace(machine.gpu.attention);
  mha.floor = known(20e-6);
  const hardware::CostModel model(machine, {});
  // Shared heads as before: gap 1, floor 10.
  CHECK(model.cost(op_of(attention_of(100))).alone == us(11 + 4.5 + 12.5 + 0.5));
  // Heads of their own: floor 20, 2 rounds of 1 us, a tile of 0.5 us, the same bytes, queries and outputs 0.1 MB.
  graph::DecodeAttention work = attention_of(100);
  work.group = 1;
  CHECK(model.cost(op_of(work)).alone == us(21 + 2.5 + 12.5 + 0.125));
  CHECK(round_model().cost(op_of(work)).alone == us(11 + 2.5 + 12.5 + 0.125));
}

TEST_CASE(
    "packed pairs are unpacked on the vector units during the read, which times measured without unpacking exclude") {
  graph::DecodeAttention work = attention_of(100);
  const double before = round_model().cost(op_of(work)).alone;
  work.unpack_flops = 5e6;  // 1 us of 10 TFLOP/s at a half: hidden by 13 us of reading
  CHECK(round_model().cost(op_of(work)).alone == Approx(before));
  CHECK(amount(round_model().cost(op_of(work)), Resource::kVector) == Approx(1e-6 * 10e12));
  work.unpack_flops = 500e6;  // 100 us: instead of 12.5 + 0.5 of reading
  CHECK(round_model().cost(op_of(work)).alone == us(11 + 4.5 + 100));
  CHECK(round_model().cost(op_of(work)).bound == Resource::kVector);
}

TEST_CASE("cached numbers are converted concurrently with the reads, at a rate per clock and SM") {
  graph::DecodeAttention work = attention_of(100);
  work.converted = 5e6;  // 5 numbers a clock of 1 GHz on 100 SMs: 10 us, hidden by 13 us of reading
  CHECK(round_model().cost(op_of(work)).alone == us(11 + 4.5 + 12.5 + 0.5));
  work.converted = 50e6;  // 100 us
  CHECK(round_model().cost(op_of(work)).alone == us(11 + 4.5 + 100));
  work.fp8 = true;  // the GPU multiplies FP8 numbers
  CHECK(round_model().cost(op_of(work)).alone == us(11 + 4.5 + 12.5 + 0.5));
  config::Hardware older = round_machine();
  older.gpu.fp8_rate.value = 1;
  CHECK(hardware::CostModel(older, {}).cost(op_of(work)).alone == us(11 + 4.5 + 100));
}

TEST_CASE("one long row of attention delays all the others") {
  graph::DecodeAttention work = attention_of(100);
  work.longest = 5000;  // same tokens in all: 50 tiles of 0.5 us after 2 rounds of 2 us
  CHECK(round_model().cost(op_of(work)).alone == us(11 + 4 + 25 + 12.5 + 0.5));
}

TEST_CASE("attention over few rows waits but leaves bandwidth to other ops") {
  graph::DecodeAttention work = attention_of(100);
  work.rows = 10, work.tokens = 1000;
  // One round of 2 us and a tile of 0.5 us are waiting time; 1000 · 500 B / 0.8 TB/s = 0.625 us, queries and outputs 20
  // kB.
  const Cost cost = round_model().cost(op_of(work));
  CHECK(latency_s(cost) == us(11 + 2.5));
  CHECK(amount(cost, Resource::kHbm) == Approx(0.65e6));
  CHECK(cost.alone == us(11 + 2.5 + 0.625 + 0.025));
  CHECK_FALSE(cost.bound);  // latency is the bottleneck
}

TEST_CASE("the shorter of two works adds less the better they overlap") {
  config::Hardware machine = round_machine();
  machine.gpu.attention.overlap.value = 2;
  const hardware::CostModel model(machine, {});
  // Waiting and transfer of 4.5 and 12.5 us take √(4.5² + 12.5²) us.
  CHECK(model.cost(op_of(attention_of(100))).alone == us(11 + std::sqrt(4.5 * 4.5 + 12.5 * 12.5) + 0.5));
  machine.gpu.gemm_overlap.value = 1;
  // Weights 66.93 us and products 26.67 us of the first case add up.
  CHECK(hardware::CostModel(machine, {}).cost(op_of(graph::Gemm{10, 5000, 5000, 2})).alone ==
        us(3 + 50.2 / 0.75 + 800 / 30.0));
}

TEST_CASE("more rows of a GEMM lose memory efficiency") {
  config::Hardware machine = round_machine();
  machine.gpu.gemm_row_loss.value = 0.2;
  const hardware::CostModel model(machine, {});
  // 8 rows: log2(8) / 6 = half of the loss, 0.1; 50 MB of weights and 8 rows in and out of 10 kB each: 50.16 MB.
  CHECK(model.cost(op_of(graph::Gemm{8, 5000, 5000, 2})).alone == us(3 + 50.16 / (0.75 * 0.9)));
  CHECK(model.cost(op_of(graph::Gemm{1, 5000, 5000, 2})).alone == us(3 + 50.02 / 0.75));
}

TEST_CASE("products of few rows take as long as those of the instruction's rows") {
  config::Hardware machine = round_machine();
  machine.gpu.gemm_rows.value = 64;
  const hardware::CostModel model(machine, {});
  const graph::Gemm work{10, 5000, 5000, 2};
  // 50 tiles on 100 SMs: 0.3 of 100 TFLOP/s. 64 rows: 3.2 GFLOP, 106.67 us, longer than the weights' 66.93 us.
  CHECK(model.cost(op_of(work)).alone == us(3 + 3200 / 30.0));
  CHECK(model.cost(op_of(graph::Gemm{64, 5000, 5000, 2})).alone == us(3 + 3200 / 30.0));
  CHECK(model.cost(op_of(graph::Gemm{65, 5000, 5000, 2})).alone == us(3 + 6400 / 35.6));  // 128 rows, 64 tiles
  // Weights of half a byte are unpacked, 50 MFLOP at 5 TFLOP/s, and multiplied 16 rows at a time: 800 MFLOP at half the
  // rate (0.25 / 0.5), 53.33 us.
  graph::Gemm packed = work;
  packed.weight_bytes = 0.5;
  CHECK(model.cost(op_of(packed)).alone == us(3 + 800 / 15.0));
  // So are 8 experts of 10 rows, with as many tiles as SMs have 4 of: 0.65 of the rate; their weights take 405.6 us.
  graph::Gemm experts = work;
  experts.groups = 8;
  CHECK(amount(model.cost(op_of(experts)), Resource::kTensor) == Approx(8 * 800 / (100 * 0.65 * 0.5) * 1e-6 * 100e12));
}

TEST_CASE("data read just before is found in the L2 as far as it fits") {
  graph::DecodeAttention work = attention_of(100);
  work.warm = true;  // 10 MB in an L2 of 20 MB: 4 TB/s instead of 0.8, 2.5 us and 0.5 us of queries and outputs
  CHECK(amount(round_model().cost(op_of(work)), Resource::kHbm) == Approx(3e6));
  // Shorter than the products of 160 MFLOP at 50 TFLOP/s, 3.2 us.
  CHECK(round_model().cost(op_of(work)).alone == us(11 + 4.5 + 3.2));
  config::Hardware machine = round_machine();
  machine.gpu.l2_capacity.value = 10e6;  // exactly full: half of the data is found
  CHECK(hardware::CostModel(machine, {}).cost(op_of(work)).alone == us(11 + 4.5 + 7.5 + 0.5));
  machine.gpu.l2_capacity.value = 8e6;  // 1.25 times full: none is found
  CHECK(hardware::CostModel(machine, {}).cost(op_of(work)).alone == us(11 + 4.5 + 12.5 + 0.5));
}

TEST_CASE("kernels for one query head at a time read the KV head of a group from the L2 again for each of them") {
  graph::DecodeAttention work = attention_of(100);
  work.separate_heads = true;
  // 10 MB for each of 4 heads at 20 B per cycle of 100 SMs, 2 TB/s: 20 us instead of the 12.5 us from memory.
  CHECK(round_model().cost(op_of(work)).alone == us(11 + 4.5 + 20 + 0.5));
  config::Hardware slow = round_machine();
  slow.gpu.hbm_bandwidth.value = 0.5e12;  // 25 us from memory, and 1 us of queries and outputs
  CHECK(hardware::CostModel(slow, {}).cost(op_of(work)).alone == us(11 + 4.5 + 25 + 1));
}

TEST_CASE("shapes outside a fit's range are marked and have a larger uncertainty") {
  config::Hardware machine = round_machine();
  machine.gpu.range.attention_tokens = {50, 100};
  const hardware::CostModel model(machine, {});
  CHECK_FALSE(model.cost(op_of(attention_of(100))).extrapolated);
  const Cost beyond = model.cost(op_of(attention_of(400)));
  CHECK(beyond.extrapolated);
  CHECK(beyond.origin == Origin::kExtrapolated);
  CHECK(beyond.uncertainty > round_model().cost(op_of(attention_of(400))).uncertainty);
  CHECK(beyond.alone == Approx(round_model().cost(op_of(attention_of(400))).alone));
}

TEST_CASE("the copy rate is less certain for reductions, and scores have the uncertainty of their own efficiency") {
  // 80 GB at 0.8 TB/s take 0.1 s, compared with microseconds of waits: the rate's tenth, and 0.15 added in quadrature
  // for kernels that are not streams.
  const auto uncertainty = [](graph::KernelClass cls) {
    return round_model().cost(op_of(graph::Kernel{cls, 80e9, 0})).uncertainty;
  };
  CHECK(uncertainty(graph::KernelClass::kElementwise) == Approx(0.1).epsilon(1e-3));
  CHECK(uncertainty(graph::KernelClass::kReduce) == Approx(std::hypot(0.1, 0.15)).epsilon(1e-3));
  CHECK(uncertainty(graph::KernelClass::kScore) == Approx(std::hypot(0.1, 0.15)).epsilon(1e-3));
}

TEST_CASE("gathered, repeated and scored attention moves more data") {
  // 400 parts in 4 rounds of 2 us, 5 tiles of 0.5 us: 10.5 us; gap, floor and merging 16 us; 125 us and 0.5 us of
  // bytes.
  const double plain = round_model().cost(op_of(attention_of(1000))).alone;
  CHECK(plain == us(16 + 10.5 + 125 + 0.5));
  graph::DecodeAttention gathered = attention_of(1000);
  gathered.unit_bytes = 500;  // half-way from 0.25 to 0.75, which long pieces have: two thirds of the rate
  CHECK(round_model().cost(op_of(gathered)).alone == us(26.5 + 187.5 + 0.5));
  graph::DecodeAttention expanded = attention_of(1000);
  expanded.kv_reads = 9;
  CHECK(round_model().cost(op_of(expanded)).alone == us(26.5 + 9 * 125 + 0.5));
  graph::DecodeAttention scored = attention_of(1000);
  scored.score_bytes = 8e6;  // written at 0.8 TB/s: 10 us
  CHECK(round_model().cost(op_of(scored)).alone == us(26.5 + 125 + 0.5 + 10));
}

TEST_CASE("attention over no tokens costs a launch") {
  CHECK(round_model().cost(op_of(graph::DecodeAttention{})).alone == us(11));
}

TEST_CASE("prefill attention is bound by its products") {
  // 50 GFLOP at half of 100 TFLOP/s: 1 ms; 8 MB at 0.8 TB/s: 10 us. Outputs of 70 blocks of 128 x 128 numbers: rows are
  // split, and all 100 SMs are busy.
  constexpr double kBlock = 128 * 128 * 2;
  const double outputs = 70 * kBlock;
  const Cost cost = round_model().cost(op_of(graph::PrefillAttention{50e9, 8e6 - outputs, outputs}));
  CHECK(cost.alone == us(11 + 1000));
  // 80 blocks leave 20 SMs idle, 125 take two rounds where 1.25 would do, 200 fill both.
  const auto alone = [&](double blocks) {
    return round_model().cost(op_of(graph::PrefillAttention{50e9, 0, blocks * kBlock})).alone;
  };
  CHECK(alone(80) == us(11 + 1000 / 0.8));
  CHECK(alone(125) == us(11 + 1000 * 2 / 1.25));
  CHECK(alone(200) == us(11 + 1000));
  CHECK(amount(cost, Resource::kHbm) == Approx(10e6));
}

TEST_CASE("streaming kernels take the time of their class") {
  using graph::Kernel;
  using graph::KernelClass;
  const auto alone = [](const Kernel& work) { return round_model().cost(op_of(work)).alone; };
  // 16 MB at 0.8 TB/s = 20 us; 50 MFLOP at half of 10 TFLOP/s = 10 us concurrently; gap 1 + floor 1.
  CHECK(alone({KernelClass::kElementwise, 8e6, 8e6, 50e6, 0}) == us(2 + 20));
  CHECK(alone({KernelClass::kElementwise, 8e6, 8e6, 500e6, 0}) == us(2 + 100));
  CHECK(alone({KernelClass::kReduce, 8e6, 8e6, 0, 0}) == us(2 + 20));
  CHECK(alone({KernelClass::kScore, 8e6, 8e6, 0, 0}) == us(1 + 3 + 20));
  CHECK(alone({KernelClass::kConvert, 8e6, 8e6, 0, 0}) == us(2 + 40));  // half the stream rate
  // Reads of 500-byte pieces at half the rate, 20 us; dense writes 10 us.
  CHECK(alone({KernelClass::kGather, 8e6, 8e6, 0, 500}) == us(2 + 30));
}

TEST_CASE("scores stream at their own efficiency") {
  config::Hardware machine = round_machine();
  machine.gpu.score_efficiency.value = 0.5;
  const hardware::CostModel model(machine, {});
  // 16 MB at half of 0.8 TB/s: 40 us; gap 1, floor 3. Other kernels keep the stream's rate.
  CHECK(model.cost(op_of(graph::Kernel{graph::KernelClass::kScore, 8e6, 8e6, 0, 0})).alone == us(1 + 3 + 40));
  CHECK(model.cost(op_of(graph::Kernel{graph::KernelClass::kReduce, 8e6, 8e6, 0, 0})).alone == us(2 + 20));
}

TEST_CASE("a transfer loses the memory's ramp-up time, or less if it is shorter") {
  config::Hardware machine = round_machine();
  machine.gpu.memory_ramp.value = 5e-6;
  const hardware::CostModel model(machine, {});
  const auto alone = [&](double bytes) {
    return model.cost(op_of(graph::Kernel{graph::KernelClass::kElementwise, bytes, 0, 0, 0})).alone;
  };
  // 16 MB take 20 us at 0.8 TB/s: 5 · 20 / 25 = 4 us are lost; 4 MB take 5 us, of which half is lost again.
  CHECK(alone(16e6) == us(2 + 20 + 4));
  CHECK(alone(4e6) == us(2 + 5 + 2.5));
  CHECK(alone(0) == us(2));
}

TEST_CASE("a decomposition waits for its steps, and for its arithmetic if few SMs are busy") {
  using graph::Kernel;
  using graph::KernelClass;
  // Rows of 600 bytes have 150 columns, half-way from 10 to 30 GFLOP/s: 2 MFLOP take 100 us, after 16 MB in 20 us.
  const Kernel work{KernelClass::kFactorise, 8e6, 8e6, 2e6, 600};
  CHECK(round_model().cost(op_of(work)).alone == us(2 + 20 + 100));
  config::Hardware fast = round_machine();
  fast.gpu.clock.value = 2e9;  // halves the steps and the floor
  CHECK(hardware::CostModel(fast, {}).cost(op_of(work)).alone == us(1 + 0.5 + 20 + 50));
  // 50 MFLOP at half of 10 TFLOP/s: 10 us on 100 SMs, 200 us on 5, of which the units of the others are free for 190.
  const Kernel few{KernelClass::kReduce, 0, 0, 50e6, 0, 5};
  CHECK(round_model().cost(op_of(few)).alone == us(2 + 200));
  CHECK(amount(round_model().cost(op_of(few)), Resource::kVector) == Approx(1e8));
  CHECK(round_model().cost(op_of(Kernel{KernelClass::kReduce, 0, 0, 50e6, 0, 200})).alone == us(2 + 10));
}

TEST_CASE("the time of top-k follows from columns, picks and rows") {
  // 6000 columns: half-way from 2 us at 1000 to 12 us at 11000. 100 picks of 1 ns. Gap 1 + floor 4.
  // Read 50 · 6000 · 4 B, written 50 · 100 · 4 B: 1.22 MB / 0.8 TB/s = 1.525 us.
  CHECK(round_model().cost(op_of(graph::TopK{50, 6000, 100, 4})).alone == us(5 + 7 + 0.1 + 1.525));
  // Three passes over the row instead of one: 14 us more.
  CHECK(round_model().cost(op_of(graph::TopK{50, 6000, 100, 4, 3})).alone == us(5 + 21 + 0.1 + 1.525));
  // 250 rows on 100 SMs: 2.5 times as long; bytes five times as many.
  CHECK(round_model().cost(op_of(graph::TopK{250, 6000, 100, 4})).alone == us(5 + 17.5 + 0.25 + 7.625));
}

TEST_CASE("a higher clock shortens only latency-bound parts") {
  config::Hardware fast = round_machine();
  fast.gpu.clock.value = 2e9;
  const hardware::CostModel model(fast, framework(config::Framework::Launch::kCudaGraph));
  // The floor of 2 us halves, the 66.93 us of weights stay.
  CHECK(model.cost(op_of(graph::Gemm{10, 5000, 5000, 2})).alone == us(1 + 1 + 50.2 / 0.75));
  CHECK(model.cost(op_of(graph::TopK{50, 6000, 100, 4})).alone == us(1 + 2 + 3.5 + 0.05 + 1.525));
}

TEST_CASE("only kernels of the model's CUDA graphs have the short gap") {
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

TEST_CASE("the uncertainty of an assumed peak adds to that of the efficiency") {
  // 0.8 of 1 TB/s, each known to 10 %. Stated against a known peak the share alone counts; an assumed one adds in
  // quadrature.
  config::Gpu gpu = round_gpu();
  const hardware::Number share = hardware::number(gpu.stream_efficiency);
  CHECK(hardware::reached(gpu.hbm_bandwidth, share).uncertainty == Approx(0.1));
  gpu.hbm_bandwidth.origin = Origin::kAssumed;
  const hardware::Number rate = hardware::reached(gpu.hbm_bandwidth, share);
  CHECK(rate.value == Approx(0.8e12));
  CHECK(rate.uncertainty == Approx(std::sqrt(0.02)));
  CHECK(rate.origin == Origin::kAssumed);
}

TEST_CASE("a cache is concatenated no faster than the SMs move elements") {
  config::Framework framework;
  framework.concatenate_bytes = {2, Origin::kLiterature, 0.1, "a table"};
  const hardware::CostModel slow(round_machine(), framework);
  const graph::Kernel copied{graph::KernelClass::kConcatenate, 100e6, 100e6};
  const auto alone = [&](const hardware::CostModel& model) {
    return model.cost(op_of(copied, graph::Lane::kCompute)).alone;
  };
  // 200 MB at 0.8 of 1 TB/s are 250 us; 100 SMs of 1 GHz write 200 GB/s, 500 us. Gap and floor are 2 us.
  CHECK(alone(round_model()) == us(252));
  CHECK(alone(slow) == us(502));
  CHECK(alone(slow.shifted({"a table", 1})) == Approx(557e-6).epsilon(0.02));  // 500 us / 0.9, 250 of it waiting
  framework.concatenate_bytes.value = 8;                                       // 125 us: memory is the bottleneck
  CHECK(alone(hardware::CostModel(round_machine(), framework)) == us(252));
}

TEST_CASE("keys and values are repeated no faster than the SMs move elements") {
  config::Framework framework;
  framework.concatenate_bytes.value = 1;  // of kernels that write as much as they read
  framework.repeat_bytes.value = 4;
  const graph::Kernel repeated{graph::KernelClass::kConcatenate, 50e6, 400e6};
  const auto alone = [&] {
    return hardware::CostModel(round_machine(), framework).cost(op_of(repeated, graph::Lane::kCompute)).alone;
  };
  CHECK(alone() == us(1002));  // 100 SMs of 1 GHz write 400 GB/s
  framework.repeat_bytes.value = 0;
  const graph::Kernel converted{graph::KernelClass::kConvert, 50e6, 400e6};
  CHECK(alone() == round_model().cost(op_of(converted, graph::Lane::kCompute)).alone);
}

TEST_CASE("FlashAttention-2 has its own compute rate") {
  config::Framework framework;
  framework.attention_kernels = config::Framework::AttentionKernels::kFlash2;
  const graph::PrefillAttention work{100e12 * 1e-3, 0, 0};
  const auto tensor = [&](const hardware::CostModel& model) {
    return amount(model.cost(op_of(work, graph::Lane::kCompute)), hardware::Resource::kTensor);
  };
  // 1 ms at the peak; half of it is reached, and by FlashAttention-2 a quarter.
  CHECK(tensor(hardware::CostModel(round_machine(), framework)) == Approx(2 * tensor(round_model())));
}

}  // namespace kvcast::tests

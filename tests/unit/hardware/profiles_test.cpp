// The committed profiles: they load, state the source of each number, and reproduce published times.
#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "config/hardware.hpp"
#include "hardware/cost_model.hpp"
#include "hardware/sustained.hpp"
#include "unit/hardware/support.hpp"

namespace kvcast::tests {

using config::Framework;
using graph::Lane;

namespace {

config::Hardware profile(const std::string& name) {
  return config::read_hardware(KVCAST_SOURCE_DIR "/configs/hardware/" + name + ".yaml");
}

std::vector<std::string> profiles() {
  std::set<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(KVCAST_SOURCE_DIR "/configs/hardware")) {
    if (entry.path().extension() == ".yaml") paths.insert(entry.path().string());
  }
  return {paths.begin(), paths.end()};
}

}  // namespace

TEST_CASE("every committed profile loads and states the origins of its numbers") {
  REQUIRE(profiles().size() >= 2);
  for (const std::string& path : profiles()) {
    INFO(path);
    config::Hardware machine = config::read_hardware(path);
    CHECK(!machine.title.empty());
    for (const config::Knob& knob : config::knobs(machine)) {
      INFO(knob.key);
      const Origin origin = knob.value != nullptr ? knob.value->origin : knob.curve->origin;
      const double uncertainty = knob.value != nullptr ? knob.value->uncertainty : knob.curve->uncertainty;
      const std::string& source = knob.value != nullptr ? knob.value->source : knob.curve->source;
      CHECK(source.size() >= 10);
      // "Measured" describes a machine on which kvcast's programs ran; only counted or defined numbers are certain.
      const std::string name = std::filesystem::path(path).stem().string();
      const bool ran = std::filesystem::is_directory(KVCAST_SOURCE_DIR "/configs/validation/gpu/" + name);
      CHECK((origin != Origin::kMeasured || ran));
      if (origin == Origin::kFitted) CHECK_FALSE(machine.calibrations.empty());
      if (origin == Origin::kLiterature && knob.key != "gpu.sm_count") CHECK(uncertainty >= 0.01);
      if (origin == Origin::kAssumed) CHECK(uncertainty >= 0.03);
    }
  }
}

namespace {

// Ops that reach every formula, and every point of every curve of the machine.
std::vector<graph::Op> probes(const config::Hardware& machine) {
  using namespace graph;
  std::vector<Op> ops;
  const auto add = [&](Work work, Lane lane) { ops.push_back(op_of(std::move(work), lane)); };
  for (const double bytes : machine.gpu.gemm_memory_efficiency.x) add(Gemm{1, bytes / 2, 1, 2}, Lane::kCompute);
  for (const double tiles : machine.gpu.gemm_compute_efficiency.x) {
    // m rows of one tile, n wide enough for the requested tiles per SM; k so large that products count.
    const double n = std::max(1.0, tiles * machine.gpu.sm_count) * machine.gpu.gemm_tile;
    add(Gemm{machine.gpu.gemm_tile, n, 1e5, 2}, Lane::kCompute);
  }
  for (const double unit : machine.gpu.gather_efficiency.x) {
    add(DecodeAttention{5000, 4, 128, 5e6, 1000, 2, unit}, Lane::kCompute);
  }
  const auto add_attention = [&](const config::AttentionKernel& kernel, double usual_group) {
    for (const double group : kernel.row.x) {
      add(DecodeAttention{8, group, 128, 8 * 300, 300, 2}, Lane::kSelect);
      add(DecodeAttention{8, group, 128, 8 * 3e5, 3e5, 2}, Lane::kSelect);
    }
    // Few and many rows of several tiles: the ends of parts affect at least one of these for any number of SMs.
    for (const double rows : {10, 15, 20, 26, 33, 40, 50, 70, 90}) {
      add(DecodeAttention{rows, usual_group, 128, rows * 1000, 1000, 2}, Lane::kCompute);
    }
    DecodeAttention warm{8, usual_group, 128, 8 * 300, 300, 2};
    warm.warm = true;
    add(warm, Lane::kCompute);
    // The capacity of the L2, with 512 bytes a pair.
    warm.tokens = machine.gpu.l2_capacity / 512, warm.longest = warm.tokens / 8;
    add(warm, Lane::kCompute);
  };
  add_attention(machine.gpu.attention, 4);
  if (machine.gpu.attention_mha) add_attention(*machine.gpu.attention_mha, 1);
  DecodeAttention converted{8, 4, 128, 8 * 300, 300, 1};
  converted.converted = 1e12;
  add(converted, Lane::kCompute);
  // Sequences of different contexts, without and with prompts in the same step.
  DecodeAttention mixed{256, 4, 128, 256 * 32768.0, 65536};
  mixed.unequal = true;
  add(mixed, Lane::kCompute);
  mixed.beside_prompts = true;
  add(mixed, Lane::kCompute);
  add(PrefillAttention{1e12, 1e6, 1e6}, Lane::kCompute);
  for (int cls = 0; cls < 5; ++cls) add(Kernel{static_cast<KernelClass>(cls), 1e8, 1e8, 1e6, 0}, Lane::kCompute);
  add(Kernel{KernelClass::kScore, 1e3, 1e3, 1e12, 0}, Lane::kCopyA);
  add(Kernel{KernelClass::kReduce, 1e8, 1e6, 0, 0, 8}, Lane::kCompute);
  for (const double columns : machine.gpu.factorise_rate.x) {
    add(Kernel{KernelClass::kFactorise, 1e3, 1e3, 1e9, 4 * columns}, Lane::kCompute);
  }
  for (const double columns : machine.gpu.topk_row.x) add(TopK{50, columns, 64, 4}, Lane::kCompute);
  std::vector<double> sizes;
  for (const config::Curve* curve : {&machine.link.issue_call, &machine.link.issue_batched, &machine.link.engine_piece,
                                     &machine.link.zero_copy_efficiency}) {
    for (std::size_t i = 0; i < curve->x.size(); ++i) {
      sizes.push_back(curve->x[i]);
      if (i > 0) sizes.push_back(std::sqrt(curve->x[i - 1] * curve->x[i]));
    }
  }
  for (const double bytes : sizes) {
    for (int kind = 0; kind < 5; ++kind) {
      for (const Direction direction : {Direction::kHostToDevice, Direction::kDeviceToHost}) {
        add(Copy{direction, static_cast<CopyKind>(kind), 10, bytes, 4, Lane::kHost}, Lane::kCopyA);
        add(Copy{direction, static_cast<CopyKind>(kind), 10, bytes, 4, Lane::kHost, true}, Lane::kCopyA);
      }
    }
  }
  for (int call = 0; call < 9; ++call) add(graph::HostWork{static_cast<HostCall>(call), 10}, Lane::kHost);
  for (const graph::Products products :
       {graph::Products::kFp8, graph::Products::kInt8, graph::Products::kFp4, graph::Products::kMxfp4}) {
    add(graph::Gemm{4096, 4096, 4096, 2, 1, 1, products}, Lane::kCompute);
  }
  add(graph::Collective{graph::Exchange::kAllReduce, 1e6, 4}, Lane::kCompute);
  for (const double unit : machine.host.core_bandwidth.x) add(CpuWork{20, 1e6, 1, unit}, Lane::kCpu);
  add(CpuWork{20, 1, 1e9, 256, 1e6, 1e6, 1e5, 1e11, 0, 1e5, 1e4, 1e8}, Lane::kCpu);
  return ops;
}

// All outputs of a cost model as one row of numbers.
std::vector<double> answers(const config::Hardware& machine, const std::vector<graph::Op>& ops) {
  std::vector<double> row;
  for (const Framework::Launch launch : {Framework::Launch::kCudaGraph, Framework::Launch::kEager}) {
    // Prompts are read once by the kernels of the profile's fit, once by FlashAttention-2.
    config::Framework with = framework(launch);
    if (launch == Framework::Launch::kEager) with.attention_kernels = Framework::AttentionKernels::kFlash2;
    const hardware::CostModel model(machine, with);
    row.push_back(hardware::sustained_share(machine.gpu, 10));
    row.push_back(model.capacity(graph::Pool::kHbm));
    row.push_back(model.capacity(graph::Pool::kDram));
    for (int r = 0; r < hardware::kResourceCount; ++r) row.push_back(model.rate(static_cast<hardware::Resource>(r)));
    for (const graph::Op& op : ops) {
      const hardware::Cost cost = model.cost(op);
      row.push_back(cost.alone), row.push_back(static_cast<double>(cost.latency)), row.push_back(cost.weight);
      if (cost.issue) row.push_back(cost.issue->first), row.push_back(cost.issue->rest);
      for (const hardware::Demand& d : cost.demands) row.push_back(d.amount);
    }
  }
  return row;
}

}  // namespace

TEST_CASE("every number of every profile affects a cost") {
  for (const std::string& path : profiles()) {
    config::Hardware machine = config::read_hardware(path);
    const std::vector<graph::Op> ops = probes(machine);
    const std::vector<double> before = answers(machine, ops);
    const auto moved = [&] { return answers(machine, ops) != before; };
    for (const config::Knob& knob : config::knobs(machine)) {
      // Numbers used only in checks when the profile is read; reader_test.cpp tests their errors.
      if (knob.key == "link.theory_bandwidth") continue;
      // GPUs with a link of their own do not exchange over the host link.
      if (knob.key == "link.peer_share" && machine.link.peer_bandwidth > 0) continue;
      INFO(path << " " << knob.key);
      if (knob.value != nullptr) {
        const double kept = knob.value->value;
        knob.value->value = kept == 0 ? 0.4 : 0.8 * kept;  // 0 switches a share off
        CHECK(moved());
        knob.value->value = kept;
        continue;
      }
      for (double& y : knob.curve->y) {
        INFO("the point of " << y);
        const double kept = y;
        y *= 0.8;
        CHECK(moved());
        y = kept;
      }
    }
    if (auto& correction = machine.gpu.attention_correction) {
      const std::vector<double> kept = correction->excess;
      for (double& excess : correction->excess) excess = 0;
      CHECK(moved());
      correction->excess = kept;
      CHECK(correction->source.size() >= 10);
    }
    CHECK_FALSE(moved());
  }
}

namespace {

// Seconds of all weight matrices of a Llama in one decode step at this batch: QKV, output, gate and up together, down,
// head.
struct Llama {
  double layers, hidden, kv_heads, ffn, vocab;
};
constexpr Llama kLlama31_8b{32, 4096, 8, 14336, 128256};
constexpr Llama kLlama2_7b{32, 4096, 32, 11008, 32000};

std::vector<graph::Gemm> gemms_of(const Llama& l, double batch) {
  const double qkv = l.hidden + 2 * l.kv_heads * 128;
  return {{batch, qkv, l.hidden}, {batch, l.hidden, l.hidden}, {batch, 2 * l.ffn, l.hidden}, {batch, l.hidden, l.ffn}};
}

double weight_seconds(const hardware::CostModel& model, const Llama& l, double batch) {
  double layer = 0;
  for (const graph::Gemm& gemm : gemms_of(l, batch)) layer += model.cost(op_of(gemm)).alone;
  return l.layers * layer + model.cost(op_of(graph::Gemm{batch, l.vocab, l.hidden})).alone;
}

}  // namespace

TEST_CASE("the weights of Llama-3.1-8B are read at the speed of the memory") {
  // A layer: (6144 + 4096 + 28672 + 14336) · 4096 = 218.1e6 parameters; 32 of them and the head of 525.3e6 are 7.505e9,
  // 15.01 GB a step (the embedding is looked up). At 1555 GB/s: 9.65 ms at best. GEMMs reach 0.72 to 0.82 of it
  // (11.8 to 13.4 ms) and 129 gaps and floors of 3.3 us add 0.43 ms: 12.2 to 13.8 ms.
  const hardware::CostModel a100(profile("a100-40gb-pcie4"), {});
  const double seconds = weight_seconds(a100, kLlama31_8b, 1);
  CHECK(seconds > 12.2e-3);
  CHECK(seconds < 13.8e-3);
  // 16 rows read the same weights: a few per cent more at most, as cuBLAS changes its kernels.
  CHECK(weight_seconds(a100, kLlama31_8b, 16) < 1.08 * seconds);
  // 1024 rows are bound by 2 · 7.505e9 · 1024 FLOP: at 312 TFLOP/s 49 ms at best.
  CHECK(weight_seconds(a100, kLlama31_8b, 1024) > 49e-3);
  CHECK(weight_seconds(a100, kLlama31_8b, 1024) < 49e-3 / 0.7);
}

TEST_CASE("Llama-2-7B on A100 80 GB decodes about as fast as gpt-fast publishes") {
  // pytorch-labs/gpt-fast, README: 104.9 tokens/s at batch 1, compiled into CUDA graphs. Besides the weights a layer
  // runs attention over a short cache and about four fused kernels (norms, RoPE with append, activation, residual).
  const hardware::CostModel a100(profile("a100-80gb-sxm"), {});
  const double attention = a100.cost(op_of(graph::DecodeAttention{32, 1, 128, 32 * 256, 256})).alone;
  const double small = a100.cost(op_of(graph::Kernel{graph::KernelClass::kElementwise, 16e3, 16e3})).alone;
  const double step = weight_seconds(a100, kLlama2_7b, 1) + 32 * (attention + 4 * small);
  CHECK(1 / step == Approx(104.9).epsilon(0.12));
}

TEST_CASE("a longer context takes its share of the memory bandwidth") {
  // Llama-3.1-8B at batch 4 and 32K: 4 · 32768 · 4096 B a layer = 537 MB. vLLM takes 342 us for it on the board with
  // 2039 GB/s (tables of ai-dynamo/aiconfigurator): some 30 us do not depend on the memory, 312 us at this bandwidth
  // are 409 us at 1555 GB/s. 32 layers: 14 ms, as much as the weights.
  const hardware::CostModel a100(profile("a100-40gb-pcie4"), {});
  const double attention = a100.cost(op_of(graph::DecodeAttention{32, 4, 128, 32 * 32768.0, 32768})).alone;
  CHECK(attention == Approx(440e-6).epsilon(0.08));
}

TEST_CASE("recall by page and head is bound by the copy engine, not by PCIe or the calls") {
  // FreeKV (hybrid layout): 16 KiB a page and head. The engine starts one in 2.4 us and moves it in 0.66 us at 25 GB/s;
  // a call takes 1.5 us. 7 us pass before the first.
  const hardware::CostModel a100(profile("a100-40gb-pcie4"), {});
  graph::Copy pages;
  pages.runs = 96, pages.run_bytes = 16384, pages.issuer = Lane::kRecallThread;
  const hardware::Cost cost = a100.cost(op_of(pages, Lane::kCopyA));
  CHECK(cost.bound == hardware::Resource::kH2d);
  CHECK(cost.alone == Approx(96 * 3.06e-6 + 7e-6 + 1.5e-6).epsilon(0.01));
  // The two buffers of two streams cost the engine 1 us more each.
  pages.in_turn = true;
  CHECK(a100.cost(op_of(pages, Lane::kCopyA)).alone == Approx(96 * 4.06e-6 + 7e-6 + 1.5e-6).epsilon(0.01));
  // The same in the layout that keeps tokens together: 64 rows of 256 B, each a copy of its own, 64 · 2.41 us a page.
  pages.runs = 96 * 64, pages.run_bytes = 256, pages.in_turn = false;
  CHECK(a100.cost(op_of(pages, Lane::kCopyA)).alone == Approx(96 * 64 * 2.41e-6).epsilon(0.02));
}

}  // namespace kvcast::tests

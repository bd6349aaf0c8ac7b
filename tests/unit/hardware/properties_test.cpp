// Properties of any work on any machine: more work is never faster, better hardware is never slower, and the time alone
// equals the engine's.
#include <algorithm>
#include <vector>

#include "base/random.hpp"
#include "hardware/work.hpp"
#include "unit/hardware/support.hpp"

namespace kvcast::tests {

using hardware::Cost;
using hardware::CostModel;

namespace {

// The i-th of a long sequence of works of all kinds and sizes, `scale` times as large as drawn.
graph::Op work_of(const Stream& stream, std::uint64_t i, double scale) {
  const Stream s = stream.child({i});
  const auto size = [&](std::uint64_t n, double low, double high) { return low * std::pow(high / low, s.uniform(n)); };
  graph::Op op;
  switch (i % 8) {
    case 0:
      op.work = graph::Gemm{std::ceil(size(0, 1, 40000) * scale), std::ceil(size(1, 64, 60000)),
                            std::ceil(size(2, 64, 20000)), 2};
      break;
    case 1: {
      const double context = std::ceil(size(0, 1, 1e5) * scale), rows = std::ceil(size(1, 1, 2000));
      op.work = graph::DecodeAttention{rows, 4, 128, rows * context, context, 2, i % 16 == 1 ? 0 : size(2, 16, 1e5)};
      break;
    }
    case 2:
      op.work = graph::PrefillAttention{size(0, 1e6, 1e15) * scale, size(1, 1e3, 1e9) * scale, 0};
      break;
    case 3:
      op.work = graph::Kernel{static_cast<graph::KernelClass>(s.below(3, 6)), size(0, 1, 1e9) * scale,
                              size(1, 1, 1e9) * scale, size(2, 1, 1e12) * scale, size(4, 16, 1e5)};
      break;
    case 4:
      op.work = graph::TopK{std::ceil(size(0, 1, 1000)), std::ceil(size(1, 1, 1e6) * scale), size(2, 1, 1e4), 4};
      break;
    case 5: {
      graph::Copy copy;
      copy.kind = static_cast<graph::CopyKind>(s.below(0, 5));
      copy.direction = static_cast<graph::Direction>(s.below(1, 2));
      copy.runs = std::ceil(size(2, 1, 1e4)), copy.run_bytes = std::ceil(size(3, 64, 1e8) * scale);
      copy.rows = std::ceil(size(4, 1, 64));
      op.work = copy, op.lane = graph::Lane::kCopyA;
      break;
    }
    case 6:
      op.work = graph::HostWork{static_cast<graph::HostCall>(s.below(0, 9)), std::ceil(size(1, 1, 1000) * scale)};
      op.lane = graph::Lane::kHost;
      break;
    default:
      op.work = graph::CpuWork{std::ceil(size(0, 1, 500)), size(1, 1e2, 1e8) * scale, size(2, 1, 1e9) * scale,
                               size(3, 64, 1e5)};
      std::get<graph::CpuWork>(op.work).places_per_item = size(4, 1, 1e5) * scale;
      std::get<graph::CpuWork>(op.work).region_bytes = size(5, 1e3, 1e10) * scale;
      op.lane = graph::Lane::kCpu;
  }
  return op;
}

std::vector<config::Hardware> machines() {
  return {round_machine(), config::read_hardware(KVCAST_SOURCE_DIR "/configs/hardware/a100-40gb-pcie4.yaml"),
          config::read_hardware(KVCAST_SOURCE_DIR "/configs/hardware/l40s.yaml"),
          config::read_hardware(KVCAST_SOURCE_DIR "/configs/hardware/b200.yaml")};
}

constexpr std::uint64_t kWorks = 4000;
constexpr double kSlack = 1 + 1e-12;

}  // namespace

TEST_CASE("more work is never faster") {
  const Stream stream(11);
  for (const config::Hardware& machine : machines()) {
    const CostModel model(machine, {});
    for (std::uint64_t i = 0; i < kWorks; ++i) {
      const double scale = 1 + 3 * stream.uniform(i);
      INFO(machine.name << " work " << i << " scale " << scale);
      // The driver issues a piece of 64 KiB of a batched copy in less time than one of 16 KiB (measured).
      const graph::Op op = work_of(stream, i, 1);
      const auto* const copy = std::get_if<graph::Copy>(&op.work);
      if (copy != nullptr && copy->kind == graph::CopyKind::kBatched) continue;
      const double less = model.cost(work_of(stream, i, 1)).alone, more = model.cost(work_of(stream, i, scale)).alone;
      REQUIRE(less <= more * kSlack);
    }
  }
}

TEST_CASE("the time alone is the sum of issue, latency and the longest demand") {
  const Stream stream(12);
  for (const config::Hardware& machine : machines()) {
    const CostModel model(machine, {});
    for (std::uint64_t i = 0; i < kWorks; ++i) {
      INFO(machine.name << " work " << i);
      const Cost cost = model.cost(work_of(stream, i, 1));
      double longest = 0;
      std::vector<hardware::Resource> seen;
      for (const hardware::Demand& d : cost.demands) {
        REQUIRE(d.amount > 0);
        REQUIRE(std::find(seen.begin(), seen.end(), d.resource) == seen.end());
        seen.push_back(d.resource);
        longest = std::max(longest, d.amount / model.rate(d.resource));
      }
      const double first = cost.issue ? cost.issue->first : 0;
      REQUIRE(cost.alone == Approx(first + to_seconds(cost.latency) + longest).epsilon(1e-9).margin(2e-12));
      REQUIRE(cost.uncertainty >= 0);
    }
  }
}

TEST_CASE("no kernel moves bytes faster than the data sheet states, no copy faster than the link") {
  const Stream stream(13);
  for (const config::Hardware& machine : machines()) {
    const CostModel model(machine, {});
    for (std::uint64_t i = 0; i < kWorks; ++i) {
      INFO(machine.name << " work " << i);
      const graph::Op op = work_of(stream, i, 1);
      const double alone = model.cost(op).alone;
      if (const auto* gemm = std::get_if<graph::Gemm>(&op.work)) {
        REQUIRE(alone >= gemm->n * gemm->k * gemm->element_bytes / machine.gpu.hbm_bandwidth);
        REQUIRE(alone >= 2 * gemm->m * gemm->n * gemm->k / machine.gpu.tensor_flops);
      } else if (const auto* attention = std::get_if<graph::DecodeAttention>(&op.work)) {
        REQUIRE(alone >= attention->tokens * 512 / machine.gpu.hbm_bandwidth);
      } else if (const auto* copy = std::get_if<graph::Copy>(&op.work)) {
        REQUIRE(alone >= copy->runs * copy->run_bytes / machine.link.theory_bandwidth);
      } else if (const auto* cpu = std::get_if<graph::CpuWork>(&op.work)) {
        REQUIRE(alone >= cpu->items * cpu->bytes_per_item / machine.host.dram_bandwidth);
      }
    }
  }
}

TEST_CASE("better hardware is never slower") {
  const Stream stream(14);
  const std::vector<graph::Op> works = [&] {
    std::vector<graph::Op> made;
    for (std::uint64_t i = 0; i < 400; ++i) made.push_back(work_of(stream, i, 1));
    return made;
  }();
  for (const config::Hardware& machine : machines()) {
    const CostModel before(machine, {});
    config::Hardware turned = machine;
    for (const config::Knob& knob : config::knobs(turned)) {
      // Rates, fractions and counts grow; times, and sizes that work is rounded to, shrink.
      const bool is_rate = knob.key.ends_with("bandwidth") || knob.key.ends_with("flops") ||
                           knob.key.ends_with("efficiency") || knob.key.ends_with("clock") ||
                           knob.key.ends_with("rate");  // all_core_derate, factorise_rate
      const bool is_other = knob.key.ends_with("capacity") || knob.key.ends_with("reserved") ||
                            knob.key.ends_with("fraction") || knob.key.ends_with("tile") ||
                            knob.key == "gpu.gemm_rows" || knob.key.ends_with("overlap") ||
                            knob.key.ends_with("part") || knob.key.ends_with("parts") || knob.key == "gpu.sm_count" ||
                            knob.key == "host.cores";
      if (is_other) continue;  // more SMs leave fewer tiles for each, more cores a lower clock
      const double factor = (is_rate && knob.key != "gpu.floor_clock") ? 1.25 : 0.8;
      const Value value_before = knob.value != nullptr ? *knob.value : Value{};
      const config::Curve curve_before = knob.curve != nullptr ? *knob.curve : config::Curve{};
      if (knob.value != nullptr) knob.value->value *= factor;
      if (knob.curve != nullptr) {
        for (double& y : knob.curve->y) y *= factor;
      }
      const CostModel after(turned, {});
      for (std::size_t i = 0; i < works.size(); ++i) {
        INFO(machine.name << " " << knob.key << " work " << i);
        REQUIRE(after.cost(works[i]).alone <= before.cost(works[i]).alone * kSlack);
      }
      if (knob.value != nullptr) *knob.value = value_before;
      if (knob.curve != nullptr) *knob.curve = curve_before;
    }
  }
}

}  // namespace kvcast::tests

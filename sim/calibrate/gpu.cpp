// Fits stage by stage, simple benchmarks first: gaps between empty kernels, streams, gathers, then the kernels that
// depend on them. Attention and GEMM find their structure by cross-validation (attention.cpp, gemm.cpp).

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "base/error.hpp"
#include "calibrate/attention.hpp"
#include "calibrate/fit_stages.hpp"
#include "calibrate/gemm.hpp"
#include "calibrate/machine.hpp"
#include "calibrate/write.hpp"
#include "config/pcie.hpp"

namespace kvcast::calibrate {
namespace {

// Places nodes at the measured sizes; all start at the middle of the previous curve.
template <typename SizeOf>
void place_nodes(Cases cases, config::Curve& curve, const SizeOf& size_of) {
  std::set<double> sizes;
  for (const MeasuredOp& one : cases) {
    if (!one.held_out) sizes.insert(size_of(one));
  }
  const double start = curve.y[curve.y.size() / 2];
  curve.x.assign(sizes.begin(), sizes.end());
  curve.y.assign(sizes.size(), start);
}

const graph::Copy& copy_of(const MeasuredOp& one) { return std::get<graph::Copy>(one.op.work); }
double run_bytes(const MeasuredOp& one) { return copy_of(one).run_bytes; }

template <typename SizeOf>
auto nodes_of(config::Curve config::Gpu::*curve, SizeOf size_of) {
  return [=](Cases cases, config::Hardware& hardware) { place_nodes(cases, hardware.gpu.*curve, size_of); };
}
auto link_nodes_of(config::Curve config::Link::*curve) {
  return [=](Cases cases, config::Hardware& hardware) { place_nodes(cases, hardware.link.*curve, run_bytes); };
}
// The engine's start is too small a part of a large copy to be seen: the curve ends with the small ones.
void place_pieces(Cases cases, config::Hardware& hardware) {
  std::vector<MeasuredOp> small;
  for (const MeasuredOp& one : cases) {
    if (one.bench == "small copies") small.push_back(one);
  }
  if (!small.empty()) place_nodes(small, hardware.link.engine_piece, run_bytes);
}

// The fits of tables expect kernels in graphs; these were measured in a stream.
std::vector<MeasuredPoint> points_of(Cases cases, const config::Gpu& gpu) {
  std::vector<MeasuredPoint> points;
  for (const MeasuredOp& one : cases) {
    MeasuredPoint point;
    point.op = one.op, point.held_out = one.held_out, point.weight = one.weight;
    point.seconds = std::max(0.1 * one.seconds, one.seconds - gpu.gap_stream + gpu.gap_graph);
    points.push_back(std::move(point));
  }
  return points;
}

// Redraws alternate between the structures of about the same loss, so that their parts and tiles are as uncertain as
// that.
auto attention_stage() {
  const auto known = std::make_shared<AttentionFit>();
  return [known](Cases cases, const Trial& trial, config::Hardware& hardware) -> std::vector<std::string> {
    const std::vector<MeasuredPoint> points = points_of(cases, hardware.gpu);
    if (trial.redraw > 0) {
      const auto& structure = known->contenders[trial.redraw % known->contenders.size()];
      refit_attention(points, trial.prior.gpu, structure, hardware.gpu);
      return {};
    }
    *known = fit_attention(points, trial.prior.gpu, hardware.gpu);
    if (hardware.gpu.attention_correction) hardware.gpu.attention_correction->source = "as the attention parameters";
    std::erase(known->at_bounds, "l2_bandwidth");  // cold cases do not identify it
    return known->at_bounds;
  };
}
std::vector<std::string> fit_gemm_stage(Cases cases, const Trial& trial, config::Hardware& hardware) {
  return fit_gemm(points_of(cases, hardware.gpu), &trial.prior.gpu, hardware.gpu).at_bounds;
}

double gathered_unit(const MeasuredOp& one) { return std::get<graph::Kernel>(one.op.work).unit_bytes; }
double columns(const MeasuredOp& one) { return std::get<graph::TopK>(one.op.work).columns; }

std::vector<Stage> kernel_stages() {
  using config::Gpu;
  return {
      {"gaps", {"kernels in a stream", "kernels in a graph"}, {"gpu.gap_stream", "gpu.gap_graph"}},
      {"streams",
       {"hbm_stream"},
       {"gpu.floor_small", "gpu.memory_ramp", "gpu.stream_efficiency", "gpu.mixed_efficiency"}},
      {"gathers", {"hbm_gather"}, {"gpu.gather_efficiency"}, nodes_of(&Gpu::gather_efficiency, gathered_unit)},
      {"layout conversion", {"convert"}, {"gpu.convert_efficiency"}},
      {"page scores", {"page_score"}, {"gpu.floor_score", "gpu.score_efficiency"}},
      {"top-k",
       {"topk"},
       {"gpu.floor_topk", "gpu.topk_pick", "gpu.topk_row"},
       nodes_of(&Gpu::topk_row, columns),
       nullptr,
       true,
       true},
      {"attention",
       {"decode_attention"},
       {"gpu.floor_attention", "gpu.attention_row", "gpu.attention_merge", "gpu.attention_tile",
        "gpu.attention_padding", "gpu.attention_part", "gpu.attention_parts", "gpu.attention_tile_time",
        "gpu.attention_overlap", "gpu.attention_efficiency"},
       nullptr,
       attention_stage(),
       true,
       true},
      {"prefill attention", {"prefill_attention"}, {"gpu.prefill_efficiency"}, nullptr, nullptr, true},
      {"GEMM",
       {"gemm"},
       {"gpu.floor_gemm", "gpu.gemm_memory_efficiency", "gpu.gemm_row_loss", "gpu.gemm_compute_efficiency",
        "gpu.gemm_overlap"},
       nullptr,
       fit_gemm_stage},
  };
}

std::vector<Stage> runtime_stages() {
  using config::Link;
  return {
      {"launches", {"launches"}, {"host.launch"}},
      {"graph launches", {"graph launches"}, {"host.graph_launch", "host.graph_node"}},
      {"stream waits", {"stream waits"}, {"host.stream_sync"}},
      {"values read back", {"values read back"}, {"host.item_sync"}},
      {"copies",
       {"small copies", "large copies"},
       {"link.copy_latency", "link.engine_piece", "link.engine_d2h_ratio", "link.h2d_bandwidth", "link.d2h_bandwidth"},
       place_pieces},
      {"copies both ways", {"copies both ways"}, {"link.both_bandwidth"}},
      {"pageable copies", {"pageable copies"}, {"link.pageable_bandwidth"}},
      {"copy calls", {"copy calls"}, {"link.issue_call"}, link_nodes_of(&Link::issue_call)},
      {"batched calls", {"batched calls"}, {"link.issue_batched"}, link_nodes_of(&Link::issue_batched)},
      {"2D copies", {"2D copies"}, {"link.engine_row"}},
      {"2D calls", {"2D calls"}, {"link.issue_2d", "link.issue_row"}},
      {"zero copy",
       {"zero_copy_gather"},
       {"link.load_latency", "link.zero_copy_efficiency"},
       link_nodes_of(&Link::zero_copy_efficiency)},
  };
}

// Sets the numbers that the device reports itself.
void set_known(const Results& results, config::Gpu& gpu) {
  const std::string source = "read from the device by the measuring program";
  const auto set = [&](const char* key, Value& value, double factor = 1) {
    const double known = quantity_of(results, key, 0);
    if (known > 0) value = {known * factor, Origin::kDatasheet, 0.01, source};
  };
  set("hbm_bytes", gpu.hbm_capacity);
  set("hbm_peak", gpu.hbm_bandwidth);
  set("tensor_peak", gpu.tensor_flops);
  set("sm_count", gpu.sm_count);
  set("l2_bytes", gpu.l2_capacity);
  set("clock_hz", gpu.clock);
  gpu.floor_clock = gpu.clock;  // floors are those of this device
  Value& l2 = gpu.attention.l2_bandwidth;
  l2.value = std::max(l2.value, gpu.hbm_bandwidth.value);
}

// A virtual machine may state a generation of PCIe that is not the link's. A link that carried more than it could is of
// the oldest generation that could carry as much.
void correct_link(const Results& results, config::Link& link) {
  constexpr double kAllowance = 1.02;  // of clocks
  const double carried = std::max(link.h2d_bandwidth.value, link.d2h_bandwidth.value);
  const double lanes = quantity_of(results, "pcie_lanes", 0);
  if (lanes < 1 || carried <= kAllowance * link.theory_bandwidth.value) return;
  for (int generation = config::kOldestPcie; generation <= config::kNewestPcie; ++generation) {
    const double most = config::pcie_bandwidth(generation, static_cast<int>(lanes));
    if (carried > kAllowance * most) continue;
    link.theory_bandwidth = {
        most, Origin::kAssumed, 0.1,
        fmt::format("{} lanes of PCIe {}: copies were faster than the generation that was read", lanes, generation)};
    return;
  }
}

// Keeps fitted numbers within the limits of the link and of both its directions.
void keep_physical(config::Link& link) {
  for (Value* rate : {&link.h2d_bandwidth, &link.d2h_bandwidth}) {
    rate->value = std::min(rate->value, link.theory_bandwidth.value);
  }
  const double one = std::max(link.h2d_bandwidth.value, link.d2h_bandwidth.value);
  // Three digits of each number: those of the sum may be above the sum of those of both.
  constexpr double kRoundedDown = 0.99;
  const double most = std::max(one, kRoundedDown * (link.h2d_bandwidth.value + link.d2h_bandwidth.value));
  link.both_bandwidth.value = std::clamp(link.both_bandwidth.value, one, most);
  link.pageable_bandwidth.value = std::min(link.pageable_bandwidth.value, one);
}

void set_link(const Results& results, config::Link& link) {
  const double generation = quantity_of(results, "pcie_generation_under_load", 0);
  const double lanes = quantity_of(results, "pcie_lanes", 0);
  if (generation < config::kOldestPcie || generation > config::kNewestPcie || lanes < 1) return;
  link.theory_bandwidth = {config::pcie_bandwidth(static_cast<int>(generation), static_cast<int>(lanes)),
                           Origin::kExact, 0, fmt::format("{} lanes of PCIe {}, read under load", lanes, generation)};
}

// The results without those of libraries for kernels of which kvcast-pipeline runs kvcast's own.
Results of_pipelines(Results results) {
  for (const Stage& stage : kernel_stages()) {
    if (!stage.in_pipelines) continue;
    std::erase_if(results.rows, [&](const MeasuredRow& row) {
      return row.words.contains("by") && std::ranges::find(stage.benches, row.bench) != stage.benches.end();
    });
  }
  return results;
}

}  // namespace

std::vector<Stage> gpu_stages() {
  std::vector<Stage> all = kernel_stages();
  const std::vector<Stage> runtime = runtime_stages();
  all.insert(all.end(), runtime.begin(), runtime.end());
  return all;
}

MachineResult fit_gpu(const Results& results, const MachineRequest& request) {
  check_program(results, "kvcast-kernels");
  const std::vector<MeasuredOp> cases = gpu_cases(request.own_kernels ? of_pipelines(results) : results);
  if (cases.empty())
    throw UserError({results.file, 0, 0}, "no usable case of a GPU: results of kvcast-kernels are needed");
  MachineResult result;
  result.hardware = request.base;
  config::Hardware& machine = result.hardware;
  set_known(results, machine.gpu);
  set_link(results, machine.link);
  fit_stages(gpu_stages(), cases, results, request, result);
  correct_link(results, machine.link);
  keep_physical(machine.link);
  machine.gpu.gap_graph.value = std::min(machine.gpu.gap_graph.value, machine.gpu.gap_stream.value);

  const std::string title = text_of(results, "device", "unknown GPU") + ", measured";
  const std::string host_title =
      request.own_host ? machine.host.title : text_of(results, "host_cpu", "unknown processor");
  result.yaml =
      fmt::format("title: {}\n", yaml_text(title)) + machine_yaml(machine, host_title) + yaml_of(result.calibrations);
  return result;
}

}  // namespace kvcast::calibrate

// CPU workers take items in rounds (sim/hardware/host.cpp). Streams give the bandwidth of the DRAM; gathers and dot
// products by threads the rates of a core by contiguous bytes and the loss with all cores busy; attention over groups
// the arithmetic; matrix products theirs; selection and look-ups their time per entry. All are solved for together,
// because every case depends on several.

#include <fmt/format.h>

#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <set>

#include "base/error.hpp"
#include "calibrate/fit_stages.hpp"
#include "calibrate/machine.hpp"
#include "calibrate/write.hpp"

namespace kvcast::calibrate {
namespace {

constexpr double kElementBytes = 2;     // bfloat16
constexpr double kIdBytes = 4;          // per token in a hash table
constexpr double kLongPiece = 1 << 20;  // pieces of a stream: longer ones are not read faster

graph::CpuWork cpu_work_of(const MeasuredRow& row) {
  if (row.bench == "cpu_fork_join") return {.items = 0};
  if (row.bench == "cpu_dram") {
    const double threads = row.number("threads"), each = row.of_work("bytes") / threads;
    return {.items = threads, .bytes_per_item = each, .unit_bytes = kLongPiece};
  }
  if (row.bench == "cpu_gather_dot") {
    const double threads = row.number("threads");
    return {.items = threads,
            .bytes_per_item = row.of_work("bytes") / threads,
            .flops_per_item = row.of_work("flops") / threads,
            .unit_bytes = row.number("run") * row.number("dim") * kElementBytes,
            .places_per_item = row.of_work("rows") / row.number("run") / threads,
            .region_bytes = row.number("rows") * row.number("dim") * kElementBytes / threads};
  }
  if (row.bench == "cpu_sparse_attention") {
    const double items = row.number("items");
    return {.items = items,
            .bytes_per_item = row.of_work("bytes") / items,
            .flops_per_item = row.of_work("flops") / items,
            .unit_bytes = row.number("dim") * kElementBytes,
            .places_per_item = row.of_work("rows") / items,
            .region_bytes = 2 * row.number("context") * row.number("dim") * kElementBytes};
  }
  if (row.bench == "cpu_product") {
    const double threads = row.number("threads");
    return {.items = threads, .product_flops_per_item = row.of_work("flops") / threads};
  }
  if (row.bench == "cpu_topk") {
    return {.items = row.number("rows"), .ranked_per_item = row.number("n"), .kept_per_item = row.number("k")};
  }
  const double queries = row.number("queries");  // cpu_lsh_lookup clears a byte per token
  return {.items = queries,
          .bytes_per_item = row.number("context"),
          .unit_bytes = kLongPiece,
          .looked_up_per_item = row.of_work("ids") / queries,
          .buckets_per_item = row.of_work("buckets") / queries,
          .places_per_item = row.of_work("buckets") / queries,
          .region_bytes = row.number("tables") * row.number("context") * kIdBytes / queries};
}

// Returns whether the case corresponds to something that the simulator does: reads from DRAM, cold gathers, selection
// over scores just written.
bool used(const MeasuredRow& row, double cores) {
  const bool all = row.numbers.contains("threads") && row.number("threads") == cores;
  if (row.bench == "cpu_dram") return row.word("op") == "read";
  if (row.bench == "cpu_fork_join") return row.word("wait") == "spin" && all;
  if (row.bench == "cpu_gather_dot" || row.bench == "cpu_sparse_attention" || row.bench == "cpu_lsh_lookup") {
    return row.mode == "cold";
  }
  return row.bench == "cpu_topk" || row.bench == "cpu_product";
}

double cores_of(const Results& results) {
  const auto cores = results.quantities.find("cores");
  if (cores == results.quantities.end() || !(cores->second >= 1)) {
    throw UserError({results.file, 0, 0}, "the environment states no cores");
  }
  return cores->second;
}

// Sets the memory bandwidth to what all cores together stream: no least squares, because a bound that is not reached
// has no slope.
std::vector<std::string> set_dram(Cases cases, const Trial&, config::Hardware& machine) {
  double fastest = 0;
  for (const MeasuredOp& one : cases) {
    const auto& work = std::get<graph::CpuWork>(one.op.work);
    const double busy = std::max(0.1 * one.seconds, one.seconds - machine.host.dispatch);
    if (!one.held_out) fastest = std::max(fastest, work.items * work.bytes_per_item / busy);
  }
  machine.host.dram_bandwidth.value = fastest;
  return {};
}

// Places nodes at the measured sizes of pieces, between which the rate of a core is linear; streams are the last.
void place_host_nodes(Cases cases, config::Hardware& machine) {
  config::Curve& curve = machine.host.core_bandwidth;
  std::set<double> units;
  for (const MeasuredOp& one : cases) {
    const auto& work = std::get<graph::CpuWork>(one.op.work);
    if (!one.held_out && work.bytes_per_item > 0) units.insert(work.unit_bytes);
  }
  if (units.empty()) throw UserError("host: no case gathers from DRAM (cpu_gather_dot, cpu_sparse_attention)");
  const double start = curve.y.back();
  curve.x.assign(units.begin(), units.end());
  curve.y.assign(units.size(), start);
}

void set_known(const Results& results, config::Host& host) {
  const std::string source = "counted by the measuring program";
  host.cores = {cores_of(results), Origin::kExact, 0, source};
  const double bytes = quantity_of(results, "dram_bytes", host.dram_capacity);
  host.dram_capacity = {bytes, Origin::kMeasured, 0.05, "free memory when it was measured"};
}

// Streams of all threads are a bench of their own: the only case that identifies the memory bandwidth must not be held
// out.
constexpr const char* kAllStreams = "cpu_dram, all threads";
constexpr std::string_view kNeeded[] = {kAllStreams, "cpu_gather_dot", "cpu_fork_join", "cpu_topk", "cpu_lsh_lookup"};

std::string title_of(const Results& results) {
  return fmt::format("{}, {} cores, measured", text_of(results, "host_cpu", "unknown processor"), cores_of(results));
}

}  // namespace

std::vector<Stage> host_stages() {
  return {{"fork and join", {"cpu_fork_join"}, {"host.dispatch"}},
          {"DRAM", {kAllStreams}, {"host.dram_bandwidth"}, nullptr, set_dram},
          {"gathers and products",
           {"cpu_dram", kAllStreams, "cpu_gather_dot", "cpu_sparse_attention"},
           {"host.core_bandwidth", "host.core_translation", "host.core_flops", "host.all_core_derate"},
           place_host_nodes},
          {"matrix products", {"cpu_product"}, {"host.core_products"}},
          {"top-k on the CPU", {"cpu_topk"}, {"host.core_rank", "host.core_rank_again"}},
          {"hash look-up", {"cpu_lsh_lookup"}, {"host.core_lookup", "host.core_bucket"}}};
}

std::vector<MeasuredOp> host_cases(const Results& results) {
  const double cores = cores_of(results);
  std::vector<MeasuredOp> cases;
  for (const MeasuredRow& row : results.rows) {
    if (!used(row, cores)) continue;
    MeasuredOp one = measured(row);
    one.threads = row.number("threads");
    if (row.bench == "cpu_dram" && one.threads == cores) one.bench = kAllStreams;
    one.op.kind = graph::Kind::kCpuWork, one.op.lane = graph::Lane::kCpu;
    one.op.work = cpu_work_of(row);
    cases.push_back(std::move(one));
  }
  hold_out(cases);
  return cases;
}

MachineResult fit_host(const Results& results, const MachineRequest& request) {
  check_program(results, "kvcast-kernels-cpu");
  const std::vector<MeasuredOp> cases = host_cases(results);
  for (const std::string_view bench : kNeeded) {
    const bool there = std::ranges::any_of(cases, [&](const MeasuredOp& one) { return one.bench == bench; });
    if (!there) throw UserError({results.file, 0, 0}, fmt::format("no usable case of {}; measure longer", bench));
  }
  MachineResult result;
  result.hardware = request.base;
  set_known(results, result.hardware.host);
  fit_stages(host_stages(), cases, results, request, result);
  // One core can stream from caches what all together cannot: the memory is the limit.
  config::Host& host = result.hardware.host;
  for (double& rate : host.core_bandwidth.y) rate = std::min(rate, host.dram_bandwidth.value);

  // The keys of a host start at the left margin.
  const std::string body = fmt::format("\n{}", yaml_of(result.hardware, "host."));
  result.yaml = fmt::format("title: {}\n", yaml_text(title_of(results))) +
                boost::replace_all_copy(body, "\n  ", "\n").substr(1) + yaml_of(result.calibrations);
  return result;
}

}  // namespace kvcast::calibrate

#include "hardware/cost_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "hardware/work.hpp"

namespace kvcast::hardware {
namespace {

// Kernels of the model's streams are captured in CUDA graphs if the framework uses them; those of recalls and backups
// are launched one by one from their threads.
const Value& gap_before(const config::Gpu& gpu, const config::Framework& framework, graph::Lane lane) {
  const bool of_model = lane == graph::Lane::kCompute || lane == graph::Lane::kSelect;
  const bool in_graph = framework.launch == config::Framework::Launch::kCudaGraph;
  return of_model && in_graph ? gpu.gap_graph : gpu.gap_stream;
}

struct AddWork {
  Terms& terms;
  const config::Hardware& machine;
  const config::Framework& framework;
  graph::Lane lane;

  void gap() const { terms.wait("gap between kernels", number(gap_before(machine.gpu, framework, lane))); }

  void operator()(const graph::Marker&) const {}
  void operator()(const graph::Gemm& work) const { gap(), add_gemm(terms, machine.gpu, work); }
  void operator()(const graph::DecodeAttention& work) const {
    gap(), add_decode_attention(terms, machine.gpu, framework, work);
  }
  void operator()(const graph::PrefillAttention& work) const {
    gap(), add_prefill_attention(terms, machine.gpu, framework, work);
  }
  void operator()(const graph::Kernel& work) const { gap(), add_kernel(terms, machine.gpu, framework, work); }
  void operator()(const graph::TopK& work) const { gap(), add_topk(terms, machine.gpu, work); }
  void operator()(const graph::Collective& work) const { gap(), add_collective(terms, machine, work); }
  void operator()(const graph::Copy& work) const {
    if (work.kind == graph::CopyKind::kZeroCopy && work.runs > 0 && work.run_bytes > 0) gap();
    add_copy(terms, machine, work);
  }
  void operator()(const graph::HostWork& work) const {
    add_host_calls(terms, machine.host, framework, work, thread_of(lane));
  }
  void operator()(const graph::CpuWork& work) const { add_cpu_work(terms, machine.host, work); }
};

// The other GPUs do the same work at the same time; each gets an equal share of the host.
config::Hardware share_of(config::Hardware machine, int gpus) {
  config::Host& host = machine.host;
  host.dram_bandwidth.value /= gpus, host.dram_capacity.value /= gpus;
  host.cores.value = std::max(1.0, std::floor(host.cores / gpus));
  return machine;
}

// Writes of the device to the host are posted, its reads need an answer: if the two directions are not served equally,
// the speed of copies to the host grows faster than that of copies to the device, by the ratio that leaves the latter
// both_h2d_share of a full link.
double sharing_weight(const graph::Copy& copy, const config::Link& link) {
  const double in = link.both_h2d_share;
  if (copy.direction != graph::Direction::kDeviceToHost || in <= 0 || in >= 1) return 1;
  return (1 - in) / link.d2h_bandwidth / (in / link.h2d_bandwidth);
}

std::string describe(const Term& term, const Cost& cost) {
  std::string text = fmt::format("{:>10}  {}", format_seconds(term.seconds.value), term.what);
  if (term.role == Term::Role::kWork) text += fmt::format(" ({})", resource_name(term.resource));
  if (term.role == Term::Role::kIssue) text += fmt::format(" (first one; {})", resource_name(term.resource));
  if (term.role == Term::Role::kWork && cost.bound == term.resource) text += ", the bottleneck";
  text += fmt::format("; {}", origin_name(term.seconds.origin));
  if (term.seconds.uncertainty > 0) text += fmt::format(" \u00b1{:.0f} %", 100 * term.seconds.uncertainty);
  if (term.seconds.source != nullptr) text += fmt::format(": {}", *term.seconds.source);
  return text;
}

}  // namespace

CostModel::CostModel(const config::Hardware& hardware, const config::Framework& framework, Shift shift, int gpus)
    : hardware_(std::make_shared<const config::Hardware>(share_of(hardware, gpus))),
      framework_(std::make_shared<const config::Framework>(framework)),
      shift_(std::move(shift)) {
  rates_.fill(1);  // engines and threads are counted in seconds
  const auto set = [this](Resource resource, double rate) { rates_[static_cast<std::size_t>(resource)] = rate; };
  set(Resource::kHbm, hardware_->gpu.hbm_bandwidth);
  set(Resource::kTensor, hardware_->gpu.tensor_flops);
  set(Resource::kVector, hardware_->gpu.vector_flops);
  set(Resource::kLinkIn, hardware_->link.h2d_bandwidth);
  set(Resource::kLinkOut, hardware_->link.d2h_bandwidth);
  set(Resource::kLink, hardware_->link.both_bandwidth);
  set(Resource::kPeer, peer_rate(hardware_->link).value);
  set(Resource::kDram, hardware_->host.dram_bandwidth);
  set(Resource::kCores, hardware_->host.cores);
}

Terms CostModel::terms(const graph::Work& work, graph::Lane lane) const {
  Terms terms;
  std::visit(AddWork{terms, *hardware_, *framework_, lane}, work);
  if (!shift_.source.empty()) terms.shift(shift_);
  return terms;
}

Cost CostModel::cost(const graph::Work& work, graph::Lane lane) const {
  Cost cost = terms(work, lane).cost(rates_.data());
  if (const auto* const copy = std::get_if<graph::Copy>(&work)) cost.weight = sharing_weight(*copy, hardware_->link);
  return cost;
}

std::string CostModel::explain(const graph::Op& op) const {
  const Terms made = terms(op.work, op.lane);
  const Cost cost = made.cost(rates_.data());
  std::vector<Term> parts(made.parts().begin(), made.parts().end());
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Term& a, const Term& b) { return a.seconds.value > b.seconds.value; });
  std::string text =
      fmt::format("{} alone, {} \u00b1{:.0f} %{}; {}\n", format_seconds(cost.alone), origin_name(cost.origin),
                  100.0 * cost.uncertainty, cost.extrapolated ? ", outside the range of a curve" : "",
                  cost.bound ? fmt::format("bound by {}", resource_name(*cost.bound)) : "bound by latency");
  for (const Term& part : parts) text += describe(part, cost) + "\n";
  return text;
}

double CostModel::capacity(graph::Pool pool) const {
  const bool on_device = pool == graph::Pool::kHbm;
  const config::Gpu& gpu = hardware_->gpu;
  const config::Host& host = hardware_->host;
  const double bytes = on_device ? gpu.hbm_capacity - gpu.hbm_reserved : host.dram_capacity * host.pinned_fraction;
  if (shift_.source != (on_device ? kDeviceMemory : kHostMemory)) return bytes;
  return bytes - shift_.sign * capacity_spread(pool);
}

double CostModel::capacity_spread(graph::Pool pool) const {
  const config::Gpu& gpu = hardware_->gpu;
  const config::Host& host = hardware_->host;
  if (pool == graph::Pool::kHbm) {
    return std::hypot(gpu.hbm_capacity * gpu.hbm_capacity.uncertainty, gpu.hbm_reserved * gpu.hbm_reserved.uncertainty);
  }
  return host.dram_capacity * host.pinned_fraction *
         std::hypot(host.dram_capacity.uncertainty, host.pinned_fraction.uncertainty);
}

Origin CostModel::capacity_origin(graph::Pool pool) const {
  const config::Gpu& gpu = hardware_->gpu;
  const config::Host& host = hardware_->host;
  return pool == graph::Pool::kHbm ? worse(gpu.hbm_capacity.origin, gpu.hbm_reserved.origin)
                                   : worse(host.dram_capacity.origin, host.pinned_fraction.origin);
}

}  // namespace kvcast::hardware

// Exchanges between the GPUs that share a layer.
//
// Over their own link (NVLink) every GPU reaches every other one: a small all-reduce takes one round, in which each
// reads all others' numbers, a large one two, in which each sums its part and distributes the result (the one-shot and
// two-shot kernels of vLLM and TensorRT-LLM). Without it, data pass through a PCIe switch or the host, and NCCL forms a
// ring, in which each GPU receives from one neighbour: 2·(n - 1) rounds of an n-th for an all-reduce, n - 1 rounds of
// the whole part for an all-gather (NVIDIA/nccl, src/graph/tuning.cc). Its short messages (protocol LL) carry a flag of
// four bytes with every four bytes of data, so that nothing is waited for but twice the bytes pass; its long ones
// (Simple) carry data alone between fences. The link to the host carries these bytes in both directions, next to the
// copies of the cache.

#include "hardware/work.hpp"

namespace kvcast::hardware {
namespace {

struct Route {
  double rounds = 1, received = 0;  // bytes that each GPU receives in all rounds
  double sent_per_byte = 1;         // bytes that pass for each of them
  bool fences = false;
};

// Time of the fences of an exchange of long messages over the host link.
const Value& fence_time() {
  static const Value kFences{
      9e-6, Origin::kLiterature, 0.4,
      "ai-dynamo/aiconfigurator, NCCL 2.27 and 2.29 on two L40S and two RTX PRO 6000, and flashinfer-ai/flashinfer "
      "pull "
      "request 5023: the constant of long all-reduces and all-gathers is 8 to 11 us above the time of small ones; "
      "NVIDIA/nccl, src/graph/tuning.cc, expects 11 us for two rounds"};
  return kFences;
}

Route over_own_link(const graph::Collective& work, double latency, double bandwidth) {
  const double others = work.ranks - 1;
  if (work.exchange == graph::Exchange::kAllGather) return {1, work.bytes * others};
  if (work.exchange == graph::Exchange::kNext) return {1, work.bytes};
  const Route once{1, work.bytes * others}, twice{2, 2 * work.bytes * others / work.ranks};
  const auto seconds = [&](const Route& route) { return route.rounds * latency + route.received / bandwidth; };
  return seconds(twice) < seconds(once) ? twice : once;
}

Route over_host_link(const graph::Collective& work, double rate) {
  const double others = work.ranks - 1;
  Route route{2 * others, 2 * work.bytes * others / work.ranks};
  if (work.exchange == graph::Exchange::kAllGather) route = {others, work.bytes * others};
  if (work.exchange == graph::Exchange::kNext) route = {1, work.bytes};
  route.fences = fence_time() < route.received / rate;
  route.sent_per_byte = route.fences ? 1 : 2;
  return route;
}

}  // namespace

Number peer_rate(const config::Link& link) {
  if (link.peer_bandwidth > 0) return number(link.peer_bandwidth);
  return number(link.h2d_bandwidth) * number(link.peer_share);
}

void add_collective(Terms& terms, const config::Hardware& machine, const graph::Collective& work) {
  if (work.ranks <= 1 || work.bytes <= 0) return;
  const config::Link& link = machine.link;
  terms.wait("kernel floor", at_clock(machine.gpu, number(machine.gpu.floor_small)));
  const bool own = link.peer_bandwidth > 0;
  const Number rate = peer_rate(link);
  const Route route = own ? over_own_link(work, link.peer_latency, rate.value) : over_host_link(work, rate.value);
  terms.wait("rounds of the exchange", number(link.peer_latency) * route.rounds);
  if (route.fences) terms.wait("fences of long messages", number(fence_time()));
  const Number received = exact(route.received * route.sent_per_byte);
  terms.work("from other GPUs", Resource::kPeer, received / rate);
  terms.work("device memory", Resource::kHbm, exact(work.bytes + route.received) / number(machine.gpu.hbm_bandwidth));
  if (own) return;
  terms.work("host link", Resource::kLinkIn, received / number(link.h2d_bandwidth));
  terms.work("host link, both ways", Resource::kLink, received * 2 / number(link.both_bandwidth));
}

}  // namespace kvcast::hardware

// Exchanges between the GPUs that share a layer.
//
// Over their own link (NVLink) every GPU reaches every other one: a small all-reduce takes one round, in which each
// reads all others' numbers, a large one two, in which each sums its part and distributes the result (the one-shot and
// two-shot kernels of vLLM and TensorRT-LLM). Without it, data pass through a PCIe switch or the host, and NCCL forms a
// ring, in which each GPU receives from one neighbour: 2·(n - 1) rounds of an n-th for an all-reduce, n - 1 rounds of
// the whole part for an all-gather (NVIDIA/nccl, src/graph/tuning.cc). The link to the host carries these bytes in
// both directions, next to the copies of the cache.

#include <algorithm>

#include "hardware/work.hpp"

namespace kvcast::hardware {
namespace {

struct Route {
  double rounds = 1, received = 0;  // bytes that each GPU receives in all rounds
};

Route over_own_link(const graph::Collective& work, double latency, double bandwidth) {
  const double others = work.ranks - 1;
  if (work.exchange == graph::Exchange::kAllGather) return {1, work.bytes * others};
  if (work.exchange == graph::Exchange::kNext) return {1, work.bytes};
  const Route once{1, work.bytes * others}, twice{2, 2 * work.bytes * others / work.ranks};
  const auto seconds = [&](const Route& route) { return route.rounds * latency + route.received / bandwidth; };
  return seconds(twice) < seconds(once) ? twice : once;
}

Route over_host_link(const graph::Collective& work) {
  const double others = work.ranks - 1;
  if (work.exchange == graph::Exchange::kAllGather) return {others, work.bytes * others};
  if (work.exchange == graph::Exchange::kNext) return {1, work.bytes};
  return {2 * others, 2 * work.bytes * others / work.ranks};
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
  const Route route = own ? over_own_link(work, link.peer_latency, link.peer_bandwidth) : over_host_link(work);
  terms.wait("rounds of the exchange", number(link.peer_latency) * route.rounds);
  const Number received = exact(route.received);
  terms.work("from other GPUs", Resource::kPeer, received / peer_rate(link));
  terms.work("device memory", Resource::kHbm, exact(work.bytes + route.received) / number(machine.gpu.hbm_bandwidth));
  if (own) return;
  terms.work("host link", Resource::kLinkIn, received / number(link.h2d_bandwidth));
  terms.work("host link, both ways", Resource::kLink, received * 2 / number(link.both_bandwidth));
}

}  // namespace kvcast::hardware

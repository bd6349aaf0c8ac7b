// Work of the host: calls of the threads that drive the GPU, and CPU attention.
//
// CPU workers take whole items, so `items` take ceil(items / cores) rounds: with b · n_kv items on 56 cores the last
// round is mostly idle (CTkvr's throughput depends on it). A core gathers pieces and multiplies at rates of its own,
// one after the other: prefetched rows arrive no sooner while it multiplies (cpu_sparse_attention over the query heads
// of a group, on an EPYC: the median error of a roofline is 28 %, that of the sum 12 %). If pieces lie at random, lines
// of the page tables come from memory too, once for all pieces that they serve: 4096 rows of 256 B out of 16 MiB take
// half as long as out of 128 MiB. Picking and counting have rates per entry, and each bucket of a hash table has an
// access time. The clock falls linearly as more cores are busy, from one to all: in a last round of few items it is
// higher.
//
// An operator of a framework wakes as many workers as it has work for: it takes an operator's time and a share of fork
// and join.

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "hardware/work.hpp"

namespace kvcast::hardware {

Resource thread_of(graph::Lane lane) {
  switch (lane) {
    case graph::Lane::kHost:
      return Resource::kHostThread;
    case graph::Lane::kRecallThread:
      return Resource::kRecallThread;
    case graph::Lane::kBackupThread:
      return Resource::kBackupThread;
    default:
      break;
  }
  KVCAST_CHECK(!"host work on a lane that is no host thread");
  return Resource::kHostThread;
}

void add_host_calls(Terms& terms, const config::Host& host, const config::Framework& framework,
                    const graph::HostWork& work, Resource thread) {
  using graph::HostCall;
  const auto calls = [&](const char* what, const Value& seconds) {
    terms.work(what, thread, number(seconds) * work.count);
  };
  switch (work.call) {
    case HostCall::kLaunch:
      return calls("kernel launches", host.launch);
    case HostCall::kGraphLaunch:  // one graph; count is the number of its kernels
      terms.work("graph launch", thread, number(host.graph_launch));
      return calls("graph nodes", host.graph_node);
    case HostCall::kEagerOp:
      return calls("eager operators", host.eager_op);
    case HostCall::kEagerLayer:
      return calls("eager layers", host.eager_layer);
    case HostCall::kStreamSync:
      return calls("stream synchronisations", host.stream_sync);
    case HostCall::kItemSync:
      return calls("scalars read back", host.item_sync);
    case HostCall::kPythonPage:
      return calls("pages of a Python loop", host.python_page);
    case HostCall::kPythonHead:
      return calls("heads of a Python loop", host.python_head);
    case HostCall::kTask:
      return calls("tasks handed over", host.task);
    case HostCall::kEngineStep:
      return calls("engine between steps", framework.engine_step);
    case HostCall::kEngineSequence:
      return calls("engine for each sequence", framework.engine_sequence);
    case HostCall::kPolicyStep:
      return calls("policy between steps", framework.policy_step);
    case HostCall::kEngineLayer:
      return calls("Python of the layers", framework.engine_layer);
    case HostCall::kPlanAttention:
      return calls("planning of attention", framework.attention_plan);
  }
  KVCAST_CHECK(!"a host call without a cost");
}

namespace {

// Scores that quickselect passes over again after the first time: its comparisons are 2 n (1 + H) on average, H being
// the entropy in nats of whether a score is kept (Knuth, Mathematical Analysis of Algorithms, 1971).
double ranked_again(const graph::CpuWork& work) {
  const double kept = work.ranked_per_item > 0 ? work.kept_per_item / work.ranked_per_item : 0;
  if (kept <= 0 || kept >= 1) return 0;
  return -work.ranked_per_item * (kept * std::log(kept) + (1 - kept) * std::log1p(-kept));
}

// Expected number of parts of `part` bytes, out of those that cover its region, that contain a place of an item: each
// place is equally likely to be in any part, parts · (1 − (1 − 1 / parts)^places).
double parts_met(const graph::CpuWork& work, double part) {
  const double parts = work.region_bytes / part;
  return parts * -std::expm1(work.places_per_item * std::log1p(-std::min(1 / parts, 1.0)));
}

// Lines of the page tables that an item has to fetch; a line that is there serves all later places. A line holds 8
// entries of 4 KiB each, the size of the pages that the CUDA runtime pins. A page of such entries, 2 MiB of memory,
// takes two more lines: its entry in the directory and, in a virtual machine, its own translation (cpu_gather_dot on an
// EPYC: median error 5.8 % without, 3.6 % with two, 3.7 % with three; without virtualisation 8 pages share a line of
// the directory).
double translation_lines(const graph::CpuWork& work) {
  constexpr double kPage = 4096, kEntries = 512, kEntriesOfLine = 8, kLinesOfTable = 2;
  if (work.places_per_item <= 0 || work.region_bytes <= 0) return 0;
  return parts_met(work, kEntriesOfLine * kPage) + kLinesOfTable * parts_met(work, kEntries * kPage);
}

// Mean rate of a core over all rounds, relative to its rate alone: in the last round only the remaining items keep
// cores busy.
double clock_share(const config::Host& host, double items, double workers) {
  const double cores = host.cores;
  const auto share = [&](double busy) {
    return cores > 1 ? 1 - (1 - host.all_core_derate) * std::max(0.0, busy - 1) / (cores - 1) : 1.0;
  };
  const double rounds = std::ceil(items / workers), rest = items - (rounds - 1) * workers;
  return rounds / ((rounds - 1) / share(workers) + 1 / share(rest));
}

}  // namespace

void add_cpu_work(Terms& terms, const config::Host& host, const graph::CpuWork& work) {
  const double cores = host.cores;
  const double workers = work.threads > 0 ? std::min(work.threads, cores) : cores;
  if (work.threads > 0) terms.wait("operator", number(host.eager_op));
  if (workers > 1 || work.threads == 0) terms.wait("fork and join", number(host.dispatch) * (workers / cores));
  if (work.items <= 0) return;
  const double items = std::ceil(work.items);
  Number derate = number(host.all_core_derate);
  derate.value = clock_share(host, items, workers);

  const Number gather = exact(work.bytes_per_item) / (at(host.core_bandwidth, work.unit_bytes) * derate);
  const Number multiply = exact(work.flops_per_item) / (number(host.core_flops) * derate);
  const Number library = exact(work.product_flops_per_item) / (number(host.core_products) * derate);
  const double rounds = std::ceil(items / workers);
  terms.work("gathers of the cores", Resource::kCores, gather * rounds);
  terms.work("translations of the cores", Resource::kCores,
             number(host.core_translation) * (translation_lines(work) * rounds) / derate);
  terms.work("arithmetic of the cores", Resource::kCores, multiply * rounds);
  terms.work("matrix products of the cores", Resource::kCores, library * rounds);
  terms.work("picking the largest", Resource::kCores,
             number(host.core_rank) * (work.ranked_per_item * rounds) / derate);
  terms.work("picking among what is left", Resource::kCores,
             number(host.core_rank_again) * (ranked_again(work) * rounds) / derate);
  terms.work("counting bucket entries", Resource::kCores,
             number(host.core_lookup) * (work.looked_up_per_item * rounds) / derate);
  terms.work("getting to buckets", Resource::kCores,
             number(host.core_bucket) * (work.buckets_per_item * rounds) / derate);
  const double bytes = items * work.bytes_per_item;
  terms.work("host memory", Resource::kDram, exact(bytes) / number(host.dram_bandwidth));
}

}  // namespace kvcast::hardware

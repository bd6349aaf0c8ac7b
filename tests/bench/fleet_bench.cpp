// A month of traffic for a fleet: 10 million requests on 64 replicas of vLLM V1, by each routing, with their summary.
//
//   fleet_bench [REQUESTS [REPLICAS [THREADS [ROUTING]]]]
//
// "a month": arrivals over 30 days. "busy": as fast as keeps the replicas three quarters busy, where passes have dozens
// of sequences. "offload": as fast, under a policy that keeps 512 tokens on the GPU and finds prefixes in host memory.
// Prompts share their starts (500 groups of 1K tokens), so that caches and the prefix router work. Prints seconds,
// seconds of CPU over all threads, requests a second of CPU, and the largest memory of the process so far, which must
// not grow with the requests.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <string_view>

#include "base/system_memory.hpp"
#include "serving/fleet.hpp"
#include "serving/summary.hpp"
#include "support/serving.hpp"

namespace {

using namespace kvcast;
using namespace kvcast::serving;

constexpr double kMonth = 30 * 86400.0, kBusy = 6;  // seconds; requests a second and replica

// Poisson arrivals of prompts that begin like those of their group.
class Grouped final : public traffic::RequestSource {
 public:
  Grouped(double rate, std::int64_t count)
      : all_(rate, count, 3, [this](std::uint64_t i) {
          return std::pair<std::int64_t, std::int64_t>(1024 + lengths_.below(2 * i, 2048),
                                                       50 + lengths_.below(2 * i + 1, 300));
        }) {}
  Picoseconds next() override { return all_.next(); }
  traffic::Request take() override {
    traffic::Request taken = all_.take();
    taken.content.push_back({1 + lengths_.below(static_cast<std::uint64_t>(taken.id) + (1u << 30), 500), 1024});
    return taken;
  }
  bool open() const override { return true; }
  void ended(const traffic::Request&, Picoseconds) override {}

 private:
  Stream lengths_{7};
  tests::PoissonRequests all_;
};

// Keeps 512 tokens on the GPU, and all in the host, where a tenth of the requests' prompts fit at a time.
class Offloading final : public Footprint {
 public:
  explicit Offloading(std::int64_t block) : full_(block) {}
  std::int64_t reading(std::int64_t tokens) const override { return full_.reading(tokens); }
  std::int64_t decoding(std::int64_t known, std::int64_t tokens) const override {
    return full_.reading(std::min<std::int64_t>(known, 512) + tokens - known);
  }
  double host_bytes(std::int64_t tokens) const override { return kTokenBytes * static_cast<double>(tokens); }
  bool keeps_all() const override { return false; }
  static constexpr double kTokenBytes = 131072, kHostBytes = 500e9;

 private:
  FullCache full_;
};

double peak_gigabytes() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_maxrss) * 1024 / 1e9;
}

void run(const char* name, double rate, std::int64_t requests, const Fleet& fleet, bool offloads = false) {
  Rules rules = Rules::of(Engine::kVllmV1);
  rules.blocks = 25'000;
  FootprintOf footprint_of = tests::full_cache(rules.block);
  if (offloads) {
    rules.host_copies = true;
    rules.host_bytes = Offloading::kHostBytes;
    rules.tiers = {{Offloading::kHostBytes}};
    rules.stored_bytes = rules.link_bytes = Offloading::kTokenBytes * static_cast<double>(rules.block);
    rules.link = {50e9, 50e9, 100e9};
    footprint_of = [shared = std::make_shared<Offloading>(rules.block)](const traffic::Request&) { return shared; };
  }
  Grouped source(rate, requests);
  tests::LinearTimes times = tests::step_times();
  std::deque<SummaryRecorder> recorders;
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu = std::clock();
  serve_fleet(source, fleet, rules, [&](std::int64_t) {
    return ReplicaParts{&times, footprint_of,
                        &recorders.emplace_back(SummaryRecorder::Setting{{}, rules.blocks, false})};
  });
  for (std::size_t k = 1; k < recorders.size(); ++k) recorders[0].add(recorders[k]);
  const Summary summary = recorders[0].summary();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double worked = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
  fmt::print(
      "{:<8} {:<12} {:7.1f} s  {:7.1f} s CPU  {:8.0f} requests/s  {:.2f} GB   served {:.0f}, TTFT mean {:.3f} s, "
      "hits {:.1f} %, busy {:.1f} %\n",
      name, config::routing_name(fleet.routing), seconds, worked, static_cast<double>(requests) / worked,
      peak_gigabytes(), summary.completed, summary.ttft.mean, 100 * summary.prefix_hit_share, 100 * summary.busy_share);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  kvcast::keep_freed_memory();
  const auto argument = [&](int i, long fallback) { return argc > i ? std::atol(argv[i]) : fallback; };
  const std::int64_t requests = argument(1, 10'000'000), replicas = argument(2, 64);
  for (const config::Routing routing :
       {config::Routing::kRoundRobin, config::Routing::kLeastLoaded, config::Routing::kPrefix}) {
    if (argc > 4 && argv[4] != std::string_view(config::routing_name(routing))) continue;
    const Fleet fleet{replicas, routing, static_cast<int>(argument(3, 2))};
    run("a month", static_cast<double>(requests) / kMonth, requests, fleet);
    run("busy", kBusy * static_cast<double>(replicas), requests, fleet);
    run("offload", kBusy * static_cast<double>(replicas), requests, fleet, true);
  }
}

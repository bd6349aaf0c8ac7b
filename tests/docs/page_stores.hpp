// The two small sweeps that the queries of docs/results.md are shown on.
#pragma once

#include <fmt/format.h>

#include <string>

#include "store/store.hpp"

namespace kvcast::tests {

struct PageRun {
  const char* policy;
  std::int64_t batch;
  double tokens_per_s;  // 0: does not fit
};

// A result at 32K tokens. Its throughput is uncertain by a factor of 1.25 in both directions.
inline result::Result page_result(const std::string& hardware, const PageRun& run) {
  using namespace result;
  Result r;
  Subject& s = r.subject;
  s.name = "link", s.model = "llama-3.1-8b", s.hardware = hardware, s.policy = run.policy;
  s.prompt_tokens = 32768, s.decode_tokens = 512, s.batch = run.batch;
  s.settings = {{"hardware", hardware}, {"model", s.model}};
  if (s.policy != "full") s.settings.push_back({"policy.budget", std::int64_t{1024}});
  s.settings.push_back({"policy.name", s.policy});
  s.settings.push_back({"workload.batch", run.batch});
  r.key = fmt::format("{} {} {}", hardware, s.policy, run.batch);
  Experiment& e = r.experiment;
  e.hbm.capacity = 24e9, e.hbm.peak = e.decode_hbm.peak = 16e9 + 1e9 * static_cast<double>(run.batch);
  r.accuracy.recall_mass_mean = s.policy == "full" ? 1 : 0.9;
  if (run.tokens_per_s == 0) {
    r.status = Status::kOom;
    e.oom = OutOfMemory{"hbm", "prefill, layer 20", 17e9, 16e9, 24e9, {{"weights", 16e9}}, "KV cache"};
    return r;
  }
  e.tokens_per_s = run.tokens_per_s;
  e.tpot_mean_s = e.tpot_p50_s = e.tpot_p99_s = static_cast<double>(run.batch) / run.tokens_per_s;
  e.step.exposed[0] = e.step.bound[0] = e.tpot_mean_s;
  Effect effect{"link benchmark", {"link.h2d_bandwidth"}, {}, {}};
  effect.longer.step = 1.25, effect.shorter.step = 0.8;
  e.effects = {effect};
  return r;
}

// DIR/pcie4 and DIR/pcie5.
inline void write_page_stores(const std::string& dir) {
  const auto write = [&](const char* name, double freekv_1, double freekv_4) {
    auto store = store::Store::open(fmt::format("{}/{}", dir, name), store::Store::Open::kCreate);
    const std::string hardware = fmt::format("rtx-{}", name);
    std::int64_t ordinal = 0;
    for (const PageRun& run : {PageRun{"full", 1, 100},
                               {"full", 4, 0},
                               {"quest", 1, 120},
                               {"quest", 4, 400},
                               {"freekv", 1, freekv_1},
                               {"freekv", 4, freekv_4}}) {
      store.put(ordinal++, page_result(hardware, run), "page");
    }
  };
  write("pcie4", 90, 300);
  write("pcie5", 99, 390);
}

}  // namespace kvcast::tests

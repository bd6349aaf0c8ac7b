// A result whose numbers can be worked out by hand.
#pragma once

#include "result/result.hpp"

namespace kvcast::tests {

// Decoding takes 10 ms a step, of which 6 ms are GEMMs and 4 ms copies from the host (5 ms more of them are hidden);
// two sequences, so 200 tokens/s. The prefill takes 2 s, a prompt one. The link's uncertainty is 10 % of its seconds,
// and that of the HBM is 5 %.
inline result::Result small_result() {
  using namespace result;
  Result r;
  r.key = "k1";
  r.subject.name = "small";
  r.subject.model = "llama-3.1-8b", r.subject.hardware = "h200", r.subject.host = "generic";
  r.subject.policy = "quest", r.subject.category = policy::Category::kGpuRetrieval,
  r.subject.trace = "recipe needle, seed 1";
  r.subject.prompt_tokens = 32768, r.subject.decode_tokens = 512, r.subject.batch = 2;
  r.subject.settings = {{"hardware", std::string("h200")},
                        {"model", std::string("llama-3.1-8b")},
                        {"policy.budget", std::int64_t{1024}},
                        {"policy.name", std::string("quest")},
                        {"policy.tau", 0.8},
                        {"workload.batch", std::int64_t{2}}};
  r.subject.swept = {{"policy.budget", "1024"}};
  Experiment& e = r.experiment;
  e.ttft_s = 2, e.first_ttft_s = 1;
  e.tpot_mean_s = 0.010, e.tpot_p50_s = 0.010, e.tpot_p99_s = 0.012;
  e.tokens_per_s = 200;
  const auto gemm = static_cast<std::size_t>(graph::Kind::kGemm);
  const auto copy = static_cast<std::size_t>(graph::Kind::kCopyIn);
  e.step.exposed[gemm] = 0.006, e.step.exposed[copy] = 0.004, e.step.hidden[copy] = 0.005;
  e.step.bound[static_cast<std::size_t>(metrics::Bound::kLink)] = 0.007;
  e.step.bound[static_cast<std::size_t>(metrics::Bound::kHbm)] = 0.003;
  e.step.origin[static_cast<std::size_t>(Origin::kFitted)] = 0.0097;
  e.step.origin[static_cast<std::size_t>(Origin::kAssumed)] = 0.0003;
  e.prefill.exposed[gemm] = 2;
  e.prefill.origin[static_cast<std::size_t>(Origin::kLiterature)] = 2;
  e.hbm = {80e9, 50e9, {{"weights", 16e9}, {"activations", 20e9}, {"KV cache", 14e9}}};
  e.decode_hbm = {80e9, 31e9, {{"weights", 16e9}, {"KV cache", 14e9}, {"activations", 1e9}}};
  e.dram = {1e12, 3e9, {{"low-rank keys", 3e9}}};
  e.traffic.hbm_read = 18e9, e.traffic.h2d = 5e6;
  Effect link{"a link benchmark", {"link.h2d_bandwidth"}, {}, {}};
  link.longer.step = 1.1, link.shorter.step = 0.9;
  Effect hbm{"an HBM benchmark", {"gpu.stream_efficiency", "gpu.gather_efficiency"}, {}, {}};
  hbm.longer.step = 1.05, hbm.shorter.step = 0.96, hbm.longer.prefill = 1.02, hbm.shorter.prefill = 0.98;
  e.effects = {hbm, link};
  e.engine_ops = 1000, e.engine_events = 2000;
  r.accuracy.recall_mass_mean = 0.9, r.accuracy.attended_mean = 1024;
  return r;
}

}  // namespace kvcast::tests

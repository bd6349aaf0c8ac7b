// Results of runs with numbers that are easy to work with by hand.
#pragma once

#include <string>

#include "result/result.hpp"

namespace kvcast::tests {

inline constexpr auto kGemm = static_cast<std::size_t>(graph::Kind::kGemm),
                      kIndex = static_cast<std::size_t>(graph::Kind::kIndex);

inline metrics::Attribution gemm_for(double seconds) {
  metrics::Attribution time;
  time.exposed[kGemm] = seconds;
  return time;
}

// A step of which half a second is GEMM and the rest idle, on costs from literature; a prefill on assumed ones.
inline result::Result made_up(double tpot, double ttft, double hbm) {
  result::Result r;
  r.subject.batch = 4;
  result::Experiment& e = r.experiment;
  e.tpot_mean_s = tpot, e.tokens_per_s = 1 / tpot, e.ttft_s = ttft;
  e.step = gemm_for(0.25);
  e.step.hidden[kGemm] = 0.125;
  e.step.origin[static_cast<std::size_t>(Origin::kLiterature)] = 0.25;
  e.prefill.exposed[kIndex] = 0.5, e.prefill.hidden[kIndex] = 0.1;
  e.prefill.origin[static_cast<std::size_t>(Origin::kAssumed)] = 0.5;
  e.hbm.peak = hbm;
  e.decode_hbm.owners = {{"low-rank keys", 3}};
  return r;
}

inline result::Result misfit(const char* moment) {
  result::Result r;
  r.status = result::Status::kOom;
  r.experiment.oom = result::OutOfMemory{"hbm", moment, 1, 1, 1, {}, "KV cache"};
  return r;
}

// Effect of one source on a run with steps of `tpot`: longer and shorter steps, half of which are GEMM.
inline result::Effect effect(const char* source, double tpot, double longer, double shorter) {
  result::Effect e{source, {}, {}, {}};
  e.longer.step = longer / tpot, e.shorter.step = shorter / tpot;
  e.longer.step_parts = gemm_for(longer / 2), e.shorter.step_parts = gemm_for(shorter / 2);
  return e;
}

}  // namespace kvcast::tests

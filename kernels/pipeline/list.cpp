#include "pipeline/all.hpp"

namespace kvcast::kernels {

std::vector<Bench> pipeline_benches(const Machine& m) {
  return {pipeline_full(m),   pipeline_quest(m),    pipeline_rocketkv(m), pipeline_arkvale(m),
          pipeline_freekv(m), pipeline_shadowkv(m), pipeline_ctkvr(m)};
}

}  // namespace kvcast::kernels

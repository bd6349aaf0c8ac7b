// The kernel of query_similarity.cu, which describes it.
#pragma once

#include "cuda/case.hpp"

namespace kvcast::kernels {

// flags [rows] as 32-bit words: 1 if the mean cosine is below the threshold. rows = sequences · KV heads.
KVCAST_KERNEL KVCAST_BOUNDS(128) compare_queries(const Half* now, const Half* before, int rows, int group, int dim,
                                                 float threshold, float* cosines, std::uint32_t* flags) {
  const int row = static_cast<int>(block_x() * (block_threads() / 32) + warp_index());
  if (row >= rows) return;
  float mean = 0;
  for (int g = 0; g < group; ++g) {
    const std::size_t base = static_cast<std::size_t>(row * group + g) * static_cast<std::size_t>(dim);
    float dot = 0, a2 = 0, b2 = 0;
    for (int c = static_cast<int>(lane_index()) * 8; c < dim; c += 256) {
      float a[8], b[8];
      unpack8(load16(now + base + static_cast<std::size_t>(c)), a);
      unpack8(load16(before + base + static_cast<std::size_t>(c)), b);
      KVCAST_UNROLL
      for (int i = 0; i < 8; ++i) {
        dot += a[i] * b[i];
        a2 += a[i] * a[i];
        b2 += b[i] * b[i];
      }
    }
    const float norms = sqrtf(warp_sum(a2)) * sqrtf(warp_sum(b2));
    dot = warp_sum(dot);
    mean += norms > 0 ? dot / norms : 0;
  }
  mean /= static_cast<float>(group);
  if (lane_index() == 0) {
    cosines[row] = mean;
    flags[row] = mean < threshold ? 1u : 0u;
  }
}

}  // namespace kvcast::kernels

#include "cuda/all.hpp"

namespace kvcast::kernels {

std::vector<Bench> kernel_benches(const Machine& m) {
  return {hbm_stream(m),       hbm_gather(m),        convert(m),          topk(m),
          page_summary(m),     page_score(m),        dim_score(m),        keydiff(m),
          query_similarity(m), snapkv_score(m),      lsh_hash(m),         centroid_recall(m),
          decode_attention(m), sparse_attention(m),  ragged_attention(m), key_rebuild(m),
          kivi_attention(m),   prefill_attention(m), lse_merge(m)};
}

}  // namespace kvcast::kernels

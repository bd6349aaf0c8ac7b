// Decode attention in passes that also read prompts, in kernels that neither pack query heads nor split rows.
#include <algorithm>

#include "hardware/work.hpp"

namespace kvcast::hardware {
namespace {

// FlashAttention-2's kernel of unequal lengths neither packs query heads nor splits rows, on any GPU: share of a
// group's heads, beyond the first, that read the pairs again; cycles for each token of a row, which one block reads.
struct Flash2 {
  Value rereads, token;
};
const Flash2& flash_2_beside_prompts() {
  static const Flash2 kFlash2{{1, Origin::kMeasured, 0.12,
                               "PyTorch 2.11's FlashAttention-2 on an H100, 8 to 64 decodes beside chunks of 512 and "
                               "2048: 2.8 to 5.8 times the "
                               "decodes alone with 4 query heads for each KV head, 5.1 to 10.1 times with 8"},
                              {88, Origin::kMeasured, 0.1,
                               "the same kernel, one decode beside the first chunk of 512: 1.46 ms more for 32768 "
                               "tokens, 0.17 for 4096, with 4 "
                               "query heads for each KV head as with 8, at 1.98 GHz"}};
  return kFlash2;
}

const Value& mixed_pass_rereads(const config::Gpu& gpu, const config::Framework& framework) {
  // vLLM V0 has a kernel for prompts and another for decodes (vllm/attention/backends/flash_attn.py of 0.5 and 0.6).
  static const Value kApart{0, Origin::kLiterature, 0, "kernels of their own for prompts and for decodes"};
  if (framework.scheduler.kind == config::SchedulerRules::Kind::kVllmV0) return kApart;
  const bool flash_2 = framework.attention_kernels == config::Framework::AttentionKernels::kFlash2;
  return flash_2 ? flash_2_beside_prompts().rereads : gpu.mixed_pass_rereads;
}

}  // namespace

Number rereads(const config::Gpu& gpu, const config::Framework& framework, double group) {
  Number factor = number(mixed_pass_rereads(gpu, framework));
  const double more = factor.value * (group - 1);
  factor.value = 1 + more;
  factor.uncertainty *= more / factor.value;
  return factor;
}

void add_whole_rows(Terms& terms, const config::Gpu& gpu, const config::Framework& framework,
                    const graph::DecodeAttention& work) {
  const double share = std::min(1.0, mixed_pass_rereads(gpu, framework).value);
  if (!work.beside_prompts || work.rows <= 0 || share <= 0) return;
  const double longest = std::max(work.longest, work.tokens / work.rows), alone = terms.alone();
  Number row = number(flash_2_beside_prompts().token) * (longest / gpu.clock);
  row.value = share * (row.value - alone);
  if (row.value > 0) terms.wait("rows that are not split", row);
}

}  // namespace kvcast::hardware

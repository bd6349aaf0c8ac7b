// SnapKV (Li et al., 2024, arXiv 2404.14469).
//
// Idea: the answer attends to the same tokens as the end of the prompt.
// Selection, once after the prompt: the last `window` queries' softmax weights, summed over rows, reduced over the
// group, pooled along positions. The best budget − window positions and the window itself are kept. Generated tokens
// are never evicted. A prompt of at most `budget` tokens is not compressed.
// `decode_eviction`: a step's own weights, reduced and pooled, rank the tokens before the last `window`; the cache
// stays at `budget` tokens (KeyDiff's comparison, arXiv 2504.15364, section 4 and appendix F.2).
// Cost of the prefill: window scores (flops 2·n_q·w·S·d, keys read once, scores n_q·w·S·4 bytes written and read
// twice), top-k, compaction of the kept tokens. Decode: 2·n_kv·(budget + T)·d·b; per head, n_q instead of n_kv; decode
// eviction writes and ranks each step's weights.
// Storage: 2·n_kv·(budget + T)·d·b; per head every query head has its own copy, n_q instead of n_kv.
#include "policy_parts/prompt_eviction.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::snapkv {
namespace {

Fields<PromptEviction> snapkv_fields() {
  return prompt_eviction_fields(32, "max", 7, {"sum_weights", "mean_weights", "max_weights", "per_head"})
      .add(flag("decode_eviction", false,
                "also evict at every step, by its weights, so that the budget bounds the cache"),
           &PromptEviction::decode_eviction)
      .add(growing_parameter(), &PromptEviction::grows);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "snapkv";
  d.sentence = "Keeps the prompt tokens to which the last prompt queries attend, and all generated tokens.";
  d.category = Category::kDrop;
  d.paper = "Li et al., SnapKV, 2024 (arXiv 2404.14469)";
  describe_prompt_eviction(d, snapkv_fields(), {}, false);
  describe_decode_eviction(d, snapkv_fields());
  d.budget_convention =
      "prompt tokens, including the window; in addition generated tokens or, with decode_eviction, the "
      "current token";
  d.formulas = {"traffic: 2·n_kv·(min(S, budget) + T)·d·b per step (n_q instead of n_kv per head)",
                "storage: the same number of bytes; with decode_eviction T is at most 1"};
  d.differences = {"the released code selects per query head and stores a copy for each: group: per_head",
                   "defaults are those of its LongBench settings (window 32, max pooling over 7)",
                   "KeyDiff's comparison also evicts while decoding: decode_eviction"};
  return d;
}

}  // namespace kvcast::policy::snapkv

// RazorAttention (Tang et al., "RazorAttention: Efficient KV Cache Compression Through Retrieval Heads", ICLR 2025,
// arXiv 2407.15891).
//
// Idea: heads that attend to earlier occurrences of a token, or to the token after these, carry all long-range
// information; one averaged token can replace what the other heads drop.
// Selection: full heads are the best `echo_share` of all KV heads by echo score and the best `induction_share` by
// induction score; a KV head has the largest of its query heads' scores. All others keep the first `sink` and the last
// max(least_buffer, prompt/divisor) tokens; the D tokens that left enter the softmax as one pair of means with weight
// D·exp(q·k̂/√d) (`compensation`).
// Cost and storage: as DuoAttention with that window, and one pair of means per streaming head, read at each step.
// Limit: a window over all tokens, or shares of 1, is full attention.
#include <algorithm>
#include <cmath>

#include "policy_parts/head_split.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::razor_attention {
namespace {

struct RazorSetting {
  HeadSplit split;
  double echo_share = 0, induction_share = 0, divisor = 1;
  std::int64_t least_buffer = 0;
};

Fields<RazorSetting> razor_attention_fields() {
  using S = RazorSetting;
  return Fields<S>()
      .add(real("echo_share", 0.01,
                "share of all KV heads that keep everything because of their echo score, rounded up"),
           &S::echo_share)
      .add(real("induction_share", 0.14,
                "share of all KV heads that keep everything because of their induction score, rounded up"),
           &S::induction_share)
      .add(whole("sink", 4, "tokens", "first tokens that the other heads keep"), &S::split, &HeadSplit::sink)
      .add(whole("least_buffer", 4000, "tokens",
                 "smallest number of last tokens that the other heads keep, including the current one"),
           &S::least_buffer)
      .add(real("divisor", 5.0, "the other heads keep at least the prompt's length over this", 1, 1e9), &S::divisor)
      .add(flag("compensation", true, "replace dropped tokens by their mean pair"), &S::split, &HeadSplit::compensate)
      .add(block_parameter(), &S::split, &HeadSplit::block)
      .add(profile_parameter("echo and induction scores of heads"));
}

std::unique_ptr<Policy> make_razor_attention(const ParameterValues& values) {
  RazorSetting s = razor_attention_fields().read(values);
  HeadSplit& split = s.split;
  split.profile = load_profile(values, {"echo", "induction"});
  const double heads = split.profile->n_layers * split.profile->n_kv_heads;
  for (const auto& [kind, share] : {std::pair("echo", s.echo_share), std::pair("induction", s.induction_share)}) {
    // Rounds up, with a tolerance: 0.14 · 100 is 14, although the floating-point product may be larger.
    const double n = std::ceil(share * heads - 1e-9);
    const FullHeads best =
        best_heads(kv_head_scores(*split.profile, kind, HeadReduce::kMax), static_cast<std::int64_t>(n));
    if (split.full.empty()) split.full = best;
    for (std::size_t layer = 0; layer < best.size(); ++layer) {
      for (std::size_t h = 0; h < best[layer].size(); ++h) {
        if (best[layer][h]) split.full[layer][h] = true;
      }
    }
  }
  return split_heads([s](const Lengths& request) {
    HeadSplit of_prompt = s.split;
    const double scaled = request.prompt_tokens / s.divisor;
    of_prompt.recent = std::max(s.least_buffer, static_cast<std::int64_t>(scaled));
    return of_prompt;
  });
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "razor_attention";
  d.sentence = "Retrieval heads keep everything; in the others one averaged token replaces all dropped ones.";
  d.category = Category::kDrop;
  d.no_ends = "the last tokens of a head follow from least_buffer and divisor";
  d.paper = "Tang et al., RazorAttention, ICLR 2025 (arXiv 2407.15891)";
  d.parameters = razor_attention_fields().parameters();
  d.formulas = {"traffic: 2·d·b·(n_f·L + (n_kv − n_f)·(min(L, sink + buffer) + 1)) per step",
                "storage: the same number of bytes; buffer = max(least_buffer, ⌊S/divisor⌋)"};
  d.differences = {"the buffer's length is fixed at the end of the prompt",
                   "FreeKV's comparison uses a share of 0.15, DuoAttention's streaming heads and no compensation",
                   "models with ALiBi, for which the paper derives the window from the bias, are not modelled",
                   "attended counts exclude the averaged pair; output_error and the cost include it"};
  d.needs = [](const ParameterValues&, const Lengths&) { return ReplayNeeds{.coupled = true}; };
  d.make = make_razor_attention;
  return d;
}

}  // namespace kvcast::policy::razor_attention

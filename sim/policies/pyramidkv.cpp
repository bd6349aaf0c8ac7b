// PyramidKV (Cai et al., "PyramidKV: Dynamic KV Cache Compression based on Pyramidal Information Funneling", 2024,
// arXiv 2406.02069).
//
// Idea: lower layers spread their attention and need more tokens than upper layers.
// Selection: SnapKV's, with layer l keeping most − l·step tokens and the window: most = 2·(budget − w) − least, least =
// ⌊(budget − w)/β⌋, step = ⌊(most − least)/(layers − 1)⌋. least and most are adapted if the prompt is shorter than
// most, and a prompt shorter than 2·(budget − w) has the same budget in every layer.
// Cost and storage: SnapKV's, layer by layer.
#include "policy_parts/prompt_eviction.hpp"

namespace kvcast::policy::pyramidkv {

Descriptor describe() {
  Descriptor d;
  d.name = "pyramidkv";
  d.sentence = "SnapKV with more tokens in lower layers and fewer in upper ones, by a fixed schedule.";
  d.category = Category::kDrop;
  d.paper = "Cai et al., PyramidKV, 2024 (arXiv 2406.02069)";
  using S = PromptEviction;
  Fields<S> fields = prompt_eviction_fields(32, "max", 7);
  fields.add(whole("beta", 20, "", "the last layer keeps 1/beta of the budget", 1, 1e6), &S::beta)
      .add(choice("schedule", {"whole", "smooth"},
                  "whole: steps in whole tokens, budgets exclude the window (released code); smooth: real steps, "
                  "rounded at the end, budgets include the window (kvpress)"),
           &S::layers, {LayerBudgets::kPyramid, LayerBudgets::kSmoothPyramid});
  describe_prompt_eviction(d, fields);
  d.budget_convention =
      "prompt tokens, including the window, on average over layers; generated tokens are kept in addition";
  d.formulas = {
      "traffic: 2·n_kv·(keep_l + w + T)·d·b per step in layer l",
      "storage: the sum of this over layers; rounding the step down adds up to (layers − 1)/2 tokens per layer"};
  d.differences = {"the released script sets window 8, max pooling over 7; defaults here are SnapKV's window of 32",
                   "the released code keeps one set per query head: group: per_head"};
  d.prefill = config::SchedulerRules::Prefill::kAlone;
  d.prefill_source =
      "CURRENTF/Sparse-vLLM, method_registry.py: its long prompts are read whole, one at a time "
      "(long_bs1full_short_batch), those of other policies that evict in chunks";
  return d;
}

}  // namespace kvcast::policy::pyramidkv

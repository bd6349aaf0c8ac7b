// How a budget of tokens is shared out over layers, and within a layer over heads. Plain arithmetic on whole tokens.
//
// Unless said otherwise a budget here leaves the observation window out, which stays in every head on top.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvcast::policy {

using Budgets = std::vector<std::int64_t>;

// PyramidKV (Cai et al., 2024, arXiv 2406.02069; its released code): from the first layer to the last a fall in equal
// steps, from 2·base − ⌊base/β⌋ to about ⌊base/β⌋, with base tokens a layer on average up to the rounding of the step.
// `available`: prompt tokens before the window; a prompt shorter than 2·base gets `base` everywhere. window: for the
// same test, as the code makes it, against the whole prompt. base ≥ 0, beta ≥ 1, layers ≥ 1.
struct Pyramid {
  std::int64_t base = 0, available = 0, window = 0;
  std::int64_t beta = 20;
};
Budgets pyramid_budgets(const Pyramid& pyramid, int layers);
// The same as kvpress has it: real steps, rounded at the end (halves to even); `base` and the results hold the window,
// which is why they may not be compared layer by layer. Flat where the last layer could not hold the window.
Budgets smooth_pyramid_budgets(const Pyramid& pyramid, int layers);

// CompressKV (Lin et al., 2025, arXiv 2508.02401), algorithm 1: `least` each, the rest by the scores, clipped to
// [least, most]; what rounding and clipping leave over goes one by one to the best score below `most`, or is taken from
// the worst above `least`; among equal scores the first layer. The window is inside. total = Σ unless the bounds
// forbid. Scores ≥ 0 that add up to 1.
Budgets error_aware_budgets(std::span<const double> scores, std::int64_t total, std::int64_t least, std::int64_t most);

// CAKE (Qin et al., ICLR 2025, arXiv 2503.12491; its released code): ⌊preference share · total⌋, capped at `available`;
// the excess is spread evenly over the layers below the cap, and what rounding leaves goes one by one to these layers
// in order. Σ = total unless all are capped. Preferences ≥ 0; all zero counts as all equal.
Budgets preference_budgets(std::span<const double> preferences, std::int64_t total, std::int64_t available);

// AdaKV (Feng et al., 2024, arXiv 2407.11550; KVCache-Factory's code): the best base·heads scores of the layer are
// counted by head; cap = round(count·(1 − floor) + ⌊base·floor⌋), halves to even. `normalise`: each head's scores are
// first multiplied by the share of its own best `base`. Equal scores: the earlier head, then the lower position.
// kvpress (`forced`): each head's own best ⌊base·floor⌋ are certain, the rest of base·heads are the best of all others,
// as they are.
struct Adaptive {
  std::int64_t base = 0;
  double floor = 0.2;
  bool normalise = true;
  bool forced = false;
};
Budgets adaptive_budgets(const Adaptive& setting, std::span<const std::vector<float>> scores);

// HeadKV (Fu et al., 2024, arXiv 2410.19258; its released code): every head gets base − ⌊base/β⌋ and a share of the
// pool of ⌊base/β⌋ tokens of every head of the model by its importance. importance: [layers × heads], ≥ 0, adds up to
// 1. One budget a head, in the same order, halves to even.
std::vector<double> importance_budgets(std::span<const double> importance, std::int64_t base, double beta);

}  // namespace kvcast::policy

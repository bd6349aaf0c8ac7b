// Distribution of a budget over layers, and over the heads of a layer, in whole tokens.
//
// Unless stated otherwise budgets exclude the observation window, which every head keeps in addition.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvcast::policy {

using Budgets = std::vector<std::int64_t>;

// PyramidKV (Cai et al., 2024, arXiv 2406.02069; its released code): budgets that fall in equal steps from 2·base −
// ⌊base/β⌋ in the first layer to about ⌊base/β⌋ in the last one, `base` tokens per layer on average up to the rounding
// of the step. `available`: prompt tokens before the window; a prompt shorter than 2·base gives every layer `base`.
// `window`: used in the same test, which the code makes with the whole prompt. base ≥ 0, beta ≥ 1, layers ≥ 1.
struct Pyramid {
  std::int64_t base = 0, available = 0, window = 0;
  std::int64_t beta = 20;
};
Budgets pyramid_budgets(const Pyramid& pyramid, int layers);
// PyramidKV as implemented in kvpress: real steps, rounded at the end (halves to even). Here `base` and the results
// include the window, so they are not comparable with pyramid_budgets() layer by layer. All layers get the same if the
// last one could not contain the window.
Budgets smooth_pyramid_budgets(const Pyramid& pyramid, int layers);

// CompressKV (Lin et al., 2025, arXiv 2508.02401), algorithm 1: `least` tokens per layer, the rest in proportion to the
// scores, clipped to [least, most]. The remainder of rounding and clipping is added token by token to the layer with
// the best score below `most`, or taken from the layer with the worst score above `least`; ties go to the first layer.
// Budgets include the window. They add up to `total` unless the bounds forbid it. Scores are ≥ 0 and add up to 1.
Budgets error_aware_budgets(std::span<const double> scores, std::int64_t total, std::int64_t least, std::int64_t most);

// CAKE (Qin et al., ICLR 2025, arXiv 2503.12491; its released code): ⌊preference share · total⌋, capped at `available`.
// The excess is spread evenly over the layers below the cap, and the remainder of rounding goes to them in order, one
// token each. Budgets add up to `total` unless all are capped. Preferences are ≥ 0; if all are zero, all are equal.
Budgets preference_budgets(std::span<const double> preferences, std::int64_t total, std::int64_t available);

// AdaKV (Feng et al., 2024, arXiv 2407.11550; KVCache-Factory's code): counts by head the best base·heads scores of the
// layer; cap = round(count·(1 − floor) + ⌊base·floor⌋), halves to even. `normalise`: first multiplies each head's
// scores by the share of its own best `base`. Ties go to the earlier head, then to the lower position. `forced`
// (kvpress): each head keeps its own best ⌊base·floor⌋, and the rest of base·heads are the best of all other scores,
// without normalisation.
struct Adaptive {
  std::int64_t base = 0;
  double floor = 0.2;
  bool normalise = true;
  bool forced = false;
};
Budgets adaptive_budgets(const Adaptive& setting, std::span<const std::vector<float>> scores);

// HeadKV (Fu et al., 2024, arXiv 2410.19258; its released code): every head gets base − ⌊base/β⌋ tokens and a share, by
// its importance, of a pool to which every head of the model contributes ⌊base/β⌋. importance: [layers × heads], ≥ 0,
// adds up to 1. Returns one budget per head in the same order, rounded with halves to even.
std::vector<double> importance_budgets(std::span<const double> importance, std::int64_t base, double beta);

}  // namespace kvcast::policy

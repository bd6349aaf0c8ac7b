// The number of tokens that a budget allows a head to attend to at a decode step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace kvcast::policy {

// Bounds on the attended tokens of a head.
struct BudgetRule {
  // The quantity that the budget counts: tokens attended to at a step, tokens kept between steps, tokens selected in
  // addition to those always read, or all traffic of a step in units of one token's keys and values.
  enum class Counts { kAttended, kRetained, kSelected, kTraffic };
  // The scope of the rule: every head, or the mean over the heads of a layer or over all heads of the model.
  enum class Over { kHead, kLayer, kModel };
  static constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();

  std::int64_t tokens = 0;  // tokens that the budget pays for
  // Largest number of tokens in addition: sink and window, the current token, the rest of a page.
  std::int64_t extra = 0;
  std::int64_t slack = 0;  // difference between most() and least(); kAny: least() is 1
  // tokens and extra limit prompt tokens only, and every generated token is attended to as well.
  bool generated_on_top = false;
  Counts counts = Counts::kAttended;
  Over over = Over::kHead;

  // Largest and smallest number of tokens that a head attends to after `prompt` and `generated` tokens, the current one
  // included.
  std::int64_t most(std::int64_t prompt, std::int64_t generated) const {
    const std::int64_t held = tokens + extra;
    return generated_on_top ? std::min(prompt, held) + generated : std::min(prompt + generated, held);
  }
  std::int64_t least(std::int64_t prompt, std::int64_t generated) const {
    const std::int64_t n = most(prompt, generated);
    return slack < n ? n - slack : 1;
  }
};

// The word for a quantity in `budget_convention`.
const char* name(BudgetRule::Counts counts);

// Rules of policies that evict once, after the prompt, and of those that evict after each step.
inline BudgetRule evicts_once(std::int64_t budget) {
  return {.tokens = budget, .generated_on_top = true, .counts = BudgetRule::Counts::kRetained};
}
inline BudgetRule evicts_always(std::int64_t budget) {
  return {.tokens = budget, .extra = 1, .counts = BudgetRule::Counts::kRetained};
}
// Rule of a policy that reads everything up to `budget` tokens, and beyond that selects `chosen` tokens, of which up to
// `unfilled` may be missing because a page is not full.
inline BudgetRule chooses(std::int64_t budget, std::int64_t chosen, std::int64_t unfilled, std::int64_t prompt) {
  const std::int64_t most = prompt < budget ? budget : chosen;
  return {.tokens = most, .slack = most - chosen + unfilled};
}

}  // namespace kvcast::policy

// What a policy's budget allows: how many tokens a head attends to at a decode step.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace kvcast::policy {

struct BudgetRule {
  // What the budget counts: tokens attended to at a step, tokens held between steps, tokens chosen beside others that
  // are always there, or all traffic of a step in units of one token's keys and values.
  enum class Counts { kAttended, kRetained, kSelected, kTraffic };
  // What the rule holds of: every head, or the mean over the heads of a layer or over all heads of the model.
  enum class Over { kHead, kLayer, kModel };
  static constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();

  std::int64_t tokens = 0;        // that the budget pays for
  std::int64_t beside = 0;        // on top of them at most: sink and window, the current token, what fills a page
  std::int64_t fewer = 0;         // a step may attend to so many fewer than most(); kAny: to any number of them
  bool generated_on_top = false;  // both are of the prompt, and every generated token comes on top
  Counts counts = Counts::kAttended;
  Over over = Over::kHead;

  // The most that a head attends to after `prompt` and `generated` tokens, the current one included.
  std::int64_t most(std::int64_t prompt, std::int64_t generated) const {
    const std::int64_t held = tokens + beside;
    return generated_on_top ? std::min(prompt, held) + generated : std::min(prompt + generated, held);
  }
  std::int64_t least(std::int64_t prompt, std::int64_t generated) const {
    const std::int64_t n = most(prompt, generated);
    return fewer < n ? n - fewer : 1;
  }
};

// The word for it in `budget_convention`.
const char* name(BudgetRule::Counts counts);

// Of a policy that evicts once, after the prompt, and of one that evicts after each step.
inline BudgetRule evicts_once(std::int64_t budget) {
  return {.tokens = budget, .generated_on_top = true, .counts = BudgetRule::Counts::kRetained};
}
inline BudgetRule evicts_always(std::int64_t budget) {
  return {.tokens = budget, .beside = 1, .counts = BudgetRule::Counts::kRetained};
}
// Of one that reads everything while there are at most `budget` tokens, and of more tokens `chosen`, up to `unfilled`
// of which may be missing in a page that is not full.
inline BudgetRule chooses(std::int64_t budget, std::int64_t chosen, std::int64_t unfilled, std::int64_t prompt) {
  const std::int64_t most = prompt < budget ? budget : chosen;
  return {.tokens = most, .fewer = most - chosen + unfilled};
}

}  // namespace kvcast::policy

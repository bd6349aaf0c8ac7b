// The tokens that a second stage chooses from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvcast::policy {

// The tokens of one head that a second stage chooses from, in position order: what the first stage kept of the prompt,
// then all generated ones. Refers to the first stage's list.
class TokenList {
 public:
  // All of the prompt.
  explicit TokenList(std::int64_t prompt) : prompt_(prompt), whole_(true) {}
  // The positions in `kept`, ascending, all below `prompt`.
  TokenList(std::int64_t prompt, std::span<const std::int32_t> kept)
      : prompt_(prompt), whole_(static_cast<std::int64_t>(kept.size()) == prompt), kept_(kept) {}

  bool whole() const { return whole_; }
  std::int64_t prompt() const { return prompt_; }
  std::int64_t prompt_tokens_kept() const { return whole_ ? prompt_ : static_cast<std::int64_t>(kept_.size()); }
  // Tokens at decode step t, the current one included.
  std::int64_t size(int t) const { return prompt_tokens_kept() + t + 1; }
  std::int32_t position(std::int64_t index) const {
    if (whole_) return static_cast<std::int32_t>(index);
    const auto n = static_cast<std::int64_t>(kept_.size());
    return index < n ? kept_[static_cast<std::size_t>(index)] : static_cast<std::int32_t>(prompt_ + index - n);
  }
  // Positions of all tokens at step t, appended to `out`.
  void append_all(int t, std::vector<std::int32_t>& out) const;

 private:
  std::int64_t prompt_;
  bool whole_;
  std::span<const std::int32_t> kept_;
};

}  // namespace kvcast::policy

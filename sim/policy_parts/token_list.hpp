// The tokens from which a second stage selects.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvcast::policy {

// The tokens of one head from which a second stage selects, in position order: the part of the prompt that the first
// stage kept, then all generated tokens. Refers to the first stage's list.
class TokenList {
 public:
  // The whole prompt.
  explicit TokenList(std::int64_t prompt) : prompt_(prompt), whole_(true) {}
  // The positions in `kept`, ascending, all below `prompt`.
  TokenList(std::int64_t prompt, std::span<const std::int32_t> kept)
      : prompt_(prompt), whole_(static_cast<std::int64_t>(kept.size()) == prompt), kept_(kept) {}

  bool whole() const { return whole_; }
  std::int64_t prompt() const { return prompt_; }
  std::int64_t prompt_tokens_kept() const { return whole_ ? prompt_ : static_cast<std::int64_t>(kept_.size()); }
  // Number of tokens at decode step t, the current one included.
  std::int64_t size(int t) const { return prompt_tokens_kept() + t + 1; }
  std::int32_t position(std::int64_t index) const {
    if (whole_) return static_cast<std::int32_t>(index);
    const auto n = static_cast<std::int64_t>(kept_.size());
    return index < n ? kept_[static_cast<std::size_t>(index)] : static_cast<std::int32_t>(prompt_ + index - n);
  }
  // Appends the positions of all tokens at step t to `out`.
  void append_all(int t, std::vector<std::int32_t>& out) const;

 private:
  std::int64_t prompt_;
  bool whole_;
  std::span<const std::int32_t> kept_;
};

}  // namespace kvcast::policy

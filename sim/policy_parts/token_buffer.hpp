// The tokens of a layer that are on the GPU while all others are in host memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "policy/selection.hpp"

namespace kvcast::policy {

// The tokens of a layer on the GPU, and the step in which each was last used.
class TokenBuffer {
 public:
  // Starts with the first `size` of `tokens` tokens.
  void start(std::int64_t tokens, std::int64_t size) {
    used_.assign(static_cast<std::size_t>(tokens), kAbsent);
    held_ = std::min(tokens, size);
    std::fill(used_.begin(), used_.begin() + held_, -1);
  }

  // Updates the buffer for step t, which reads out.attended (ascending) after the newest of `tokens` tokens was
  // appended; appends to out.fetched and out.evicted.
  void use(int t, std::int64_t tokens, std::int64_t size, HeadSelection& out) {
    used_.resize(static_cast<std::size_t>(tokens), kAbsent);
    const auto newest = static_cast<std::int32_t>(tokens) - 1;
    const bool own_slot = tokens > size;
    if (!own_slot) take(newest, t);
    for (const std::int32_t i : out.attended) {
      if (own_slot && i == newest) continue;
      if (take(i, t)) out.fetched.push_back(i);
    }
    if (own_slot) out.evicted.push_back(newest);
    evict(t, held_ - size, out);
  }

 private:
  static constexpr int kAbsent = -2;

  // Evicts `surplus` tokens that step t did not use.
  void evict(int t, std::int64_t surplus, HeadSelection& out) {
    if (surplus <= 0) return;
    std::vector<std::pair<int, std::int32_t>> oldest;
    for (std::size_t i = 0; i < used_.size(); ++i) {
      if (used_[i] != kAbsent && used_[i] < t) oldest.emplace_back(used_[i], static_cast<std::int32_t>(i));
    }
    std::nth_element(oldest.begin(), oldest.begin() + surplus - 1, oldest.end());
    for (std::int64_t i = 0; i < surplus; ++i) {
      const std::int32_t gone = oldest[static_cast<std::size_t>(i)].second;
      used_[static_cast<std::size_t>(gone)] = kAbsent;
      out.evicted.push_back(gone);
    }
    held_ -= surplus;
    std::sort(out.evicted.begin(), out.evicted.end());
  }

  bool take(std::int32_t token, int t) {
    int& last = used_[static_cast<std::size_t>(token)];
    const bool missed = last == kAbsent;
    if (missed) ++held_;
    last = t;
    return missed;
  }

  std::vector<int> used_;  // by position: step of last use, -1 before the first
  std::int64_t held_ = 0;
};

}  // namespace kvcast::policy

#include "policy_parts/token_top_k.hpp"

namespace kvcast::policy {

TokenTopK::TokenTopK(StepScores products, const TokenList& tokens, const Shape& shape)
    : products_(std::move(products)), tokens_(tokens), s_(shape), rows_(products_.rows()) {}

void TokenTopK::step(int t, std::span<HeadSelection> out) {
  const std::int64_t n = tokens_.size(t);
  if (s_.budget >= n) {
    for (HeadSelection& head : out) tokens_.append_all(t, head.attended);
    return;
  }
  for (std::size_t g = 0; g < rows_.size(); ++g) {
    const std::span<const float> all = products_.row(t, g);
    rows_[g].resize(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) {
      rows_[g][static_cast<std::size_t>(i)] = all[static_cast<std::size_t>(tokens_.position(i))];
    }
  }
  if (s_.group == Group::kPerHead) {
    for (std::size_t g = 0; g < rows_.size(); ++g) take(rows_[g], out[g]);
    return;
  }
  const std::vector<std::span<float>> views(rows_.begin(), rows_.end());
  reduced_.resize(static_cast<std::size_t>(n));
  reduce_group(s_.group, views, s_.scale, reduced_);
  take(reduced_, out[0]);
}

void TokenTopK::take(std::span<float> scores, HeadSelection& out) {
  rank_first(scores, static_cast<std::size_t>(s_.sink), static_cast<std::size_t>(s_.recent));
  ranking_.select(scores, static_cast<std::size_t>(s_.budget), out.attended);
  for (std::int32_t& i : out.attended) i = tokens_.position(i);
  out.counts.scored = static_cast<std::int64_t>(scores.size());
}

}  // namespace kvcast::policy

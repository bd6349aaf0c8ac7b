#include "policy_parts/merging_cache.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace kvcast::policy {
namespace {

// Rows divided by their norms; a row of zeros stays.
std::vector<float> normalised(const std::vector<float>& rows, std::size_t d) {
  std::vector<float> out(rows);
  for (std::size_t first = 0; first < out.size(); first += d) {
    const float norm = std::sqrt(dot(out.data() + first, out.data() + first, d));
    for (std::size_t j = first; j < first + d && norm > 0; ++j) out[j] /= norm;
  }
  return out;
}

constexpr std::size_t kSlotsAtOnce = 256;

}  // namespace

MergingCache::MergingCache(const trace::Layer& layer, int kv_head, const Held& held)
    : d_(static_cast<std::size_t>(layer.info().head_dim)) {
  for (const std::int32_t i : held) append(layer, kv_head, i);
}

void MergingCache::append(const trace::Layer& layer, int kv_head, std::int32_t position) {
  const float* const key = layer.keys(kv_head).row(static_cast<std::size_t>(position));
  const float* const value = layer.values(kv_head).row(static_cast<std::size_t>(position));
  keys_.insert(keys_.end(), key, key + d_);
  values_.insert(values_.end(), value, value + d_);
}

void MergingCache::attend(const float* query, std::vector<float>& weights, std::vector<float>& output) const {
  weigh(query, size(), weights);
  output.resize(d_);
  multiply({weights.data(), 1, size(), size()}, {values_.data(), size(), d_, d_}, output.data(), d_);
}

void MergingCache::weigh(const float* query, std::size_t count, std::vector<float>& weights) const {
  KVCAST_CHECK(count >= 1 && count <= size());
  weights.resize(count);
  multiply_transposed({query, 1, d_, d_}, {keys_.data(), count, d_, d_}, weights.data(), count);
  softmax(weights, 1 / std::sqrt(static_cast<float>(d_)));
}

Departures MergingCache::shrink(const std::vector<std::int32_t>& stay) {
  KVCAST_CHECK(!stay.empty());
  Departures gone;
  std::size_t next = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    const float *const key = keys_.data() + i * d_, *const value = values_.data() + i * d_;
    if (next < stay.size() && i == static_cast<std::size_t>(stay[next])) {
      std::copy_n(key, d_, keys_.data() + next * d_);
      std::copy_n(value, d_, values_.data() + next * d_);
      ++next;
    } else {
      gone.keys.insert(gone.keys.end(), key, key + d_);
      gone.values.insert(gone.values.end(), value, value + d_);
    }
  }
  keys_.resize(stay.size() * d_);
  values_.resize(stay.size() * d_);
  const std::vector<float> kept = normalised(keys_, d_), left = normalised(gone.keys, d_);
  std::vector<float> cosines(kSlotsAtOnce * size());
  for (std::size_t first = 0; first < left.size() / d_; first += kSlotsAtOnce) {
    const std::size_t n = std::min(kSlotsAtOnce, left.size() / d_ - first);
    multiply_transposed({left.data() + first * d_, n, d_, d_}, {kept.data(), size(), d_, d_}, cosines.data(), size());
    for (std::size_t i = 0; i < n; ++i) {
      const auto row = cosines.begin() + static_cast<std::ptrdiff_t>(i * size());
      const auto best = std::max_element(row, row + static_cast<std::ptrdiff_t>(size()));
      gone.similarity.push_back(*best);
      gone.nearest.push_back(static_cast<std::size_t>(best - row));
    }
  }
  return gone;
}

void MergingCache::merge(const Departures& gone, const std::vector<bool>& merges) {
  std::vector<int> members(size(), 1);
  for (std::size_t i = 0; i < gone.nearest.size(); ++i) {
    if (!merges[i]) continue;
    const std::size_t to = gone.nearest[i];
    ++members[to];
    const auto weight = static_cast<float>(gone.similarity[i]);
    for (std::size_t j = 0; j < d_; ++j) {
      keys_[to * d_ + j] += weight * gone.keys[i * d_ + j];
      values_[to * d_ + j] += weight * gone.values[i * d_ + j];
    }
  }
  for (std::size_t i = 0; i < size(); ++i) {
    for (std::size_t j = 0; j < d_ && members[i] > 1; ++j) {
      keys_[i * d_ + j] /= static_cast<float>(members[i]);
      values_[i * d_ + j] /= static_cast<float>(members[i]);
    }
  }
}

}  // namespace kvcast::policy

// Decode attention over rows of unequal lengths: attention.cuh's kernel, with a list of the parts of all rows.
#pragma once

#include <algorithm>
#include <vector>

#include "cuda/attention.cuh"

namespace kvcast::kernels {

// A part of a row (sequence, KV head): its tokens, and its place among the parts, ordered by row.
struct RaggedPart {
  int row, first, last, place;
};

template <int kDim>
KVCAST_KERNEL KVCAST_BOUNDS(128)
    ragged_kernel(AttentionShape s, Divisor page, const RaggedPart* parts, const Half* query, const Half* keys,
                  const Half* values, const std::uint32_t* lists, AttentionOut to) {
  const RaggedPart p = parts[block_x()];
  attend_part<kDim>(s, page, query, keys, values, lists, p.row / s.groups, p.row % s.groups, p.first, p.last,
                    static_cast<std::size_t>(p.place) * static_cast<std::size_t>(s.heads_per_group), to);
}

// Query head `block` of a row has the parts begins[row] to begins[row + 1].
KVCAST_KERNEL KVCAST_BOUNDS(128) ragged_merge_kernel(int heads, const std::uint32_t* begins, const float* partial,
                                                     const float* lse, Half* out, float* out_lse) {
  const unsigned row = block_x() / static_cast<unsigned>(heads), head = block_x() % static_cast<unsigned>(heads);
  merge_parts(static_cast<int>(begins[row + 1] - begins[row]),
              std::size_t{begins[row]} * static_cast<std::size_t>(heads) + head, static_cast<std::size_t>(heads),
              partial, lse, out, out_lse);
}

// Tokens per part at most, in whole steps: of one, two and three rounds of parts over the device, those that make the
// sum of the rounds shortest; at least four steps, as in rows of equal length.
inline int ragged_part(const std::vector<int>& lengths, int slots) {
  constexpr int kStep = kAttentionTile * kAttentionWarps;
  const int longest = *std::max_element(lengths.begin(), lengths.end()), steps = (longest + kStep - 1) / kStep;
  const auto parts = [&](int each) {
    long long all = 0;
    for (const int length : lengths) all += (length + each * kStep - 1) / (each * kStep);
    return all;
  };
  int best = std::max(steps, 4), best_rounds = 0;
  for (int rounds = 1; rounds <= 3; ++rounds) {
    int low = 4, high = std::max(steps, 4);  // the fewest steps whose parts fit
    if (parts(high) > static_cast<long long>(rounds) * slots) continue;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (parts(middle) <= static_cast<long long>(rounds) * slots) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    if (best_rounds == 0 || rounds * low < best_rounds * best) best = low, best_rounds = rounds;
  }
  return best * kStep;
}

class RaggedRun {
 public:
  // lengths: of each row, sequence after sequence. by_length: rows have as many parts as their lengths need; otherwise
  // all have those of the mean length.
  RaggedRun(const AttentionShape& shape, int dim, const std::vector<int>& lengths, bool by_length, int sm_count)
      : s_(shape), dim_(dim), begins_host_{0} {
    const int slots = kAttentionResident * (sm_count > 0 ? sm_count : 4), rows = static_cast<int>(lengths.size());
    long long sum = 0;
    for (const int length : lengths) sum += length;
    const int same = AttentionRun::splits_for(static_cast<int>(sum / rows), rows, sm_count);
    const int each = ragged_part(lengths, slots);
    std::vector<RaggedPart> parts;
    for (int row = 0; row < rows; ++row) {
      const int length = lengths[static_cast<std::size_t>(row)], pieces = by_length ? (length + each - 1) / each : same;
      for (int i = 0; i < pieces; ++i) {
        const int first = split_begin(length, pieces, i), last = split_begin(length, pieces, i + 1);
        if (last > first) parts.push_back({row, first, last, static_cast<int>(parts.size())});
      }
      begins_host_.push_back(static_cast<std::uint32_t>(parts.size()));
    }
    joined_ = static_cast<int>(parts.size()) > rows;
    count_ = parts.size();
    // Long ones first, so that none is left when the others have ended.
    std::stable_sort(parts.begin(), parts.end(),
                     [](const RaggedPart& a, const RaggedPart& b) { return a.last - a.first > b.last - b.first; });
    parts_ = DeviceArray<RaggedPart>(parts);
    begins_ = DeviceArray<std::uint32_t>(begins_host_);
    const std::size_t heads = static_cast<std::size_t>(rows * s_.heads_per_group), d = static_cast<std::size_t>(dim);
    const std::size_t places = joined_ ? count_ * static_cast<std::size_t>(s_.heads_per_group) : 1;
    partial_ = DeviceArray<float>(places * d), lse_ = DeviceArray<float>(places);
    out_ = DeviceArray<Half>(heads * d), out_lse_ = DeviceArray<float>(heads);
    rows_ = heads;
  }

  int launches() const { return joined_ ? 2 : 1; }
  std::size_t parts() const { return count_; }

  void operator()(Queue queue, const Half* query, const Half* keys, const Half* values,
                  const std::uint32_t* lists) const {
    const auto kernel = dim_ == 128 ? ragged_kernel<128> : ragged_kernel<64>;
    launch({static_cast<unsigned>(count_)}, kAttentionWarps * 32, AttentionRun::shared_bytes(dim_), queue, kernel, s_,
           Divisor(s_.page), parts_.data(), query, keys, values, lists,
           AttentionOut{partial_.data(), joined_ ? lse_.data() : out_lse_.data(), out_.data(), joined_});
    if (!joined_) return;
    launch({static_cast<unsigned>(rows_)}, static_cast<unsigned>(dim_), 0, queue, ragged_merge_kernel,
           s_.heads_per_group, begins_.data(), partial_.data(), lse_.data(), out_.data(), out_lse_.data());
  }
  const DeviceArray<Half>& out() const { return out_; }
  const DeviceArray<float>& lse() const { return out_lse_; }

 private:
  AttentionShape s_;
  int dim_;
  bool joined_ = false;
  std::size_t count_ = 0, rows_ = 0;
  std::vector<std::uint32_t> begins_host_;
  DeviceArray<RaggedPart> parts_;
  DeviceArray<std::uint32_t> begins_;
  DeviceArray<float> partial_, lse_;
  DeviceArray<Half> out_;
  DeviceArray<float> out_lse_;
};

}  // namespace kvcast::kernels

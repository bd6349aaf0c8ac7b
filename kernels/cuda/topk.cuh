// The kernel of topk.cu, which describes the method.
#pragma once

#include "cuda/case.hpp"

namespace kvcast::kernels {

inline constexpr unsigned kTopkThreads = 512;
inline constexpr unsigned kTopkWarps = kTopkThreads / 32;
inline constexpr int kTopkInShared = 16384;  // scores that a block selects from

// Larger float, larger key; −0 equals +0.
KVCAST_DEVICE std::uint32_t ordered_bits(float x) {
  const std::uint32_t bits = as_bits(x + 0.0f);
  return (bits >> 31) ? ~bits : bits | 0x80000000u;
}

struct TopkScratch {
  std::uint32_t* histogram;  // 256 counts
  std::uint32_t* chosen;     // digit, number still wanted within it
  std::uint32_t* above;      // of each warp's stretch: scores above the k-th largest
  std::uint32_t* equal;      // and those equal to it
  std::uint32_t* keys;
};

// The digit of the k-th largest and the rank within it, by a suffix sum of the histogram in one warp.
KVCAST_DEVICE void choose_digit(const TopkScratch& m, std::uint32_t wanted) {
  if (warp_index() != 0) return;
  const unsigned lane = lane_index();
  std::uint32_t mine = 0;  // lane l holds digits 255 − 8 l down to 248 − 8 l
  for (unsigned i = 0; i < 8; ++i) mine += m.histogram[255 - (lane * 8 + i)];
  std::uint32_t before = 0;
  for (unsigned l = 0; l < 31; ++l) {
    const std::uint32_t other = warp_from(mine, l);
    before += l < lane ? other : 0;
  }
  if (before < wanted && wanted <= before + mine) {
    for (unsigned i = 0; i < 8; ++i) {
      const std::uint32_t count = m.histogram[255 - (lane * 8 + i)];
      if (wanted <= before + count) {
        m.chosen[0] = 255 - (lane * 8 + i);
        m.chosen[1] = wanted - before;
        return;
      }
      before += count;
    }
  }
}

// Writes the indices of the `wanted` first keys equal to `last` and of all keys above it, in order of index. Each warp
// counts those of a stretch of its own, and then writes them behind those of the warps before it.
template <typename Id>
KVCAST_DEVICE void write_in_order(const TopkScratch& m, int count, std::uint32_t last, std::uint32_t wanted, Id id_of,
                                  std::uint32_t* out) {
  const int stretch = (count + static_cast<int>(kTopkThreads) - 1) / static_cast<int>(kTopkThreads) * 32;
  const int lane = static_cast<int>(lane_index()), begin = static_cast<int>(warp_index()) * stretch,
            end = begin + stretch < count ? begin + stretch : count;
  const auto masks = [&](int base, std::uint32_t& above, std::uint32_t& equal) {
    const bool inside = base + lane < end;
    const std::uint32_t key = inside ? m.keys[base + lane] : 0;
    above = warp_ballot(inside && key > last), equal = warp_ballot(inside && key == last);
  };
  std::uint32_t above = 0, equal = 0, above_before = 0, equal_before = 0;
  for (int base = begin; base < end; base += 32) {
    masks(base, above, equal);
    above_before += count_bits(above), equal_before += count_bits(equal);
  }
  if (lane == 0) m.above[warp_index()] = above_before, m.equal[warp_index()] = equal_before;
  block_sync();
  above_before = equal_before = 0;
  for (unsigned w = 0; w < warp_index(); ++w) above_before += m.above[w], equal_before += m.equal[w];
  const std::uint32_t lower = (1u << lane) - 1u;
  for (int base = begin; base < end; base += 32) {
    masks(base, above, equal);
    const std::uint32_t rank = equal_before + count_bits(equal & lower), ties = rank < wanted ? rank : wanted;
    const bool taken = (above >> lane & 1u) != 0 || ((equal >> lane & 1u) != 0 && rank < wanted);
    if (taken) out[above_before + count_bits(above & lower) + ties] = id_of(base + lane);
    above_before += count_bits(above), equal_before += count_bits(equal);
  }
}

// Block (row, slice) selects the k largest of its part of the row's n scores, or of those that `from` lists, slices · k
// for each row; in order of index. scores [rows][n], from [rows][listed] or null -> out [rows][slices][k].
KVCAST_KERNEL KVCAST_BOUNDS(512)
    topk_kernel(const float* scores, int n, int k, const std::uint32_t* from, int listed, std::uint32_t* out) {
  constexpr int kInFlight = 16, kThreads = static_cast<int>(kTopkThreads);
  std::uint32_t* shared = reinterpret_cast<std::uint32_t*>(shared_memory());
  const TopkScratch m{shared, shared + 256, shared + 258, shared + 258 + kTopkWarps, shared + 258 + 2 * kTopkWarps};
  const std::size_t row = block_x(), slices = grid_y();
  const long long of_row = from ? listed : n;
  const int begin = static_cast<int>(of_row * static_cast<int>(block_y()) / static_cast<int>(slices)),
            count = static_cast<int>(of_row * (static_cast<int>(block_y()) + 1) / static_cast<int>(slices)) - begin;
  const float* in = scores + row * static_cast<std::size_t>(n);
  const std::uint32_t* list = from ? from + row * static_cast<std::size_t>(listed) : nullptr;
  const auto id_of = [&](int i) { return list ? list[begin + i] : static_cast<std::uint32_t>(begin + i); };
  const int thread = static_cast<int>(thread_x());
  for (int first = thread; first < count; first += kInFlight * kThreads) {
    float x[kInFlight];
    KVCAST_UNROLL
    for (int j = 0; j < kInFlight; ++j) x[j] = first + j * kThreads < count ? in[id_of(first + j * kThreads)] : 0;
    KVCAST_UNROLL
    for (int j = 0; j < kInFlight; ++j) {
      if (first + j * kThreads < count) m.keys[first + j * kThreads] = ordered_bits(x[j]);
    }
  }
  std::uint32_t prefix = 0, wanted = static_cast<std::uint32_t>(k);
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (thread < 256) m.histogram[thread] = 0;
    block_sync();
    for (int i = thread; i < count; i += kThreads) {
      const std::uint32_t key = m.keys[i];
      const bool alive = shift == 24 || (key >> (shift + 8)) == (prefix >> (shift + 8));
      if (alive) atomic_add(m.histogram + ((key >> shift) & 255u), 1u);
    }
    block_sync();
    choose_digit(m, wanted);
    block_sync();
    prefix |= m.chosen[0] << shift;
    wanted = m.chosen[1];
  }
  write_in_order(m, count, prefix, wanted, id_of, out + (row * slices + block_y()) * static_cast<std::size_t>(k));
}

// Selection of the k largest of each row: one kernel, or two for rows that a block cannot hold.
class TopkRun {
 public:
  TopkRun(int rows, int n, int k) : rows_(rows), n_(n), k_(k), slices_(slices_for(n, k)) {
    if (slices_ > 1) candidates_ = DeviceArray<std::uint32_t>(as_size(rows) * as_size(slices_) * as_size(k));
  }
  // Slices of a row that leave no more candidates than a block holds; 0 if there is no such number.
  static int slices_for(int n, int k) {
    if (n <= kTopkInShared) return 1;
    constexpr int kSlice = 4096;  // scores of a slice, unless that leaves too many candidates
    const int most = kTopkInShared / k, wanted = std::min(most, (n + kSlice - 1) / kSlice);
    return (n + kTopkInShared - 1) / kTopkInShared <= most ? wanted : 0;
  }
  int launches() const { return slices_ > 1 ? 2 : 1; }

  void operator()(Queue queue, const float* scores, std::uint32_t* out) const {
    const auto select = [&](int slices, const std::uint32_t* from, int listed, std::uint32_t* to) {
      const int held = from ? listed : (n_ + slices - 1) / slices;
      launch({as_unsigned(rows_), as_unsigned(slices)}, kTopkThreads, 4 * (258 + 2 * kTopkWarps + as_size(held)), queue,
             topk_kernel, scores, n_, k_, from, listed, to);
    };
    if (slices_ == 1) return select(1, nullptr, 0, out);
    select(slices_, nullptr, 0, candidates_.data());
    select(1, candidates_.data(), slices_ * k_, out);
  }

 private:
  int rows_, n_, k_, slices_;
  DeviceArray<std::uint32_t> candidates_;
};

}  // namespace kvcast::kernels

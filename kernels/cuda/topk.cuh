// The kernel of topk.cu, which says how it works.
#pragma once

#include "cuda/case.hpp"

namespace kvcast::kernels {

inline constexpr unsigned kTopkThreads = 512;
inline constexpr unsigned kTopkWarps = kTopkThreads / 32;
inline constexpr int kTopkRowInShared = 16384;

// Larger float, larger key; −0 equals +0.
KVCAST_DEVICE std::uint32_t ordered_bits(float x) {
  const std::uint32_t bits = as_bits(x + 0.0f);
  return (bits >> 31) ? ~bits : bits | 0x80000000u;
}

struct TopkScratch {
  std::uint32_t* histogram;  // 256 counts
  std::uint32_t* chosen;     // digit, how many are still wanted within it
  std::uint32_t* offsets;    // of each warp, twice
  std::uint32_t* row;        // the row's keys, where they fit
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

// Places for those of the block that have something to write, in order of thread; all threads call it together.
KVCAST_DEVICE std::uint32_t place_in_block(std::uint32_t* offsets, bool has, std::uint32_t& total) {
  const std::uint32_t mask = warp_ballot(has);
  const unsigned warp = warp_index(), lane = lane_index();
  if (lane == 0) offsets[warp] = count_bits(mask);
  block_sync();
  std::uint32_t before = 0;
  total = 0;
  for (unsigned w = 0; w < kTopkWarps; ++w) {
    before += w < warp ? offsets[w] : 0;
    total += offsets[w];
  }
  block_sync();
  return before + count_bits(mask & ((1u << lane) - 1u));
}

KVCAST_KERNEL KVCAST_BOUNDS(512) topk_kernel(const float* scores, int n, int k, std::uint32_t* out) {
  std::uint32_t* shared = reinterpret_cast<std::uint32_t*>(shared_memory());
  const TopkScratch m{shared, shared + 256, shared + 258, shared + 258 + 2 * kTopkWarps};
  const float* in = scores + static_cast<std::size_t>(block_x()) * static_cast<std::size_t>(n);
  std::uint32_t* ids = out + static_cast<std::size_t>(block_x()) * static_cast<std::size_t>(k);
  const int thread = static_cast<int>(thread_x()), threads = static_cast<int>(kTopkThreads);
  const bool kept = n <= kTopkRowInShared;
  if (kept) {
    for (int i = thread; i < n; i += threads) m.row[i] = ordered_bits(in[i]);
  }
  std::uint32_t prefix = 0, wanted = static_cast<std::uint32_t>(k);
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (thread < 256) m.histogram[thread] = 0;
    block_sync();
    for (int i = thread; i < n; i += threads) {
      const std::uint32_t key = kept ? m.row[i] : ordered_bits(in[i]);
      const bool alive = shift == 24 || (key >> (shift + 8)) == (prefix >> (shift + 8));
      if (alive) atomic_add(m.histogram + ((key >> shift) & 255u), 1u);
    }
    block_sync();
    choose_digit(m, wanted);
    block_sync();
    prefix |= m.chosen[0] << shift;
    wanted = m.chosen[1];
  }
  // Above the k-th: k − wanted of them, at the front. Equal to it: the first wanted, after those.
  std::uint32_t above = 0, equal = 0;
  const std::uint32_t first_equal = static_cast<std::uint32_t>(k) - wanted;
  for (int base = 0; base < n; base += threads) {
    const int i = base + thread;
    const std::uint32_t key = i < n ? (kept ? m.row[i] : ordered_bits(in[i])) : 0;
    std::uint32_t more = 0, ties = 0;
    const bool is_above = i < n && key > prefix, is_equal = i < n && key == prefix;
    const std::uint32_t at = above + place_in_block(m.offsets, is_above, more);
    const std::uint32_t tie = equal + place_in_block(m.offsets + kTopkWarps, is_equal, ties);
    if (is_above) ids[at] = static_cast<std::uint32_t>(i);
    if (is_equal && tie < wanted) ids[first_equal + tie] = static_cast<std::uint32_t>(i);
    above += more;
    equal += ties;
  }
}

inline std::size_t topk_shared_bytes(int n) {
  return 4 * (258 + 2 * kTopkWarps + (n <= kTopkRowInShared ? as_size(n) : 0));
}

}  // namespace kvcast::kernels

// The kernel of topk.cu, which describes the method.
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
  std::uint32_t* chosen;     // digit, number still wanted within it, number of scores with it; number written
  std::uint32_t* offsets;    // of each warp
  std::uint32_t* row;        // the row's keys, if they fit
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
        m.chosen[2] = count;
        return;
      }
      before += count;
    }
  }
}

// Output indices for the threads of the block that have something to write, in order of thread; all threads call it
// together.
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

// Calls of(index, key, is there such an index) with all lanes of a warp for each score of the row, in no order: from
// shared memory, or sixteen loads of a thread at a time, since one block alone has to keep the memory busy.
template <typename Of>
KVCAST_DEVICE void each_key(const TopkScratch& m, const float* in, int n, bool kept, Of of) {
  constexpr int kInFlight = 16, kThreads = static_cast<int>(kTopkThreads);
  const int lane = static_cast<int>(lane_index()), warp = static_cast<int>(thread_x()) - lane;
  if (kept) {
    for (int i = warp + lane; i - lane < n; i += kThreads) of(i, i < n ? m.row[i] : 0, i < n);
    return;
  }
  for (int first = warp + lane; first - lane < n; first += kInFlight * kThreads) {
    float x[kInFlight];
    KVCAST_UNROLL
    for (int j = 0; j < kInFlight; ++j) x[j] = first + j * kThreads < n ? in[first + j * kThreads] : 0;
    KVCAST_UNROLL
    for (int j = 0; j < kInFlight; ++j) of(first + j * kThreads, ordered_bits(x[j]), first + j * kThreads < n);
  }
}

KVCAST_KERNEL KVCAST_BOUNDS(512) topk_kernel(const float* scores, int n, int k, std::uint32_t* out) {
  std::uint32_t* shared = reinterpret_cast<std::uint32_t*>(shared_memory());
  const TopkScratch m{shared, shared + 256, shared + 260, shared + 260 + kTopkWarps};
  const float* in = scores + static_cast<std::size_t>(block_x()) * static_cast<std::size_t>(n);
  std::uint32_t* ids = out + static_cast<std::size_t>(block_x()) * static_cast<std::size_t>(k);
  const int thread = static_cast<int>(thread_x()), threads = static_cast<int>(kTopkThreads);
  const bool kept = n <= kTopkRowInShared;
  if (kept) {
    each_key(m, in, n, false, [&](int i, std::uint32_t key, bool inside) {
      if (inside) m.row[i] = key;
    });
  }
  if (thread == 0) m.chosen[3] = 0;
  std::uint32_t prefix = 0, wanted = static_cast<std::uint32_t>(k);
  for (int shift = 24; shift >= 0; shift -= 8) {
    if (thread < 256) m.histogram[thread] = 0;
    block_sync();
    each_key(m, in, n, kept, [&](int, std::uint32_t key, bool inside) {
      const bool alive = shift == 24 || (key >> (shift + 8)) == (prefix >> (shift + 8));
      if (inside && alive) atomic_add(m.histogram + ((key >> shift) & 255u), 1u);
    });
    block_sync();
    choose_digit(m, wanted);
    block_sync();
    prefix |= m.chosen[0] << shift;
    wanted = m.chosen[1];
  }
  // Scores above the k-th: k − wanted of them, at the front, in any order. Scores equal to it: in any order, too, if
  // all are selected.
  const bool all_equal = m.chosen[2] == wanted;
  each_key(m, in, n, kept, [&](int i, std::uint32_t key, bool inside) {
    const bool taken = inside && (key > prefix || (all_equal && key == prefix));
    const std::uint32_t mask = warp_ballot(taken), lane = lane_index();
    if (mask == 0) return;
    std::uint32_t first = 0;
    if (lane == 0) first = atomic_add(m.chosen + 3, count_bits(mask));
    first = warp_from(first, 0);
    if (taken) ids[first + count_bits(mask & ((1u << lane) - 1u))] = static_cast<std::uint32_t>(i);
  });
  if (all_equal) return;
  // Otherwise the first of them in order of index, after those.
  std::uint32_t* ties = ids + (static_cast<std::uint32_t>(k) - wanted);
  std::uint32_t equal = 0;
  for (int base = 0; base < n && equal < wanted; base += threads) {
    const int i = base + thread;
    const bool is_equal = i < n && (kept ? m.row[i] : ordered_bits(in[i])) == prefix;
    std::uint32_t more = 0;
    const std::uint32_t at = equal + place_in_block(m.offsets, is_equal, more);
    if (is_equal && at < wanted) ties[at] = static_cast<std::uint32_t>(i);
    equal += more;
  }
}

inline std::size_t topk_shared_bytes(int n) {
  return 4 * (260 + kTopkWarps + (n <= kTopkRowInShared ? as_size(n) : 0));
}

}  // namespace kvcast::kernels

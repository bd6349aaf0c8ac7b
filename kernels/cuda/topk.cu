// Indices of the k largest of n scores, for each row; one block for a row.
//
// Radix select, eight bits at a time from the top (as in RadiK, arXiv 2501.14336): a histogram in shared memory finds
// the digit that holds the k-th largest, four passes fix its 32 bits. A last pass writes all above it, and of its
// equals the first in order of index until k are there. Rows that fit are kept in shared memory after the first read.
#include "cuda/all.hpp"
#include "cuda/case.hpp"
#include "reference/attention.hpp"

namespace kvcast::kernels {

namespace {

constexpr unsigned kThreads = 512;
constexpr unsigned kWarps = kThreads / 32;
constexpr int kRowInShared = 16384;

// Larger float, larger key; −0 equals +0.
KVCAST_DEVICE std::uint32_t ordered_bits(float x) {
  const std::uint32_t bits = as_bits(x + 0.0f);
  return (bits >> 31) ? ~bits : bits | 0x80000000u;
}

struct Select {
  std::uint32_t* histogram;  // 256 counts
  std::uint32_t* chosen;     // digit, how many are still wanted within it
  std::uint32_t* offsets;    // of each warp, twice
  std::uint32_t* row;        // the row's keys, where they fit
};

// The digit of the k-th largest and the rank within it, by a suffix sum of the histogram in one warp.
KVCAST_DEVICE void choose_digit(const Select& m, std::uint32_t wanted) {
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
  for (unsigned w = 0; w < kWarps; ++w) {
    before += w < warp ? offsets[w] : 0;
    total += offsets[w];
  }
  block_sync();
  return before + count_bits(mask & ((1u << lane) - 1u));
}

KVCAST_KERNEL KVCAST_BOUNDS(512) topk_kernel(const float* scores, int n, int k, std::uint32_t* out) {
  std::uint32_t* shared = reinterpret_cast<std::uint32_t*>(shared_memory());
  const Select m{shared, shared + 256, shared + 258, shared + 258 + 2 * kWarps};
  const float* in = scores + static_cast<std::size_t>(block_x()) * static_cast<std::size_t>(n);
  std::uint32_t* ids = out + static_cast<std::size_t>(block_x()) * static_cast<std::size_t>(k);
  const int thread = static_cast<int>(thread_x()), threads = static_cast<int>(kThreads);
  const bool kept = n <= kRowInShared;
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
    const std::uint32_t tie = equal + place_in_block(m.offsets + kWarps, is_equal, ties);
    if (is_above) ids[at] = static_cast<std::uint32_t>(i);
    if (is_equal && tie < wanted) ids[first_equal + tie] = static_cast<std::uint32_t>(i);
    above += more;
    equal += ties;
  }
}

std::size_t shared_bytes(int n) { return 4 * (258 + 2 * kWarps + (n <= kRowInShared ? as_size(n) : 0)); }

void run(State& state) {
  const int rows = as_int(state, "rows"), n = as_int(state, "n"), k = as_int(state, "k");
  if (k < 1 || k > n) return state.skip("k lies in 1 to n");
  std::vector<float> scores(as_size(rows) * as_size(n));
  for (std::size_t i = 0; i < scores.size(); ++i) {
    // Where results are compared: many ties, and both zeros.
    scores[i] = state.checking() ? std::nearbyint(random_normal(75, i) * 4.0f) : random_normal(75, i);
  }
  const DeviceArray<float> in(scores);
  const DeviceArray<std::uint32_t> out(as_size(rows) * as_size(k));
  const auto call = [&](Queue queue) {
    launch({as_unsigned(rows)}, kThreads, shared_bytes(n), queue, topk_kernel, in.data(), n, k, out.data());
  };
  state.moves(4.0 * rows * (static_cast<double>(n) + k), Resource::kHbm);
  state.work("elements", static_cast<double>(rows) * n);
  state.work("launches", 1);
  run_and_wait(call);
  std::vector<std::uint32_t> ids = out.host();
  bool same = true;
  for (int r = 0; r < (state.checking() ? rows : 1); ++r) {
    std::vector<std::uint32_t> expected = reference::top_k(&scores[as_size(r) * as_size(n)], as_size(n), as_size(k));
    std::sort(expected.begin(), expected.end());
    const auto first = ids.begin() + static_cast<std::ptrdiff_t>(as_size(r) * as_size(k));
    std::sort(first, first + k);
    same = same && std::equal(expected.begin(), expected.end(), first);
  }
  state.require(same, "the indices of the k largest, lower index first among equals");
  if (!state.checking()) measure_device(state, call);
}

}  // namespace

Bench topk(const Machine&) {
  return {"topk",
          "indices of the k largest of n floats, for each of the rows; n scores read and k indices written",
          {numbers("rows", {1, 8, 64}), numbers("n", {250, 1000, 4096, 16384, 65536, 131072}),
           numbers("k", {64, 256, 2048})},
          {numbers("rows", {1, 3}), numbers("n", {1, 33, 1000, 17000}), numbers("k", {1, 30, 1000})},
          {Mode::kCold, Mode::kBatch},
          run};
}

}  // namespace kvcast::kernels

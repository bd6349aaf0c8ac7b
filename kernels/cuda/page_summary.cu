// Page summaries: the element-wise minimum and maximum of each page's keys (Quest, arXiv 2406.10774). One warp for a
// (page, KV head); each lane keeps its dimensions in registers.
#include "cuda/all.hpp"
#include "cuda/case.hpp"

namespace kvcast::kernels {

namespace {

// keys [pages][page][kv_heads][dim]; out [pages][kv_heads][2][dim], minimum first. dim a multiple of 8, at most 256.
// Rows of up to 128 halves come two at a time, one to each half of the warp; four of each lane are in flight.
KVCAST_KERNEL KVCAST_BOUNDS(256)
    summarize_pages(const Half* keys, Half* out, int pages, int page, int kv_heads, int dim) {
  constexpr int kInFlight = 4;
  const int item = static_cast<int>(block_x() * (block_threads() / 32) + warp_index());
  if (item >= pages * kv_heads) return;
  const int lane = static_cast<int>(lane_index()), lanes = dim <= 128 ? 16 : 32, ways = 32 / lanes,
            chunk = lane % lanes;
  const bool active = chunk < dim / 8;
  const std::size_t row = static_cast<std::size_t>(kv_heads) * static_cast<std::size_t>(dim);
  const Half* from = keys + static_cast<std::size_t>(item / kv_heads) * static_cast<std::size_t>(page) * row +
                     static_cast<std::size_t>(item % kv_heads) * static_cast<std::size_t>(dim) +
                     static_cast<std::size_t>(chunk) * 8;
  float low[8], high[8];
  KVCAST_UNROLL
  for (int i = 0; i < 8; ++i) {
    low[i] = 65504.0f;  // the largest half
    high[i] = -65504.0f;
  }
  for (int slot = lane / lanes; active && slot < page; slot += kInFlight * ways) {
    Vec16 raw[kInFlight];
    KVCAST_UNROLL
    for (int j = 0; j < kInFlight; ++j)  // repeats the last one if there are no more, which changes nothing
      raw[j] = load16(from + static_cast<std::size_t>(slot + j * ways < page ? slot + j * ways : slot) * row);
    KVCAST_UNROLL
    for (int j = 0; j < kInFlight; ++j) {
      float x[8];
      unpack8(raw[j], x);
      KVCAST_UNROLL
      for (int i = 0; i < 8; ++i) {
        low[i] = fminf(low[i], x[i]);
        high[i] = fmaxf(high[i], x[i]);
      }
    }
  }
  KVCAST_UNROLL
  for (int i = 0; i < 8; ++i) {
    const float other_low = warp_xor(low[i], 16), other_high = warp_xor(high[i], 16);
    if (ways == 2) low[i] = fminf(low[i], other_low), high[i] = fmaxf(high[i], other_high);
  }
  if (!active || lane >= lanes) return;
  Half* to =
      out + static_cast<std::size_t>(item) * 2 * static_cast<std::size_t>(dim) + static_cast<std::size_t>(chunk) * 8;
  store16(to, {{pack2(low[0], low[1]), pack2(low[2], low[3]), pack2(low[4], low[5]), pack2(low[6], low[7])}});
  store16(to + dim,
          {{pack2(high[0], high[1]), pack2(high[2], high[3]), pack2(high[4], high[5]), pack2(high[6], high[7])}});
}

void check(State& state, const std::vector<float>& keys, const std::vector<float>& got, std::size_t page,
           std::size_t heads, std::size_t dim) {
  std::vector<float> expected(got.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::size_t d = i % dim, head = i / dim % heads, row = i / dim / heads;
    float* low = &expected[((row / page) * heads + head) * 2 * dim + d];
    low[0] = row % page == 0 ? keys[i] : std::min(low[0], keys[i]);
    low[dim] = row % page == 0 ? keys[i] : std::max(low[dim], keys[i]);
  }
  state.compare("minima and maxima", got, expected, 0);
}

void run(State& state) {
  const int tokens = as_int(state, "tokens"), page = as_int(state, "page"), heads = as_int(state, "kv_heads"),
            dim = as_int(state, "dim");
  if (dim % 8 != 0 || dim > 256) return state.skip("dimensions are multiples of 8 up to 256");
  if (page < 1 || tokens < page) return state.skip("less than one page");
  const int pages = tokens / page;
  const std::size_t n = as_size(pages * page) * as_size(heads * dim);
  const DeviceArray<Half> keys = half_normals(81, n), out(as_size(pages * heads) * 2 * as_size(dim));
  const auto call = [&](Queue queue) {
    launch({blocks_for(as_size(pages * heads), 8)}, 256, 0, queue, summarize_pages, keys.data(), out.data(), pages,
           page, heads, dim);
  };
  state.moves(2.0 * static_cast<double>(n) + 4.0 * pages * heads * dim, Resource::kHbm);
  state.work("launches", 1);
  run_and_wait(call);
  if (!state.checking()) return measure_device(state, call);
  check(state, floats_of(keys), floats_of(out), as_size(page), as_size(heads), as_size(dim));
}

}  // namespace

Bench page_summary(const Machine&) {
  return {"page_summary",
          "minimum and maximum of the keys of each page; keys read, summaries written",
          {numbers("tokens", {64, 2048, 32768, 131072}), numbers("page", {16, 32}), numbers("kv_heads", {8}),
           numbers("dim", {128})},
          {numbers("tokens", {1, 32, 100}), numbers("page", {1, 16, 19}), numbers("kv_heads", {1, 3}),
           numbers("dim", {8, 128, 256})},
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels

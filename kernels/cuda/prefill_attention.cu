// Causal prefill attention on tensor cores after FlashAttention-2 (arXiv 2307.08691): a block of four warps holds 64
// queries of one head, each warp 16, and walks tiles of 64 keys, the next tile's copies in flight while one is used.
// mma.sync: on Hopper and later, kernels with asynchronous tensor-core instructions are faster than this one.
#include "cuda/all.hpp"
#include "cuda/attention.cuh"
#include "cuda/case.hpp"
#include "reference/attention.hpp"

namespace kvcast::kernels {

namespace {

constexpr int kDim = 128;
constexpr int kTile = 64;
constexpr int kChunks = kDim / 8;
constexpr int kTileBytes = kTile * kDim * 2;

struct PrefillShape {
  int tokens, heads, group;  // group query heads share a KV head
  float scale;
};

struct Prefill {
  std::uint32_t q[kDim / 16][4];
  float out[kDim / 8][4], most[2], total[2];
};

// Rows of one head of a [tokens][heads][dim] tensor into a tile; zeros beyond the end.
KVCAST_DEVICE void fetch_tile(unsigned char* to, const Half* from, int first, int tokens, int heads, int head) {
  KVCAST_UNROLL
  for (int i = 0; i < kTile * kChunks / 128; ++i) {
    const int r = (i * 128 + static_cast<int>(thread_x())) / kChunks,
              c = (i * 128 + static_cast<int>(thread_x())) % kChunks;
    const bool inside = first + r < tokens;
    const std::size_t row = static_cast<std::size_t>(inside ? first + r : 0) * static_cast<std::size_t>(heads) +
                            static_cast<std::size_t>(head);
    copy_async(to + (r * kChunks + swizzled(r, c)) * 16, from + row * kDim + static_cast<std::size_t>(c) * 8, inside);
  }
}

KVCAST_DEVICE void score_tile(const Prefill& p, const unsigned char* keys, float (&c)[kTile / 8][4]) {
  const int lane = static_cast<int>(lane_index());
  KVCAST_UNROLL
  for (int i = 0; i < kTile / 2; ++i) c[i / 4][i % 4] = 0;
  KVCAST_UNROLL
  for (int k = 0; k < kDim / 16; ++k) {
    KVCAST_UNROLL
    for (int n = 0; n < kTile / 8; n += 2) {
      const int r = n * 8 + lane % 8 + lane / 16 * 8, chunk = k * 2 + lane / 8 % 2;
      std::uint32_t b[4];
      load_matrices(b, keys + (r * kChunks + swizzled(r, chunk)) * 16);
      multiply_add(c[n], p.q[k], b[0], b[1]);
      multiply_add(c[n + 1], p.q[k], b[2], b[3]);
    }
  }
}

// Masks positions after each row's own, and turns logits into weights; scales earlier sums down.
KVCAST_DEVICE void weigh_tile(Prefill& p, float (&c)[kTile / 8][4], int key, int query, float to_log2) {
  const int lane = static_cast<int>(lane_index());
  KVCAST_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int limit = query + lane / 4 + 8 * h - key - lane % 4 * 2;
    float top = p.most[h], sum = 0;
    KVCAST_UNROLL
    for (int i = 0; i < kTile / 4; ++i) {
      float& x = c[i / 2][2 * h + i % 2];
      x = i / 2 * 8 + i % 2 <= limit ? x * to_log2 : kLowest;
      top = fmaxf(top, x);
    }
    top = fmaxf(top, warp_xor(top, 1));
    top = fmaxf(top, warp_xor(top, 2));
    const float shrink = exp2_fast(p.most[h] - top);
    p.most[h] = top;
    KVCAST_UNROLL
    for (int i = 0; i < kTile / 4; ++i) {
      float& x = c[i / 2][2 * h + i % 2];
      x = exp2_fast(x - top);
      sum += x;
    }
    p.total[h] = p.total[h] * shrink + sum;
    KVCAST_UNROLL
    for (int n = 0; n < kDim / 8; ++n) {
      p.out[n][2 * h] *= shrink;
      p.out[n][2 * h + 1] *= shrink;
    }
  }
}

KVCAST_DEVICE void add_tile(Prefill& p, const unsigned char* values, const float (&c)[kTile / 8][4]) {
  const int lane = static_cast<int>(lane_index());
  KVCAST_UNROLL
  for (int k = 0; k < kTile / 16; ++k) {
    const std::uint32_t a[4] = {pack2(c[2 * k][0], c[2 * k][1]), pack2(c[2 * k][2], c[2 * k][3]),
                                pack2(c[2 * k + 1][0], c[2 * k + 1][1]), pack2(c[2 * k + 1][2], c[2 * k + 1][3])};
    KVCAST_UNROLL
    for (int n = 0; n < kDim / 8; n += 2) {
      const int r = k * 16 + lane % 16, chunk = n + lane / 16;
      std::uint32_t b[4];
      load_matrices_transposed(b, values + (r * kChunks + swizzled(r, chunk)) * 16);
      multiply_add(p.out[n], a, b[0], b[1]);
      multiply_add(p.out[n + 1], a, b[2], b[3]);
    }
  }
}

KVCAST_DEVICE void start_rows(Prefill& p, const PrefillShape& s, const Half* query, int first, int head) {
  const int lane = static_cast<int>(lane_index());
  KVCAST_UNROLL
  for (int i = 0; i < kDim / 2; ++i) p.out[i / 4][i % 4] = 0;
  p.most[0] = p.most[1] = kLowest;
  p.total[0] = p.total[1] = 0;
  KVCAST_UNROLL
  for (int k = 0; k < kDim / 16; ++k) {
    KVCAST_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int t = first + lane / 4 + 8 * (i % 2);
      const Half* from = query +
                         (static_cast<std::size_t>(t < s.tokens ? t : 0) * static_cast<std::size_t>(s.heads) +
                          static_cast<std::size_t>(head)) *
                             kDim +
                         k * 16 + lane % 4 * 2 + 8 * (i / 2);
      p.q[k][i] = load4(from);
    }
  }
}

// query, out [tokens][heads][dim]; keys, values [tokens][heads / group][dim].
KVCAST_KERNEL KVCAST_BOUNDS(128)
    prefill_kernel(PrefillShape s, const Half* query, const Half* keys, const Half* values, Half* out) {
  unsigned char* shared = shared_memory();  // [2][K, V][tile]
  // The longest rows come first, so that the tail is short.
  const int tile = static_cast<int>(grid_x() - 1 - block_x()), head = static_cast<int>(block_y()),
            kv_heads = s.heads / s.group;
  const int first = tile * kTile + static_cast<int>(warp_index()) * 16, lane = static_cast<int>(lane_index());
  Prefill p;
  start_rows(p, s, query, first, head);
  const auto fetch = [&](int t) {
    unsigned char* to = shared + t % 2 * 2 * kTileBytes;
    fetch_tile(to, keys, t * kTile, s.tokens, kv_heads, head / s.group);
    fetch_tile(to + kTileBytes, values, t * kTile, s.tokens, kv_heads, head / s.group);
  };
  fetch(0);
  copy_commit();
  for (int t = 0; t <= tile; ++t) {
    if (t < tile) fetch(t + 1);
    copy_commit();
    copy_wait<1>();
    block_sync();
    const unsigned char* at = shared + t % 2 * 2 * kTileBytes;
    float c[kTile / 8][4];
    score_tile(p, at, c);
    weigh_tile(p, c, t * kTile, first, s.scale * 1.44269504f);
    add_tile(p, at + kTileBytes, c);
    block_sync();  // the next fetch overwrites this tile
  }
  KVCAST_UNROLL
  for (int h = 0; h < 2; ++h) {
    p.total[h] += warp_xor(p.total[h], 1);
    p.total[h] += warp_xor(p.total[h], 2);
    const int t = first + lane / 4 + 8 * h;
    const float inverse = 1.0f / p.total[h];
    if (t >= s.tokens) continue;
    Half* to =
        out +
        (static_cast<std::size_t>(t) * static_cast<std::size_t>(s.heads) + static_cast<std::size_t>(head)) * kDim +
        lane % 4 * 2;
    KVCAST_UNROLL
    for (int n = 0; n < kDim / 8; ++n)
      *reinterpret_cast<std::uint32_t*>(to + n * 8) = pack2(p.out[n][2 * h] * inverse, p.out[n][2 * h + 1] * inverse);
  }
}

void check(State& state, const PrefillShape& s, const std::vector<float>& query, const std::vector<float>& keys,
           const std::vector<float>& values, const std::vector<float>& out) {
  std::vector<float> expected(out.size());
  const std::size_t heads = as_size(s.heads), kv_heads = as_size(s.heads / s.group);
  for (std::size_t h = 0; h < heads; ++h) {
    std::vector<float> k, v;
    for (std::size_t t = 0; t < as_size(s.tokens); ++t) {
      const std::size_t at = (t * kv_heads + h / as_size(s.group)) * kDim;
      k.insert(k.end(), &keys[at], &keys[at] + kDim);
      v.insert(v.end(), &values[at], &values[at] + kDim);
      const auto one =
          reference::attend(&query[(t * heads + h) * kDim], k.data(), v.data(), t + 1, kDim, double{s.scale});
      std::copy(one.out.begin(), one.out.end(), &expected[(t * heads + h) * kDim]);
    }
  }
  state.compare("attention", out, expected, 2e-3);
}

void run(State& state) {
  const PrefillShape s{as_int(state, "tokens"), as_int(state, "heads"), as_int(state, "group"),
                       1.0f / std::sqrt(static_cast<float>(kDim))};
  if (s.group < 1 || s.heads % s.group != 0 || s.tokens < 1) return state.skip("heads are a multiple of the group");
  const std::size_t n = as_size(s.tokens) * as_size(s.heads) * kDim, kv = n / as_size(s.group);
  if (too_large(state, 4.0 * static_cast<double>(n + kv))) return;
  const DeviceArray<Half> query = half_normals(131, n), keys = half_normals(132, kv), values = half_normals(133, kv),
                          out(n);
  const auto call = [&](Queue queue) {
    launch({blocks_for(as_size(s.tokens), kTile), as_unsigned(s.heads)}, 128, 4 * kTileBytes, queue, prefill_kernel, s,
           query.data(), keys.data(), values.data(), out.data());
  };
  state.moves(4.0 * static_cast<double>(n + kv), Resource::kHbm);
  state.work("flops", 2.0 * s.heads * static_cast<double>(s.tokens) * s.tokens * kDim);
  state.work("launches", 1);
  run_and_wait(call);
  if (!state.checking()) return measure_device(state, call);
  check(state, s, floats_of(query), floats_of(keys), floats_of(values), floats_of(out));
}

}  // namespace

Bench prefill_attention(const Machine&) {
  return {
      "prefill_attention",
      "causal attention of a whole prompt, fp16, head dimension 128; flops count the causal half, bytes each tensor "
      "once",
      {numbers("tokens", {512, 1024, 2048, 4096, 8192, 16384, 32768}), numbers("heads", {32}), numbers("group", {4})},
      {numbers("tokens", {1, 64, 150}), numbers("heads", {4}), numbers("group", {1, 4})},
      {Mode::kCold},
      run};
}

}  // namespace kvcast::kernels

// KeyDiff (arXiv 2504.15364): the anchor is the mean of the normalised keys, the score of a key its negative cosine to
// it. Two passes over the keys: sums of normalised keys by block, joined with one addition for each dimension, and then
// the scores. Half a warp for a key, eight dimensions to a lane, four keys in flight.
#include "cuda/all.hpp"
#include "cuda/case.hpp"

namespace kvcast::kernels {

namespace {

constexpr int kDim = 128;
constexpr int kLanes = kDim / 8;  // two keys to a warp

// Sum over the 16 lanes that share a key.
KVCAST_DEVICE float half_warp_sum(float x) {
  KVCAST_UNROLL
  for (unsigned m = 8; m > 0; m >>= 1) x += warp_xor(x, m);
  return x;
}

struct KeyAt {
  float x[8];
  float norm;
};

constexpr int kKeys = 4;                 // in flight, of each half warp
constexpr int kParts = 256 / kLanes;     // half warps of a block
constexpr int kStride = kKeys * kParts;  // keys per step of a block

// The lane's piece of keys first, first + kParts, ... of a head, zeros beyond the end.
KVCAST_DEVICE void load_keys(const Half* keys, int first, int n, int kv_heads, int head, Vec16 (&raw)[kKeys]) {
  KVCAST_UNROLL
  for (int j = 0; j < kKeys; ++j) {
    const int t = first + j * kParts;
    const std::size_t row =
        static_cast<std::size_t>(t < n ? t : 0) * static_cast<std::size_t>(kv_heads) + static_cast<std::size_t>(head);
    raw[j] = load16(keys + row * kDim + lane_index() % kLanes * 8);
    if (t >= n) raw[j] = {{0, 0, 0, 0}};
  }
}
// All lanes of the warp take part.
KVCAST_DEVICE KeyAt key_of(const Vec16& raw) {
  KeyAt k;
  unpack8(raw, k.x);
  float squares = 0;
  KVCAST_UNROLL
  for (int i = 0; i < 8; ++i) squares += k.x[i] * k.x[i];
  k.norm = sqrtf(half_warp_sum(squares));
  return k;
}

// anchors [kv_heads][dim] must start as zeros.
KVCAST_KERNEL KVCAST_BOUNDS(256) sum_anchors(const Half* keys, float* anchors, int n, int kv_heads) {
  float* shared = reinterpret_cast<float*>(shared_memory());  // [16 half warps][dim]
  const int head = static_cast<int>(block_y()), part = static_cast<int>(thread_x()) / kLanes;
  float sums[8];
  KVCAST_UNROLL
  for (int i = 0; i < 8; ++i) sums[i] = 0;
  for (int base = static_cast<int>(block_x()) * kStride; base < n; base += static_cast<int>(grid_x()) * kStride) {
    Vec16 raw[kKeys];
    load_keys(keys, base + part, n, kv_heads, head, raw);
    KVCAST_UNROLL
    for (int j = 0; j < kKeys; ++j) {
      const KeyAt k = key_of(raw[j]);
      const float inverse = k.norm > 0 ? 1.0f / k.norm : 0.0f;
      KVCAST_UNROLL
      for (int i = 0; i < 8; ++i) sums[i] += k.x[i] * inverse;
    }
  }
  KVCAST_UNROLL
  for (int i = 0; i < 8; ++i) shared[part * kDim + static_cast<int>(lane_index()) % kLanes * 8 + i] = sums[i];
  block_sync();
  if (thread_x() >= kDim) return;
  float total = 0;
  for (int p = 0; p < kParts; ++p) total += shared[p * kDim + static_cast<int>(thread_x())];
  atomic_add(anchors + head * kDim + static_cast<int>(thread_x()), total);
}

KVCAST_KERNEL KVCAST_BOUNDS(256)
    score_keys(const Half* keys, const float* anchors, float* scores, int n, int kv_heads) {
  const int head = static_cast<int>(block_y()),
            first = static_cast<int>(block_x()) * kStride + static_cast<int>(thread_x()) / kLanes;
  Vec16 raw[kKeys];
  load_keys(keys, first, n, kv_heads, head, raw);
  float anchor[8], squares = 0;
  const float* at = anchors + head * kDim + lane_index() % kLanes * 8;
  const Vec16 halves[2] = {load16(at), load16(at + 4)};
  KVCAST_UNROLL
  for (int i = 0; i < 8; ++i) {
    anchor[i] = as_float(halves[i / 4].w[i % 4]);
    squares += anchor[i] * anchor[i];
  }
  const float length = sqrtf(half_warp_sum(squares));
  KVCAST_UNROLL
  for (int j = 0; j < kKeys; ++j) {
    const KeyAt k = key_of(raw[j]);
    float dot = 0;
    KVCAST_UNROLL
    for (int i = 0; i < 8; ++i) dot += anchor[i] * k.x[i];
    dot = half_warp_sum(dot);
    const float norms = length * k.norm;
    const int t = first + j * kParts;
    if (t < n && lane_index() % kLanes == 0)
      scores[static_cast<std::size_t>(head) * static_cast<std::size_t>(n) + static_cast<std::size_t>(t)] =
          norms > 0 ? -dot / norms : 0;
  }
}

std::vector<float> expected_scores(const std::vector<float>& keys, std::size_t n, std::size_t heads) {
  std::vector<float> out(heads * n);
  for (std::size_t h = 0; h < heads; ++h) {
    const auto norm = [&](std::size_t t) {
      double s = 0;
      for (std::size_t d = 0; d < kDim; ++d) s += std::pow(double{keys[(t * heads + h) * kDim + d]}, 2);
      return std::sqrt(s);
    };
    std::vector<double> anchor(kDim, 0.0);
    for (std::size_t t = 0; t < n; ++t) {
      for (std::size_t d = 0; d < kDim; ++d) anchor[d] += double{keys[(t * heads + h) * kDim + d]} / norm(t);
    }
    double length = 0;
    for (const double a : anchor) length += a * a;
    for (std::size_t t = 0; t < n; ++t) {
      double dot = 0;
      for (std::size_t d = 0; d < kDim; ++d) dot += anchor[d] * double{keys[(t * heads + h) * kDim + d]};
      out[h * n + t] = static_cast<float>(-dot / norm(t) / std::sqrt(length));
    }
  }
  return out;
}

void run(State& state) {
  const int n = as_int(state, "tokens"), heads = as_int(state, "kv_heads");
  if (n < 1) return state.skip("no tokens");
  const DeviceArray<Half> keys = half_normals(87, as_size(n) * as_size(heads) * kDim);
  const DeviceArray<float> scores(as_size(n) * as_size(heads));
  const DeviceArray<float> anchors(std::vector<float>(as_size(heads) * kDim, 0.0f));
  const unsigned blocks = blocks_for(as_size(n), kStride);
  const auto call = [&](Queue queue) {
    // Sums accumulate from call to call; the direction of the anchor, and so the cosine, stays the same.
    launch({std::min(blocks, 64u), as_unsigned(heads)}, 256, kParts * kDim * 4, queue, sum_anchors, keys.data(),
           anchors.data(), n, heads);
    launch({blocks, as_unsigned(heads)}, 256, 0, queue, score_keys, keys.data(), anchors.data(), scores.data(), n,
           heads);
  };
  state.moves(static_cast<double>(n) * heads * (4.0 * kDim + 4), Resource::kHbm,
              static_cast<double>(n) * heads * (2.0 * kDim + 4));
  state.work("launches", 2);
  run_and_wait(call);
  if (!state.checking()) return measure_device(state, call, {.launches = 2});
  state.compare("scores", scores.host(), expected_scores(floats_of(keys), as_size(n), as_size(heads)), 1e-4);
}

}  // namespace

Bench keydiff(const Machine&) {
  return {"keydiff",
          "negative cosine of each key to the mean of the normalised keys, head dimension 128; the keys read twice",
          {numbers("tokens", {2048, 8192, 32768, 131072}), numbers("kv_heads", {8})},
          {numbers("tokens", {1, 15, 700}), numbers("kv_heads", {1, 3})},
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels

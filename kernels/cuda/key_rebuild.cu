// ShadowKV's rebuild of keys (arXiv 2410.21465): rows of the low-rank factor U, shared by all heads, times the factor
// of a KV head, then rotary position embedding (halves of the head dimension pair up). A block holds one head's factor
// in shared memory; each of its four warps rebuilds 16 selected tokens on tensor cores.
#include "cuda/all.hpp"
#include "cuda/case.hpp"

namespace kvcast::kernels {

namespace {

constexpr int kDim = 128;
constexpr int kPad = 8;  // halves: rows then start four banks apart

struct RebuildShape {
  int kv_heads, selected, rank;
};

// u [context][rank], factor [kv_heads][dim][rank], ids [kv_heads][selected], cosines and sines [context][dim / 2]
// -> keys [kv_heads][selected][dim].
KVCAST_KERNEL KVCAST_BOUNDS(128)
    rebuild_keys(RebuildShape s, const Half* u, const Half* factor, const std::uint32_t* ids, const float* cosines,
                 const float* sines, Half* keys) {
  Half* shared = reinterpret_cast<Half*>(shared_memory());  // [dim][rank + pad]
  const int head = static_cast<int>(block_y()), lane = static_cast<int>(lane_index()), pitch = s.rank + kPad;
  for (int i = static_cast<int>(thread_x()); i < kDim * s.rank / 8; i += 128) {
    const int row = i / (s.rank / 8), chunk = i % (s.rank / 8);
    store16(shared + row * pitch + chunk * 8,
            load16(factor + static_cast<std::size_t>(head * kDim + row) * static_cast<std::size_t>(s.rank) +
                   static_cast<std::size_t>(chunk) * 8));
  }
  block_sync();
  const int first = static_cast<int>(block_x() * 4 + warp_index()) * 16;
  if (first >= s.selected) return;
  std::uint32_t token[2];
  KVCAST_UNROLL
  for (int h = 0; h < 2; ++h) {
    const int i = first + lane / 4 + 8 * h;
    token[h] = ids[head * s.selected + (i < s.selected ? i : s.selected - 1)];
  }
  float out[kDim / 8][4];
  KVCAST_UNROLL
  for (int i = 0; i < kDim / 2; ++i) out[i / 4][i % 4] = 0;
  for (int k = 0; k < s.rank; k += 16) {
    std::uint32_t a[4];
    KVCAST_UNROLL
    for (int i = 0; i < 4; ++i) {
      const Half* p = u + std::size_t{token[i % 2]} * static_cast<std::size_t>(s.rank) + k + lane % 4 * 2 + 8 * (i / 2);
      a[i] = std::uint32_t{p[0].bits} | (std::uint32_t{p[1].bits} << 16);
    }
    KVCAST_UNROLL
    for (int n = 0; n < kDim / 8; n += 2) {
      std::uint32_t b[4];
      load_matrices(b, shared + (n * 8 + lane % 8 + lane / 16 * 8) * pitch + k + lane / 8 % 2 * 8);
      multiply_add(out[n], a, b[0], b[1]);
      multiply_add(out[n + 1], a, b[2], b[3]);
    }
  }
  KVCAST_UNROLL
  for (int n = 0; n < kDim / 16; ++n) {
    KVCAST_UNROLL
    for (int h = 0; h < 2; ++h) {
      const int i = first + lane / 4 + 8 * h, d = n * 8 + lane % 4 * 2;
      if (i >= s.selected) continue;
      const std::size_t at = std::size_t{token[h]} * (kDim / 2) + static_cast<std::size_t>(d);
      const float* x = &out[n][2 * h];
      const float* y = &out[n + kDim / 16][2 * h];
      std::uint32_t* to =
          reinterpret_cast<std::uint32_t*>(keys + static_cast<std::size_t>(head * s.selected + i) * kDim + d);
      to[0] = pack2(x[0] * cosines[at] - y[0] * sines[at], x[1] * cosines[at + 1] - y[1] * sines[at + 1]);
      to[kDim / 4] = pack2(y[0] * cosines[at] + x[0] * sines[at], y[1] * cosines[at + 1] + x[1] * sines[at + 1]);
    }
  }
}

struct Rotary {
  std::vector<float> cosines, sines;
};
// Angles position · 10000^(−2 i / dim), as in RoFormer (arXiv 2104.09864).
Rotary rotary(std::size_t context) {
  Rotary r;
  for (std::size_t t = 0; t < context; ++t) {
    for (std::size_t i = 0; i < kDim / 2; ++i) {
      const double angle = static_cast<double>(t) * std::pow(10000.0, -2.0 * static_cast<double>(i) / kDim);
      r.cosines.push_back(static_cast<float>(std::cos(angle)));
      r.sines.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return r;
}

std::vector<float> expected_keys(const RebuildShape& s, const std::vector<float>& u, const std::vector<float>& factor,
                                 const std::vector<std::uint32_t>& ids, const Rotary& r) {
  const std::size_t rank = as_size(s.rank);
  std::vector<float> out;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::size_t head = i / as_size(s.selected), t = ids[i];
    std::vector<double> k(kDim, 0.0);
    for (std::size_t d = 0; d < kDim; ++d) {
      for (std::size_t j = 0; j < rank; ++j)
        k[d] += double{u[t * rank + j]} * double{factor[(head * kDim + d) * rank + j]};
    }
    for (std::size_t d = 0; d < kDim; ++d) {
      const std::size_t pair = d % (kDim / 2), angle = t * (kDim / 2) + pair;
      const double other = d < kDim / 2 ? -k[d + kDim / 2] : k[pair];
      out.push_back(static_cast<float>(k[d] * double{r.cosines[angle]} + other * double{r.sines[angle]}));
    }
  }
  return out;
}

void run(State& state) {
  const RebuildShape s{as_int(state, "kv_heads"), as_int(state, "selected"), as_int(state, "rank")};
  const int context = as_int(state, "context");
  if (s.rank % 16 != 0 || s.rank < 16 || s.rank > 256) return state.skip("ranks are multiples of 16 up to 256");
  if (s.selected < 1 || s.selected > context) return state.skip("more tokens selected than there are");
  const std::size_t heads = as_size(s.kv_heads), rank = as_size(s.rank);
  const DeviceArray<Half> u = half_normals(111, as_size(context) * rank),
                          factor = half_normals(112, heads * kDim * rank), keys(heads * as_size(s.selected) * kDim);
  std::vector<std::uint32_t> ids;
  for (std::size_t h = 0; h < heads; ++h) {
    for (int i = 0; i < s.selected; ++i)
      ids.push_back(permuted(113 + h, static_cast<std::uint32_t>(i / 8), static_cast<std::uint32_t>(context + 7) / 8) *
                        8 +
                    static_cast<std::uint32_t>(i) % 8);
  }
  for (std::uint32_t& id : ids) id = std::min(id, static_cast<std::uint32_t>(context - 1));
  const Rotary r = rotary(as_size(context));
  const DeviceArray<std::uint32_t> device_ids(ids);
  const DeviceArray<float> cosines(r.cosines), sines(r.sines);
  const auto call = [&](Queue queue) {
    launch({blocks_for(as_size(s.selected), 64), as_unsigned(s.kv_heads)}, 128, kDim * as_size(s.rank + kPad) * 2,
           queue, rebuild_keys, s, u.data(), factor.data(), device_ids.data(), cosines.data(), sines.data(),
           keys.data());
  };
  const double tokens = static_cast<double>(s.kv_heads) * s.selected;
  state.moves(tokens * (2.0 * s.rank + 4.0 * kDim + 2.0 * kDim + 4) + 2.0 * s.kv_heads * kDim * s.rank, Resource::kHbm);
  state.work("flops", 2.0 * tokens * s.rank * kDim);
  state.work("launches", 1);
  run_and_wait(call);
  if (!state.checking()) return measure_device(state, call);
  state.compare("rebuilt keys", floats_of(keys), expected_keys(s, floats_of(u), floats_of(factor), ids, r), 1e-3);
}

}  // namespace

Bench key_rebuild(const Machine&) {
  return {"key_rebuild",
          "low-rank keys of selected chunks of 8 tokens rebuilt and rotated, head dimension 128; factors and angles "
          "read, keys written",
          {numbers("kv_heads", {8}), numbers("selected", {64, 256, 1024, 2048}), numbers("rank", {160}),
           numbers("context", {131072})},
          {numbers("kv_heads", {1, 2}), numbers("selected", {1, 17, 100}), numbers("rank", {16, 160}),
           numbers("context", {200})},
          {Mode::kCold, Mode::kBatch},
          run};
}

}  // namespace kvcast::kernels

// ShadowKV's rebuild of keys (arXiv 2410.21465): rows of the low-rank factor U, shared by all heads, times the factor
// of a KV head, then rotary position embedding (halves of the head dimension pair up). A block holds one head's factor
// in shared memory; each of its four warps rebuilds 16 selected tokens on tensor cores.
#include "cuda/all.hpp"
#include "cuda/key_rebuild.cuh"

namespace kvcast::kernels {

namespace {

struct Rotary {
  std::vector<float> cosines, sines;
};
// Angles position · 10000^(−2 i / dim), as in RoFormer (arXiv 2104.09864).
Rotary rotary(std::size_t context) {
  Rotary r;
  for (std::size_t t = 0; t < context; ++t) {
    for (std::size_t i = 0; i < kRebuildDim / 2; ++i) {
      const double angle = static_cast<double>(t) * std::pow(10000.0, -2.0 * static_cast<double>(i) / kRebuildDim);
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
    std::vector<double> k(kRebuildDim, 0.0);
    for (std::size_t d = 0; d < kRebuildDim; ++d) {
      for (std::size_t j = 0; j < rank; ++j)
        k[d] += double{u[t * rank + j]} * double{factor[(head * kRebuildDim + d) * rank + j]};
    }
    for (std::size_t d = 0; d < kRebuildDim; ++d) {
      const std::size_t pair = d % (kRebuildDim / 2), angle = t * (kRebuildDim / 2) + pair;
      const double other = d < kRebuildDim / 2 ? -k[d + kRebuildDim / 2] : k[pair];
      out.push_back(static_cast<float>(k[d] * double{r.cosines[angle]} + other * double{r.sines[angle]}));
    }
  }
  return out;
}

void run(State& state) {
  const int context = as_int(state, "context"), selected = as_int(state, "selected");
  const RebuildShape s{as_int(state, "kv_heads"), selected, as_int(state, "rank"), context, selected, false};
  if (s.rank % 16 != 0 || s.rank < 16 || s.rank > 256) return state.skip("ranks are multiples of 16 up to 256");
  if (s.selected < 1 || s.selected > context) return state.skip("more tokens selected than there are");
  const std::size_t heads = as_size(s.kv_heads), rank = as_size(s.rank);
  const DeviceArray<Half> u = half_normals(111, as_size(context) * rank),
                          factor = half_normals(112, heads * kRebuildDim * rank),
                          keys(heads * as_size(s.selected) * kRebuildDim);
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
    launch({blocks_for(as_size(s.selected), 64), as_unsigned(s.kv_heads)}, 128,
           kRebuildDim * as_size(s.rank + kRebuildPad) * 2, queue, rebuild_keys, s, u.data(), factor.data(),
           device_ids.data(), cosines.data(), sines.data(), keys.data());
  };
  const double tokens = static_cast<double>(s.kv_heads) * s.selected;
  state.moves(
      tokens * (2.0 * s.rank + 4.0 * kRebuildDim + 2.0 * kRebuildDim + 4) + 2.0 * s.kv_heads * kRebuildDim * s.rank,
      Resource::kHbm);
  state.work("flops", 2.0 * tokens * s.rank * kRebuildDim);
  state.work("launches", 1);
  run_and_wait(call);
  const double written = 2.0 * kRebuildDim / (2.0 * s.rank + 6.0 * kRebuildDim);
  if (!state.checking()) return measure_device(state, call, {.written = written});
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
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels

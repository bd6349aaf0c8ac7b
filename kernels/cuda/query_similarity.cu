// FreeKV's check (arXiv 2505.13109, §3): the cosine of each query head to its predecessor's query, the mean over the
// group, and a flag for each KV head where it falls below a threshold. One warp for a KV head.
#include "cuda/all.hpp"
#include "cuda/query_similarity.cuh"

namespace kvcast::kernels {

namespace {

void run(State& state) {
  const int rows = as_int(state, "batch") * as_int(state, "kv_heads"), group = as_int(state, "group"),
            dim = as_int(state, "dim");
  if (dim % 8 != 0 || group < 1) return state.skip("dimensions are multiples of 8");
  const std::size_t n = as_size(rows) * as_size(group) * as_size(dim);
  const DeviceArray<Half> now = half_normals(88, n), before = half_normals(89, n);
  const DeviceArray<float> cosines(as_size(rows));
  const DeviceArray<std::uint32_t> flags(as_size(rows));
  const auto call = [&](Queue queue) {
    launch({blocks_for(as_size(rows), 4)}, 128, 0, queue, compare_queries, now.data(), before.data(), rows, group, dim,
           0.0f, cosines.data(), flags.data());
  };
  state.moves(4.0 * static_cast<double>(n) + 8.0 * rows, Resource::kHbm);
  state.work("launches", 1);
  run_and_wait(call);
  if (!state.checking()) return measure_device(state, call);
  const std::vector<float> a = floats_of(now), b = floats_of(before);
  std::vector<float> expected;
  bool flagged = true;
  const std::vector<std::uint32_t> f = flags.host();
  for (std::size_t r = 0; r < as_size(rows); ++r) {
    double mean = 0;
    for (std::size_t g = 0; g < as_size(group); ++g) {
      double dot = 0, a2 = 0, b2 = 0;
      for (std::size_t i = (r * as_size(group) + g) * as_size(dim), d = 0; d < as_size(dim); ++d, ++i) {
        dot += double{a[i]} * double{b[i]};
        a2 += double{a[i]} * double{a[i]};
        b2 += double{b[i]} * double{b[i]};
      }
      mean += dot / std::sqrt(a2 * b2) / group;
    }
    expected.push_back(static_cast<float>(mean));
    flagged = flagged && (std::abs(mean) < 1e-5 || f[r] == (mean < 0 ? 1u : 0u));
  }
  state.compare("mean cosines", cosines.host(), expected, 1e-4);
  state.require(flagged, "flags below the threshold");
}

}  // namespace

Bench query_similarity(const Machine&) {
  return {
      "query_similarity",
      "mean cosine of a group's queries to the step before, and a flag below a threshold; both queries read",
      {numbers("batch", {1, 8, 64}), numbers("kv_heads", {8}), numbers("group", {4}), numbers("dim", {128})},
      {numbers("batch", {1, 5}), numbers("kv_heads", {1, 3}), numbers("group", {1, 4}), numbers("dim", {8, 128, 512})},
      {Mode::kBatch},
      run};
}

}  // namespace kvcast::kernels

// Partial scores from a few dimensions: keys (or one of the page bounds) stored dimension by dimension, of which the
// query's largest r are read (SparQ, arXiv 2312.04985; the page × dimension selection of RocketKV, arXiv 2502.14051).
// Each selected dimension is one contiguous row of n; a thread holds eight neighbouring columns for the whole group.
#include "cuda/all.hpp"
#include "cuda/dim_score.cuh"

namespace kvcast::kernels {

namespace {

void run(State& state) {
  const DimShape s{as_int(state, "n"), as_int(state, "kv_heads"), as_int(state, "group"), as_int(state, "dim"),
                   as_int(state, "r")};
  if (s.n % 8 != 0 || s.r > s.dim || s.dim > kMostScoreDims || s.group < 1 || s.group > kMostDimGroup)
    return state.skip("n is a multiple of 8, dim at most 256, r at most dim, groups 1 to 8");
  const std::size_t columns = as_size(s.n), heads = as_size(s.kv_heads), group = as_size(s.group), dim = as_size(s.dim),
                    r = as_size(s.r);
  if (too_large(state, 2.0 * static_cast<double>(columns * heads * dim))) return;
  const DeviceArray<Half> keys = half_normals(84, heads * dim * columns), query = half_normals(85, heads * group * dim);
  std::vector<std::uint32_t> dims;
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::uint32_t j = 0; j < r; ++j) dims.push_back(permuted(86 + h, j, static_cast<std::uint32_t>(dim)));
  }
  const DeviceArray<std::uint32_t> device_dims(dims);
  const DeviceArray<float> scores(heads * group * columns);
  const auto call = [&](Queue queue) {
    launch({blocks_for(columns, kDimColumns), as_unsigned(s.kv_heads)}, 128, score_dims_shared(s.r), queue, score_dims,
           s, keys.data(), device_dims.data(), query.data(), nullptr, scores.data());
  };
  state.moves(static_cast<double>(heads * columns) * (2.0 * static_cast<double>(r) + 4.0 * static_cast<double>(group)),
              Resource::kHbm);
  state.work("flops", 2.0 * static_cast<double>(heads * group * columns * r));
  state.work("launches", 1);
  run_and_wait(call);
  const double written =
      4.0 * static_cast<double>(group) / (2.0 * static_cast<double>(r) + 4.0 * static_cast<double>(group));
  if (!state.checking()) return measure_device(state, call, {.written = written});
  const std::vector<float> k = floats_of(keys), q = floats_of(query);
  std::vector<float> expected(heads * group * columns);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::size_t t = i % columns, row = i / columns, h = row / group;
    double sum = 0;
    for (std::size_t j = 0; j < r; ++j) {
      const std::size_t d = dims[h * r + j];
      sum += double{q[row * dim + d]} * double{k[(h * dim + d) * columns + t]};
    }
    expected[i] = static_cast<float>(sum);
  }
  state.compare("partial scores", scores.host(), expected, 1e-5);
}

}  // namespace

Bench dim_score(const Machine&) {
  return {"dim_score",
          "scores from r of dim dimensions of keys stored by dimension; selected rows read, a float for each query "
          "head written",
          {numbers("n", {1024, 8192, 32768, 131072}), numbers("kv_heads", {8}), numbers("group", {1, 4, 8}),
           numbers("dim", {128}), numbers("r", {16, 32, 64})},
          {numbers("n", {8, 1032}), numbers("kv_heads", {1, 2}), numbers("group", {1, 3, 8}), numbers("dim", {64}),
           numbers("r", {1, 17, 64})},
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels

// Partial scores from a few dimensions: keys (or one of the page bounds) stored dimension by dimension, of which the
// query's largest r are read (SparQ, arXiv 2312.04985; the page × dimension selection of RocketKV, arXiv 2502.14051).
// Each selected dimension is one contiguous row of n; a thread holds eight neighbouring columns for the whole group.
#include "cuda/all.hpp"
#include "cuda/case.hpp"

namespace kvcast::kernels {

namespace {

constexpr int kMostGroup = 8;
constexpr int kMostDims = 256;

struct DimShape {
  int n, kv_heads, group, dim, r;
};

// keys [kv_heads][dim][n], dims [kv_heads][r], query [kv_heads][group][dim] -> scores [kv_heads][group][n].
KVCAST_KERNEL KVCAST_BOUNDS(128)
    score_dims(DimShape s, const Half* keys, const std::uint32_t* dims, const Half* query, float* scores) {
  float* weights = reinterpret_cast<float*>(shared_memory());  // [r][kMostGroup]
  const int head = static_cast<int>(block_y());
  for (int i = static_cast<int>(thread_x()); i < s.r * kMostGroup; i += static_cast<int>(block_threads())) {
    const int g = i % kMostGroup, d = static_cast<int>(dims[head * s.r + i / kMostGroup]);
    weights[i] = g < s.group ? to_float(query[(head * s.group + g) * s.dim + d]) : 0;
  }
  block_sync();
  const int column = static_cast<int>(block_x() * block_threads() + thread_x()) * 8;
  if (column >= s.n) return;
  float sums[kMostGroup][8];
  KVCAST_UNROLL
  for (int i = 0; i < kMostGroup * 8; ++i) sums[i / 8][i % 8] = 0;
  const std::size_t n = static_cast<std::size_t>(s.n);
  for (int j = 0; j < s.r; ++j) {
    const std::size_t row = static_cast<std::size_t>(head * s.dim) + dims[head * s.r + j];
    float x[8];
    unpack8(load16(keys + row * n + static_cast<std::size_t>(column)), x);
    KVCAST_UNROLL
    for (int g = 0; g < kMostGroup; ++g) {
      if (g < s.group) {
        KVCAST_UNROLL
        for (int i = 0; i < 8; ++i) sums[g][i] += weights[j * kMostGroup + g] * x[i];
      }
    }
  }
  KVCAST_UNROLL
  for (int g = 0; g < kMostGroup; ++g) {
    if (g < s.group) {
      float* to = scores + static_cast<std::size_t>(head * s.group + g) * n + static_cast<std::size_t>(column);
      store16(to, {{as_bits(sums[g][0]), as_bits(sums[g][1]), as_bits(sums[g][2]), as_bits(sums[g][3])}});
      store16(to + 4, {{as_bits(sums[g][4]), as_bits(sums[g][5]), as_bits(sums[g][6]), as_bits(sums[g][7])}});
    }
  }
}

void run(State& state) {
  const DimShape s{as_int(state, "n"), as_int(state, "kv_heads"), as_int(state, "group"), as_int(state, "dim"),
                   as_int(state, "r")};
  if (s.n % 8 != 0 || s.r > s.dim || s.dim > kMostDims || s.group < 1 || s.group > kMostGroup)
    return state.skip("n is a multiple of 8, r at most dim, groups 1 to 8");
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
    launch({blocks_for(columns, 128 * 8), as_unsigned(s.kv_heads)}, 128, r * kMostGroup * 4, queue, score_dims, s,
           keys.data(), device_dims.data(), query.data(), scores.data());
  };
  state.moves(static_cast<double>(heads * columns) * (2.0 * static_cast<double>(r) + 4.0 * static_cast<double>(group)),
              Resource::kHbm);
  state.work("flops", 2.0 * static_cast<double>(heads * group * columns * r));
  state.work("launches", 1);
  run_and_wait(call);
  if (!state.checking()) return measure_device(state, call);
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
          {Mode::kCold, Mode::kBatch},
          run};
}

}  // namespace kvcast::kernels

// CTkvr's recall (arXiv 2512.15550): for each KV head the few query centroids nearest to the new queries (cosine, the
// largest over the group), and the union of their lists of key ids. kernel 1: cosines, one warp for a centroid; kernel
// 2, one block for a KV head: the best centroids by repeated maximum, then ids not yet marked in a bitmap in shared
// memory go to the output in order of list.
#include <set>

#include "cuda/all.hpp"
#include "cuda/centroids.cuh"

namespace kvcast::kernels {

namespace {

void check(State& state, const RecallShape& s, const std::vector<float>& scores, const std::vector<std::uint32_t>& ids,
           const std::vector<std::uint32_t>& out, const std::vector<std::uint32_t>& sizes,
           const std::vector<float>& query, const std::vector<float>& centroids) {
  std::vector<float> expected;
  bool same = true;
  const std::size_t n = as_size(s.centroids), probes = as_size(s.probes), list = as_size(s.list);
  for (std::size_t h = 0; h < as_size(s.kv_heads); ++h) {
    for (std::size_t c = 0; c < n; ++c) {
      double most = -2;
      for (std::size_t g = 0; g < as_size(s.group); ++g) {
        double dot = 0, a = 0, b = 0;
        for (std::size_t d = 0; d < kCentroidDim; ++d) {
          const double x = query[(h * as_size(s.group) + g) * kCentroidDim + d],
                       y = centroids[((h * as_size(s.group) + g) * n + c) * kCentroidDim + d];
          dot += x * y, a += x * x, b += y * y;
        }
        most = std::max(most, dot / std::sqrt(a * b));
      }
      expected.push_back(static_cast<float>(most));
    }
    // The union for the kernel's own scores: rounding may swap two centroids, which is not an error.
    std::vector<std::size_t> order(n);
    for (std::size_t c = 0; c < n; ++c) order[c] = c;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return scores[h * n + a] > scores[h * n + b]; });
    std::set<std::uint32_t> wanted;
    for (std::size_t p = 0; p < probes; ++p) {
      const auto first = ids.begin() + static_cast<std::ptrdiff_t>((h * n + order[p]) * list);
      wanted.insert(first, first + static_cast<std::ptrdiff_t>(list));
    }
    const auto first = out.begin() + static_cast<std::ptrdiff_t>(h * probes * list);
    const std::set<std::uint32_t> got(first, first + static_cast<std::ptrdiff_t>(sizes[h]));
    same = same && got == wanted && got.size() == sizes[h];
  }
  state.compare("cosines", scores, expected, 1e-4);
  state.require(same, "the union of the nearest centroids' lists, each id once");
}

void run(State& state) {
  const RecallShape s{as_int(state, "kv_heads"), as_int(state, "group"), as_int(state, "centroids"),
                      as_int(state, "probes"),   as_int(state, "list"),  as_int(state, "context")};
  if (s.group < 1 || s.group > kMostCentroidGroup || s.probes > kMostProbes || s.probes > s.centroids ||
      s.list > s.context)
    return state.skip("groups 1 to 8, at most 16 probes, lists within the context");
  const std::size_t shared = 4 * as_size(64 + s.centroids + (s.context + 31) / 32);
  if (shared > 96 << 10) return state.skip("the bitmap of the context does not fit in shared memory");
  const std::size_t heads = as_size(s.kv_heads), n = as_size(s.centroids), list = as_size(s.list);
  std::vector<std::uint32_t> ids(heads * n * list);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = permuted(105 + i / list, static_cast<std::uint32_t>(i % list), static_cast<std::uint32_t>(s.context));
  }
  const DeviceArray<Half> query = half_normals(106, heads * as_size(s.group) * kCentroidDim),
                          centroids = half_normals(107, heads * as_size(s.group) * n * kCentroidDim);
  const DeviceArray<std::uint32_t> device_ids(ids), out(heads * as_size(s.probes) * list), sizes(heads);
  const DeviceArray<float> best(heads * n);
  const auto call = [&](Queue queue) {
    launch({blocks_for(n, 8), as_unsigned(s.kv_heads)}, 256, 0, queue, score_centroids, s, query.data(),
           centroids.data(), best.data());
    launch({as_unsigned(s.kv_heads)}, kRecallThreads, shared, queue, recall_ids, s, best.data(), device_ids.data(),
           out.data(), sizes.data());
  };
  state.moves(2.0 * static_cast<double>(heads * as_size(s.group) * n * kCentroidDim) +
                  8.0 * static_cast<double>(heads * as_size(s.probes) * list),
              Resource::kHbm);
  state.work("ids", static_cast<double>(heads * as_size(s.probes) * list));
  state.work("launches", 2);
  run_and_wait(call);
  if (!state.checking()) return measure_device(state, call, {.launches = 2});
  check(state, s, best.host(), ids, out.host(), sizes.host(), floats_of(query), floats_of(centroids));
}

}  // namespace

Bench centroid_recall(const Machine&) {
  return {"centroid_recall",
          "nearest query centroids of each KV head and the union of their key lists; centroids and chosen lists read, "
          "at most as many ids written",
          {numbers("kv_heads", {8}), numbers("group", {4}), numbers("centroids", {320, 2048}),
           numbers("probes", {2, 4, 14}), numbers("list", {1280}), numbers("context", {131072})},
          {numbers("kv_heads", {1, 3}), numbers("group", {1, 2}), numbers("centroids", {16, 40}),
           numbers("probes", {1, 5}), numbers("list", {3, 300}), numbers("context", {333})},
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels

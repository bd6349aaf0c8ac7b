// CTkvr's recall (arXiv 2512.15550): for each KV head the few query centroids nearest to the new queries (cosine, the
// largest over the group), and the union of their lists of key ids. kernel 1: cosines, one warp for a centroid; kernel
// 2, one block for a KV head: the best centroids by repeated maximum, then ids that a bitmap in shared memory has not
// seen go to the output in order of list.
#include <set>

#include "cuda/all.hpp"
#include "cuda/case.hpp"

namespace kvcast::kernels {

namespace {

constexpr int kDim = 128;
constexpr int kMostGroup = 8;
constexpr int kMostProbes = 16;
constexpr unsigned kThreads = 256;

struct RecallShape {
  int kv_heads, group, centroids, probes, list, context;
};

// centroids [kv_heads][group][centroids][dim] of unit length, query [kv_heads][group][dim] -> best
// [kv_heads][centroids]
KVCAST_KERNEL KVCAST_BOUNDS(256) score_centroids(RecallShape s, const Half* query, const Half* centroids, float* best) {
  const int item = static_cast<int>(block_x() * 8 + warp_index()), head = static_cast<int>(block_y());
  if (item >= s.centroids) return;
  const int column = static_cast<int>(lane_index()) * 4;
  float most = kLowest;
  for (int g = 0; g < s.group; ++g) {
    const Half* q = query + static_cast<std::size_t>(head * s.group + g) * kDim + column;
    const Half* c = centroids +
                    (static_cast<std::size_t>(head * s.group + g) * static_cast<std::size_t>(s.centroids) +
                     static_cast<std::size_t>(item)) *
                        kDim +
                    column;
    float dot = 0, squares = 0, length = 0;
    KVCAST_UNROLL
    for (int i = 0; i < 4; ++i) {
      const float x = to_float(q[i]), y = to_float(c[i]);
      dot += x * y;
      squares += x * x;
      length += y * y;
    }
    dot = warp_sum(dot);
    const float norms = sqrtf(warp_sum(squares) * warp_sum(length));
    most = fmaxf(most, norms > 0 ? dot / norms : 0);
  }
  if (lane_index() == 0)
    best[static_cast<std::size_t>(head) * static_cast<std::size_t>(s.centroids) + static_cast<std::size_t>(item)] =
        most;
}

struct Scratch {
  float* scores;           // [centroids]
  float* warp_best;        // [8]
  std::uint32_t* warp_at;  // [8]
  std::uint32_t* probes;   // [kMostProbes]
  std::uint32_t* counts;   // [8]
  std::uint32_t* seen;     // one bit for each token
};

// The largest score that is left, the lower centroid first among equals; all threads call it together.
KVCAST_DEVICE std::uint32_t take_best(const Scratch& m, int centroids) {
  float best = kLowest * 2;
  std::uint32_t at = 0xFFFFFFFFu;
  for (int i = static_cast<int>(thread_x()); i < centroids; i += static_cast<int>(kThreads)) {
    if (m.scores[i] > best) best = m.scores[i], at = static_cast<std::uint32_t>(i);
  }
  for (unsigned step = 16; step > 0; step >>= 1) {
    const float other = warp_xor(best, step);
    const std::uint32_t other_at = warp_from(at, lane_index() ^ step);
    if (other > best || (other == best && other_at < at)) best = other, at = other_at;
  }
  if (lane_index() == 0) m.warp_best[warp_index()] = best, m.warp_at[warp_index()] = at;
  block_sync();
  for (unsigned w = 0; w < kThreads / 32; ++w) {
    if (m.warp_best[w] > best || (m.warp_best[w] == best && m.warp_at[w] < at))
      best = m.warp_best[w], at = m.warp_at[w];
  }
  block_sync();
  if (thread_x() == 0 && at < static_cast<std::uint32_t>(centroids)) m.scores[at] = kLowest * 3;
  block_sync();
  return at;
}

// ids [kv_heads][centroids][list] -> out [kv_heads][probes · list], sizes [kv_heads].
KVCAST_KERNEL KVCAST_BOUNDS(256)
    recall_ids(RecallShape s, const float* best, const std::uint32_t* ids, std::uint32_t* out, std::uint32_t* sizes) {
  std::uint32_t* words = reinterpret_cast<std::uint32_t*>(shared_memory());
  const Scratch m{reinterpret_cast<float*>(words + 64),
                  reinterpret_cast<float*>(words),
                  words + 8,
                  words + 16,
                  words + 32,
                  words + 64 + s.centroids};
  const int head = static_cast<int>(block_x()), thread = static_cast<int>(thread_x());
  for (int i = thread; i < s.centroids; i += static_cast<int>(kThreads))
    m.scores[i] = best[static_cast<std::size_t>(head * s.centroids + i)];
  for (int i = thread; i < (s.context + 31) / 32; i += static_cast<int>(kThreads)) m.seen[i] = 0;
  block_sync();
  std::uint32_t written = 0;
  for (int p = 0; p < s.probes; ++p) {
    const std::uint32_t centroid = take_best(m, s.centroids);
    const std::uint32_t* list =
        ids + (static_cast<std::size_t>(head) * static_cast<std::size_t>(s.centroids) + centroid) *
                  static_cast<std::size_t>(s.list);
    for (int base = 0; base < s.list; base += static_cast<int>(kThreads)) {
      const bool inside = base + thread < s.list;
      const std::uint32_t id = inside ? list[base + thread] : 0, bit = 1u << (id % 32);
      const bool fresh = inside && (atomic_or(m.seen + id / 32, bit) & bit) == 0;
      const std::uint32_t mask = warp_ballot(fresh);
      if (lane_index() == 0) m.counts[warp_index()] = count_bits(mask);
      block_sync();
      std::uint32_t before = written;
      for (unsigned w = 0; w < kThreads / 32; ++w) {
        before += w < warp_index() ? m.counts[w] : 0;
        written += m.counts[w];
      }
      if (fresh)
        out[static_cast<std::size_t>(head * s.probes * s.list) + before +
            count_bits(mask & ((1u << lane_index()) - 1u))] = id;
      block_sync();
    }
  }
  if (thread == 0) sizes[head] = written;
}

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
        for (std::size_t d = 0; d < kDim; ++d) {
          const double x = query[(h * as_size(s.group) + g) * kDim + d],
                       y = centroids[((h * as_size(s.group) + g) * n + c) * kDim + d];
          dot += x * y, a += x * x, b += y * y;
        }
        most = std::max(most, dot / std::sqrt(a * b));
      }
      expected.push_back(static_cast<float>(most));
    }
    // The union for the kernel's own scores: a rounding may swap two centroids, and is no error.
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
  if (s.group < 1 || s.group > kMostGroup || s.probes > kMostProbes || s.probes > s.centroids || s.list > s.context)
    return state.skip("groups 1 to 8, at most 16 probes, lists within the context");
  const std::size_t shared = 4 * as_size(64 + s.centroids + (s.context + 31) / 32);
  if (shared > 96 << 10) return state.skip("the bitmap of the context does not fit in shared memory");
  const std::size_t heads = as_size(s.kv_heads), n = as_size(s.centroids), list = as_size(s.list);
  std::vector<std::uint32_t> ids(heads * n * list);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = permuted(105 + i / list, static_cast<std::uint32_t>(i % list), static_cast<std::uint32_t>(s.context));
  }
  const DeviceArray<Half> query = half_normals(106, heads * as_size(s.group) * kDim),
                          centroids = half_normals(107, heads * as_size(s.group) * n * kDim);
  const DeviceArray<std::uint32_t> device_ids(ids), out(heads * as_size(s.probes) * list), sizes(heads);
  const DeviceArray<float> best(heads * n);
  const auto call = [&](Queue queue) {
    launch({blocks_for(n, 8), as_unsigned(s.kv_heads)}, 256, 0, queue, score_centroids, s, query.data(),
           centroids.data(), best.data());
    launch({as_unsigned(s.kv_heads)}, kThreads, shared, queue, recall_ids, s, best.data(), device_ids.data(),
           out.data(), sizes.data());
  };
  state.moves(2.0 * static_cast<double>(heads * as_size(s.group) * n * kDim) +
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
          {Mode::kCold, Mode::kBatch},
          run};
}

}  // namespace kvcast::kernels

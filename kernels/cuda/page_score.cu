// Scores of pages from their summaries: Σ_j max(q_j · min_j, q_j · max_j) for each query head (Quest, arXiv
// 2406.10774). reduce: group_max keeps the largest of the group's raw scores; softmax_mean takes softmax over the pages
// of each query head and the mean over the group (FreeKV, arXiv 2505.13109), in a second kernel, one block for a KV
// head.
#include "cuda/all.hpp"
#include "cuda/page_score.cuh"

namespace kvcast::kernels {

namespace {

std::vector<float> expected_scores(const ScoreShape& s, const std::vector<float>& query,
                                   const std::vector<float>& summaries, bool softmax) {
  const std::size_t pages = as_size(s.pages), heads = as_size(s.kv_heads), group = as_size(s.group),
                    dim = as_size(s.dim);
  std::vector<float> out(heads * pages, 0.0f);
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::size_t g = 0; g < group; ++g) {
      std::vector<double> scores(pages, 0.0);
      for (std::size_t p = 0; p < pages; ++p) {
        for (std::size_t d = 0; d < dim; ++d) {
          const double q = query[(h * group + g) * dim + d];
          const float* low = &summaries[(p * heads + h) * 2 * dim + d];
          scores[p] += std::max(q * low[0], q * low[dim]);
        }
      }
      const double most = *std::max_element(scores.begin(), scores.end());
      double total = 0;
      for (const double x : scores) total += std::exp(x - most);
      for (std::size_t p = 0; p < pages; ++p) {
        float& o = out[h * pages + p];
        if (softmax) {
          o += static_cast<float>(std::exp(scores[p] - most) / total / static_cast<double>(group));
        } else {
          o = g == 0 ? static_cast<float>(scores[p]) : std::max(o, static_cast<float>(scores[p]));
        }
      }
    }
  }
  return out;
}

// [n][low, high][dim]; the order matters to the result, and not to the time.
DeviceArray<Half> ordered_summaries(std::size_t n, std::size_t dim) {
  const std::vector<float> values = half_normals_host(83, 0, n * 2 * dim);
  std::vector<Half> out(values.size());
  for (std::size_t i = 0; i < n * dim; ++i) {
    const std::size_t at = i / dim * 2 * dim + i % dim;
    out[at] = half_of(std::min(values[at], values[at + dim])),
    out[at + dim] = half_of(std::max(values[at], values[at + dim]));
  }
  return DeviceArray<Half>(out);
}

void run(State& state) {
  const std::string& reduce = state.word("reduce");
  if (reduce != "group_max" && reduce != "softmax_mean")
    throw UsageError("reduce: '" + reduce + "' is not group_max or softmax_mean");
  const ScoreShape s{as_int(state, "pages"), as_int(state, "kv_heads"), as_int(state, "group"), as_int(state, "dim")};
  if (s.dim % 8 != 0 || s.dim > 256 || s.group < 1 || s.group > kMostScoreGroup || s.pages < 1)
    return state.skip("dimensions are multiples of 8 up to 256, groups 1 to 16");
  const bool softmax = reduce == "softmax_mean";
  const std::size_t n = as_size(s.pages) * as_size(s.kv_heads);
  const std::size_t dim = as_size(s.dim);
  const DeviceArray<Half> query = half_normals(82, as_size(s.kv_heads * s.group * s.dim)),
                          summaries = state.checking() ? ordered_summaries(n, dim) : half_normals(83, n * 2 * dim);
  const DeviceArray<float> raw(n * as_size(s.group)), out(n);
  const auto call = [&](Queue queue) {
    launch_scores<2>(queue, s, 1.0f, query.data(), summaries.data(), softmax ? raw.data() : nullptr,
                     softmax ? nullptr : out.data());
    if (softmax) {
      launch({as_unsigned(s.kv_heads)}, softmax_threads(s.pages), kSoftmaxShared, queue, softmax_mean, s, raw.data(),
             out.data());
    }
  };
  state.moves(static_cast<double>(n) * (4.0 * s.dim + 4), Resource::kHbm);
  state.work("flops", 4.0 * static_cast<double>(n) * s.group * s.dim);
  state.work("launches", softmax ? 2 : 1);
  run_and_wait(call);
  if (!state.checking()) return measure_device(state, call, {.launches = 2});
  state.compare("page scores", out.host(), expected_scores(s, floats_of(query), floats_of(summaries), softmax), 1e-4);
}

}  // namespace

Bench page_score(const Machine&) {
  return {
      "page_score",
      "scores of pages from minimum and maximum, reduced over the group; summaries read, one score written for each KV "
      "head",
      {words("reduce", {"group_max", "softmax_mean"}), numbers("pages", {64, 250, 1024, 4096, 8192}),
       numbers("kv_heads", {8, 64}), numbers("group", {4}), numbers("dim", {128})},
      {numbers("pages", {1, 40, 600}), numbers("kv_heads", {1, 3}), numbers("group", {1, 5}),
       numbers("dim", {8, 128, 256})},
      {Mode::kCold},
      run};
}

}  // namespace kvcast::kernels

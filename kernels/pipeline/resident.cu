// Schemes whose whole cache is in device memory: full attention, Quest's pages, RocketKV's second stage. All their work
// is queued on the main stream.
#include <cmath>

#include "cuda/dim_score.cuh"
#include "cuda/topk.cuh"
#include "pipeline/all.hpp"
#include "pipeline/scheme.hpp"
#include "pipeline/select.cuh"
#include "reference/attention.hpp"

namespace kvcast::kernels {

namespace {

// Pages of every layer: [sequences][pages][page][KV heads][dim].
struct ResidentCache {
  PipelineShape s;
  int page, pages;  // pages of a sequence
  std::size_t layer_size;
  DeviceArray<Half> keys, values;
  ResidentCache(const PipelineShape& shape, int page_size, int page_count)
      : s(shape),
        page(page_size),
        pages(page_count),
        layer_size(as_size(shape.batch) * as_size(page_count) * as_size(page_size) *
                   as_size(shape.kv_heads * shape.dim)),
        keys(half_normals(211, layer_size * as_size(shape.layers))),
        values(half_normals(212, layer_size * as_size(shape.layers))) {}

  Half* layer_keys(int layer) const { return keys.data() + layer_size * as_size(layer); }
  Half* layer_values(int layer) const { return values.data() + layer_size * as_size(layer); }
  AppendTo last_row(int layer, int tokens) const {
    const std::size_t row = as_size(tokens - 1) * as_size(s.kv_heads * s.dim);
    return {layer_keys(layer) + row, layer_values(layer) + row, {layer_size / as_size(s.batch), as_size(s.dim)}};
  }
  // Rows of the tokens of some pages; only the first `tokens` of them count.
  void rows(int layer, int sequence, int head, const std::vector<std::uint32_t>& ids, std::size_t tokens,
            std::vector<float>& k, std::vector<float>& v) const {
    const std::size_t width = as_size(s.kv_heads * s.dim), d = as_size(s.dim);
    const std::vector<float> all_keys = floats_of(keys), all_values = floats_of(values);
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::size_t place = as_size(sequence * pages) + ids[t / as_size(page)];
      const std::size_t at =
          layer_size * as_size(layer) + (place * as_size(page) + t % as_size(page)) * width + as_size(head) * d;
      k.insert(k.end(), &all_keys[at], &all_keys[at] + d);
      v.insert(v.end(), &all_values[at], &all_values[at] + d);
    }
  }
};

// own: each group has its own list; otherwise there is one per sequence.
AttentionShape attention_of(const ResidentCache& cache, int tokens, bool own, int sm_count) {
  const PipelineShape& s = cache.s;
  AttentionShape a{s.batch,
                   s.kv_heads,
                   s.group(),
                   1,
                   tokens,
                   cache.page,
                   (tokens + cache.page - 1) / cache.page,
                   own ? s.kv_heads : 1,
                   1,
                   1.0f / std::sqrt(static_cast<float>(s.dim)),
                   cache.pages};
  a.splits = AttentionRun::splits_for(tokens, s.heads(), sm_count);
  return a;
}

class Full final : public Scheme {
 public:
  Full(const PipelineShape& s, int page, int sm_count)
      : cache_(s, page, (s.context + page - 1) / page),
        query_(as_size(s.batch * s.q_heads * s.dim)),
        attention_(attention_of(cache_, s.context, false, sm_count), s.dim) {
    for (int b = 0; b < s.batch; ++b) {
      for (int p = 0; p < cache_.pages; ++p) list_.push_back(static_cast<std::uint32_t>(p));
    }
    lists_ = DeviceArray<std::uint32_t>(list_);
  }
  AppendTo append_to(int, int layer) override { return cache_.last_row(layer, cache_.s.context); }
  Half* query(int, int) override { return query_.data(); }
  const Half* attend(Stream& main, int, int layer) override {
    attention_(main.queue(), query_.data(), cache_.layer_keys(layer), cache_.layer_values(layer), lists_.data());
    return attention_.out().data();
  }
  void check(State& state) override {
    const PipelineShape& s = cache_.s;
    compare_output(state, s, query_.data(), attention_.out().data(),
                   [&](int b, int h, std::vector<float>& k, std::vector<float>& v) {
                     cache_.rows(s.layers - 1, b, h, list_, as_size(s.context), k, v);
                   });
  }

 private:
  ResidentCache cache_;
  DeviceArray<Half> query_;
  std::vector<std::uint32_t> list_;
  DeviceArray<std::uint32_t> lists_;
  AttentionRun attention_;
};

// Quest and RocketKV: score units, select, attend. They differ in how units are scored.
class Chosen : public Scheme {
 public:
  Chosen(const PipelineShape& s, int tokens, int page, int pages, int chosen, int attended, int sm_count)
      : cache_(s, page, pages),
        tokens_(tokens),
        chosen_(chosen),
        attended_(attended),
        query_(as_size(s.batch * s.q_heads * s.dim)),
        bounds_(half_normals(213, as_size(s.layers) * as_size(pages) * as_size(s.heads()) * 2 * as_size(s.dim))),
        raw_(as_size(s.batch * s.q_heads) * as_size(pages)),
        reduced_(as_size(s.heads()) * as_size(pages)),
        ids_(as_size(s.heads() * chosen)),
        topk_(s.heads(), pages, chosen),
        attention_(attention_of(cache_, attended, true, sm_count), s.dim) {}

  AppendTo append_to(int, int layer) override { return cache_.last_row(layer, tokens_); }
  Half* query(int, int) override { return query_.data(); }
  const Half* attend(Stream& main, int, int layer) override {
    const PipelineShape& s = cache_.s;
    const AppendTo row = cache_.last_row(layer, tokens_);
    Half* bounds = bounds_.data() + bounds_.size() / as_size(s.layers) * as_size(layer);
    widen(main.queue(), row, bounds);
    score(main.queue(), bounds);
    topk_(main.queue(), reduced_.data(), ids_.data());
    attention_(main.queue(), query_.data(), cache_.layer_keys(layer), cache_.layer_values(layer), ids_.data());
    return attention_.out().data();
  }
  void check(State& state) override {
    const PipelineShape& s = cache_.s;
    const std::vector<std::uint32_t> ids = ids_.host();
    const std::vector<float> scores = reduced_.host();
    bool best = true;
    for (std::size_t h = 0; h < as_size(s.heads()); ++h) {
      const auto first = ids.begin() + static_cast<std::ptrdiff_t>(h * as_size(chosen_));
      std::vector<std::uint32_t> got(first, first + chosen_);
      auto expected = reference::top_k(&scores[h * as_size(cache_.pages)], as_size(cache_.pages), as_size(chosen_));
      std::sort(got.begin(), got.end());
      std::sort(expected.begin(), expected.end());
      best = best && got == expected;
    }
    state.require(best, "the pages with the largest scores are chosen");
    compare_output(state, s, query_.data(), attention_.out().data(),
                   [&](int b, int h, std::vector<float>& k, std::vector<float>& v) {
                     const auto first = ids.begin() + (b * s.kv_heads + h) * chosen_;
                     cache_.rows(s.layers - 1, b, h, {first, first + chosen_}, as_size(attended_), k, v);
                   });
  }

 protected:
  // The new key joins the bounds of the last page.
  virtual void widen(Queue queue, const AppendTo& row, Half* bounds) = 0;
  virtual void score(Queue queue, const Half* bounds) = 0;
  ScoreShape score_shape() const { return {cache_.pages, cache_.s.heads(), cache_.s.group(), cache_.s.dim}; }

  ResidentCache cache_;
  int tokens_, chosen_, attended_;
  DeviceArray<Half> query_, bounds_;
  DeviceArray<float> raw_, reduced_;
  DeviceArray<std::uint32_t> ids_;
  TopkRun topk_;
  AttentionRun attention_;
};

class Quest final : public Chosen {
 public:
  using Chosen::Chosen;

 private:
  void widen(Queue queue, const AppendTo& row, Half* bounds) override {
    const ScoreShape s = score_shape();
    launch({blocks_for(as_size(s.kv_heads), 4)}, 128, 0, queue, widen_bounds, row.keys, row.place.sequence_stride,
           row.place.head_stride, s.kv_heads, cache_.s.kv_heads, s.dim,
           bounds + as_size(s.pages - 1) * as_size(s.kv_heads) * 2 * as_size(s.dim));
  }
  void score(Queue queue, const Half* bounds) override {
    const ScoreShape s = score_shape();
    launch_scores<2>(queue, s, 1.0f, query_.data(), bounds, raw_.data(), nullptr);
    launch({blocks_for(as_size(s.pages), 256), as_unsigned(s.kv_heads)}, 256, 0, queue, group_most, raw_.data(),
           reduced_.data(), s.group, s.pages);
  }
};

class Rocket final : public Chosen {
 public:
  Rocket(const PipelineShape& s, int tokens, int page, int pages, int chosen, int attended, int sm_count, int dims)
      : Chosen(s, tokens, page, pages, chosen, attended, sm_count),
        dims_(dims),
        magnitudes_(as_size(s.heads() * s.dim)),
        signs_(as_size(s.heads() * s.dim)),
        best_dims_(as_size(s.heads() * dims)),
        top_dims_(s.heads(), s.dim, dims) {}

 private:
  void widen(Queue queue, const AppendTo& row, Half* bounds) override {
    const ScoreShape s = score_shape();
    launch({as_unsigned(s.kv_heads)}, as_unsigned(s.dim), 0, queue, widen_columns, row.keys, row.place.sequence_stride,
           row.place.head_stride, cache_.s.kv_heads, s.pages, s.pages - 1, bounds);
  }
  void score(Queue queue, const Half* bounds) override {
    const ScoreShape s = score_shape();
    launch({as_unsigned(s.kv_heads)}, as_unsigned(s.dim), 0, queue, sum_magnitudes, query_.data(), s.group,
           magnitudes_.data(), signs_.data());
    top_dims_(queue, magnitudes_.data(), best_dims_.data());
    launch({blocks_for(as_size(s.pages), kDimColumns), as_unsigned(s.kv_heads)}, 128, score_dims_shared(dims_), queue,
           score_dims, DimShape{s.pages, s.kv_heads, s.group, s.dim, dims_, 2}, bounds, best_dims_.data(),
           query_.data(), signs_.data(), raw_.data());
    launch({as_unsigned(s.kv_heads)}, softmax_threads(s.pages), kSoftmaxShared, queue, softmax_mean, s, raw_.data(),
           reduced_.data());
  }

  int dims_;
  DeviceArray<float> magnitudes_, signs_;
  DeviceArray<std::uint32_t> best_dims_;
  TopkRun top_dims_;
};

Launches launches_of(const State& state) { return state.integer("graph") != 0 ? Launches::kGraph : Launches::kSingle; }

double cache_bytes(const PipelineShape& s, double tokens) {
  return 4.0 * s.layers * s.batch * tokens * s.kv_heads * s.dim;
}

void run_full(State& state) {
  PipelineShape s;
  if (!read_shape(state, s)) return;
  const int page = as_int(state, "page");
  if (page < 1) return state.skip("pages have at least one token");
  if (too_large_pipeline(state, s, cache_bytes(s, s.context), 0)) return;
  state_counts(state, {.attended = double{1} * s.context});
  run_scheme(
      state, s, [&] { return std::make_unique<Full>(s, page, state.machine().sm_count); }, launches_of(state));
}

void run_quest(State& state) {
  PipelineShape s;
  if (!read_shape(state, s)) return;
  const int page = as_int(state, "page"), budget = as_int(state, "budget");
  if (page < 1 || budget < page || budget > s.context || s.context % page != 0)
    return state.skip("a budget of whole pages within a context of whole pages");
  const int pages = s.context / page, chosen = budget / page;
  if (too_large_pipeline(state, s, cache_bytes(s, s.context + double{1} * pages), 0)) return;
  state_counts(state, {.attended = double{1} * chosen * page, .scored = double{1} * pages});
  run_scheme(
      state, s,
      [&] {
        return std::make_unique<Quest>(s, s.context, page, pages, chosen, chosen * page, state.machine().sm_count);
      },
      launches_of(state));
}

// The split of a budget between the stages, and of the second stage between estimate and attention (RocketKV, arXiv
// 2502.14051, section 3 and algorithm 1).
struct RocketSplit {
  int kept, page, dims, attended;
};
RocketSplit split_rocket(int context, int budget, int head_dim) {
  const double c = std::max(1.0, double{1} * context / budget), r = std::min(0.2 + 0.06 * std::log2(c), 0.8);
  const int kept = static_cast<int>(context / std::pow(c, r));
  const double second = std::max(1.0, double{1} * kept / budget);
  const int page = static_cast<int>(std::min(std::floor(second), std::ceil(std::sqrt(second))));
  const double dims = std::floor(head_dim * page / second);
  return {kept, page, static_cast<int>(std::clamp(dims, 1.0, double{1} * head_dim)), budget / 2};
}

void run_rocket(State& state) {
  PipelineShape s;
  if (!read_shape(state, s)) return;
  const int budget = as_int(state, "budget");
  if (budget < 2 || 2 * budget > s.context) return state.skip("a budget of 2 to half the context");
  RocketSplit split = split_rocket(s.context, budget, s.dim);
  // The estimate reads eight pages at a time.
  const int pages = (split.kept / split.page + 7) / 8 * 8, chosen = (split.attended + split.page - 1) / split.page;
  if (too_large_pipeline(state, s, cache_bytes(s, double{1} * pages * (split.page + 1)), 0)) return;
  state_counts(state, {.attended = double{1} * split.attended, .scored = double{1} * pages});
  state.work("page", split.page);
  state.work("dims", split.dims);
  run_scheme(
      state, s,
      [&] {
        return std::make_unique<Rocket>(s, pages * split.page, split.page, pages, chosen, split.attended,
                                        state.machine().sm_count, split.dims);
      },
      launches_of(state));
}

}  // namespace

Bench pipeline_full(const Machine&) {
  return pipeline_bench("full", "decode steps with attention over the whole cache",
                        {numbers("page", {32}), numbers("graph", {0, 1})}, {numbers("context", {100, 256})}, run_full);
}
Bench pipeline_quest(const Machine&) {
  return pipeline_bench("quest", "decode steps with Quest's pages, ranked by the largest score of a group",
                        {numbers("budget", {2048}), numbers("page", {32}), numbers("graph", {0, 1})},
                        {numbers("budget", {64}), numbers("page", {16})}, run_quest);
}
Bench pipeline_rocketkv(const Machine&) {
  return pipeline_bench("rocketkv", "decode steps with RocketKV's second stage over what its first one keeps",
                        {numbers("budget", {1024}), numbers("graph", {0, 1})},
                        {numbers("context", {256, 512}), numbers("budget", {32, 64})}, run_rocket);
}

}  // namespace kvcast::kernels

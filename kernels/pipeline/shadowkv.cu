// ShadowKV (arXiv 2410.21465): landmarks select chunks, and a kernel reads the values of the missing ones over the
// link; meanwhile the chunks that are present move to their new slots, and the keys of the missing ones are rebuilt
// from low-rank rows. Products and rotation are one kernel here.
#include "cuda/key_rebuild.cuh"
#include "cuda/topk.cuh"
#include "pipeline/all.hpp"
#include "pipeline/move.cuh"
#include "pipeline/scheme.hpp"
#include "pipeline/select.cuh"

namespace kvcast::kernels {

namespace {

constexpr int kChunk = 8;  // tokens

struct ShadowSetting {
  int chosen, missing;  // chunks
  int fixed;            // chunks that never change: outliers and the last tokens
  int rank;
  int rows() const { return (fixed + chosen) * kChunk; }
};

// Run numbers, a run being a chunk: of the host's values, of pools [K, V][heads][fixed + chosen], of low-rank rows.
struct ShadowPlan {
  std::uint32_t *fetch_from, *fetch_to, *hit_from, *hit_to, *rank_from, *rank_to, *tokens;
};
struct PlanShape {
  int heads, kv_heads, chunks, chosen, missing, fixed;
  std::uint32_t host_runs;
};

// The first `missing` of the chosen chunks are fetched, the others are present. One block for a head.
KVCAST_KERNEL KVCAST_BOUNDS(256) split_hits(PlanShape s, const std::uint32_t* ids, ShadowPlan plan) {
  const int head = static_cast<int>(block_x()), hits = s.chosen - s.missing, runs = s.fixed + s.chosen;
  for (int i = static_cast<int>(thread_x()); i < s.chosen; i += static_cast<int>(block_threads())) {
    const std::uint32_t id = ids[head * s.chosen + i];
    const std::uint32_t own = static_cast<std::uint32_t>(head * runs + s.fixed),
                        all = static_cast<std::uint32_t>(s.heads * runs);
    if (i < s.missing) {
      const int at = head * s.missing + i;
      const std::uint32_t chunk = static_cast<std::uint32_t>(head / s.kv_heads * s.chunks) + id;
      plan.fetch_from[at] = (static_cast<std::uint32_t>(head * s.chunks) + id) % s.host_runs;
      plan.fetch_to[at] = all + own + static_cast<std::uint32_t>(i);
      plan.rank_from[at] = chunk;
      plan.rank_to[at] = static_cast<std::uint32_t>(at);
      for (int t = 0; t < kChunk; ++t) plan.tokens[at * kChunk + t] = chunk * kChunk + static_cast<std::uint32_t>(t);
    } else {
      const std::uint32_t j = static_cast<std::uint32_t>(i - s.missing);
      for (std::uint32_t which = 0; which < 2; ++which) {
        const std::size_t at =
            std::size_t{which} * static_cast<std::size_t>(s.heads * hits) + static_cast<std::size_t>(head * hits) + j;
        plan.hit_from[at] = which * all + own + j;
        plan.hit_to[at] = which * all + own + static_cast<std::uint32_t>(s.missing) + j;
      }
    }
  }
}

std::vector<float> rotations(int context, double (*of)(double)) {
  std::vector<float> out;
  for (int t = 0; t < context; ++t) {
    for (int i = 0; i < kRebuildDim / 2; ++i) {
      out.push_back(static_cast<float>(of(t * std::pow(10000.0, -2.0 * i / kRebuildDim))));
    }
  }
  return out;
}

std::size_t host_runs(const PipelineShape& s) {  // at most 1 GiB: more than caches hold
  return std::min(as_size(s.heads()) * as_size(s.context / kChunk),
                  (std::size_t{1} << 30) / (kChunk * kRebuildDim * 2));
}

class ShadowKv final : public Scheme {
 public:
  ShadowKv(const PipelineShape& s, const ShadowSetting& p, int sm_count)
      : s_(s),
        p_(p),
        chunks_(s.context / kChunk),
        competing_(chunks_ - p.fixed),
        query_(as_size(s.batch * s.q_heads * s.dim)),
        landmarks_(half_normals(241, as_size(s.layers) * as_size(competing_) * as_size(s.heads() * s.dim))),
        pools_(half_normals(242, 2 * as_size(s.layers) * pool_size())),
        low_rank_(half_normals(243, as_size(s.layers) * as_size(s.batch) * as_size(s.context) * as_size(p.rank))),
        factors_(half_normals(244, as_size(s.layers) * as_size(s.heads()) * as_size(s.dim * p.rank))),
        gathered_(as_size(s.heads() * p.missing * kChunk) * as_size(p.rank)),
        raw_(as_size(s.batch * s.q_heads) * as_size(competing_)),
        reduced_(as_size(s.heads()) * as_size(competing_)),
        cosines_(rotations(s.context, [](double x) { return std::cos(x); })),
        sines_(rotations(s.context, [](double x) { return std::sin(x); })),
        ids_(as_size(s.heads() * p.chosen)),
        numbers_(as_size(s.heads()) * as_size(4 * p.missing + 4 * (p.chosen - p.missing) + kChunk * p.missing)),
        lists_(list(s, p)),
        values_(host_runs(s) * kChunk * kRebuildDim * 2),
        topk_(s.heads(), competing_, p.chosen),
        attention_(attention_shape(sm_count), s.dim) {
    const DeviceArray<Half> numbers = half_normals(245, std::min<std::size_t>(values_.size() / 2, 32 << 20));
    for (std::size_t at = 0; at < values_.size(); at += numbers.size() * 2) {
      device_copy(values_.host<void>(at), numbers.data(), std::min(numbers.size() * 2, values_.size() - at));
    }
  }

  AppendTo append_to(int step, int layer) override {
    const std::size_t row = as_size(p_.fixed * kChunk - 1) * as_size(s_.dim), head = as_size(p_.rows() * s_.dim);
    return {pool(step, layer) + row, pool(step, layer) + pool_size() / 2 + row, {head * as_size(s_.kv_heads), head}};
  }
  Half* query(int, int) override { return query_.data(); }

  const Half* attend(Stream& main, int step, int layer) override {
    last_step_ = step;
    choose(main.queue(), layer);
    const ShadowPlan plan = make_plan();
    const int hits = p_.chosen - p_.missing, row = s_.dim / 8, missing = s_.heads() * p_.missing;
    launch({as_unsigned(s_.heads())}, 256, 0, main.queue(), split_hits,
           PlanShape{s_.heads(), s_.kv_heads, chunks_, p_.chosen, p_.missing, p_.fixed,
                     static_cast<std::uint32_t>(host_runs(s_))},
           ids_.data(), plan);
    main.record(planned_);
    fetch_.wait(planned_);
    move(fetch_.queue(), values_.device<Vec16>(), plan.fetch_from, pool(step, layer), plan.fetch_to, missing,
         kChunk * row);
    fetch_.record(fetched_);
    if (hits > 0)
      move(main.queue(), pool(step + 1, layer), plan.hit_from, pool(step, layer), plan.hit_to, 2 * s_.heads() * hits,
           kChunk * row);
    move(main.queue(), part(low_rank_, layer), plan.rank_from, gathered_.data(), plan.rank_to, missing,
         kChunk * p_.rank / 8);
    const int rebuilt = p_.missing * kChunk;
    launch({blocks_for(as_size(rebuilt), 64), as_unsigned(s_.heads())}, 128,
           kRebuildDim * as_size(p_.rank + kRebuildPad) * 2, main.queue(), rebuild_keys,
           RebuildShape{s_.heads(), rebuilt, p_.rank, s_.context, p_.rows(), true}, gathered_.data(),
           part(factors_, layer), plan.tokens, cosines_.data(), sines_.data(),
           pool(step, layer) + as_size(p_.fixed * kChunk * s_.dim));
    main.wait(fetched_);
    attention_(main.queue(), query_.data(), pool(step, layer), pool(step, layer) + pool_size() / 2, lists_.data());
    return attention_.out().data();
  }
  void check(State& state) override;

 private:
  static std::vector<std::uint32_t> list(const PipelineShape& s, const ShadowSetting& p) {
    std::vector<std::uint32_t> out;
    for (int h = 0; h < s.heads(); ++h) {
      for (int i = 0; i < p.fixed + p.chosen; ++i) out.push_back(static_cast<std::uint32_t>(i));
    }
    return out;
  }
  // Heads are separate: each is a sequence of its own with one KV head.
  AttentionShape attention_shape(int sm_count) const {
    AttentionShape a{s_.heads(),
                     1,
                     s_.group(),
                     1,
                     p_.rows(),
                     kChunk,
                     p_.fixed + p_.chosen,
                     1,
                     1,
                     1.0f / std::sqrt(static_cast<float>(s_.dim)),
                     p_.fixed + p_.chosen};
    a.splits = AttentionRun::splits_for(a.tokens, s_.heads(), sm_count);
    return a;
  }
  std::size_t pool_size() const { return 2 * as_size(s_.heads()) * as_size(p_.rows()) * as_size(s_.dim); }
  // [K, V][heads][rows][dim]; two for each layer, filled in turns.
  Half* pool(int step, int layer) const {
    return pools_.data() + (as_size(step % 2) * as_size(s_.layers) + as_size(layer)) * pool_size();
  }
  Half* part(const DeviceArray<Half>& all, int layer) const {
    return all.data() + all.size() / as_size(s_.layers) * as_size(layer);
  }
  void choose(Queue queue, int layer) {
    const ScoreShape shape{competing_, s_.heads(), s_.group(), s_.dim};
    launch_scores<1>(queue, shape, 1.0f / std::sqrt(static_cast<float>(s_.dim)), query_.data(), part(landmarks_, layer),
                     raw_.data(), nullptr);
    launch({as_unsigned(s_.heads())}, softmax_threads(competing_), kSoftmaxShared, queue, softmax_mean, shape,
           raw_.data(), reduced_.data());
    topk_(queue, reduced_.data(), ids_.data());
  }
  ShadowPlan make_plan() const {
    const std::size_t m = as_size(s_.heads() * p_.missing), h = 2 * as_size(s_.heads() * (p_.chosen - p_.missing));
    std::uint32_t* n = numbers_.data();
    return {n, n + m, n + 2 * m, n + 2 * m + h, n + 2 * m + 2 * h, n + 3 * m + 2 * h, n + 4 * m + 2 * h};
  }
  static void move(Queue queue, const void* in, const std::uint32_t* from, void* out, const std::uint32_t* to, int runs,
                   int chunks) {
    launch({std::min(1024u, blocks_for(as_size(runs * chunks), 1024))}, 256, 0, queue, move_runs,
           static_cast<const Vec16*>(in), from, static_cast<Vec16*>(out), to, runs, chunks);
  }

  PipelineShape s_;
  ShadowSetting p_;
  int chunks_, competing_;
  DeviceArray<Half> query_, landmarks_, pools_, low_rank_, factors_, gathered_;
  DeviceArray<float> raw_, reduced_, cosines_, sines_;
  DeviceArray<std::uint32_t> ids_, numbers_, lists_;
  PinnedMemory values_;
  TopkRun topk_;
  AttentionRun attention_;
  Event planned_, fetched_;
  int last_step_ = 0;
  Stream fetch_;
};

// Fetched rows, moved rows, and the output over all of them.
void ShadowKv::check(State& state) {
  const int layer = s_.layers - 1;
  const std::vector<std::uint32_t> ids = ids_.host();
  const std::vector<float> all = floats_of(pools_), low = floats_of(low_rank_), factors = floats_of(factors_);
  const std::vector<float> cosines = cosines_.host(), sines = sines_.host();
  const auto row_of = [&](int step, int which, int head, int r) {
    return &all[(as_size(step % 2) * as_size(s_.layers) + as_size(layer)) * pool_size() +
                as_size((which * s_.heads() + head) * p_.rows() + r) * as_size(s_.dim)];
  };
  std::vector<float> got_keys, keys;
  bool values = true, moved = true;
  for (int h = 0; h < s_.heads(); ++h) {
    for (int r = 0; r < p_.chosen * kChunk; ++r) {
      const int at = p_.fixed * kChunk + r, dim = s_.dim;
      if (r >= p_.missing * kChunk) {
        for (int which = 0; which < 2; ++which) {
          const float* old = row_of(last_step_ + 1, which, h, at - p_.missing * kChunk);
          moved = moved && std::equal(old, old + dim, row_of(last_step_, which, h, at));
        }
        continue;
      }
      const std::size_t id = ids[as_size(h * p_.chosen + r / kChunk)], token = id * kChunk + as_size(r % kChunk);
      const std::size_t run = (as_size(h) * as_size(chunks_) + id) % host_runs(s_);
      const Half* value = values_.host<Half>() + (run * kChunk + as_size(r % kChunk)) * as_size(dim);
      for (int d = 0; d < dim; ++d) values = values && value_of(value[d]) == row_of(last_step_, 1, h, at)[d];
      const float* u =
          &low[(as_size(layer * s_.batch + h / s_.kv_heads) * as_size(s_.context) + token) * as_size(p_.rank)];
      std::vector<double> k(as_size(dim), 0.0);
      for (int d = 0; d < dim; ++d) {
        const float* f = &factors[(as_size(layer * s_.heads() + h) * as_size(dim) + as_size(d)) * as_size(p_.rank)];
        for (int j = 0; j < p_.rank; ++j) k[as_size(d)] += double{u[j]} * double{f[j]};
      }
      for (int d = 0; d < dim; ++d) {
        const std::size_t pair = as_size(d % (dim / 2)), angle = token * as_size(dim / 2) + pair;
        const double other = d < dim / 2 ? -k[as_size(d + dim / 2)] : k[pair];
        keys.push_back(static_cast<float>(k[as_size(d)] * double{cosines[angle]} + other * double{sines[angle]}));
      }
      got_keys.insert(got_keys.end(), row_of(last_step_, 0, h, at), row_of(last_step_, 0, h, at) + dim);
    }
  }
  state.require(values, "values of missing chunks equal the host's");
  state.require(moved, "resident chunks are at their new slots");
  state.compare("rebuilt keys", got_keys, keys, 2e-3);
  compare_output(state, s_, query_.data(), attention_.out().data(),
                 [&](int b, int h, std::vector<float>& k, std::vector<float>& v) {
                   const int head = b * s_.kv_heads + h;
                   k.assign(row_of(last_step_, 0, head, 0), row_of(last_step_, 0, head, 0) + p_.rows() * s_.dim);
                   v.assign(row_of(last_step_, 1, head, 0), row_of(last_step_, 1, head, 0) + p_.rows() * s_.dim);
                 });
}

void run(State& state) {
  PipelineShape s;
  if (!read_shape(state, s)) return;
  const int budget = as_int(state, "budget"), fixed = as_int(state, "fixed");
  const ShadowSetting p{budget / kChunk, as_int(state, "missing"), fixed / kChunk, as_int(state, "rank")};
  if (s.dim != kRebuildDim) return state.skip("keys are rebuilt with a head dimension of 128");
  if (p.rank % 16 != 0 || p.rank < 16 || p.rank > 256) return state.skip("ranks are multiples of 16 up to 256");
  if (budget % kChunk != 0 || fixed % kChunk != 0 || fixed < kChunk || s.context % kChunk != 0 ||
      2 * budget > s.context)
    return state.skip("whole chunks of 8, a budget of at most half the context");
  if (p.missing < 1 || p.missing > p.chosen) return state.skip("some of the chosen chunks are missing");
  const double rows = double{1} * s.layers * s.heads() * s.dim;
  const double device =
      rows * (8.0 * p.rows() + 2.0 * s.context / kChunk) + 2.0 * s.layers * s.batch * s.context * p.rank;
  if (too_large_pipeline(state, s, device, static_cast<double>(host_runs(s)) * kChunk * kRebuildDim * 2)) return;
  state_counts(state, {.attended = double{1} * p.rows(),
                       .scored = double{1} * s.context / kChunk - p.fixed,
                       .candidates = double{1} * budget,
                       .fetched = double{1} * p.missing * kChunk,
                       .fetched_runs = double{1} * p.missing});
  run_scheme(state, s, [&] { return std::make_unique<ShadowKv>(s, p, state.machine().sm_count); });
}

}  // namespace

Bench pipeline_shadowkv(const Machine&) {
  return pipeline_bench(
      "shadowkv", "decode steps with ShadowKV's chunks: values over the link, keys rebuilt",
      {numbers("budget", {2048}), numbers("fixed", {416}), numbers("missing", {96}), numbers("rank", {160})},
      {numbers("dim", {128}), numbers("budget", {64}), numbers("fixed", {16}), numbers("missing", {3, 8}),
       numbers("rank", {32})},
      run);
}

}  // namespace kvcast::kernels

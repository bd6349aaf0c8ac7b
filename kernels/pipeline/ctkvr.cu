// CTkvr (arXiv 2512.15550): centroids choose lists of tokens on the device; their union goes to the host with the
// queries; CPU threads score it, keep the best and attend to them while the device attends to sink and window; outputs
// and log-sum-exps come back and are joined. The host's keys and values are bfloat16, which its vector units read.
// Choosing centroids and uniting lists are one kernel here.
#include "cpu/attend.hpp"
#include "cpu/data.hpp"
#include "cpu/select.hpp"
#include "cuda/centroids.cuh"
#include "harness/pool.hpp"
#include "pipeline/all.hpp"
#include "pipeline/move.cuh"
#include "pipeline/scheme.hpp"
#include "reference/attention.hpp"

namespace kvcast::kernels {

namespace {

constexpr double kMostHostBytes = 2e9;  // beyond it layers and sequences share memory

struct CtkvrSetting {
  int budget, centroids, probes, list;
  int fixed;  // sink and window, on the device
};

KVCAST_KERNEL KVCAST_BOUNDS(256) fill_lists(std::uint32_t* ids, std::size_t total, int list, int context) {
  for (std::size_t i = std::size_t{block_x()} * block_threads() + thread_x(); i < total;
       i += std::size_t{grid_x()} * block_threads()) {
    ids[i] =
        permuted(251 + i / static_cast<std::size_t>(list),
                 static_cast<std::uint32_t>(i % static_cast<std::size_t>(list)), static_cast<std::uint32_t>(context));
  }
}

// The data that the device sends in one piece: ids [heads][probes · list], sizes [heads], queries [heads][group][dim].
struct Sent {
  std::size_t ids, sizes, queries, bytes;
  Sent(const PipelineShape& s, const CtkvrSetting& p)
      : ids(0),
        sizes(as_size(s.heads()) * as_size(p.probes * p.list) * 4),
        queries((sizes + as_size(s.heads()) * 4 + 15) / 16 * 16),
        bytes(queries + as_size(s.batch * s.q_heads * s.dim) * 2) {}
};

class Ctkvr final : public Scheme {
 public:
  Ctkvr(const PipelineShape& s, const CtkvrSetting& p, const Machine& machine, double* recalled)
      : s_(s),
        p_(p),
        at_(s, p),
        recalled_mean_(recalled),
        places_(std::max<std::size_t>(
            1, std::min(as_size(s.layers * s.batch), static_cast<std::size_t>(kMostHostBytes / (4.0 * place_size()))))),
        host_keys_(bf16_noise(252, places_ * place_size())),
        host_values_(bf16_noise(253, places_ * place_size())),
        keys_(half_normals(254, as_size(s.layers) * fixed_size())),
        values_(half_normals(255, as_size(s.layers) * fixed_size())),
        centroids_(half_normals(256, as_size(s.layers) * as_size(s.batch * s.q_heads) * as_size(p.centroids * s.dim))),
        out_(as_size(s.batch * s.q_heads * s.dim)),
        best_(as_size(s.heads() * p.centroids)),
        lists_(as_size(s.heads()) * as_size(p.centroids) * as_size(p.list)),
        fixed_list_(rows_of_fixed(s, p)),
        sent_(at_.bytes),
        from_cpu_(back_bytes()),
        sent_host_(at_.bytes),
        from_cpu_host_(back_bytes()),
        attention_(attention_shape(machine.sm_count), s.dim),
        scratch_(as_size(s.heads())),
        pool_(machine.cores) {
    run_and_wait([&](Queue queue) {
      launch({1024}, 256, 0, queue, fill_lists, lists_.data(), lists_.size(), p.list, s.context);
    });
    for (Scratch& one : scratch_) {
      const std::size_t most = as_size(p.probes * p.list);
      one.scores.resize(most), one.keys.resize(most), one.ids.resize(as_size(p.budget));
      one.query.resize(as_size(s.group() * s.dim)), one.out.resize(one.query.size());
      one.logits.resize(as_size(s.group() * p.budget));
    }
  }

  AppendTo append_to(int, int layer) override {
    const std::size_t width = as_size(s_.kv_heads * s_.dim), row = as_size(p_.fixed - 1) * width;
    const std::size_t at = fixed_size() * as_size(layer) + row;
    return {keys_.data() + at, values_.data() + at, {as_size(p_.fixed) * width, as_size(s_.dim)}};
  }
  Half* query(int, int) override { return reinterpret_cast<Half*>(sent_.data() + at_.queries); }

  const Half* attend(Stream& main, int, int layer) override {
    choose(main.queue(), layer);
    main.record(united_);
    copies_.wait(united_);
    copies_.copy(sent_host_.host<void>(), sent_.data(), at_.bytes);
    const std::size_t at = fixed_size() * as_size(layer);
    attention_(main.queue(), query(0, 0), keys_.data() + at, values_.data() + at, fixed_list_.data());
    copies_.synchronize();
    attend_on_host(layer);
    back_.copy(from_cpu_.data(), from_cpu_host_.host<void>(), back_bytes());
    back_.record(returned_);
    main.wait(returned_);
    const float* lse = reinterpret_cast<const float*>(from_cpu_.data() + out_.size() * 2);
    launch({as_unsigned(s_.batch * s_.q_heads)}, as_unsigned(s_.dim), 0, main.queue(), join_two,
           attention_.out().data(), attention_.lse().data(), reinterpret_cast<const Half*>(from_cpu_.data()), lse,
           out_.data());
    return out_.data();
  }
  void check(State& state) override;

 private:
  struct Scratch {
    std::vector<float> scores, query, out, logits;
    std::vector<std::uint64_t> keys;
    std::vector<std::uint32_t> ids;
  };
  std::size_t place_size() const { return as_size(s_.kv_heads) * as_size(s_.context) * as_size(s_.dim); }
  std::size_t fixed_size() const { return as_size(s_.batch * p_.fixed) * as_size(s_.kv_heads * s_.dim); }
  std::size_t back_bytes() const { return as_size(s_.batch * s_.q_heads) * as_size(s_.dim * 2 + 4); }
  static std::vector<std::uint32_t> rows_of_fixed(const PipelineShape& s, const CtkvrSetting& p) {
    std::vector<std::uint32_t> out;
    for (int i = 0; i < s.batch * p.fixed; ++i) out.push_back(static_cast<std::uint32_t>(i % p.fixed));
    return out;
  }
  AttentionShape attention_shape(int sm_count) const {
    AttentionShape a{s_.batch, s_.kv_heads, s_.group(), 1, p_.fixed,
                     1,        p_.fixed,    1,          1, 1.0f / std::sqrt(static_cast<float>(s_.dim)),
                     p_.fixed};
    a.splits = AttentionRun::splits_for(p_.fixed, s_.heads(), sm_count);
    return a;
  }
  // A sequence's keys in a layer: [KV heads][context][dim].
  std::size_t place(int layer, int sequence) const {
    return as_size(layer * s_.batch + sequence) % places_ * place_size();
  }
  std::size_t head_at(int layer, std::size_t head) const {
    return place(layer, static_cast<int>(head) / s_.kv_heads) +
           head % as_size(s_.kv_heads) * as_size(s_.context) * as_size(s_.dim);
  }

  void choose(Queue queue, int layer) {
    const RecallShape shape{s_.heads(), s_.group(), p_.centroids, p_.probes, p_.list, s_.context};
    launch({blocks_for(as_size(p_.centroids), 8), as_unsigned(s_.heads())}, 256, 0, queue, score_centroids, shape,
           query(0, 0), centroids_.data() + centroids_.size() / as_size(s_.layers) * as_size(layer), best_.data());
    launch({as_unsigned(s_.heads())}, kRecallThreads, 4 * as_size(64 + p_.centroids + (s_.context + 31) / 32), queue,
           recall_ids, shape, best_.data(), lists_.data(), reinterpret_cast<std::uint32_t*>(sent_.data()),
           reinterpret_cast<std::uint32_t*>(sent_.data() + at_.sizes));
  }

  const std::uint32_t* recalled(std::size_t head, std::size_t& n) const {
    n = sent_host_.host<std::uint32_t>(at_.sizes)[head];
    return sent_host_.host<std::uint32_t>() + head * as_size(p_.probes * p_.list);
  }
  // Items are (sequence, KV head) pairs, round robin over the threads.
  void each_head(const std::function<void(std::size_t)>& item) {
    pool_.run([&](int t) {
      for (std::size_t i = as_size(t); i < as_size(s_.heads()); i += as_size(pool_.threads())) item(i);
    });
  }

  void attend_on_host(int layer) {
    const std::size_t dim = as_size(s_.dim), group = as_size(s_.group());
    each_head([&](std::size_t h) {
      Scratch& mine = scratch_[h];
      const Half* q = sent_host_.host<Half>(at_.queries) + h * group * dim;
      for (std::size_t i = 0; i < mine.query.size(); ++i) mine.query[i] = value_of(q[i]);
      std::size_t n = 0;
      const std::uint32_t* ids = recalled(h, n);
      const std::uint16_t* keys = &host_keys_[head_at(layer, h)];
      for (std::size_t i = 0; i < n; ++i) {
        if (i + kRowsAhead < n) prefetch_row(keys + ids[i + kRowsAhead] * dim, dim);
        float most = -1e30f;
        for (std::size_t g = 0; g < group; ++g)
          most = std::max(most, dot_row(&mine.query[g * dim], keys + ids[i] * dim, dim));
        mine.scores[i] = most;
      }
    });
    each_head([&](std::size_t h) {
      Scratch& mine = scratch_[h];
      std::size_t n = 0;
      const std::uint32_t* ids = recalled(h, n);
      mine.ids.resize(std::min(n, as_size(p_.budget)));
      select_row(mine.scores.data(), n, mine.ids.size(), mine.keys.data(), mine.ids.data());
      for (std::uint32_t& id : mine.ids) id = ids[id];
    });
    each_head([&](std::size_t h) {
      Scratch& mine = scratch_[h];
      const std::size_t at = head_at(layer, h), rows = out_.size() / dim;
      float* lse = reinterpret_cast<float*>(from_cpu_host_.host<unsigned char>(rows * dim * 2)) + h * group;
      attend_item({mine.ids.size(), group, dim}, &host_keys_[at], &host_values_[at], mine.query.data(), mine.ids.data(),
                  mine.logits.data(), mine.out.data(), lse);
      Half* out = from_cpu_host_.host<Half>() + h * group * dim;
      for (std::size_t i = 0; i < mine.out.size(); ++i) out[i] = half_of(mine.out[i]);
    });
    double sum = 0;
    for (std::size_t h = 0; h < as_size(s_.heads()); ++h) sum += sent_host_.host<std::uint32_t>(at_.sizes)[h];
    recalled_sum_ += sum / s_.heads();
    *recalled_mean_ = recalled_sum_ / ++recalls_;
  }

  PipelineShape s_;
  CtkvrSetting p_;
  Sent at_;
  double* recalled_mean_;
  double recalled_sum_ = 0;
  long recalls_ = 0;
  std::size_t places_;
  Rows host_keys_, host_values_;  // [places][KV heads][context][dim]
  DeviceArray<Half> keys_, values_, centroids_, out_;
  DeviceArray<float> best_;
  DeviceArray<std::uint32_t> lists_, fixed_list_;
  DeviceArray<unsigned char> sent_, from_cpu_;
  PinnedMemory sent_host_, from_cpu_host_;
  AttentionRun attention_;
  std::vector<Scratch> scratch_;  // per head
  Pool pool_;
  Event united_, returned_;
  Stream copies_, back_;
};

void Ctkvr::check(State& state) {
  const int layer = s_.layers - 1;
  const std::size_t dim = as_size(s_.dim);
  bool best = true;
  for (std::size_t h = 0; h < as_size(s_.heads()); ++h) {
    std::size_t n = 0;
    const std::uint32_t* ids = recalled(h, n);
    std::vector<std::uint32_t> got = scratch_[h].ids, expected;
    for (const std::uint32_t i : reference::top_k(scratch_[h].scores.data(), n, got.size())) expected.push_back(ids[i]);
    std::sort(got.begin(), got.end());
    std::sort(expected.begin(), expected.end());
    best = best && got == expected && std::unique(got.begin(), got.end()) == got.end();
  }
  state.require(best, "the best of the recalled tokens are attended to");
  const std::vector<float> k = floats_of(keys_), v = floats_of(values_);
  compare_output(
      state, s_, query(0, 0), out_.data(), [&](int b, int h, std::vector<float>& keys, std::vector<float>& values) {
        for (int t = 0; t < p_.fixed; ++t) {
          const std::size_t at = fixed_size() * as_size(layer) + as_size((b * p_.fixed + t) * s_.kv_heads + h) * dim;
          keys.insert(keys.end(), &k[at], &k[at] + dim);
          values.insert(values.end(), &v[at], &v[at] + dim);
        }
        const std::size_t head = as_size(b * s_.kv_heads + h);
        for (const std::uint32_t id : scratch_[head].ids) {
          for (std::size_t d = 0; d < dim; ++d) {
            keys.push_back(bf16_value(host_keys_[head_at(layer, head) + id * dim + d]));
            values.push_back(bf16_value(host_values_[head_at(layer, head) + id * dim + d]));
          }
        }
      });
}

void run(State& state) {
  PipelineShape s;
  if (!read_shape(state, s)) return;
  const int budget = as_int(state, "budget"), fixed = as_int(state, "fixed");
  const CtkvrSetting p{budget, std::clamp(s.context / 16, 1, 2048), as_int(state, "probes"), 5 * budget / 2, fixed};
  if (s.dim != kCentroidDim) return state.skip("centroids have 128 dimensions");
  if (budget < 1 || fixed < 1 || p.list > s.context || p.probes < 1 || p.probes > std::min(p.centroids, kMostProbes))
    return state.skip("lists within the context, 1 to 16 centroids looked up");
  const double lists = 4.0 * s.heads() * p.centroids * p.list;
  const double device = lists + 2.0 * s.layers * s.batch * s.q_heads * p.centroids * s.dim +
                        4.0 * s.layers * s.batch * fixed * s.kv_heads * s.dim;
  if (too_large_pipeline(state, s, device,
                         std::min(kMostHostBytes + 4.0 * s.context * s.kv_heads * s.dim,
                                  4.0 * s.layers * s.batch * s.context * s.kv_heads * s.dim)))
    return;
  double recalled = 0;
  run_scheme(state, s, [&] { return std::make_unique<Ctkvr>(s, p, state.machine(), &recalled); });
  state_counts(state, {.attended = double{1} * fixed,
                       .scored = double{1} * p.centroids,
                       .candidates = std::round(recalled),
                       .cpu_attended = double{1} * budget});
  state.work("cores", state.machine().cores);
}

}  // namespace

Bench pipeline_ctkvr(const Machine&) {
  return pipeline_bench(
      "ctkvr", "decode steps with CTkvr's centroids, and attention to what they recall on the CPU",
      {numbers("budget", {512}), numbers("fixed", {640}), numbers("probes", {4})},
      {numbers("dim", {128}), numbers("budget", {16}), numbers("fixed", {24}), numbers("probes", {2})}, run);
}

}  // namespace kvcast::kernels

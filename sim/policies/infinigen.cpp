// InfiniGen (Lee et al., "InfiniGen: Efficient Generative Inference of Large Language Models with Dynamic KV Cache
// Management", OSDI 2024, arXiv 2406.19707; code: snu-comparch/InfiniGen).
//
// Idea: the input of attention changes little from layer to layer, so that a layer's input predicts the next layer's
// query. With the few columns of query and key that matter, it predicts the pairs that the next layer needs, and they
// are fetched from the host while this layer is computed.
// Offline: queries and keys of a head are rotated so that few columns contain most of the query (skewing).
// Prefill: the d' = partial_ratio · d columns with the largest Σ|q| of the prompt's queries. Keys of these columns stay
// on the GPU; all pairs are copied to the host.
// Selection in each step: scores q̃·k / √d over these columns, mean over the group; n = mean over the layer's KV heads
// of the number of tokens above (largest score − alpha), at most max_share of all; every head fetches its best n, after
// the first `sink` and the last `recent` tokens (FreeKV's comparison, arXiv 2505.13109, section 2.2). The current
// token's pair is on the GPU; nothing else stays there for the next step.
// Cost, concurrent with the layer before: partial query product, n_kv·L·d'·b of partial keys, token numbers to the
// host. The CPU gathers n pairs per head into a pinned buffer, and one copy transfers them; attention waits for it. New
// pairs are copied to the host.
// Storage: HBM partial keys n_kv·L·d'·b, partial query weights n_q·d'·hidden·b, buffers of two layers; DRAM
// 2·n_kv·L·d·b.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/index.hpp"
#include "base/random.hpp"
#include "policy/costs.hpp"
#include "policy_parts/bases.hpp"
#include "policy_parts/host_pages.hpp"
#include "policy_parts/policy_by.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/spectrum.hpp"
#include "policy_parts/step_scores.hpp"

namespace kvcast::policy::infinigen {
namespace {

struct InfinigenSetting {
  double alpha = 0, ratio = 0, max_share = 0, cosine = 1;
  std::int64_t sink = 0, recent = 0;
  bool skew = true, overlap = true;
  std::shared_ptr<const Bases> basis;  // null: computed from the prompt
  std::uint64_t seed = 0;
  int dims_of(int head_dim) const { return std::max(1, static_cast<int>(ratio * head_dim)); }
};

// Partial scores of one KV head.
class SpeculatedHead {
 public:
  SpeculatedHead(const trace::Layer& layer, int kv_head, const InfinigenSetting& setting)
      : layer_(layer),
        kv_head_(kv_head),
        d_(index(layer.info().head_dim)),
        s_(setting),
        columns_(choose_columns()),
        partial_keys_(project(layer.keys(kv_head))),
        products_({partial_keys_.data(), layer.keys(kv_head).rows, dims(), dims()}, layer.info().decode_steps, 1,
                  [this](int t, std::size_t, std::span<float> out) { speculate(t, out); }) {}

  // Scores of all tokens before position `end`.
  std::span<const float> scores(int t, std::int64_t end) { return products_.row(t, 0).first(index(end)); }

 private:
  std::size_t dims() const { return index(s_.dims_of(layer_.info().head_dim)); }

  // Captured prompt queries of the group, stacked.
  std::vector<float> prompt_queries() const {
    const trace::TraceInfo& info = layer_.info();
    const auto n = index(info.prompt_queries());
    if (n == 0) {
      throw UserError({}, "infinigen selects columns by the prompt's queries, but the trace has none");
    }
    std::vector<float> out;
    for (int g = 0; g < info.group(); ++g) {
      const MatrixView queries = layer_.queries(kv_head_ * info.group() + g);
      for (std::size_t i = 0; i < n; ++i) out.insert(out.end(), queries.row(i), queries.row(i) + d_);
    }
    return out;
  }

  // [d' × d]: one row for every column that is kept, as a direction in the trace's own columns.
  std::vector<float> choose_columns() const {
    const std::vector<float> queries = prompt_queries();
    const MatrixView rows{queries.data(), queries.size() / d_, d_, d_};
    std::vector<float> directions(d_ * d_);
    if (s_.basis != nullptr) {
      s_.basis->check_shape(layer_.info());
      const MatrixView known = s_.basis->of("queries", layer_.id(), kv_head_);
      directions.assign(known.data, known.data + d_ * d_);
    } else if (s_.skew) {
      directions = leading_directions(second_moments(rows, false), d_, d_);
    } else {
      for (std::size_t j = 0; j < d_; ++j) directions[j * d_ + j] = 1;
    }
    std::vector<float> magnitude(d_);
    for (std::size_t i = 0; i < rows.rows; ++i) {
      for (std::size_t j = 0; j < d_; ++j) magnitude[j] += std::abs(dot(directions.data() + j * d_, rows.row(i), d_));
    }
    std::vector<std::int32_t> chosen;
    Ranking().select(magnitude, dims(), chosen);
    std::vector<float> out;
    for (const std::int32_t j : chosen) {
      const float* const direction = directions.data() + index(j) * d_;
      out.insert(out.end(), direction, direction + d_);
    }
    return out;
  }

  std::vector<float> project(const MatrixView& rows) const {
    std::vector<float> out(rows.rows * dims());
    multiply_transposed(rows, {columns_.data(), dims(), d_, d_}, out.data(), dims());
    return out;
  }

  // Mean over the group of the predicted queries in the selected columns, scaled so that its products are the mean
  // scores.
  void speculate(int t, std::span<float> out) const {
    const int members = layer_.info().group();
    const float scale = 1.0f / (std::sqrt(static_cast<float>(d_)) * static_cast<float>(members));
    for (int g = 0; g < members; ++g) {
      const int q_head = kv_head_ * members + g;
      const std::vector<float> query = predicted_query(q_head, t);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += scale * dot(columns_.data() + i * d_, query.data(), d_);
    }
  }

  // The step's query, rotated in a random direction until it has the given cosine with itself.
  std::vector<float> predicted_query(int q_head, int t) const {
    const float* const q = layer_.decode_query(q_head, t);
    std::vector<float> out(q, q + d_);
    if (s_.cosine == 1) return out;
    const Stream stream = Stream(s_.seed).child(
        {static_cast<std::uint64_t>(layer_.id()), static_cast<std::uint64_t>(q_head), static_cast<std::uint64_t>(t)});
    std::vector<float> aside(d_);
    for (std::size_t j = 0; j < d_; ++j) aside[j] = static_cast<float>(stream.normal(j));
    const float along = dot(q, q, d_) > 0 ? dot(aside.data(), q, d_) / dot(q, q, d_) : 0.0f;
    for (std::size_t j = 0; j < d_; ++j) aside[j] -= along * q[j];
    const float length = std::sqrt(dot(aside.data(), aside.data(), d_));
    if (length == 0) return out;
    const float cosine = static_cast<float>(s_.cosine);
    const float factor = std::sqrt((1 - cosine * cosine) * dot(q, q, d_)) / length;
    for (std::size_t j = 0; j < d_; ++j) out[j] = cosine * q[j] + factor * aside[j];
    return out;
  }

  const trace::Layer& layer_;
  int kv_head_;
  std::size_t d_;
  InfinigenSetting s_;
  std::vector<float> columns_, partial_keys_;
  StepScores products_;
};

class InfiniGenSelector final : public Selector {
 public:
  InfiniGenSelector(const LayerInput& input, const InfinigenSetting& setting) : info_(input.info()), s_(setting) {
    for (int h = 0; h < info_.n_kv_heads; ++h) {
      heads_.push_back(std::make_unique<SpeculatedHead>(input.layer(), h, setting));
    }
  }

  // All pairs are in host memory.
  void prefill(LayerSelection& resident) override { resident.reset(heads_.size(), false); }

  void step(int t, LayerSelection& out) override {
    out.reset(heads_.size(), false);
    const std::int64_t pool = info_.prompt_tokens + t;
    const std::size_t n = fetched_tokens(t, pool);
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      HeadSelection& head = out.heads[h];
      const std::span<const float> scores = heads_[h]->scores(t, pool);
      ranked_.assign(scores.begin(), scores.end());
      rank_first(ranked_, index(s_.sink), index(std::max<std::int64_t>(0, s_.recent - 1)));
      ranking_.select(ranked_, n, head.fetched);
      head.attended = head.fetched;
      head.attended.push_back(static_cast<std::int32_t>(pool));
      head.evicted = head.attended;
      head.counts.scored = pool;
      head.counts.fetched_runs = head.fetched.size();
    }
  }

 private:
  // n, the same for every head.
  std::size_t fetched_tokens(int t, std::int64_t pool) {
    double above = 0;
    for (const auto& head : heads_) {
      const std::span<const float> scores = head->scores(t, pool);
      const float bar = *std::max_element(scores.begin(), scores.end()) - static_cast<float>(s_.alpha);
      above += std::count_if(scores.begin(), scores.end(), [&](float x) { return x > bar; });
    }
    const double mean = std::floor(above / static_cast<double>(heads_.size()));
    const double most = std::floor(s_.max_share * static_cast<double>(pool));
    const auto least = static_cast<double>(std::clamp<std::int64_t>(s_.sink + s_.recent - 1, 1, pool));
    return static_cast<std::size_t>(std::max(least, std::min(mean, most)));
  }

  const trace::TraceInfo& info_;
  InfinigenSetting s_;
  std::vector<std::unique_ptr<SpeculatedHead>> heads_;
  Ranking ranking_;
  std::vector<float> ranked_;
};

class InfiniGen final : public SelectsBy<InfiniGenSelector, InfinigenSetting> {
 public:
  using SelectsBy::SelectsBy;

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const double keys = shape.batch * m.kv_heads * shape.prompt_tokens;
    const double queries = shape.batch * m.q_heads * shape.prompt_tokens;
    const double dims = s_.dims_of(shape.model->head_dim);
    OpId op = ops.ready();
    if (s_.skew) {
      op = ops.compute(Kind::kIndex, "skew queries and keys", Gemm{keys + queries, m.d, m.d}, {op});
    }
    const Kernel columns{KernelClass::kReduce, queries * m.row(), shape.batch * m.q_heads * m.d * kScoreBytes,
                         queries * m.d};
    op = ops.compute(Kind::kIndex, "magnitude of columns", columns, {op});
    op = ops.compute(Kind::kTopK, "choose columns", TopK{shape.batch * m.kv_heads, m.d, dims, kScoreBytes}, {op});
    const double bytes = keys * dims * m.element;
    ops.compute(Kind::kIndex, "partial keys",
                Kernel{.cls = KernelClass::kGather, .read_bytes = bytes, .write_bytes = bytes, .unit_bytes = m.element},
                {op});
    back_up_prompt(shape, static_cast<int>(shape.prompt_tokens), HostLayout::kNhd, false, ops);
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    back_up_token(shape, 1, HostLayout::kNhd, ops);
    const double dims = s_.dims_of(shape.model->head_dim), row = shape.batch * m.kv_heads * dims * m.element;
    const OpId appended =
        ops.compute(Kind::kIndex, "append partial key", Kernel{KernelClass::kElementwise, row, row}, {ops.ready()});
    OpId fetched = prefetch(shape, m, dims, ops);
    if (!s_.overlap) {
      fetched = ops.host(Lane::kHost, Kind::kSync, "wait for the device", HostCall::kStreamSync, 1, {fetched});
    }
    const OpId both = ops.join(Lane::kCompute, {appended, fetched});
    ops.done(ops.attention(attention_over(shape, 0), {both}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const Dims m(*shape.model);
    const double dims = s_.dims_of(shape.model->head_dim), layers = shape.model->layers;
    const double pairs = 2 * shape.batch * m.kv_heads * m.row();
    return {in_hbm(Owner::kFetchedPairs, 2 * pairs * shape.attended),  // of this layer and the next
            in_hbm(Owner::kPartialKeys, shape.batch * layers * m.kv_heads * shape.tokens * dims * m.element),
            in_hbm(Owner::kPartialQueryWeights, layers * m.q_heads * dims * shape.model->hidden * m.element, true),
            host_copy(shape)};
  }

  // The number above the threshold is that of the replay; the pool grows with the context.
  Growth growth(const Lengths&) const override { return {.scored = 1}; }

 private:
  // Prediction, gathering and copy, starting from the input of the layer before or, without overlap, from this layer's
  // own.
  OpId prefetch(const DecodeLayer& shape, const Dims& m, double dims, LayerOps& ops) const {
    const double scored = shape.sum(&HeadCounts::scored), tokens = shape.sum(&HeadCounts::fetched);
    OpId op = s_.overlap ? ops.ready_before() : ops.ready();
    op = ops.kernel(Lane::kSelect, Kind::kScore, "speculated query",
                    Gemm{static_cast<double>(shape.batch), m.q_heads * dims, static_cast<double>(shape.model->hidden)},
                    {op});
    op = score_and_rank(shape, scored * dims * m.element, 2 * scored * m.group * dims, tokens / shape.heads.size(), ops,
                        op, Lane::kSelect);
    op = fetch_ids(tokens, {Lane::kSelect, Lane::kRecallThread}, ops, op);
    if (tokens <= 0) return op;
    const double of_a_head = tokens / shape.heads.size();
    return gather_pairs(tokens, 2 * shape.mean_tokens() * m.row() / of_a_head, m, ops, op);
  }
};

Fields<InfinigenSetting> infinigen_fields() {
  using S = InfinigenSetting;
  return Fields<S>()
      .add(real("alpha", 4,
                "tokens are requested if their partial score, scaled by 1 / √d, is less than this below the largest", 0,
                1e9),
           &S::alpha)
      .add(real("partial_ratio", 0.2, "share of the columns of queries and keys that speculation uses", 1e-3),
           &S::ratio)
      .add(real("max_share", 0.2, "largest share of all tokens that a head fetches", 1e-6), &S::max_share)
      .add(whole("sink", 0, "tokens", "first tokens, which every step fetches; among those requested"), &S::sink)
      .add(whole("recent", 0, "tokens", "last tokens, likewise, the current one included"), &S::recent)
      .add(flag("skew", true, "rotate queries and keys so that few columns contain most of the query"), &S::skew)
      .add(basis_parameter("source of the directions of this rotation"))
      .add(real("query_cosine", 1,
                "cosine between the query predicted from the layer before and the true one; 1: exact prediction"),
           &S::cosine)
      .add(whole("seed", 1, "", "seed of the errors of predicted queries"), &S::seed)
      .add(flag("overlap", true,
                "predict and fetch while the layer before is computed; false: each layer waits for its own fetch"),
           &S::overlap);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "infinigen";
  d.sentence =
      "Keeps pairs in host memory and, during each layer, fetches those that it predicts the next layer needs.";
  d.category = Category::kHostRetrieval;
  d.paper = "Lee et al., InfiniGen, OSDI 2024 (arXiv 2406.19707)";
  d.parameters = infinigen_fields().parameters();
  d.recall_page = [](const ParameterValues&) { return 1; };
  d.formulas = {
      "traffic: n_kv·L·d'·b + n_q·d'·hidden·b of speculation, 2·n_kv·n·d·b from the host, 2·n_kv·(n + 1)·d·b of "
      "attention a step",
      "storage: HBM n_kv·L·d'·b + n_q·d'·hidden·b, DRAM 2·n_kv·L·d·b"};
  d.differences = {
      "traces do not contain the weights: the predicted query is the true one, rotated to a cosine of query_cosine; at "
      "1 the prediction is better than any model's",
      "skewing is computed from the prompt queries in the trace; the released code computes it from other text: basis: "
      "FILE, measured on other traces",
      "selects for each KV head by the mean over its query heads; the released models have multi-head attention",
      "the first two layers, which the released code loads completely, are treated like the others by default: "
      "first_dense_layers: 2 (kept on the GPU)",
      "the released loop synchronises the device every layer: overlap: false",
      "host memory contains all tokens; eviction from it is not modelled"};
  d.make = [](const ParameterValues& values) -> std::unique_ptr<Policy> {
    InfinigenSetting s = infinigen_fields().read(values);
    s.basis = load_basis(values, "queries");
    if (s.basis != nullptr && !s.skew) {
      throw UserError(values.where("basis"), "basis requires skew: true");
    }
    return std::make_unique<InfiniGen>(s);
  };
  return d;
}

}  // namespace kvcast::policy::infinigen

// RetroInfer (Chen et al., "RetroInfer: A Vector-Storage Approach for Scalable Long-Context LLM Inference", 2025, arXiv
// 2505.02922; code: microsoft/RetrievalAttention).
//
// Idea: a query needs a few clusters of keys exactly; the contribution of the next ones is close to that of their
// centroids; the others contribute nothing.
// Index, for every KV head: the prompt between the first `sink` and last `recent` tokens in segments of `segment`
// tokens, each clustered by direction into one cluster per `cluster_tokens` tokens; centroid c = mean key, v̄ = mean
// value, n = size.
// Selection in each step: softmax of q·c/√d over the clusters, summed over the group. The best retrieved·clusters,
// rounded and at least one, are read in full, with the sink, the recent tokens and all generated tokens; the next
// estimated·clusters, rounded, are estimated.
// Output: each estimated cluster counts as n tokens of key c and value v̄ in the softmax with the tokens that are read.
// Pairs are in host memory; a GPU cache of the share `cache` of the clusters keeps the most recently used ones; missing
// ones are fetched.
// Cost: centroids read n_kv·C·d·b, top-k; numbers to the host, and missing clusters read by a kernel from pinned
// memory. The clusters are gathered, 2·n_kv·retrieved·d·b read and written, and attended to; estimated centroids and
// mean values are read. The cache is updated concurrently with the model.
// Storage: HBM 2·n_kv·(C + cache·S + retrieved + sink + recent + T)·d·b, DRAM 2·n_kv·S·d·b.
#include <algorithm>
#include <cmath>

#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy_parts/host_attention.hpp"
#include "policy_parts/host_pages.hpp"
#include "policy_parts/kmeans.hpp"
#include "policy_parts/page_cache.hpp"
#include "policy_parts/policy_by.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/step_scores.hpp"

namespace kvcast::policy::retroinfer {
namespace {

struct RetroSetting {
  std::int64_t sink = 0, recent = 0, segment = 1, cluster_tokens = 1;
  double retrieved = 0, estimated = 0, cache = 0;
  int iterations = 1;
  std::int64_t seed = 0;

  // Prompt tokens that are clustered.
  Range indexed(std::int64_t prompt) const { return StaticTokens{sink, recent, true}.host(prompt, prompt); }
  std::int64_t clusters_of(std::int64_t tokens) const { return std::max<std::int64_t>(1, tokens / cluster_tokens); }
  // Number of clusters of a prompt, if none is empty.
  std::int64_t clusters(std::int64_t prompt) const {
    const std::int64_t tokens = indexed(prompt).size(), rest = tokens % segment;
    return tokens / segment * clusters_of(segment) + (rest > 0 ? clusters_of(rest) : 0);
  }
};

std::size_t share_of(double share, std::size_t clusters) {
  return std::min(clusters, index(std::llround(share * clusters)));
}

// The clusters of one KV head.
struct RetroIndex {
  std::vector<float> centroids, values;           // [clusters × d]: mean keys, mean values
  std::vector<std::vector<std::int32_t>> tokens;  // ascending positions of each cluster

  RetroIndex(const trace::Layer& layer, int kv_head, const RetroSetting& s) {
    const Range range = s.indexed(layer.info().prompt_tokens);
    const Stream stream =
        Stream(s.seed).child({static_cast<std::uint64_t>(layer.id()), static_cast<std::uint64_t>(kv_head)});
    for (std::int64_t first = range.begin; first < range.end; first += s.segment) {
      const std::int64_t n = std::min(s.segment, range.end - first);
      MatrixView keys = layer.keys(kv_head);
      keys.data = keys.row(index(first)), keys.rows = index(n);
      const Clusters made = cluster_by_direction(keys, index(s.clusters_of(n)), s.iterations,
                                                 stream.child({static_cast<std::uint64_t>(first)}), layer.cancel());
      const std::size_t before = tokens.size();
      centroids.insert(centroids.end(), made.centroids.begin(), made.centroids.end());
      tokens.resize(before + made.sizes.size());
      for (std::size_t i = 0; i < keys.rows; ++i) {
        tokens[before + index(made.labels[i])].push_back(static_cast<std::int32_t>(first) +
                                                         static_cast<std::int32_t>(i));
      }
    }
    const MatrixView all = layer.values(kv_head);
    values.resize(centroids.size());
    for (std::size_t c = 0; c < tokens.size(); ++c) {
      for (const std::int32_t i : tokens[c]) {
        const float* const value = all.row(index(i));
        for (std::size_t j = 0; j < all.cols; ++j) {
          values[c * all.cols + j] += value[j] / static_cast<float>(tokens[c].size());
        }
      }
    }
  }
};

class RetroHead {
 public:
  RetroHead(const LayerInput& input, int kv_head, const RetroSetting& setting)
      : layer_(input.layer()),
        kv_head_(kv_head),
        d_(index(input.info().head_dim)),
        s_(setting),
        index_(input.layer(), kv_head, setting),
        products_({index_.centroids.data(), index_.tokens.size(), d_, d_}, input.info().decode_steps,
                  index(input.info().group()),
                  [this](int t, std::size_t g, std::span<float> out) {
                    std::copy_n(query(t, static_cast<int>(g)), d_, out.data());
                  }),
        used_(index_.tokens.size(), -1.0f) {}

  void prefill(HeadSelection& resident) const {
    const std::int64_t prompt = layer_.info().prompt_tokens;
    const Range range = s_.indexed(prompt);
    append_range(0, range.begin, resident.attended);
    append_range(range.end, prompt, resident.attended);
  }

  void step(int t, HeadSelection& out) {
    const std::int64_t prompt = layer_.info().prompt_tokens;
    const Range range = s_.indexed(prompt);
    append_range(0, range.begin, out.attended);
    estimated_.clear();
    if (!index_.tokens.empty()) retrieve(t, out);
    append_range(range.end, prompt + t + 1, out.attended);
    if (!index_.tokens.empty()) attend(t, out.attended);
  }

  std::span<const float> output(int member) const {
    if (outputs_.empty()) return {};
    return std::span(outputs_).subspan(index(member) * d_, d_);
  }

 private:
  const float* query(int t, int member) const {
    return layer_.decode_query(kv_head_ * layer_.info().group() + member, t);
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(d_)); }

  void retrieve(int t, HeadSelection& out) {
    const std::size_t n = index_.tokens.size(), members = products_.rows();
    std::vector<std::vector<float>> rows(members);
    for (std::size_t g = 0; g < members; ++g) {
      const std::span<const float> all = products_.row(t, g);
      rows[g].assign(all.begin(), all.end());
    }
    std::vector<float> scores(n);
    const std::vector<std::span<float>> views(rows.begin(), rows.end());
    reduce_group(Group::kSumWeights, views, scale(), scores);
    const std::size_t read = std::max<std::size_t>(1, share_of(s_.retrieved, n));
    std::vector<std::int32_t> order;
    ranking_.rank(scores, std::min(n, read + share_of(s_.estimated, n)), order);
    const auto end = order.begin() + static_cast<std::ptrdiff_t>(read);
    estimated_.assign(end, order.end());
    std::sort(order.begin(), end);
    fetch(t, std::span(order).first(read), out);
    const auto begin = static_cast<std::ptrdiff_t>(out.attended.size());
    for (const std::int32_t c : std::span(order).first(read)) append(c, out.attended);
    std::sort(out.attended.begin() + begin, out.attended.end());
    out.counts.scored = static_cast<std::int64_t>(n);
    out.counts.candidates = static_cast<std::int64_t>(estimated_.size());
  }

  void append(std::int32_t cluster, std::vector<std::int32_t>& out) const {
    const std::vector<std::int32_t>& tokens = index_.tokens[index(cluster)];
    out.insert(out.end(), tokens.begin(), tokens.end());
  }

  // The cache keeps the clusters that were read last.
  void fetch(int t, std::span<const std::int32_t> chosen, HeadSelection& out) {
    std::vector<std::int32_t> came, went;
    const std::size_t slots = std::max(chosen.size(), share_of(s_.cache, index_.tokens.size()));
    cache_.update(chosen, slots, used_, came, went);
    for (const std::int32_t c : chosen) used_[index(c)] = static_cast<float>(t);
    for (const std::int32_t c : came) append(c, out.fetched);
    for (const std::int32_t c : went) append(c, out.evicted);
    std::sort(out.fetched.begin(), out.fetched.end());
    std::sort(out.evicted.begin(), out.evicted.end());
    out.counts.fetched_runs = came.size();
  }

  // One softmax over tokens and estimated clusters.
  void attend(int t, const std::vector<std::int32_t>& attended) {
    const MatrixView keys = layer_.keys(kv_head_), values = layer_.values(kv_head_);
    outputs_.assign(products_.rows() * d_, 0.0f);
    for (std::size_t g = 0; g < products_.rows(); ++g) {
      const std::span<const float> centroids = products_.row(t, g);
      weights_.clear();
      for (const std::int32_t i : attended) {
        weights_.push_back(scale() * dot(query(t, static_cast<int>(g)), keys.row(index(i)), d_));
      }
      for (const std::int32_t c : estimated_) {
        const auto at = index(c);
        weights_.push_back(scale() * centroids[at] + std::log(static_cast<float>(index_.tokens[at].size())));
      }
      softmax(weights_);
      for (std::size_t i = 0; i < weights_.size(); ++i) {
        const float* const value = i < attended.size() ? values.row(index(attended[i]))
                                                       : &index_.values[index(estimated_[i - attended.size()]) * d_];
        for (std::size_t j = 0; j < d_; ++j) outputs_[g * d_ + j] += weights_[i] * value[j];
      }
    }
  }

  const trace::Layer& layer_;
  int kv_head_;
  std::size_t d_;
  RetroSetting s_;
  RetroIndex index_;
  StepScores products_;  // of decode queries with centroids
  Ranking ranking_;
  PageCache cache_;
  std::vector<float> used_;              // by cluster: the step that last read it
  std::vector<std::int32_t> estimated_;  // clusters, of the last step
  std::vector<float> weights_, outputs_;
};

class RetroSelector final : public EachKvHead<RetroHead, RetroSetting> {
 public:
  RetroSelector(const LayerInput& layer, const RetroSetting& setting)
      : EachKvHead(layer, setting), info_(layer.info()) {}

  std::span<const float> output(int q_head) const override {
    return heads_[index(q_head / info_.group())]->output(q_head % info_.group());
  }

 private:
  const trace::TraceInfo& info_;
};

class RetroInfer final : public SelectsBy<RetroSelector, RetroSetting> {
 public:
  using SelectsBy::SelectsBy;

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const double tokens = s_.indexed(shape.prompt_tokens).size();
    if (tokens <= 0) return;
    const double lists = shape.batch * m.kv_heads, rows = lists * tokens;
    const double of_segment = std::min(tokens, static_cast<double>(s_.segment));
    const double clusters = s_.clusters(shape.prompt_tokens);
    OpId op = ops.ready();
    for (int i = 0; i < s_.iterations; ++i) {
      const double each = s_.clusters_of(static_cast<std::int64_t>(of_segment));
      op = ops.compute(Kind::kIndex, "nearest centroid", Gemm{rows, each, m.d}, {op});
      const Kernel move{KernelClass::kReduce, rows * (m.row() + kIndexBytes), lists * clusters * m.row(), rows * m.d};
      op = ops.compute(Kind::kIndex, "move centroids", move, {op});
    }
    const Kernel values{KernelClass::kReduce, rows * (m.row() + kIndexBytes), lists * clusters * m.row(), rows * m.d};
    ops.compute(Kind::kIndex, "mean values", values, {op});
    offload_prompt(shape, {s_.sink, s_.recent, true}, ops);
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const double scored = shape.sum(&HeadCounts::scored);
    if (scored <= 0) return ops.done(ops.attention(attention_over(shape, 0), {ops.ready()}));
    const double lists = shape.heads.size();
    const double estimated = shape.sum(&HeadCounts::candidates), fetched = shape.sum(&HeadCounts::fetched);
    const double read = s_.retrieved * scored + estimated;
    OpId op = score_and_rank(shape, scored * m.row(), 2 * scored * m.group * m.d, read / lists, ops, ops.ready());
    op = fetch_ids(s_.retrieved * scored, {}, ops, op);
    if (fetched > 0) {
      Copy missing{.kind = CopyKind::kZeroCopy, .runs = shape.sum(&HeadCounts::fetched_runs)};
      missing.run_bytes = fetched * 2 * m.row() / missing.runs;
      op = ops.copy(Lane::kCopyA, "missing clusters", missing, {op});
      const double pairs = fetched * 2 * m.row();
      ops.kernel(Lane::kSelect, Kind::kIndex, "update cache",
                 Kernel{.cls = KernelClass::kGather, .read_bytes = pairs, .write_bytes = pairs, .unit_bytes = m.row()},
                 {op});
    }
    const auto generated = (s_.sink + s_.recent) * lists;
    const double together = std::max(0.0, shape.sum(&HeadCounts::attended) - generated) * 2 * m.row();
    op = ops.compute(
        Kind::kIndex, "bring clusters together",
        Kernel{.cls = KernelClass::kGather, .read_bytes = together, .write_bytes = together, .unit_bytes = m.row()},
        {op});
    op = ops.attention(attention_over(shape, 0), {op});
    const Kernel estimate{KernelClass::kScore, estimated * 2 * m.row() + shape.batch * m.q_heads * m.row(),
                          shape.batch * m.q_heads * m.row(), 4 * estimated * m.group * m.d};
    ops.done(ops.compute(Kind::kAttention, "estimated clusters", estimate, {op}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const std::int64_t prompt = shape.lengths.prompt_tokens;
    const auto indexed = static_cast<double>(s_.indexed(prompt).size()),
               clusters = static_cast<double>(s_.clusters(prompt));
    const double steady = static_cast<double>(shape.tokens) - indexed;
    return {in_hbm(Owner::kKvCache, kv_bytes(shape, steady)),
            in_hbm(Owner::kCentroidsAndMeans, kv_bytes(shape, clusters)),
            in_hbm(Owner::kClusterCache, kv_bytes(shape, std::max(s_.cache, s_.retrieved) * indexed)),
            // Used by all layers in turn.
            in_hbm(Owner::kExecutionBuffer, kv_bytes(shape, s_.retrieved * indexed + steady) / shape.model->layers),
            in_dram(Owner::kHostCache, kv_bytes(shape, indexed))};
  }

  // Generated tokens are always read.
  Growth growth(const Lengths&) const override { return {.attended = 1}; }
};

Fields<RetroSetting> retroinfer_fields() {
  using S = RetroSetting;
  return Fields<S>()
      .add(whole("sink", 4, "tokens", "first tokens, which stay on the GPU and are always read"), &S::sink)
      .add(whole("recent", 64, "tokens", "last prompt tokens, which stay on the GPU and are always read"), &S::recent)
      .add(whole("segment", 8192, "tokens", "tokens that are clustered together", 1), &S::segment)
      .add(whole("cluster_tokens", 16, "tokens", "mean tokens per cluster", 1, 65536), &S::cluster_tokens)
      .add(real("retrieved", 0.018, "share of the clusters that are read, rounded up to whole ones", 1e-6),
           &S::retrieved)
      .add(real("estimated", 0.232, "share of the clusters that are represented by their centroids, rounded up"),
           &S::estimated)
      .add(real("cache", 0.05, "share of the clusters in the GPU's cache, and at least those of the last step"),
           &S::cache)
      .add(whole("iterations", 10, "", "largest number of k-means rounds", 1, 1000), &S::iterations)
      .add(whole("seed", 1, "", "seed of the initial keys of k-means"), &S::seed);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "retroinfer";
  d.sentence =
      "Fetches the most important clusters of keys from host memory, and represents the next ones by their centroids.";
  d.category = Category::kHostRetrieval;
  d.paper = "Chen et al., RetroInfer, 2025 (arXiv 2505.02922)";
  declare<RetroInfer>(d, retroinfer_fields());
  d.formulas = {"traffic: n_kv·C·d·b + 2·n_kv·(estimated·C + read)·d·b per step, misses·2·d·b from the host",
                "storage: HBM 2·n_kv·(C + cache·S + sink + recent + T)·d·b, DRAM 2·n_kv·S·d·b, C = S / cluster_tokens"};
  d.differences = {
      "clusters start from keys drawn at random, are computed from the keys themselves, and each segment "
      "is assigned alone; the released code starts from evenly spaced keys, subtracts the mean key first, "
      "assigns all tokens anew at the end, and rounds the number of clusters to a multiple of 8 and of the "
      "number of segments",
      "generated tokens stay in the steady zone; the released code clusters them 1024 at a time",
      "the cache is counted in clusters; the released one consists of blocks of equal size",
      "clusters are selected by the sum of softmax weights over the group; a cluster is estimated by its "
      "mean value alone",
      "look-ups in the mapping table on the CPU are part of the wait for the selected numbers"};
  return d;
}

}  // namespace kvcast::policy::retroinfer

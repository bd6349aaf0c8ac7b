// Squeezed Attention (Hooper et al., "Squeezed Attention: Accelerating Long Context Length LLM Inference", 2024, arXiv
// 2411.09688; code: SqueezeAILab/SqueezedAttention).
//
// Idea: keys of a fixed context form clusters. A query reads the clusters whose estimated attention is large, so that
// the number of keys follows from the query and not from a budget.
// Offline, for every KV head: k-means by direction of the context's keys except the last `window`; centroid = mean of
// the unnormalised members; N_c = centroid_share · (F − window).
// Threshold: for the last `window` queries, S_c = mean of e^{q·c/√d} / Σ_c' n_c' e^{q·c'/√d}, maximum over the group.
// Every key has its cluster's score, and the threshold is one quantile (`sparsity`) over all keys of all heads and
// captured layers.
// Selection in each step: S_c of the query, maximum over the group; keys of clusters above the threshold, the window's
// keys and all generated ones.
// Cost: centroids twice (for the sum and for the scores) 2·n_kv·N_c·d·b; labels n_kv·F·4 to list the keys; attention
// 2·n_kv·kept·d·b. All in sequence.
// Storage: 2·n_kv·L·d·b + n_kv·N_c·d·b + labels n_kv·F·4.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/index.hpp"
#include "base/parallel.hpp"
#include "policy/costs.hpp"
#include "policy_parts/kmeans.hpp"
#include "policy_parts/policy_by.hpp"
#include "policy_parts/step_scores.hpp"

namespace kvcast::policy::squeezed_attention {
namespace {

struct SqueezedAttentionSetting {
  double share = 0, sparsity = 0;
  int window = 0, iterations = 1;
  bool online = false;
  std::uint64_t seed = 0;

  // Number of clustered keys, and number of clusters.
  std::int64_t clustered(std::int64_t prompt) const { return std::max<std::int64_t>(0, prompt - window); }
  std::int64_t clusters(std::int64_t prompt) const {
    const std::int64_t keys = clustered(prompt);
    return std::clamp<std::int64_t>(std::llround(share * keys), std::min<std::int64_t>(1, keys), keys);
  }
};

// Converts products of queries with centroids, [queries × clusters], to their shares of S_c, and adds these to `mean`.
void add_estimates(const Clusters& clusters, std::span<float> products, std::size_t d, std::vector<float>& mean) {
  const std::size_t n = clusters.sizes.size(), queries = products.size() / n;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  for (std::size_t i = 0; i < queries; ++i) {
    const std::span<float> row = products.subspan(i * n, n);
    softmax(row, scale);
    double sum = 0;
    for (std::size_t c = 0; c < n; ++c) sum += static_cast<double>(clusters.sizes[c]) * static_cast<double>(row[c]);
    const auto factor = static_cast<float>(1 / (sum * queries));
    for (std::size_t c = 0; c < n; ++c) mean[c] += row[c] * factor;
  }
}

// S_c of each cluster, mean over the rows of each query head, maximum over the heads.
std::vector<float> estimate(const Clusters& clusters, std::span<const MatrixView> heads) {
  const std::size_t n = clusters.sizes.size(), d = heads[0].cols;
  std::vector<float> best(n), products;
  for (const MatrixView& queries : heads) {
    products.resize(queries.rows * n);
    multiply_transposed(queries, {clusters.centroids.data(), n, d, d}, products.data(), n);
    std::vector<float> mean(n);
    add_estimates(clusters, products, d, mean);
    for (std::size_t c = 0; c < n; ++c) best[c] = std::max(best[c], mean[c]);
  }
  return best;
}

// One layer's clusters by KV head, and the scores that the last prompt queries give them.
struct Index {
  std::vector<Clusters> heads;
  std::vector<std::vector<float>> scores;
};

Index build(const LayerInput& input, const SqueezedAttentionSetting& s) {
  const trace::Layer& layer = input.layer();
  const trace::TraceInfo& info = input.info();
  Index made;
  const std::int64_t keys = s.clustered(info.prompt_tokens);
  if (keys == 0) return made;
  const Stream stream = Stream(s.seed).child({static_cast<std::uint64_t>(layer.id())});
  made.heads.resize(index(info.n_kv_heads));
  made.scores.resize(made.heads.size());
  parallel_for(made.heads.size(), input.threads(), [&](std::size_t h) {
    MatrixView rows = layer.keys(static_cast<int>(h));
    rows.rows = index(keys);
    made.heads[h] = cluster_by_direction(rows, index(s.clusters(info.prompt_tokens)), s.iterations, stream.child({h}),
                                         layer.cancel());
    std::vector<MatrixView> queries;
    for (int g = 0; g < info.group(); ++g) {
      queries.push_back(layer.window_queries(static_cast<int>(h) * info.group() + g, s.window));
    }
    made.scores[h] = estimate(made.heads[h], queries);
  });
  return made;
}

// The quantile of the scores of all keys, interpolated linearly.
float quantile(std::span<const Index* const> layers, double share) {
  std::vector<std::pair<float, std::int64_t>> scores;  // score of a cluster, and number of keys in it
  std::int64_t keys = 0;
  for (const Index* layer : layers) {
    for (std::size_t h = 0; h < layer->heads.size(); ++h) {
      const std::vector<std::int64_t>& sizes = layer->heads[h].sizes;
      for (std::size_t c = 0; c < sizes.size(); ++c) scores.emplace_back(layer->scores[h][c], sizes[c]);
    }
  }
  std::sort(scores.begin(), scores.end());
  for (const auto& [score, size] : scores) keys += size;
  if (keys == 0) return 0;
  const double rank = share * (keys - 1), below = std::floor(rank);
  const auto at = [&](double wanted) {
    double passed = 0;
    for (const auto& [score, size] : scores) {
      passed += static_cast<double>(size);
      if (wanted < passed) return static_cast<double>(score);
    }
    return static_cast<double>(scores.back().first);
  };
  return static_cast<float>(at(below) + (rank - below) * (at(below + 1) - at(below)));
}

class SqueezedSelector final : public Selector {
 public:
  SqueezedSelector(const LayerInput& layer, std::shared_ptr<const Index> made, const SqueezedAttentionSetting& setting,
                   float threshold)
      : layer_(layer.layer()), index_(std::move(made)), s_(setting), threshold_(threshold) {
    const auto d = index(layer_.info().head_dim);
    for (std::size_t h = 0; h < index_->heads.size(); ++h) {
      const Clusters& clusters = index_->heads[h];
      const int first = static_cast<int>(h) * layer_.info().group();
      products_.emplace_back(MatrixView{clusters.centroids.data(), clusters.sizes.size(), d, d},
                             layer_.info().decode_steps, index(layer_.info().group()),
                             [this, first, d](int t, std::size_t g, std::span<float> out) {
                               std::copy_n(layer_.decode_query(first + static_cast<int>(g), t), d, out.data());
                             });
    }
  }

  void prefill(LayerSelection& resident) override {
    resident.reset(index(layer_.info().n_kv_heads), false);
    for (HeadSelection& head : resident.heads) append_range(0, layer_.info().prompt_tokens, head.attended);
  }

  void step(int t, LayerSelection& out) override {
    const trace::TraceInfo& info = layer_.info();
    out.reset(index(info.n_kv_heads), false);
    for (std::size_t h = 0; h < out.heads.size(); ++h) {
      std::int64_t dense_from = 0;
      if (!index_->heads.empty() && s_.sparsity > 0) {
        dense_from = s_.clustered(info.prompt_tokens);
        choose(t, h, out.heads[h]);
      }
      append_range(dense_from, info.prompt_tokens + t + 1, out.heads[h].attended);
    }
  }

 private:
  void choose(int t, std::size_t head, HeadSelection& out) {
    const trace::TraceInfo& info = layer_.info();
    const Clusters& clusters = index_->heads[head];
    const auto d = index(info.head_dim);
    std::vector<float> scores(clusters.sizes.size()), row, one;
    for (std::size_t g = 0; g < index(info.group()); ++g) {
      const std::span<const float> products = products_[head].row(t, g);
      row.assign(products.begin(), products.end());
      one.assign(scores.size(), 0.0f);
      add_estimates(clusters, row, d, one);
      for (std::size_t c = 0; c < scores.size(); ++c) scores[c] = std::max(scores[c], one[c]);
    }
    for (std::size_t i = 0; i < clusters.labels.size(); ++i) {
      if (scores[index(clusters.labels[i])] > threshold_) {
        out.attended.push_back(static_cast<std::int32_t>(i));
      }
    }
    out.counts.scored = clusters.sizes.size();
    out.counts.candidates = clusters.labels.size();
  }

  const trace::Layer& layer_;
  std::shared_ptr<const Index> index_;
  SqueezedAttentionSetting s_;
  float threshold_;
  std::vector<StepScores> products_;  // of decode queries with centroids, by KV head
};

class SqueezedAttention final : public PolicyBy<SqueezedAttentionSetting> {
 public:
  using PolicyBy::PolicyBy;

  bool surveys(const Lengths&) const override { return s_.sparsity > 0; }
  void survey(std::span<const LayerInput* const> layers, const Lengths&) override {
    std::vector<const Index*> all;
    indices_.clear();
    if (s_.sparsity == 0) return;
    for (const LayerInput* layer : layers) {
      auto& made = indices_[layer->layer().id()];
      made = std::make_shared<const Index>(build(*layer, s_));
      all.push_back(made.get());
    }
    threshold_ = quantile(all, s_.sparsity);
  }

  // Without a survey the layer's own keys determine the threshold.
  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths&) const override {
    if (s_.sparsity == 0) return std::make_unique<SqueezedSelector>(layer, std::make_shared<Index>(), s_, 0.0f);
    const auto found = indices_.find(layer.layer().id());
    if (found != indices_.end()) return std::make_unique<SqueezedSelector>(layer, found->second, s_, threshold_);
    const auto made = std::make_shared<const Index>(build(layer, s_));
    const Index* const alone[] = {made.get()};
    return std::make_unique<SqueezedSelector>(layer, made, s_, quantile(alone, s_.sparsity));
  }

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const double keys = s_.clustered(shape.prompt_tokens);
    if (!s_.online || keys == 0 || s_.sparsity == 0) return;
    // The released code passes keys in single precision to cuML, whose kernel finds the nearest centroid (fusedL2NN of
    // RAFT) without writing distances.
    constexpr double kSingle = 4;
    const double heads = shape.batch * m.kv_heads, rows = heads * keys, row = m.d * kSingle;
    const double clusters = s_.clusters(shape.prompt_tokens);
    OpId op = seeded(ops, heads, keys, clusters, m.d);
    for (int i = 0; i < s_.iterations; ++i) {
      const Kernel nearest{KernelClass::kReduce, (rows + heads * clusters) * row, rows * kIndexBytes,
                           2 * rows * clusters * m.d};
      op = ops.compute(Kind::kIndex, "nearest centroid", nearest, {op});
      const Kernel move{KernelClass::kReduce, rows * (row + kIndexBytes), heads * clusters * row, rows * m.d};
      op = ops.compute(Kind::kIndex, "move centroids", move, {op});
    }
    means(ops, heads, keys, clusters, row, op);
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const double scored = shape.sum(&HeadCounts::scored), keys = shape.sum(&HeadCounts::candidates);
    OpId op = ops.ready();
    if (scored > 0) {
      const double scores = scored * m.group;
      for (const char* label : {"sum over centroids", "scores of centroids"}) {
        const Kernel pass{KernelClass::kScore, scored * m.row(), scores * kScoreBytes, 2 * scores * m.d};
        op = ops.compute(Kind::kScore, label, pass, {op});
      }
      const Kernel list{KernelClass::kReduce, scores * kScoreBytes + keys * kIndexBytes,
                        shape.sum(&HeadCounts::attended) * kIndexBytes, keys};
      op = ops.compute(Kind::kTopK, "list keys above threshold", list, {op});
    }
    ops.done(ops.attention(attention_over(shape, scored > 0 ? gathered_unit(shape) : 0), {op}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const Dims m(*shape.model);
    const double heads = shape.batch * shape.model->layers * m.kv_heads;
    std::vector<MemoryItem> items = {in_hbm(Owner::kKvCache, kv_bytes(shape, shape.tokens))};
    if (s_.sparsity == 0) return items;
    const std::int64_t prompt = shape.lengths.prompt_tokens;
    items.push_back(in_hbm(Owner::kCentroids, heads * s_.clusters(prompt) * m.row()));
    items.push_back(in_hbm(Owner::kKeyLabels, heads * s_.clustered(prompt) * kIndexBytes));
    return items;
  }

  // Generated tokens are always read.
  Growth growth(const Lengths&) const override { return {.attended = 1}; }

 private:
  // k-means++ of cuML (RAFT's kmeansPlusPlus): a centroid after another. The distances of all keys to those before go
  // to the host, where std::discrete_distribution draws candidates by them; of these the one that shortens the
  // distances most stays. As sums over all centroids of the heads, which neither overlap nor differ.
  static OpId seeded(LayerOps& ops, double heads, double keys, double clusters, double d) {
    constexpr double kSingle = 4, kDouble = 8;
    const double seeds = heads * clusters, candidates = 2 + std::ceil(std::log(clusters));
    const double distances = seeds * candidates * keys;
    const Kernel best{KernelClass::kReduce, seeds * keys * (d + 1) * kSingle + 2 * distances * kSingle,
                      2 * distances * kSingle, 2 * distances * d};
    OpId op = ops.compute(Kind::kIndex, "distances to candidates", best, {ops.ready()});
    // A copy for each candidate, and the distances, their minima, their sums, the least of these and two copies.
    op = ops.host(Lane::kHost, Kind::kLaunch, "calls of seeding", HostCall::kLaunch, seeds * (candidates + 6), {op});
    Copy weights{Direction::kDeviceToHost, CopyKind::kPageable, seeds, keys * kSingle};
    op = ops.copy(Lane::kCompute, "distances to the host", weights, {op});
    CpuWork draw;
    draw.items = seeds, draw.threads = 1;
    // Copied to double precision, summed, divided by the sum, and summed cumulatively.
    draw.bytes_per_item = draw.unit_bytes = keys * (kSingle + 6 * kDouble);
    draw.flops_per_item = 3 * keys;
    return ops.cpu("draw candidates", draw, {op});
  }

  // The released code computes the mean of the keys of each centroid in a loop of PyTorch: labels are compared, keys
  // are taken by the mask, whose count the host waits for, and averaged.
  static void means(LayerOps& ops, double heads, double keys, double clusters, double row, OpId op) {
    constexpr double kOperators = 3, kMaskByte = 1;
    const double loops = heads * clusters, all = heads * keys;
    const Kernel taken{KernelClass::kReduce, loops * keys * (kIndexBytes + kMaskByte) + 2 * all * row,
                       loops * keys * kMaskByte + all * row + loops * row, all * row / 4};
    op = ops.compute(Kind::kIndex, "means of clusters", taken, {op});
    op = ops.host(Lane::kHost, Kind::kLaunch, "loop over clusters", HostCall::kEagerOp, kOperators * loops, {op});
    ops.host(Lane::kHost, Kind::kSync, "counts of masks", HostCall::kItemSync, loops, {op});
  }

  std::map<int, std::shared_ptr<const Index>> indices_;  // by layer, after the survey
  float threshold_ = 0;
};

Fields<SqueezedAttentionSetting> squeezed_attention_fields() {
  using S = SqueezedAttentionSetting;
  return Fields<S>()
      .add(real("sparsity", 0.7,
                "share of the context's keys below the threshold, by the last prompt queries; 0: all are read"),
           &S::sparsity)
      .add(real("centroid_share", 0.05, "clusters per clustered key", 1e-6), &S::share)
      .add(whole("window", 100, "queries",
                 "last prompt queries, which set the threshold; their keys are not clustered and are always read", 1,
                 65536),
           &S::window)
      .add(whole("iterations", 10, "", "largest number of k-means rounds", 1, 1000), &S::iterations)
      .add(whole("seed", 1, "", "seed of the initial keys of k-means"), &S::seed)
      .add(choice("clustering", {"offline", "online"},
                  "time of clustering: before the request (a context known in advance) or in the prefill; affects "
                  "the cost only"),
           &S::online);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "squeezed_attention";
  d.sentence =
      "Keeps everything on the GPU and reads all clusters of the prompt's keys whose estimated attention exceeds a "
      "threshold.";
  d.category = Category::kGpuRetrieval;
  d.no_ends = "clusters of the prompt are read whole, and so are all generated tokens";
  d.paper = "Hooper et al., Squeezed Attention, 2024 (arXiv 2411.09688)";
  declare<SqueezedAttention>(d, squeezed_attention_fields());
  d.formulas = {"traffic: 2·n_kv·N_c·d·b + 4·n_kv·F + 2·n_kv·kept·d·b per step",
                "storage: 2·n_kv·L·d·b + n_kv·N_c·d·b + 4·n_kv·F"};
  d.differences = {
      "selects for each KV head by the largest estimate of its query heads; the released code is for multi-head "
      "attention",
      "k-means starts from randomly drawn keys and runs 10 rounds; the released code starts with k-means++ (counted in "
      "the cost) and runs up to 300",
      "one level of clusters; the paper's second, coarser level is not modelled",
      "the whole prompt is the fixed context"};
  return d;
}

}  // namespace kvcast::policy::squeezed_attention

// CTkvr (Lu et al., "CTKVR: Efficient KV Cache Retrieval for Long-Context LLMs via Centroid-then-Token Indexing", 2025,
// section 3, algorithms 1 and 2).
//
// Idea: queries at nearby positions are similar after RoPE, and similar queries score the same keys high. The last
// prompt queries are the centroids of an inverted file over the keys; the keys listed by a decode query's nearest
// centroids are reranked by true scores.
// Selection after the prompt: for each of C prompt queries and each KV head, the best ρ = ⌊recall_factor·budget⌋ keys
// by max over the group of the softmax weight over all prompt keys. Sink and window stay on the GPU and are excluded
// from the lists.
// Selection in each step: (recall) the C' centroids of the largest cosine, max over the group; K_rec is the union of
// their lists. (rerank) The best `budget` keys of K_rec by max over the group of softmax(q·k / √d) over K_rec. (update)
// From the next step on, the step's query is a centroid with the best ρ keys of K_rec, and replaces the oldest one.
// Cost of the prefill: centroids copied and normalised, scores 2·n_q·C·S·d flops, top-ρ of n_kv·C rows, KV to the host.
// Cost of a step: n_q·C·d·b read for cosines, top-C', lists deduplicated (n_kv·C'·ρ·4); positions and queries to the
// host. The CPU scores n_kv·L_rec keys, ranks them by n_q·L_rec scores of 4 bytes and attends to n_kv·budget pairs
// while the GPU attends to sink and window; outputs are copied back and merged. The update concurrently copies ρ
// positions per KV head to the GPU.
// Storage: n_kv·C·ρ·4 + n_q·C·d·b + KV of sink and window on the GPU, per layer; all other KV in host memory.
// Limit: a budget that covers all tokens keeps everything on the GPU: full attention.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy_parts/centroid_index.hpp"
#include "policy_parts/policy_by.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::ctkvr {
namespace {

constexpr const char* kUpdated = "centroids updated";  // the next step's recall waits for it

struct CtkvrSetting {
  std::int64_t budget = 0, lists = 0;          // ρ', ρ
  std::optional<std::int64_t> centroids = {};  // C; none: by the prompt
  std::int64_t looked = 0;                     // C', at most C
  CentroidQueries positions = CentroidQueries::kLast;
  std::uint64_t seed = 0;
  bool rerank = true, update = true, departed = false, pairwise = false;
  StaticTokens fixed;

  std::int64_t centroids_of(std::int64_t prompt) const {
    return centroids ? std::min(*centroids, prompt) : std::clamp<std::int64_t>(prompt / 16, 1, 2048);
  }
  std::int64_t looked_of(std::int64_t prompt) const { return std::min(looked, centroids_of(prompt)); }
};

class CentroidSearch final : public HostSearch {
 public:
  CentroidSearch(const LayerInput& input, int kv_head, std::span<const std::size_t> rows, const CtkvrSetting& setting)
      : layer_(input.layer()),
        kv_head_(kv_head),
        s_(setting),
        centroids_(rows.size()),
        at_prompt_(setting.fixed.host(input.info().prompt_tokens, input.info().prompt_tokens)),
        marked_(index(input.info().positions())) {
    find_nearest(rows);
    // Only the lists that are looked up are made: a few of thousands, and which ones does not depend on their contents.
    std::vector<std::size_t> looked_up;
    for (std::size_t c = 0; c < centroids_; ++c) {
      if (slots_[c] == kNever) continue;
      slots_[c] = looked_up.size();
      looked_up.push_back(rows[c]);
    }
    lists_.emplace(layer_, kv_head, looked_up, at_prompt_, index(setting.lists));
  }

  void step(int t, Range host, std::span<HeadSelection> out) override {
    recall(t, host);
    HeadSelection& head = out[0];
    head.counts.scored = centroids_;
    head.counts.candidates = recalled_.size();
    rerank(t);
    best_of_recalled(s_.rerank ? s_.budget : head.counts.candidates, head.attended);
    if (s_.update) best_of_recalled(s_.lists, updates_.emplace_back());
  }

 private:
  static constexpr std::size_t kNever = ~std::size_t{0};

  // Finds the nearest centroids of every step. With updates, step t finds the queries of earlier steps at the end of
  // the queue, and as many of the oldest removed from its front.
  void find_nearest(std::span<const std::size_t> rows) {
    const std::vector<float> similarity = query_similarity(layer_, kv_head_, rows);
    const auto steps = index(layer_.info().decode_steps);
    const std::size_t columns = similarity.size() / steps;
    slots_.assign(centroids_, kNever);
    for (std::size_t t = 0; t < steps; ++t) {
      const std::size_t oldest = s_.update ? t : 0;
      std::vector<std::int32_t>& nearest = nearest_.emplace_back();
      ranking_.select(std::span(similarity).subspan(t * columns + oldest, centroids_),
                      index(s_.looked_of(layer_.info().prompt_tokens)), nearest);
      for (std::int32_t& centroid : nearest) {
        centroid += static_cast<std::int32_t>(oldest);
        if (index(centroid) < centroids_) slots_[index(centroid)] = 0;
      }
    }
  }

  // Collects the union of the lists of the nearest centroids, ascending.
  void recall(int t, Range host) {
    for (const std::int32_t centroid : nearest_[index(t)]) {
      for (const std::int32_t p : list(index(centroid))) marked_[index(p)] = 1;
    }
    if (s_.departed) {
      for (std::int64_t p = at_prompt_.end; p < host.end; ++p) marked_[index(p)] = 1;
    }
    recalled_.clear();
    for (std::int64_t p = host.begin; p < host.end; ++p) {
      char& mark = marked_[index(p)];
      if (mark != 0) recalled_.push_back(static_cast<std::int32_t>(p));
      mark = 0;
    }
  }

  std::span<const std::int32_t> list(std::size_t centroid) const {
    if (centroid < centroids_) return lists_->list(slots_[centroid]);
    return updates_[centroid - centroids_];
  }

  void rerank(int t) {
    const int members = layer_.info().group();
    const float scale = 1.0f / std::sqrt(static_cast<float>(layer_.info().head_dim));
    scores_.assign(recalled_.size(), 0.0f);
    weights_.resize(recalled_.size());
    if (recalled_.empty()) return;
    for (int g = 0; g < members; ++g) {
      const float* const row = layer_.decode_scores(kv_head_ * members + g).row(index(t));
      for (std::size_t i = 0; i < recalled_.size(); ++i) weights_[i] = row[recalled_[i]];
      softmax(weights_, scale);
      for (std::size_t i = 0; i < scores_.size(); ++i) scores_[i] = std::max(scores_[i], weights_[i]);
    }
  }

  void best_of_recalled(std::int64_t k, std::vector<std::int32_t>& out) {
    ranking_.select(scores_, index(k), out);
    for (std::int32_t& i : out) i = recalled_[index(i)];
  }

  const trace::Layer& layer_;
  int kv_head_;
  const CtkvrSetting& s_;
  std::size_t centroids_;
  Range at_prompt_;
  std::vector<std::vector<std::int32_t>> nearest_;  // by step; prompt queries, then decode queries
  std::vector<std::size_t> slots_;                  // index of each prompt query's list, kNever if no step looks it up
  std::optional<CentroidLists> lists_;
  std::vector<std::vector<std::int32_t>> updates_;  // lists of the decode queries
  std::vector<char> marked_;
  Ranking ranking_;
  std::vector<std::int32_t> recalled_;
  std::vector<float> scores_, weights_;
};

class Ctkvr final : public PolicyBy<CtkvrSetting> {
 public:
  using PolicyBy::PolicyBy;

  bool covers(const Lengths& request) const override { return s_.fixed.cover(s_.budget, request); }

  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths&) const override {
    const trace::TraceInfo& info = layer.info();
    const std::vector<std::int64_t> positions =
        centroid_positions(s_.positions, s_.centroids_of(info.prompt_tokens), info.prompt_tokens, Stream(s_.seed));
    const std::vector<std::size_t> rows = query_rows(info, positions);
    return search_host(layer, s_.fixed, false, [&](const LayerInput& input, int kv_head) {
      return std::make_unique<CentroidSearch>(input, kv_head, rows, s_);
    });
  }

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    offload_prompt(shape, s_.fixed, ops);
    const double prompt = shape.prompt_tokens;
    const double queries = s_.centroids_of(shape.prompt_tokens);
    const double host = s_.fixed.host(shape.prompt_tokens, shape.prompt_tokens).size();
    const double rows = shape.batch * m.q_heads * queries, shared = shape.batch * m.kv_heads * queries;
    // Copies the prompt's last queries into one piece for the product with the keys, and normalises them for the steps'
    // cosines.
    const Kernel copy{KernelClass::kElementwise, rows * m.row(), rows * m.row()};
    const OpId taken = ops.compute(Kind::kIndex, "take centroids", copy, {ops.ready()});
    const OpId normal = ops.compute(Kind::kIndex, "normalise centroids", copy, {taken});
    const OpId scores = ops.compute(Kind::kIndex, "centroid scores", Gemm{rows, prompt, m.d, m.element}, {normal});
    Kernel reduce{KernelClass::kReduce, rows * prompt * m.element, shared * prompt * m.element};
    reduce.blocks = rows;
    reduce.flops = 4 * rows * prompt;  // maximum, exponential, sum, quotient
    const OpId weights = ops.compute(Kind::kIndex, "softmax, max over group", reduce, {scores});
    const double kept = std::min(static_cast<double>(s_.lists), host);
    if (kept <= 0) return;
    ops.compute(Kind::kIndex, "centroid lists", TopK{shared, host, kept, m.element}, {weights});
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    offload_token(shape, ops);
    const double centroids = shape.sum(&HeadCounts::scored), recalled = shape.sum(&HeadCounts::candidates);
    const OpId start = ops.join(Lane::kCompute, {ops.ready(), ops.noted(kUpdated)});
    const OpId nearest =
        score_and_rank(shape, centroids * m.group * m.row(), 2 * centroids * m.group * m.d, looked(shape), ops, start);
    const OpId united = unite(shape, recalled, ops, nearest);
    const double queries = shape.batch * m.q_heads * m.row();
    const OpId sent = send_to_host("recalled positions and queries", recalled * kIndexBytes + queries, ops, united);
    const OpId attended = s_.rerank ? rerank_and_attend(shape, ops, sent) : attend_to_recalled(shape, ops, sent);
    attend_and_merge(shape, ops, united, attended);
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const Dims m(*shape.model);
    const std::int64_t prompt = shape.lengths.prompt_tokens;
    const double copies = shape.batch * shape.model->layers * static_cast<double>(s_.centroids_of(prompt));
    const double listed = std::min(s_.lists, s_.fixed.host(prompt, prompt).size());
    std::vector<MemoryItem> items = split_cache(shape, s_.fixed.on_gpu(prompt, shape.tokens));
    items.push_back(in_hbm(Owner::kCentroidLists, copies * m.kv_heads * listed * kIndexBytes));
    items.push_back(in_hbm(Owner::kCentroids, copies * m.q_heads * m.row()));
    return items;
  }

 private:
  // Computes the union of the lists looked up. Hashed: marks each entry in a table. Pairwise: compares each list with
  // those before it, entry by entry. One thread block per KV head.
  OpId unite(const DecodeLayer& shape, double recalled, LayerOps& ops, OpId after) const {
    const double heads = shape.heads.size();
    const double lists = looked(shape), entries = s_.lists;
    Kernel work{KernelClass::kGather, heads * lists * entries * kIndexBytes, recalled * kIndexBytes};
    work.blocks = heads;
    if (s_.pairwise) {
      work.flops = heads * lists * (lists - 1) / 2 * entries * entries * 2;  // comparison, then the mark
    } else {
      work.threads = 256;
    }
    return ops.compute(Kind::kScore, "unite lists", work, {after});
  }

  // Scores of the recalled keys on the CPU.
  static CpuWork score_recalled(const DecodeLayer& shape) {
    const Dims m(*shape.model);
    const double rows = shape.heads.size();
    const double recalled = shape.sum(&HeadCounts::candidates) / rows;
    return {.items = rows,
            .bytes_per_item = recalled * m.row(),
            .flops_per_item = 2 * m.group * recalled * m.d,
            .unit_bytes = m.row(),
            .places_per_item = recalled,
            .region_bytes = shape.mean_tokens() * m.row()};
  }

  OpId rerank_and_attend(const DecodeLayer& shape, LayerOps& ops, OpId sent) const {
    const OpId scored = ops.cpu("rerank", score_recalled(shape), {sent});
    const OpId ranked = rank(shape, shape.sum(&HeadCounts::cpu_attended), ops, scored);
    const OpId attended = ops.cpu("attention to recalled tokens", cpu_attention(shape), {ranked});
    if (s_.update) update(shape, ops, ranked);
    return attended;
  }

  OpId attend_to_recalled(const DecodeLayer& shape, LayerOps& ops, OpId sent) const {
    const OpId attended = ops.cpu("attention to recalled tokens", cpu_attention(shape), {sent});
    if (s_.update) update(shape, ops, rank(shape, listed(shape), ops, attended));
    return attended;
  }

  // Finds the `kept` best of the recalled keys of all heads by scores in memory: one pass reduces them over the group,
  // one ranks.
  static OpId rank(const DecodeLayer& shape, double kept, LayerOps& ops, OpId after) {
    const double rows = shape.heads.size();
    const double scores = Dims(*shape.model).group * shape.sum(&HeadCounts::candidates) / rows;
    const double ranked = shape.sum(&HeadCounts::candidates) / rows;
    return ops.cpu("top-k on the CPU",
                   {.items = rows,
                    .bytes_per_item = scores * kScoreBytes,
                    .flops_per_item = scores,
                    .unit_bytes = scores * kScoreBytes,
                    .ranked_per_item = ranked,
                    .kept_per_item = kept / rows},
                   {after});
  }

  // Positions of a new list, over all heads.
  double listed(const DecodeLayer& shape) const {
    double positions = 0;
    for (const HeadCounts& head : shape.heads) {
      positions += std::min(s_.lists, head.candidates);
    }
    return positions;
  }

  // Copies a list of each KV head to the GPU, where the query replaces the oldest centroid; nothing in this step waits
  // for it.
  void update(const DecodeLayer& shape, LayerOps& ops, OpId ranked) const {
    const Dims m(*shape.model);
    const double positions = listed(shape);
    if (positions <= 0) return;
    const Copy copy{.direction = Direction::kHostToDevice, .runs = 1, .run_bytes = positions * kIndexBytes};
    const OpId lists = ops.copy(Lane::kCopyA, "new centroid's lists", copy, {ranked});
    const double queries = shape.batch * m.q_heads * m.row();
    ops.note(kUpdated, ops.kernel(Lane::kSelect, Kind::kIndex, "replace oldest centroid",
                                  Kernel{KernelClass::kElementwise, queries, queries}, {lists}));
  }

  // Lists that a head looks up, mean over sequences.
  double looked(const DecodeLayer& shape) const {
    return shape.mean_over([this](const Sequence& s) { return s_.looked_of(s.request.prompt_tokens); });
  }
};

Fields<CtkvrSetting> ctkvr_fields() {
  using S = CtkvrSetting;
  return Fields<S>()
      .add(budget_parameter("recalled tokens that are left after reranking, per KV head", 1024), &S::budget)
      .add(whole_or("centroids", "adaptive", "queries",
                    "prompt queries used as centroids; adaptive: min(2048, prompt/16)", 1, 1e6),
           &S::centroids)
      .add(whole("retrieved_centroids", 4, "centroids", "nearest centroids whose lists are recalled", 1, 1e6),
           &S::looked)
      .add(real("recall_factor", 2.5, "length of a centroid's list, as a multiple of the budget", 1, 1000))
      .add(choice("positions", {"last", "first", "uniform", "random"}, "prompt queries that become centroids"),
           &S::positions)
      .add(whole("seed", 1, "", "of random positions", 0, 1e15), &S::seed)
      .add(flag("rerank", true, "rank the recalled tokens by true scores; false: attend to all of them"), &S::rerank)
      .add(flag("update", true, "each decode query replaces the oldest centroid"), &S::update)
      .add(choice("dedup", {"hashed", "pairwise"},
                  "method of uniting the lists: marks in a table, or pairwise comparison"),
           &S::pairwise)
      .add(flag("departed", false, "tokens that have left the window are candidates at every step"), &S::departed)
      .add(static_fields(128, 512), &S::fixed);
}

std::unique_ptr<Policy> make_ctkvr(const ParameterValues& values) {
  CtkvrSetting s = ctkvr_fields().read(values);
  s.lists = static_cast<std::int64_t>(values.number("recall_factor") * static_cast<double>(s.budget));
  return full_when_covered(std::make_unique<Ctkvr>(s));
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "ctkvr";
  d.sentence =
      "Looks up the keys that the most similar prompt queries scored high, reranks them and attends to them on the "
      "CPU.";
  d.category = Category::kCpuRetrieval;
  d.paper = "Lu et al., CTKVR: Efficient KV Cache Retrieval via Centroid-then-Token Indexing, 2025";
  d.parameters = ctkvr_fields().parameters();
  d.budget_convention =
      "tokens attended to on the CPU, per KV head, in addition to sink and recent (rerank: false: all "
      "recalled tokens)";
  d.formulas = {
      "traffic: GPU n_q·C·d·b + 2·n_kv·(sink + recent)·d·b; CPU n_kv·(L_rec + 2·budget)·d·b + n_q·L_rec·4; to the host "
      "n_kv·L_rec·4 + n_q·d·b, back n_q·(d·b + 4) a step and, with update, n_kv·ρ·4",
      "storage: GPU n_kv·C·ρ·4 + n_q·C·d·b + 2·n_kv·(sink + recent)·d·b; host 2·n_kv·(L − sink − recent)·d·b",
      "CPU work with rerank over without: (L_rec + 2·budget) / (2·L_rec)"};
  d.differences = {"the paper does not state the length of the static parts; here they are excluded from the lists",
                   "a token that leaves the window is found only if a list contains it, because the paper's update "
                   "ranks recalled keys only; departed: true makes all such tokens candidates",
                   "static attention runs on the model's stream after the recall, not on a second stream"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) {
    const CtkvrSetting s = ctkvr_fields().read(values);
    const auto listed = static_cast<std::int64_t>(values.number("recall_factor") * static_cast<double>(s.budget));
    return BudgetRule{.tokens = s.rerank ? s.budget : s.looked * listed,
                      .extra = s.fixed.sink + s.fixed.recent,
                      .slack = BudgetRule::kAny,
                      .counts = BudgetRule::Counts::kSelected};
  };
  d.needs = [](const ParameterValues& values, const Lengths& lengths) {
    const bool last = values.text("positions") == "last";
    return ReplayNeeds{.whole_prompt = !last,
                       .window = ctkvr_fields().read(values).centroids_of(lengths.prompt_tokens)};
  };
  d.make = make_ctkvr;
  return d;
}

}  // namespace kvcast::policy::ctkvr

// RetrievalAttention (Liu et al., "RetrievalAttention: Accelerating Long-Context LLM Inference via Vector Retrieval",
// 2024, arXiv 2409.10516).
//
// Idea: attention is a nearest-neighbour search, which a vector index in host memory can answer if it is built for
// queries rather than for keys, whose distributions differ.
// Selection, for each query head: the `budget` offloaded tokens of largest q·k. Misses of a real index are drawn at
// random: in the order of the exact ranking, each token is found with probability `recall`, until `budget` are. Sink
// and window stay on the GPU; a token that leaves the window is added to the index (`generated: gpu`: the window stays
// at the prompt's end).
// Cost of a step: queries to the host (n_q·d·b). A CPU thread per query head reads `scanned` of the keys, at least
// `budget` (`index: flat`: all; ivf: the centroids, too), 4 bytes per element and 4 per edge, then the values of the
// tokens found, while the GPU attends to the static part; outputs are copied back and merged.
// Cost of the prefill: KV to the host. graph: the nearest keys of `build_queries` of the prompt queries on the GPU,
// 2·n_q·S²·d flops for all, and the graph on the CPU, with `build_scored` keys scored per key. hnsw, ivf: as the
// libraries build them (vector_index.cpp).
// Storage: host KV, keys in single precision, graph 4·degree·tokens per KV head (hnsw: twice that, its lowest layer;
// ivf: a position of 8 bytes per token, centroids); GPU KV of the static part.
// Limit: recall 1 is exact top-k over the offloaded tokens; a budget that covers all tokens is full attention.
#include <algorithm>
#include <cmath>

#include "base/index.hpp"
#include "base/random.hpp"
#include "policy/costs.hpp"
#include "policy_parts/host_attention.hpp"
#include "policy_parts/policy_by.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"
#include "policy_parts/vector_index.hpp"

namespace kvcast::policy::retrieval_attention {
namespace {

constexpr double kListedKey = 8;  // position of a key in Faiss's lists

enum class IndexKind { kGraph, kFlat, kHnsw, kIvf };
const std::vector<std::string>& index_names() {
  static const std::vector<std::string> names = {"graph", "flat", "hnsw", "ivf"};
  return names;
}

struct RetrievalAttentionSetting {
  std::int64_t budget = 0;
  double recall = 1, scanned = 0.02;
  std::int64_t degree = 0, build_scored = 0, build_beam = 0, rounds = 0;
  double build_queries = 1;
  std::int64_t lists = 0;  // 0: determined by the number of keys
  IndexKind index = IndexKind::kGraph;
  std::uint64_t seed = 0;
  StaticTokens fixed;

  // Number of keys that a search over `tokens` of them reads.
  std::int64_t candidates(std::int64_t tokens, std::int64_t found) const {
    if (index == IndexKind::kFlat) return tokens;
    const std::int64_t read =
        std::max(found, static_cast<std::int64_t>(std::ceil(scanned * static_cast<double>(tokens))));
    return index == IndexKind::kIvf ? read + lists_of(tokens) : read;
  }
  // Number of lists of an inverted file over this many keys: 4 √n, the minimum in Faiss's guidelines.
  std::int64_t lists_of(std::int64_t tokens) const {
    if (lists > 0) return std::min(lists, std::max<std::int64_t>(1, tokens));
    return std::llround(4 * std::sqrt(static_cast<double>(std::max<std::int64_t>(1, tokens))));
  }
  bool follows_edges() const { return index == IndexKind::kGraph || index == IndexKind::kHnsw; }
};

class VectorSearch final : public HostSearch {
 public:
  VectorSearch(const LayerInput& input, int kv_head, const RetrievalAttentionSetting& setting)
      : layer_(input.layer()), kv_head_(kv_head), s_(setting) {}

  void step(int t, Range host, std::span<HeadSelection> out) override {
    for (std::size_t g = 0; g < out.size(); ++g) {
      const int q_head = kv_head_ * layer_.info().group() + static_cast<int>(g);
      find(t, q_head, host, out[g].attended);
      out[g].counts.candidates = s_.candidates(host.size(), out[g].attended.size());
    }
  }

 private:
  // Finds the best of the tokens that the index can find, walking down the ranking.
  void find(int t, int q_head, Range host, std::vector<std::int32_t>& out) {
    const float* const row = layer_.decode_scores(q_head).row(index(t));
    const auto name = [](int n) { return static_cast<std::uint64_t>(n); };
    const Stream stream = Stream(s_.seed).child({name(layer_.id()), name(q_head), name(t)});
    known_.clear(), scores_.clear();
    for (std::int64_t i = host.begin; i < host.end; ++i) {
      if (s_.recall < 1 && stream.uniform(static_cast<std::uint64_t>(i)) >= s_.recall) continue;
      known_.push_back(static_cast<std::int32_t>(i));
      scores_.push_back(row[i]);
    }
    ranking_.select(scores_, index(s_.budget), out);
    for (std::int32_t& i : out) i = known_[index(i)];
  }

  const trace::Layer& layer_;
  int kv_head_;
  const RetrievalAttentionSetting& s_;
  Ranking ranking_;
  std::vector<std::int32_t> known_;
  std::vector<float> scores_;
};

class RetrievalAttention final : public PolicyBy<RetrievalAttentionSetting> {
 public:
  using PolicyBy::PolicyBy;

  bool covers(const Lengths& request) const override { return s_.fixed.cover(s_.budget, request); }

  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths&) const override {
    return search_host(layer, s_.fixed, true, [&](const LayerInput& input, int kv_head) {
      return std::make_unique<VectorSearch>(input, kv_head, s_);
    });
  }

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    offload_prompt(shape, s_.fixed, ops);
    const double keys = host_tokens(shape.prompt_tokens, shape.prompt_tokens);
    if (s_.index == IndexKind::kFlat || keys <= 0) return;
    const IndexedKeys indexed{shape.batch * m.kv_heads, keys, m.d};
    const double degree = s_.degree;
    OpId built = 0;
    if (s_.index == IndexKind::kGraph) {
      built = build_graph(shape, indexed, ops);
    } else if (s_.index == IndexKind::kHnsw) {
      const double scored = hnsw_scored(keys, degree, s_.build_beam);
      built = insert_all(indexed, scored, 2 * degree, ops, keys_at_host(shape, indexed, ops));
    } else {
      const Lists lists{static_cast<double>(s_.lists_of(static_cast<std::int64_t>(keys))),
                        static_cast<double>(s_.rounds)};
      built = cluster_all(indexed, lists, ops, keys_at_host(shape, indexed, ops));
    }
    // The prompt is finished when the last layer's index is complete.
    if (shape.layer == shape.model->layers - 1) ops.join(Lane::kCompute, {built});
  }

  // Finds exact neighbours of the prompt's queries, from which the graph is built, then builds the graph.
  OpId build_graph(const PrefillLayer& shape, const IndexedKeys& indexed, LayerOps& ops) const {
    const Dims m(*shape.model);
    const double keys = indexed.keys;
    const double rows = shape.batch * m.q_heads * std::ceil(s_.build_queries * shape.prompt_tokens);
    const OpId scores = ops.compute(Kind::kIndex, "nearest keys of the prompt's queries",
                                    Gemm{rows, keys, m.d, m.element}, {ops.ready()});
    const double near = std::min(keys, static_cast<double>(s_.degree));
    const OpId ranked = ops.compute(Kind::kIndex, "their top-k", TopK{rows, keys, near, m.element}, {scores});
    const OpId sent = send_to_host("neighbours", rows * near * kIndexBytes, ops, ranked);
    const double scored = s_.build_scored < 0 ? roargraph_scored(keys, near, s_.build_beam) : s_.build_scored;
    return insert_all(indexed, scored, near, ops, sent);
  }

  // Copies the keys to host memory, where the index is built.
  static OpId keys_at_host(const PrefillLayer& shape, const IndexedKeys& indexed, LayerOps& ops) {
    const Dims m(*shape.model);
    return send_to_host("keys to index", indexed.heads * indexed.keys * m.row(), ops, ops.ready());
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    offload_token(shape, ops);
    const OpId sent = send_to_host("queries", shape.batch * m.q_heads * m.row(), ops, ops.ready());
    const double rows = shape.heads.size();
    const double read = shape.sum(&HeadCounts::candidates) / rows, vector = m.d * kIndexElement;
    const double edges = s_.follows_edges() ? kIndexBytes : 0;
    CpuWork search{.items = rows,
                   .bytes_per_item = read * (vector + edges),
                   .flops_per_item = 2 * read * m.d,
                   .unit_bytes = vector};
    const double context = shape.mean_tokens();
    // Edges lead to arbitrary addresses; the keys of a list are contiguous.
    if (s_.follows_edges()) search.places_per_item = read, search.region_bytes = context * vector;
    const OpId found = ops.cpu("search index", search, {sent});
    // The search has computed the scores, so that only values remain to be read.
    const double values = shape.sum(&HeadCounts::cpu_attended) / rows;
    const CpuWork attend{.items = rows,
                         .bytes_per_item = values * m.row(),
                         .flops_per_item = 2 * values * m.d,
                         .unit_bytes = m.row(),
                         .places_per_item = values,
                         .region_bytes = context * m.row()};
    const OpId attended = ops.cpu("CPU attention", attend, {found});
    attend_and_merge(shape, ops, sent, attended);
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const Dims m(*shape.model);
    const std::int64_t prompt = shape.lengths.prompt_tokens;
    const double keys = shape.batch * shape.model->layers * m.kv_heads * host_tokens(prompt, shape.tokens);
    std::vector<MemoryItem> items = split_cache(shape, s_.fixed.on_gpu(prompt, shape.tokens));
    items.push_back(in_dram(Owner::kIndexedKeys, keys * m.d * kIndexElement));
    const double edges = static_cast<double>(s_.degree) * (s_.index == IndexKind::kHnsw ? 2 : 1);
    if (s_.follows_edges()) items.push_back(in_dram(Owner::kIndexGraph, keys * edges * kIndexBytes));
    if (s_.index == IndexKind::kIvf) {
      const double heads = shape.batch * shape.model->layers * m.kv_heads;
      const double lists = s_.lists_of(s_.fixed.host(prompt, prompt).size());
      items.push_back(in_dram(Owner::kIndexLists, keys * kListedKey + heads * lists * m.d * kIndexElement));
    }
    return items;
  }

  Growth growth(const Lengths&) const override { return {.attended = s_.fixed.generated_stay ? 1.0 : 0.0}; }

 private:
  double host_tokens(std::int64_t prompt, std::int64_t tokens) const { return s_.fixed.host(prompt, tokens).size(); }
};

Fields<RetrievalAttentionSetting> retrieval_attention_fields() {
  using S = RetrievalAttentionSetting;
  return Fields<S>()
      .add(budget_parameter("tokens that each query head finds in host memory", 1024), &S::budget)
      .add(real("recall", 1.0, "probability that the index finds a token of the exact ranking", 0.01), &S::recall)
      .add(choice("index", index_names(),
                  "index: a graph made from the prompt's queries, none (all keys are scanned), or a library's "
                  "graph (HNSW) or inverted file"),
           &S::index)
      .add(real("scanned", 0.02, "share of the offloaded keys read by a search of the graph"), &S::scanned)
      .add(whole("degree", 32, "edges", "edges of a key in the graph", 1, 4096), &S::degree)
      .add(whole_or("build_scored", "adaptive", "keys",
                    "keys scored on the CPU for each key while the graph is made from queries; adaptive: by beam "
                    "and degree",
                    0, 1e9),
           &S::build_scored)
      .add(real("build_queries", 1.0, "share of the prompt's queries from whose nearest keys the graph is made", 1e-4),
           &S::build_queries)
      .add(whole("build_beam", 40, "keys",
                 "candidates kept while a key is inserted: Faiss's efConstruction, whose M is degree, or "
                 "RoarGraph's L",
                 1, 1e6),
           &S::build_beam)
      .add(whole_or("lists", "adaptive", "lists", "ivf: centroids; adaptive: 4·√keys", 1, 1e7), &S::lists)
      .add(whole("rounds", 10, "", "ivf: rounds of k-means (Faiss: 10 for an inverted file, 25 for k-means alone)", 1,
                 10000),
           &S::rounds)
      .add(choice("generated", {"index", "gpu"},
                  "location of generated tokens as the window slides: the index, or the GPU"),
           &S::fixed, &StaticTokens::generated_stay)
      .add(whole("seed", 1, "", "seed of the misses of a search", 0, 1e15), &S::seed)
      .add(static_fields(128, 512), &S::fixed);
}

std::unique_ptr<Policy> make_retrieval_attention(const ParameterValues& values) {
  RetrievalAttentionSetting s = retrieval_attention_fields().read(values);
  if (values.is_text("build_scored")) s.build_scored = -1;
  return full_when_covered(std::make_unique<RetrievalAttention>(s));
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "retrieval_attention";
  d.sentence =
      "Each query head searches a vector index of the keys in host memory and attends to the results on the CPU.";
  d.category = Category::kCpuRetrieval;
  d.paper = "Liu et al., RetrievalAttention, 2024 (arXiv 2409.10516)";
  d.parameters = retrieval_attention_fields().parameters();
  d.budget_convention = "tokens attended to on the CPU, per query head, in addition to sink and recent";
  d.formulas = {
      "traffic: GPU 2·n_kv·(sink + recent)·d·b; CPU n_q·(max(scanned·(L − sink − recent), budget)·(4·d + 4) + "
      "budget·d·b); to the host n_q·d·b, back n_q·(d·b + 4) per step",
      "prompt: 2·n_q·build_queries·S²·d FLOP for neighbours, 2·n_kv·build_scored·S·d on the CPU (adaptive: "
      "build_beam·degree keys); hnsw: 2·n_kv·S·d·(1.5·"
      "build_beam·degree + degree² + degree·log S / log degree); ivf: 2·n_kv·lists·d·(rounds·min(S, 256·lists) + S)",
      "storage: GPU 2·n_kv·(sink + recent)·d·b; host n_kv·(L − sink − recent)·(2·d·b + 4·d + 4·degree)"};
  d.differences = {
      "the graph is not searched: its misses are drawn at random, independently of rank and of one another",
      "the share of the graph that a search reads (the paper: 1 to 3 % of the keys), its degree and the work of "
      "building it are assumptions, not measurements",
      "the paper retrieves 100 tokens; the code released with SCBench 2000, from a flat index"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) {
    const RetrievalAttentionSetting s = retrieval_attention_fields().read(values);
    return BudgetRule{.tokens = s.budget,
                      .extra = s.fixed.sink + s.fixed.recent,
                      .slack = s.recall < 1 ? BudgetRule::kAny : 0,  // tokens that the index misses
                      .generated_on_top = s.fixed.generated_stay,
                      .counts = BudgetRule::Counts::kSelected};
  };
  d.make = make_retrieval_attention;
  return d;
}

}  // namespace kvcast::policy::retrieval_attention

// Nothing is typed a second time here: a row's axes become the model, the parameters and the counts of a layer, which
// the policy itself turns into work.
#include "validate/policy_works.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "config/yaml.hpp"
#include "policies/all.hpp"
#include "policy/recorder.hpp"

namespace kvcast::validate {
namespace {

using calibrate::MeasuredRow;
using policy::HeadCounts;

constexpr double kDim = 128;          // head dimension of benchmarks without such an axis
constexpr double kHeads = 8;          // KV heads of benchmarks that have rows of any origin
constexpr double kGroup = 4;          // their query heads per KV head
constexpr std::int64_t kLater = 512;  // tokens that are generated

// A policy's layer in the shape of a row.
struct Layer {
  std::string policy, parameters = "";
  double kv_heads = kHeads, group = kGroup, dim = kDim, batch = 1;
  double tokens = 0;  // of the prompt; a step's context has one more
  bool of_prompt = false;
  bool per_query_head = false;
  HeadCounts counts = {};
  std::vector<std::string> labels = {};  // of the ops that the kernel does
};

std::int64_t whole(double number) { return static_cast<std::int64_t>(number); }

std::vector<graph::Work> recorded(const Layer& layer) {
  config::Model model;
  model.layers = 1;
  model.n_kv_heads = static_cast<int>(layer.kv_heads), model.n_q_heads = static_cast<int>(layer.kv_heads * layer.group);
  model.head_dim = static_cast<int>(layer.dim), model.hidden = model.n_q_heads * model.head_dim;
  model.ffn = model.vocab = model.hidden;
  const policy::Lengths lengths{whole(layer.tokens), kLater};
  const auto policy = policy::make_policy(policy::find_policy(layer.policy),
                                          config::parse_yaml("{" + layer.parameters + "}", layer.policy));
  const int batch = static_cast<int>(layer.batch);
  policy::Recorder recorder;
  if (layer.of_prompt) {
    policy->prefill_layer({.model = &model,
                           .layer = 0,
                           .batch = batch,
                           .prompt_tokens = lengths.prompt_tokens,
                           .decode_steps = lengths.decode_steps},
                          recorder);
  } else {
    const int heads = layer.per_query_head ? model.n_q_heads : model.n_kv_heads;
    const std::vector<HeadCounts> counts(static_cast<std::size_t>(batch * heads), layer.counts);
    policy->decode_layer(
        policy::EqualBatch(model, 0, batch, {lengths.prompt_tokens + 1, lengths}, counts, layer.per_query_head),
        recorder);
  }
  std::vector<graph::Work> works;
  for (const graph::Op& op : recorder.ops()) {
    if (std::ranges::find(layer.labels, op.label) != layer.labels.end()) works.push_back(op.work);
  }
  return works;
}

Layer sparse_attention(const MeasuredRow& row) {
  Layer layer{.policy = "exact_topk", .labels = {"attention"}};
  const double tokens = row.number("tokens");
  layer.per_query_head = !row.flag("consistent");
  layer.parameters = fmt::format("budget: {}, group: {}", tokens, layer.per_query_head ? "per_head" : "sum_scores");
  layer.kv_heads = row.number("kv_heads"), layer.group = row.number("group"), layer.dim = row.number("dim");
  layer.batch = row.number("batch"), layer.tokens = row.number("context");
  layer.counts = {
      .attended = whole(tokens), .scored = whole(layer.tokens), .attended_runs = whole(tokens / row.number("page"))};
  return layer;
}

Layer kivi_attention(const MeasuredRow& row) {
  Layer layer{.policy = "kivi", .labels = {"attention"}};
  layer.parameters = "key_bits: 2, value_bits: 2, quant_group: 32, residual: 32";
  layer.kv_heads = row.number("kv_heads"), layer.group = row.number("group"), layer.batch = row.number("batch");
  layer.tokens = row.number("context"), layer.counts.attended = whole(layer.tokens);
  return layer;
}

Layer dim_score(const MeasuredRow& row) {
  Layer layer{.policy = "sparq", .labels = {"estimate"}};
  layer.parameters = fmt::format("budget: 256, dims: {}", row.number("r"));
  layer.kv_heads = row.number("kv_heads"), layer.group = row.number("group"), layer.tokens = row.number("n");
  layer.counts = {.attended = 257, .scored = whole(layer.tokens), .attended_runs = 200};
  return layer;
}

Layer keydiff(const MeasuredRow& row) {
  return {.policy = "keydiff",
          .parameters = "budget: 256",
          .kv_heads = row.number("kv_heads"),
          .tokens = row.number("tokens"),
          .of_prompt = true,
          .labels = {"key similarity"}};
}

Layer snapkv_score(const MeasuredRow& row) {
  Layer layer{.policy = "snapkv", .of_prompt = true, .labels = {"window scores", "softmax and sum", "pool"}};
  layer.parameters = fmt::format("budget: 1024, window: {}, pool_kernel: {}", row.number("window"), row.number("pool"));
  layer.kv_heads = row.number("kv_heads"), layer.group = row.number("group"), layer.tokens = row.number("tokens");
  return layer;
}

Layer page_summary(const MeasuredRow& row) {
  Layer layer{.policy = "quest", .of_prompt = true, .labels = {"page summaries"}};
  layer.parameters = fmt::format("budget: {0}, page: {0}, sink: 0, recent: 0", row.number("page"));
  layer.kv_heads = row.number("kv_heads"), layer.dim = row.number("dim"), layer.tokens = row.number("tokens");
  return layer;
}

Layer query_similarity(const MeasuredRow& row) {
  Layer layer{.policy = "freekv", .parameters = "budget: 2048", .labels = {"cosine of queries"}};
  layer.kv_heads = row.number("kv_heads"), layer.group = row.number("group"), layer.dim = row.number("dim");
  layer.batch = row.number("batch"), layer.tokens = 32768;
  layer.counts = {.attended = 2048, .scored = 1024};
  return layer;
}

// Scores of pages, then for each query head the softmax over them, then the mean over the group.
Layer page_softmax(const MeasuredRow& row) {
  constexpr double kTokens = 32;  // of a page
  Layer layer{.policy = "freekv", .parameters = "budget: 1024", .labels = {"estimate", "reduce over group"}};
  layer.kv_heads = row.number("kv_heads"), layer.group = row.number("group"), layer.dim = row.number("dim");
  layer.tokens = row.number("pages") * kTokens;
  layer.counts = {.attended = 1024, .scored = whole(row.number("pages"))};
  return layer;
}

// Two outputs, of the GPU and of the host.
Layer merge(const MeasuredRow& row) {
  Layer layer{.policy = "ctkvr", .parameters = "budget: 512", .labels = {"merge"}};
  layer.batch = row.number("rows") / (kHeads * kGroup), layer.dim = row.number("dim"), layer.tokens = 32768;
  layer.counts = {.attended = 640, .cpu_attended = 512, .scored = 1024, .candidates = 1280};
  return layer;
}

Layer lsh_hash(const MeasuredRow& row) {
  const double vectors = row.number("vectors");
  Layer layer{.policy = "magicpig", .labels = {"hash queries"}};
  layer.parameters =
      fmt::format("hash_bits: {}, hash_tables: {}, sink: 0, recent: 1", row.number("bits"), row.number("tables"));
  layer.batch = vectors / (kHeads * kGroup), layer.tokens = 32768, layer.per_query_head = true;
  layer.counts = {.attended = 64, .cpu_attended = 512, .candidates = 1024};
  return layer;
}

Layer centroid_recall(const MeasuredRow& row) {
  Layer layer{.policy = "ctkvr", .labels = {"estimate", "reduce over group", "top-k", "unite lists"}};
  const double probes = row.number("probes"), list = row.number("list");
  layer.parameters = fmt::format("budget: {}, recall_factor: 2.5, retrieved_centroids: {}, centroids: {}", list / 2.5,
                                 probes, row.number("centroids"));
  layer.kv_heads = row.number("kv_heads"), layer.group = row.number("group"), layer.tokens = row.number("context");
  layer.counts = {.attended = 640,
                  .cpu_attended = whole(list / 2.5),
                  .scored = whole(row.number("centroids")),
                  .candidates = whole(row.of_work("ids") / layer.kv_heads)};
  return layer;
}

Layer key_rebuild(const MeasuredRow& row) {
  Layer layer{.policy = "shadowkv", .labels = {"gather low-rank rows", "rebuild keys", "RoPE of reconstructed keys"}};
  const std::int64_t selected = whole(row.number("selected"));
  layer.parameters = fmt::format("budget: {}, rank: {}", selected, row.number("rank"));
  layer.kv_heads = row.number("kv_heads"), layer.tokens = row.number("context");
  layer.counts = {.attended = selected,
                  .scored = whole(layer.tokens / 8),
                  .candidates = selected,
                  .fetched = selected,
                  .fetched_runs = selected / 8};
  return layer;
}

// Each query has keys of its own, unless all are of one sequence.
Layer index_scores(const MeasuredRow& row) {
  Layer layer{.policy = "dsa", .labels = {"index scores"}};
  layer.parameters =
      fmt::format("budget: 2048, index_heads: {}, index_dim: {}", row.number("heads"), row.number("dim"));
  layer.batch = row.number("rows"), layer.tokens = row.number("context") - 1;
  layer.counts = {.attended = 2048, .scored = whole(row.number("context"))};
  return layer;
}

struct Known {
  const char* bench;
  Layer (*layer)(const MeasuredRow&);
  const char* used_by;
};
constexpr Known kKnown[] = {{"sparse_attention", sparse_attention, "every policy that attends to a selection"},
                            {"kivi_attention", kivi_attention, "KIVI"},
                            {"dim_score", dim_score, "SparQ, Loki, RocketKV"},
                            {"keydiff", keydiff, "KeyDiff"},
                            {"snapkv_score", snapkv_score, "SnapKV and its relatives"},
                            {"page_summary", page_summary, "Quest, ArkVale, FreeKV"},
                            {"query_similarity", query_similarity, "FreeKV"},
                            {"lse_merge", merge, "MagicPIG, CTkvr, RetrievalAttention"},
                            {"lsh_hash", lsh_hash, "MagicPIG"},
                            {"page_score", page_softmax, "FreeKV, ShadowKV"},
                            {"centroid_recall", centroid_recall, "CTkvr"},
                            {"index_scores", index_scores, "DSA, HiSparse"},
                            {"key_rebuild", key_rebuild, "ShadowKV"}};

}  // namespace

std::optional<PolicyWork> policy_work(const MeasuredRow& row) {
  const auto known = std::ranges::find_if(kKnown, [&](const Known& one) { return row.bench == one.bench; });
  if (known == std::end(kKnown)) return {};
  // Policies merge two outputs; kernels that merge more are parts of attention.
  if (row.bench == "lse_merge" && row.number("parts") != 2) return {};
  // The keys of a prompt are hashed by a library's matrix product.
  constexpr double kMostQueries = 1024;
  if (row.bench == "lsh_hash" && row.number("vectors") > kMostQueries) return {};
  PolicyWork work{known->used_by, recorded(known->layer(row))};
  KVCAST_CHECK(!work.works.empty());
  if (row.bench == "index_scores" && row.flag("shared")) {
    std::get<graph::PrefillAttention>(work.works[0]).read_bytes /= row.number("rows");
  }
  return work;
}

}  // namespace kvcast::validate

// Sparse attention by a trained indexer (policy/block_indexer.hpp): tokens, blocks or groups with the best scores.
// dsa: DeepSeek-V3.2-Exp's lightning indexer (DeepSeek-AI, technical report, 2025): index(s) = Σ over index heads of
// w_h·ReLU(q_h·k_s); the `budget` best tokens, one set for all heads of a layer. GLM-5 has half the heads; in GLM-5.2
// layers reuse the selection of one before (arXiv 2603.12201).
// hisparse: the same with all pairs in host memory (sgl-project/sglang, HiSparse). Selected tokens must be in the
// buffer, from which the least recently used tokens are evicted (ties: lower positions first). It starts with the
// prompt's first tokens. Once the sequence is longer than the buffer, the newest token has a slot of its own, which the
// next one overwrites.
// msa: MiniMax-M3 (arXiv 2606.13392; code: vllm-project/vllm, models/minimax_m3): one index key a token, one index
// query for each KV head; a block of 128 tokens has the largest q·k of its tokens; the 16 best blocks, the last one
// among them.
// qsa: Qwen3.8-Flash-Next (code: sgl-project/sglang-jax, qsa_indexer.py): groups of 4 tokens have an index key, made of
// their mean; index(e) = Σ over 4 index heads of ReLU(q_h·k_e); the 512 best groups for all heads of a layer, and the
// tokens of the group that is not full.
#include "base/error.hpp"
#include "policies/indexed_blocks.hpp"
#include "policy/fields.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::dsa {
namespace {

const char* const kStandIn =
    "traces do not contain the trained indexer: the sum of the attention weights of the heads that share a selection, "
    "which it is trained to match, replaces its scores";
const char* const kPrompt = "the prompt's own attention is timed as sparse and replayed as full";
const char* const kShared =
    "layers without an indexer (index_share) are replayed with scores of their own, since they are trained to share";

Fields<BlockIndexer> budget_field(const char* meaning) {
  return Fields<BlockIndexer>()
      .add(budget_parameter(meaning), &BlockIndexer::budget)
      .add(read_always_parameter("sink"), &BlockIndexer::sink)
      .add(read_always_parameter("recent"), &BlockIndexer::recent);
}

Fields<BlockIndexer> lightning() {
  return budget_field("tokens attended to")
      .add(whole("index_heads", 64, "", "query heads of the indexer", 1, 1e5), &BlockIndexer::heads)
      .add(whole("index_dim", 128, "", "dimensions of an index key", 1, 1e5), &BlockIndexer::dim)
      .add(whole("index_share", 1, "layers", "layers that use one selection (GLM-5.2: 4)", 1, 1000),
           &BlockIndexer::share)
      .add(whole("index_share_from", 0, "", "the first layer whose selection others use (GLM-5.2: 2)", 0, 1000),
           &BlockIndexer::share_after);
}

void check_blocks(const ParameterValues& values, const BlockIndexer& s, const char* unit) {
  if (s.budget < s.block) {
    throw UserError(values.where("budget"), fmt::format("{}: a budget of {} tokens is less than one {} of {}",
                                                        values.policy(), s.budget, unit, s.block));
  }
  check_pages_read(where_fixed(values), s.sink, s.recent, s.block, s.blocks(), s.tail_beside);
}

std::unique_ptr<Policy> make_lightning(const ParameterValues& values, std::int64_t spare) {
  constexpr double kScale = 4;  // bytes of an index key's scale, in addition to its FP8 numbers
  BlockIndexer s = lightning().read(values);
  check_blocks(values, s, "token");
  if (s.share == 1 && s.share_after > 0) {
    throw UserError(values.where("index_share_from"),
                    values.policy() + ": index_share_from has no effect without an index_share above 1");
  }
  s.entry_bytes = s.dim + kScale;
  s.buffer = spare > 0 ? s.budget + spare : 0;
  return index_blocks(s);
}

BudgetRule blocks_rule(const BlockIndexer& s, bool open_beside, const Lengths& lengths) {
  BudgetRule rule = chooses(s.budget, s.blocks() * s.block, s.block - 1, lengths.prompt_tokens);
  if (open_beside) rule.extra = s.block - 1;
  return rule;
}

const Fields<BlockIndexer>& msa_fields() {
  static const Fields<BlockIndexer> all =
      budget_field("tokens of the blocks attended to, the last block included")
          .add(whole("block", 128, "tokens", "tokens of a block", 2, 1e6), &BlockIndexer::block)
          .add(whole("index_dim", 128, "", "dimensions of an index key", 1, 1e5), &BlockIndexer::dim)
          .add(choice("index_format", {"bf16", "fp8"}, "format of index keys"), &BlockIndexer::fp8);
  return all;
}

std::unique_ptr<Policy> make_msa(const ParameterValues& values) {
  BlockIndexer start;
  start.by_group = true, start.weights = false, start.maximum = true;
  BlockIndexer s = msa_fields().read(values, start);
  s.recent = std::max<std::int64_t>(s.recent, 1);  // the last block is always read
  check_blocks(values, s, "block");
  s.entry_bytes = s.dim * (s.fp8 ? 1 : 2);
  return index_blocks(s);
}

const Fields<BlockIndexer>& qsa_fields() {
  static const Fields<BlockIndexer> all =
      budget_field("tokens of the groups attended to; those of the group that is not full come in addition")
          .add(whole("block", 4, "tokens", "tokens of a group", 2, 1e6), &BlockIndexer::block)
          .add(whole("index_heads", 4, "", "query heads of the indexer", 1, 1e5), &BlockIndexer::heads)
          .add(whole("index_dim", 128, "", "dimensions of an index key", 1, 1e5), &BlockIndexer::dim);
  return all;
}

std::unique_ptr<Policy> make_qsa(const ParameterValues& values) {
  BlockIndexer start;
  start.fp8 = false, start.weights = false, start.tail_beside = true;
  BlockIndexer s = qsa_fields().read(values, start);
  check_blocks(values, s, "group");
  s.stride = s.block, s.entry_bytes = 2 * s.dim;
  return index_blocks(s);
}

Descriptor indexed(const char* name, const char* sentence, const char* paper,
                   const std::vector<Parameter>& parameters) {
  Descriptor d;
  d.name = name;
  d.sentence = sentence;
  d.category = Category::kGpuRetrieval;
  d.paper = paper;
  d.parameters = parameters;
  return d;
}

}  // namespace

Descriptor describe() {
  Descriptor d =
      indexed("dsa", "Keeps everything on the GPU; a small indexer selects one set of tokens for all heads of a layer.",
              "DeepSeek-AI, DeepSeek-V3.2-Exp, technical report, 2025", lightning().parameters());
  d.for_latent = true;
  d.budget_convention = "tokens per layer, the same ones in all heads";
  d.formulas = {"traffic: L·(d_I + 4) + budget·(r + d_R)·b per step", "storage: L·(r + d_R)·b + L·(d_I + 4)"};
  d.differences = {kStandIn, kPrompt, kShared,
                   "scores in single precision; the released kernel multiplies FP8 numbers"};
  d.make = [](const ParameterValues& values) { return make_lightning(values, 0); };
  return d;
}

}  // namespace kvcast::policy::dsa

namespace kvcast::policy::hisparse {

using namespace dsa;

Descriptor describe() {
  Descriptor d = indexed(
      "hisparse", "DSA with all pairs in host memory and an LRU buffer of tokens on the GPU; misses are fetched.",
      "SGLang, HiSparse, 2026 (sgl-project/sglang), over DeepSeek-V3.2-Exp", lightning().parameters());
  d.category = Category::kHostRetrieval;
  d.for_latent = true;
  d.parameters.push_back(
      whole("spare", 2048, "tokens", "tokens of a sequence's buffer in each layer in addition to the budget", 1));
  d.budget_convention = "tokens per layer, the same ones in all heads";
  d.formulas = {"traffic: L·(d_I + 4) + budget·(r + d_R)·b per step; host to device (r + d_R)·b per miss",
                "storage: HBM (budget + spare)·(r + d_R)·b + L·(d_I + 4), pinned DRAM L·(r + d_R)·b"};
  d.differences = {kStandIn, kPrompt, kShared};
  d.make = [](const ParameterValues& values) { return make_lightning(values, values.integer("spare")); };
  return d;
}

}  // namespace kvcast::policy::hisparse

namespace kvcast::policy::msa {

using namespace dsa;

Descriptor describe() {
  Descriptor d = indexed("msa",
                         "Keeps everything on the GPU; an indexer selects blocks of tokens for each KV head, by the "
                         "best token of a block.",
                         "MiniMax, MiniMax Sparse Attention, 2026 (arXiv 2606.13392)", msa_fields().parameters());
  d.budget_convention = "tokens of whole blocks per KV head, of which the last may not be full";
  d.budget_rule = [](const ParameterValues& values, const Lengths& lengths) {
    return blocks_rule(msa_fields().read(values), false, lengths);
  };
  d.formulas = {"traffic: L·d_I·2 + 2·n_kv·budget·d·b per step", "storage: 2·n_kv·L·d·b + L·d_I·2"};
  d.differences = {kStandIn, kPrompt, "first layers without an indexer: first_dense_layers: 3 in MiniMax-M3"};
  d.make = make_msa;
  return d;
}

}  // namespace kvcast::policy::msa

namespace kvcast::policy::qsa {

using namespace dsa;

Descriptor describe() {
  Descriptor d = indexed("qsa",
                         "Keeps everything on the GPU; an indexer selects groups of tokens for all heads of a layer, "
                         "by one pooled key a group.",
                         "Qwen, Qwen3.8-Flash-Next, 2026 (code: sgl-project/sglang-jax)", qsa_fields().parameters());
  d.budget_convention = "tokens of whole groups per layer, the same ones in all heads; those of the open group besides";
  d.budget_rule = [](const ParameterValues& values, const Lengths& lengths) {
    return blocks_rule(qsa_fields().read(values), true, lengths);
  };
  d.formulas = {"traffic: L / block·d_I·2 + 2·n_kv·budget·d·b per step", "storage: 2·n_kv·L·d·b + L / block·d_I·2"};
  d.differences = {kStandIn, kPrompt,
                   "the norm and the rotation of pooled keys are part of their scores, and not separate kernels"};
  d.make = make_qsa;
  return d;
}

}  // namespace kvcast::policy::qsa

// InfLLM-V2 (Zhao et al., "InfLLM-V2: Dense-Sparse Switchable Attention for Seamless Short-to-Long Adaptation", 2025,
// arXiv 2509.24663; code: OpenBMB/infllmv2_cuda_impl), the sparse attention of MiniCPM4 (arXiv 2506.07900).
//
// Idea: means of short, overlapping windows of keys show which blocks matter, without additional weights.
// Selection in each step, per KV head: the mean key of every complete run of `kernel` tokens, one every `stride`
// tokens; softmax over them of q·k̄/√d for every query head, summed over the group. A block of `page` tokens has the
// largest score of the runs that overlap it. The first blocks (`sink` tokens), the block in progress with those before
// it that `recent` tokens fill, and the best others are attended to, ⌊budget/page⌋ in all. A context of at most
// `dense_below` tokens is attended to in full. Cost: mean keys read n_kv·(L/stride)·d·b; scores n_q·(L/stride)·4
// written, summed over the group; top-k; attention 2·n_kv·budget·d·b. All in sequence. A new token is added to the mean
// keys that it completes. Storage: 2·n_kv·L·d·b + n_kv·(L/stride)·d·b.
//
// nsa: Native sparse attention (Yuan et al., 2025, arXiv 2502.11089), for models that are trained with it. The same
// runs have a key and a value, made by a learned map. Three branches, whose outputs are added with learned gates:
// attention to all runs; the blocks with the largest sum of the runs' weights, a run counting once for each stride of
// it that lies in the block, the first and the last two blocks among them; the last `window` tokens. Cost in addition:
// values of the runs, the map (2·kernel·d·d FLOP for each number pair), a second and a third attention, gates. The
// prompt is as sparse.
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy/fields.hpp"
#include "policy/pages.hpp"
#include "policy_parts/forwarded_policy.hpp"
#include "policy_parts/pass_parts.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"
#include "policy_parts/stages.hpp"
#include "policy_parts/step_scores.hpp"

namespace kvcast::policy::infllm_v2 {
namespace {

struct InfLlmSetting {
  std::int64_t budget = 0, page = 1, sink = 0, recent = 0, kernel = 1, stride = 1, dense_below = 0;
  bool native = false;      // NSA: runs are attended to, and a block has the sum of their weights
  std::int64_t window = 0;  // its last tokens, in addition to the blocks

  // Number of mean keys of n tokens.
  std::int64_t means(std::int64_t n) const { return n < kernel ? 0 : (n - kernel) / stride + 1; }
  std::int64_t blocks(std::int64_t tokens) const { return (tokens + page - 1) / page; }
  // Number of last blocks, which are read always: the one in progress, and those of the local window before it.
  std::int64_t last() const { return blocks(recent) + 1; }
  // Number of blocks that are selected by score.
  std::int64_t chosen() const { return budget / page - blocks(sink) - last(); }
};

class InfLlmHead final : public HeadRetrieval {
 public:
  InfLlmHead(const LayerInput& input, int kv_head, const TokenList& tokens, const InfLlmSetting& setting)
      : layer_(input.layer()),
        tokens_(tokens),
        s_(setting),
        scale_(1.0f / std::sqrt(static_cast<float>(input.info().head_dim))),
        means_(mean_keys(kv_head)),
        products_({means_.data(), means_.size() / width(), width(), width()}, input.info().decode_steps,
                  index(input.info().group()),
                  [this, first = kv_head * input.info().group()](int t, std::size_t g, std::span<float> out) {
                    std::copy_n(layer_.decode_query(first + static_cast<int>(g), t), width(), out.data());
                  }),
        rows_(products_.rows()) {}

  void step(int t, std::span<HeadSelection> out) override {
    const std::int64_t n = tokens_.size(t);
    if (n <= std::max(s_.budget, s_.dense_below)) return tokens_.append_all(t, out[0].attended);
    const auto means = index(s_.means(n));
    std::vector<float> scores(means);
    for (std::size_t g = 0; g < rows_.size() && means > 0; ++g) {
      const std::span<const float> all = products_.row(t, g);
      rows_[g].assign(all.begin(), all.begin() + means);
    }
    const std::vector<std::span<float>> rows(rows_.begin(), rows_.end());
    if (means > 0) reduce_group(Group::kSumWeights, rows, scale_, scores);
    out[0].counts.scored = means;
    choose(n, scores, out[0].attended);
    add_window(n, out[0].attended);
    for (std::int32_t& i : out[0].attended) i = tokens_.position(i);
  }

 private:
  std::size_t width() const { return index(layer_.info().head_dim); }

  // Means of all runs that are complete by the last step.
  std::vector<float> mean_keys(int kv_head) const {
    const std::size_t d = width(), n = index(s_.means(tokens_.size(layer_.info().decode_steps - 1)));
    std::vector<float> out(n * d);
    for (std::size_t m = 0; m < n; ++m) {
      for (std::int64_t i = 0; i < s_.kernel; ++i) {
        const std::int64_t listed = static_cast<std::int64_t>(m) * s_.stride + i;
        const float* const key = layer_.keys(kv_head).row(index(tokens_.position(listed)));
        for (std::size_t j = 0; j < d; ++j) out[m * d + j] += key[j] / static_cast<float>(s_.kernel);
      }
    }
    return out;
  }

  void choose(std::int64_t n, const std::vector<float>& scores, std::vector<std::int32_t>& out) {
    const std::int64_t all = s_.blocks(n), begin = s_.blocks(s_.sink), end = all - s_.last();
    std::vector<float> of_blocks;
    for (std::int64_t b = begin; b < end; ++b) {
      // Runs from the first that ends after the block's start to the last that starts before its end.
      const std::int64_t first =
          std::max<std::int64_t>(0, (b * s_.page - s_.kernel) / s_.stride + (b * s_.page >= s_.kernel));
      const std::int64_t last = std::min(s_.means(n) - 1, ((b + 1) * s_.page - 1) / s_.stride);
      float score = s_.native ? 0 : -1;  // no run overlaps the block; weights are not negative
      for (std::int64_t m = first; m <= last; ++m) {
        score = s_.native ? score + scores[index(m)] * strides_of(m, b) : std::max(score, scores[index(m)]);
      }
      of_blocks.push_back(score);
    }
    std::vector<std::int32_t> blocks, best;
    ranking_.select(of_blocks, index(s_.chosen()), best);
    append_range(0, begin, blocks);
    for (const std::int32_t b : best) blocks.push_back(b + static_cast<std::int32_t>(begin));
    append_range(end, all, blocks);
    append_page_tokens(blocks, static_cast<int>(s_.page), 0, n, out);
  }

  // Strides of run m that lie in block b.
  float strides_of(std::int64_t m, std::int64_t b) const {
    const std::int64_t first = std::max(m * s_.stride, b * s_.page);
    const std::int64_t end = std::min(m * s_.stride + s_.kernel, (b + 1) * s_.page);
    return static_cast<float>(end - first) / static_cast<float>(s_.stride);
  }

  void add_window(std::int64_t n, std::vector<std::int32_t>& attended) const {
    const std::int64_t first = std::max<std::int64_t>(0, n - s_.window);
    attended.erase(std::lower_bound(attended.begin(), attended.end(), first), attended.end());
    append_range(first, n, attended);
  }

  const trace::Layer& layer_;
  TokenList tokens_;
  InfLlmSetting s_;
  float scale_;
  std::vector<float> means_;
  StepScores products_;
  Ranking ranking_;
  std::vector<std::vector<float>> rows_;
};

class InfLlm final : public RetrievalBy<InfLlmHead, InfLlmSetting> {
 public:
  InfLlm(const InfLlmSetting& setting, SourceLocation where) : RetrievalBy(setting), where_(std::move(where)) {}

  void check(const Lengths& request) const override {
    if (s_.chosen() >= 1 || std::max(s_.budget, s_.dense_below) >= request.bound()) return;
    throw UserError(where_, fmt::format("a budget of {} blocks leaves none to select after {} first and {} last ones",
                                        s_.budget / s_.page, s_.blocks(s_.sink), s_.blocks(s_.recent)));
  }

  void build_cost(const PrefillLayer& shape, std::int64_t kept, LayerOps& ops) const override {
    const Dims m(*shape.model);
    average(shape.batch * m.kv_heads * s_.means(kept), m, ops);
  }

  void decode_cost(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const OpId averaged = average(shape.batch * m.kv_heads / s_.stride, m, ops);
    const double means = shape.sum(&HeadCounts::scored);
    const OpId chosen = score_and_rank(shape, means * m.row(), 2 * means * m.group * m.d, s_.chosen(), ops, averaged);
    ops.done(ops.attention(attention_over(shape, means > 0 ? s_.page * m.row() : 0), {chosen}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape, std::int64_t tokens) const override {
    return {in_hbm(Owner::kMeanKeys, kv_bytes(shape, s_.means(tokens)) / 2)};
  }

  Growth growth(const Lengths&) const override {
    return {.scored = 1.0 / s_.stride, .fill = std::max(s_.budget, s_.dense_below)};
  }

 private:
  OpId average(double means, const Dims& m, LayerOps& ops) const {
    const double run = s_.kernel;
    const Kernel work{KernelClass::kReduce, means * run * m.row(), means * m.row(), means * run * m.d};
    return ops.compute(Kind::kIndex, "mean keys", work, {ops.ready()});
  }

  SourceLocation where_;
};

// NSA's three branches in a decode step.
class Native final : public RetrievalBy<InfLlmHead, InfLlmSetting> {
 public:
  using RetrievalBy::RetrievalBy;

  void build_cost(const PrefillLayer& shape, std::int64_t kept, LayerOps& ops) const override {
    compress(*shape.model, shape.batch * s_.means(kept), ops);
  }

  void decode_cost(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    OpId op = compress(*shape.model, shape.batch / static_cast<double>(s_.stride), ops);
    const OtherCounts runs(shape, [this](const Sequence& s) { return std::max<std::int64_t>(1, s_.means(s.tokens)); });
    op = ops.attention(attention_over(runs.shape(), 0), {op});
    const double lists = shape.batch * m.kv_heads, weights = runs.shape().sum(&HeadCounts::attended);
    const double blocks = std::ceil(shape.mean_tokens() / s_.page);
    const Kernel sums{KernelClass::kReduce, weights * m.group * kScoreBytes, lists * blocks * kScoreBytes,
                      2 * weights * m.group};
    op = ops.compute(Kind::kScore, "weights of blocks", sums, {op});
    op = ops.compute(Kind::kTopK, "top-k", TopK{lists, blocks, static_cast<double>(s_.budget / s_.page), kScoreBytes},
                     {op});
    // The block in progress has half of its tokens on average.
    const std::int64_t read = s_.budget / s_.page * s_.page - s_.page / 2;
    const OtherCounts selected(shape, [read](const Sequence& s) { return std::min(s.tokens, read); });
    op = ops.attention(attention_over(selected.shape(), s_.page * m.row()), {op});
    const OtherCounts last(shape, [this](const Sequence& s) { return std::min(s.tokens, s_.window); });
    op = ops.attention(attention_over(last.shape(), 0), {op});
    ops.done(gate(*shape.model, shape.batch, ops, op));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape, std::int64_t tokens) const override {
    const Dims m(*shape.model);
    const double layers = shape.model->layers, maps = 2 * static_cast<double>(s_.kernel) * m.d * m.d;
    return {in_hbm(Owner::kMeanKeys, kv_bytes(shape, s_.means(tokens))),
            in_hbm(Owner::kGateWeights,
                   layers * (maps + kBranches * m.q_heads * shape.model->hidden) * config::Model::kElementBytes, true)};
  }

  // About two blocks of the window are also among the last blocks, which are read anyway.
  Growth growth(const Lengths&) const override {
    return {.scored = 1.0 / s_.stride,
            .fill = s_.budget,
            .when_full = std::max(s_.page, s_.budget + s_.window - 2 * s_.page)};
  }

  // Query-key pairs of a prompt's queries up to position n in all branches; the runs are as many as strides.
  double pairs(double n) const {
    return capped_pairs(n, s_.budget) + capped_pairs(n, s_.window) + n * n / 2 / s_.stride;
  }

  // Sums and ranks the blocks of each query of a prompt's chunk.
  OpId select_blocks(const PrefillChunk& chunk, LayerOps& ops) const {
    const Dims m(*chunk.model);
    const double rows = chunk.batch * chunk.length() * m.kv_heads, seen = chunk.pairs() / chunk.length();
    const double runs = seen / s_.stride, blocks = seen / s_.page;
    const Kernel sums{KernelClass::kReduce, rows * runs * m.group * kScoreBytes, rows * blocks * kScoreBytes,
                      2 * rows * runs * m.group};
    const OpId op = ops.compute(Kind::kScore, "weights of blocks", sums, {ops.ready()});
    return ops.compute(Kind::kTopK, "top-k", TopK{rows, blocks, static_cast<double>(s_.budget / s_.page), kScoreBytes},
                       {op});
  }

  // Gates of all branches from the layer's input, and the sum of their outputs.
  static OpId gate(const config::Model& model, double rows, LayerOps& ops, OpId after) {
    const Dims m(model);
    const Gemm gates{rows, kBranches * m.q_heads, static_cast<double>(model.hidden)};
    after = ops.compute(Kind::kGemm, "gates of branches", gates, {after});
    const double outputs = rows * m.q_heads * m.row();
    const Kernel sum{KernelClass::kElementwise, kBranches * outputs, outputs};
    return ops.compute(Kind::kAttention, "add branches", sum, {after});
  }

 private:
  static constexpr double kBranches = 3;

  // The learned map of `runs` runs of every KV head, of keys and of values.
  OpId compress(const config::Model& model, double runs, LayerOps& ops) const {
    const Dims m(model);
    return ops.compute(Kind::kIndex, "compress runs", Gemm{2 * runs * m.kv_heads, m.d, s_.kernel * m.d}, {ops.ready()});
  }
};

// The prompt's attention in the same branches.
class NativePrompt final : public WrappedPolicy {
 public:
  explicit NativePrompt(const InfLlmSetting& setting)
      : WrappedPolicy(two_stages(keep_all(), std::make_unique<Native>(setting))), branches_(setting) {}

  OpId prefill_attention(const PrefillChunk& chunk, LayerOps& ops) const override {
    PrefillChunk sparse = chunk;
    sparse.density = (branches_.pairs(chunk.held + chunk.length()) - branches_.pairs(chunk.held)) / chunk.pairs();
    const OpId op = branches_.select_blocks(chunk, ops);
    const OpId attended = ops.compute(Kind::kAttention, "prefill attention", causal_attention(sparse), {op});
    return Native::gate(*chunk.model, chunk.batch * chunk.length(), ops, attended);
  }

 private:
  Native branches_;
};

Fields<InfLlmSetting> nsa_fields() {
  using S = InfLlmSetting;
  return Fields<S>()
      .add(budget_parameter("tokens of the blocks read per KV head, the first and the last two among them", 1024),
           &S::budget)
      .add(page_parameter(64), &S::page)
      .add(whole("sink", 64, "tokens", "first tokens, whose blocks are always read"), &S::sink)
      .add(whole("recent", 64, "tokens", "last tokens, whose blocks are always read, besides the block in progress"),
           &S::recent)
      .add(whole("window", 512, "tokens", "last tokens, which a branch of their own reads"), &S::window)
      .add(whole("kernel", 32, "tokens", "tokens of a run that has one key and value", 1, 65536), &S::kernel)
      .add(whole("stride", 16, "tokens", "distance between the starts of two runs", 1, 65536), &S::stride);
}

InfLlmSetting read_nsa(const ParameterValues& values) {
  InfLlmSetting s = nsa_fields().read(values);
  s.native = true;
  if (s.chosen() < 0) {
    throw UserError(values.where("budget"), fmt::format("nsa: a budget of {} blocks is less than {} first and {} last",
                                                        s.budget / s.page, s.blocks(s.sink), s.last()));
  }
  return s;
}

Fields<InfLlmSetting> infllm_v2_fields() {
  using S = InfLlmSetting;
  return Fields<S>()
      .add(budget_parameter("tokens attended to per KV head, including first and last blocks", 6144), &S::budget)
      .add(page_parameter(64), &S::page)
      .add(whole("sink", 64, "tokens", "first tokens, read always, as ⌈sink / page⌉ blocks"), &S::sink)
      .add(whole("recent", 2048, "tokens",
                 "last tokens, read always, as ⌈recent / page⌉ blocks, in addition to the block in progress"),
           &S::recent)
      .add(whole("kernel", 32, "tokens", "tokens per mean key", 1, 65536), &S::kernel)
      .add(whole("stride", 16, "tokens", "distance between the starts of two runs", 1, 65536), &S::stride)
      .add(whole("dense_below", 8192, "tokens", "contexts of at most this many tokens are attended to in full"),
           &S::dense_below);
}

Stages make_infllm_v2(const ParameterValues& values) {
  return {keep_all(), std::make_unique<InfLlm>(infllm_v2_fields().read(values), values.where("budget"))};
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "infllm_v2";
  d.sentence = "Keeps everything on the GPU and reads the blocks with the best means of short runs of keys.";
  d.category = Category::kGpuRetrieval;
  d.paper = "Zhao et al., InfLLM-V2, 2025 (arXiv 2509.24663)";
  d.parameters = infllm_v2_fields().parameters();
  d.budget_convention = "⌊budget / page⌋ blocks per KV head, including first and last ones";
  d.formulas = {"traffic: n_kv·(L/stride)·d·b + 2·n_kv·budget·d·b per step",
                "storage: 2·n_kv·L·d·b + n_kv·(L/stride)·d·b"};
  d.differences = {
      "the models are trained with this attention; a trace of another model shows its selections without training",
      "attention over the prompt is dense; InfLLM-V2 selects blocks there as well",
      "scores are softmax weights over all runs; the released kernels compute the sum of exponentials from coarser "
      "runs"};
  d.budget_rule = [](const ParameterValues& values, const Lengths& lengths) {
    const InfLlmSetting s = infllm_v2_fields().read(values);
    return chooses(std::max(s.budget, s.dense_below), s.budget / s.page * s.page, s.page - 1, lengths.prompt_tokens);
  };
  d.stages = make_infllm_v2;
  return d;
}

}  // namespace kvcast::policy::infllm_v2

namespace kvcast::policy::nsa {

using namespace infllm_v2;

Descriptor describe() {
  Descriptor d;
  d.name = "nsa";
  d.sentence =
      "Adds three attentions of a model trained for them: to runs of tokens, to the best blocks, and to a window.";
  d.category = Category::kGpuRetrieval;
  d.paper = "Yuan et al., Native Sparse Attention, ACL 2025 (arXiv 2502.11089)";
  d.parameters = nsa_fields().parameters();
  d.budget_convention = "tokens of whole blocks per KV head; those of the window and the runs in addition";
  d.formulas = {"traffic: 2·n_kv·(L/stride + budget + window)·d·b per step",
                "storage: 2·n_kv·(L + L/stride)·d·b + (2·kernel·d² + 3·n_q·D)·b"};
  d.differences = {
      "traces contain neither the learned map nor the gates: means of keys stand for a run's key, and the mass and the "
      "output of a replay are those of the blocks and the window together, without the runs",
      "a run counts in a block by the share of its strides there, the reading of equation 9 for any sizes",
      "the map is one matrix for the keys and one for the values of a layer; the paper states no size",
      "the prompt's own attention is timed as sparse and replayed as full"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) {
    const InfLlmSetting s = read_nsa(values);
    return BudgetRule{.tokens = s.budget, .extra = s.window, .slack = BudgetRule::kAny};
  };
  d.make = [](const ParameterValues& values) -> std::unique_ptr<Policy> {
    return std::make_unique<NativePrompt>(read_nsa(values));
  };
  return d;
}

}  // namespace kvcast::policy::nsa

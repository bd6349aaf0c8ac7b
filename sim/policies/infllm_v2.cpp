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
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy/fields.hpp"
#include "policy/pages.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"
#include "policy_parts/stages.hpp"
#include "policy_parts/step_scores.hpp"

namespace kvcast::policy {
namespace {

struct InfLlmSetting {
  std::int64_t budget = 0, page = 1, sink = 0, recent = 0, kernel = 1, stride = 1, dense_below = 0;

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
      rows_[g].assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(means));
    }
    const std::vector<std::span<float>> rows(rows_.begin(), rows_.end());
    if (means > 0) reduce_group(Group::kSumWeights, rows, scale_, scores);
    out[0].counts.scored = static_cast<std::int64_t>(means);
    choose(n, scores, out[0].attended);
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
      float best = -1;  // no run overlaps the block; weights are not negative
      for (std::int64_t m = first; m <= last; ++m) best = std::max(best, scores[index(m)]);
      of_blocks.push_back(best);
    }
    std::vector<std::int32_t> blocks, best;
    ranking_.select(of_blocks, index(s_.chosen()), best);
    append_range(0, begin, blocks);
    for (const std::int32_t b : best) blocks.push_back(b + static_cast<std::int32_t>(begin));
    append_range(end, all, blocks);
    append_page_tokens(blocks, static_cast<int>(s_.page), 0, n, out);
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
    average(shape.batch * m.kv_heads * static_cast<double>(s_.means(kept)), m, ops);
  }

  void decode_cost(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const OpId averaged = average(shape.batch * m.kv_heads / static_cast<double>(s_.stride), m, ops);
    const double means = shape.sum(&HeadCounts::scored);
    const OpId chosen = score_and_rank(shape, means * m.row(), 2 * means * m.group * m.d, s_.chosen(), ops, averaged);
    ops.done(ops.attention(attention_over(shape, means > 0 ? static_cast<double>(s_.page) * m.row() : 0), {chosen}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape, std::int64_t tokens) const override {
    return {in_hbm(Owner::kMeanKeys, kv_bytes(shape, s_.means(tokens)) / 2)};
  }

  Growth growth(const Lengths&) const override {
    return {.scored = 1.0 / static_cast<double>(s_.stride), .fill = std::max(s_.budget, s_.dense_below)};
  }

 private:
  OpId average(double means, const Dims& m, LayerOps& ops) const {
    const double run = s_.kernel;
    const Kernel work{KernelClass::kReduce, means * run * m.row(), means * m.row(), means * run * m.d};
    return ops.compute(Kind::kIndex, "mean keys", work, {ops.ready()});
  }

  SourceLocation where_;
};

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

Descriptor describe_infllm_v2() {
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

}  // namespace kvcast::policy

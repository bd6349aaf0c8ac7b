// RocketKV and RocketKV-MT (Behnam et al., "RocketKV: Accelerating Long-Context LLM Inference via Two-Stage KV Cache
// Compression", 2025, arXiv 2502.14051).
//
// Idea: compress twice, each time moderately: evict from the prompt the tokens that no later query needs, then retrieve
// from the remaining ones.
// Split: c = max(1, S_max / t); r = min(0.2 + 0.06·log2 c, 0.8) or given; N = ⌊S_max / c^r⌋ tokens per head after the
// first stage, at least min(2·T_max, S_max); the second stage compresses by c2 = max(1, N / t) = c^(1−r).
// Selection: once after the prompt, window eviction (SnapKV with the sum over the group and a pooling kernel of 63)
// down to N − T_max tokens, which leaves space for T_max generated ones; then HSA over the kept and the generated
// tokens, with pages over them in position order.
// Cost: SnapKV's prefill work, page bounds of the kept tokens; decode as HSA over N tokens.
// Storage: 2·n_kv·(N + ⌈N/p⌉)·d·b = (1/c^r + 1/c^((1+r)/2)) of full; the paper has 2/c^((1+r)/2) for the second term,
// counting keys as whole KV pairs.
// RocketKV-MT keeps all tokens for later turns and decodes from a filtered copy: 1 + 1/c^r + 1/c^((1+r)/2) of full. If
// the prompt contains several turns (a trace's `turns`), it filters the whole prompt by the last turn's queries, as if
// nothing had been filtered before (section 3.5); RocketKV evicts after each turn, and evicted tokens are lost.
#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "base/error.hpp"
#include "policies/composition.hpp"
#include "policies/hsa.hpp"
#include "policies/quest.hpp"
#include "policies/rocketkv.hpp"
#include "policy_parts/prompt_eviction.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy {

RocketSplit split_rocket(std::int64_t bound, std::int64_t budget, std::int64_t reserved, double split_factor) {
  const double s_max = bound;
  RocketSplit split;
  split.ratio = std::max(1.0, s_max / budget);
  split.factor = split_factor >= 0 ? split_factor : std::min(0.2 + 0.06 * std::log2(split.ratio), 0.8);
  split.length = static_cast<std::int64_t>(s_max / std::pow(split.ratio, split.factor));
  split.length = std::max(split.length, std::min(2 * reserved, bound));
  split.second_ratio = std::max(1.0, static_cast<double>(split.length) / static_cast<double>(budget));
  split.prompt_budget = split.length - reserved;
  return split;
}

namespace {

struct RocketSetting {
  HsaSetting hsa;  // including the budget
  PromptEviction eviction;
  std::optional<double> split_factor;  // adaptive if empty
  std::string first_stage, second_stage;
};

Fields<RocketSetting> rocketkv_fields() {
  using S = RocketSetting;
  Parameter budget = budget_parameter("the step's traffic in tokens, half for estimation, half for attention");
  budget.low = 2;  // half of it is for attention
  return Fields<S>()
      .add(budget, &S::hsa, &HsaSetting::budget)
      .add(real_or("split_factor", "adaptive",
                   "r: the first stage compresses by c^r, though not below 2 · max_new_tokens, the second by c^(1 − r)",
                   0, 1),
           &S::split_factor)
      .add(window_parameter(32), &S::eviction, &PromptEviction::window)
      .add(pool_parameter("max"), &S::eviction, &PromptEviction::pool)
      .add(pool_kernel_parameter(63), &S::eviction, &PromptEviction::pool_kernel)
      .add(choice("eviction_group", {"sum_weights", "mean_weights", "max_weights"},
                  "rule by which the query heads of a KV head agree in the first stage"),
           &S::eviction, &PromptEviction::group)
      .add(policy_parameter("first_stage", "snapkv",
                            "eviction from the prompt: snapkv with the parameters above, or a policy that evicts "
                            "once, with its own parameters",
                            {"snapkv"}),
           &S::first_stage)
      .add(policy_parameter("second_stage", "hsa",
                            "retrieval from the tokens that the first stage kept: hsa or quest with the parameters "
                            "here, or a policy with its own parameters, for which the sequence has N tokens",
                            {"hsa", "quest"}),
           &S::second_stage)
      .add(hsa_fields(), &S::hsa);
}

// The setting for a request, with the budgets of both stages.
RocketSetting rocket_at(const RocketSetting& setting, const Lengths& request) {
  RocketSetting s = setting;
  s.hsa.reserved = s.hsa.reserved_for(request);
  const RocketSplit split = split_rocket(request.bound(), s.hsa.budget, s.hsa.reserved, s.split_factor.value_or(-1));
  s.hsa.length = split.length;
  s.hsa.ratio = split.second_ratio;
  // A budget that covers every token evicts nothing, whatever number of generated tokens is planned for.
  s.eviction.budget =
      s.hsa.budget >= request.bound() ? std::max(split.prompt_budget, request.prompt_tokens) : split.prompt_budget;
  return s;
}

// The first stage: what it keeps depends on the request, and without `frees` it is a copy in addition to the whole
// cache.
class RocketFirst final : public Retention {
 public:
  RocketFirst(ParameterValues values, const RocketSetting& setting, bool frees)
      : values_(std::move(values)), s_(setting), frees_(frees) {}

  void check(const Lengths& request) const override { of(request); }
  bool frees() const override { return frees_; }
  bool surveys(const Lengths& request) const override { return of(request).surveys(request); }
  void survey(std::span<const LayerInput* const> layers, const Lengths& request) override {
    of(request).survey(layers, request);
  }
  std::vector<std::vector<std::int32_t>> keep(const LayerInput& layer, const Lengths& request) const override {
    const Retention& stage = of(request);
    if (!frees_ && !own() && !stage.keeps_all() && prompt_ends(layer.info(), 0).size() > 1) {
      throw UserError(
          "rocketkv_mt filters the whole prompt again at each turn, which only the first stage snapkv supports: leave "
          "first_stage at snapkv for a trace of several turns");
    }
    return stage.keep(layer, request);
  }
  std::int64_t kept(const Lengths& request) const override { return of(request).kept(request); }
  double mean_kept(const config::Model& model, const Lengths& request) const override {
    return of(request).mean_kept(model, request);
  }
  void prefill_cost(const PrefillLayer& shape, LayerOps& ops) const override {
    of(shape.request()).prefill_cost(shape, ops);
  }
  PromptBlocks prompt_blocks(const config::Model& model, int layer, const Lengths& request) const override {
    return of(request).prompt_blocks(model, layer, request);
  }

 private:
  bool own() const { return s_.first_stage == "snapkv"; }

  Retention& of(const Lengths& request) const {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Retention>& stage = stages_[request];
    if (!stage) stage = make(request);
    return *stage;
  }

  std::unique_ptr<Retention> make(const Lengths& request) const {
    PromptEviction eviction = rocket_at(s_, request).eviction;
    eviction.each_turn = !frees_;
    const std::int64_t stay = eviction.budget;
    const bool whole = stay >= request.prompt_tokens;
    if (!whole && own()) check_window(values_, eviction);
    if (stay < 1) throw UserError(values_.where("max_new_tokens"), "max_new_tokens leaves no tokens for the prompt");
    if (own()) return whole ? keep_all() : evict_after_prompt(eviction);
    // A configured first stage is read, and thereby checked, even if nothing is left for it to do.
    std::unique_ptr<Retention> stage = read_stages(values_, "first_stage", stay).first;
    if (stage->keeps_all() && !whole) {
      throw UserError(values_.where("first_stage"),
                      fmt::format("first_stage: {} evicts nothing from the prompt", s_.first_stage));
    }
    if (stage->per_query_head()) {
      throw UserError(values_.where("first_stage"),
                      "the second stage selects for KV heads: group must not be per_head");
    }
    if (!frees_ && stage->prompt_blocks({}, 0, request).tokens > 0) {
      throw UserError(values_.where("first_stage"),
                      "block: rocketkv_mt keeps the whole prompt, so it is not evicted in blocks");
    }
    return whole ? keep_all() : std::move(stage);
  }

  ParameterValues values_;
  RocketSetting s_;
  bool frees_;
  mutable std::mutex mutex_;
  mutable std::map<Lengths, std::unique_ptr<Retention>> stages_;
};

// Any other second stage, which sees the N tokens as the whole context.
class RocketSecond final : public Retrieval {
 public:
  RocketSecond(const ParameterValues& values, const RocketSetting& setting)
      : inner_(read_stages(values, "second_stage", setting.hsa.budget, true).second),
        s_(setting),
        where_(values.where("second_stage")) {}

  bool per_query_head() const override { return inner_->per_query_head(); }
  void check(const Lengths& request) const override {
    inner_->check(kept(request));
    if (!inner_->reads_all() || s_.hsa.budget >= rocket_at(s_, request).hsa.length) return;
    throw UserError(where_, fmt::format("second_stage: {} attends to all tokens that the first stage kept and selects "
                                        "none",
                                        s_.second_stage));
  }
  std::unique_ptr<HeadRetrieval> begin(const LayerInput& layer, int kv_head, const TokenList& tokens,
                                       const Lengths& request) const override {
    return inner_->begin(layer, kv_head, tokens, kept(request));
  }
  void build_cost(const PrefillLayer& shape, std::int64_t tokens, LayerOps& ops) const override {
    PrefillLayer listed = shape;
    const Lengths request = kept(shape.request());
    listed.prompt_tokens = request.prompt_tokens, listed.decode_steps = request.decode_steps;
    inner_->build_cost(listed, tokens, ops);
  }
  void decode_cost(const DecodeLayer& shape, LayerOps& ops) const override {
    std::vector<Sequence> listed(shape.sequences.begin(), shape.sequences.end());
    for (Sequence& sequence : listed) sequence.request = kept(sequence.request);
    inner_->decode_cost({*shape.model, shape.layer, listed, shape.heads, shape.per_query_head}, ops);
  }
  std::vector<MemoryItem> memory(const MemoryShape& shape, std::int64_t tokens) const override {
    MemoryShape listed = shape;
    listed.lengths = kept(shape.lengths);
    listed.tokens += listed.lengths.prompt_tokens - shape.lengths.prompt_tokens;
    return inner_->memory(listed, tokens);
  }
  double stored_share(const config::Model& model, double tokens) const override {
    return inner_->stored_share(model, tokens);
  }
  Growth growth(const Lengths& request) const override { return inner_->growth(kept(request)); }

 private:
  Lengths kept(const Lengths& request) const {
    const HsaSetting s = rocket_at(s_, request).hsa;
    return {std::max<std::int64_t>(1, s.length - s.reserved), s.reserved};
  }

  std::unique_ptr<Retrieval> inner_;
  RocketSetting s_;
  SourceLocation where_;
};

std::unique_ptr<Retrieval> second_stage(const ParameterValues& values, const RocketSetting& s) {
  if (s.second_stage == "hsa") {
    return retrieve_hsa(s.hsa, [s](const HsaSetting&, const Lengths& request) { return rocket_at(s, request).hsa; });
  }
  if (s.second_stage != "quest") return std::make_unique<RocketSecond>(values, s);
  QuestPages setting;
  setting.budget = s.hsa.budget;
  setting.group = s.hsa.group;
  setting.format = s.hsa.format;
  setting.one_bound = true;
  return retrieve_quest_pages(setting, [s](const QuestPages& pages, const Lengths& request) {
    QuestPages spent = pages;
    spent.page = static_cast<int>(std::ceil(rocket_at(s, request).hsa.ratio));
    spend_half(spent);
    return spent;
  });
}

std::unique_ptr<Policy> make_rocketkv(const ParameterValues& values, bool frees) {
  const RocketSetting s = rocketkv_fields().read(values);
  check_pool(values, s.eviction);
  return two_stages(std::make_unique<RocketFirst>(values, s, frees), second_stage(values, s));
}

BudgetRule rocket_rule(const ParameterValues& values, const Lengths& request) {
  const RocketSetting s = rocketkv_fields().read(values);
  // Other second stages may spend a larger part of it on attention.
  const bool known = s.second_stage == "hsa" || s.second_stage == "quest";
  BudgetRule rule = chooses(s.hsa.budget, known ? s.hsa.budget / 2 : s.hsa.budget, 0, request.prompt_tokens);
  rule.slack = BudgetRule::kAny;
  rule.counts = BudgetRule::Counts::kTraffic;
  return rule;
}

Descriptor describe_rocket(bool frees) {
  Descriptor d;
  d.name = frees ? "rocketkv" : "rocketkv_mt";
  d.sentence =
      frees
          ? "Evicts part of the prompt for good, then retrieves from the rest by cheap estimates."
          : "Like rocketkv, but keeps filtered tokens for later turns: the same speed, without the savings of memory.";
  d.category = frees ? Category::kDropAndRetrieval : Category::kGpuRetrieval;
  d.no_ends = "the traffic budget sets the size of its pages, which leaves no whole ones to set aside";
  if (frees)
    d.own_reuse = {config::SchedulerRules::Reuse::kNone,
                   "TensorRT-LLM's example of RocketKV turns the reuse of blocks off"};
  d.paper = "Behnam et al., RocketKV, 2025 (arXiv 2502.14051)";
  d.parameters = rocketkv_fields().parameters();
  d.own_budget_counts = BudgetRule::Counts::kTraffic;
  d.budget_convention = "all KV-equivalent bytes of a step in units of one token's keys and values, per KV head";
  d.formulas = {"traffic: n_kv·⌈N/p⌉·k1·b + 2·n_kv·⌊t/2⌋·d·b per step, about 1/c of full",
                frees ? "storage: 1/c^r + 1/c^((1+r)/2) of full, byte-true"
                      : "storage: 1 + 1/c^r + 1/c^((1+r)/2) of full, byte-true",
                frees ? "storage as the paper prints it (table 1): 1/c^r + 2/c^((1+r)/2)"
                      : "storage as the paper prints it (table 1): 1 + 2/c^((1+r)/2)"};
  d.differences = {
      "pages run over the kept tokens in position order, as in the Hugging Face code; the gpt-fast code leaves "
      "them in order of score",
      "N − T_max prompt tokens are kept, as in the code; max_new_tokens: 0 gives the paper's formula",
      "a second stage without the traffic convention (exact_topk, loki) attends to t tokens; its estimate is "
      "additional traffic"};
  if (frees) {
    d.prefill = config::SchedulerRules::Prefill::kWhole;
    d.prefill_source = "NVIDIA/TensorRT-LLM, examples/sparse_attention/RocketKV.md: no chunked prefill";
  } else {
    d.differences.emplace_back(
        "a trace is one turn's answer: its prompt is the whole history, filtered by its last queries. Without `turns` "
        "in the trace the selections are rocketkv's; scores of benchmarks with several turns (scbench) differ");
  }
  d.budget_rule = rocket_rule;
  d.needs = [frees](const ParameterValues& values, const Lengths&) {
    return ReplayNeeds{.each_turn = !frees, .window = values.integer("window")};
  };
  d.make = [frees](const ParameterValues& values) { return make_rocketkv(values, frees); };
  return d;
}

}  // namespace

namespace rocketkv {
Descriptor describe() { return describe_rocket(true); }
}  // namespace rocketkv
namespace rocketkv_mt {
Descriptor describe() { return describe_rocket(false); }
}  // namespace rocketkv_mt

}  // namespace kvcast::policy

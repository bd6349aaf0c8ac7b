// Quest (Tang et al., "Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference", ICML 2024, arXiv
// 2406.10774).
//
// Idea: the element-wise minimum and maximum of a page's keys bound the score of any key in it; read the pages with the
// highest bounds.
// Selection in each step: score(page) = Σ_j max(q_j·min_j, q_j·max_j) for every query head, reduced over the group; the
// best ⌊budget / page⌋ pages, among which the partial last one competes like any other. sink, recent: the pages with
// the first `sink` and the last `recent` tokens, including the current one, are always among the ⌊budget / page⌋
// (FreeKV's comparison, arXiv 2505.13109, section 2.2: of a budget B every retrieval method keeps S and W, and selects
// B − S − W). force_last_page (the released runtime): the same as recent: 1.
// Cost: bounds read 2·n_kv·⌈L/p⌉·d·b, scores n_q·⌈L/p⌉·4 written, reduced, top-k; attention 2·n_kv·budget·d·b; the new
// token updates one page's bounds. All in sequence on the model's stream.
// Storage: 2·n_kv·L·d·b + 2·n_kv·⌈L/p⌉·d·b.
//
// budget_convention traffic (RocketKV's comparison, arXiv 2502.14051, section 3.6 and appendix A.3): the budget t pays
// for estimation and attention, half each, in units of one token's keys and values: p = ⌈S_max / t⌉ with one bound read
// per element, and ⌊t / 2 / p⌋ pages; if half the budget is smaller than a page, ⌊t / 2⌋ tokens of the best one.
// budget_convention traffic_tokens always reads ⌊t / 2⌋ tokens, cutting the last page, another reading of that appendix
// ("top-k token indices").
#include "policies/quest.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy_parts/page_scorer.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy {
namespace {

class QuestHead final : public HeadRetrieval {
 public:
  QuestHead(const LayerInput& layer, int kv_head, const TokenList& tokens, const QuestPages& setting)
      : tokens_(tokens),
        s_(setting),
        scale_(1.0f / std::sqrt(static_cast<float>(layer.info().head_dim))),
        scorer_(layer, kv_head, tokens, {.page = setting.page, .format = setting.format, .group = setting.group}) {}

  void step(int t, std::span<HeadSelection> out) override {
    scorer_.append(t);
    const std::int64_t n = tokens_.size(t);
    for (std::size_t g = 0; g < out.size(); ++g) {
      if (s_.budget >= n) {
        tokens_.append_all(t, out[g].attended);
        continue;
      }
      if (s_.group == Group::kPerHead) {
        scorer_.score_head(t, static_cast<int>(g), scorer_.pages(), scores_);
      } else {
        scorer_.score(t, scorer_.pages(), scale_, scores_);
      }
      out[g].counts.scored = scores_.size();
      choose(out[g]);
      for (std::int32_t& i : out[g].attended) i = tokens_.position(i);
    }
  }

 private:
  void choose(HeadSelection& out) {
    const std::int64_t n = scorer_.tokens();
    rank_pages_first(scores_, s_.page, n, s_.sink, s_.recent);
    if (s_.tokens > 0) return take_tokens(n, out);
    ranking_.select(scores_, index(s_.pages), chosen_);
    append_page_tokens(chosen_, s_.page, 0, n, out.attended);
  }

  void take_tokens(std::int64_t n, HeadSelection& out) {
    // One page more than necessary, because the last one of the sequence may be partial and rank among the best.
    ranking_.rank(scores_, std::min(index(s_.pages) + 1, scores_.size()), chosen_);
    std::int64_t left = s_.tokens;
    for (const std::int32_t page : chosen_) {
      const std::int64_t begin = std::int64_t{page} * s_.page,
                         end = std::min(begin + std::min<std::int64_t>(s_.page, left), n);
      append_range(begin, end, out.attended);
      left -= end - begin;
    }
    std::sort(out.attended.begin(), out.attended.end());
  }

  TokenList tokens_;
  QuestPages s_;
  float scale_;
  PageScorer scorer_;
  Ranking ranking_;
  std::vector<float> scores_;
  std::vector<std::int32_t> chosen_;
};

class Quest final : public RetrievalByRequest<QuestHead, QuestPages> {
 public:
  using RetrievalByRequest::RetrievalByRequest;

  void build_cost(const PrefillLayer& shape, std::int64_t kept, LayerOps& ops) const override {
    summarise_pages(shape, kept, at(shape.request()).page, ops, ops.ready(), s_.format);
  }

  void decode_cost(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    const OpId updated = update_page_summary(shape, ops, s_.format);
    const double pages = units_read(shape);
    const double read = pages * (s_.one_bound ? 1 : 2) * m.d * summary_element(*shape.model, s_.format);
    const double chosen_pages = shape.mean_over([this](const Sequence& s) { return at(s.request).pages; });
    const double page = shape.mean_over([this](const Sequence& s) { return at(s.request).page; });
    const OpId chosen = score_and_rank(shape, read, 4 * pages * m.group * m.d, chosen_pages, ops, updated);
    ops.done(ops.attention(attention_to_selected(shape, page * m.row()), {chosen}));
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape, std::int64_t tokens) const override {
    return {in_hbm(Owner::kPageSummaries, summary_bytes(shape, tokens, at(shape.lengths).page, s_.format))};
  }

  Growth growth(const Lengths& request) const override {
    const QuestPages s = at(request);
    return {.scored = 1.0 / s.page, .fill = s.budget, .when_full = s.tokens > 0 ? s.tokens : s.pages * s.page};
  }
};

Fields<QuestPages> quest_fields() {
  using S = QuestPages;
  return Fields<S>()
      .add(budget_parameter("tokens attended to, or the step's traffic in tokens"), &S::budget)
      .add(page_parameter(16), &S::page)
      .add(group_parameter({"sum_scores", "mean_scores", "max_scores", "sum_weights", "mean_weights", "max_weights",
                            "mean_query", "max_query", "per_head"}),
           &S::group)
      .add(flag("force_last_page", false, "always read the page of the current token, within the budget"))
      .add(choice("budget_convention", {"attended", "traffic", "traffic_tokens"},
                  "quantity that the budget counts: tokens attended to, or all traffic of the step; "
                  "traffic_tokens: the same, with the last page cut to the tokens paid for"))
      .add(read_always_parameter("sink"), &S::sink)
      .add(read_always_parameter("recent"), &S::recent)
      .add(summary_format_parameter(), &S::format);
}

// Throws UserError if the pages leave no choice. `budget` and `fixed`: locations of the budget, of sink or recent.
void check_quest(const QuestPages& s, const SourceLocation& budget_at, const SourceLocation& fixed_at) {
  if (s.pages < 1) {
    throw UserError(budget_at,
                    fmt::format("budget ({} tokens) is smaller than one page ({} tokens)", s.budget, s.page));
  }
  const std::int64_t page = s.page, room = s.tokens > 0 ? std::max<std::int64_t>(1, s.tokens / page) : s.pages;
  check_pages_read(fixed_at, s.sink, s.recent, page, room);
}

// Under a traffic convention the budget determines the page, by the request's length.
QuestPages spend_traffic(QuestPages s, const Lengths& request) {
  s.page = static_cast<int>(std::max<std::int64_t>(1, (request.bound() + s.budget - 1) / s.budget));
  if (s.by_tokens) {
    s.tokens = s.budget / 2;
    s.pages = (s.tokens + s.page - 1) / s.page;
  } else {
    spend_half(s);
  }
  return s;
}

QuestPages read_pages(const ParameterValues& values) {
  QuestPages s = quest_fields().read(values);
  s.pages = s.budget / s.page;
  if (values.flag("force_last_page")) s.recent = std::max<std::int64_t>(s.recent, 1);
  const std::string& convention = values.text("budget_convention");
  s.one_bound = convention != "attended", s.by_tokens = convention == "traffic_tokens";
  if (s.one_bound && values.given("page")) {
    throw UserError(values.where("page"), "under the traffic convention the budget determines the page");
  }
  return s;
}

Stages make_quest(const ParameterValues& values) {
  const QuestPages s = read_pages(values);
  const SourceLocation budget_at = values.where("budget");
  const SourceLocation fixed_at = where_fixed(values);
  if (!s.one_bound) {
    check_quest(s, budget_at, fixed_at);
    return {keep_all(), retrieve_quest_pages(s, [](const QuestPages& same, const Lengths&) { return same; })};
  }
  return {keep_all(), retrieve_quest_pages(s, [=](const QuestPages& setting, const Lengths& request) {
            const QuestPages spent = spend_traffic(setting, request);
            if (setting.budget < request.bound()) check_quest(spent, budget_at, fixed_at);
            return spent;
          })};
}

BudgetRule quest_rule(const ParameterValues& values, const Lengths& request) {
  const bool traffic = values.text("budget_convention") != "attended";
  const QuestPages s = traffic ? spend_traffic(read_pages(values), request) : read_pages(values);
  BudgetRule rule = s.tokens > 0 ? chooses(s.budget, s.tokens, 0, request.prompt_tokens)
                                 : chooses(s.budget, s.pages * s.page, s.page - 1, request.prompt_tokens);
  if (traffic) rule.counts = BudgetRule::Counts::kTraffic;
  return rule;
}

}  // namespace

void spend_half(QuestPages& setting) {
  const std::int64_t half = setting.budget / 2;
  setting.pages = half / setting.page;
  if (setting.pages > 0 || half == 0) return;
  setting.pages = 1;
  setting.tokens = half;
}

std::unique_ptr<Retrieval> retrieve_quest_pages(const QuestPages& setting,
                                                std::function<QuestPages(const QuestPages&, const Lengths&)> at) {
  return std::make_unique<Quest>(setting, std::move(at));
}

namespace quest {

Descriptor describe() {
  Descriptor d;
  d.name = "quest";
  d.sentence = "Keeps everything on the GPU and reads the pages whose keys have the highest bounds on scores.";
  d.category = Category::kGpuRetrieval;
  d.paper = "Tang et al., Quest, ICML 2024 (arXiv 2406.10774)";
  d.parameters = quest_fields().parameters();
  d.budget_convention =
      "⌊budget / page⌋ pages per KV head (per query head with group: per_head); traffic: half for "
      "estimation, half for attention (⌊budget / 2 / page⌋ pages, or ⌊budget / 2⌋ tokens if a page is larger)";
  d.formulas = {"traffic: 2·n_kv·⌈L/p⌉·d·b + 2·n_kv·budget·d·b per step", "storage: 2·n_kv·(L + ⌈L/p⌉)·d·b"};
  d.differences = {
      "the original selects per query head (its models have no grouped queries): group: per_head",
      "the released runtime always reads the last page: force_last_page: true",
      "the original leaves two layers dense: first_dense_layers: 2",
      "under frameworks that launch operators one by one, the work is the method's; the released evaluation "
      "code computes full attention and masks it, which takes longer than full attention"};
  d.budget_rule = quest_rule;
  d.stages = make_quest;
  return d;
}

}  // namespace quest

}  // namespace kvcast::policy

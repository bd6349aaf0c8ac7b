// FreeKV (Liu et al., "FreeKV: Boosting KV Cache Retrieval for Efficient LLM Inference", 2025, arXiv 2505.13109).
//
// Idea: queries of neighbouring steps are similar, so that a step can use the pages selected with the query of the step
// before, while those for the next step are recalled concurrently with the computation. A head whose query has changed
// direction too much is corrected.
// Selection, once a sequence exceeds the budget: sink and window are always attended to. Pages start after the sink.
// The window consists of the partial page and the last recent / p full pages, one fewer if the partial page contains
// more than p / 2 tokens. Full pages before the window compete by Σ_j max(q_j·min_j, q_j·max_j), softmax over pages
// (not scaled), mean over the group; pages whose weights underflow compete by the logarithms of the weights. Sel(q) are
// the best ⌊(budget − sink − recent) / p⌋. Step i attends to Sel(q_i) if the group's mean cos(q_i, q_{i−1}) < tau
// (correction), otherwise to Sel(q_{i−1}) as selected then. The first step over budget uses its own query. In either
// case Sel(q_i) is resident when step i + 1 begins. identify: pages compares the selections themselves instead (§3.3's
// alternative): a head is corrected if fewer than a share tau of Sel(q_i) are in Sel(q_{i−1}). correct: layer: one such
// head corrects all.
// Cost with speculation: wait for the recall of the last step; cosine, and a scalar to the host; attention; then
// estimation, top-k and recall on side streams, driven by a host thread. If any head of any sequence is corrected, the
// estimation of all heads and the recall of the corrected ones precede attention. Hybrid layout: one copy of 2·p·d
// elements per page and head into a staging buffer, then a conversion; two buffers on two streams overlap copy and
// conversion, one buffer waits after every head of each sequence. nhd: 2·p copies of d elements. Filled pages are
// backed up (and transposed) on their own stream.
// recall: zero_copy: one kernel behind the top-k reads page numbers from device memory and the pages of all heads over
// the link, as engines that recall by kernels do; the host learns no page numbers, and nothing is staged or converted.
// Storage: HBM 2·n_kv·(budget + ⌈L/p⌉)·d·b + last queries + staging; pinned DRAM 2·n_kv·L·d·b.
#include <algorithm>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy_parts/host_pages.hpp"
#include "policy_parts/page_scorer.hpp"
#include "policy_parts/policy_by.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::freekv {
namespace {

struct FreekvSetting {
  std::int64_t budget = 0;  // including sink and recent
  std::int64_t sink = 0, recent = 0;
  int page = 1;
  double tau = 0;
  Summary summary = Summary::kMinMax;
  Group group = Group::kMeanWeights;
  bool speculation = true, correction = true, double_buffering = true, python = false;
  bool by_pages = false;     // heads to correct are found by their pages
  bool whole_layer = false;  // one head corrects all of the layer
  bool beside = false;       // the next step's selection does not wait for the attention
  HostLayout layout = HostLayout::kHnd;
  RecallCopies copies = RecallCopies::kCalls;
  std::int64_t chosen() const { return (budget - sink - recent) / page; }  // pages of a selection
};

// The division of a sequence of a given length into sink, pages and window.
struct PagedContext {
  std::int64_t tokens = 0, full = 0, selectable = 0;  // full pages, and those of them before the window
  PagedContext() = default;
  PagedContext(std::int64_t length, const FreekvSetting& s) : tokens(length) {
    const std::int64_t paged = std::max<std::int64_t>(0, length - s.sink);
    full = paged / s.page;
    const std::int64_t partial = paged % s.page;
    const std::int64_t window = std::max<std::int64_t>(0, s.recent / s.page - (2 * partial > s.page ? 1 : 0));
    selectable = std::max<std::int64_t>(0, full - window);
  }
};

class FreeKvHead {
 public:
  FreeKvHead(const LayerInput& layer, int kv_head, const FreekvSetting& setting)
      : layer_(layer.layer()),
        s_(setting),
        kv_head_(kv_head),
        scorer_(
            layer, kv_head, TokenList(layer.info().prompt_tokens),
            {.page = s_.page, .first = s_.sink, .summary = s_.summary, .group = s_.group, .ranks_underflow = true}) {}

  // The prompt was copied to the host layer by layer: only sink and window remain on the GPU.
  void prefill(HeadSelection& resident) {
    before_ = PagedContext(layer_.info().prompt_tokens, s_);
    all_held_ = before_.tokens <= s_.budget;
    list(before_, all_held_, {}, resident.attended);
  }

  // Selects with the step's own query; returns whether the head needs correction.
  bool select(int t) {
    scorer_.append(t);
    now_ = PagedContext(before_.tokens + 1, s_);
    if (now_.tokens <= s_.budget) return false;
    const auto n = index(now_.selectable);
    if (n > 0) scorer_.score(t, n, 1.0f, scores_);
    ranking_.select(std::span(scores_).first(n), index(s_.chosen()), chosen_);
    return !speculated_ || !s_.speculation || (s_.correction && differs(t));
  }

  void step(bool corrected, HeadSelection& out) {
    if (now_.tokens <= s_.budget) {
      list(now_, true, {}, out.attended);
    } else {
      out.counts.scored = now_.selectable;
      out.counts.corrected = corrected;
      list(now_, false, corrected ? chosen_ : last_chosen_, out.attended);
      move_pages(now_, out);
      last_chosen_ = chosen_;
      speculated_ = true, all_held_ = false;
    }
    before_ = now_;
  }

 private:
  bool differs(int t) const {
    if (s_.by_pages) {
      std::vector<std::int32_t> common;
      std::set_intersection(chosen_.begin(), chosen_.end(), last_chosen_.begin(), last_chosen_.end(),
                            std::back_inserter(common));
      return common.size() < s_.tau * chosen_.size();
    }
    const int members = layer_.info().group();
    return query_cosine(layer_, kv_head_ * members, members, t) < s_.tau;
  }

  // Moves from the pages on the GPU so far (the last selection and everything from the last window on, or all pages) to
  // this selection and this window.
  void move_pages(const PagedContext& now, HeadSelection& out) {
    fetched_.clear(), evicted_.clear();
    std::vector<std::int32_t> held = last_chosen_;
    append_range(all_held_ ? 0 : before_.selectable, now.selectable, held);
    std::set_difference(chosen_.begin(), chosen_.end(), held.begin(), held.end(), std::back_inserter(fetched_));
    std::set_difference(held.begin(), held.end(), chosen_.begin(), chosen_.end(), std::back_inserter(evicted_));
    append_page_tokens(fetched_, s_.page, s_.sink, now.tokens, out.fetched);
    append_page_tokens(evicted_, s_.page, s_.sink, now.tokens, out.evicted);
    out.counts.fetched_runs = fetched_.size();
  }

  // Lists sink, selected pages and window, or all tokens.
  void list(const PagedContext& at, bool all, std::span<const std::int32_t> pages,
            std::vector<std::int32_t>& out) const {
    append_range(0, all ? at.tokens : std::min(at.tokens, s_.sink), out);
    if (all) return;
    append_page_tokens(pages, s_.page, s_.sink, at.tokens, out);
    append_range(s_.sink + at.selectable * s_.page, at.tokens, out);
  }

  const trace::Layer& layer_;
  FreekvSetting s_;
  int kv_head_;
  PageScorer scorer_;
  Ranking ranking_;
  PagedContext before_, now_;
  bool all_held_ = false;    // the sequence has not exceeded the budget so far
  bool speculated_ = false;  // last_chosen_ is the last step's selection
  std::vector<float> scores_;
  std::vector<std::int32_t> chosen_, last_chosen_, fetched_, evicted_;
};

class FreeKvSelector final : public KvHeads<FreeKvHead, FreekvSetting> {
 public:
  FreeKvSelector(const LayerInput& layer, const FreekvSetting& setting)
      : KvHeads(layer, setting), whole_layer_(setting.whole_layer) {}
  void step(int t, LayerSelection& out) override {
    out.reset(heads_.size(), false);
    corrected_.clear();
    for (const auto& head : heads_) corrected_.push_back(head->select(t));
    const bool any = std::find(corrected_.begin(), corrected_.end(), true) != corrected_.end();
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      heads_[h]->step(corrected_[h] || (any && whole_layer_), out.heads[h]);
    }
  }

 private:
  std::vector<bool> corrected_;
  bool whole_layer_;
};

class FreeKv final : public SelectsBy<FreeKvSelector, FreekvSetting> {
 public:
  using SelectsBy::SelectsBy;

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    back_up_prompt(shape, s_.page, s_.layout, s_.python, ops);
    summarise_pages(shape, shape.prompt_tokens, s_.page, ops, ops.ready());
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    back_up_token(shape, s_.page, s_.layout, ops);
    const OpId updated = update_page_summary(shape, ops);
    if (shape.sum(&HeadCounts::scored) <= 0) {
      ops.done(attend(shape, updated, ops));
    } else if (s_.speculation) {
      speculative_step(shape, updated, ops);
    } else {
      const OpId ready = recall_now(
          shape, [](const HeadCounts&) { return true; }, updated, ops);
      ops.done(attend(shape, ready, ops));
    }
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const Dims m(*shape.model);
    const std::int64_t held = std::min(shape.tokens, s_.budget);
    std::vector<MemoryItem> items = {in_hbm(Owner::kKvCache, kv_bytes(shape, held)),
                                     in_hbm(Owner::kPageSummaries, summary_bytes(shape, shape.tokens, s_.page))};
    if (s_.speculation && compares_queries()) {
      items.push_back(in_hbm(Owner::kLastQueries, shape.batch * shape.model->layers * m.q_heads * m.row()));
    }
    if (s_.layout == HostLayout::kHnd && !by_kernel()) {
      // A buffer has space for the pages of one head of one sequence: at most those of a selection.
      const double buffer = static_cast<double>(s_.budget / s_.page) * 2 * s_.page * m.row();
      items.push_back(in_hbm(Owner::kStagingBuffers, (s_.double_buffering ? 2 : 1) * buffer, true));
    }
    items.push_back(host_copy(shape));
    return items;
  }

  Growth growth(const Lengths&) const override { return {.scored = 1.0 / s_.page, .fill = s_.budget}; }

 private:
  bool compares_queries() const { return s_.correction && !s_.by_pages; }
  bool compares_pages() const { return s_.correction && s_.by_pages; }
  bool by_kernel() const { return s_.copies == RecallCopies::kZeroCopy; }

  OpId attend(const DecodeLayer& shape, OpId after, LayerOps& ops) const {
    return ops.attention(attention_over(shape, s_.page * Dims(*shape.model).row()), {after});
  }

  void speculative_step(const DecodeLayer& shape, OpId updated, LayerOps& ops) const {
    const Dims m(*shape.model);
    OpId op = ops.join(Lane::kCompute, {updated, ops.noted("recalled a"), ops.noted("recalled b")});
    if (compares_queries()) {
      const Kernel cosine{KernelClass::kReduce, shape.batch * 2 * m.q_heads * m.row(), shape.batch * m.kv_heads,
                          6 * shape.batch * m.q_heads * m.d};
      op = ops.compute(Kind::kScore, "cosine of queries", cosine, {op});
      op = ops.host(Lane::kHost, Kind::kSync, "wait for correction flags", HostCall::kItemSync, 1, {op});
    }
    const auto corrected = [](const HeadCounts& head) { return head.corrected; };
    const bool any = std::any_of(shape.heads.begin(), shape.heads.end(), corrected);
    if (compares_pages()) op = compare_pages(shape, op, ops);
    const bool selected = any || compares_pages();  // for all heads, before attention
    if (any) op = recall_now(shape, corrected, op, ops);
    const OpId attended = attend(shape, op, ops);
    ops.done(attended);
    OpId ids = s_.beside ? op : attended;
    if (!by_kernel()) ids = ops.host(Lane::kHost, Kind::kLaunch, "hand over recall", HostCall::kTask, 1, {});
    ids = ops.join(Lane::kSelect, {s_.beside ? op : attended, ids});
    // A correction has already selected for all heads.
    if (!selected) ids = estimate(shape, Lane::kSelect, ids, ops);
    if (by_kernel()) {
      ops.note("recalled a", recall_by_kernel(shape, path(), std::not_fn(corrected), Lane::kSelect, ids, ops));
      return;
    }
    if (!any) ids = fetch_ids(chosen_ids(shape), {Lane::kSelect, Lane::kRecallThread}, ops, ids);
    const Recalled recalled = recall_pages(shape, path(), std::not_fn(corrected), ids, ops);
    // Earlier events need no waiting: an idle stream has nothing left to wait for.
    ops.note("recalled a", recalled.a);
    ops.note("recalled b", recalled.b);
  }

  // Selects for all heads and waits for the pages of those for which `which` returns true.
  OpId recall_now(const DecodeLayer& shape, const HeadTest& which, OpId after, LayerOps& ops) const {
    const OpId chosen = s_.speculation && compares_pages() ? after : estimate(shape, Lane::kCompute, after, ops);
    if (by_kernel()) return recall_by_kernel(shape, path(), which, Lane::kCompute, chosen, ops);
    const OpId ids = fetch_ids(chosen_ids(shape), {Lane::kCompute, Lane::kHost}, ops, chosen);
    const Recalled recalled = recall_pages(shape, path(), which, ids, ops);
    if (recalled.a < 0 && recalled.b < 0) return ids;
    return ops.host(Lane::kHost, Kind::kSync, "wait for recall", HostCall::kStreamSync, 1, {recalled.a, recalled.b});
  }

  // Selects for all heads, compares the pages with the last step's and gives the host a flag for each head.
  OpId compare_pages(const DecodeLayer& shape, OpId after, LayerOps& ops) const {
    const OpId chosen = estimate(shape, Lane::kCompute, after, ops);
    Kernel compare{KernelClass::kReduce, 2 * 4 * chosen_ids(shape), shape.batch * Dims(*shape.model).kv_heads};
    const OpId op = ops.compute(Kind::kScore, "comparison of pages", compare, {chosen});
    return ops.host(Lane::kHost, Kind::kSync, "wait for correction flags", HostCall::kItemSync, 1, {op});
  }

  OpId estimate(const DecodeLayer& shape, Lane lane, OpId after, LayerOps& ops) const {
    const Dims m(*shape.model);
    const double pages = shape.sum(&HeadCounts::scored);
    return score_and_rank(shape, pages * 2 * m.row(), 4 * pages * m.group * m.d, s_.chosen(), ops, after, lane,
                          by_weights(s_.group) ? Reduction::kSoftmax : Reduction::kPlain);
  }

  double chosen_ids(const DecodeLayer& shape) const {
    return static_cast<double>(shape.heads.size()) * static_cast<double>(s_.chosen());
  }

  RecallPath path() const { return {s_.layout, s_.page, s_.double_buffering, s_.copies}; }
};

Fields<FreekvSetting> freekv_fields() {
  using S = FreekvSetting;
  return Fields<S>()
      .add(budget_parameter("tokens attended to"), &S::budget)
      .add(whole("sink", 0, "tokens", "first tokens always attended to"), &S::sink)
      .add(whole("recent", 0, "tokens", "local window: the partial page and about recent / page full pages before it"),
           &S::recent)
      .add(page_parameter(32), &S::page)
      .add(real("tau", 0.8, "heads are corrected if this similarity with the last step (identify) is not reached", -1),
           &S::tau)
      .add(flag("speculation", true,
                "attend to the pages of the last step's query; false: select and recall before attention"),
           &S::speculation)
      .add(flag("correction", true, "correct heads whose query has changed direction (tau)"), &S::correction)
      .add(choice("identify", {"queries", "pages"},
                  "heads to correct: by cosines of queries, or by the share of pages selected again"),
           &S::by_pages)
      .add(choice("correct", {"head", "layer"}, "what such a head corrects: itself, or the whole layer"),
           &S::whole_layer)
      .add(choice("background", {"after", "beside"},
                  "the next step's selection starts after the layer's attention, or beside it"),
           &S::beside)
      .add(choice("layout", {"hybrid", "nhd"},
                  "layout of host pages: head by head, converted on arrival (hybrid), or token by token (nhd)"),
           &S::layout, {HostLayout::kHnd, HostLayout::kNhd})
      .add(recall_parameter())
      .add(flag("double_buffering", true, "two staging buffers on two streams (hybrid layout)"), &S::double_buffering)
      .add(choice("summary", {"min_max", "cuboid_mean"},
                  "summary of a page: minimum and maximum, or centre ± mean distance"),
           &S::summary, {Summary::kMinMax, Summary::kCuboidMean})
      .add(group_parameter({"mean_weights", "sum_weights", "max_weights", "mean_scores", "sum_scores", "max_scores",
                            "mean_query", "max_query"}),
           &S::group)
      .add(choice("budget_convention", {"attended", "selected"},
                  "quantity that the budget counts: with sink and recent (attended) or without (selected)"))
      .add(runtime_parameter(), &S::python);
}

FreekvSetting read_freekv(const ParameterValues& values) {
  FreekvSetting s = freekv_fields().read(values);
  if (values.text("budget_convention") == "selected") s.budget += s.sink + s.recent;
  s.copies = parse_recall(values.text("recall"));
  return s;
}

std::unique_ptr<Policy> make_freekv(const ParameterValues& values) {
  const FreekvSetting s = read_freekv(values);
  if (s.chosen() < 1) {
    throw UserError(values.where("budget"),
                    fmt::format("budget ({} tokens) is smaller than sink ({}), recent ({}) and one page ({})", s.budget,
                                s.sink, s.recent, s.page));
  }
  return std::make_unique<FreeKv>(s);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "freekv";
  d.sentence =
      "Keeps pages in host memory and attends to those selected by the last step's query, recalled concurrently.";
  d.category = Category::kHostRetrieval;
  d.paper = "Liu et al., FreeKV, 2025 (arXiv 2505.13109)";
  d.parameters = freekv_fields().parameters();
  d.recall_page = [](const ParameterValues& values) { return values.integer("page"); };
  d.budget_convention =
      "sink, window and selected pages (up to one page more while the last one is not full); selected: the "
      "selected pages only";
  d.formulas = {
      "traffic: 2·n_kv·budget·d·b per step; in addition 2·n_kv·⌈L/p⌉·d·b of summaries and 2·p·d·b per missing page and "
      "KV head from the host",
      "storage: HBM 2·n_kv·(budget + ⌈L/p⌉)·d·b, pinned DRAM 2·n_kv·L·d·b"};
  d.differences = {
      "sink and recent are 0 by default; the paper uses 128 or 512 of each",
      "selection follows the paper and the accuracy code; the released runtime has ArkVale's digests and mean raw "
      "scores: summary: cuboid_mean, group: mean_scores",
      "the softmax leaves out the sink, as in the accuracy code: heads that mostly attend to the sink weigh more in "
      "the mean. On synthetic traces a sink lowers scores (RULER at 32K by 10 points), but not with group: mean_scores",
      "double buffering alternates by KV head, with the pages of all sequences together; the released runtime "
      "alternates by sequence and KV head (1 % of a step at batch 4), the paper by page",
      "selection and recall for the next step start after the layer's attention, as in the measured steps; in the "
      "paper and the released runtime they overlap with it: background: beside",
      "the first layer is compressed by default; the paper leaves it uncompressed: first_dense_layers: 1"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) {
    const FreekvSetting s = read_freekv(values);
    BudgetRule rule{.tokens = s.budget, .extra = s.page - 1, .slack = 4 * s.page};
    if (values.text("budget_convention") == "selected") rule.counts = BudgetRule::Counts::kSelected;
    return rule;
  };
  d.make = make_freekv;
  return d;
}

}  // namespace kvcast::policy::freekv

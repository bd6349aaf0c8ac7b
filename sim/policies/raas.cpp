// RaaS (Hu et al., "Efficient Long-Decoding Inference with Reasoning-Aware Attention Sparsity", 2025, arXiv
// 2502.11147), as FreeKV's authors implemented it for comparison (arXiv 2505.13109).
//
// Idea: a token that no recent step attended to will not be attended to again: evict the page whose last use is oldest.
// Selection, per KV head: the first `sink` and the last `recent` tokens stay, and between them ⌊budget/page⌋ pages. Of
// a longer prompt the tokens with the largest (mean of the group's last queries)·k fill the pages. Every page-th step
// the oldest `page` tokens of the recent part become a page, in a free slot or in that of the least recently used page.
// A step scores pages by their bounds, like Quest, softmax over pages (unscaled), mean over the group (for pages of one
// token: its weight in the step's attention). Pages above `alpha` are marked as used, once the cache can be full. The
// step attends to everything held.
// Cost: attention over sink + budget + recent tokens; bounds of all pages read (2·n_kv·pages·d·b) in addition; each new
// token is written once more, into its page.
// Storage: 2·n_kv·(sink + budget + recent + page)·d·b, bounds, time stamps.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/index.hpp"
#include "policy/costs.hpp"
#include "policy/pages.hpp"
#include "policy/weights.hpp"
#include "policy_parts/policy_by.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/shared_parameters.hpp"

namespace kvcast::policy::raas {
namespace {

struct RaasSetting {
  std::int64_t sink = 0, recent = 0, pages = 0, budget = 0;
  int page = 0;
  double alpha = 0;
  Group group = Group::kMeanWeights;
};

struct CachedPage {
  std::vector<std::int32_t> tokens;  // ascending
  std::vector<float> upper, lower;
  std::int64_t used = 0;  // context length at its last use
};

class RaasSelector final : public Selector {
 public:
  RaasSelector(const LayerInput& layer, const RaasSetting& setting) : layer_(layer.layer()), s_(setting) {
    const std::int64_t middle = layer_.info().prompt_tokens - s_.sink - s_.recent;
    prompt_pages_ = std::max<std::int64_t>(0, middle / s_.page);
    if (prompt_pages_ > s_.pages) {
      require_prompt_queries(layer_.info(), layer_.info().prompt_tokens - 1, "raas ranks the prompt by its last query");
    }
  }

  void prefill(LayerSelection& resident) override {
    const trace::TraceInfo& info = layer_.info();
    heads_.assign(index(info.n_kv_heads), {});
    next_ = s_.sink + prompt_pages_ * s_.page;
    resident.reset(heads_.size(), false);
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      std::vector<std::int32_t> kept(index(prompt_pages_ * s_.page));
      if (prompt_pages_ > s_.pages) {
        best_of_prompt(static_cast<int>(h), kept.size(), kept);
      } else {
        std::iota(kept.begin(), kept.end(), 0);
      }
      for (std::size_t i = 0; i < kept.size(); i += index(s_.page)) {
        std::vector<std::int32_t> tokens(kept.begin() + i, kept.begin() + i + s_.page);
        for (std::int32_t& token : tokens) token += static_cast<std::int32_t>(s_.sink);
        heads_[h].push_back(make_page(static_cast<int>(h), std::move(tokens), info.prompt_tokens));
      }
      fill(h, info.prompt_tokens, resident.heads[h]);
    }
  }

  void step(int t, LayerSelection& out) override {
    const std::int64_t tokens = layer_.info().prompt_tokens + t + 1;
    out.reset(heads_.size(), false);
    const bool turn = tokens - next_ >= s_.recent + s_.page;
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      if (turn) take_page(static_cast<int>(h), tokens, out.heads[h]);
    }
    if (turn) next_ += s_.page;
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      fill(h, tokens, out.heads[h]);
      // The cache cannot be full earlier: until then attention is dense and pages are not scored.
      if (tokens < s_.sink + s_.recent + s_.budget) continue;
      mark_used(static_cast<int>(h), t, tokens, out.heads[h].attended);
      out.heads[h].counts.scored = heads_[h].size();
    }
  }

 private:
  // Indices, from the end of the sink, of the best tokens in the prompt's complete pages, packed in position order.
  void best_of_prompt(int kv_head, std::size_t n, std::vector<std::int32_t>& out) const {
    const trace::TraceInfo& info = layer_.info();
    std::vector<float> query(index(info.head_dim)), scores(n);
    std::vector<const float*> last;
    for (int g = 0; g < info.group(); ++g) last.push_back(layer_.window_queries(kv_head * info.group() + g, 1).row(0));
    combine_queries(Group::kMeanQuery, last, query.size(), query);
    const MatrixView keys = layer_.keys(kv_head);
    for (std::size_t i = 0; i < n; ++i) {
      scores[i] = dot(query.data(), keys.row(index(s_.sink) + i), query.size());
    }
    Ranking ranking;
    ranking.select(scores, index(s_.pages * s_.page), out);
  }

  CachedPage make_page(int kv_head, std::vector<std::int32_t> tokens, std::int64_t now) const {
    const MatrixView keys = layer_.keys(kv_head);
    CachedPage page{std::move(tokens), {}, {}, now};
    for (const std::int32_t i : page.tokens) {
      const float* const key = keys.row(index(i));
      if (page.upper.empty()) page.upper = page.lower = {key, key + keys.cols};
      for (std::size_t j = 0; j < keys.cols; ++j) {
        page.upper[j] = std::max(page.upper[j], key[j]);
        page.lower[j] = std::min(page.lower[j], key[j]);
      }
    }
    return page;
  }

  void take_page(int kv_head, std::int64_t now, HeadSelection& out) {
    std::vector<CachedPage>& pages = heads_[index(kv_head)];
    std::vector<std::int32_t> tokens;
    append_range(next_, next_ + s_.page, tokens);
    CachedPage page = make_page(kv_head, std::move(tokens), now);
    if (static_cast<std::int64_t>(pages.size()) < s_.pages) {
      pages.push_back(std::move(page));
      return;
    }
    const auto stalest = std::min_element(pages.begin(), pages.end(),
                                          [](const CachedPage& a, const CachedPage& b) { return a.used < b.used; });
    out.evicted = stalest->tokens;
    *stalest = std::move(page);
  }

  void mark_used(int kv_head, int t, std::int64_t now, const Held& held) {
    std::vector<CachedPage>& pages = heads_[index(kv_head)];
    std::vector<float> weights(pages.size());
    if (s_.page == 1) {
      weigh_tokens(kv_head, t, held, weights);
    } else {
      weigh_pages(kv_head, t, weights);
    }
    for (std::size_t i = 0; i < pages.size(); ++i) {
      if (weights[i] > s_.alpha) pages[i].used = now;
    }
  }

  // Pages of one token have its weight in this step's attention, which includes sink and recent tokens.
  void weigh_tokens(int kv_head, int t, const Held& held, std::span<float> out) const {
    const trace::TraceInfo& info = layer_.info();
    std::vector<std::vector<float>> scores(index(info.group()));
    std::vector<std::span<float>> rows;
    for (std::size_t g = 0; g < scores.size(); ++g) {
      const float* const all = layer_.decode_scores(kv_head * info.group() + static_cast<int>(g)).row(index(t));
      for (const std::int32_t position : held) scores[g].push_back(all[position]);
      rows.emplace_back(scores[g]);
    }
    std::vector<float> weights(held.size());
    reduce_group(s_.group, rows, 1 / std::sqrt(static_cast<float>(info.head_dim)), weights);
    const std::vector<CachedPage>& pages = heads_[index(kv_head)];
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const auto at = std::lower_bound(held.begin(), held.end(), pages[i].tokens[0]);
      out[i] = weights[index(at - held.begin())];
    }
  }

  // Other pages have their share of the softmax over pages of the bounds' scores.
  void weigh_pages(int kv_head, int t, std::span<float> out) const {
    const std::vector<CachedPage>& pages = heads_[index(kv_head)];
    const int members = layer_.info().group();
    std::vector<std::vector<float>> scores(index(members), std::vector<float>(pages.size()));
    std::vector<std::span<float>> rows;
    for (int g = 0; g < members; ++g) {
      const float* const q = layer_.decode_query(kv_head * members + g, t);
      std::vector<float>& row = scores[index(g)];
      for (std::size_t i = 0; i < pages.size(); ++i) {
        for (std::size_t j = 0; j < pages[i].upper.size(); ++j) {
          row[i] += std::max(q[j] * pages[i].upper[j], q[j] * pages[i].lower[j]);
        }
      }
      rows.emplace_back(row);
    }
    reduce_group(s_.group, rows, 1.0f, out);
  }

  void fill(std::size_t head, std::int64_t tokens, HeadSelection& out) const {
    append_range(0, std::min(s_.sink, tokens), out.attended);
    const auto middle = static_cast<std::ptrdiff_t>(out.attended.size());
    for (const CachedPage& page : heads_[head]) {
      out.attended.insert(out.attended.end(), page.tokens.begin(), page.tokens.end());
    }
    std::sort(out.attended.begin() + middle, out.attended.end());
    append_range(next_, tokens, out.attended);
  }

  const trace::Layer& layer_;
  RaasSetting s_;
  std::int64_t prompt_pages_ = 0, next_ = 0;  // next_: first token that belongs to no page yet
  std::vector<std::vector<CachedPage>> heads_;
};

class Raas final : public SelectsBy<RaasSelector, RaasSetting> {
 public:
  using SelectsBy::SelectsBy;

  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    summarise_pages(shape, std::min(shape.prompt_tokens, s_.pages * s_.page), s_.page, ops, ops.ready());
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const Dims m(*shape.model);
    ops.done(ops.attention(attention_over(shape, 0), {ops.ready()}));
    const double pages = shape.sum(&HeadCounts::scored);
    if (pages <= 0) return;
    const Kernel mark{KernelClass::kScore, pages * (2 * m.row() + kIndexBytes), pages * kIndexBytes,
                      4 * pages * m.group * m.d};
    ops.compute(Kind::kScore, "mark used pages", mark, {ops.ready()});
    const double moved =
        2 * static_cast<double>(shape.heads.size()) * m.row();  // every token is moved into a page once
    ops.compute(Kind::kIndex, "fill page", Kernel{KernelClass::kElementwise, moved, moved}, {ops.ready()});
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    const std::int64_t held = std::min(shape.tokens, s_.sink + s_.recent + (s_.pages + 1) * s_.page);
    const double pages = s_.pages;
    const double stamps = shape.batch * shape.model->layers * Dims(*shape.model).kv_heads * pages;
    return {in_hbm(Owner::kKvCache, kv_bytes(shape, held)),
            in_hbm(Owner::kPageSummaries, kv_bytes(shape, pages) + stamps * kIndexBytes)};
  }

  Growth growth(const Lengths&) const override { return {.fill = s_.budget}; }
};

Fields<RaasSetting> raas_fields() {
  using S = RaasSetting;
  return Fields<S>()
      .add(budget_parameter("tokens in pages per KV head, in addition to sink and recent"), &S::budget)
      .add(page_parameter(32), &S::page)
      .add(whole("sink", 0, "tokens", "first tokens kept"), &S::sink)
      .add(whole("recent", 0, "tokens",
                 "last tokens kept, including the current one; up to a page more until they fill one"),
           &S::recent)
      .add(real("alpha", 1e-4,
                "share of the pages' softmax (page: 1: of the attention) above which a page counts as used"),
           &S::alpha)
      .add(group_parameter({"mean_weights", "max_weights", "sum_weights"}), &S::group);
}

}  // namespace

Descriptor describe() {
  Descriptor d;
  d.name = "raas";
  d.sentence = "Keeps pages that recent steps attended to and evicts the least recently used one.";
  d.category = Category::kDrop;
  d.paper = "Hu et al., RaaS, 2025 (arXiv 2502.11147)";
  d.parameters = raas_fields().parameters();
  d.budget_convention = "tokens in pages, in addition to sink and recent (up to recent + page − 1 tokens)";
  d.formulas = {"traffic: 2·n_kv·(sink + budget + recent)·d·b per step and 2·n_kv·(budget/page)·d·b of bounds",
                "storage: 2·n_kv·(sink + budget + recent + page)·d·b, 2·n_kv·(budget/page)·d·b, 4·n_kv·budget/page"};
  d.differences = {
      "as in FreeKV's comparison; the paper itself keeps the whole prompt and limits only generated tokens",
      "prompt tokens are packed into pages in position order, and bounds are those of the packed tokens; FreeKV's code "
      "uses the bounds of the first tokens instead",
      "FreeKV's paper reduces groups by the maximum (group: max_weights), its code by the mean",
      "the prompt is read at once, and its pages are selected at its end"};
  d.budget_rule = [](const ParameterValues& values, const Lengths&) {
    const RaasSetting s = raas_fields().read(values);
    return BudgetRule{.tokens = s.budget,
                      .extra = s.sink + s.recent + s.page - 1,
                      .slack = BudgetRule::kAny,
                      .counts = BudgetRule::Counts::kRetained};
  };
  d.make = [](const ParameterValues& values) -> std::unique_ptr<Policy> {
    RaasSetting setting = raas_fields().read(values);
    setting.pages = setting.budget / setting.page;
    check_page(values.where("budget"), setting.budget, setting.page);
    return std::make_unique<Raas>(setting);
  };
  return d;
}

}  // namespace kvcast::policy::raas

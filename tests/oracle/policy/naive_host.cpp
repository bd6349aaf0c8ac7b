// Policies that recall pages from host memory.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "naive.hpp"
#include "naive_parts.hpp"

namespace kvcast::tests::naive {
namespace {

// ArkVale's resident pages of one set of heads, step by step.
class ArkValePages {
 public:
  ArkValePages(const trace::Layer& layer, int first, int heads, const ArkVale& s)
      : layer_(layer),
        first_(first),
        heads_(heads),
        s_(s),
        slots_(s.budget / s.page),
        sink_((s.sink + s.page - 1) / s.page),
        window_(std::max<std::int64_t>(1, (s.recent + s.page - 1) / s.page)) {}

  Positions prompt() {
    const std::int64_t tokens = layer_.info().prompt_tokens, n = (tokens + s_.page - 1) / s_.page;
    for (std::int64_t p = 0; p < n; ++p) held_.insert(p);
    if (n > slots_ && s_.budget < tokens) settle(tokens, -1, slots_ - sink_ - window_);
    return tokens_of(tokens);
  }

  Positions step(int t) {
    const std::int64_t tokens = layer_.info().prompt_tokens + t + 1, n = (tokens + s_.page - 1) / s_.page;
    held_.insert(n - 1);
    if (n > slots_ && s_.budget < tokens) {
      settle(tokens, t, std::clamp<std::int64_t>(s_.topk - sink_ - (window_ - 1), 0, slots_ - sink_ - window_));
    }
    return tokens_of(tokens);
  }

 private:
  // The k best ordinary pages become resident; of the other resident pages the best stay while there is room.
  void settle(std::int64_t tokens, int step, std::int64_t k) {
    const std::int64_t n = (tokens + s_.page - 1) / s_.page, end = n - window_;
    Matrix parts;
    const auto pages = paged(range(0, end * s_.page), s_.page);
    for (int h = first_; h < first_ + heads_; ++h) {
      parts.push_back(agree(queries(layer_, h, step), s_.group, root(layer_),
                            [&](const Vector& q) { return score_pages(layer_, h, pages, q, s_.cuboid); }));
    }
    Vector scores;
    for (std::int64_t p = 0; p < end; ++p) {
      Vector column;
      for (const Vector& part : parts) column.push_back(part[at(p)]);
      scores.push_back(p < sink_ ? -std::numeric_limits<double>::infinity() : reduce(s_.group, column));
    }
    std::set<std::int64_t> next;
    for (const auto p : best(scores, std::min(k, end - sink_))) next.insert(p);
    Vector left(at(end), -std::numeric_limits<double>::infinity());
    std::int64_t others = 0;
    for (const auto p : held_) {
      if (p >= sink_ && p < end && !next.contains(p)) left[at(p)] = scores[at(p)], ++others;
    }
    const std::int64_t room = slots_ - sink_ - window_ - static_cast<std::int64_t>(next.size());
    if (step >= 0) {  // after the prompt, the k best fill all slots
      for (const auto p : best(left, std::min(room, others))) next.insert(p);
    }
    for (std::int64_t p = 0; p < sink_; ++p) next.insert(p);
    for (std::int64_t p = end; p < n; ++p) next.insert(p);
    held_ = next;
  }

  Positions tokens_of(std::int64_t tokens) const {
    Positions out;
    for (const auto p : held_) add(out, range(p * s_.page, std::min(tokens, (p + 1) * s_.page)));
    return out;
  }

  const trace::Layer& layer_;
  int first_, heads_;
  ArkVale s_;
  std::int64_t slots_, sink_, window_;
  std::set<std::int64_t> held_;
};

Positions freekv_tokens(const FreeKv& s, std::int64_t tokens, std::int64_t selectable, const Positions& pages) {
  Positions out = range(0, std::min(s.sink, tokens));
  for (const auto p : pages) add(out, range(s.sink + p * s.page, s.sink + (p + 1) * s.page));
  add(out, range(s.sink + selectable * s.page, tokens));
  return out;
}

std::int64_t freekv_selectable(const FreeKv& s, std::int64_t tokens) {
  const std::int64_t paged_tokens = std::max<std::int64_t>(0, tokens - s.sink);
  const double partial = static_cast<double>(paged_tokens % s.page);
  std::int64_t window = s.recent / s.page;
  if (partial > static_cast<double>(s.page) / 2) --window;
  return std::max<std::int64_t>(0, paged_tokens / s.page - std::max<std::int64_t>(0, window));
}

}  // namespace

Steps arkvale(const trace::Layer& layer, const ArkVale& setting) {
  const int heads = layer.info().n_kv_heads, together = setting.layer ? heads : 1;
  std::vector<ArkValePages> sets;
  for (int h = 0; h < heads; h += together) sets.emplace_back(layer, h, together, setting);
  const auto spread = [&](const std::function<Positions(ArkValePages&)>& each) {
    Heads out;
    for (ArkValePages& set : sets) out.insert(out.end(), at(together), each(set));
    return out;
  };
  const Heads resident = spread([](ArkValePages& set) { return set.prompt(); });
  return by_step(layer, resident, [&](int t) { return spread([t](ArkValePages& set) { return set.step(t); }); });
}

Steps freekv(const trace::Layer& layer, const FreeKv& s) {
  const auto& info = layer.info();
  const auto chosen_at = [&](int head, int t) {
    const auto pages = paged(range(s.sink, s.sink + freekv_selectable(s, info.prompt_tokens + t + 1) * s.page), s.page);
    if (pages.empty()) return Positions{};
    const Vector scores = agree(queries(layer, head, t), s.group, 1,
                                [&](const Vector& q) { return score_pages(layer, head, pages, q, s.cuboid); });
    return best(scores, (s.budget - s.sink - s.recent) / s.page);
  };
  Heads resident;
  for (int h = 0; h < info.n_kv_heads; ++h) {
    resident.push_back(info.prompt_tokens <= s.budget
                           ? range(0, info.prompt_tokens)
                           : freekv_tokens(s, info.prompt_tokens, freekv_selectable(s, info.prompt_tokens), {}));
  }
  return by_step(layer, resident, [&](int t) {
    const std::int64_t tokens = info.prompt_tokens + t + 1;
    const bool first = t == 0 || tokens - 1 <= s.budget;
    const auto corrected = [&](int h) {
      bool own = first || !s.speculation;
      if (!own && s.correction && s.pages) {
        const Positions now = chosen_at(h, t), last = chosen_at(h, t - 1);
        std::int64_t common = 0;
        for (const auto p : now) common += std::count(last.begin(), last.end(), p);
        own = static_cast<double>(common) / static_cast<double>(now.size()) < s.tau;
      } else if (!own && s.correction) {
        double sum = 0;
        const Matrix now = queries(layer, h, t), last = queries(layer, h, t - 1);
        for (std::size_t g = 0; g < now.size(); ++g) {
          const double norms = std::sqrt(product(now[g], now[g]) * product(last[g], last[g]));
          sum += norms > 0 ? product(now[g], last[g]) / norms : 0;
        }
        own = sum / static_cast<double>(now.size()) < s.tau;
      }
      return own;
    };
    bool any = false;
    for (int h = 0; h < info.n_kv_heads && tokens > s.budget; ++h) any = any || corrected(h);
    Heads out;
    for (int h = 0; h < info.n_kv_heads; ++h) {
      if (tokens <= s.budget) {
        out.push_back(range(0, tokens));
        continue;
      }
      const bool own = s.layer ? any : corrected(h);
      out.push_back(freekv_tokens(s, tokens, freekv_selectable(s, tokens), chosen_at(h, own ? t : t - 1)));
    }
    return out;
  });
}

}  // namespace kvcast::tests::naive

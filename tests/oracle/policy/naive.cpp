// Policies that keep all their data on the GPU.
#include "naive.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "naive_parts.hpp"

namespace kvcast::tests::naive {
namespace {

Heads kept_by_window(const trace::Layer& layer, std::int64_t budget, const Window& w) {
  const auto& info = layer.info();
  const std::int64_t prompt = info.prompt_tokens, scored = prompt - w.window;
  const bool per_head = w.group == "per_head";
  Heads out;
  if (prompt <= budget) return Heads(at(per_head ? info.n_q_heads : info.n_kv_heads), range(0, prompt));
  Matrix sums;  // by query head
  for (int h = 0; h < info.n_q_heads; ++h) {
    Vector& sum = sums.emplace_back(at(scored), 0.0);
    for (std::int64_t r = 0; r < w.window; ++r) {
      const std::int64_t position = prompt - w.window + r;
      const Vector q = row(layer.queries(h).row(at(info.prompt_queries() - w.window + r)), info.head_dim);
      Vector scores;
      for (std::int64_t i = 0; i <= position; ++i) scores.push_back(product(q, key(layer, h / info.group(), i)));
      const Vector weights = softmax_of(scores, root(layer));
      for (std::int64_t i = 0; i < scored; ++i) sum[at(i)] += weights[at(i)];
    }
  }
  const int members = per_head ? 1 : info.group();
  for (int h = 0; h < info.n_q_heads; h += members) {
    Vector reduced;
    for (std::int64_t i = 0; i < scored; ++i) {
      Vector column;
      for (int g = 0; g < members; ++g) column.push_back(sums[at(h + g)][at(i)]);
      reduced.push_back(reduce(w.group, column));
    }
    Vector pooled;
    for (std::int64_t i = 0; i < scored; ++i) {
      double largest = -std::numeric_limits<double>::infinity(), total = 0;
      for (std::int64_t j = i - w.kernel / 2; j <= i + w.kernel / 2; ++j) {
        if (j < 0 || j >= scored) continue;
        largest = std::max(largest, reduced[at(j)]), total += reduced[at(j)];
      }
      pooled.push_back(w.pool == "max" ? largest : total / w.kernel);
    }
    Positions keep = best(pooled, budget - w.window);
    add(keep, range(scored, prompt));
    out.push_back(keep);
  }
  return out;
}

Positions with_generated(Positions kept, const trace::Layer& layer, int step) {
  add(kept, range(layer.info().prompt_tokens, layer.info().prompt_tokens + step + 1));
  return kept;
}

Positions hsa_tokens(const trace::Layer& layer, int head, int step, const Positions& list, const Hsa& s) {
  const auto& info = layer.info();
  const std::int64_t d = info.head_dim;
  if (s.budget >= s.length || s.budget >= info.prompt_tokens + step + 1) return list;
  const double up = std::ceil(std::sqrt(s.ratio));
  const auto page = static_cast<std::int64_t>(up <= s.ratio ? up : 1);
  const double exact = static_cast<double>(d * page) / s.ratio;
  const auto k1 = std::clamp<std::int64_t>(static_cast<std::int64_t>(s.nearest ? std::nearbyint(exact) : exact), 1, d);
  const Matrix group = queries(layer, head, step);
  Vector magnitude(at(d)), total(at(d));
  for (const Vector& q : group) {
    for (std::int64_t j = 0; j < d; ++j) magnitude[at(j)] += std::abs(q[at(j)]), total[at(j)] += q[at(j)];
  }
  const Positions dims = best(magnitude, k1);
  Matrix by_head;  // a value a token
  for (const Vector& q : group) {
    double all = 0, chosen = 0;
    for (const double x : q) all += std::abs(x);
    for (const auto j : dims) chosen += std::abs(q[at(j)]);
    const double share = s.correction && all > 0 && chosen > 0 ? chosen / all : 1;
    Vector scores;
    for (const Positions& p : paged(list, page)) {
      double score = 0;
      for (const auto j : dims) {
        Vector x;
        for (const auto i : p) x.push_back(key(layer, head, i)[at(j)]);
        const bool largest = total[at(j)] > 0 || (total[at(j)] == 0 && s.zero_is_max);
        score += q[at(j)] * (largest ? *std::max_element(x.begin(), x.end()) : *std::min_element(x.begin(), x.end()));
      }
      scores.insert(scores.end(), p.size(), score / std::sqrt(static_cast<double>(d) * share));
    }
    by_head.push_back(s.group.ends_with("weights") ? softmax_of(scores, 1) : scores);
  }
  Vector merged;
  for (std::size_t i = 0; i < list.size(); ++i) {
    Vector column;
    for (const Vector& r : by_head) column.push_back(r[i]);
    merged.push_back(reduce(s.group, column));
  }
  Positions out;
  for (const auto i : best(merged, s.budget / 2)) out.push_back(list[at(i)]);
  return out;
}

Heads all_prompt(const trace::Layer& layer, bool per_query) {
  const auto& info = layer.info();
  return Heads(at(per_query ? info.n_q_heads : info.n_kv_heads), range(0, info.prompt_tokens));
}

}  // namespace

Steps full(const trace::Layer& layer) {
  return by_step(layer, all_prompt(layer, false), [&](int t) {
    return Heads(at(layer.info().n_kv_heads), with_generated(range(0, layer.info().prompt_tokens), layer, t));
  });
}

Steps exact_topk(const trace::Layer& layer, std::int64_t budget, const std::string& group, const Always& always) {
  const auto& info = layer.info();
  const bool per_head = group == "per_head";
  return by_step(layer, all_prompt(layer, per_head), [&](int t) {
    Heads out;
    for (int h = 0; h < info.n_kv_heads; ++h) {
      const auto score = [&](const Vector& q) {
        Vector x;
        for (std::int64_t i = 0; i <= info.prompt_tokens + t; ++i) x.push_back(product(q, key(layer, h, i)));
        return x;
      };
      const auto choose = [&](const Vector& scores) {
        const auto tokens = static_cast<std::int64_t>(scores.size());
        if (budget >= tokens) return range(0, tokens);
        Positions chosen, others;
        Vector left;
        for (std::int64_t i = 0; i < tokens; ++i) {
          (always.holds(i, tokens) ? chosen : others).push_back(static_cast<std::int32_t>(i));
          if (!always.holds(i, tokens)) left.push_back(scores[at(i)]);
        }
        const std::int64_t rest = budget - static_cast<std::int64_t>(chosen.size());
        for (const auto i : best(left, rest)) chosen.push_back(others[at(i)]);
        std::sort(chosen.begin(), chosen.end());
        return chosen;
      };
      const Matrix qs = queries(layer, h, t);
      if (per_head) {
        for (const Vector& q : qs) out.push_back(choose(score(q)));
      } else {
        out.push_back(choose(agree(qs, group, root(layer), score)));
      }
    }
    return out;
  });
}

Steps streaming_llm(const trace::Layer& layer, std::int64_t sink, std::int64_t recent) {
  const auto& info = layer.info();
  const auto kept = [&](std::int64_t tokens) {
    Positions out;
    for (std::int64_t i = 0; i < tokens; ++i) {
      if (i < sink || i >= tokens - recent) out.push_back(static_cast<std::int32_t>(i));
    }
    return Heads(at(info.n_kv_heads), out);
  };
  return by_step(layer, kept(info.prompt_tokens), [&](int t) { return kept(info.prompt_tokens + t + 1); });
}

Steps snapkv(const trace::Layer& layer, std::int64_t budget, const Window& window) {
  const Heads kept = kept_by_window(layer, budget, window);
  return by_step(layer, kept, [&](int t) {
    Heads out;
    for (const Positions& k : kept) out.push_back(with_generated(k, layer, t));
    return out;
  });
}

Steps quest(const trace::Layer& layer, std::int64_t budget, std::int64_t page, std::int64_t pages,
            const std::string& group, const Always& always) {
  const auto& info = layer.info();
  const bool per_head = group == "per_head";
  return by_step(layer, all_prompt(layer, per_head), [&](int t) {
    const std::int64_t tokens = info.prompt_tokens + t + 1;
    Heads out;
    for (int h = 0; h < info.n_kv_heads; ++h) {
      const std::vector<Positions> all = paged(range(0, tokens), page);
      const auto choose = [&](const Vector& scores) {
        if (budget >= tokens) return range(0, tokens);
        Positions chosen, others, tokens_of;
        Vector left;
        for (std::size_t p = 0; p < all.size(); ++p) {
          const bool stays = std::any_of(all[p].begin(), all[p].end(), [&](auto i) { return always.holds(i, tokens); });
          (stays ? chosen : others).push_back(static_cast<std::int32_t>(p));
          if (!stays) left.push_back(scores[p]);
        }
        const std::int64_t rest = pages - static_cast<std::int64_t>(chosen.size());
        for (const auto i : best(left, rest)) chosen.push_back(others[at(i)]);
        std::sort(chosen.begin(), chosen.end());
        for (const auto p : chosen) add(tokens_of, all[at(p)]);
        return tokens_of;
      };
      const auto score = [&](const Vector& q) { return score_pages(layer, h, all, q, false); };
      const Matrix qs = queries(layer, h, t);
      if (per_head) {
        for (const Vector& q : qs) out.push_back(choose(score(q)));
      } else {
        out.push_back(choose(agree(qs, group, root(layer), score)));
      }
    }
    return out;
  });
}

Steps quest_tokens(const trace::Layer& layer, std::int64_t budget, std::int64_t page, std::int64_t tokens) {
  const auto& info = layer.info();
  return by_step(layer, all_prompt(layer, false), [&](int t) {
    const std::int64_t visible = info.prompt_tokens + t + 1;
    Heads out;
    for (int h = 0; h < info.n_kv_heads; ++h) {
      const std::vector<Positions> all = paged(range(0, visible), page);
      const auto score = [&](const Vector& q) { return score_pages(layer, h, all, q, false); };
      const Vector of_pages = agree(queries(layer, h, t), "sum_scores", root(layer), score);
      Vector of_tokens;
      for (std::int64_t i = 0; i < visible; ++i) of_tokens.push_back(of_pages[at(i / page)]);
      out.push_back(budget >= visible ? range(0, visible) : best(of_tokens, tokens));
    }
    return out;
  });
}

Steps hsa(const trace::Layer& layer, const Hsa& setting) {
  return by_step(layer, all_prompt(layer, false), [&](int t) {
    Heads out;
    const Positions list = with_generated(range(0, layer.info().prompt_tokens), layer, t);
    for (int h = 0; h < layer.info().n_kv_heads; ++h) out.push_back(hsa_tokens(layer, h, t, list, setting));
    return out;
  });
}

Steps rocketkv(const trace::Layer& layer, std::int64_t budget, std::int64_t max_new, double split, const Window& window,
               bool multi_turn) {
  const auto& info = layer.info();
  const std::int64_t bound = info.prompt_tokens + info.decode_steps;
  const double c = std::max(1.0, static_cast<double>(bound) / static_cast<double>(budget));
  const double r = split >= 0 ? split : std::min(0.2 + 0.06 * std::log2(c), 0.8);
  auto n = static_cast<std::int64_t>(static_cast<double>(bound) / std::pow(c, r));
  n = std::max(n, std::min(2 * max_new, bound));
  Hsa second;
  second.budget = budget;
  second.length = n;
  second.ratio = std::max(1.0, static_cast<double>(n) / static_cast<double>(budget));
  const std::int64_t stay = budget >= bound ? bound : n - max_new;
  const Heads kept = kept_by_window(layer, stay, window);
  return by_step(layer, multi_turn ? all_prompt(layer, false) : kept, [&](int t) {
    Heads out;
    for (int h = 0; h < info.n_kv_heads; ++h) {
      out.push_back(hsa_tokens(layer, h, t, with_generated(kept[at(h)], layer, t), second));
    }
    return out;
  });
}

}  // namespace kvcast::tests::naive

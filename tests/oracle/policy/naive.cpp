#include "naive.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

namespace kvcast::tests::naive {
namespace {

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

Vector row(const float* p, std::int64_t d) { return Vector(p, p + d); }

double product(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Vector key(const trace::Layer& layer, int head, std::int64_t position) {
  return row(layer.keys(head).row(at(position)), layer.info().head_dim);
}

// Queries of a KV head's group at a decode step, or at the last prompt position (step −1).
Matrix queries(const trace::Layer& layer, int head, int step) {
  const auto& info = layer.info();
  Matrix out;
  for (int g = 0; g < info.group(); ++g) {
    const MatrixView all = layer.queries(head * info.group() + g);
    out.push_back(row(all.row(at(info.prompt_queries() + step)), info.head_dim));
  }
  return out;
}

Positions best(const Vector& scores, std::int64_t k) {
  Positions order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return scores[at(a)] > scores[at(b)]; });
  order.resize(std::min(order.size(), at(k)));
  std::sort(order.begin(), order.end());
  return order;
}

Vector softmax_of(const Vector& x, double scale) {
  Vector out;
  const double top = x.empty() ? 0 : *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (const double v : x) sum += out.emplace_back(std::exp(scale * (v - top)));
  for (double& v : out) v /= sum;
  return out;
}

double reduce(const std::string& how, const Vector& x) {
  if (how.starts_with("max")) return *std::max_element(x.begin(), x.end());
  const double sum = std::accumulate(x.begin(), x.end(), 0.0);
  return how.starts_with("mean") ? sum / static_cast<double>(x.size()) : sum;
}

// score(query) gives a row of unit scores; the group's agreement on them.
Vector agree(const Matrix& group, const std::string& how, double scale,
             const std::function<Vector(const Vector&)>& score) {
  if (how.ends_with("query")) {
    Vector combined;
    for (std::size_t j = 0; j < group[0].size(); ++j) {
      Vector column;
      for (const Vector& q : group) column.push_back(q[j]);
      combined.push_back(reduce(how, column));
    }
    return score(combined);
  }
  Matrix rows;
  for (const Vector& q : group) rows.push_back(how.ends_with("weights") ? softmax_of(score(q), scale) : score(q));
  Vector out;
  for (std::size_t i = 0; i < rows[0].size(); ++i) {
    Vector column;
    for (const Vector& r : rows) column.push_back(r[i]);
    out.push_back(reduce(how, column));
  }
  return out;
}

Positions range(std::int64_t begin, std::int64_t end) {
  Positions out;
  for (std::int64_t i = begin; i < end; ++i) out.push_back(static_cast<std::int32_t>(i));
  return out;
}

double root(const trace::Layer& layer) { return 1 / std::sqrt(static_cast<double>(layer.info().head_dim)); }

// One page's bound with a query.
double page_score(const trace::Layer& layer, int head, const Positions& tokens, const Vector& q, bool cuboid) {
  double sum = 0;
  for (std::size_t j = 0; j < q.size(); ++j) {
    Vector x;
    for (const auto p : tokens) x.push_back(key(layer, head, p)[j]);
    double low = *std::min_element(x.begin(), x.end()), high = *std::max_element(x.begin(), x.end());
    if (cuboid) {
      const double centre = (low + high) / 2;
      double distance = 0;
      for (const double v : x) distance += std::abs(centre - v) / static_cast<double>(x.size());
      low = centre - distance, high = centre + distance;
    }
    sum += std::max(q[j] * low, q[j] * high);
  }
  return sum;
}

// Pages of `page` tokens cut from a list.
std::vector<Positions> paged(const Positions& list, std::int64_t page) {
  std::vector<Positions> out;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i % at(page) == 0) out.emplace_back();
    out.back().push_back(list[i]);
  }
  return out;
}

void add(Positions& to, const Positions& tokens) { to.insert(to.end(), tokens.begin(), tokens.end()); }

Vector score_pages(const trace::Layer& layer, int head, const std::vector<Positions>& pages, const Vector& q,
                   bool cuboid) {
  Vector out;
  for (const Positions& p : pages) out.push_back(page_score(layer, head, p, q, cuboid));
  return out;
}

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

Steps by_step(const trace::Layer& layer, const Heads& resident, const std::function<Heads(int)>& attend) {
  Steps out;
  out.resident = resident;
  for (int t = 0; t < layer.info().decode_steps; ++t) out.attended.push_back(attend(t));
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

Steps exact_topk(const trace::Layer& layer, std::int64_t budget, const std::string& group) {
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
      const Matrix qs = queries(layer, h, t);
      if (per_head) {
        for (const Vector& q : qs) out.push_back(best(score(q), budget));
      } else {
        out.push_back(best(agree(qs, group, root(layer), score), budget));
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
            const std::string& group, bool force_last) {
  const auto& info = layer.info();
  const bool per_head = group == "per_head";
  return by_step(layer, all_prompt(layer, per_head), [&](int t) {
    const std::int64_t tokens = info.prompt_tokens + t + 1;
    Heads out;
    for (int h = 0; h < info.n_kv_heads; ++h) {
      const std::vector<Positions> all = paged(range(0, tokens), page);
      const auto choose = [&](const Vector& scores) {
        if (budget >= tokens) return range(0, tokens);
        Positions tokens_of;
        if (force_last) {
          for (const auto p : best(Vector(scores.begin(), scores.end() - 1), pages - 1)) add(tokens_of, all[at(p)]);
          add(tokens_of, all.back());
        } else {
          for (const auto p : best(scores, pages)) add(tokens_of, all[at(p)]);
        }
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
  // The k best ordinary pages become resident; of the other residents the best stay while there is room.
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
    Heads out;
    for (int h = 0; h < info.n_kv_heads; ++h) {
      if (tokens <= s.budget) {
        out.push_back(range(0, tokens));
        continue;
      }
      const bool first = t == 0 || tokens - 1 <= s.budget;
      bool own = first || !s.speculation;
      if (!own && s.correction) {
        double sum = 0;
        const Matrix now = queries(layer, h, t), last = queries(layer, h, t - 1);
        for (std::size_t g = 0; g < now.size(); ++g) {
          const double norms = std::sqrt(product(now[g], now[g]) * product(last[g], last[g]));
          sum += norms > 0 ? product(now[g], last[g]) / norms : 0;
        }
        own = sum / static_cast<double>(now.size()) < s.tau;
      }
      out.push_back(freekv_tokens(s, tokens, freekv_selectable(s, tokens), chosen_at(h, own ? t : t - 1)));
    }
    return out;
  });
}

}  // namespace kvcast::tests::naive

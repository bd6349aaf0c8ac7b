#include "naive_drop.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace kvcast::tests::naive {
namespace {

std::int64_t size(const Positions& list) { return static_cast<std::int64_t>(list.size()); }

// First `sink` positions, last `recent` of the list, and the best of the others.
Positions survivors(const Positions& list, const Vector& scores, std::int64_t budget, const Drop& s) {
  if (size(list) <= budget) return list;
  Vector ranked = scores;
  for (std::int64_t i = 0; i < size(list); ++i) {
    if (list[at(i)] < s.sink || i >= size(list) - s.recent) ranked[at(i)] = std::numeric_limits<double>::infinity();
  }
  Positions out;
  for (const auto i : best(ranked, budget)) out.push_back(list[at(i)]);
  return out;
}

void evict(Heads& held, const Matrix& scores, const Drop& s, const Caps& caps) {
  const std::vector<std::int64_t> most = caps ? caps(scores) : std::vector<std::int64_t>(held.size(), s.budget);
  for (std::size_t h = 0; h < held.size(); ++h) held[h] = survivors(held[h], scores[h], most[h], s);
  if (s.whole_layer) std::fill(held.begin() + 1, held.end(), held[0]);
}

// Reduces scores by query head to scores by list.
Matrix by_group(const Matrix& heads, int members, const std::string& how) {
  Matrix out;
  for (std::size_t h = 0; h < heads.size(); h += at(members)) {
    Vector& row = out.emplace_back();
    for (std::size_t i = 0; i < heads[h].size(); ++i) {
      Vector column;
      for (int g = 0; g < members; ++g) column.push_back(heads[h + at(g)][i]);
      row.push_back(reduce(how, column));
    }
  }
  return out;
}

double distance(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t j = 0; j < a.size(); ++j) sum += (a[j] - b[j]) * (a[j] - b[j]);
  return std::sqrt(sum);
}

double likeness(const Vector& a, const Vector& b, const std::string& metric) {
  if (metric == "euclid") return -distance(a, b);
  const double dot = product(a, b);
  return metric == "dot" ? dot : dot / std::sqrt(product(a, a) * product(b, b));
}

Vector anchor_of(const Matrix& keys, const std::string& anchor) {
  Vector out;
  for (std::size_t j = 0; j < keys[0].size(); ++j) {
    Vector column;
    for (const Vector& k : keys) column.push_back(anchor == "mean" ? k[j] / std::sqrt(product(k, k)) : k[j]);
    std::sort(column.begin(), column.end());
    const std::size_t n = column.size();
    out.push_back(anchor == "median" ? (column[(n - 1) / 2] + column[n / 2]) / 2
                                     : std::accumulate(column.begin(), column.end(), 0.0) / static_cast<double>(n));
  }
  return out;
}

Vector pooled(const Vector& row, const Window& w) {
  Vector out;
  const auto n = static_cast<std::int64_t>(row.size());
  for (std::int64_t i = 0; i < n; ++i) {
    double largest = -std::numeric_limits<double>::infinity(), total = 0;
    for (std::int64_t j = std::max<std::int64_t>(0, i - w.kernel / 2); j <= std::min(n - 1, i + w.kernel / 2); ++j) {
      largest = std::max(largest, row[at(j)]), total += row[at(j)];
    }
    out.push_back(w.pool == "max" ? largest : total / w.kernel);
  }
  return out;
}

}  // namespace

Vector weights(const trace::Layer& layer, int q_head, std::int64_t position, const Positions& list) {
  const auto& info = layer.info();
  const std::int64_t at_row = info.prompt_queries() - info.prompt_tokens + position;
  const Vector q = row(layer.queries(q_head).row(at(at_row)), info.head_dim);
  Vector scores;
  for (const auto i : list) {
    if (i <= position) scores.push_back(product(q, key(layer, q_head / info.group(), i)));
  }
  return softmax_of(scores, root(layer));
}

Steps drop(const trace::Layer& layer, const Drop& s, const Scores& scores, const Caps& caps) {
  const auto& info = layer.info();
  const std::int64_t prompt = info.prompt_tokens, block = s.block > 0 ? s.block : prompt;
  Heads held(at(s.per_query ? info.n_q_heads : info.n_kv_heads));
  for (std::int64_t first = 0; first < prompt; first += block) {
    const std::int64_t end = std::min(prompt, first + block);
    for (Positions& list : held) add(list, range(first, end));
    evict(held, scores(held, first, end), s, caps);
  }
  Steps out;
  out.resident = held;
  for (int t = 0; t < info.decode_steps; ++t) {
    for (Positions& list : held) list.push_back(static_cast<std::int32_t>(prompt + t));
    out.attended.push_back(held);
    if (s.every_step) evict(held, scores(held, prompt + t, prompt + t + 1), s, caps);
  }
  return out;
}

Steps h2o(const trace::Layer& layer, const Drop& s, const std::string& group) {
  const auto& info = layer.info();
  const int members = s.per_query ? 1 : info.group();
  Matrix totals(at(info.n_q_heads), Vector(at(info.positions())));
  return drop(layer, s, [&](const Heads& held, std::int64_t first, std::int64_t end) {
    Matrix heads;
    for (int q = 0; q < info.n_q_heads; ++q) {
      const Positions& list = held[at(q / members)];
      for (std::int64_t i = first; i < end; ++i) {
        const Vector w = weights(layer, q, i, list);
        for (std::size_t j = 0; j < w.size(); ++j) totals[at(q)][at(list[j])] += w[j];
      }
      Vector& row_of = heads.emplace_back();
      for (const auto i : list) row_of.push_back(totals[at(q)][at(i)]);
    }
    return by_group(heads, members, group);
  });
}

Steps tova(const trace::Layer& layer, const Drop& s) {
  const auto& info = layer.info();
  return drop(layer, s, [&](const Heads& held, std::int64_t, std::int64_t end) {
    Matrix heads;
    for (int q = 0; q < info.n_q_heads; ++q) heads.push_back(weights(layer, q, end - 1, held[at(q / info.group())]));
    if (!s.whole_layer) return by_group(heads, info.group(), "mean");
    return Matrix(held.size(), by_group(heads, info.n_q_heads, "mean")[0]);
  });
}

Steps keydiff(const trace::Layer& layer, const Drop& s, const std::string& anchor, const std::string& metric) {
  return drop(layer, s, [&](const Heads& held, std::int64_t, std::int64_t) {
    Matrix out;
    for (std::size_t h = 0; h < held.size(); ++h) {
      Matrix keys;
      for (const auto i : held[h]) keys.push_back(key(layer, static_cast<int>(h), i));
      Vector& scores = out.emplace_back();
      for (const Vector& k : keys) {
        double like = 0;
        if (anchor == "pairwise") {
          for (const Vector& other : keys) like += likeness(k, other, metric);
        } else {
          like = likeness(k, anchor_of(keys, anchor), metric);
        }
        scores.push_back(-like);
      }
    }
    return out;
  });
}

Steps keyl2norm(const trace::Layer& layer, const Drop& s) {
  return drop(layer, s, [&](const Heads& held, std::int64_t, std::int64_t) {
    Matrix out;
    for (std::size_t h = 0; h < held.size(); ++h) {
      Vector& scores = out.emplace_back();
      for (const auto i : held[h]) {
        const Vector k = key(layer, static_cast<int>(h), i);
        scores.push_back(-std::sqrt(product(k, k)));
      }
    }
    return out;
  });
}

Steps adaptive(const trace::Layer& layer, const Drop& s, const Adaptive& how) {
  const auto& info = layer.info();
  const int members = s.per_query ? 1 : info.group();
  const std::int64_t w = how.window.window;
  const Scores scores = [&](const Heads& held, std::int64_t begin, std::int64_t end) {
    const bool step = begin >= info.prompt_tokens;  // ranks by its own query alone
    Matrix heads;
    for (int q = 0; q < info.n_q_heads; ++q) {
      const Positions& list = held[at(q / members)];
      Matrix rows;
      for (std::int64_t i = step ? begin : std::max<std::int64_t>(0, end - w); i < end; ++i) {
        rows.push_back(weights(layer, q, i, list));
        rows.back().resize(at(std::max<std::int64_t>(0, size(list) - w)));
      }
      Vector& out = heads.emplace_back();
      for (std::size_t j = 0; j < rows[0].size(); ++j) {
        double sum = 0, squares = 0;
        for (const Vector& r : rows) sum += r[j];
        const auto n = static_cast<double>(rows.size());
        for (const Vector& r : rows) squares += (r[j] - sum / n) * (r[j] - sum / n);
        out.push_back(how.gamma < 0 || step ? sum : sum / n + how.gamma * (n > 1 ? squares / (n - 1) : 0));
      }
    }
    Matrix out = by_group(heads, members, how.window.group);
    for (std::size_t h = 0; h < out.size(); ++h) {
      out[h] = pooled(out[h], how.window);
      out[h].resize(held[h].size(), 0);  // the window's own tokens are not scored
    }
    return out;
  };
  Drop kept = s;
  kept.recent = w;
  if (how.floor < 0) return drop(layer, kept, scores);
  return drop(layer, kept, scores, [&](const Matrix& all) {
    const std::int64_t base = s.budget - w;
    std::vector<std::pair<double, std::size_t>> entries;
    for (std::size_t h = 0; h < all.size(); ++h) {
      Vector row(all[h].begin(), all[h].end() - w);
      Vector sorted = row;
      std::sort(sorted.rbegin(), sorted.rend());
      const double sum = std::accumulate(row.begin(), row.end(), 0.0);
      const double top = std::accumulate(
          sorted.begin(), sorted.begin() + std::min<std::ptrdiff_t>(base, static_cast<std::ptrdiff_t>(sorted.size())),
          0.0);
      for (const double x : row) entries.emplace_back(how.normalise ? x * top / sum : x, h);
    }
    std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    entries.resize(std::min(entries.size(), at(base) * all.size()));
    std::vector<std::int64_t> caps;
    for (std::size_t h = 0; h < all.size(); ++h) {
      const auto n = static_cast<double>(
          std::count_if(entries.begin(), entries.end(), [&](const auto& e) { return e.second == h; }));
      const double share = n * (1 - how.floor) + std::floor(static_cast<double>(base) * how.floor);
      caps.push_back(static_cast<std::int64_t>(std::nearbyint(share)) + w);
    }
    return caps;
  });
}

}  // namespace kvcast::tests::naive

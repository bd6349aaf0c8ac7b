// D2O pair by pair: lists of keys and values that change as evicted ones are merged into them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "naive_drop.hpp"

namespace kvcast::tests::naive {
namespace {

struct Pair {
  std::int32_t position = 0;
  Vector key, value;
};
using Cache = std::vector<Pair>;  // of a KV head

Pair pair_of(const trace::Layer& layer, int head, std::int64_t i) {
  return {static_cast<std::int32_t>(i), key(layer, head, i), row(layer.values(head).row(at(i)), layer.info().head_dim)};
}

double cosine(const Vector& a, const Vector& b) { return product(a, b) / std::sqrt(product(a, a) * product(b, b)); }

class Run {
 public:
  Run(const trace::Layer& layer, const D2o& setting)
      : layer_(layer),
        s_(setting),
        caches_(at(layer.info().n_kv_heads)),
        totals_(at(layer.info().n_q_heads), Vector(at(layer.info().positions()), 0)) {}

  void append(std::int64_t i) {
    for (std::size_t h = 0; h < caches_.size(); ++h) caches_[h].push_back(pair_of(layer_, static_cast<int>(h), i));
  }

  // The query of one position attends to the pairs up to it; its weights are added up.
  Matrix look(std::int64_t position) {
    const auto& info = layer_.info();
    Matrix outputs;
    for (int q = 0; q < info.n_q_heads; ++q) {
      const std::int64_t at_row = info.prompt_queries() - info.prompt_tokens + position;
      const Vector query = row(layer_.queries(q).row(at(at_row)), info.head_dim);
      const Cache& cache = caches_[at(q / info.group())];
      Vector scores;
      for (const Pair& p : cache) {
        if (p.position <= position) scores.push_back(product(query, p.key));
      }
      const Vector w = softmax_of(scores, root(layer_));
      Vector& out = outputs.emplace_back(at(info.head_dim), 0);
      for (std::size_t i = 0; i < w.size(); ++i) {
        totals_[at(q)][at(cache[i].position)] += w[i];
        for (std::size_t j = 0; j < out.size(); ++j) out[j] += w[i] * cache[i].value[j];
      }
    }
    return outputs;
  }

  void evict() {
    if (static_cast<std::int64_t>(caches_[0].size()) <= recent() + heavy()) return;
    std::vector<Cache> gone(caches_.size());
    for (std::size_t h = 0; h < caches_.size(); ++h) split(h, gone[h]);
    const std::size_t slots = gone[0].size();
    std::vector<std::vector<std::size_t>> nearest(caches_.size());
    Matrix likeness(caches_.size());
    Vector means(slots, 0);
    for (std::size_t h = 0; h < caches_.size(); ++h) {
      for (std::size_t i = 0; i < slots; ++i) {
        Vector all;
        for (const Pair& p : caches_[h]) all.push_back(cosine(gone[h][i].key, p.key));
        nearest[h].push_back(static_cast<std::size_t>(std::max_element(all.begin(), all.end()) - all.begin()));
        likeness[h].push_back(all[nearest[h][i]]);
        means[i] += likeness[h][i] / static_cast<double>(caches_.size());
      }
    }
    const double mean = std::accumulate(means.begin(), means.end(), 0.0) / static_cast<double>(slots);
    tau_ = evicted_ ? s_.alpha * tau_ + s_.beta * mean : mean;
    evicted_ = true;
    for (std::size_t h = 0; h < caches_.size() && s_.merge; ++h) merge(h, gone[h], likeness[h], nearest[h], means);
  }

  bool changed() const { return evicted_; }
  Heads lists() const {
    Heads out;
    for (const Cache& cache : caches_) {
      Positions& list = out.emplace_back();
      for (const Pair& p : cache) list.push_back(p.position);
    }
    return out;
  }

 private:
  // Each part of the budget is rounded down.
  std::int64_t recent() const {
    return static_cast<std::int64_t>(static_cast<double>(s_.drop.budget) * s_.recent_share);
  }
  std::int64_t heavy() const {
    return static_cast<std::int64_t>(static_cast<double>(s_.drop.budget) * (1 - s_.recent_share));
  }

  // The tokens of a head that are kept, and those that are evicted.
  void split(std::size_t h, Cache& gone) {
    const auto members = at(layer_.info().group());
    const std::int64_t sink = std::min(s_.drop.sink, heavy());
    Vector scores;
    const auto n = static_cast<std::int64_t>(caches_[h].size());
    for (std::int64_t i = 0; i < n; ++i) {
      const Pair& p = caches_[h][at(i)];
      double sum = 0;
      for (std::size_t g = 0; g < members; ++g) sum += totals_[h * members + g][at(p.position)];
      scores.push_back(p.position < sink || i >= n - recent() ? 1e18 : sum);
    }
    const Positions stay = best(scores, recent() + heavy());
    Cache kept;
    for (std::int64_t i = 0; i < n; ++i) {
      (std::binary_search(stay.begin(), stay.end(), i) ? kept : gone).push_back(caches_[h][at(i)]);
    }
    caches_[h] = kept;
  }

  void merge(std::size_t h, const Cache& gone, const Vector& likeness, const std::vector<std::size_t>& nearest,
             const Vector& means) {
    for (std::size_t to = 0; to < caches_[h].size(); ++to) {
      Pair& p = caches_[h][to];
      double members = 1;
      for (std::size_t i = 0; i < gone.size(); ++i) {
        if (nearest[i] != to || means[i] < tau_ * (1 - 1e-9)) continue;
        members += 1;
        for (std::size_t j = 0; j < p.key.size(); ++j) {
          p.key[j] += likeness[i] * gone[i].key[j], p.value[j] += likeness[i] * gone[i].value[j];
        }
      }
      for (std::size_t j = 0; j < p.key.size(); ++j) p.key[j] /= members, p.value[j] /= members;
    }
  }

  const trace::Layer& layer_;
  D2o s_;
  std::vector<Cache> caches_;
  Matrix totals_;  // by query head and position
  double tau_ = 0;
  bool evicted_ = false;
};

}  // namespace

Steps d2o(const trace::Layer& layer, const D2o& setting, std::vector<Matrix>& outputs) {
  const auto& info = layer.info();
  const std::int64_t prompt = info.prompt_tokens, block = setting.drop.block > 0 ? setting.drop.block : prompt;
  Run run(layer, setting);
  for (std::int64_t first = 0; first < prompt; first += block) {
    const std::int64_t end = std::min(prompt, first + block);
    for (std::int64_t i = first; i < end; ++i) run.append(i);
    for (std::int64_t i = first; i < end; ++i) run.look(i);
    if (setting.drop.block > 0) run.evict();
  }
  Steps out;
  out.resident = run.lists();
  for (int t = 0; t < info.decode_steps; ++t) {
    run.append(prompt + t);
    out.attended.push_back(run.lists());
    const bool merged = run.changed();
    Matrix heads = run.look(prompt + t);
    outputs.push_back(merged ? heads : Matrix{});
    run.evict();
  }
  return out;
}

}  // namespace kvcast::tests::naive

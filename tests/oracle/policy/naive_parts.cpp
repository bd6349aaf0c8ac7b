#include "naive_parts.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace kvcast::tests::naive {

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

// score(query) gives a row of unit scores; reduced over the group.
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

namespace {

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

}  // namespace

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

Steps by_step(const trace::Layer& layer, const Heads& resident, const std::function<Heads(int)>& attend) {
  Steps out;
  out.resident = resident;
  for (int t = 0; t < layer.info().decode_steps; ++t) out.attended.push_back(attend(t));
  return out;
}

}  // namespace kvcast::tests::naive

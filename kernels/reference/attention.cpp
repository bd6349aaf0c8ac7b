#include "reference/attention.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvcast::kernels::reference {

Attention attend(const float* q, const float* keys, const float* values, std::size_t tokens, std::size_t dim,
                 double scale, const float* bias) {
  std::vector<double> logits(tokens);
  for (std::size_t t = 0; t < tokens; ++t) {
    double sum = 0;
    for (std::size_t j = 0; j < dim; ++j) sum += double{q[j]} * double{keys[t * dim + j]};
    logits[t] = scale * sum + (bias ? double{bias[t]} : 0.0);
  }
  const double most = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  std::vector<double> out(dim, 0.0);
  for (std::size_t t = 0; t < tokens; ++t) {
    const double weight = std::exp(logits[t] - most);
    total += weight;
    for (std::size_t j = 0; j < dim; ++j) out[j] += weight * double{values[t * dim + j]};
  }
  Attention result{std::vector<float>(dim), static_cast<float>(most + std::log(total))};
  for (std::size_t j = 0; j < dim; ++j) result.out[j] = static_cast<float>(out[j] / total);
  return result;
}

Attention merge(const Attention& a, const Attention& b) {
  const double most = std::max(double{a.lse}, double{b.lse});
  const double wa = std::exp(double{a.lse} - most);
  const double wb = std::exp(double{b.lse} - most);
  Attention joined{std::vector<float>(a.out.size()), static_cast<float>(most + std::log(wa + wb))};
  for (std::size_t j = 0; j < a.out.size(); ++j) {
    joined.out[j] = static_cast<float>((wa * double{a.out[j]} + wb * double{b.out[j]}) / (wa + wb));
  }
  return joined;
}

std::vector<std::uint32_t> top_k(const float* scores, std::size_t n, std::size_t k) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
  order.resize(std::min(n, k));
  return order;
}

}  // namespace kvcast::kernels::reference

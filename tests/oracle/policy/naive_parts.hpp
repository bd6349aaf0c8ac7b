// Building blocks of the naive selections: vectors in double precision and full sorts.
#pragma once

#include <functional>

#include "naive.hpp"

namespace kvcast::tests::naive {

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
Vector row(const float* p, std::int64_t d);
double product(const Vector& a, const Vector& b);
Vector key(const trace::Layer& layer, int head, std::int64_t position);
// Queries of a KV head's group at a decode step, or at the last prompt position (step −1).
Matrix queries(const trace::Layer& layer, int head, int step);
// Ascending indices of the k best, ties to the lower.
Positions best(const Vector& scores, std::int64_t k);
Vector softmax_of(const Vector& x, double scale);
// Reduces by a name that starts with sum, mean or max.
double reduce(const std::string& how, const Vector& x);
// score(query) gives a row of unit scores; reduced over the group.
Vector agree(const Matrix& group, const std::string& how, double scale,
             const std::function<Vector(const Vector&)>& score);
Positions range(std::int64_t begin, std::int64_t end);
void add(Positions& to, const Positions& tokens);
double root(const trace::Layer& layer);  // 1 / √d
// Pages of `page` tokens cut from a list, and the bound of each with a query.
std::vector<Positions> paged(const Positions& list, std::int64_t page);
Vector score_pages(const trace::Layer& layer, int head, const std::vector<Positions>& pages, const Vector& q,
                   bool cuboid);
// attend(t) for every step.
Steps by_step(const trace::Layer& layer, const Heads& resident, const std::function<Heads(int)>& attend);

}  // namespace kvcast::tests::naive

// Eviction by its definition: lists of positions, all scores recomputed each time, full sorts.
#pragma once

#include <functional>

#include "naive_parts.hpp"

namespace kvcast::tests::naive {

struct Drop {
  std::int64_t budget = 0, sink = 0, recent = 0;
  std::int64_t block = 0;    // 0: the prompt at once
  bool every_step = true;    // evicts after steps, too
  bool per_query = false;    // a list a query head
  bool whole_layer = false;  // the first list's choice applies to all
};

// A score for each token of each list, after positions first … end − 1 have been read.
using Scores = std::function<Matrix(const Heads& held, std::int64_t first, std::int64_t end)>;
// Number of tokens that each list may keep, by the scores, if it is not the budget.
using Caps = std::function<std::vector<std::int64_t>(const Matrix& scores)>;

Steps drop(const trace::Layer& layer, const Drop& setting, const Scores& scores, const Caps& caps = {});

// softmax(q·k / √d) of the query at a position, of the prompt or later, over the tokens of the list up to it.
Vector weights(const trace::Layer& layer, int q_head, std::int64_t position, const Positions& list);

Steps h2o(const trace::Layer& layer, const Drop& setting, const std::string& group);
Steps tova(const trace::Layer& layer, const Drop& setting);
Steps keydiff(const trace::Layer& layer, const Drop& setting, const std::string& anchor, const std::string& metric);
Steps keyl2norm(const trace::Layer& layer, const Drop& setting);

// SnapKV's scores (or CAKE's, with gamma ≥ 0) under AdaKV's budgets if floor ≥ 0.
struct Adaptive {
  Window window;
  double gamma = -1, floor = -1;
  bool normalise = true;
};
Steps adaptive(const trace::Layer& layer, const Drop& setting, const Adaptive& how);

struct D2o {
  Drop drop;  // budget, sink, block
  double recent_share = 0.5, alpha = 0.5, beta = 0.5;
  bool merge = true;
};
// outputs: of each query head at each step where pairs may have changed, else empty.
Steps d2o(const trace::Layer& layer, const D2o& setting, std::vector<Matrix>& outputs);

}  // namespace kvcast::tests::naive

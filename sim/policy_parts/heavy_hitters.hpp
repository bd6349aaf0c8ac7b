// Attention accumulated by each token: the scores of H2O and D2O.
#pragma once

#include <vector>

#include "policy/group.hpp"
#include "policy/layer_ops.hpp"
#include "policy/parameters.hpp"
#include "policy/weights.hpp"

namespace kvcast::policy {

// Sums of softmax weights by query head and position, over the tokens held at the time of each query. The trace must
// contain the prompt queries that are used.
class HeavyHitters {
 public:
  // group: a reduction of weights (one list of held tokens per KV head), or kPerHead (one list per query head).
  HeavyHitters(const trace::Layer& layer, Group group);

  // Adds all queries of a prompt that is read at once.
  void add_prompt(const LayerInput& layer);
  void add_block(std::int64_t first, std::int64_t end, const std::vector<Held>& held);
  void add_step(int t, const std::vector<Held>& held);
  // Adds the weights of one query of a head, one per token of the list.
  void add(std::size_t q_head, const Held& list, std::span<const float> weights);
  // Totals of the held tokens of one list, reduced over its query heads.
  void scores(std::size_t head, const Held& held, std::vector<float>& out) const;
  // Total of one query head at a position.
  double total(std::size_t q_head, std::int64_t position) const {
    return totals_[q_head][static_cast<std::size_t>(position)];
  }

 private:
  int members() const;
  const trace::Layer& layer_;
  Group group_;
  std::vector<std::vector<double>> totals_;
  PromptRows rows_;
  std::vector<double> sums_;
  std::vector<float> weights_;
};

// Adds the work of summing the columns of a block's attention over itself and the `held` tokens before it.
void sum_prompt_columns(const PrefillLayer& shape, std::int64_t held, bool materialise, LayerOps& ops);
Parameter column_sums_parameter();

}  // namespace kvcast::policy

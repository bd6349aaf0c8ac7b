// Attention that tokens have collected so far: H2O's scores, which D2O uses as well.
#pragma once

#include <vector>

#include "policy/group.hpp"
#include "policy/layer_ops.hpp"
#include "policy/parameters.hpp"
#include "policy/weights.hpp"

namespace kvcast::policy {

// Totals of softmax weights by query head and position, over the tokens held when each query came. The trace must hold
// the prompt queries that are asked for.
class HeavyHitters {
 public:
  // group: of weights (a list of held tokens a KV head), or kPerHead (a list a query head).
  HeavyHitters(const trace::Layer& layer, Group group);

  // All queries of a prompt read at once.
  void add_prompt(const LayerInput& layer);
  void add_block(std::int64_t first, std::int64_t end, const std::vector<Held>& held);
  void add_step(int t, const std::vector<Held>& held);
  // Weights of one query of a head, one a token of the list.
  void add(std::size_t q_head, const Held& list, std::span<const float> weights);
  // Of the held tokens of one list, reduced over its query heads.
  void scores(std::size_t head, const Held& held, std::vector<float>& out) const;
  // Of one query head at a position.
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

// The work of summing the columns of a block's attention over `held` tokens before it and itself, after it.
void sum_prompt_columns(const PrefillLayer& shape, std::int64_t held, bool materialise, LayerOps& ops);
Parameter column_sums_parameter();

}  // namespace kvcast::policy

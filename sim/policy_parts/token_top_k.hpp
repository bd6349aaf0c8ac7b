// The best tokens of one KV head by products of transformed queries with transformed keys: Loki's components, Double
// Sparsity's channels.
#pragma once

#include <span>
#include <vector>

#include "policy/group.hpp"
#include "policy/selection.hpp"
#include "policy_parts/ranking.hpp"
#include "policy_parts/step_scores.hpp"
#include "policy_parts/token_list.hpp"

namespace kvcast::policy {

class TokenTopK {
 public:
  struct Shape {
    std::int64_t budget = 0;            // tokens
    std::int64_t sink = 0, recent = 0;  // the first and the last, which are selected before others, within the budget
    Group group = Group::kPerHead;
    float scale = 1;  // scale of products before a softmax
  };
  // products: rows by position, one query per member of the group.
  TokenTopK(StepScores products, const TokenList& tokens, const Shape& shape);
  // Like HeadRetrieval::step: fills `attended` and `scored`. A step with at most `budget` tokens selects all of them.
  void step(int t, std::span<HeadSelection> out);

 private:
  void take(std::span<float> scores, HeadSelection& out);
  StepScores products_;
  TokenList tokens_;
  Shape s_;
  Ranking ranking_;
  std::vector<std::vector<float>> rows_;  // by member of the group
  std::vector<float> reduced_;
};

}  // namespace kvcast::policy

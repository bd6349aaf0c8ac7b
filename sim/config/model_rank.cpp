// Derives the part of a model that one GPU holds.
#include <fmt/format.h>

#include <stdexcept>

#include "config/model.hpp"

namespace kvcast::config {

Model rank_of(const Model& model, int ranks, bool expert_parallel) {
  Model rank = model;
  rank.ranks = ranks;
  const auto split = [&](int& size, const char* name) {
    if (size % ranks != 0) throw std::invalid_argument(fmt::format("{} does not divide {} {}", ranks, size, name));
    size /= ranks;
  };
  split(rank.n_q_heads, "query heads");
  const auto split_or_copy = [&](int& heads) {
    if (heads >= ranks) return split(heads, "KV heads");
    if (ranks % heads != 0)
      throw std::invalid_argument(fmt::format("{} is not a multiple of {} KV heads", ranks, heads));
    heads = 1;
  };
  split_or_copy(rank.n_kv_heads);
  if (rank.sliding_kv_heads > 0) split_or_copy(rank.sliding_kv_heads);
  if (model.ffn > 0) split(rank.ffn, "columns of the feed-forward network");
  if (rank.experts) {
    if (expert_parallel) {
      split(rank.experts->count, "experts");
      rank.experts->active /= ranks;
    } else {
      split(rank.experts->ffn, "columns of an expert");
    }
  }
  if (rank.recurrence) {
    split(rank.recurrence->heads, "heads of the recurrence");
    // All channels of Mamba have the same keys.
    if (rank.recurrence->kind != Recurrence::Kind::kMamba1)
      split(rank.recurrence->key_heads, "key heads of the recurrence");
  }
  if (rank.compressed) split(rank.compressed->output_groups, "groups of the output projection");
  rank.vocab = (model.vocab + ranks - 1) / ranks;  // padded to whole rows per rank
  return rank;
}

Model rank_of_experts(const Model& model, int ranks) {
  Model rank = model;
  rank.expert_ranks = ranks;
  Experts& experts = *rank.experts;
  if (experts.count % ranks != 0)
    throw std::invalid_argument(fmt::format("{} does not divide {} experts", ranks, experts.count));
  experts.count /= ranks, experts.active /= ranks;
  return rank;
}

}  // namespace kvcast::config

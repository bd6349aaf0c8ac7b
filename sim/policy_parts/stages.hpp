// Policies as two stages: which prompt tokens stay once the prompt has been read, and which of the tokens that are
// there a decode step attends to. Any first stage goes with any second one.
//
// full = everything stays × everything is read; SnapKV = window eviction × everything is read; Quest = everything stays
// × pages; RocketKV = window eviction × HSA.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "policy/policy.hpp"
#include "policy_parts/token_list.hpp"

namespace kvcast::policy {

// First stage. Acts once, after the prompt.
class Retention {
 public:
  virtual ~Retention() = default;
  virtual bool per_query_head() const { return false; }
  // As Policy::survey.
  virtual void survey(std::span<const LayerInput* const>) {}
  // Ascending positions of the prompt tokens that stay: a list a KV head, or a query head; no lists where all stay.
  virtual std::vector<std::vector<std::int32_t>> keep(const LayerInput& layer) const = 0;
  // How many stay in each head of a prompt of this length.
  virtual std::int64_t kept(std::int64_t prompt) const = 0;
  // The same as a mean over a model's layers and heads, where they differ.
  virtual double mean_kept(const config::Model&, std::int64_t prompt) const {
    return static_cast<double>(kept(prompt));
  }
  // What does not stay is freed; false: the whole cache is held beside a compact copy of what stays.
  virtual bool frees() const { return true; }
  virtual void prefill_cost(const PrefillLayer& shape, LayerOps& ops) const = 0;
  // As Policy::prompt_blocks.
  virtual PromptBlocks prompt_blocks(const config::Model&, int /*layer*/) const { return {}; }
};

// Second stage of one KV head.
class HeadRetrieval {
 public:
  virtual ~HeadRetrieval() = default;
  // Fills `attended` and the counts of estimation. One entry, or one a query head of the group (per_query_head).
  virtual void step(int t, std::span<HeadSelection> out) = 0;
  // As Selector::output, of a query head of the group counted from 0.
  virtual std::span<const float> output(int) const { return {}; }
};

class Retrieval {
 public:
  virtual ~Retrieval() = default;
  // Each query head of a group selects for itself. Not after a first stage that does so already.
  virtual bool per_query_head() const { return false; }
  // `tokens` is copied; what it refers to and the layer outlive the result.
  virtual std::unique_ptr<HeadRetrieval> begin(const LayerInput& layer, int kv_head, const TokenList& tokens) const = 0;
  // kept: tokens of a head that the first stage left. The index over them; default: none.
  virtual void build_cost(const PrefillLayer& shape, std::int64_t kept, LayerOps& ops) const;
  virtual void decode_cost(const DecodeLayer& shape, LayerOps& ops) const = 0;
  // What is kept beside the KV pairs; `tokens` in a head's list.
  virtual std::vector<MemoryItem> memory(const MemoryShape& shape, std::int64_t tokens) const;
  // Bytes that the pairs of a head with `tokens` take, as a share of those in half precision.
  virtual double stored_share(const config::Model&, double /*tokens*/) const { return 1; }
  virtual Growth growth() const = 0;
};

// Everything stays.
std::unique_ptr<Retention> keep_all();
// Everything that is there is read.
std::unique_ptr<Retrieval> read_all();

struct Stages {
  std::unique_ptr<Retention> first;
  std::unique_ptr<Retrieval> second;
};

std::unique_ptr<Policy> two_stages(std::unique_ptr<Retention> first, std::unique_ptr<Retrieval> second);

// Its first `layers` layers are left uncompressed, as `full`; the others are `inner`'s.
std::unique_ptr<Policy> dense_first(int layers, std::unique_ptr<Policy> inner);

}  // namespace kvcast::policy

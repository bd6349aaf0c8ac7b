// Policies as two stages: the first decides which prompt tokens are kept, the second which of them a decode step
// attends to. Any first stage can be combined with any second one.
//
// full = keep all × read all; SnapKV = window eviction × read all; Quest = keep all × pages; RocketKV = window eviction
// × HSA.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "policy/group.hpp"
#include "policy/policy.hpp"
#include "policy_parts/token_list.hpp"

namespace kvcast::policy {

// First stage: acts once, after the prompt.
class Retention {
 public:
  virtual ~Retention() = default;
  virtual bool per_query_head() const { return false; }
  // Like Policy::check.
  virtual void check(const Lengths& /*request*/) const {}
  // Like Policy::surveys and Policy::survey.
  virtual bool surveys(const Lengths& /*request*/) const { return false; }
  virtual void survey(std::span<const LayerInput* const>, const Lengths& /*request*/) {}
  // Ascending positions of the prompt tokens that are kept: one list per KV head or per query head; no lists if all are
  // kept.
  virtual std::vector<std::vector<std::int32_t>> keep(const LayerInput& layer, const Lengths& request) const = 0;
  virtual bool keeps_all() const { return false; }  // whatever the prompt's length
  // Number of tokens that each head keeps of the request's prompt.
  virtual std::int64_t kept(const Lengths& request) const = 0;
  // The mean over a model's layers and heads, if they differ.
  virtual double mean_kept(const config::Model&, const Lengths& request) const {
    return static_cast<double>(kept(request));
  }
  // Returns whether tokens that are not kept are freed; false: the whole cache stays, in addition to a compact copy of
  // the kept tokens.
  virtual bool frees() const { return true; }
  virtual void prefill_cost(const PrefillLayer& shape, LayerOps& ops) const = 0;
  // Like Policy::prompt_blocks.
  virtual PromptBlocks prompt_blocks(const config::Model&, int /*layer*/, const Lengths& /*request*/) const {
    return {};
  }
};

// Second stage of one KV head.
class HeadRetrieval {
 public:
  virtual ~HeadRetrieval() = default;
  // Fills `attended` and the counts of estimation. `out` has one entry, or one per query head of the group
  // (per_query_head).
  virtual void step(int t, std::span<HeadSelection> out) = 0;
  // Like Selector::output, for a query head of the group, counted from 0.
  virtual std::span<const float> output(int) const { return {}; }
};

// Base of heads that have a setting.
template <typename Setting>
class HeadRetrievalBy : public HeadRetrieval {
 public:
  HeadRetrievalBy(const LayerInput& input, int kv_head, const TokenList& tokens, const Setting& setting)
      : layer_(input.layer()),
        kv_head_(kv_head),
        members_(static_cast<std::size_t>(input.info().group())),
        d_(static_cast<std::size_t>(input.info().head_dim)),
        tokens_(tokens),
        s_(setting) {}

 protected:
  const trace::Layer& layer_;
  const int kv_head_;
  const std::size_t members_, d_;  // query heads of the group; dimensions of a head
  const TokenList tokens_;
  const Setting s_;
};

class Retrieval {
 public:
  virtual ~Retrieval() = default;
  // Returns whether each query head of a group selects separately. Not after a first stage that already does.
  virtual bool per_query_head() const { return false; }
  virtual bool reads_all() const { return false; }  // selects nothing
  // Like Policy::check.
  virtual void check(const Lengths& /*request*/) const {}
  // `tokens` is copied. The layer, and the list that `tokens` refers to, must outlive the result.
  virtual std::unique_ptr<HeadRetrieval> begin(const LayerInput& layer, int kv_head, const TokenList& tokens,
                                               const Lengths& request) const = 0;
  // Adds the work of building the index over the `kept` tokens of a head that the first stage left; none by default.
  virtual void build_cost(const PrefillLayer& shape, std::int64_t kept, LayerOps& ops) const;
  virtual void decode_cost(const DecodeLayer& shape, LayerOps& ops) const = 0;
  // Memory in addition to the KV pairs; `tokens` in a head's list.
  virtual std::vector<MemoryItem> memory(const MemoryShape& shape, std::int64_t tokens) const;
  // Bytes of the pairs of a head with `tokens`, as a share of those in half precision.
  virtual double stored_share(const config::Model&, double /*tokens*/) const { return 1; }
  virtual Growth growth(const Lengths& request) const = 0;
};

// A second stage whose heads are Head(layer, kv_head, tokens, setting), and which may select by query head (`group`).
template <typename Head, typename Setting>
class RetrievalBy : public Retrieval {
 public:
  explicit RetrievalBy(const Setting& setting) : s_(setting) {}
  bool per_query_head() const override {
    if constexpr (requires { s_.group; }) return s_.group == Group::kPerHead;
    return false;
  }
  std::unique_ptr<HeadRetrieval> begin(const LayerInput& layer, int kv_head, const TokenList& tokens,
                                       const Lengths&) const override {
    return std::make_unique<Head>(layer, kv_head, tokens, s_);
  }

 protected:
  Setting s_;
};

// A second stage whose setting depends on the request: at(setting of the parameters, request).
template <typename Head, typename Setting>
class RetrievalByRequest : public RetrievalBy<Head, Setting> {
 public:
  using At = std::function<Setting(const Setting&, const Lengths&)>;
  RetrievalByRequest(const Setting& setting, At at) : RetrievalBy<Head, Setting>(setting), at_(std::move(at)) {}
  std::unique_ptr<HeadRetrieval> begin(const LayerInput& layer, int kv_head, const TokenList& tokens,
                                       const Lengths& request) const override {
    return std::make_unique<Head>(layer, kv_head, tokens, at(request));
  }
  void check(const Lengths& request) const override { at(request); }

 protected:
  Setting at(const Lengths& request) const { return at_(this->s_, request); }

 private:
  At at_;
};

// Keeps all tokens.
std::unique_ptr<Retention> keep_all();
// Reads all tokens.
std::unique_ptr<Retrieval> read_all();

struct Stages {
  std::unique_ptr<Retention> first;
  std::unique_ptr<Retrieval> second;
};

std::unique_ptr<Policy> two_stages(std::unique_ptr<Retention> first, std::unique_ptr<Retrieval> second);

// Serves requests that the budget covers (Policy::covers) as `full` does; `inner` handles the others.
std::unique_ptr<Policy> full_when_covered(std::unique_ptr<Policy> inner);

// Leaves the first `layers` layers uncompressed, as `full` does; `inner` handles the others.
std::unique_ptr<Policy> dense_first(int layers, std::unique_ptr<Policy> inner);

}  // namespace kvcast::policy

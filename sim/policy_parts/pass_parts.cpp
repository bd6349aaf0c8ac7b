#include "policy_parts/pass_parts.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include "policy/forwarded_ops.hpp"
#include "policy_parts/stages.hpp"

namespace kvcast::policy {
namespace {

// Collects the ops at which parts of a layer are done.
class PartOps final : public ForwardedOps {
 public:
  using ForwardedOps::ForwardedOps;
  void done(OpId op) override { last_ = last_ < 0 ? op : join(Lane::kCompute, {last_, op}); }
  OpId last() const { return last_; }

 private:
  OpId last_ = -1;
};

// Some of a pass's sequences.
struct Part {
  const Policy* policy = nullptr;
  std::vector<Sequence> sequences;
  std::vector<HeadCounts> heads;
};

std::vector<Part> split(const DecodeLayer& shape, const std::function<const Policy&(const Lengths&)>& of) {
  std::vector<Part> parts;
  for (std::size_t i = 0; i < shape.sequences.size(); ++i) {
    const Policy* const policy = &of(shape.sequences[i].request);
    auto part = std::ranges::find(parts, policy, &Part::policy);
    if (part == parts.end()) part = parts.insert(part, Part{policy, {}, {}});
    part->sequences.push_back(shape.sequences[i]);
    const auto heads = shape.heads_of(i);
    part->heads.insert(part->heads.end(), heads.begin(), heads.end());
  }
  return parts;
}

class FullWhenCovered final : public Policy {
 public:
  explicit FullWhenCovered(std::unique_ptr<Policy> inner)
      : full_(two_stages(keep_all(), read_all())), inner_(std::move(inner)) {}

  void check(const Lengths& request) const override { inner_->check(request); }
  bool covers(const Lengths& request) const override { return inner_->covers(request); }
  void survey(std::span<const LayerInput* const> layers, const Lengths& request) override {
    if (!covers(request)) inner_->survey(layers, request);
  }
  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths& request) const override {
    return of(request).selector(layer, request);
  }
  int dense_layers() const override { return inner_->dense_layers(); }
  double recalling_share(const config::Model& model) const override { return inner_->recalling_share(model); }
  PromptAttention prompt_attention(const LayerInput& layer) const override { return inner_->prompt_attention(layer); }
  PromptBlocks prompt_blocks(const config::Model& model, int layer, const Lengths& request) const override {
    return of(request).prompt_blocks(model, layer, request);
  }
  OpId prefill_attention(const PrefillChunk& chunk, LayerOps& ops) const override {
    return inner_->prefill_attention(chunk, ops);
  }
  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    of(shape.request()).prefill_layer(shape, ops);
  }
  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    decode_in_parts(
        shape, [this](const Lengths& request) -> const Policy& { return of(request); }, ops);
  }
  std::vector<MemoryItem> memory(const MemoryShape& shape) const override { return of(shape.lengths).memory(shape); }
  Growth growth(const Lengths& request) const override { return of(request).growth(request); }

 private:
  const Policy& of(const Lengths& request) const { return covers(request) ? *full_ : *inner_; }
  std::unique_ptr<Policy> full_, inner_;
};

class MadeByRequest final : public Policy {
 public:
  explicit MadeByRequest(std::function<std::unique_ptr<Policy>(const Lengths&)> make) : make_(std::move(make)) {}

  void check(const Lengths& request) const override { of(request).check(request); }
  bool covers(const Lengths& request) const override { return of(request).covers(request); }
  void survey(std::span<const LayerInput* const> layers, const Lengths& request) override {
    of(request).survey(layers, request);
  }
  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths& request) const override {
    return of(request).selector(layer, request);
  }
  PromptBlocks prompt_blocks(const config::Model& model, int layer, const Lengths& request) const override {
    return of(request).prompt_blocks(model, layer, request);
  }
  void prefill_layer(const PrefillLayer& shape, LayerOps& ops) const override {
    of(shape.request()).prefill_layer(shape, ops);
  }
  // Counts contain the differences between requests: one set of kernels serves all that are not covered.
  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    const auto first_of = [&](bool covered) {
      return std::ranges::find_if(shape.sequences, [&](const Sequence& s) { return covers(s.request) == covered; });
    };
    const auto of_class = [&](const Lengths& request) -> const Policy& {
      return of(first_of(covers(request))->request);
    };
    decode_in_parts(shape, of_class, ops);
  }
  std::vector<MemoryItem> memory(const MemoryShape& shape) const override { return of(shape.lengths).memory(shape); }
  Growth growth(const Lengths& request) const override { return of(request).growth(request); }

 private:
  Policy& of(const Lengths& request) const {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<Policy>& made = made_[request];
    if (!made) made = make_(request);
    return *made;
  }

  std::function<std::unique_ptr<Policy>(const Lengths&)> make_;
  mutable std::mutex mutex_;
  mutable std::map<Lengths, std::unique_ptr<Policy>> made_;
};

}  // namespace

OtherCounts::OtherCounts(const DecodeLayer& shape, const std::function<std::int64_t(const Sequence&)>& attended)
    : shape_(shape) {
  for (const Sequence& sequence : shape.sequences) {
    heads_.resize(heads_.size() + static_cast<std::size_t>(shape.model->n_kv_heads),
                  HeadCounts{.attended = attended(sequence), .attended_runs = 1});
  }
  shape_.heads = heads_, shape_.per_query_head = false;
}

void decode_in_parts(const DecodeLayer& shape, const std::function<const Policy&(const Lengths&)>& of, LayerOps& ops) {
  const Policy& first = of(shape.sequences.front().request);
  const auto same = [&](const Sequence& sequence) { return &of(sequence.request) == &first; };
  if (std::ranges::all_of(shape.sequences, same)) return first.decode_layer(shape, ops);
  PartOps parts(ops);
  for (const Part& part : split(shape, of)) {
    part.policy->decode_layer({*shape.model, shape.layer, part.sequences, part.heads, shape.per_query_head}, parts);
  }
  ops.done(parts.last());
}

std::unique_ptr<Policy> full_when_covered(std::unique_ptr<Policy> inner) {
  return std::make_unique<FullWhenCovered>(std::move(inner));
}

std::unique_ptr<Policy> made_by_request(std::function<std::unique_ptr<Policy>(const Lengths&)> make) {
  return std::make_unique<MadeByRequest>(std::move(make));
}

}  // namespace kvcast::policy

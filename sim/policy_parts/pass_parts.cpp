#include "policy_parts/pass_parts.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include "policy/forwarded_ops.hpp"
#include "policy_parts/forwarded_policy.hpp"
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

class FullWhenCovered final : public WrappedPolicy {
 public:
  explicit FullWhenCovered(std::unique_ptr<Policy> inner)
      : WrappedPolicy(std::move(inner)), full_(two_stages(keep_all(), read_all())) {}

  void check(const Lengths& request) const override { inner_->check(request); }
  bool covers(const Lengths& request) const override { return inner_->covers(request); }
  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    decode_in_parts(
        shape, [this](const Lengths& request) -> const Policy& { return of(request); }, ops);
  }

 private:
  Policy& of(const Lengths& request) const override { return covers(request) ? *full_ : *inner_; }
  std::unique_ptr<Policy> full_;
};

class MadeByRequest final : public ForwardedPolicy {
 public:
  explicit MadeByRequest(std::function<std::unique_ptr<Policy>(const Lengths&)> make) : make_(std::move(make)) {}

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

 private:
  Policy& of(const Lengths& request) const override {
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
    heads_.resize(heads_.size() + shape.model->n_kv_heads,
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

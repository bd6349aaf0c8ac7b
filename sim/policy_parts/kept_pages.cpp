// Keeps pages that leave a selection on the GPU while memory remains, because they may be needed again soon.
#include <algorithm>
#include <deque>

#include "base/error.hpp"
#include "policy/costs.hpp"
#include "policy_parts/forwarded_policy.hpp"
#include "policy_parts/host_pages.hpp"

namespace kvcast::policy {
namespace {

// Tokens of one head that left its selection, least recently used first; pages are added and removed whole.
class GivenUp {
 public:
  // Removes the tokens that are here from `fetched`, adds those in `evicted`, and replaces these by the ones that had
  // to make room.
  void step(std::int64_t room, std::vector<std::int32_t>& fetched, std::vector<std::int32_t>& evicted) {
    ++now_;
    std::erase_if(fetched, [&](std::int32_t token) { return take(token); });
    for (const std::int32_t token : evicted) put(token);
    evicted.clear();
    while (held_ > room) {
      const auto [token, since] = oldest_.front();
      oldest_.pop_front();
      if (since_[token] != since) continue;  // it has been selected again since
      take(token);
      evicted.push_back(token);
    }
    std::sort(evicted.begin(), evicted.end());
  }

 private:
  bool take(std::int32_t token) {
    const auto i = static_cast<std::size_t>(token);
    if (i >= since_.size() || since_[i] == 0) return false;
    since_[i] = 0;
    --held_;
    return true;
  }

  void put(std::int32_t token) {
    const auto i = static_cast<std::size_t>(token);
    if (i >= since_.size()) since_.resize(i + 1, 0);
    KVCAST_CHECK(since_[i] == 0);
    since_[i] = now_;
    oldest_.emplace_back(token, now_);
    ++held_;
  }

  int now_ = 0;
  std::int64_t held_ = 0;
  std::vector<int> since_;  // by position: the step in which it left the selection; 0: not here
  std::deque<std::pair<std::int32_t, int>> oldest_;  // in the order of these steps
};

class KeptSelector final : public Selector {
 public:
  KeptSelector(const KeptPages& kept, std::unique_ptr<Selector> inner) : kept_(kept), inner_(std::move(inner)) {}

  void prefill(LayerSelection& resident) override { inner_->prefill(resident); }

  void step(int t, LayerSelection& out) override {
    inner_->step(t, out);
    given_up_.resize(out.heads.size());
    for (std::size_t h = 0; h < out.heads.size(); ++h) {
      HeadSelection& head = out.heads[h];
      given_up_[h].step(kept_.tokens / kept_.page * kept_.page, head.fetched, head.evicted);
      const auto missing = static_cast<std::int64_t>(head.fetched.size());
      head.counts.fetched_runs = std::min(head.counts.fetched_runs, (missing + kept_.page - 1) / kept_.page);
    }
  }

  std::span<const float> output(int q_head) const override { return inner_->output(q_head); }
  std::span<const float> log_weights(int q_head) const override { return inner_->log_weights(q_head); }

 private:
  KeptPages kept_;
  std::unique_ptr<Selector> inner_;
  std::vector<GivenUp> given_up_;  // by head
};

class Kept final : public WrappedPolicy {
 public:
  Kept(const KeptPages& kept, std::unique_ptr<Policy> inner) : WrappedPolicy(std::move(inner)), kept_(kept) {}

  std::unique_ptr<Selector> selector(const LayerInput& layer, const Lengths& request) const override {
    return std::make_unique<KeptSelector>(kept_, inner_->selector(layer, request));
  }

  void decode_layer(const DecodeLayer& shape, LayerOps& ops) const override {
    inner_->decode_layer(shape, ops);
    if (shape.sum(&HeadCounts::scored) <= 0) return;
    // One kernel looks up the selected pages in the table of slots and updates their time of use.
    const double entries = shape.sum(&HeadCounts::attended) / static_cast<double>(kept_.page) * 2 * kIndexBytes;
    ops.compute(
        Kind::kIndex, "page table",
        Kernel{
            .cls = KernelClass::kGather, .read_bytes = entries, .write_bytes = entries, .unit_bytes = 2 * kIndexBytes},
        {ops.ready()});
  }

  std::vector<MemoryItem> memory(const MemoryShape& shape) const override {
    std::vector<MemoryItem> items = inner_->memory(shape);
    const double held = static_cast<double>(std::min(kept_.tokens / kept_.page * kept_.page, shape.tokens));
    items.push_back(
        {graph::Pool::kHbm, graph::Owner::kRecalledPages, recalling_share(*shape.model) * kv_bytes(shape, held)});
    return items;
  }

 private:
  KeptPages kept_;
};

}  // namespace

std::unique_ptr<Policy> keep_recalled(const KeptPages& kept, std::unique_ptr<Policy> inner) {
  KVCAST_CHECK(kept.page >= 1 && kept.tokens >= kept.page);
  return std::make_unique<Kept>(kept, std::move(inner));
}

}  // namespace kvcast::policy

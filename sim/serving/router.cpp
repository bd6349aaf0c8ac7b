#include "serving/router.hpp"

#include <algorithm>
#include <ranges>
#include <vector>

#include "base/error.hpp"
#include "serving/content.hpp"

namespace kvcast::serving {
namespace {

using Loads = std::span<const std::int64_t>;

class RoundRobin final : public Router {
 public:
  std::size_t route(const traffic::Request&, Loads load) override { return next_++ % load.size(); }

 private:
  std::size_t next_ = 0;
};

class LeastLoaded final : public Router {
 public:
  std::size_t route(const traffic::Request&, Loads load) override {
    std::size_t best = next_ % load.size();
    for (std::size_t i = 1; i < load.size(); ++i) {
      const std::size_t at = (next_ + i) % load.size();
      if (load[at] < load[best]) best = at;
    }
    next_ = best + 1;
    return best;
  }

 private:
  std::size_t next_ = 0;
};

// sgl-router, cache_aware with its defaults (cache_threshold, balance_abs_threshold, balance_rel_threshold): the least
// loaded replica while loads are out of balance; else the longest match if it is more than a share of the prompt, and
// the smallest record if not.
class PrefixAware final : public Router {
 public:
  PrefixAware(std::int64_t block, std::int64_t recorded) : block_(block), recorded_(recorded) {}

  std::size_t route(const traffic::Request& request, Loads load) override {
    while (records_.size() < load.size()) records_.emplace_back(recorded_);
    const std::int64_t blocks = request.prompt_tokens / block_;
    Chain chain;
    hashes_.clear();
    for (std::int64_t i = 0; i < std::min(blocks, recorded_); ++i) hashes_.push_back(chain.at(i, request, block_));
    const std::size_t chosen = choose(request, load);
    records_[chosen].enter(hashes_);
    return chosen;
  }

 private:
  static constexpr double kMatch = 0.3, kRelative = 1.5;
  static constexpr std::int64_t kAbsolute = 64;

  std::size_t choose(const traffic::Request& request, Loads load) {
    const auto [least, most] = std::ranges::minmax(load);
    if (most - least > kAbsolute && static_cast<double>(most) > kRelative * static_cast<double>(least))
      return least_loaded_.route(request, load);
    std::size_t best = 0, matched = 0;
    for (std::size_t k = 0; k < load.size(); ++k) {
      // A replica that has a block has those before it.
      if (matched == hashes_.size() || !records_[k].has(hashes_[matched])) continue;
      best = k;
      while (matched < hashes_.size() && records_[k].has(hashes_[matched])) ++matched;
    }
    const double share =
        static_cast<double>(static_cast<std::int64_t>(matched) * block_) / static_cast<double>(request.prompt_tokens);
    if (share > kMatch) return best;
    sizes_.clear();
    for (const BlockRecord& record : records_) sizes_.push_back(record.size());
    return std::ranges::all_of(sizes_, [&](std::int64_t size) { return size == sizes_.front(); })
               ? least_loaded_.route(request, load)
               : smallest_.route(request, sizes_);
  }

  std::int64_t block_, recorded_;
  std::vector<BlockRecord> records_;
  LeastLoaded least_loaded_, smallest_;
  std::vector<std::uint64_t> hashes_;
  std::vector<std::int64_t> sizes_;
};

}  // namespace

void BlockRecord::enter(std::span<const std::uint64_t> hashes) {
  for (const std::uint64_t hash : std::views::reverse(hashes)) {
    const auto [at, fresh] = at_.try_emplace(hash);
    if (fresh) {
      order_.push_front(hash);
      at->second = order_.begin();
    } else {
      order_.splice(order_.begin(), order_, at->second);
    }
  }
  while (size() > most_) {
    at_.erase(order_.back());
    order_.pop_back();
  }
}

std::unique_ptr<Router> make_router(config::Routing routing, std::int64_t block, std::int64_t recorded) {
  switch (routing) {
    case config::Routing::kRoundRobin:
      return std::make_unique<RoundRobin>();
    case config::Routing::kLeastLoaded:
      return std::make_unique<LeastLoaded>();
    case config::Routing::kPrefix:
      return std::make_unique<PrefixAware>(block, recorded);
  }
  KVCAST_CHECK(false);
}

std::unique_ptr<Router> make_router(config::Routing routing, const Rules& rules) {
  constexpr std::int64_t kTokens = 64;
  const std::int64_t blocks = (kTokens + rules.block - 1) / rules.block;
  return make_router(routing, blocks * rules.block, std::max<std::int64_t>(1, rules.blocks / blocks));
}

}  // namespace kvcast::serving

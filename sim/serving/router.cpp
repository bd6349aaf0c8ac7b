#include "serving/router.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "serving/blocks.hpp"

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
    const auto begin = load.begin(), from = begin + static_cast<std::ptrdiff_t>(next_ % load.size());
    auto best = std::min_element(from, load.end());
    if (const auto before = std::min_element(begin, from); before != from && *before < *best) best = before;
    next_ = static_cast<std::size_t>(best - begin) + 1;
    return next_ - 1;
  }

 private:
  std::size_t next_ = 0;
};

// sgl-router, cache_aware with its defaults (cache_threshold, balance_abs_threshold, balance_rel_threshold): the least
// loaded replica while loads are out of balance; else the longest match if it is more than a share of the prompt, and
// the smallest record if not. A record is a pool of blocks that nobody uses, of which the oldest are taken.
class PrefixAware final : public Router {
 public:
  PrefixAware(std::int64_t block, std::int64_t recorded) : block_(block), recorded_(recorded) {}

  std::size_t route(const traffic::Request& request, Loads load) override {
    while (records_.size() < load.size()) records_.emplace_back(recorded_, true), sizes_.push_back(0);
    const std::int64_t blocks = std::min(request.prompt_tokens / block_, recorded_);
    const std::int64_t named = std::min(shareable(request) / block_, blocks);
    Chain chain;
    const std::size_t chosen = choose(request, load, chain, named);
    Blocks& record = records_[chosen];
    Holding entered;
    record.share(entered, chain, request, block_, record.find(entered, chain, request, block_, named));
    const std::int64_t fresh = blocks - entered.count;
    record.take(entered, fresh);
    record.name(entered, chain, request, block_, named);
    record.give_back(entered, 0);
    sizes_[chosen] = std::min(recorded_, sizes_[chosen] + fresh);
    return chosen;
  }

 private:
  static constexpr double kMatch = 0.3, kRelative = 1.5;
  static constexpr std::int64_t kAbsolute = 64;

  // named: leading blocks of the prompt that earlier ones may have had.
  std::size_t choose(const traffic::Request& request, Loads load, Chain& chain, std::int64_t named) {
    const auto [least, most] = std::ranges::minmax(load);
    if (most - least > kAbsolute && static_cast<double>(most) > kRelative * static_cast<double>(least))
      return least_loaded_.route(request, load);
    std::size_t best = 0;
    std::int64_t matched = 0;
    for (std::size_t k = 0; k < load.size() && matched < named; ++k) {
      // A replica that has a block has those before it.
      if (!records_[k].has(chain.at(matched, request, block_))) continue;
      best = k;
      while (matched < named && records_[k].has(chain.at(matched, request, block_))) ++matched;
    }
    const double share = static_cast<double>(matched * block_) / static_cast<double>(request.prompt_tokens);
    if (share > kMatch) return best;
    return std::ranges::all_of(sizes_, [&](std::int64_t size) { return size == sizes_.front(); })
               ? least_loaded_.route(request, load)
               : smallest_.route(request, sizes_);
  }

  std::int64_t block_, recorded_;
  std::vector<Blocks> records_;
  LeastLoaded least_loaded_, smallest_;
  std::vector<std::int64_t> sizes_;  // of the records
};

}  // namespace

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

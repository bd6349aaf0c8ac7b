#include "policy_parts/page_cache.hpp"

#include <algorithm>
#include <iterator>

#include "base/error.hpp"

namespace kvcast::policy {

void PageCache::update(std::span<const std::int32_t> chosen, std::size_t slots, std::span<const float> scores,
                       std::vector<std::int32_t>& fetched, std::vector<std::int32_t>& evicted) {
  KVCAST_CHECK(chosen.size() <= slots);
  fetched.clear(), evicted.clear(), others_.clear(), next_.clear();
  std::set_difference(chosen.begin(), chosen.end(), held_.begin(), held_.end(), std::back_inserter(fetched));
  std::set_difference(held_.begin(), held_.end(), chosen.begin(), chosen.end(), std::back_inserter(others_));
  const std::size_t stay = std::min(others_.size(), slots - chosen.size());
  std::stable_sort(others_.begin(), others_.end(),
                   [&](std::int32_t a, std::int32_t b) { return scores[a] > scores[b]; });
  const auto victims = others_.begin() + stay;
  evicted.assign(victims, others_.end());
  std::sort(evicted.begin(), evicted.end());
  std::sort(others_.begin(), victims);
  std::merge(chosen.begin(), chosen.end(), others_.begin(), victims, std::back_inserter(next_));
  held_.swap(next_);
}

}  // namespace kvcast::policy

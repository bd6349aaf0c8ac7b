// The pages of one head (or of all heads of a layer together) in GPU memory, in slots of one page.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvcast::policy {

// Pages that are always held (sink, window) are not part of it.
class PageCache {
 public:
  // The pages in ascending order.
  const std::vector<std::int32_t>& held() const { return held_; }
  void assign(std::vector<std::int32_t> pages) { held_ = std::move(pages); }

  // Takes in `chosen` (ascending), keeping at most `slots` ≥ |chosen| pages: of the others, those with the highest
  // score stay, lower pages first among ties. `scores` is indexed by page. Writes ascending lists of the pages fetched
  // and evicted.
  void update(std::span<const std::int32_t> chosen, std::size_t slots, std::span<const float> scores,
              std::vector<std::int32_t>& fetched, std::vector<std::int32_t>& evicted);

 private:
  std::vector<std::int32_t> held_, others_, next_;
};

}  // namespace kvcast::policy

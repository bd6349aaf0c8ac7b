// Which pages of one head (or of a layer's heads together) are in GPU memory, in slots of one page.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvcast::policy {

// Pages that are always held (sink, window) are the caller's affair and never in here.
class PageCache {
 public:
  // Ascending.
  const std::vector<std::int32_t>& held() const { return held_; }
  void assign(std::vector<std::int32_t> pages) { held_ = std::move(pages); }

  // Makes room for and takes in `chosen` (ascending), keeping at most `slots` ≥ |chosen| pages: of those not chosen,
  // the ones with the highest score stay, lower pages first among equals. `scores` is indexed by page. Ascending lists
  // of what came and what went.
  void update(std::span<const std::int32_t> chosen, std::size_t slots, std::span<const float> scores,
              std::vector<std::int32_t>& fetched, std::vector<std::int32_t>& evicted);

 private:
  std::vector<std::int32_t> held_, others_, next_;
};

}  // namespace kvcast::policy

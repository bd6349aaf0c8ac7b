#include "policy/layer_input.hpp"

#include <algorithm>
#include <numeric>

#include "policy/weights.hpp"

namespace kvcast::policy {
namespace {

// Enough for the policies of a sweep that run concurrently; page bounds of a long layer are large.
constexpr std::size_t kKept = 3;

}  // namespace

template <typename Key, typename Value>
template <typename Make>
std::shared_ptr<const Value> LayerInput::Memo<Key, Value>::get(const Key& key, const Make& make) {
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const auto& e) { return e.first == key; });
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
    } else {
      entries_.emplace_front(key, std::make_shared<Entry>());
      if (entries_.size() > kKept) entries_.pop_back();
    }
    entry = entries_.front().second;
  }
  std::call_once(entry->made, [&] { entry->value = std::make_shared<const Value>(make()); });
  return entry->value;
}

std::shared_ptr<const WindowScores> LayerInput::window_scores(int window) const {
  return windows_.get(window, [&] { return score_window(layer_, window); });
}

std::shared_ptr<const std::vector<WindowMoments>> LayerInput::window_moments(int window) const {
  return moments_.get(window, [&] {
    require_prompt_queries(info(), info().prompt_tokens - window, "the last queries of the prompt rank its tokens");
    Held all(info().prompt_tokens);
    std::iota(all.begin(), all.end(), 0);
    std::vector<WindowMoments> heads;
    for (int q = 0; q < info().n_q_heads; ++q) {
      heads.push_back(measure_window(layer_, q, info().prompt_tokens, window, all, Moments::kAll));
    }
    return heads;
  });
}

std::shared_ptr<const std::vector<std::vector<double>>> LayerInput::prompt_totals() const {
  return totals_.get(0, [&] { return sum_prompt_weights(layer_, threads_); });
}

std::shared_ptr<const LayerInput::Pages> LayerInput::page_bounds(int page, std::int64_t first, Summary summary,
                                                                 SummaryFormat format) const {
  return pages_.get({page, first, summary, format}, [&] {
    const std::int64_t tokens = std::max<std::int64_t>(0, info().prompt_tokens - first);
    const std::int64_t full = tokens / page;
    Pages heads;
    for (int head = 0; head < info().n_kv_heads; ++head) {
      PageBounds& bounds = heads.emplace_back(info().head_dim, page, full, summary, format);
      if (full > 0) bounds.append_pages(layer_.keys(head).row(first), full);
    }
    return heads;
  });
}

}  // namespace kvcast::policy

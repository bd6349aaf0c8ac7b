// One captured layer as policies see it: the trace's layer, and what several policies derive from it, made once.
//
// A sweep replays many policies over one layer. What depends on the layer alone (the scores of an observation window,
// the bounds of pages) is made by the first who asks and shared by the others.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "policy/pages.hpp"
#include "policy/window.hpp"
#include "trace/trace.hpp"

namespace kvcast::policy {

// Safe to use from several threads. The layer must outlive it, and its decode scores must be there before it is shared
// between threads (trace::Layer::compute_scores).
class LayerInput {
 public:
  explicit LayerInput(const trace::Layer& layer) : layer_(layer) {}

  const trace::Layer& layer() const { return layer_; }
  const trace::TraceInfo& info() const { return layer_.info(); }

  // Of every query head. UserError where the trace holds fewer than `window` last prompt queries.
  std::shared_ptr<const WindowScores> window_scores(int window) const;
  std::shared_ptr<const std::vector<WindowMoments>> window_moments(int window) const;
  // sum_prompt_weights, H2O's and D2O's totals after a prompt read at once. The trace must hold all prompt queries.
  std::shared_ptr<const std::vector<std::vector<double>>> prompt_totals() const;

  // Bounds of the full pages of the prompt, one entry a KV head; pages start at position `first`.
  using Pages = std::vector<PageBounds>;
  std::shared_ptr<const Pages> page_bounds(int page, std::int64_t first, Summary summary) const;

 private:
  // The few values used last, by key; one is made while others wait for it, never twice.
  template <typename Key, typename Value>
  class Memo {
   public:
    template <typename Make>
    std::shared_ptr<const Value> get(const Key& key, const Make& make);

   private:
    struct Entry {
      std::once_flag made;
      std::shared_ptr<const Value> value;
    };
    std::mutex mutex_;
    std::list<std::pair<Key, std::shared_ptr<Entry>>> entries_;  // the one used last in front
  };

  const trace::Layer& layer_;
  mutable Memo<int, WindowScores> windows_;
  mutable Memo<int, std::vector<WindowMoments>> moments_;
  mutable Memo<int, std::vector<std::vector<double>>> totals_;  // one key
  mutable Memo<std::tuple<int, std::int64_t, Summary>, Pages> pages_;
};

}  // namespace kvcast::policy

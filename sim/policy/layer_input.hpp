// One captured layer as policies see it: the trace's layer, and data derived from it that several policies use.
//
// A sweep replays many policies over one layer. Data that depend on the layer alone (scores of an observation window,
// bounds of pages) are computed on first use and shared.
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

// Safe to use from several threads. The layer must outlive the object, and its decode scores must be computed
// (trace::Layer::compute_scores) before it is shared between threads.
class LayerInput {
 public:
  // threads: number of threads for what takes minutes: the sums of a prompt's attention weights, large clusterings.
  explicit LayerInput(const trace::Layer& layer, int threads = 1) : layer_(layer), threads_(threads) {}

  const trace::Layer& layer() const { return layer_; }
  const trace::TraceInfo& info() const { return layer_.info(); }
  int threads() const { return threads_; }

  // Scores and moments of every query head. Throws UserError if the trace contains fewer than `window` of the last
  // prompt queries.
  std::shared_ptr<const WindowScores> window_scores(int window) const;
  std::shared_ptr<const std::vector<WindowMoments>> window_moments(int window) const;
  // sum_prompt_weights: the totals of H2O and D2O after a prompt that is read at once. The trace must contain all
  // prompt queries.
  std::shared_ptr<const std::vector<std::vector<double>>> prompt_totals() const;

  // Bounds of the full pages of the prompt, one entry per KV head; pages start at position `first`.
  using Pages = std::vector<PageBounds>;
  std::shared_ptr<const Pages> page_bounds(int page, std::int64_t first, Summary summary,
                                           SummaryFormat format = SummaryFormat::kCache) const;

 private:
  // The most recently used values by key. Threads that request a value wait while another one computes it.
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
    std::list<std::pair<Key, std::shared_ptr<Entry>>> entries_;  // most recently used first
  };

  const trace::Layer& layer_;
  int threads_;
  mutable Memo<int, WindowScores> windows_;
  mutable Memo<int, std::vector<WindowMoments>> moments_;
  mutable Memo<int, std::vector<std::vector<double>>> totals_;  // a single key
  mutable Memo<std::tuple<int, std::int64_t, Summary, SummaryFormat>, Pages> pages_;
};

}  // namespace kvcast::policy

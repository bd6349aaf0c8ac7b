// The most recently used replays, for a long-running program.
#pragma once

#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "study/study.hpp"

namespace kvcast::api {

class RecentReplays final : public study::ReplayCache {
 public:
  // Keeps the last ones that take so many bytes together; the last one in any case.
  explicit RecentReplays(std::size_t most_bytes) : most_(most_bytes) {}

  std::optional<replay::ReplayResult> get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return {};
    kept_.splice(kept_.begin(), kept_, found->second);
    return found->second->second;
  }

  void put(const std::string& key, const replay::ReplayResult& replayed) override {
    const std::lock_guard lock(mutex_);
    if (by_key_.contains(key)) return;
    kept_.emplace_front(key, replayed);
    by_key_[key] = kept_.begin();
    bytes_ += bytes_of(replayed);
    while (bytes_ > most_ && kept_.size() > 1) {
      bytes_ -= bytes_of(kept_.back().second);
      by_key_.erase(kept_.back().first);
      kept_.pop_back();
    }
  }

 private:
  static std::size_t bytes_of(const replay::ReplayResult& r) {
    std::size_t bytes = sizeof r + r.targets.steps.size() * sizeof(replay::StepRecall);
    for (const replay::LayerCounts& layer : r.layers) {
      bytes += layer.counts.size() * sizeof(policy::HeadCounts) + layer.resident.size() * sizeof(std::int64_t);
    }
    return bytes;
  }

  std::size_t most_, bytes_ = 0;
  std::mutex mutex_;
  std::list<std::pair<std::string, replay::ReplayResult>> kept_;  // most recently used first
  std::map<std::string, std::list<std::pair<std::string, replay::ReplayResult>>::iterator> by_key_;
};

}  // namespace kvcast::api

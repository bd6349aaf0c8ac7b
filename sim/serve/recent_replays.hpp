// The most recently used replays, for a long-running program.
#pragma once

#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "study/study.hpp"

namespace kvcast::serve {

class RecentReplays final : public study::ReplayCache {
 public:
  explicit RecentReplays(std::size_t most) : most_(most) {}

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
    if (kept_.size() <= most_) return;
    by_key_.erase(kept_.back().first);
    kept_.pop_back();
  }

 private:
  std::size_t most_;
  std::mutex mutex_;
  std::list<std::pair<std::string, replay::ReplayResult>> kept_;  // most recently used first
  std::map<std::string, std::list<std::pair<std::string, replay::ReplayResult>>::iterator> by_key_;
};

}  // namespace kvcast::serve

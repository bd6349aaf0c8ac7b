// Replays by key, for the length of a study.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "study/study.hpp"

namespace kvcast::study {

class ReplaysInMemory final : public ReplayCache {
 public:
  std::optional<replay::ReplayResult> get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(key);
    return found == kept_.end() ? std::nullopt : std::optional(found->second);
  }
  void put(const std::string& key, const replay::ReplayResult& replayed) override {
    const std::lock_guard lock(mutex_);
    kept_.emplace(key, replayed);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, replay::ReplayResult> kept_;
};

}  // namespace kvcast::study

// The replays of a long-running program: those used last in memory, and in a folder all that were made since it was
// begun, so that the program finds them when it is started again.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "base/lru_cache.hpp"
#include "store/store.hpp"
#include "study/study.hpp"

namespace kvcast::api {

// The most recently used replays.
class RecentReplays final : public study::ReplayCache {
 public:
  // Keeps the last ones that take so many bytes together; the last one in any case.
  explicit RecentReplays(std::size_t most_bytes) : kept_(most_bytes) {}

  std::optional<replay::ReplayResult> get(const std::string& key) override {
    const auto found = kept_.find(key);
    return found ? std::optional(*found) : std::nullopt;
  }
  void put(const std::string& key, const replay::ReplayResult& replayed) override {
    kept_.put(key, std::make_shared<const replay::ReplayResult>(replayed), bytes_of(replayed));
  }

 private:
  static std::size_t bytes_of(const replay::ReplayResult& r) {
    std::size_t bytes = sizeof r + r.targets.steps.size() * sizeof(replay::StepRecall);
    for (const replay::LayerCounts& layer : r.layers) {
      bytes += layer.counts.size() * sizeof(policy::HeadCounts) + layer.resident.size() * sizeof(std::int64_t);
    }
    return bytes;
  }

  LruCache<const replay::ReplayResult> kept_;
};

class KeptReplays final : public study::ReplayCache {
 public:
  // `memory`: bytes of the replays held in memory. `folder`: of this version of the program; empty: none. A folder that
  // cannot be used, or that has no room left, is done without.
  KeptReplays(std::size_t memory, const std::string& folder);

  std::optional<replay::ReplayResult> get(const std::string& key) override;
  void put(const std::string& key, const replay::ReplayResult& replayed) override;

 private:
  RecentReplays recent_;
  std::optional<store::Store> stored_;
  std::atomic<bool> writable_ = true;
};

// Passes a study's replays through and says how many of the plan's are there, from the first that has to be made on.
class CountedReplays final : public study::ReplayCache {
 public:
  using Advance = std::function<void(std::size_t done, std::size_t of)>;
  CountedReplays(study::ReplayCache& kept, const study::Study& plan, Advance advance);

  std::optional<replay::ReplayResult> get(const std::string& key) override;
  void put(const std::string& key, const replay::ReplayResult& replayed) override;

 private:
  study::ReplayCache& kept_;
  Advance advance_;
  std::size_t wanted_ = 0;
  std::atomic<std::size_t> there_ = 0;
};

}  // namespace kvcast::api

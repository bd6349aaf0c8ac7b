// The most recently used replays, for a long-running program.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/recent.hpp"
#include "study/study.hpp"

namespace kvcast::api {

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

  Recent<const replay::ReplayResult> kept_;
};

}  // namespace kvcast::api

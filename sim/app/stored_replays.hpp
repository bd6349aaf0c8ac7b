// Replays in the cache of a store.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "store/store.hpp"
#include "study/study.hpp"

namespace kvcast::app {

class StoredReplays final : public study::ReplayCache {
 public:
  explicit StoredReplays(store::Store& store) : store_(store) {}
  std::optional<replay::ReplayResult> get(const std::string& key) override {
    const auto text = store_.get_replay(key);
    if (!text) return {};
    return replay::replay_from_json(nlohmann::json::parse(*text));
  }
  void put(const std::string& key, const replay::ReplayResult& replayed) override {
    store_.put_replay(key, replay::to_json(replayed).dump());
  }

 private:
  store::Store& store_;
};

}  // namespace kvcast::app

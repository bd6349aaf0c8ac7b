// Stores used by a study: results and the cache of replays.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "store/keep.hpp"
#include "store/store.hpp"
#include "study/study.hpp"

namespace kvcast::app {

using store::keep;

class StoredReplays final : public study::ReplayCache {
 public:
  explicit StoredReplays(store::Store& store) : store_(store) {}
  std::optional<replay::ReplayResult> get(const std::string& key) override {
    const auto text = keep([&] { return store_.get_replay(key); });
    if (!text) return {};
    return replay::replay_from_json(nlohmann::json::parse(*text));
  }
  void put(const std::string& key, const replay::ReplayResult& replayed) override {
    const std::string text = replay::to_json(replayed).dump();
    keep([&] { store_.put_replay(key, text); });
  }

 private:
  store::Store& store_;
};

}  // namespace kvcast::app

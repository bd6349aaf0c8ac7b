// The objects that were used last.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace kvcast {

// Keeps those used last whose costs add up to at most a limit, by texts that determine them; the last one in any case.
// May be called from several threads.
template <typename Kept>
class LruCache {
 public:
  explicit LruCache(std::size_t most) : most_(most) {}

  // Null if it is not there.
  std::shared_ptr<Kept> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) return nullptr;
    kept_.splice(kept_.begin(), kept_, found->second);
    return found->second->kept;
  }

  // Returns what is kept for the key: the object that is there already, if there is one.
  std::shared_ptr<Kept> put(const std::string& key, std::shared_ptr<Kept> kept, std::size_t cost = 1) {
    const std::lock_guard lock(mutex_);
    if (const auto found = by_key_.find(key); found != by_key_.end()) return found->second->kept;
    kept_.push_front({key, kept, cost});
    by_key_[key] = kept_.begin();
    cost_ += cost;
    while (cost_ > most_ && kept_.size() > 1) {
      cost_ -= kept_.back().cost;
      by_key_.erase(kept_.back().key);
      kept_.pop_back();
    }
    return kept;
  }

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<Kept> kept;
    std::size_t cost = 1;
  };

  std::size_t most_, cost_ = 0;
  std::mutex mutex_;
  std::list<Entry> kept_;  // used last first
  std::map<std::string, typename std::list<Entry>::iterator> by_key_;
};

}  // namespace kvcast

// Tables of passes that services share.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/run.hpp"
#include "result/result.hpp"
#include "simulate/step_table.hpp"

namespace kvcast::study {

// A table with all that it refers to. It is filled as times are asked for: whoever asks holds the lock.
struct SharedTable {
  std::mutex mutex;
  config::Run run;
  std::vector<std::shared_ptr<const void>> replays;  // of the input
  simulate::PassInput input;
  std::optional<simulate::PassTimes> passes;
  std::optional<simulate::StepTable> table;
};

// The objects that were used last, by texts that determine them.
template <class Kept>
class Recent {
 public:
  explicit Recent(std::size_t most) : most_(most) {}
  // Null if it is not there.
  std::shared_ptr<Kept> find(const std::string& key) {
    for (auto at = kept_.begin(); at != kept_.end(); ++at) {
      if (at->first != key) continue;
      kept_.splice(kept_.begin(), kept_, at);
      return kept_.front().second;
    }
    return nullptr;
  }
  void put(const std::string& key, std::shared_ptr<Kept> kept) {
    kept_.emplace_front(key, std::move(kept));
    if (kept_.size() > most_) kept_.pop_back();
  }

 private:
  std::size_t most_;
  std::list<std::pair<std::string, std::shared_ptr<Kept>>> kept_;
};

// Tables, and results of batches that describe services, by texts that determine them. May be called from several
// threads.
class StepTables {
 public:
  std::shared_ptr<SharedTable> of(const std::string& key) {
    const std::lock_guard lock(mutex_);
    auto found = tables_.find(key);
    if (!found) tables_.put(key, found = std::make_shared<SharedTable>());
    return found;
  }
  std::shared_ptr<const result::Result> batch(const std::string& key) {
    const std::lock_guard lock(mutex_);
    return batches_.find(key);
  }
  void keep_batch(const std::string& key, const result::Result& result) {
    const std::lock_guard lock(mutex_);
    batches_.put(key, std::make_shared<const result::Result>(result));
  }

 private:
  std::mutex mutex_;
  Recent<SharedTable> tables_{16};
  Recent<const result::Result> batches_{256};
};

}  // namespace kvcast::study

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

// The tables that were used last, by a text that determines their times. May be called from several threads.
class StepTables {
 public:
  std::shared_ptr<SharedTable> of(const std::string& key) {
    constexpr std::size_t kMost = 16;
    const std::lock_guard lock(mutex_);
    for (auto at = kept_.begin(); at != kept_.end(); ++at) {
      if (at->first != key) continue;
      kept_.splice(kept_.begin(), kept_, at);
      return kept_.front().second;
    }
    kept_.emplace_front(key, std::make_shared<SharedTable>());
    if (kept_.size() > kMost) kept_.pop_back();
    return kept_.front().second;
  }

 private:
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<SharedTable>>> kept_;
};

}  // namespace kvcast::study

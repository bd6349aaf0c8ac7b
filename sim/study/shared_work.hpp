// Work that experiments share.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/lru_cache.hpp"
#include "config/run.hpp"
#include "result/result.hpp"
#include "simulate/lowered.hpp"
#include "simulate/step_table.hpp"

namespace kvcast::study {

// A table of passes with all that it refers to. It is filled as times are asked for: whoever asks holds the lock.
struct SharedTable {
  std::mutex mutex;
  config::Run run;
  std::vector<std::shared_ptr<const void>> replays;  // of the input
  simulate::PassInput input;
  std::optional<simulate::PassTimes> passes;
  std::optional<simulate::StepTable> table;
};

// Keeps the work that was used last, by keys that determine it. May be called from several threads.
class SharedWork {
 public:
  // Keeps lowered work of so many bytes. It is the same on every machine, so that a long-running program whose user
  // changes a machine lowers nothing again.
  explicit SharedWork(std::size_t lowered_bytes = kForOneStudy) : lowered_(lowered_bytes) {}

  LruCache<const simulate::Lowered>& lowered() { return lowered_; }
  LruCache<SharedTable>& tables() { return tables_; }
  LruCache<const result::Result>& batches() { return batches_; }  // results that describe services

 private:
  static constexpr std::size_t kForOneStudy = std::size_t{32} << 20;  // its consecutive tasks differ by the machine

  LruCache<const simulate::Lowered> lowered_;
  LruCache<SharedTable> tables_{16};
  LruCache<const result::Result> batches_{256};
};

}  // namespace kvcast::study

// Replays many policies over many traces: each trace is made once, and each policy is replayed once over it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/cancel.hpp"
#include "base/error.hpp"

namespace kvcast::replay {

// One trace, which is made in parts, and the replays over it. Calls come in the order open, all replays in any order
// and from several threads, open for the next part, and so on until there is none; close. A replay that was refused is
// not called again.
class TraceWork {
 public:
  virtual ~TraceWork() = default;
  virtual std::size_t replays() const = 0;
  // Makes the next part of the trace with up to `threads` threads; false if there is none. A UserError rejects all
  // replays.
  virtual bool open(int threads) = 0;
  // Runs replay i < replays() over this part with up to `threads` threads. A UserError rejects it.
  virtual void replay(std::size_t i, int threads) = 0;
  virtual void refuse(std::size_t i, const UserError& why) = 0;
  // Frees the trace's memory.
  virtual void close() = 0;
};

// Distribution of threads. Traces of many layers are large: one at a time, its replays in parallel. Small ones run in
// parallel, their replays one after the other.
enum class ThreadUse { kReplays, kTraces };

// Runs all work in the given order. Throws Cancelled. Exceptions other than UserError pass through.
void run_replays(const std::vector<std::unique_ptr<TraceWork>>& work, ThreadUse spread, int threads,
                 const Cancel& cancel = {});

}  // namespace kvcast::replay

#include "replay/schedule.hpp"

#include <algorithm>
#include <optional>

#include "base/parallel.hpp"

namespace kvcast::replay {
namespace {

void run_one(TraceWork& work, int threads, const Cancel& cancel) {
  const std::size_t n = work.replays();
  if (n == 0) return;
  std::optional<UserError> refused;
  try {
    work.open(threads);
  } catch (const UserError& error) {
    refused = error;
  }
  const int at_once = std::min<int>(threads, static_cast<int>(n));
  parallel_for(n, at_once, [&](std::size_t i) {
    cancel.check();
    if (refused) return work.refuse(i, *refused);
    try {
      work.replay(i, std::max(1, threads / at_once));
    } catch (const UserError& error) {
      work.refuse(i, error);
    }
  });
  work.close();
}

}  // namespace

void run_replays(const std::vector<std::unique_ptr<TraceWork>>& work, Spread spread, int threads,
                 const Cancel& cancel) {
  const bool traces = spread == Spread::kTraces;
  parallel_for(work.size(), traces ? threads : 1, [&](std::size_t i) {
    cancel.check();
    run_one(*work[i], traces ? 1 : threads, cancel);
  });
}

}  // namespace kvcast::replay

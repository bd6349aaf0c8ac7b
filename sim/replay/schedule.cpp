#include "replay/schedule.hpp"

#include <algorithm>
#include <optional>

#include "base/parallel.hpp"

namespace kvcast::replay {
namespace {

void run_one(TraceWork& work, int threads, const Cancel& cancel) {
  const std::size_t n = work.replays();
  if (n == 0) return;
  std::vector<char> refused(n);
  const auto refuse = [&](std::size_t i, const UserError& why) { refused[i] = 1, work.refuse(i, why); };
  const int at_once = std::min<int>(threads, static_cast<int>(n));
  const auto for_others = [&](const auto& body) {
    parallel_for(n, at_once, [&](std::size_t i) {
      cancel.check();
      if (refused[i] == 0) body(i);
    });
  };
  for (;;) {
    std::optional<UserError> broken;
    try {
      if (!work.open(threads)) break;
    } catch (const UserError& error) {
      broken = error;
    }
    if (broken) {
      for_others([&](std::size_t i) { refuse(i, *broken); });
      break;
    }
    for_others([&](std::size_t i) {
      try {
        work.replay(i, std::max(1, threads / at_once));
      } catch (const UserError& error) {
        refuse(i, error);
      }
    });
  }
  work.close();
}

}  // namespace

void run_replays(const std::vector<std::unique_ptr<TraceWork>>& work, ThreadUse spread, int threads,
                 const Cancel& cancel) {
  const bool traces = spread == ThreadUse::kTraces;
  parallel_for(work.size(), traces ? threads : 1, [&](std::size_t i) {
    cancel.check();
    run_one(*work[i], traces ? 1 : threads, cancel);
  });
}

}  // namespace kvcast::replay

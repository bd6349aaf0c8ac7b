#include "app/sweep_plan.hpp"

#include <fmt/format.h>

#include <charconv>
#include <set>

#include "base/error.hpp"

namespace kvcast::app {
namespace {

// Where a key's group stands; made on first sight.
template <typename Group>
Group& group_of(std::vector<Group>& groups, std::map<std::string, std::size_t>& seen, const std::string& key) {
  const auto [at, fresh] = seen.emplace(key, groups.size());
  if (fresh) groups.emplace_back();
  return groups[at->second];
}

}  // namespace

Shard parse_shard(const std::string& text) {
  if (text.empty()) return {};
  Shard shard;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, shard.index);
  const bool slash = first.ec == std::errc() && first.ptr != end && *first.ptr == '/';
  const auto second = slash ? std::from_chars(first.ptr + 1, end, shard.count) : first;
  if (!slash || second.ec != std::errc() || second.ptr != end || shard.count < 1 || shard.index < 0 ||
      shard.index > shard.count) {
    throw UserError({}, fmt::format("--shard {}: expected i/n with i from 1 to n, such as 1/4", text));
  }
  shard.index %= shard.count;
  return shard;
}

SweepPlan plan_sweep(const config::Node& config, const Shard& shard) {
  SweepPlan plan;
  std::map<std::string, std::size_t> traces;
  std::map<std::string, std::map<std::string, std::size_t>> replays;  // by trace
  std::map<std::string, std::int64_t> replay_number;                  // over the whole sweep
  TraceIdentities identities;
  std::int64_t ordinal = 0;
  for (const config::SweepPoint& point : config::expand_sweep(config)) {
    Task task{ordinal++, point.values, prepare(point.config, identities)};
    plan.keys.push_back(task.prepared.key);
    const auto number = replay_number.emplace(task.prepared.replay_key, replay_number.size()).first->second;
    if (number % shard.count != shard.index) continue;
    TraceGroup& trace = group_of(plan.traces, traces, task.prepared.trace_key);
    group_of(trace.replays, replays[task.prepared.trace_key], task.prepared.replay_key)
        .tasks.push_back(std::move(task));
    ++plan.total;
  }
  return plan;
}

}  // namespace kvcast::app

#include "trace/targets.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace kvcast::trace {
namespace {

std::int64_t read_position(const nlohmann::json& entry, std::size_t step, const TraceInfo& info) {
  const std::int64_t last = info.prompt_tokens + static_cast<std::int64_t>(step);
  if (!entry.is_number_unsigned() || entry.get<std::uint64_t>() > static_cast<std::uint64_t>(last)) {
    throw UserError(fmt::format("targets: decode step {} names {}, which is not a position in 0 .. {}", step,
                                entry.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 40),
                                last));
  }
  return entry.get<std::int64_t>();
}

}  // namespace

Targets read_targets(const TraceInfo& info) {
  const auto steps = static_cast<std::size_t>(info.decode_steps);
  Targets targets(steps);
  const auto written = info.optional.find("targets");
  if (written == info.optional.end()) return targets;
  const nlohmann::json json = nlohmann::json::parse(written->second, nullptr, false);
  if (!json.is_array() || json.size() != steps) {
    throw UserError(fmt::format("targets: expected a list of {} lists, one a decode step", steps));
  }
  for (std::size_t t = 0; t < steps; ++t) {
    if (!json[t].is_array()) throw UserError(fmt::format("targets: entry {} is not a list of positions", t));
    for (const auto& entry : json[t]) targets[t].push_back(read_position(entry, t, info));
    std::sort(targets[t].begin(), targets[t].end());
    targets[t].erase(std::unique(targets[t].begin(), targets[t].end()), targets[t].end());
  }
  return targets;
}

std::string targets_json(const Targets& targets) { return nlohmann::json(targets).dump(); }

}  // namespace kvcast::trace

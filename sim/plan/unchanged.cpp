#include "plan/unchanged.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/units.hpp"
#include "graph/op.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {
namespace {

using result::Result;

// A relative change below this counts as none: planners decide on larger ones, and intervals are wider.
constexpr double kSameShare = 1e-3;

// The numbers of short tables: throughput, times, memory, scores.
const std::vector<const result::Metric*>& compared() {
  static const std::vector<const result::Metric*> metrics = [] {
    std::vector<const result::Metric*> brief;
    for (const result::Metric& m : result::all_metrics()) {
      if (!m.brief.empty()) brief.push_back(&m);
    }
    return brief;
  }();
  return metrics;
}

bool same_number(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::abs(a - b) <= kSameShare * std::max(std::abs(a), std::abs(b));
}

double cpu_seconds(const Result& r) {
  const auto cpu = static_cast<std::size_t>(graph::Kind::kCpuWork);
  return r.experiment.step.exposed[cpu] + r.experiment.step.hidden[cpu];
}

std::string copies_reason(const Result& r, const std::string& key) {
  const graph::ByteCounts& t = r.experiment.traffic;
  if (t.h2d == 0 && t.d2h == 0) return "a decode step copies nothing between host and GPU";
  if (key.find("d2h") != std::string::npos && t.d2h == 0) return "a decode step copies nothing from the GPU";
  if (key.find("h2d") != std::string::npos && t.h2d == 0) return "a decode step copies nothing to the GPU";
  if (key.find("bandwidth") != std::string::npos && t.h2d_pieces > 0) {
    return fmt::format(
        "a decode step copies {:.0f} pieces of {}, and the calls and the copy engine are their bottleneck",
        t.h2d_pieces, format_quantity(t.h2d / t.h2d_pieces, Dimension::kBytes));
  }
  return fmt::format("its copies do not depend on it; the bottleneck is {}", result::bottleneck(r.experiment.step));
}

// Explains why a number of the machine may not matter to an experiment.
std::string reason_of(const Result& r, const std::string& key) {
  if (!r.has_times()) return "none of these experiments fits in memory";
  if (key.find(".link.") != std::string::npos) return copies_reason(r, key);
  const bool of_workers = key.find(".cores") != std::string::npos || key.find(".core_") != std::string::npos ||
                          key.find(".dispatch") != std::string::npos || key.find("all_core") != std::string::npos;
  if (of_workers && cpu_seconds(r) == 0) return "no work runs on the CPU workers";
  if (key.find(".dram_") != std::string::npos && r.experiment.traffic.cpu_dram == 0) {
    return "no CPU worker reads host memory, and copies and pinned buffers need less than there is";
  }
  return fmt::format("no operation of a decode step or of the prefill is limited by it; the bottleneck is {}",
                     result::bottleneck(r.experiment.step));
}

// The policy with its swept parameters: "quest, budget 1024".
std::string policy_text(const Result& r) {
  std::string text = r.subject.policy;
  for (const auto& [key, value] : r.subject.swept) {
    if (key.starts_with("policy.") && key != "policy.name") text += fmt::format(", {} {}", key.substr(7), value);
  }
  return text;
}

bool same_numbers(const SweptPoint& a, const SweptPoint& b) {
  return a.status == b.status && std::ranges::equal(a.numbers, b.numbers, same_number);
}

// All swept values except the one under `key`.
std::string others_of(const SweptPoint& point, const Texts& texts, int key) {
  std::string text = texts[point.policy];
  for (const auto& [name, value] : point.swept) {
    if (name != key) text.append("\n").append(texts[name]).append("=").append(texts[value]);
  }
  return text;
}

void add_key(std::span<const SweptPoint* const> points, const Texts& texts, int key, const LoadResult& load,
             std::vector<Unchanged>& out) {
  std::map<std::string, std::vector<std::size_t>> groups;  // points that are equal except for the key
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i]->status != result::Status::kFailed) groups[others_of(*points[i], texts, key)].push_back(i);
  }
  struct Policy {
    std::size_t first = 0, experiments = 0;
    bool changed = false;
  };
  std::map<std::string, Policy> policies;
  for (const auto& [others, group] : groups) {
    if (group.size() < 2) continue;
    const SweptPoint& first = *points[group.front()];
    Policy& policy = policies.try_emplace(texts[first.setting], Policy{group.front()}).first->second;
    policy.experiments += group.size();
    policy.changed |= !std::ranges::all_of(group, [&](std::size_t i) { return same_numbers(first, *points[i]); });
  }
  for (const auto& [name, policy] : policies) {
    if (policy.changed) continue;
    out.push_back({texts[key], name, policy.experiments, reason_of(*load(policy.first), texts[key])});
  }
}

}  // namespace

std::string text_of(const Unchanged& u) {
  return fmt::format("{} changed no time, memory or score of {} by more than 0.1 % ({} experiments): {}", u.key,
                     u.policy, u.experiments, u.reason);
}

store::Finding finding_of(std::span<const Unchanged> unchanged) {
  store::Finding finding{"Swept without effect", "", ""};
  std::vector<std::string> lines;
  for (const Unchanged& u : unchanged) lines.push_back(text_of(u));
  finding.text = fmt::format("{}", fmt::join(lines, "\n"));
  return finding;
}

SweptPoint swept_point(const Result& r, Texts& texts) {
  SweptPoint point;
  point.status = r.status;
  point.policy = texts.number(r.subject.policy), point.setting = texts.number(policy_text(r));
  point.swept.reserve(r.subject.swept.size());
  for (const auto& [key, value] : r.subject.swept) point.swept.emplace_back(texts.number(key), texts.number(value));
  point.numbers.reserve(compared().size());
  for (const result::Metric* const m : compared())
    point.numbers.push_back(result::value(r, *m).value_or(std::numeric_limits<double>::quiet_NaN()));
  return point;
}

std::vector<Unchanged> unchanged_by(std::span<const SweptPoint* const> points, const Texts& texts,
                                    const LoadResult& load) {
  std::map<std::string, int> keys;
  for (const SweptPoint* const point : points) {
    for (const auto& [key, value] : point->swept) {
      if (texts[key].starts_with("hardware.")) keys.emplace(texts[key], key);
    }
  }
  std::vector<Unchanged> out;
  for (const auto& [name, key] : keys) add_key(points, texts, key, load, out);
  return out;
}

}  // namespace kvcast::plan

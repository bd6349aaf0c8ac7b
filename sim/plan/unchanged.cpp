#include "plan/unchanged.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/units.hpp"
#include "graph/op.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {
namespace {

using result::Result;

// A relative change below this counts as none: planners decide on larger ones, and intervals are wider.
constexpr double kSameShare = 1e-3;

bool same_number(std::optional<double> a, std::optional<double> b) {
  if (a.has_value() != b.has_value()) return false;
  return !a || std::abs(*a - *b) <= kSameShare * std::max(std::abs(*a), std::abs(*b));
}

// Compares the numbers of short tables: throughput, times, memory, scores.
bool same_numbers(const Result& a, const Result& b) {
  if (a.status != b.status) return false;
  const auto metrics = result::all_metrics();
  return std::ranges::all_of(metrics, [&](const result::Metric& m) {
    return m.brief.empty() || same_number(result::value(a, m), result::value(b, m));
  });
}

double cpu_seconds(const Result& r) {
  const auto cpu = static_cast<std::size_t>(graph::Kind::kCpuWork);
  return r.experiment.step.exposed[cpu] + r.experiment.step.hidden[cpu];
}

std::string copies_reason(const Result& r, const std::string& key) {
  const graph::Traffic& t = r.experiment.traffic;
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

// All swept values except the one under `key`.
std::string others_of(const Result& r, const std::string& key) {
  std::string text = r.subject.policy;
  for (const auto& [name, value] : r.subject.swept) {
    if (name != key) text += fmt::format("\n{}={}", name, value);
  }
  return text;
}

std::set<std::string> machine_keys(std::span<const Result> results) {
  std::set<std::string> keys;
  for (const Result& r : results) {
    for (const auto& [key, value] : r.subject.swept) {
      if (key.starts_with("hardware.")) keys.insert(key);
    }
  }
  return keys;
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

std::vector<Unchanged> unchanged_by(std::span<const Result> results) {
  std::vector<Unchanged> out;
  for (const std::string& key : machine_keys(results)) {
    std::map<std::string, std::vector<const Result*>> groups;  // experiments that are equal except for the key
    for (const Result& r : results) {
      if (r.status != result::Status::kFailed) groups[others_of(r, key)].push_back(&r);
    }
    std::map<std::string, Unchanged> policies;
    std::set<std::string> changed;
    for (const auto& [others, group] : groups) {
      if (group.size() < 2) continue;
      const Result& first = *group.front();
      const bool same = std::ranges::all_of(group, [&](const Result* r) { return same_numbers(first, *r); });
      const std::string policy = policy_text(first);
      if (!same) changed.insert(policy);
      Unchanged& entry = policies[policy];
      if (entry.experiments == 0) entry = {key, policy, 0, reason_of(first, key)};
      entry.experiments += group.size();
    }
    for (const auto& [policy, entry] : policies) {
      if (changed.count(policy) == 0) out.push_back(entry);
    }
  }
  return out;
}

}  // namespace kvcast::plan

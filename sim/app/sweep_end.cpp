// The end of a sweep: findings, experiments that did not fit, experiments that were rejected.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "app/sweep.hpp"
#include "base/error.hpp"
#include "plan/findings.hpp"
#include "plan/unchanged.hpp"

namespace kvcast::app {
namespace {

using result::Status;

// Prints one line: the finding of the first group, and the number of other groups.
void print_first(const store::Finding& finding) {
  const std::size_t end = std::min(finding.text.find('\n'), finding.text.size());
  const auto more = std::count(finding.text.begin(), finding.text.end(), '\n');
  fmt::print("{}: {}{}\n", finding.title, finding.text.substr(0, end),
             more == 0 ? "" : fmt::format(" ({} more in the report)", more));
}

// Names the owners of requests that did not fit, and how prompts that are prefilled whole could request less.
std::string misfits_text(const std::vector<result::Result>& results) {
  std::map<std::string, int> owners;
  bool whole = false;
  for (const result::Result& r : results) {
    if (!r.experiment.oom) continue;
    const std::string& owner = r.experiment.oom->requested_for;
    const auto is_zero = [&r](const char* key) { return r.subject.number(key).value_or(1) == 0; };
    whole =
        whole || (owner == "activations" && (is_zero("workload.prefill_chunk") || is_zero("workload.prefill_batch")));
    ++owners[owner];
  }
  std::vector<std::string> parts;
  for (const auto& [owner, number] : owners) parts.push_back(fmt::format("{} for {}", number, owner));
  if (parts.empty()) return "";
  return fmt::format(" ({}){}", fmt::join(parts, ", "),
                     whole ? "\nActivations are held for whole prompts and for all prompts at once, unless "
                             "workload.prefill_chunk and workload.prefill_batch are set."
                           : "");
}

// Lists each reason once.
std::string refusals_text(const std::vector<result::Result>& results, std::int64_t refused) {
  std::set<std::string> reasons;
  for (const result::Result& r : results) {
    if (r.status == Status::kFailed) reasons.insert(r.error);
  }
  return fmt::format("{}\n{} experiments were refused; all others are in the store", fmt::join(reasons, "\n"), refused);
}

// Drops what only a finding reads: a large sweep has more groups than findings describe, and they need not fit in
// memory.
void leave_numbers(result::Result& r) {
  std::erase_if(r.subject.settings, [](const result::Setting& s) {
    return !s.key.starts_with("workload.prefill_") && s.key != "score.benchmark";  // a part of the group
  });
  r.subject.settings.shrink_to_fit();
  r.experiment.effects = {};
  r.experiment.by_trace = {};
  r.alternatives = {};
}

// Prints the findings. A store with a part of the sweep has none that hold for the sweep.
void print_conclusions(const std::vector<store::Finding>& findings, const std::vector<plan::Unchanged>& unchanged,
                       std::size_t finished, std::size_t wanted) {
  if (finished < wanted) {
    fmt::print(
        "The sweep has {} experiments. Findings are printed once all of them are in one folder: `kvcast merge` joins "
        "the folders of the shards, and `kvcast report` makes a page of the joined one.\n",
        wanted);
    return;
  }
  for (const store::Finding& finding : findings) print_first(finding);
  for (const plan::Unchanged& u : unchanged) fmt::print("{}\n", plan::text_of(u));
}

}  // namespace

int conclude(store::Store& store, const config::Node& config, const std::string& dir) {
  std::vector<result::Result> results;
  plan::FirstGroups described;
  store.for_each([&](const store::Stored& stored) {
    results.push_back(stored.result);
    results.back().experiment.timeline.clear();
    if (!described.has(stored.result)) leave_numbers(results.back());
  });
  const std::vector<store::Finding> findings = plan::findings(results, plan::score_choice(config));
  const std::vector<plan::Unchanged> unchanged = plan::unchanged_by(results);
  std::vector<store::Finding> stored = findings;
  if (!unchanged.empty()) stored.push_back(plan::finding_of(unchanged));
  store.set_findings(stored);
  const auto count = [&results](Status status) {
    return std::count_if(results.begin(), results.end(), [status](const auto& r) { return r.status == status; });
  };
  fmt::print("{}: {} experiments, {} of them do not fit in memory{}\n", store.path(), results.size(),
             count(Status::kOom), misfits_text(results));
  print_conclusions(findings, unchanged, results.size(), store.shown().size());
  fmt::print("A page of these results: kvcast report {}\n", dir);
  if (const auto refused = count(Status::kFailed); refused > 0) throw UserError(refusals_text(results, refused));
  return 0;
}

}  // namespace kvcast::app

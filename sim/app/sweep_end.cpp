// The end of a sweep: findings, experiments that did not fit, experiments that were rejected.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <map>
#include <set>

#include "app/progress.hpp"
#include "app/service_finding.hpp"
#include "app/stored_replays.hpp"
#include "app/sweep.hpp"
#include "base/error.hpp"
#include "plan/best_batch.hpp"
#include "plan/findings.hpp"
#include "plan/unchanged.hpp"
#include "result/metric.hpp"

namespace kvcast::app {
namespace {

using result::Status;

constexpr const char* kMetaFits = "fits";  // how many experiments fit in memory, and what the others lack

// Prints one line: the finding of the first group, and the number of other groups.
void print_first(const store::Finding& finding) {
  const std::size_t end = std::min(finding.text.find('\n'), finding.text.size());
  const auto more = std::ranges::count(finding.text, '\n');
  fmt::print("{}: {}{}\n", finding.title, finding.text.substr(0, end),
             more == 0 ? "" : fmt::format(" ({} more in the report)", more));
}

// Names the owners of requests that did not fit, and how prompts that are prefilled whole could request less.
std::string misfits_text(const std::vector<result::Result>& results) {
  std::map<std::string, int> owners;
  std::set<std::string, std::greater<>> unset;  // keys that would split prompts, or prefill fewer of them at once
  for (const result::Result& r : results) {
    if (!r.experiment.oom) continue;
    const std::string& owner = r.experiment.oom->requested_for;
    for (const char* key : {"workload.prefill_chunk", "workload.prefill_batch"}) {
      if (graph::find_owner(owner) == graph::Owner::kActivations && r.subject.number(key).value_or(1) == 0)
        unset.insert(key);
    }
    ++owners[owner];
  }
  std::vector<std::string> parts;
  for (const auto& [owner, number] : owners) parts.push_back(fmt::format("{} for {}", number, owner));
  if (parts.empty()) return "";
  std::string text = fmt::format(" ({})", fmt::join(parts, ", "));
  if (unset.empty()) return text;
  const auto held = [&unset](const char* key, const char* what) { return unset.contains(key) ? what : ""; };
  return text + fmt::format("\nActivations are held for {}{}{}, unless {} {} set.",
                            held("workload.prefill_chunk", "whole prompts"), unset.size() == 2 ? " and for " : "",
                            held("workload.prefill_batch", "all prompts at once"), fmt::join(unset, " and "),
                            unset.size() == 2 ? "are" : "is");
}

// Lists each reason once.
std::string refusals_text(const std::vector<result::Result>& results, std::int64_t refused) {
  std::set<std::string> reasons;
  for (const result::Result& r : results) {
    if (r.status == Status::kFailed) reasons.insert(r.error);
  }
  return fmt::format("{}\n{} {} refused; all others are in the store", fmt::join(reasons, "\n"),
                     experiments_text(refused), refused == 1 ? "was" : "were");
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

// Searches the batches of settings that findings compare, with the replays of their rows.
class BatchSearch {
 public:
  // `points`: of the results, in the sweep. All arguments must outlive the object.
  BatchSearch(const config::Node& sweep, const std::vector<result::Result>& results,
              const std::vector<std::size_t>& points, const study::StudyOptions& study)
      : grid_(sweep), results_(results), points_(points), experiments_(study) {}

  std::vector<plan::BatchLine> operator()(const std::vector<const result::Result*>& rows) {
    std::vector<plan::BatchLine> lines;
    for (const result::Result* row : rows) {
      const config::Node run = grid_.point(points_[static_cast<std::size_t>(row - results_.data())]).config;
      lines.emplace_back(run, *result::find_metric("request.requests_per_s"), std::vector<plan::Target>(),
                         plan::most_sequences(run));
    }
    const LongWait wait(fmt::format("searching the best batches of {} settings", rows.size()));
    plan::search(lines, experiments_);
    return lines;
  }

 private:
  config::SweepGrid grid_;
  const std::vector<result::Result>& results_;
  const std::vector<std::size_t>& points_;
  plan::Experiments experiments_;
};

// Batches are compared at the best one of each setting; of services, which have none, the capacity is what counts.
std::vector<store::Finding> conclusions(const std::vector<result::Result>& results, const ServiceFinding& services,
                                        const config::Node& config, const plan::SearchBatches& search) {
  if (!services.any()) return plan::findings(results, plan::score_choice(config), search);
  const std::optional<store::Finding> capacity = services.finding();
  return capacity ? std::vector{*capacity} : std::vector<store::Finding>();
}

// Prints the findings, or how to get them from a part of the sweep. unchanged: a line for each key without effect.
void print_conclusions(const std::vector<store::Finding>& findings, const std::string& unchanged, std::size_t finished,
                       std::size_t wanted) {
  if (finished < wanted) {
    fmt::print(
        "The sweep has {} experiments. Findings are printed once all of them are in one folder: `kvcast merge` joins "
        "the folders of the shards, and `kvcast report` makes a page of the joined one.\n",
        wanted);
    return;
  }
  for (const store::Finding& finding : findings) print_first(finding);
  if (!unchanged.empty()) fmt::print("{}\n", unchanged);
}

// Prints what a complete sweep has in its store, without reading its rows; false if not all of that is there.
bool print_known(const store::Store& store, const std::string& dir) {
  const std::optional<std::string> fits = store.metadata(kMetaFits);
  if (!fits) return false;
  std::vector<store::Finding> findings = store.findings();
  std::string unchanged;
  if (findings.back().title == plan::finding_of({}).title) {
    unchanged = findings.back().text;
    findings.pop_back();
  }
  const std::size_t count = store.shown().size();
  fmt::print("{}: {}, {}\n", store.path(), experiments_text(static_cast<std::int64_t>(count)), *fits);
  print_conclusions(findings, unchanged, count, count);
  fmt::print("A page of these results: kvcast report {}\n", dir);
  return true;
}

}  // namespace

std::string experiments_text(std::int64_t count) {
  return fmt::format("{} experiment{}", count, count == 1 ? "" : "s");
}

int conclude(store::Store& store, const config::Node& config, const std::string& dir, study::StudyOptions study,
             bool known) {
  if (known && print_known(store, dir)) return 0;
  std::vector<result::Result> results;
  std::vector<std::size_t> points;  // of the results, in the sweep
  plan::FirstGroups described;
  ServiceFinding services;
  store.for_each([&](const store::Stored& stored) {
    results.push_back(stored.result);
    services.add(stored.result);
    points.push_back(static_cast<std::size_t>(stored.ordinal));
    results.back().experiment.timeline.clear();
    if (!described.has(stored.result)) leave_numbers(results.back());
  });
  // A part of the sweep, such as a shard, has no findings that hold for the sweep.
  const bool complete = results.size() >= store.shown().size();
  StoredReplays replays(store);
  study.replays = &replays, study.scores = study::Scores::kNone;
  BatchSearch search(config, results, points, study);
  const std::vector<store::Finding> findings =
      conclusions(results, services, config, complete ? plan::SearchBatches(std::ref(search)) : nullptr);
  const std::vector<plan::Unchanged> unchanged = plan::unchanged_by(results);
  const auto count = [&results](Status status) {
    return std::ranges::count_if(results, [status](const auto& r) { return r.status == status; });
  };
  const auto misfits = count(Status::kOom), refused = count(Status::kFailed);
  const std::string fits = misfits > 0
                               ? fmt::format("{} of them do not fit in memory{}", misfits, misfits_text(results))
                               : fmt::format("all {}fit in memory", refused > 0 ? "others " : "");
  std::vector<store::Finding> stored = findings;
  if (!unchanged.empty()) stored.push_back(plan::finding_of(unchanged));
  store.set_metadata(kMetaFits, fits);  // findings are known only together with it
  store.set_findings(complete ? stored : std::vector<store::Finding>());
  fmt::print("{}: {}, {}{}\n", store.path(), experiments_text(static_cast<std::int64_t>(results.size())),
             refused > 0 ? fmt::format("{} of them failed, ", refused) : "", fits);
  print_conclusions(findings, plan::finding_of(unchanged).text, results.size(), store.shown().size());
  fmt::print("A page of these results: kvcast report {}\n", dir);
  if (refused > 0) throw UserError(refusals_text(results, refused));
  return 0;
}

}  // namespace kvcast::app

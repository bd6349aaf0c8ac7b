// The end of a sweep: findings, experiments that did not fit, experiments that were rejected.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <map>
#include <set>

#include "app/progress.hpp"
#include "app/stored_replays.hpp"
#include "app/sweep.hpp"
#include "base/error.hpp"
#include "plan/best_batch.hpp"
#include "plan/experiments.hpp"
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

std::string refusals_text(const SweepRows& rows) {
  const std::int64_t refused = rows.count(Status::kFailed);
  return fmt::format("{}\n{} {} refused; all others are in the store", fmt::join(rows.refusals(), "\n"),
                     experiments_text(refused), refused == 1 ? "was" : "were");
}

// Searches the batches of settings that findings compare, with the replays of their rows.
class BatchSearch {
 public:
  // All arguments must outlive the object.
  BatchSearch(const config::Node& sweep, const SweepRows& rows, const study::StudyOptions& study)
      : grid_(sweep), rows_(rows), study_(study) {}

  std::vector<plan::BatchLine> operator()(const std::vector<const result::Result*>& settings) const {
    std::set<std::string> keys;
    for (const result::Result* setting : settings) keys.insert(setting->key);
    const std::map<std::string, std::size_t> points = rows_.points_of(keys);
    std::vector<plan::BatchLine> lines;
    for (const result::Result* setting : settings) {
      const config::Node run = grid_.point(points.at(setting->key)).config;
      lines.emplace_back(run, *result::find_metric("request.requests_per_s"), std::vector<plan::Target>(),
                         plan::most_sequences(run));
    }
    const LongWait wait(fmt::format("searching the best batches of {} settings", settings.size()));
    plan::Experiments experiments(study_);  // holds all of its results
    plan::search(lines, experiments);
    return lines;
  }

 private:
  config::SweepGrid grid_;
  const SweepRows& rows_;
  const study::StudyOptions& study_;
};

// Batches are compared at the best one of each setting; of services, which have none, the capacity is what counts.
std::vector<store::Finding> conclusions(SweepRows& rows, const plan::LoadResult& load, const config::Node& config,
                                        const plan::SearchBatches& search) {
  if (!rows.services().any())
    return plan::findings(rows.rows(), rows.texts(), load, plan::score_choice(config), search);
  const std::optional<store::Finding> capacity = rows.services().finding(plan::score_choice(config));
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

bool drop_damaged(store::Store& store) {
  const std::vector<std::string> damages = store.drop_damaged();
  for (const std::string& damage : damages) {
    fmt::print(stderr, "{}; the row is dropped, and its experiment runs again if it belongs to this sweep\n", damage);
  }
  return !damages.empty();
}

bool print_finished(const std::string& dir, const std::string& planned_from) {
  std::optional<store::Store> store;
  try {
    if (!store::Store::exists(dir)) return false;
    // As a sweep that is planned opens it.
    store.emplace(store::Store::open(dir, store::Store::Open::kCreate));
    if (store->metadata(kMetaPlannedFrom) != planned_from || !store->metadata(kMetaFits)) return false;
    if (store->findings().empty()) return false;
  } catch (const UserError&) {
    return false;  // planning comes first, and reports the mistakes that it finds
  }
  const std::string planned = fmt::format("{}", store->shown().size());
  const std::int64_t there = store->count(Status::kOk) + store->count(Status::kOom);
  try {
    store->machines();
  } catch (const UserError&) {
    return false;  // planning writes them again
  }
  if (store->metadata(store::kMetaPlanned) != planned || fmt::format("{}", there) != planned) return false;
  if (!store->was_sealed() && !store->seal_verified()) return false;  // planning drops what is damaged
  fmt::print(stderr, "{}, {} of them in the store already\n", experiments_text(there), there);
  return print_known(*store, dir);
}

int conclude(store::Store& store, const config::Node& config, const std::string& dir, study::StudyOptions study,
             SweepRows& rows, bool known) {
  if (known && print_known(store, dir)) return 0;
  rows.complete(store);
  const std::size_t planned = store.shown().size();
  // A part of the sweep, such as a shard, has no findings that hold for the sweep.
  const bool complete = rows.size() >= planned;
  StoredReplays replays(store);
  study.replays = &replays, study.scores = study::Scores::kNone;
  const BatchSearch search(config, rows, study);
  const plan::LoadResult load = [&](std::size_t index) { return rows.load(store, index); };
  const std::vector<store::Finding> findings =
      conclusions(rows, load, config, complete ? plan::SearchBatches(std::ref(search)) : nullptr);
  const std::vector<plan::Unchanged> unchanged = plan::unchanged_by(rows.swept(), rows.texts(), load);
  const auto misfits = rows.count(Status::kOom), refused = rows.count(Status::kFailed);
  const std::string fits = misfits > 0 ? fmt::format("{} of them do not fit in memory{}", misfits, rows.misfits_text())
                                       : fmt::format("all {}fit in memory", refused > 0 ? "others " : "");
  std::vector<store::Finding> stored = findings;
  if (!unchanged.empty()) stored.push_back(plan::finding_of(unchanged));
  store.set_metadata(kMetaFits, fits);  // findings are known only together with it
  store.set_findings(complete ? stored : std::vector<store::Finding>());
  fmt::print("{}: {}, {}{}\n", store.path(), experiments_text(static_cast<std::int64_t>(rows.size())),
             refused > 0 ? fmt::format("{} of them failed, ", refused) : "", fits);
  print_conclusions(findings, plan::finding_of(unchanged).text, rows.size(), planned);
  fmt::print("A page of these results: kvcast report {}\n", dir);
  if (refused > 0) throw UserError(refusals_text(rows));
  return 0;
}

}  // namespace kvcast::app

// kvcast sweep CONFIG -o DIR: the grid of a sweep into a store. Interrupted at any point, the same command goes on
// where it stopped.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <map>
#include <memory>
#include <set>

#include "app/commands.hpp"
#include "app/progress.hpp"
#include "app/scores.hpp"
#include "app/settings.hpp"
#include "app/stored_replays.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"
#include "plan/findings.hpp"
#include "plan/unchanged.hpp"
#include "store/store.hpp"
#include "study/study.hpp"

namespace kvcast::app {
namespace {

using result::Status;

struct Options {
  std::string config, dir, shard;
  std::vector<std::string> settings;
  int jobs = 0;
};

// Part i of n: i counts from 1 to n, or from 0 to n − 1 (0 and n are the same part).
struct Shard {
  std::int64_t index = 0, count = 1;
};

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

// Decode steps drawn in the report: enough to compare policies, few enough to keep the page small.
constexpr std::size_t kTimelines = 24;

std::vector<study::Point> points_of(const config::Node& config) {
  std::vector<study::Point> points;
  for (config::SweepPoint& p : config::expand_sweep(config))
    points.push_back({std::move(p.config), std::move(p.values), {}});
  return points;
}

class Sweep {
 public:
  Sweep(const Options& options, const config::Node& config)
      : config_(config),
        dir_(options.dir),
        jobs_(options.jobs > 0 ? options.jobs : hardware_threads()),
        plan_(points_of(config)),
        store_(store::Store::open(options.dir, store::Store::Open::kCreate)) {
    solve();
    for (const study::Task& task : plan_.tasks()) keys_.push_back(task.prepared.key);
    const Shard shard = parse_shard(options.shard);
    plan_.keep_shard(shard.index, shard.count);
  }

  int run() {
    describe();
    const auto total = static_cast<std::int64_t>(plan_.tasks().size());
    const auto there = static_cast<std::int64_t>(
        plan_.drop([this](const study::Task& task) { return store_.has(task.prepared.key); }));
    fmt::print(stderr, "{} experiments, {} of them in the store already\n", total, there);
    choose_timelines();
    {
      Progress progress("sweep", total, there);
      StoredReplays replays(store_);
      study::StudyOptions study;
      study.threads = jobs_, study.replays = &replays;
      ask_for_scores(study, study::Scores::kAll);
      study::run(plan_, study, [&](const study::Task& task, result::Result&& result) {
        store_.put(static_cast<std::int64_t>(task.index), result, study::code_version());
        progress.advance(1, fmt::format("{} on {}", result.subject.policy, result.subject.hardware));
      });
    }
    return finish();
  }

 private:
  // Budgets of runs with a `match:`, which keys depend on.
  void solve() {
    const auto wanted = std::count_if(plan_.tasks().begin(), plan_.tasks().end(),
                                      [](const study::Task& task) { return !task.is_solved(); });
    if (wanted == 0) return;
    fmt::print(stderr, "solving for the budgets of {} experiments\n", wanted);
    StoredReplays replays(store_);
    study::StudyOptions study;
    study.threads = jobs_, study.replays = &replays;
    plan_.solve(study);
    std::set<std::string> as_they_are;
    for (const study::Task& task : plan_.tasks()) {
      const auto& matched = task.prepared.matched;
      if (matched && matched->solved && !matched->budget) as_they_are.insert(task.prepared.policy->name);
    }
    for (const std::string& policy : as_they_are) {
      fmt::print(stderr, "match: {} has no budget to solve for and runs as it is\n", policy);
    }
  }

  void describe() {
    const auto text = [this](const char* key) {
      const config::Node* node = config_.find(key);
      return node == nullptr ? std::string() : node->text();
    };
    store_.set_metadata(store::kMetaName, text("name"));
    store_.set_metadata(store::kMetaDescription, text("description"));
    store_.set_metadata(store::kMetaConfig, config_.canonical());
    store_.set_metadata(store::kMetaPlanned, fmt::format("{}", keys_.size()));
    store_.set_findings({});  // those of an earlier sweep, or of the first part of this one
    store_.show(keys_);
    std::set<std::string> machines;
    for (const study::Task& task : plan_.tasks()) {
      const config::Hardware& hardware = task.prepared.run.hardware;
      if (machines.insert(hardware.name).second) store_.set_machine(hardware.name, study::machine_numbers(hardware));
    }
  }

  // One experiment for each policy, machine and model: the smallest batch, and there the longest context.
  void choose_timelines() {
    const auto rank = [](const study::Task& task) {
      const config::Workload& w = task.prepared.run.workload;
      return std::array<std::int64_t, 3>{w.batch, -w.prompt_tokens, static_cast<std::int64_t>(task.index)};
    };
    std::map<std::array<std::string, 3>, study::Task*> chosen;
    for (study::Task& task : plan_.tasks()) {
      const config::Run& run = task.prepared.run;
      study::Task*& best = chosen[{run.policy.name, run.hardware.name, run.model.name}];
      if (best == nullptr || rank(task) < rank(*best)) best = &task;
    }
    std::size_t timelines = 0;
    for (const auto& [name, task] : chosen) task->point.ask.timeline = timelines++ < kTimelines;
  }

  int finish() {
    std::vector<result::Result> results;
    store_.for_each([&results](const store::Stored& stored) {
      results.push_back(stored.result);
      results.back().experiment.timeline.clear();
    });
    const std::vector<store::Finding> findings = plan::findings(results, plan::score_choice(config_));
    const std::vector<plan::Unchanged> unchanged = plan::unchanged_by(results);
    std::vector<store::Finding> stored = findings;
    if (!unchanged.empty()) stored.push_back(plan::finding_of(unchanged));
    store_.set_findings(stored);
    const auto count = [&results](Status status) {
      return std::count_if(results.begin(), results.end(), [status](const auto& r) { return r.status == status; });
    };
    fmt::print("{}: {} experiments, {} of them do not fit in memory{}\n", store_.path(), results.size(),
               count(Status::kOom), misfits_text(results));
    for (const store::Finding& finding : findings) print_first(finding);
    for (const plan::Unchanged& u : unchanged) fmt::print("{}\n", plan::text_of(u));
    fmt::print("A page of these results: kvcast report {}\n", dir_);
    if (const auto refused = count(Status::kFailed); refused > 0) throw UserError(refusals_text(results, refused));
    return 0;
  }

  // One line: what was found at the first place that is compared, and at how many more.
  static void print_first(const store::Finding& finding) {
    const std::size_t end = std::min(finding.text.find('\n'), finding.text.size());
    const auto more = std::count(finding.text.begin(), finding.text.end(), '\n');
    fmt::print("{}: {}{}\n", finding.title, finding.text.substr(0, end),
               more == 0 ? "" : fmt::format(" ({} more in the report)", more));
  }

  // The owners of requests that did not fit, and how prompts that are prefilled whole could request less.
  static std::string misfits_text(const std::vector<result::Result>& results) {
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

  // Each reason once.
  static std::string refusals_text(const std::vector<result::Result>& results, std::int64_t refused) {
    std::set<std::string> reasons;
    for (const result::Result& r : results) {
      if (r.status == Status::kFailed) reasons.insert(r.error);
    }
    return fmt::format("{}\n{} experiments were refused; all others are in the store", fmt::join(reasons, "\n"),
                       refused);
  }

  const config::Node& config_;
  std::string dir_;
  int jobs_;
  study::Plan plan_;
  std::vector<std::string> keys_;  // of the whole sweep, in its order
  store::Store store_;
};

int sweep(const Options& options) {
  const config::Node config = load_with_settings(options.config, options.settings);
  refuse_overridden(config, options.settings);
  return Sweep(options, config).run();
}

}  // namespace

void add_sweep(CLI::App& app, int& result) {
  CLI::App* command =
      app.add_subcommand("sweep", "run a grid of experiments into DIR/results.sqlite; run again, it goes on");
  auto options = std::make_shared<Options>();
  command->add_option("CONFIG", options->config, "YAML of a run with a `sweep:` section")->required();
  command->add_option("-o,--out", options->dir, "folder of the results")->required();
  command->add_option("-j,--jobs", options->jobs, "worker threads (default: all cores)")->check(CLI::Range(1, 1024));
  command->add_option("--shard", options->shard, "do part i of n only: 1/4");
  command->add_option("--set", options->settings, "change a key of every experiment: workload.decode_tokens=64")
      ->allow_extra_args(false);
  command->callback([options, &result] { result = sweep(*options); });
}

}  // namespace kvcast::app

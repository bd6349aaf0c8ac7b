// kvcast sweep CONFIG -o DIR: runs the grid of a sweep into a store. After an interruption at any point, the same
// command resumes it.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>

#include "api/settings.hpp"
#include "app/commands.hpp"
#include "app/interrupt.hpp"
#include "app/planned_from.hpp"
#include "app/progress.hpp"
#include "app/scores.hpp"
#include "app/settings.hpp"
#include "app/stored_replays.hpp"
#include "app/sweep.hpp"
#include "base/error.hpp"
#include "base/parallel.hpp"
#include "config/steady.hpp"
#include "policy/parameters.hpp"
#include "store/store.hpp"
#include "study/shared_work.hpp"
#include "study/study.hpp"

namespace kvcast::app {
namespace {

// Part `index` of `count`; the first one is part 1. Numbered from 0, as job arrays are, part 0 is part `count`.
struct Shard {
  std::int64_t index = 1, count = 1;
};

Shard parse_shard(const std::string& text) {
  if (text.empty()) return {};
  Shard shard;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, shard.index);
  const bool slash = first.ec == std::errc() && first.ptr != end && *first.ptr == '/';
  const auto second = slash ? std::from_chars(first.ptr + 1, end, shard.count) : first;
  if (!slash || second.ec != std::errc() || second.ptr != end || shard.index < 0 || shard.index > shard.count ||
      shard.count < 1) {
    throw UserError({"--shard", 1, 1},
                    fmt::format("{} is not i/n with i from 1 to n, such as 1/4, or from 0 to n - 1", text));
  }
  if (shard.index == 0) shard.index = shard.count;
  return shard;
}

// Decode steps drawn in the report: enough to compare policies, few enough to keep the page small.
constexpr std::size_t kTimelines = 24;
// Prepared experiments in memory at once: each takes some 50 kB.
constexpr std::size_t kPart = 2048;

// Solves the budgets of runs with a `match:`, which keys depend on; true if there were any.
bool solve(study::Study& plan, const study::StudyOptions& study) {
  const auto is_open = [](const study::Task& task) { return !task.is_solved(); };
  if (std::ranges::none_of(plan.tasks(), is_open)) return false;
  const auto budgets = std::ranges::count_if(
      plan.tasks(), [&](const study::Task& task) { return is_open(task) && !task.prepared.policy->uncompressed(); });
  fmt::print(stderr, "solving for the budgets of {}\n", experiments_text(budgets));
  plan.solve(study);
  std::set<std::string> as_they_are;
  for (const study::Task& task : plan.tasks()) {
    const auto& matched = task.prepared.matched;
    if (matched && matched->solved && !matched->budget) as_they_are.insert(task.prepared.policy->name);
  }
  for (const std::string& policy : as_they_are) {
    fmt::print(stderr, "match: {} has no budget to solve for and runs as it is\n", policy);
  }
  return true;
}

std::vector<std::size_t> numbers(std::size_t begin, std::size_t end) {
  std::vector<std::size_t> list(end - begin);
  std::iota(list.begin(), list.end(), begin);
  return list;
}

int threads_of(const SweepOptions& options) { return options.jobs > 0 ? options.jobs : hardware_threads(); }

// Plans the first experiments. Says how to write a sweep in which some policies lack a parameter that it sets for all.
study::Study first_part(SweepPoints& points, const config::Node& config) {
  try {
    return points.plan(numbers(0, std::min(kPart, points.size())));
  } catch (const policy::UnknownParameter& error) {
    const config::Node* const sweep = config.find("sweep");
    const bool several = sweep != nullptr && sweep->find("policy") != nullptr;
    if (!several) throw;
    throw UserError(fmt::format("{}; policies with different parameters go into `cases:` of the sweep (docs/guide.md)",
                                error.what()));
  }
}

// The experiments of a sweep that have to be run. Plans are made part by part, twice if a sweep has several parts:
// first to inspect all experiments, then to run them.
class Sweep {
 public:
  // planned_from: of the configuration, before the plan is made.
  Sweep(const SweepOptions& options, const config::Node& config, std::optional<std::string> planned_from,
        const Cancel& cancel)
      : options_(options),
        config_(config),
        planned_from_(std::move(planned_from)),
        shard_(parse_shard(options.shard)),
        points_(config, cancel, threads_of(options)),
        part_(first_part(points_, config)),
        store_(store::Store::open(options.dir, store::Store::Open::kCreate)),
        replays_(store_),
        study_(sweep_study(options)) {
    study_.replays = &replays_, study_.shared = &shared_, study_.cancel = cancel;
  }

  int run(const RunPlan& run_plan) {
    drop_damaged(store_);
    look();
    tell_of_others();
    describe();
    fmt::print(stderr, "{}, {} of them in the store already\n", experiments_text(total_), there_);
    choose_timelines();
    {
      Progress progress("sweep", total_, there_);
      const study::Finished finished = [&](const study::Task& task, result::Result&& result) {
        const auto ordinal = static_cast<std::int64_t>(task.index);
        if (keep([&] { return store_.put(ordinal, result, study::code_version()); })) rows_.add(ordinal, result);
        progress.advance(1, fmt::format("{} on {}", result.subject.policy, result.subject.hardware));
      };
      run_pending(run_plan, finished);
    }
    study_.cancel.check();  // a plan that other processes run ends early instead
    if (shard_.count > 1) fmt::print("This is shard {} of {}.\n", shard_.index, shard_.count);
    part_.drop([](const study::Task&) { return true; });  // memory
    const int code = conclude(store_, config_, options_.dir, study_, rows_, is_concluded_);
    if (planned_from_ && !has_notes_ && shard_.count == 1) {
      store_.set_metadata(kMetaPlannedFrom, *planned_from_);
      store_.seal_verified();
    }
    return code;
  }

 private:
  // An experiment of the shard without a result.
  struct Pending {
    std::size_t trace, replays;  // numbers of its first trace and of its replays: equal ones share work
    std::size_t index;
    auto operator<=>(const Pending&) const = default;
  };

  void look() {
    for (std::size_t begin = 0; begin < points_.size(); begin += kPart) {
      if (begin > 0) take(numbers(begin, std::min(begin + kPart, points_.size())));
      has_notes_ = solve(part_, study_) || has_notes_;
      for (const study::Task& task : part_.tasks()) look_at(task);
    }
    std::ranges::sort(pending_);
    std::ranges::sort(keys_);
  }

  // Frees the current part before the next one is made.
  void take(const std::vector<std::size_t>& indices) {
    part_.drop([](const study::Task&) { return true; });
    part_ = points_.plan(indices);
  }

  void look_at(const study::Task& task) {
    const study::Prepared& prepared = task.prepared;
    keys_.push_back(prepared.key);
    const std::size_t replays = replay_numbers_.emplace(prepared.replays, replay_numbers_.size()).first->second;
    const std::optional<std::int64_t> ordinal = store_.ordinal_of(prepared.key);
    if (ordinal && std::cmp_not_equal(*ordinal, task.index)) moved_.emplace_back(prepared.key, task.index);
    if (static_cast<std::int64_t>(replays) % shard_.count != shard_.index % shard_.count) return;
    ++total_;
    const config::Run& run = prepared.run;
    if (machines_.insert(run.hardware.name).second) {
      numbers_.emplace_back(run.hardware.name, run.hardware);
      if (const std::string note = config::unpriced_text(run); !note.empty()) {
        fmt::print(stderr, "{}\n", note);
        has_notes_ = true;
      }
    }
    if (ordinal) {
      ++there_;
      return;
    }
    const std::size_t trace =
        trace_numbers_.emplace(prepared.traces.front().trace, trace_numbers_.size()).first->second;
    pending_.push_back({trace, replays, task.index});
    const Rank rank{run.workload.batch, -run.workload.prompt_tokens, static_cast<std::int64_t>(task.index)};
    const auto [best, fresh] = drawn_.try_emplace({run.policy.name, run.hardware.name, run.model.name}, rank);
    if (!fresh) best->second = std::min(best->second, rank);
  }

  void run_pending(const RunPlan& run_plan, const study::Finished& finished) {
    if (points_.size() <= kPart) {
      std::set<std::size_t> wanted;
      for (const Pending& p : pending_) wanted.insert(p.index);
      part_.drop([&wanted](const study::Task& task) { return wanted.count(task.index) == 0; });
      return run_part(part_, run_plan, finished);
    }
    for (std::size_t begin = 0; begin < pending_.size(); begin += kPart) {
      std::vector<std::size_t> indices;
      for (std::size_t i = begin; i < std::min(begin + kPart, pending_.size()); ++i) {
        indices.push_back(pending_[i].index);
      }
      take(indices);
      part_.solve(study_);
      run_part(part_, run_plan, finished);
    }
  }

  void run_part(study::Study& plan, const RunPlan& run_plan, const study::Finished& finished) const {
    for (study::Task& task : plan.tasks()) task.point.ask.timeline = timelines_.count(task.index) > 0;
    run_plan(plan, study_, finished);
  }

  // Reports that the store contains rows of an earlier sweep, which are kept but no longer shown.
  void tell_of_others() const {
    const auto shown = store_.keys();
    const auto others =
        std::ranges::count_if(shown, [this](const auto& k) { return !std::ranges::binary_search(keys_, k); });
    if (others == 0) return;
    const std::string name = store_.metadata(store::kMetaName).value_or("");
    fmt::print(stderr,
               "{} has {} results of another sweep{} or of another version of kvcast; they stay in the file, and "
               "reports no longer show them\n",
               store_.path(), others, name.empty() ? "" : fmt::format(" (name \"{}\")", name));
  }

  // Damaged findings are written anew.
  bool has_findings() const {
    try {
      return !store_.findings().empty();
    } catch (const UserError& error) {
      fmt::print(stderr, "{}\n", error.what());
      return false;
    }
  }

  void describe() {
    const auto text = [this](const char* key) {
      const config::Node* node = config_.find(key);
      return node == nullptr ? std::string() : node->text();
    };
    is_concluded_ = there_ == total_ && has_findings() && store_.shown() == keys_ &&
                    store_.metadata(store::kMetaConfig) == config_.in_order();
    store_.set_metadata(store::kMetaName, text("name"));
    store_.set_metadata(store::kMetaDescription, text("description"));
    store_.set_metadata(store::kMetaConfig, config_.in_order());
    store_.set_metadata(store::kMetaPlanned, fmt::format("{}", keys_.size()));
    store_.set_metadata(kMetaPlannedFrom, "");
    if (!is_concluded_) store_.set_findings({});  // those of an earlier sweep, or of the first part of this one
    store_.move(moved_);
    store_.show(keys_);
    for (const auto& [name, hardware] : numbers_) store_.set_machine(name, study::machine_numbers(hardware));
  }

  // Chooses one experiment for each policy, machine and model: the smallest batch, and there the longest context.
  void choose_timelines() {
    for (const auto& [name, rank] : drawn_) {
      if (timelines_.size() < kTimelines) timelines_.insert(static_cast<std::size_t>(rank.back()));
    }
  }

  using Rank = std::array<std::int64_t, 3>;
  const SweepOptions& options_;
  const config::Node& config_;
  std::optional<std::string> planned_from_;
  Shard shard_;
  SweepPoints points_;
  study::Study part_;  // the current part
  store::Store store_;
  StoredReplays replays_;
  study::StudyOptions study_;
  study::SharedWork shared_;
  SweepRows rows_;                      // of the results of this process
  std::vector<std::string> keys_;       // of the whole sweep, in alphabetical order
  bool has_notes_ = false;              // the plan prints more than its size
  bool is_concluded_ = false;           // the store has all results and their findings
  std::int64_t total_ = 0, there_ = 0;  // experiments of the shard, and those with a result
  std::vector<Pending> pending_;
  std::vector<std::pair<std::string, std::int64_t>> moved_;  // keys whose rows have another place in an earlier sweep
  std::unordered_map<std::string, std::size_t> replay_numbers_, trace_numbers_;
  std::set<std::string> machines_;
  std::vector<std::pair<std::string, config::Hardware>> numbers_;
  std::map<std::array<std::string, 3>, Rank> drawn_;  // candidates for timelines
  std::set<std::size_t> timelines_;
};

}  // namespace

study::Study SweepPoints::plan(std::span<const std::size_t> indices, study::Preparer& preparer) {
  const config::SteadyFiles steady;
  std::vector<study::Point> points;
  for (const std::size_t i : indices) {
    config::SweepPoint point = grid_.point(i);
    points.push_back({std::move(point.config), std::move(point.values), {}});
  }
  return {std::move(points), {indices.begin(), indices.end()}, preparer};
}

study::Study SweepPoints::plan(const std::vector<std::size_t>& indices) {
  const std::size_t each = (indices.size() + preparers_.size() - 1) / preparers_.size();
  std::vector<std::optional<study::Study>> parts(preparers_.size());
  std::vector<std::exception_ptr> failures(parts.size());  // whichever thread is first, the first point's is reported
  parallel_for(parts.size(), static_cast<int>(parts.size()), [&](std::size_t i) {
    const std::size_t begin = std::min(i * each, indices.size());
    try {
      parts[i] = plan(std::span(indices).subspan(begin, std::min(each, indices.size() - begin)), preparers_[i]);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    std::ranges::move(parts[i]->tasks(), std::back_inserter(parts.front()->tasks()));
  }
  return std::move(*parts.front());
}

config::Node sweep_config(const SweepOptions& options) {
  config::Node config = load_with_settings(options.config, options.settings);
  api::refuse_overridden(config, options.settings);
  return config;
}

study::StudyOptions sweep_study(const SweepOptions& options) {
  study::StudyOptions study;
  study.threads = threads_of(options);
  ask_for_scores(study, study::Scores::kAll);
  return study;
}

int sweep(const SweepOptions& options, const RunPlan& run_plan) {
  const config::Node config = sweep_config(options);
  std::optional<std::string> known = planned_from(config);
  if (known && options.shard.empty() && print_finished(options.dir, *known)) return 0;
  const Stop stop(fmt::format(". The same command resumes; finished experiments are in {}.", options.dir));
  try {
    return Sweep(options, config, std::move(known), stop.cancel()).run(run_plan);
  } catch (const Cancelled&) {
    return stop.code();
  }
}

int sweep(const SweepOptions& options) { return sweep(options, study::run); }

void add_sweep_options(CLI::App& command, SweepOptions& options) {
  command.add_option("CONFIG", options.config, "YAML of a run with a `sweep:` section")->required();
  command.add_option("-o,--out", options.dir, "folder of the results")->required()->check(has_text());
  command.add_option("-j,--jobs", options.jobs, "worker threads (default: all cores)")->check(CLI::Range(1, 1024));
  add_settings(command, options.settings, "change a key of every experiment: workload.decode_tokens=64");
}

void add_sweep(CLI::App& app, int& result) {
  CLI::App* command =
      app.add_subcommand("sweep", "run a grid of experiments into DIR/results.sqlite; the same command resumes it");
  auto options = std::make_shared<SweepOptions>();
  add_sweep_options(*command, *options);
  command->add_option(
      "--shard", options->shard,
      "run only part i of n, such as 1/4 (0/n is the same part as n/n); `kvcast merge` joins the parts");
  command->callback([options, &result] { result = sweep(*options); });
}

}  // namespace kvcast::app

#include "study/study.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

#include "base/parallel.hpp"
#include "replay/schedule.hpp"
#include "score/task_score.hpp"
#include "study/match.hpp"
#include "study/replays_in_memory.hpp"
#include "study/scoring.hpp"
#include "study/shared_work.hpp"
#include "study/simulation.hpp"

namespace kvcast::study {
namespace {

// Floats of a layer's keys, 384 MB: 96 K tokens of eight heads.
constexpr std::int64_t kShortLayer = std::int64_t{3} << 25;

// Points that one policy replays on the same traces. Traces are worked through one after the other, and a trace has one
// replay of a policy: so only one thread at a time changes a group.
struct PointGroup {
  std::vector<const Task*> tasks;
  Replays replays;  // on the traces, null until made
  bool refused = false;

  const Prepared& prepared() const { return tasks.front()->prepared; }
  bool is_complete() const {
    return std::ranges::none_of(replays, [](const auto& r) { return r == nullptr; });
  }
};

// One replay, and the groups that wait for it as the replay of their trace number `trace`.
struct ReplayGroup {
  struct Waiting {
    PointGroup* group;
    std::size_t trace;
  };
  std::vector<Waiting> waiting;

  bool is_wanted() const {
    return std::ranges::any_of(waiting, [](const Waiting& w) { return !w.group->refused; });
  }
  const TraceKeys& keys() const { return waiting.front().group->prepared().traces[waiting.front().trace]; }
};

result::Result refused(const Task& task, const std::string& why) {
  result::Result result;
  result.key = task.prepared.key;
  result.subject = subject_of(task.prepared);
  result.subject.swept = task.point.swept;
  result.status = result::Status::kFailed;
  result.error = why;
  return result;
}

// The replays over one trace and the experiments over these. Layers are made one at a time and replayed by all
// policies, unless one of them surveys all layers.
class TraceGroup final : public replay::TraceWork {
 public:
  TraceGroup(const StudyOptions& options, const score::ScoreModel& scores, const Finished& finished,
             trace::LayerStorage& spare)
      : options_(options), scores_(scores), finished_(finished), spare_(spare) {}

  void add(PointGroup& group, std::size_t trace) {
    const auto [at, fresh] = by_key_.try_emplace(group.prepared().traces[trace].replay, groups_.size());
    if (fresh) groups_.emplace_back();
    groups_[at->second].waiting.push_back({&group, trace});
  }

  std::size_t replays() const override { return groups_.size(); }

  // The trace is made only if a replay over it is requested and is not in the cache.
  bool open(int threads) override {
    if (opened_) return parts_ && parts_->next(threads);
    opened_ = true;
    kept_.resize(groups_.size()), runs_.resize(groups_.size());
    bool together = false;
    int missing = 0;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      if (!groups_[i].is_wanted()) continue;
      if (options_.replays != nullptr) kept_[i] = options_.replays->get(groups_[i].keys().replay);
      if (kept_[i]) continue;
      ++missing;
      const auto& [group, trace] = groups_[i].waiting.front();
      const Prepared& prepared = group->prepared();
      together = together || prepared.made->surveys(lengths_of(prepared.run, prepared.run.traces[trace]));
    }
    if (missing == 0) return true;
    const auto& [group, trace] = groups_.front().waiting.front();
    const config::Run& run = group->prepared().run;
    trace_ = make_trace(run, run.traces[trace]);
    // Few policies leave threads idle that short layers, which take little memory, keep busy.
    const trace::TraceInfo& info = trace_->info();
    together = together || (missing < threads && info.positions() * info.n_kv_heads * info.head_dim <= kShortLayer);
    parts_.emplace(*trace_, together, run.model.cache, options_.cancel, spare_);
    return parts_->next(threads);
  }

  void replay(std::size_t i, int threads) override {
    const ReplayGroup& of_trace = groups_[i];
    if (!of_trace.is_wanted()) return;
    if (!kept_[i]) replay_part(i, threads);
    if (parts_ && !parts_->is_last()) return;
    const auto replayed = replayed_by(i);
    for (const auto& [group, trace] : of_trace.waiting) group->replays[trace] = replayed;
    for (const auto& [group, trace] : of_trace.waiting) simulate_if_complete(*group, threads);
  }

  // Only a replay shows whether a trace has what the policy needs: the message names the policy's location.
  void refuse(std::size_t i, const UserError& why) override {
    for (const auto& [group, trace] : groups_[i].waiting) {
      if (group->refused) continue;
      group->refused = true;
      group->replays.clear();
      const config::Run& run = group->prepared().run;
      const std::string on = run.traces.size() > 1 ? trace_name(run.traces[trace]) : "";
      for (const Task* task : group->tasks) {
        finished_(*task, refused(*task, refusal_of(task->prepared.run.policy, why, on).what()));
      }
    }
  }

  void close() override { runs_.clear(), parts_.reset(), trace_.reset(), kept_.clear(); }

 private:
  // A replay with the layers so far.
  struct Running {
    std::unique_ptr<policy::Policy> policy;
    replay::Replay replay;
  };

  void replay_part(std::size_t i, int threads) {
    if (runs_[i] == nullptr) {
      const auto& [group, trace] = groups_[i].waiting.front();
      const config::Run& run = group->prepared().run;
      auto policy = make_policy(group->prepared(), trace);
      replay::Replay begun(trace_->info(), *policy, {.request = lengths_of(run, run.traces[trace])});
      runs_[i] = std::make_unique<Running>(Running{std::move(policy), std::move(begun)});
    }
    runs_[i]->replay.add(parts_->layers(), threads);
  }

  std::shared_ptr<const Replayed> replayed_by(std::size_t i) {
    const auto& [group, trace] = groups_[i].waiting.front();
    const Prepared& prepared = group->prepared();
    std::unique_ptr<policy::Policy> policy;
    replay::ReplayResult replayed;
    if (kept_[i]) {
      policy = make_policy(prepared, trace);
      replayed = std::move(*kept_[i]);
    } else {
      policy = std::move(runs_[i]->policy);
      replayed = runs_[i]->replay.result();
      if (options_.replays != nullptr) options_.replays->put(groups_[i].keys().replay, replayed);
    }
    const bool rounds = prepared.run.model.cache != config::Precision::kBf16 || prepared.needs.rounds;
    return std::make_shared<const Replayed>(std::move(policy), std::move(replayed), scores_, rounds);
  }

  // A group is simulated by the call that completes it, which then frees its replays.
  void simulate_if_complete(PointGroup& group, int threads) {
    if (group.refused || group.replays.empty() || !group.is_complete()) return;
    const Replays replays = std::move(group.replays);
    group.replays.clear();
    const int each = std::max(1, threads / static_cast<int>(group.tasks.size()));
    parallel_for(group.tasks.size(), threads,
                 [&](std::size_t t) { finished_(*group.tasks[t], simulated(*group.tasks[t], replays, each)); });
  }

  result::Result simulated(const Task& task, const Replays& replays, int threads) const {
    try {
      return result_of(task, replays, *options_.shared, options_.cancel, threads);
    } catch (const UserError& why) {
      return refused(task, why.located() ? why.what() : refusal_of(task.prepared.run.policy, why).what());
    }
  }

  const StudyOptions& options_;
  const score::ScoreModel& scores_;
  const Finished& finished_;
  std::vector<ReplayGroup> groups_;
  std::map<std::string, std::size_t> by_key_;
  trace::LayerStorage& spare_;  // memory for the layers
  bool opened_ = false;
  std::vector<std::optional<replay::ReplayResult>> kept_;
  std::unique_ptr<trace::Trace> trace_;
  std::optional<replay::LayerParts> parts_;  // none if all replays are kept
  std::vector<std::unique_ptr<Running>> runs_;
};

// All work on traces: the traces of one point are consecutive.
class TraceList {
 public:
  TraceList(const StudyOptions& options, const score::ScoreModel& scores, const Finished& finished)
      : options_(options), scores_(scores), finished_(finished) {}

  void add(const Task& task) {
    PointGroup& group = points_[task.prepared.replays];
    group.tasks.push_back(&task);
    if (group.tasks.size() > 1) return;
    group.replays.resize(task.prepared.traces.size());
    for (std::size_t i = 0; i < task.prepared.traces.size(); ++i) {
      TraceGroup*& trace = by_key_[task.prepared.traces[i].trace];
      if (trace == nullptr) {
        auto made = std::make_unique<TraceGroup>(options_, scores_, finished_, spare_);
        trace = made.get();
        work_.push_back(std::move(made));
      }
      trace->add(group, i);
    }
  }

  const std::vector<std::unique_ptr<replay::TraceWork>>& work() const { return work_; }

 private:
  const StudyOptions& options_;
  const score::ScoreModel& scores_;
  const Finished& finished_;
  std::map<std::string, PointGroup> points_;  // by their replays
  std::map<std::string, TraceGroup*> by_key_;
  trace::LayerStorage spare_;
  std::vector<std::unique_ptr<replay::TraceWork>> work_;
};

std::vector<std::size_t> numbers_below(std::size_t n) {
  std::vector<std::size_t> numbers(n);
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  return numbers;
}

}  // namespace

Study::Study(std::vector<Point> points, const Cancel& cancel) {
  Preparer preparer(cancel);
  const std::vector<std::size_t> numbers = numbers_below(points.size());
  *this = Study(std::move(points), numbers, preparer);
}

Study::Study(std::vector<Point> points, const std::vector<std::size_t>& indices, Preparer& preparer) {
  KVCAST_CHECK(points.size() == indices.size());
  tasks_.reserve(points.size());
  for (Point& point : points) {
    Prepared prepared = preparer.prepare(point.config);
    tasks_.push_back({indices[tasks_.size()], std::move(point), std::move(prepared), {}});
  }
}

void Study::solve(const StudyOptions& options) { study::solve(tasks_, options); }

bool Study::is_solved() const {
  return std::ranges::all_of(tasks_, [](const Task& task) { return task.is_solved(); });
}

std::size_t Study::drop(const std::function<bool(const Task&)>& is_finished) {
  return std::erase_if(tasks_, is_finished);
}

namespace {

void run_solved(const Study& plan, StudyOptions options, const Finished& hand_over) {
  SharedWork own;
  if (options.shared == nullptr) options.shared = &own;
  const score::ScoreModel scores;
  const Scoring scoring(scores, plan, options);
  const Finished finished = [&](const Task& task, result::Result&& result) {
    scoring.fill(task, result);
    hand_over(task, std::move(result));
  };
  TraceList traces(options, scores, finished);
  for (const Task& task : plan.tasks()) {
    KVCAST_CHECK(task.is_solved());
    if (!task.refused.empty()) {
      finished(task, refused(task, task.refused));
    } else if (task.point.ask.index_heads > 0) {
      finished(task, build_index(task));
    } else {
      traces.add(task);
    }
  }
  replay::run_replays(traces.work(), replay::ThreadUse::kReplays, options.threads, options.cancel);
}

}  // namespace

void run(const Study& plan, const StudyOptions& options, const Finished& hand_over) {
  options.admit(plan);
  if (plan.is_solved()) return run_solved(plan, options, hand_over);
  Study solved = plan;
  ReplaysInMemory replays;  // otherwise the replays of the solutions would be made twice
  StudyOptions with_cache = options;
  if (with_cache.replays == nullptr) with_cache.replays = &replays;
  solved.solve(with_cache);
  run_solved(solved, with_cache, hand_over);
}

std::vector<result::Result> run_all(std::vector<Point> points, const StudyOptions& options,
                                    const std::function<void(const Task&)>& advance) {
  const Study plan(std::move(points), options.cancel);
  std::vector<result::Result> results(plan.tasks().size());
  run(plan, options, [&](const Task& task, result::Result&& result) {
    if (result.status == result::Status::kFailed) throw UserError(result.error);
    results[task.index] = std::move(result);
    if (advance) advance(task);
  });
  return results;
}

}  // namespace kvcast::study

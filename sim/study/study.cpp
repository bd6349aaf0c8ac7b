#include "study/study.hpp"

#include <algorithm>
#include <map>
#include <memory>

#include "base/parallel.hpp"
#include "score/task_score.hpp"
#include "study/replays.hpp"
#include "study/simulation.hpp"

namespace kvcast::study {
namespace {

// Tasks that one replay serves.
struct ReplayGroup {
  std::vector<const Task*> tasks;
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

// The replays over one trace and the experiments over these.
class TraceGroup final : public TraceWork {
 public:
  TraceGroup(const StudyOptions& options, const score::ScoreModel& scores, const Finished& finished)
      : options_(options), scores_(scores), finished_(finished) {}

  void add(const Task& task) {
    const auto [at, fresh] = by_key_.try_emplace(task.prepared.replay_key, groups_.size());
    if (fresh) groups_.emplace_back();
    groups_[at->second].tasks.push_back(&task);
  }

  std::size_t replays() const override { return groups_.size(); }

  // The trace is made only if a replay over it is not in the cache.
  void open(int threads) override {
    kept_.resize(groups_.size());
    bool all_there = options_.replays != nullptr;
    for (std::size_t i = 0; i < groups_.size() && options_.replays != nullptr; ++i) {
      kept_[i] = options_.replays->get(groups_[i].tasks.front()->prepared.replay_key);
      all_there = all_there && kept_[i].has_value();
    }
    if (all_there) return;
    trace_ = make_trace(groups_.front().tasks.front()->prepared.run);
    layers_ = replay::prepare(*trace_, threads);
  }

  void replay(std::size_t i, int threads) override {
    const ReplayGroup& group = groups_[i];
    const auto policy = make_policy(group.tasks.front()->prepared);
    replay::ReplayResult replayed = replayed_by(i, *policy);
    const Replayed experiments(*policy, replayed, scores_);
    parallel_for(group.tasks.size(), threads, [&](std::size_t t) {
      if (!options_.stop.stop_requested()) finished_(*group.tasks[t], experiments.simulate(*group.tasks[t]));
    });
  }

  // Only a replay shows whether a trace has what the policy needs: the message names the policy's place.
  void refuse(std::size_t i, const UserError& why) override {
    for (const Task* task : groups_[i].tasks) {
      finished_(*task, refused(*task, UserError(task->prepared.run.policy.where, why.what()).what()));
    }
  }

  void close() override { layers_.clear(), trace_.reset(), kept_.clear(); }

 private:
  replay::ReplayResult replayed_by(std::size_t i, policy::Policy& policy) {
    if (kept_[i]) return std::move(*kept_[i]);
    replay::ReplayResult replayed = replay::replay(layers_, policy, {});
    if (options_.replays != nullptr) {
      options_.replays->put(groups_[i].tasks.front()->prepared.replay_key, replayed);
    }
    return replayed;
  }

  const StudyOptions& options_;
  const score::ScoreModel& scores_;
  const Finished& finished_;
  std::vector<ReplayGroup> groups_;
  std::map<std::string, std::size_t> by_key_;
  std::vector<std::optional<replay::ReplayResult>> kept_;
  std::unique_ptr<trace::Trace> trace_;
  std::vector<std::unique_ptr<replay::Oracle>> layers_;
};

}  // namespace

Plan::Plan(std::vector<Point> points) {
  Preparer preparer;
  tasks_.reserve(points.size());
  for (Point& point : points) {
    Prepared prepared = preparer.prepare(point.config);
    tasks_.push_back({tasks_.size(), std::move(point), std::move(prepared)});
  }
}

void Plan::keep_shard(std::int64_t index, std::int64_t count) {
  std::map<std::string, std::int64_t> numbers;  // of replays, over the whole study
  std::erase_if(tasks_, [&](const Task& task) {
    const auto next = static_cast<std::int64_t>(numbers.size());
    return numbers.emplace(task.prepared.replay_key, next).first->second % count != index;
  });
}

std::size_t Plan::drop(const std::function<bool(const Task&)>& is_finished) {
  return std::erase_if(tasks_, is_finished);
}

void run(const Plan& plan, const StudyOptions& options, const Finished& finished) {
  const score::ScoreModel scores;
  std::vector<std::unique_ptr<TraceWork>> traces;
  std::map<std::string, TraceGroup*> by_key;
  for (const Task& task : plan.tasks()) {
    if (task.point.ask.index_heads > 0) {
      finished(task, build_index(task));
      continue;
    }
    TraceGroup*& group = by_key[task.prepared.trace_key];
    if (group == nullptr) {
      auto made = std::make_unique<TraceGroup>(options, scores, finished);
      group = made.get();
      traces.push_back(std::move(made));
    }
    group->add(task);
  }
  run_replays(traces, Spread::kReplays, options.threads, options.stop);
}

std::vector<result::Result> run_all(std::vector<Point> points, const StudyOptions& options,
                                    const std::function<void(const Task&)>& advance) {
  const Plan plan(std::move(points));
  std::vector<result::Result> results(plan.tasks().size());
  run(plan, options, [&](const Task& task, result::Result&& result) {
    if (result.status == result::Status::kFailed) throw UserError(result.error);
    results[task.index] = std::move(result);
    if (advance) advance(task);
  });
  return results;
}

}  // namespace kvcast::study

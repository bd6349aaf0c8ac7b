// The only way to run experiments: points in, results out.
//
// A plan groups the points by trace, by replay, by lowered work and by machine, so that each of these is made once: a
// trace serves many policies, a replay serves many batches and machines, and lowered work is re-timed on every machine.
// A point whose run has several traces is replayed on each of them, simulated once the last of these replays is made,
// and its results are combined into one (study/combine.hpp). Its traces are processed one after the other, so that
// replays do not wait for long. Results are reported as they are finished. An experiment that one of its traces or its
// policy rejects is a result as well (Status::kFailed), and the others continue.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/cancel.hpp"
#include "replay/replay.hpp"
#include "result/result.hpp"
#include "study/point.hpp"
#include "study/prepare.hpp"

namespace kvcast::study {

// One experiment of a study.
struct Task {
  std::size_t index = 0;  // of its point
  Point point;
  Prepared prepared;
  std::string refused;  // why its `match:` cannot be solved; empty if it can, or has been

  // Returns whether it can be simulated or has been refused.
  bool is_solved() const { return !refused.empty() || !prepared.matched || prepared.matched->solved; }
};

class SharedWork;
struct StudyOptions;

class Study {
 public:
  // Prepares every point: a mistake anywhere is found before any work is done. Throws UserError and Cancelled as
  // Preparer::prepare().
  explicit Study(std::vector<Point> points, const Cancel& cancel = {});
  // Prepares part of a larger study: indices[i] is the number of points[i] there. Parts may share a preparer.
  Study(std::vector<Point> points, const std::vector<std::size_t>& indices, Preparer& preparer);

  // In the order of the points.
  const std::vector<Task>& tasks() const { return tasks_; }
  std::vector<Task>& tasks() { return tasks_; }

  // Solves the runs with a `match:` for their budgets (study/match.hpp), which changes their keys. run() does so for
  // those that have not been solved, without changing the study.
  void solve(const StudyOptions& options);
  bool is_solved() const;

  // Removes tasks and returns how many there were.
  std::size_t drop(const std::function<bool(const Task&)>& is_finished);

 private:
  std::vector<Task> tasks_;
};

// A cache of replays between studies. Called from several threads.
class ReplayCache {
 public:
  virtual ~ReplayCache() = default;
  virtual std::optional<replay::ReplayResult> get(const std::string& key) = 0;
  virtual void put(const std::string& key, const replay::ReplayResult& replayed) = 0;
};

// The benchmark scores that a study makes. `score: none` in a run is always respected.
enum class Scores {
  kNone,
  kAtHand,  // those that a run's `score:` requests, and those that are known without a replay
  kAll
};

struct StudyOptions {
  int threads = 1;
  Scores scores = Scores::kNone;
  std::string score_replays;  // the cache file of their replays; empty: none
  std::function<void(std::int64_t done, std::int64_t total)> score_advance = [](std::int64_t, std::int64_t) {};
  ReplayCache* replays = nullptr;  // none: replays are made anew
  SharedWork* shared = nullptr;    // between studies; may be null
  Cancel cancel;
  // Called with each study before any of its work is done; what it throws ends the study (study/needs.hpp).
  std::function<void(const Study&)> admit = [](const Study&) {};
};

// Called from several threads, in any order. The task is solved.
using Finished = std::function<void(const Task&, result::Result&&)>;

// Runs all tasks. Throws Cancelled within a second of the request; results that were handed over before are valid.
void run(const Study& plan, const StudyOptions& options, const Finished& finished);

// Returns the results in the order of the points. A refused experiment throws UserError here.
std::vector<result::Result> run_all(std::vector<Point> points, const StudyOptions& options,
                                    const std::function<void(const Task&)>& advance = {});

}  // namespace kvcast::study

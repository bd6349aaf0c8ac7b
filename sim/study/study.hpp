// The one way to run experiments: points in, results out.
//
// A plan groups the points by trace, by replay, by lowered work and by machine, so that each of these is made once: a
// trace serves many policies, a replay serves many batches and machines, and lowered work is re-timed on every machine.
// Results are handed over as they are finished. An experiment that its trace or policy refuses is a result as well
// (Status::kFailed), and the others go on.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "replay/replay.hpp"
#include "result/result.hpp"
#include "study/point.hpp"
#include "study/prepare.hpp"

namespace kvcast::study {

// One experiment of a plan.
struct Task {
  std::size_t index = 0;  // of its point
  Point point;
  Prepared prepared;
};

class Plan {
 public:
  // Prepares every point: a mistake anywhere is found before any work is done. UserError as Preparer::prepare().
  explicit Plan(std::vector<Point> points);

  // In the order of the points.
  const std::vector<Task>& tasks() const { return tasks_; }
  std::vector<Task>& tasks() { return tasks_; }

  // Keeps part `index` of `count` of the tasks; those of one replay stay together.
  void keep_shard(std::int64_t index, std::int64_t count);
  // Removes tasks and returns how many there were.
  std::size_t drop(const std::function<bool(const Task&)>& is_finished);

 private:
  std::vector<Task> tasks_;
};

// Where replays are kept between studies. Called from several threads.
class ReplayCache {
 public:
  virtual ~ReplayCache() = default;
  virtual std::optional<replay::ReplayResult> get(const std::string& key) = 0;
  virtual void put(const std::string& key, const replay::ReplayResult& replayed) = 0;
};

struct StudyOptions {
  int threads = 1;
  ReplayCache* replays = nullptr;  // none: replays are made anew
  std::stop_token stop;            // once requested, no further experiment is begun
};

// Called from several threads, in any order.
using Finished = std::function<void(const Task&, result::Result&&)>;

void run(const Plan& plan, const StudyOptions& options, const Finished& finished);

// The results in the order of the points. A refused experiment is a UserError here.
std::vector<result::Result> run_all(std::vector<Point> points, const StudyOptions& options,
                                    const std::function<void(const Task&)>& advance = {});

}  // namespace kvcast::study

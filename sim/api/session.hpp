// JSON in, JSON out: runs, sweeps, plans and replays for the commands, the planner's page and the Python package. Below
// this header only the contents of files that have not changed are kept between two calls.
#pragma once

#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/kept_replays.hpp"
#include "plan/admit.hpp"
#include "plan/question.hpp"
#include "report/assets.hpp"
#include "study/needs.hpp"
#include "study/shared_work.hpp"
#include "study/study.hpp"

namespace kvcast::api {

struct SessionOptions {
  std::string data;  // folder of configs/, reports/ and traces/; empty: as data_dir() finds it
  // Options of every call, except `cancel` and `admit`. Without `replays` those used last are kept in memory.
  study::StudyOptions study;
  std::string replay_folder;  // where replays are kept for later sessions of this version; empty: nowhere
  study::Scores sweep_scores = study::Scores::kAtHand;
  study::NeedLimits budget;  // of each call
};

// One request to a session.
struct Call {
  Cancel cancel;
  // Takes the lines of an answer as they are made, from several threads.
  std::function<void(const nlohmann::json&)> line = [](const nlohmann::json&) {};
  std::optional<std::size_t> timeline;  // the point whose spans of a decode step are kept
  bool nominal = false;                 // of a sweep: no intervals of times
};

// An experiment that was run.
struct SimulatedTask {
  study::Task task;  // as simulated, with the budget that a `match:` was solved for
  result::Result result;
  std::optional<plan::Admission> nearest;  // of one that does not fit: a change with which it does
};

// result::to_json() with
//   machine_changes   [{key, value, base, follows, rule}]: numbers of the machine that the run sets, and those that
//                     follow from them
//   origins          every number of the machine with its origin, uncertainty and source
//   oom.nearest       {change, fit}, where there is one
nlohmann::json to_json(const study::Task& task, const result::Result& result);
nlohmann::json to_json(const SimulatedTask& outcome);
// The answer's data with kind, question, text, details and runs.
nlohmann::json to_json(const plan::Answer& answer);

// Owns what lives longer than a call: the data folder, the replays, the parts of pages, and the version that keys its
// results. Sessions share nothing; calls of one session may run at the same time. All throw UserError, Cancelled,
// OutputError and BrokenInvariant.
class Session {
 public:
  explicit Session(SessionOptions options);

  // Hash of the code: results with the same key and version are equal.
  const std::string& version() const;

  // Runs one experiment.
  SimulatedTask run(study::Point point, const Call& call, const std::function<void(const study::Study&)>& before = {});
  // Runs the grid of a sweep. Lines: {index, swept, result} in order of completion, the result being that of a run;
  // {index, nearest} for those that do not fit, a sentence on what would; {progress: {what, done, of}}, `what` being
  // `replays`, if some have to be made, or `replays for scores`; {done: experiments}. `finished`, if given, takes the
  // results themselves.
  void sweep(const config::Node& config, const Call& call, const study::Finished& finished = {});
  // Answers the questions of a plan. Lines: {index, answer, spec}, `spec` a Vega specification or null; {progress};
  // {done: answers}.
  void plan(const config::Node& config, const Call& call);

  // The charts of results as a report has them: [{name, title, caption, spec}], each a Vega 5 specification with its
  // data.
  nlohmann::json charts(const std::vector<SimulatedTask>& outcomes);
  const report::Assets& assets();  // without Vega

  const std::string& data() const { return data_; }

 private:
  study::StudyOptions study_options(const Call& call);

  std::string data_;
  study::StudyOptions study_;
  study::Scores sweep_scores_;
  study::NeedLimits budget_;
  KeptReplays replays_;
  study::SharedWork shared_;
  std::mutex assets_mutex_;
  std::optional<report::Assets> assets_;
};

}  // namespace kvcast::api

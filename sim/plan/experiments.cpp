#include "plan/experiments.hpp"

#include <mutex>

#include "study/needs.hpp"
#include "study/replays_in_memory.hpp"

namespace kvcast::plan {

Experiments::Experiments(study::StudyOptions options, Finished finished)
    : options_(std::move(options)),
      finished_(std::move(finished)),
      own_replays_(std::make_unique<study::ReplaysInMemory>()),
      own_shared_(std::make_unique<study::SharedWork>()) {
  if (options_.replays == nullptr) options_.replays = own_replays_.get();
  if (options_.shared == nullptr) options_.shared = own_shared_.get();
}

void Experiments::want_scores(bool wanted) { options_.scores = wanted ? study::Scores::kAll : study::Scores::kAtHand; }

std::string Experiments::key_of(const config::Node& run) const {
  return run.canonical() + (options_.scores == study::Scores::kAll ? " with score" : "");
}

void Experiments::simulate(const std::vector<config::Node>& runs) {
  std::vector<study::Point> points;
  for (const config::Node& run : runs) {
    study::Point& point = points.emplace_back();
    point.config = run;
    point.ask.fit_effects = true;
  }
  const study::Study plan(std::move(points));
  std::mutex mutex;
  study::run(plan, options_, [&](const study::Task& task, result::Result&& result) {
    const std::lock_guard lock(mutex);
    if (finished_) finished_(task, result);
    results_[key_of(task.point.config)] = std::make_shared<const result::Result>(std::move(result));
  });
}

std::vector<ResultPtr> Experiments::run(const std::vector<config::Node>& runs) {
  std::vector<config::Node> missing;
  std::set<std::string> asked;
  for (const config::Node& run : runs) {
    const std::string key = key_of(run);
    requested_.insert(key);
    if (!results_.contains(key) && asked.insert(key).second) missing.push_back(run);
  }
  if (!missing.empty()) {
    try {
      simulate(missing);
    } catch (const study::OverBudget&) {
      throw;
    } catch (const UserError&) {
      // One of them is rejected before anything runs: run each by itself, so that the others have their results.
      for (const config::Node& run : missing) {
        try {
          simulate({run});
        } catch (const UserError& error) {
          result::Result refused;
          refused.status = result::Status::kFailed;
          refused.error = error.what();
          results_[key_of(run)] = std::make_shared<const result::Result>(std::move(refused));
        }
      }
    }
  }
  std::vector<ResultPtr> out;
  for (const config::Node& run : runs) {
    const auto found = results_.find(key_of(run));
    if (found == results_.end()) throw UserError("the plan was stopped before all of its experiments had been run");
    out.push_back(found->second);
  }
  return out;
}

std::vector<ResultPtr> Experiments::take_requested() {
  std::vector<ResultPtr> results;
  for (const std::string& key : requested_) results.push_back(results_.at(key));
  requested_.clear();
  return results;
}

}  // namespace kvcast::plan

// The experiments behind the answers of a plan. Each configuration is simulated once, however many questions need it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "config/yaml.hpp"
#include "result/result.hpp"
#include "study/shared_work.hpp"
#include "study/study.hpp"

namespace kvcast::plan {

using ResultPtr = std::shared_ptr<const result::Result>;

class Experiments {
 public:
  // Called with each new result, in order of completion.
  using Finished = std::function<void(const study::Task&, const result::Result&)>;
  // What `options` has no place for, replays and shared work, is kept in memory.
  explicit Experiments(study::StudyOptions options, Finished finished = {});

  // Results in the order of the runs. A rejected run has Status::kFailed and the reason.
  std::vector<ResultPtr> run(const std::vector<config::Node>& runs);
  ResultPtr run(const config::Node& run) { return this->run(std::vector{run}).front(); }

  // Selects whether results from now on have predicted benchmark scores, or only those that are known without a replay.
  void want_scores(bool wanted);

  // Results of the experiments that were requested since the last call, each once.
  std::vector<ResultPtr> take_requested();

 private:
  void simulate(const std::vector<config::Node>& runs);
  std::string key_of(const config::Node& run) const;

  study::StudyOptions options_;
  Finished finished_;
  std::unique_ptr<study::ReplayCache> own_replays_;
  std::unique_ptr<study::SharedWork> own_shared_;
  std::map<std::string, ResultPtr> results_;  // by canonical configuration, separately with and without scores
  std::set<std::string> requested_;
};

}  // namespace kvcast::plan

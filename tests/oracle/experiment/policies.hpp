// Experiments of every registered policy, small enough to simulate in slow ways.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/find.hpp"
#include "config/hardware.hpp"
#include "property/policies/settings.hpp"
#include "replay/replay.hpp"
#include "simulate/experiment.hpp"
#include "support/select.hpp"

namespace kvcast::tests {

struct Case {
  std::string name;
  config::Run run;
  std::unique_ptr<policy::Policy> policy;
  replay::ReplayResult replay;
  simulate::ExperimentInput input() const { return {&run, policy.get(), &replay}; }
};

// All policies over one random trace of a small model, two of whose eight layers are captured.
class Cases {
 public:
  Cases(const std::string& machine, config::Framework::Launch launch);
  const std::vector<std::unique_ptr<Case>>& all() const { return cases_; }

 private:
  Profiles profiles_;
  std::vector<std::unique_ptr<Case>> cases_;
};

}  // namespace kvcast::tests

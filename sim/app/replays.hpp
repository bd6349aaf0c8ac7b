// The layers of one trace, loaded once and replayed under many policies.
#pragma once

#include <memory>
#include <vector>

#include "policy/policy.hpp"
#include "replay/replay.hpp"
#include "trace/trace.hpp"

namespace kvcast::app {

class ReplaySet {
 public:
  // Loads all captured layers and works out full attention over them. The trace must outlive the set.
  ReplaySet(const trace::Trace& trace, int threads);
  // Safe to call from several threads at once.
  replay::ReplayResult replay(policy::Policy& policy, const replay::ReplayOptions& options) const;

 private:
  std::vector<std::unique_ptr<replay::Oracle>> layers_;
};

}  // namespace kvcast::app

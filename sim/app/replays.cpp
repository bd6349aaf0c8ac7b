#include "app/replays.hpp"

namespace kvcast::app {

ReplaySet::ReplaySet(const trace::Trace& trace, int threads) : layers_(replay::prepare(trace, threads)) {}

replay::ReplayResult ReplaySet::replay(policy::Policy& policy, const replay::ReplayOptions& options) const {
  return replay::replay(layers_, policy, options);
}

}  // namespace kvcast::app

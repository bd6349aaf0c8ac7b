// The experiments of maps: needles at depths, and layers and heads that differ.
#pragma once

#include <string>

#include "store/store.hpp"

namespace kvcast::browser_test {

// Evicting results lose a needle in the first half of the text; layer l and head h attend to 100 l + 10 h tokens.
// result_of(full, context) makes a result of full KV, or of a policy that evicts.
template <class ResultOf>
void write_maps(store::Store& store, ResultOf result_of) {
  int ordinal = 0;
  for (const bool full : {true, false}) {
    for (const double context : {16384.0, 32768.0}) {
      for (const double depth : {0.0, 0.5, 1.0}) {
        result::Result r = result_of(full, context);
        r.key += std::to_string(depth);
        r.subject.settings.push_back({"trace.depth", depth});
        r.subject.swept = {{"policy", r.subject.policy}, {"trace.depth", std::to_string(depth)}};
        r.accuracy.task.emplace().share_of_full = !full && depth < 0.75 ? 0.25 : 1;
        for (int layer = 1; layer <= 4; ++layer)
          r.accuracy.layers.push_back({layer, {100.0 * layer, 100.0 * layer + 10}, {50, 60}, {0.5, 0.75}});
        store.put(ordinal++, r, "fixture");
      }
    }
  }
}

}  // namespace kvcast::browser_test

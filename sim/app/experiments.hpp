// Many experiments at once, for what compares them: each trace is made once, each policy replayed once over it.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "config/yaml.hpp"
#include "workload/record.hpp"

namespace kvcast::app {

struct Wanted {
  config::Node config;    // of a run
  int largest_batch = 0;  // above 0: at the largest batch up to this one that fits in memory, 1 where none does
  int index_heads = 0;    // above 0: the record is that of building the index of so many KV heads, workload/index_build
  SourceLocation index_heads_at;
  bool shifted = false;     // with its times under costs that are off
  workload::Phases phases;  // which of them
};

// The record of each as `kvcast run --json` prints it, in order, with the resolved configuration under `config` and,
// under `shifted` where asked for, its times with costs longer and shorter (workload/effects.hpp). UserError as
// prepare().
std::vector<nlohmann::json> run_experiments(const std::vector<Wanted>& wanted);

}  // namespace kvcast::app

// A sweep into a store: run by `kvcast sweep` in one process and by `kvcast-mpi` in many.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "app/sweep_rows.hpp"
#include "config/sweep.hpp"
#include "store/store.hpp"
#include "study/study.hpp"

namespace kvcast::app {

struct SweepOptions {
  std::string config, dir, shard;  // shard: "i/n", or empty for all
  std::vector<std::string> settings;
  int jobs = 0;  // threads; 0: all cores
};

// Runs the tasks of a plan as study::run does. Called for one part of the sweep after the other.
using RunPlan = std::function<void(const study::Study&, const study::StudyOptions&, const study::Finished&)>;

// Runs the whole sweep from its file to its findings. Returns the exit code. Throws UserError if the file is wrong or
// experiments were rejected.
int sweep(const SweepOptions& options, const RunPlan& run_plan);
int sweep(const SweepOptions& options);  // in this process

// Returns the file of a sweep with its settings. Throws UserError for a setting that the sweep overrides everywhere.
config::Node sweep_config(const SweepOptions& options);
// Returns the options of its study, except the store and the stop.
study::StudyOptions sweep_study(const SweepOptions& options);

// Plans of any points of a sweep, by their indices. Equal files and programs give equal plans in every process.
class SweepPoints {
 public:
  explicit SweepPoints(const config::Node& config, const Cancel& cancel = {}, int threads = 1)
      : grid_(config, cancel), preparers_(static_cast<std::size_t>(threads), study::Preparer(cancel)) {}
  std::size_t size() const { return grid_.size(); }
  study::Study plan(const std::vector<std::size_t>& indices);

 private:
  study::Study plan(std::span<const std::size_t> indices, study::Preparer& preparer);
  config::SweepGrid grid_;
  std::vector<study::Preparer> preparers_;  // one per thread
};

// Adds the options shared by `kvcast sweep` and `kvcast-mpi sweep`.
void add_sweep_options(CLI::App& command, SweepOptions& options);

// Metadata of a store: planned_from() of the sweep that is complete in it; empty if none is.
inline constexpr const char* kMetaPlannedFrom = "planned_from";

// Drops rows that are not as they were written, and names them; true if there were any.
bool drop_damaged(store::Store& store);

// Prints the end of a sweep that is complete in the folder and was planned from the same, without planning it; false if
// it is not, and nothing but the names of dropped rows has been printed.
bool print_finished(const std::string& dir, const std::string& planned_from);

// "1 experiment", "2 experiments".
std::string experiments_text(std::int64_t count);

// Writes the findings of a sweep and prints them; for a complete sweep, searches the batches that they compare. rows:
// those of this process; others are read from the store. known: its findings are in the store already. Returns the exit
// code. Throws UserError if experiments were rejected.
int conclude(store::Store& store, const config::Node& config, const std::string& dir, study::StudyOptions study,
             SweepRows& rows, bool known = false);

}  // namespace kvcast::app

// The executable `kvcast-mpi`: `kvcast sweep` over the processes of an MPI job, on one machine or on many.
//
// Rank 0 owns the store. It hands out groups of experiments (those that share their replays), the most expensive first;
// the other ranks run them as `kvcast sweep` would and send rows back. Each row is stored before the next message is
// read, so a rank that dies costs at most its running experiments, and the same command resumes the sweep.
#include <fmt/format.h>

#include <algorithm>
#include <boost/mpi.hpp>
#include <boost/serialization/string.hpp>
#include <boost/serialization/vector.hpp>
#include <chrono>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/exit.hpp"
#include "app/interrupt.hpp"
#include "app/sweep.hpp"
#include "base/build.hpp"
#include "base/error.hpp"
#include "store/row.hpp"
#include "study/shared_work.hpp"

namespace kvcast::app {
namespace {

namespace mpi = boost::mpi;
using nlohmann::json;

constexpr int kOwner = 0;
constexpr int kToOwner = 1, kToWorker = 2;  // tags of messages
// Messages to the owner are CBOR maps with the member "kind".
constexpr const char *kReady = "ready", *kResult = "result", *kReplay = "replay";

std::string packed(const json& message) {
  const std::vector<std::uint8_t> bytes = json::to_cbor(message);
  return {bytes.begin(), bytes.end()};
}

// Estimates the cost of a group, to an order of magnitude because only the order of groups depends on it: queries of
// the replays times their tokens, and the experiments over them.
double expected_cost(const std::vector<const study::Task*>& group) {
  constexpr double kExperiment = 1e6;
  const config::Run& run = group.front()->prepared.run;
  double queries = 0;
  for (const config::TraceChoice& trace : run.traces) queries += static_cast<double>(trace.layers) * trace.steps;
  return queries * static_cast<double>(run.workload.prompt_tokens) + kExperiment * static_cast<double>(group.size());
}

// Rank 0: the owner of the store.
class Owner {
 public:
  explicit Owner(mpi::communicator& world) : world_(world) {}

  // Makes the workers run a plan, as study::run does.
  void run(const study::Study& plan, const study::StudyOptions& study, const study::Finished& finished) {
    std::vector<std::vector<const study::Task*>> groups;
    std::map<std::string, std::size_t> places;  // indices of groups by their replays
    tasks_.clear();
    for (const study::Task& task : plan.tasks()) {
      tasks_.emplace(task.index, &task);
      const auto [at, fresh] = places.try_emplace(task.prepared.replays, groups.size());
      if (fresh) groups.emplace_back();
      groups[at->second].push_back(&task);
    }
    std::ranges::stable_sort(groups, [](const auto& a, const auto& b) { return expected_cost(a) > expected_cost(b); });
    std::size_t next = 0;
    for (;;) {
      const bool more = next < groups.size() && !study.cancel.requested();
      if (more && !idle_.empty()) {
        hand_out(groups[next++]);
      } else if (more || busy_ > 0) {
        receive(study, finished);
      } else {
        return;
      }
    }
  }

  // Ends the workers, which wait for more work.
  void end(const study::StudyOptions& study) {
    const int workers = world_.size() - 1;
    while (static_cast<int>(idle_.size()) < workers) receive(study, {});
    for (const int worker : idle_) world_.send(worker, kToWorker, std::vector<std::int64_t>());
  }

 private:
  // Sends the number of each task, and whether its timeline is drawn.
  void hand_out(const std::vector<const study::Task*>& tasks) {
    std::vector<std::int64_t> group;
    for (const study::Task* task : tasks) {
      group.push_back(static_cast<std::int64_t>(task->index));
      group.push_back(task->point.ask.timeline ? 1 : 0);
    }
    world_.send(idle_.back(), kToWorker, group);
    idle_.pop_back();
    ++busy_;
  }

  // Receives one message, or waits a little: MPI itself would poll continuously.
  void receive(const study::StudyOptions& study, const study::Finished& finished) {
    const auto waiting = world_.iprobe(mpi::any_source, kToOwner);
    if (!waiting) return std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::string bytes;
    world_.recv(waiting->source(), kToOwner, bytes);
    const json message = json::from_cbor(bytes);
    const std::string kind = message.at("kind");
    if (kind == kReady) {
      if (message.at("worked").get<bool>()) --busy_;
      idle_.push_back(waiting->source());
    } else if (kind == kResult) {
      const study::Task& task = *tasks_.at(message.at("index").get<std::size_t>());
      result::Result result = store::result_of(store::row_of_json(message.at("row")));
      if (result.key != task.prepared.key) {
        throw UserError(
            fmt::format("rank {} has another program, sweep file or configs/ than rank 0; give all nodes the same",
                        waiting->source()));
      }
      finished(task, std::move(result));
    } else {
      const auto replayed = replay::replay_from_json(json::parse(message.at("replay").get<std::string>()));
      study.replays->put(message.at("key"), replayed);
    }
  }

  mpi::communicator& world_;
  std::map<std::size_t, const study::Task*> tasks_;  // of the current plan, by index
  std::vector<int> idle_;                            // workers that wait
  int busy_ = 0;
};

// Any other rank. Its replays are sent to the owner's store, where later sweeps find them.
class Worker final : public study::ReplayCache {
 public:
  Worker(mpi::communicator& world, const SweepOptions& options)
      : world_(world), study_(sweep_study(options)), points_(sweep_config(options)) {
    study_.replays = this, study_.shared = &shared_;
    study_.score_advance = [](std::int64_t, std::int64_t) {};
  }

  void run() {
    for (bool worked = false;; worked = true) {
      send({{"kind", kReady}, {"worked", worked}});
      std::vector<std::int64_t> group;
      world_.recv(kOwner, kToWorker, group);
      if (group.empty()) return;
      study::run(plan(group), study_, [this](const study::Task& task, result::Result&& result) {
        send({{"kind", kResult}, {"index", task.index}, {"row", store::row_json(store::row_of(result))}});
      });
    }
  }

  std::optional<replay::ReplayResult> get(const std::string&) override { return {}; }
  void put(const std::string& key, const replay::ReplayResult& replayed) override {
    send({{"kind", kReplay}, {"key", key}, {"replay", replay::to_json(replayed).dump()}});
  }

 private:
  study::Study plan(const std::vector<std::int64_t>& group) {
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < group.size(); i += 2) indices.push_back(static_cast<std::size_t>(group[i]));
    study::Study plan = points_.plan(indices);
    plan.solve(study_);
    for (std::size_t i = 0; i < indices.size(); ++i) plan.tasks()[i].point.ask.timeline = group[2 * i + 1] != 0;
    return plan;
  }

  // May be called from any thread.
  void send(const json& message) {
    const std::lock_guard lock(mutex_);
    world_.send(kOwner, kToOwner, packed(message));
  }

  mpi::communicator& world_;
  study::StudyOptions study_;
  study::SharedWork shared_;
  SweepPoints points_;
  std::mutex mutex_;
};

int sweep_on(mpi::communicator& world, const SweepOptions& options) {
  if (world.size() == 1) return sweep(options);
  if (world.rank() != kOwner) {
    Worker(world, options).run();
    return 0;
  }
  Owner owner(world);
  const int code = sweep(options, [&owner](const auto&... arguments) { owner.run(arguments...); });
  owner.end({});
  return code;
}

int run(int argc, char** argv, mpi::communicator& world) {
  CLI::App app{
      "kvcast-mpi runs a sweep over the processes of an MPI job: mpirun -n 16 kvcast-mpi sweep CONFIG -o DIR\n"
      "Rank 0 keeps the results and computes nothing; all other commands are those of kvcast.",
      "kvcast-mpi"};
  app.set_version_flag("--version", version());
  app.require_subcommand(1);
  SweepOptions options;
  add_sweep_options(*app.add_subcommand("sweep", "the same as `kvcast sweep`, on all ranks"), options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (world.rank() != kOwner) return 0;
    return app.exit(error) == 0 ? 0 : kInputIsWrong;
  }
  return sweep_on(world, options);
}

}  // namespace
}  // namespace kvcast::app

int main(int argc, char** argv) {
  kvcast::app::prepare_standard_streams();
  boost::mpi::environment environment(argc, argv, boost::mpi::threading::serialized);
  kvcast::app::end_cleanly_on_signals();
  boost::mpi::communicator world;
  bool ended = false;
  const int code = kvcast::app::exit_code_of([&] {
    const int result = kvcast::app::run(argc, argv, world);
    ended = true;
    return result;
  });
  // The other ranks may be waiting for one that failed.
  if (!ended && world.size() > 1) boost::mpi::environment::abort(code);
  return code;
}

#include "app/experiments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "app/prepare.hpp"
#include "app/progress.hpp"
#include "app/replays.hpp"
#include "base/parallel.hpp"
#include "hardware/cost_model.hpp"
#include "workload/experiment.hpp"
#include "workload/index_build.hpp"
#include "workload/memory_interval.hpp"
#include "workload/record.hpp"

namespace kvcast::app {
namespace {

using nlohmann::json;

struct Task {
  std::size_t index = 0;
  const Wanted* wanted = nullptr;
  Prepared prepared;
};

// Tasks by replay, and those by trace.
using Replays = std::map<std::string, std::vector<Task>>;
using Traces = std::map<std::string, Replays>;

json with_batch(const Task& task, const replay::ReplayResult& replayed, int batch, bool probe,
                const hardware::Shift& shift = {}) {
  config::Node config = task.wanted->config;
  const auto set = [&config](const char* key, int value) {
    config = config.with(key, config::Node::scalar(std::to_string(value), config.where()));
  };
  set("workload.batch", batch);
  if (probe) {
    // Whether it fits is decided in the prefill or at the ends of decoding; how long a step takes is not asked.
    set("framework.warmup_steps", 0);
    set("framework.measured_steps", 1);
    set("framework.sampled_contexts", 2);
  }
  const Prepared prepared = prepare(config);
  const auto policy = make_policy(prepared);
  const workload::ExperimentInput input{&prepared.run, policy.get(), &replayed};
  workload::ExperimentOptions options;
  options.shift = shift;
  const bool detailed = !probe && shift.source.empty() && task.wanted->shifted;
  if (detailed) options.effects = workload::Effects::kDetailed;
  const workload::Experiment experiment = workload::run_experiment(input, options);
  json record = workload::to_json(experiment, input);
  if (detailed) {
    record["shifted"] = workload::shifted_json(experiment, task.wanted->phases);
    record["shifted"].push_back(workload::shifted_memory(experiment));
  }
  record["config"] = json::parse(resolved_json(prepared));
  return record;
}

// The largest batch from `fits` to `limit` that fits in memory; `fits` is taken to.
template <class Fits>
int largest_batch(int fits, int limit, const Fits& fits_at) {
  while (fits < limit) {
    const int middle = fits + (limit - fits + 1) / 2;
    if (fits_at(middle)) {
      fits = middle;
    } else {
      limit = middle - 1;
    }
  }
  return fits;
}

// The largest batch where memory is off, starting from the one where it is not: at least 1.
template <class Fits>
int batch_when_off(int batch, int limit, double sign, const Fits& fits_at) {
  if (sign > 0) return fits_at(batch) ? batch : largest_batch(1, std::max(1, batch - 1), fits_at);
  return batch < limit && fits_at(batch + 1) ? largest_batch(batch + 1, limit, fits_at) : batch;
}

constexpr std::array kMemorySources = {hardware::kDeviceMemory, hardware::kHostMemory, workload::kTemporaries};

// Whether it fits may be off as well: with less memory or more activations ("longer") where it does, with the opposite
// where it does not. One entry for all of these, since it fits or not.
void add_fits_when_off(json& record, const Task& task, const replay::ReplayResult& replayed, int batch) {
  const bool fits = record["oom"].is_null();
  json entry = {{"source", "memory"}, {"longer", json::object()}, {"shorter", json::object()}};
  for (const char* source : kMemorySources) {
    const json other = with_batch(task, replayed, batch, true, {source, fits ? 1.0 : -1.0});
    if (other["oom"].is_null() == fits) continue;
    entry[fits ? "longer" : "shorter"]["oom"] = other["oom"];
    record["shifted"].push_back(std::move(entry));
    return;
  }
}

// The record at the largest batch. Where less memory or more activations ("longer"), or the opposite, make another
// batch the largest, `shifted` has the whole record at that one.
json at_largest_batch(const Task& task, const replay::ReplayResult& replayed) {
  const auto fits = [&task, &replayed](const hardware::Shift& shift) {
    return [&task, &replayed, shift](int b) { return with_batch(task, replayed, b, true, shift)["oom"].is_null(); };
  };
  const int limit = task.wanted->largest_batch, batch = largest_batch(1, limit, fits({}));
  json record = with_batch(task, replayed, batch, false);
  if (!task.wanted->shifted) return record;
  if (!record["oom"].is_null()) {
    if (task.wanted->phases.fits) add_fits_when_off(record, task, replayed, batch);
    return record;
  }
  for (const char* source : kMemorySources) {
    json found = {{"source", source}, {"longer", json::object()}, {"shorter", json::object()}};
    json& list = record["shifted"];
    const auto known = std::find_if(list.begin(), list.end(), [&](const json& e) { return e["source"] == source; });
    json& entry = known != list.end() ? *known : found;
    bool other_batch = false;
    for (const auto& [which, sign] : {std::pair("longer", 1.0), std::pair("shorter", -1.0)}) {
      const hardware::Shift shift{source, sign};
      const int other = batch_when_off(batch, limit, sign, fits(shift));
      if (other == batch) continue;
      entry[which] = with_batch(task, replayed, other, false, shift);
      other_batch = true;
    }
    if (known == list.end() && other_batch) list.push_back(std::move(found));
  }
  return record;
}

json run_task(const Task& task, const replay::ReplayResult& replayed) {
  if (task.wanted->largest_batch > 0) return at_largest_batch(task, replayed);
  const int batch = task.prepared.run.workload.batch;
  json record = with_batch(task, replayed, batch, false);
  if (task.wanted->shifted && task.wanted->phases.fits) add_fits_when_off(record, task, replayed, batch);
  return record;
}

// Needs no replay: what is built follows from the policy's parameters and the prompt's length.
json build_alone(const Prepared& prepared, const Wanted& wanted) {
  const int heads = prepared.run.model.n_kv_heads;
  if (wanted.index_heads > heads) {
    throw UserError(wanted.index_heads_at, fmt::format("index_heads: the model has {} KV heads", heads));
  }
  const auto policy = make_policy(prepared);
  const workload::IndexBuild build = workload::build_index(prepared.run, *policy, wanted.index_heads, wanted.shifted);
  json record = workload::to_json(build);
  if (wanted.shifted) record["shifted"] = workload::shifted_json(build);
  record["config"] = json::parse(resolved_json(prepared));
  return record;
}

}  // namespace

std::vector<json> run_experiments(const std::vector<Wanted>& wanted) {
  Traces traces;
  std::vector<json> records(wanted.size());
  std::int64_t replayed_runs = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    Prepared prepared = prepare(wanted[i].config);
    if (wanted[i].index_heads > 0) {
      records[i] = build_alone(prepared, wanted[i]);
      continue;
    }
    Replays& replays = traces[prepared.trace_key];
    std::vector<Task>& tasks = replays[prepared.replay_key];
    tasks.push_back({i, &wanted[i], std::move(prepared)});
    ++replayed_runs;
  }
  Progress progress("experiments", replayed_runs, 0);
  for (const auto& [key, replays] : traces) {
    const Prepared& first = replays.begin()->second.front().prepared;
    const auto trace = make_trace(first.run);
    const ReplaySet layers(*trace, hardware_threads());
    std::vector<const std::vector<Task>*> groups;
    for (const auto& [replay_key, tasks] : replays) groups.push_back(&tasks);
    parallel_for(groups.size(), hardware_threads(), [&](std::size_t g) {
      const auto policy = make_policy(groups[g]->front().prepared);
      const replay::ReplayResult replayed = layers.replay(*policy, {});
      for (const Task& task : *groups[g]) {
        records[task.index] = run_task(task, replayed);
        progress.advance(1, task.prepared.run.policy.name);
      }
    });
  }
  return records;
}

}  // namespace kvcast::app

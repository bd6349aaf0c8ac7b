#include "study/match.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/units.hpp"
#include "policy/recorder.hpp"

namespace kvcast::study {
namespace {

using config::MatchChoice;

// Bytes read by one layer at the replayed steps, mean over these. Dense layers ignore the counts.
double read_by_layer(const config::Run& run, const policy::Policy& policy, const replay::ReplayResult& replayed,
                     const replay::LayerCounts& counts, int layer) {
  const config::Model model = config::attending(run.model);
  policy::Recorder recorder;
  for (int t = 0; t < replayed.decode_steps; ++t) {
    if (t > 0) recorder.next_step();
    const policy::Sequence sequence{replayed.prompt_tokens + t + 1, lengths_of(run)};
    policy.decode_layer({model, layer, {&sequence, 1}, counts.at(t), counts.per_query_head}, recorder);
  }
  const auto traffic = recorder.traffic();
  return (traffic.hbm_read + traffic.cpu_dram) / replayed.decode_steps;
}

std::string cost_text(const MatchChoice& request, double cost) {
  if (request.quantity == MatchChoice::Quantity::kTokensAttended) return fmt::format("{:.7g}", cost);
  return format_quantity(cost, Dimension::kBytes);
}

// The traces of a run, made when the first replay over them is missing.
class Traces {
 public:
  Traces(const config::Run& run, const StudyOptions& options)
      : run_(run),
        threads_(options.threads),
        cancel_(options.cancel),
        traces_(run.traces.size()),
        layers_(run.traces.size()) {}

  replay::ReplayResult replay(std::size_t i, policy::Policy& policy) {
    return replay::replay(layers(i), policy, {.request = lengths_of(run_)});
  }

 private:
  std::span<const std::unique_ptr<replay::Oracle>> layers(std::size_t i) {
    const std::lock_guard lock(mutex_);
    if (traces_[i] == nullptr) {
      traces_[i] = make_trace(run_, run_.traces[i]);
      layers_[i] = replay::prepare(*traces_[i], threads_, run_.model.cache, cancel_);
    }
    return layers_[i];
  }

  const config::Run& run_;
  int threads_;
  Cancel cancel_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<trace::Trace>> traces_;
  std::vector<std::vector<std::unique_ptr<replay::Oracle>>> layers_;
};

// One request, and the tasks that share it: they differ in their machine or framework.
class Request {
 public:
  explicit Request(Task& task) : tasks_{&task} {}
  void add(Task& task) { tasks_.push_back(&task); }

  void solve(Traces& traces, ReplayCache* cache, int threads) {
    try {
      solution_ = solved(traces, cache, threads);
    } catch (const UserError& why) {
      refused_ = why.what();
    }
  }

  // Distributes the outcome to the tasks.
  void settle(Preparer& preparer) const {
    for (Task* task : tasks_) {
      task->refused = refused_;
      if (refused_.empty()) task->prepared = preparer.prepare(task->point.config, solution_);
    }
  }

 private:
  const Prepared& prepared() const { return tasks_.front()->prepared; }

  Matched solved(Traces& traces, ReplayCache* cache, int threads) const {
    Matched matched = *prepared().matched;
    const config::Node& config = tasks_.front()->point.config;
    const auto cost = [&](const config::Node& run) { return cost_of_run(run, traces, cache, threads); };
    matched.solved = true;
    if (prepared().policy->uncompressed()) {
      matched.reached = cost(config.without({"match"}));
      return matched;
    }
    const BudgetRange range = valid_budgets(config, prepared());
    const BudgetSolution solution = nearest_budget(
        [&](std::int64_t budget) { return cost(config::with_budget(config, budget)); }, range, matched.request.value);
    if (!solution.budget) throw out_of_reach(range, solution);
    matched.budget = solution.budget, matched.reached = solution.reached;
    return matched;
  }

  double cost_of_run(const config::Node& config, Traces& traces, ReplayCache* cache, int threads) const {
    const MatchChoice& request = prepared().matched->request;
    const config::PolicyChoice choice = config::read_policy(*config.find("policy"));
    std::vector<double> costs(prepared().traces.size());
    parallel_for(costs.size(), threads, [&](std::size_t i) {
      const std::string key = replay_key(prepared().traces[i].trace, choice, prepared().run.workload);
      auto replayed = cache == nullptr ? std::nullopt : cache->get(key);
      if (!replayed) {
        const auto policy = make_policy(prepared(), choice, i);
        replayed = replay_on(i, *policy, traces);
        if (cache != nullptr) cache->put(key, *replayed);
      }
      // A policy that has not seen the trace, as for a replay from the cache.
      costs[i] = cost_of(request, prepared().run, *make_policy(prepared(), choice, i), *replayed);
    });
    if (request.quantity == MatchChoice::Quantity::kBytesResident) return *std::ranges::max_element(costs);
    double sum = 0;
    for (const double cost : costs) sum += cost;
    return sum / static_cast<double>(costs.size());
  }

  // Only a replay shows whether a trace has what the policy needs: the message names the policy's location.
  replay::ReplayResult replay_on(std::size_t i, policy::Policy& policy, Traces& traces) const {
    const config::Run& run = prepared().run;
    try {
      return traces.replay(i, policy);
    } catch (const UserError& why) {
      throw refusal_of(run.policy, why, run.traces.size() > 1 ? trace_name(run.traces[i]) : "");
    }
  }

  UserError out_of_reach(const BudgetRange& range, const BudgetSolution& solution) const {
    const MatchChoice& request = prepared().matched->request;
    const auto text = [&](double cost) { return cost_text(request, cost); };
    return UserError(
        request.where,
        fmt::format(
            "match: {} {} cannot be reached: {} reaches {} with its smallest budget, {}, and {} with its largest, {}",
            config::quantity_name(request.quantity), text(request.value), prepared().policy->name,
            text(solution.lowest), range.low, text(solution.highest), solution.largest));
  }

  std::vector<Task*> tasks_;
  Matched solution_;
  std::string refused_;
};

// Requests on the same traces.
class TraceRequests {
 public:
  void add(Task& task) {
    const Prepared& p = task.prepared;
    const MatchChoice& request = p.matched->request;
    const std::string same =
        fmt::format("{}|{}|{}|{}", p.replays, static_cast<int>(request.quantity), request.value, p.run.workload.batch);
    const auto [at, fresh] = by_text_.try_emplace(same, requests_.size());
    if (fresh) {
      requests_.emplace_back(task);
    } else {
      requests_[at->second].add(task);
    }
    if (run_ == nullptr) run_ = &p.run;
  }

  void solve(const StudyOptions& options, Preparer& preparer) {
    std::vector<char> done(requests_.size());
    {
      Traces traces(*run_, options);
      const int threads = options.threads / static_cast<int>(std::min<std::size_t>(requests_.size(), 1024));
      parallel_for(requests_.size(), options.threads, [&](std::size_t i) {
        options.cancel.check();
        requests_[i].solve(traces, options.replays, threads);
        done[i] = 1;
      });
    }
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (done[i] != 0) requests_[i].settle(preparer);
    }
  }

 private:
  std::vector<Request> requests_;
  std::map<std::string, std::size_t> by_text_;
  const config::Run* run_ = nullptr;
};

}  // namespace

double bytes_read(const config::Run& run, const policy::Policy& policy, const replay::ReplayResult& replayed) {
  double compressed = 0;
  int captured = 0;
  for (const replay::LayerCounts& layer : replayed.layers) {
    if (layer.layer < replayed.dense_layers) continue;
    compressed += read_by_layer(run, policy, replayed, layer, layer.layer);
    ++captured;
  }
  const config::Model model = config::attending(run.model);
  const int dense = captured == 0 ? model.layers : std::min(replayed.dense_layers, model.layers);
  const double of_dense = dense > 0 ? read_by_layer(run, policy, replayed, replayed.layers.front(), 0) : 0;
  const double of_compressed = captured > 0 ? compressed / captured : 0;
  return (dense * of_dense + (model.layers - dense) * of_compressed) / model.layers;
}

double bytes_resident(const config::Run& run, const policy::Policy& policy, const replay::ReplayResult& replayed) {
  const policy::Lengths lengths = lengths_of(run);
  const config::Model model = config::attending(run.model);
  double bytes = run.workload.batch * run.model.state_bytes();
  for (const policy::MemoryItem& item : policy::storage(
           policy, {&model, run.workload.batch, lengths.bound(), lengths, replayed.proxies.attended_mean})) {
    if (item.pool == graph::Pool::kHbm) bytes += item.bytes;
  }
  return bytes / run.workload.batch;
}

double cost_of(const MatchChoice& request, const config::Run& run, const policy::Policy& policy,
               const replay::ReplayResult& replayed) {
  switch (request.quantity) {
    case MatchChoice::Quantity::kBytesRead:
      return bytes_read(run, policy, replayed);
    case MatchChoice::Quantity::kTokensAttended:
      return replayed.proxies.attended_mean;
    case MatchChoice::Quantity::kBytesResident:
      break;
  }
  return bytes_resident(run, policy, replayed);
}

void solve(std::vector<Task>& tasks, const StudyOptions& options) {
  std::map<std::string, TraceRequests> by_traces;
  for (Task& task : tasks) {
    if (task.is_solved()) continue;
    std::string traces;
    for (const TraceKeys& keys : task.prepared.traces) traces += keys.trace;
    by_traces[traces].add(task);
  }
  Preparer preparer(options.cancel);
  for (auto& [traces, requests] : by_traces) {
    requests.solve(options, preparer);
  }
}

std::string text_of(const Matched& matched, const std::string& policy) {
  const MatchChoice& request = matched.request;
  const std::string what =
      fmt::format("{} {}", config::quantity_name(request.quantity), cost_text(request, request.value));
  const std::string reached = cost_text(request, matched.reached);
  if (!matched.budget) {
    return fmt::format("match: {} has no budget to solve for {} and runs as it is (reached {})", policy, what, reached);
  }
  return fmt::format("budget {} solved for {} (reached {})", *matched.budget, what, reached);
}

}  // namespace kvcast::study

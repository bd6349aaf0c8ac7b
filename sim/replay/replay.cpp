#include "replay/replay.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/quantile.hpp"
#include "policy/group.hpp"
#include "replay/accuracy.hpp"
#include "replay/steps.hpp"

namespace kvcast::replay {

struct Replay::Layer {
  LayerCounts counts;
  std::vector<HeadAccuracy> accuracy;
  TargetRecall targets;
  std::vector<StepSelection> selections;
};

namespace {

// Counts the different tokens to which each head attends over all steps.
class Distinct {
 public:
  Distinct(std::size_t heads, std::size_t tokens) : seen_(heads, std::vector<bool>(tokens)), counts_(heads) {}
  void add(const policy::LayerSelection& selection) {
    for (std::size_t h = 0; h < selection.heads.size(); ++h) {
      for (const std::int32_t position : selection.heads[h].attended) {
        std::vector<bool>::reference seen = seen_[h][position];
        if (!seen) ++counts_[h];
        seen = true;
      }
    }
  }
  std::vector<std::int64_t> take() { return std::move(counts_); }

 private:
  std::vector<std::vector<bool>> seen_;
  std::vector<std::int64_t> counts_;
};

// The selection in which excluded query heads of a layer attend to nothing; empty lists of heads if none are excluded.
class Excluding {
 public:
  Excluding(const Oracle& oracle, const std::vector<std::pair<int, int>>& excluded)
      : group_(oracle.info().group()), out_(oracle.info().n_q_heads) {
    for (const auto& [layer, head] : excluded) {
      if (layer == oracle.layer().id()) out_.at(head) = any_ = true;
    }
  }
  const policy::LayerSelection& operator()(const policy::LayerSelection& selection) {
    if (!any_) return selection;
    masked_.reset(out_.size(), true);
    for (std::size_t q = 0; q < out_.size(); ++q) {
      if (!out_[q]) masked_.heads[q].attended = selection.heads[selection.per_query_head ? q : q / group_].attended;
    }
    return masked_;
  }

 private:
  std::size_t group_;
  std::vector<bool> out_;
  bool any_ = false;
  policy::LayerSelection masked_;
};

void check_excluded(const std::vector<std::pair<int, int>>& excluded, const trace::TraceInfo& info) {
  for (const auto& [layer, head] : excluded) {
    if (std::ranges::count(info.layers, layer) == 0) {
      throw UserError(fmt::format("excluded heads: layer {} is not in the trace, which has layers {}", layer,
                                  fmt::join(info.layers, ", ")));
    }
    if (head < 0 || head >= info.n_q_heads) {
      throw UserError(
          fmt::format("excluded heads: there is no query head {}; known: 0 to {}", head, info.n_q_heads - 1));
    }
  }
}

// Appends the cosine of each head's queries with those of the step before.
void append_cosines(const trace::Layer& layer, int t, int heads, std::vector<double>& out) {
  const int n = layer.info().n_q_heads / heads;
  for (int h = 0; h < heads; ++h) out.push_back(t == 0 ? 1 : policy::query_cosine(layer, h * n, n, t));
}

void append_volumes(const Oracle& oracle, const policy::LayerSelection& selection, std::vector<double>& out) {
  const auto sharing = selection.heads.size() / oracle.info().n_kv_heads;
  for (std::size_t h = 0; h < selection.heads.size(); ++h) {
    out.push_back(log_volume(oracle.layer().keys(static_cast<int>(h / sharing)), selection.heads[h].attended));
  }
}

template <typename Result>
Result replay_layer(const Oracle& oracle, const policy::Policy& policy, const policy::Lengths& request,
                    const ReplayOptions& options) {
  Result result;
  const int id = oracle.layer().id();
  const auto selector = policy.selector(oracle.input(), request);
  AccuracyMeter meter(oracle);
  Excluding excluding(oracle, options.excluded);
  std::optional<TargetMeter> targets;
  if (oracle.targets() != nullptr) targets.emplace(*oracle.targets());
  std::vector<double> masses;  // of one step, by query head
  const auto heads = static_cast<std::size_t>(oracle.info().n_q_heads);
  policy::LayerSelection selection;
  selector->prefill(selection);
  for (const policy::HeadSelection& head : selection.heads) {
    result.counts.resident.push_back(static_cast<std::int64_t>(head.attended.size()));
  }
  if (options.keep_selections) result.selections.push_back({id, -1, selection});
  std::optional<Distinct> distinct;
  for (int t = 0; t < oracle.info().decode_steps; ++t) {
    oracle.layer().cancel().check();
    selector->step(t, selection);
    for (policy::HeadSelection& head : selection.heads) {
      policy::count_lists(head);
      result.counts.counts.push_back(head.counts);
    }
    const int lists = static_cast<int>(selection.heads.size());
    if (!distinct) distinct.emplace(selection.heads.size(), static_cast<std::size_t>(oracle.info().positions()));
    distinct->add(selection);
    append_cosines(oracle.layer(), t, lists, result.counts.query_cosine);
    const policy::LayerSelection& measured = excluding(selection);
    meter.measure(t, measured, *selector, result.accuracy);
    if (targets) {
      masses.clear();
      for (const HeadAccuracy& head : std::span(result.accuracy).last(heads)) masses.push_back(head.recall_mass);
      targets->measure(t, measured, *selector, masses);
    }
    if (options.keep_selections) result.selections.push_back({id, t, selection});
  }
  if (distinct) result.counts.distinct = distinct->take();
  result.counts.recall_mass.resize(heads);
  for (std::size_t i = 0; i < result.accuracy.size(); ++i)
    result.counts.recall_mass[i % heads] += result.accuracy[i].recall_mass / oracle.info().decode_steps;
  if (options.log_volume) append_volumes(oracle, selection, result.counts.log_volume);
  if (targets) result.targets = targets->result();
  result.counts.layer = id;
  result.counts.prompt = policy.prompt_attention(oracle.input());
  result.counts.per_query_head = selection.per_query_head;
  result.counts.heads = static_cast<int>(selection.heads.size());
  return result;
}

template <typename Result>
Proxies proxies_of(const std::vector<Result>& layers, int q_heads) {
  std::vector<double> mass, error, overlap;
  double attended = 0, corrected = 0, rows = 0;  // tokens, waits and query heads, over all layers and steps
  double distinct = 0, lists = 0;                // the same over all layers
  for (const Result& layer : layers) {
    for (const HeadAccuracy& a : layer.accuracy) {
      mass.push_back(a.recall_mass), error.push_back(a.output_error), overlap.push_back(a.topk_overlap);
    }
    // Dense layers may have one list for several query heads while the others have one for each.
    const int shared_by = q_heads / layer.counts.heads;
    for (const policy::HeadCounts& c : layer.counts.counts) {
      attended += shared_by * static_cast<double>(c.attended + c.cpu_attended);
      corrected += c.corrected ? shared_by : 0;
      rows += shared_by;
    }
    for (const std::int64_t n : layer.counts.distinct) distinct += shared_by * static_cast<double>(n);
    lists += q_heads;
  }
  return {mean(mass),      quantile(mass, 0.1), mean(error),     mean(overlap),
          attended / rows, distinct / lists,    corrected / rows};
}

// The bytes of the policy's own work, as its cost model states them for the selection.
template <typename Result>
graph::ByteCounts traffic_of(const std::vector<Result>& layers, const policy::Policy& policy,
                             const trace::TraceInfo& info, const policy::Lengths& request) {
  config::Model model;
  model.layers = info.n_layers;
  model.n_q_heads = info.n_q_heads;
  model.n_kv_heads = info.n_kv_heads;
  model.head_dim = info.head_dim;
  graph::ByteCounts total;
  for (const Result& layer : layers) {
    policy::Recorder recorder;
    for (int t = 0; t < info.decode_steps; ++t) {
      if (t > 0) recorder.next_step();
      const policy::Sequence sequence{info.prompt_tokens + t + 1, request};
      policy.decode_layer({model, layer.counts.layer, {&sequence, 1}, layer.counts.at(t), layer.counts.per_query_head},
                          recorder);
    }
    total += recorder.traffic();
  }
  return total.scaled(1.0 / info.decode_steps);
}

}  // namespace

std::optional<policy::PromptAttention> prompt_attention(std::span<const LayerCounts> layers, int first) {
  std::vector<double> density, mass;
  bool sparse = false;
  for (const LayerCounts& layer : layers) {
    if (layer.layer < first) continue;
    density.push_back(layer.prompt.density), mass.push_back(layer.prompt.recall_mass);
    sparse = sparse || layer.prompt.sparse;
  }
  if (!sparse) return {};
  return policy::PromptAttention{true, mean(density), mean(mass)};
}

std::vector<std::unique_ptr<Oracle>> prepare(const trace::Trace& trace, int threads, config::CacheFormat cache,
                                             const Cancel& cancel) {
  std::vector<std::unique_ptr<Oracle>> layers;
  for (std::size_t i = 0; i < trace.info().layers.size(); ++i) {
    layers.push_back(std::make_unique<Oracle>(trace.load(i, threads, cancel), threads, cache));
  }
  return layers;
}

bool LayerParts::next(int threads) {
  free_layers();
  const std::size_t end = together_ ? trace_.info().layers.size() : std::min(next_ + 1, trace_.info().layers.size());
  for (; next_ < end; ++next_) {
    auto layer = trace_.load(next_, threads, cancel_, std::move(spare_));
    layers_.push_back(std::make_unique<Oracle>(std::move(layer), threads, cache_));
  }
  return !layers_.empty();
}

void LayerParts::free_layers() {
  if (!layers_.empty()) spare_ = layers_.back()->take_storage();
  layers_.clear();
}

Replay::Replay(const trace::TraceInfo& info, policy::Policy& policy, ReplayOptions options)
    : info_(info),
      policy_(policy),
      options_(std::move(options)),
      request_(options_.request.value_or(policy::Lengths{info.prompt_tokens, info.decode_steps})) {
  policy_.check(request_);
  check_excluded(options_.excluded, info_);
}

Replay::Replay(Replay&&) noexcept = default;
Replay::~Replay() = default;

void Replay::add(std::span<const std::unique_ptr<Oracle>> layers, int threads) {
  if (policy_.surveys(request_)) {
    KVCAST_CHECK(layers.size() == info_.layers.size());
    std::vector<const policy::LayerInput*> inputs;
    for (const auto& layer : layers) inputs.push_back(&layer->input());
    policy_.survey(inputs, request_);
  }
  const std::size_t first = done_.size();
  done_.resize(first + layers.size());
  parallel_for(layers.size(), threads,
               [&](std::size_t i) { done_[first + i] = replay_layer<Layer>(*layers[i], policy_, request_, options_); });
}

ReplayResult Replay::result() {
  ReplayResult result;
  result.trace_source = info_.source;
  result.prompt_tokens = info_.prompt_tokens;
  result.decode_steps = info_.decode_steps;
  result.dense_layers = policy_.dense_layers();
  result.growth = policy_.growth(request_);
  result.proxies = proxies_of(done_, info_.n_q_heads);
  result.traffic = traffic_of(done_, policy_, info_, request_);
  if (const auto task = info_.optional.find("task"); task != info_.optional.end()) result.task = task->second;
  for (const Layer& layer : done_) {
    if (layer.targets.steps.empty() || (layer.counts.layer < result.dense_layers && done_.size() > 1)) continue;
    if (result.targets.steps.empty()) {
      result.targets = layer.targets;
    } else {
      result.targets += layer.targets;
    }
  }
  for (Layer& layer : done_) {
    if (layer.counts.layer >= result.dense_layers) result.per_query_head = layer.counts.per_query_head;
    result.layers.push_back(std::move(layer.counts));
    std::move(layer.selections.begin(), layer.selections.end(), std::back_inserter(result.selections));
  }
  return result;
}

ReplayResult replay(std::span<const std::unique_ptr<Oracle>> layers, policy::Policy& policy,
                    const ReplayOptions& options) {
  KVCAST_CHECK(!layers.empty());
  Replay run(layers[0]->info(), policy, options);
  run.add(layers, options.threads);
  return run.result();
}

ReplayResult replay(const trace::Trace& trace, policy::Policy& policy, const ReplayOptions& options,
                    config::CacheFormat cache, const Cancel& cancel) {
  Replay run(trace.info(), policy, options);
  const policy::Lengths own{trace.info().prompt_tokens, trace.info().decode_steps};
  trace::LayerStorage spare;
  LayerParts parts(trace, policy.surveys(options.request.value_or(own)), cache, cancel, spare);
  while (parts.next(options.threads)) run.add(parts.layers(), options.threads);
  return run.result();
}

void write_selections(const ReplayResult& result, std::ostream& out, const std::string& trace_identity) {
  std::string trace = trace_identity.empty() ? "" : fmt::format("\"trace\":{},", nlohmann::json(trace_identity).dump());
  const auto list = [](const std::vector<std::int32_t>& positions) {
    return fmt::format("{}", fmt::join(positions, ","));
  };
  for (const StepSelection& step : result.selections) {
    const char* const head_key = step.selection.per_query_head ? "q_head" : "kv_head";
    for (std::size_t h = 0; h < step.selection.heads.size(); ++h) {
      const policy::HeadSelection& head = step.selection.heads[h];
      out << fmt::format(R"({{{}"layer":{},"step":{},"{}":{},"attended":[{}],"fetched":[{}],"evicted":[{}]}})",
                         std::exchange(trace, ""), step.layer, step.step, head_key, h, list(head.attended),
                         list(head.fetched), list(head.evicted))
          << '\n';
    }
  }
}

}  // namespace kvcast::replay

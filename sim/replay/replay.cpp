#include "replay/replay.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/quantile.hpp"
#include "replay/accuracy.hpp"

namespace kvcast::replay {
namespace {

struct LayerResult {
  LayerCounts counts;
  std::vector<HeadAccuracy> accuracy;
  TargetRecall targets;
  std::vector<StepSelection> selections;
};

LayerResult replay_layer(const Oracle& oracle, const policy::Policy& policy, const policy::Lengths& request,
                         bool keep) {
  LayerResult result;
  const int id = oracle.layer().id();
  const auto selector = policy.selector(oracle.input(), request);
  AccuracyMeter meter(oracle);
  std::optional<TargetMeter> targets;
  if (oracle.targets() != nullptr) targets.emplace(*oracle.targets());
  std::vector<double> masses;  // of one step, by query head
  const auto heads = static_cast<std::size_t>(oracle.info().n_q_heads);
  policy::LayerSelection selection;
  selector->prefill(selection);
  for (const policy::HeadSelection& head : selection.heads) {
    result.counts.resident.push_back(static_cast<std::int64_t>(head.attended.size()));
  }
  if (keep) result.selections.push_back({id, -1, selection});
  for (int t = 0; t < oracle.info().decode_steps; ++t) {
    oracle.layer().cancel().check();
    selector->step(t, selection);
    for (policy::HeadSelection& head : selection.heads) {
      policy::count_lists(head);
      result.counts.counts.push_back(head.counts);
    }
    meter.measure(t, selection, *selector, result.accuracy);
    if (targets) {
      masses.clear();
      for (const HeadAccuracy& head : std::span(result.accuracy).last(heads)) masses.push_back(head.recall_mass);
      targets->measure(t, selection, *selector, masses);
    }
    if (keep) result.selections.push_back({id, t, selection});
  }
  if (targets) result.targets = targets->result();
  result.counts.layer = id;
  result.counts.prompt = policy.prompt_attention(oracle.input());
  result.counts.per_query_head = selection.per_query_head;
  result.counts.heads = static_cast<int>(selection.heads.size());
  return result;
}

Proxies proxies_of(const std::vector<LayerResult>& layers, int q_heads) {
  std::vector<double> mass, error, overlap;
  double attended = 0, rows = 0;  // tokens, and the query heads that attend to them, over all layers and steps
  for (const LayerResult& layer : layers) {
    for (const HeadAccuracy& a : layer.accuracy) {
      mass.push_back(a.recall_mass), error.push_back(a.output_error), overlap.push_back(a.topk_overlap);
    }
    // Dense layers may have one list for several query heads while the others have one for each.
    const int shared_by = q_heads / layer.counts.heads;
    for (const policy::HeadCounts& c : layer.counts.counts) {
      attended += shared_by * static_cast<double>(c.attended + c.cpu_attended);
      rows += shared_by;
    }
  }
  return {mean(mass), quantile(mass, 0.1), mean(error), mean(overlap), attended / rows};
}

// The bytes of the policy's own work, as its cost model states them for the selection.
graph::Traffic traffic_of(const std::vector<LayerResult>& layers, const policy::Policy& policy,
                          const trace::TraceInfo& info, const policy::Lengths& request) {
  config::Model model;
  model.layers = info.n_layers;
  model.n_q_heads = info.n_q_heads;
  model.n_kv_heads = info.n_kv_heads;
  model.head_dim = info.head_dim;
  graph::Traffic total;
  for (const LayerResult& layer : layers) {
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

ReplayResult replay(std::span<const std::unique_ptr<Oracle>> layers, policy::Policy& policy,
                    const ReplayOptions& options) {
  KVCAST_CHECK(!layers.empty());
  std::vector<const policy::LayerInput*> inputs;
  for (const auto& layer : layers) inputs.push_back(&layer->input());
  const trace::TraceInfo& info = layers[0]->info();
  const policy::Lengths request = options.request.value_or(policy::Lengths{info.prompt_tokens, info.decode_steps});
  policy.check(request);
  policy.survey(inputs, request);
  std::vector<LayerResult> done(layers.size());
  parallel_for(layers.size(), options.threads,
               [&](std::size_t i) { done[i] = replay_layer(*layers[i], policy, request, options.keep_selections); });
  ReplayResult result;
  result.trace_source = info.source;
  result.prompt_tokens = info.prompt_tokens;
  result.decode_steps = info.decode_steps;
  result.dense_layers = policy.dense_layers();
  result.growth = policy.growth(request);
  result.proxies = proxies_of(done, info.n_q_heads);
  result.traffic = traffic_of(done, policy, info, request);
  if (const auto task = info.optional.find("task"); task != info.optional.end()) result.task = task->second;
  for (const LayerResult& layer : done) {
    if (layer.targets.steps.empty() || (layer.counts.layer < result.dense_layers && done.size() > 1)) continue;
    if (result.targets.steps.empty()) {
      result.targets = layer.targets;
    } else {
      result.targets += layer.targets;
    }
  }
  for (LayerResult& layer : done) {
    if (layer.counts.layer >= result.dense_layers) result.per_query_head = layer.counts.per_query_head;
    result.layers.push_back(std::move(layer.counts));
    std::move(layer.selections.begin(), layer.selections.end(), std::back_inserter(result.selections));
  }
  return result;
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

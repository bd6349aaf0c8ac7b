// Attention weights of full attention come from the oracle's scores and log-sums; nothing is recomputed.
#include "replay/profile.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "base/quote.hpp"
#include "policies/all.hpp"

namespace kvcast::replay {
namespace {

constexpr double kSmall = 1e-6;  // CompressKV's ε

// Share of full attention that a query head spends on these positions.
template <typename Positions>
double attention_on(const Oracle& oracle, int q_head, int t, const Positions& positions) {
  const double scale = 1 / std::sqrt(static_cast<double>(oracle.info().head_dim));
  const std::span<const float> scores = oracle.scores(q_head, t);
  double sum = 0;
  for (const std::int64_t p : positions) {
    if (p < 0 || p >= oracle.visible(t)) continue;
    sum += std::exp(scale * static_cast<double>(scores[static_cast<std::size_t>(p)]) - oracle.log_sum_exp(q_head, t));
  }
  return sum;
}

std::vector<double>& add(std::vector<double>& to, const std::vector<double>& from, double weight) {
  to.resize(from.size(), 0.0);
  for (std::size_t i = 0; i < from.size(); ++i) to[i] += weight * from[i];
  return to;
}

// Squared distance of one query head's output over the attended positions from that of full attention.
double squared_error(const Oracle& oracle, int q_head, int t, const std::vector<std::int32_t>& attended,
                     std::vector<float>& weights) {
  const std::span<const float> scores = oracle.scores(q_head, t), full = oracle.output(q_head, t);
  const MatrixView values = oracle.layer().values(q_head / oracle.info().group());
  weights.clear();
  for (const std::int32_t i : attended) weights.push_back(scores[static_cast<std::size_t>(i)]);
  if (!weights.empty()) softmax(weights, 1 / std::sqrt(static_cast<float>(oracle.info().head_dim)));
  std::vector<double> output(full.size(), 0.0);
  for (std::size_t i = 0; i < attended.size(); ++i) {
    const float* const value = values.row(static_cast<std::size_t>(attended[i]));
    for (std::size_t j = 0; j < output.size(); ++j) output[j] += static_cast<double>(weights[i] * value[j]);
  }
  double sum = 0;
  for (std::size_t j = 0; j < output.size(); ++j) sum += std::pow(output[j] - static_cast<double>(full[j]), 2);
  return sum;
}

void check_alike(const trace::TraceInfo& a, const trace::TraceInfo& b) {
  if (a.n_layers == b.n_layers && a.n_q_heads == b.n_q_heads && a.n_kv_heads == b.n_kv_heads && a.layers == b.layers) {
    return;
  }
  refuse_unlike(a, b);
}

}  // namespace

std::string source_text(const trace::Trace& trace) {
  const std::string name = std::filesystem::path(trace.info().file).filename().string();
  return fmt::format("{}{} trace, {}", name.empty() ? "" : quote(name) + ": ", trace.info().source, trace.identity());
}

void refuse_unlike(const trace::TraceInfo& first, const trace::TraceInfo& other) {
  throw UserError({other.file},
                  fmt::format("the traces of a profile must be of one model and have the same layers{}",
                              first.file.empty() ? "" : ": the shape or layers of " + first.file + " differ"));
}

HeadProbe probe_heads(const Oracle& oracle, const trace::Targets& targets) {
  std::set<std::int64_t> span;
  double steps = 0;
  for (const auto& step : targets) {
    span.insert(step.begin(), step.end());
    steps += step.empty() ? 0 : 1;
  }
  if (span.empty()) {
    throw UserError({oracle.info().file}, "no step of the trace has targets: nothing shows which heads find them");
  }
  HeadProbe probe;
  for (int h = 0; h < oracle.info().n_q_heads; ++h) {
    double semantic = 0, retrieval = 0, echo = 0;
    for (int t = 0; t < oracle.info().decode_steps; ++t) {
      const auto& own = targets[t];
      if (own.empty()) continue;
      std::vector<std::int64_t> before;
      // Inside a span of adjacent targets the position before one is itself a target.
      for (const std::int64_t p : own) {
        if (!std::binary_search(own.begin(), own.end(), p - 1)) before.push_back(p - 1);
      }
      semantic += attention_on(oracle, h, t, span);
      retrieval += attention_on(oracle, h, t, own);
      echo += attention_on(oracle, h, t, before);
    }
    probe.semantic.push_back(semantic);
    probe.retrieval.push_back(retrieval / steps);
    probe.echo.push_back(echo / steps);
    probe.induction.push_back(retrieval / steps);
  }
  return probe;
}

double layer_error(const Oracle& oracle, const policy::Policy& policy) {
  const trace::TraceInfo& info = oracle.info();
  const auto selector = policy.selector(oracle.input());
  policy::LayerSelection selection;
  selector->prefill(selection);
  std::vector<float> weights;
  double error = 0;
  for (int t = 0; t < info.decode_steps; ++t) {
    selector->step(t, selection);
    const int members = selection.per_query_head ? 1 : info.group();
    double difference = 0, norm = 0;
    for (int h = 0; h < info.n_q_heads; ++h) {
      const auto& attended = selection.heads[h / members].attended;
      difference += squared_error(oracle, h, t, attended, weights);
      for (const float x : oracle.output(h, t)) norm += x * static_cast<double>(x);
    }
    error += std::sqrt(difference) / (std::sqrt(norm) + kSmall);
  }
  return error;
}

std::vector<double> average_errors(std::span<const std::vector<double>> sets) {
  KVCAST_CHECK(!sets.empty());
  std::vector<double> mean;
  for (const std::vector<double>& set : sets) {
    const double sum = std::accumulate(set.begin(), set.end(), 0.0);
    KVCAST_CHECK(set.size() == sets[0].size() && sum > 0);
    add(mean, set, 1 / sum / static_cast<double>(sets.size()));
  }
  const double sum = std::accumulate(mean.begin(), mean.end(), 0.0);
  for (double& x : mean) x /= sum;
  return mean;
}

policy::Profile make_profile(std::span<const trace::Trace* const> traces, std::int64_t kept, int threads) {
  KVCAST_CHECK(!traces.empty());
  const trace::TraceInfo& first = traces[0]->info();
  policy::Profile profile;
  profile.model = first.model;
  profile.n_layers = first.n_layers, profile.n_q_heads = first.n_q_heads, profile.n_kv_heads = first.n_kv_heads;
  const policy::Descriptor& snapkv = policy::find_policy("snapkv");
  const config::Node setting =
      config::parse_yaml(fmt::format("{{budget: {}, window: 8, pool: avg, pool_kernel: 5}}", kept), "profile");
  std::vector<std::vector<double>> errors;
  for (const trace::Trace* trace : traces) {
    check_alike(first, trace->info());
    profile.source += (profile.source.empty() ? "" : ", ") + source_text(*trace);
    const auto policy = policy::make_policy(snapkv, setting);
    const trace::Targets targets = trace::read_targets(trace->info());
    std::vector<double>& set = errors.emplace_back();
    for (std::size_t i = 0; i < first.layers.size(); ++i) {
      const Oracle oracle(trace->load(i, threads), threads);
      const HeadProbe probe = probe_heads(oracle, targets);
      const double weight = 1 / static_cast<double>(traces.size());
      const int layer = first.layers[i];
      add(profile.heads["semantic"][layer], probe.semantic, weight);
      add(profile.heads["retrieval"][layer], probe.retrieval, weight);
      add(profile.heads["echo"][layer], probe.echo, weight);
      add(profile.heads["induction"][layer], probe.induction, weight);
      set.push_back(layer_error(oracle, *policy));
    }
    if (std::ranges::all_of(set, [](double e) { return e == 0; })) {
      throw UserError(
          {trace->info().file},
          fmt::format(
              "keeping {} tokens per layer loses nothing on this trace, so that layers have no errors to compare",
              kept));
    }
  }
  const std::vector<double> shares = average_errors(errors);
  for (std::size_t i = 0; i < shares.size(); ++i) profile.layer_errors[first.layers[i]] = shares[i];
  return profile;
}

}  // namespace kvcast::replay

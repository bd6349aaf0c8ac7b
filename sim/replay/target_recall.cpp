// Attended positions and targets both ascend: one pass over the shorter finds their intersection.
#include "replay/target_recall.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/log_sum_exp.hpp"
#include "base/parallel.hpp"

namespace kvcast::replay {

TargetRecall& TargetRecall::operator+=(const TargetRecall& layer) {
  KVCAST_CHECK(steps.size() == layer.steps.size());
  for (std::size_t t = 0; t < steps.size(); ++t) {
    steps[t].full += layer.steps[t].full;
    steps[t].kept += layer.steps[t].kept;
    steps[t].tokens += layer.steps[t].tokens;
  }
  other_kept += layer.other_kept;
  other_full += layer.other_full;
  written_kept += layer.written_kept;
  written_full += layer.written_full;
  retrieving += layer.retrieving;
  return *this;
}

nlohmann::json to_json(const TargetRecall& r) {
  nlohmann::json steps = nlohmann::json::array();
  for (const StepRecall& s : r.steps) steps.push_back({s.targets, s.full, s.kept, s.tokens});
  return {{"steps", steps},
          {"other", {r.other_kept, r.other_full}},
          {"written", {r.written_kept, r.written_full}},
          {"retrieving", r.retrieving}};
}

TargetRecall target_recall_from(const nlohmann::json& j) {
  TargetRecall r;
  for (const nlohmann::json& s : j.at("steps")) {
    r.steps.push_back(
        {s.at(0).get<std::int64_t>(), s.at(1).get<double>(), s.at(2).get<double>(), s.at(3).get<double>()});
  }
  r.other_kept = j.at("other").at(0).get<double>();
  r.other_full = j.at("other").at(1).get<double>();
  r.written_kept = j.at("written").at(0).get<double>();
  r.written_full = j.at("written").at(1).get<double>();
  r.retrieving = j.at("retrieving").get<int>();
  return r;
}

FullMass::FullMass(const trace::Layer& layer, trace::Targets targets, int threads, std::vector<double> log_sums)
    : layer_(layer), targets_(std::move(targets)), log_sums_(std::move(log_sums)) {
  const trace::TraceInfo& info = layer.info();
  KVCAST_CHECK(targets_.size() == static_cast<std::size_t>(info.decode_steps));
  for (std::vector<std::int64_t>& list : targets_) std::sort(list.begin(), list.end());
  layer.compute_scores(threads);
  const auto heads = static_cast<std::size_t>(info.n_q_heads);
  const bool summed = !log_sums_.empty();
  KVCAST_CHECK(!summed || log_sums_.size() == heads * targets_.size());
  log_sums_.resize(heads * targets_.size());
  masses_.resize(heads * targets_.size());
  const float scale = 1.0f / std::sqrt(static_cast<float>(info.head_dim));
  std::vector<double> mean(heads);
  parallel_for(heads, threads, [&](std::size_t head) {
    const auto q = static_cast<int>(head);
    int with_targets = 0;
    for (int t = 0; t < info.decode_steps; ++t) {
      const float* const row = layer.decode_scores(q).row(static_cast<std::size_t>(t));
      double& log_sum = log_sums_[at(q, t)];
      if (!summed) log_sum = log_sum_exp(std::span(row, static_cast<std::size_t>(info.prompt_tokens + t) + 1), scale);
      if (this->targets(t).empty()) continue;
      double mass = 0;
      for (const std::int64_t p : this->targets(t)) mass += std::exp(static_cast<double>(scale * row[p]) - log_sum);
      // A NaN would count as kept in full.
      if (!std::isfinite(mass)) {
        const char* const why = info.source == "synthetic"
                                    ? "this happens if no rotary pair of the model is slow enough for the prompt"
                                    : "the captured queries or keys are too large or damaged";
        throw UserError(fmt::format(
            "{} trace of {} at {} tokens: attention on the targets of step {} is not a number (layer {}, query head "
            "{}); {}",
            info.source, info.model, info.prompt_tokens, t, layer.id(), q, why));
      }
      masses_[at(q, t)] = mass;
      mean[head] += mass;
      ++with_targets;
    }
    if (with_targets > 0) mean[head] /= with_targets;
  });
  for (const double m : mean) retrieves_.push_back(m >= trace::kRetrieves);
}

TargetMeter::TargetMeter(const FullMass& full) : full_(full) {
  const trace::TraceInfo& info = full.layer().info();
  result_.retrieving = full.retrieving();
  result_.steps.resize(info.decode_steps);
  for (int t = 0; t < info.decode_steps; ++t) {
    StepRecall& step = result_.steps[t];
    step.targets = full.targets(t).size();
    for (int q = 0; q < info.n_q_heads; ++q) step.full += full.target_mass(q, t);
  }
}

void TargetMeter::measure(int t, const policy::LayerSelection& selection, const policy::Selector& selector,
                          std::span<const double> masses) {
  const trace::TraceInfo& info = full_.layer().info();
  KVCAST_CHECK(masses.empty() || static_cast<int>(masses.size()) == info.n_q_heads);
  const int n = selection.per_query_head ? 1 : info.group();
  const float scale = 1.0f / std::sqrt(static_cast<float>(info.head_dim));
  StepRecall& step = result_.steps[static_cast<std::size_t>(t)];
  std::vector<std::int64_t> found;
  for (std::size_t h = 0; h < selection.heads.size(); ++h) {
    const std::vector<std::int32_t>& attended = selection.heads[h].attended;
    found.clear();
    for (const std::int64_t p : full_.targets(t)) {
      if (std::binary_search(attended.begin(), attended.end(), static_cast<std::int32_t>(p))) found.push_back(p);
    }
    for (int q = static_cast<int>(h) * n; q < (static_cast<int>(h) + 1) * n; ++q) {
      const float* const row = full_.layer().decode_scores(q).row(static_cast<std::size_t>(t));
      const double log_sum = full_.log_sum(q, t);
      const std::span<const float> added = selector.log_weights(q);
      if (added.empty()) {
        for (const std::int64_t p : found) step.kept += std::exp(static_cast<double>(scale * row[p]) - log_sum);
      } else {
        step.kept += weighed(t, q, attended, added, found);
      }
      step.tokens += full_.target_mass(q, t) * static_cast<double>(found.size());
      if (full_.retrieves(q)) continue;
      measure_written(t, q, attended);
      result_.other_full += 1;
      if (attended.empty()) continue;
      result_.other_kept += masses.empty() ? mass_on(t, q, attended) : masses[static_cast<std::size_t>(q)];
    }
  }
}

double TargetMeter::mass_on(int t, int q_head, std::span<const std::int32_t> attended) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(full_.layer().info().head_dim));
  const float* const row = full_.layer().decode_scores(q_head).row(t);
  scores_.clear();
  for (const std::int32_t p : attended) scores_.push_back(row[p]);
  return std::min(1.0, std::exp(log_sum_exp(scores_, scale) - full_.log_sum(q_head, t)));
}

double TargetMeter::weighed(int t, int q_head, std::span<const std::int32_t> attended, std::span<const float> added,
                            const std::vector<std::int64_t>& found) const {
  if (found.empty()) return 0;
  KVCAST_CHECK(attended.size() == added.size());
  const float scale = 1.0f / std::sqrt(static_cast<float>(full_.layer().info().head_dim));
  const float* const row = full_.layer().decode_scores(q_head).row(t);
  std::vector<float> logits;
  for (std::size_t i = 0; i < attended.size(); ++i) logits.push_back(scale * row[attended[i]] + added[i]);
  const double log_sum = log_sum_exp(logits, 1.0f);
  double mass = 0;
  auto next = found.begin();
  for (std::size_t i = 0; i < attended.size() && next != found.end(); ++i) {
    if (attended[i] != *next) continue;
    mass += std::exp(logits[i] - log_sum);
    ++next;
  }
  return mass;
}

void TargetMeter::measure_written(int t, int q_head, std::span<const std::int32_t> attended) {
  if (t == 0) return;
  const trace::TraceInfo& info = full_.layer().info();
  const float scale = 1.0f / std::sqrt(static_cast<float>(info.head_dim));
  const float* const row = full_.layer().decode_scores(q_head).row(t);
  const double log_sum = full_.log_sum(q_head, t);
  auto seen = attended.rbegin();
  for (int u = t; u >= std::max(0, t + 1 - kWrittenReach); --u) {
    const std::int64_t position = info.prompt_tokens + u;
    const double mass = std::exp((scale * row[position]) - log_sum);
    while (seen != attended.rend() && *seen > position) ++seen;
    result_.written_full += mass;
    if (seen != attended.rend() && *seen == position) result_.written_kept += mass;
  }
}

}  // namespace kvcast::replay

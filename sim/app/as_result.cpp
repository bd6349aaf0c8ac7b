#include "app/as_result.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "accuracy/task_score.hpp"

namespace kvcast::app {
namespace {

using nlohmann::json;

result::SettingValue setting_value(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void flatten(const json& value, const std::string& key, std::vector<result::Setting>& settings) {
  if (!value.is_object()) return settings.push_back({key, setting_value(value)});
  for (const auto& [name, inner] : value.items()) flatten(inner, key.empty() ? name : key + "." + name, settings);
}

std::vector<result::OwnedBytes> owners_of(const std::vector<workload::OwnedBytes>& from) {
  std::vector<result::OwnedBytes> to;
  for (const workload::OwnedBytes& o : from) to.push_back({o.owner, o.bytes});
  return to;
}

result::PoolUse pool_of(const workload::PoolUse& use) { return {use.capacity, use.peak, owners_of(use.owners)}; }

result::OutOfMemory misfit_of(const workload::OutOfMemory& oom) {
  return {oom.pool, oom.moment, oom.requested, oom.in_use, oom.capacity, owners_of(oom.owners), oom.requested_for};
}

const std::string& source_of(const config::Knob& knob) {
  return knob.value != nullptr ? knob.value->source : knob.curve->source;
}

std::vector<std::string> keys_of(config::Hardware& hardware, const std::string& source) {
  if (source == result::kTraceSample) return {result::kTraceSample};
  std::vector<std::string> keys;
  for (const config::Knob& knob : config::knobs(hardware)) {
    if (source_of(knob) == source) keys.push_back(knob.key);
  }
  return keys;
}

std::vector<result::Effect> effects_of(const workload::Experiment& e, config::Hardware hardware) {
  std::vector<result::Effect> effects;
  if (!e.effects) return effects;
  for (const workload::Effect& effect : *e.effects) {
    result::Effect& to = effects.emplace_back();
    to.source = effect.source;
    to.keys = keys_of(hardware, effect.source);
    to.longer.step = effect.longer.step, to.longer.prefill = effect.longer.prefill;
    to.shorter.step = effect.shorter.step, to.shorter.prefill = effect.shorter.prefill;
  }
  return effects;
}

std::optional<result::TaskScore> task_of(const replay::ReplayResult& replay) {
  const json score = accuracy::task_score(replay);
  if (score.is_null()) return {};
  result::TaskScore task;
  task.task = score["task"], task.known = score["known"], task.share_of_full = score["share_of_full"];
  task.interval = {score["interval"][0].get<double>(), score["interval"][1].get<double>()};
  task.steps = score["steps"], task.recall_mean = score["recall_mean"], task.recall_min = score["recall_min"];
  task.other_recall = score["other_recall"], task.source = score["rests_on"];
  return task;
}

result::Accuracy accuracy_of(const replay::ReplayResult& replay) {
  const replay::Proxies& p = replay.proxies;
  result::Accuracy a;
  a.recall_mass_mean = p.recall_mass_mean, a.recall_mass_p10 = p.recall_mass_p10;
  a.output_error_mean = p.output_error_mean, a.topk_overlap_mean = p.topk_overlap_mean;
  a.attended_mean = p.attended_mean;
  if (const auto prompt = replay::prompt_attention(replay.layers)) {
    a.prompt_density = prompt->density, a.prompt_recall_mass_mean = prompt->recall_mass;
  }
  a.origin = replay.trace_source == "captured" ? Origin::kExact : Origin::kAssumed;
  a.task = task_of(replay);
  return a;
}

}  // namespace

result::Subject subject_of(const Prepared& prepared) {
  const config::Run& run = prepared.run;
  result::Subject s;
  s.name = run.name, s.model = run.model.name, s.hardware = run.hardware.name, s.host = run.hardware.host.name;
  s.policy = run.policy.name, s.policy_category = prepared.policy->category;
  s.trace =
      run.trace.file.empty() ? fmt::format("recipe {}, seed {}", run.trace.recipe, run.trace.seed) : run.trace.file;
  s.prompt_tokens = run.workload.prompt_tokens, s.decode_tokens = run.workload.decode_tokens;
  s.batch = run.workload.batch;
  flatten(json::parse(resolved_json(prepared)), "", s.settings);
  std::sort(s.settings.begin(), s.settings.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  return s;
}

void fill_in(result::Result& result, const workload::Experiment& e, const workload::ExperimentInput& input) {
  result.status = e.oom ? result::Status::kOom : result::Status::kOk;
  result::Experiment& to = result.experiment;
  if (e.oom) to.oom = misfit_of(*e.oom);
  to.ttft_s = e.ttft_s, to.tokens_per_s = e.tokens_per_s;
  to.tpot_mean_s = e.tpot_mean_s, to.tpot_p50_s = e.tpot_p50_s, to.tpot_p99_s = e.tpot_p99_s;
  to.hbm = pool_of(e.hbm), to.dram = pool_of(e.dram), to.decode_hbm = pool_of(e.decode_hbm);
  to.traffic = e.traffic, to.step = e.step, to.prefill = e.prefill;
  for (const workload::TimelineSpan& s : e.timeline) {
    to.timeline.push_back({s.lane, s.kind, s.label, s.layer, s.start_s, s.duration_s});
  }
  to.effects = effects_of(e, input.run->hardware);
  to.engine_ops = e.engine_ops, to.engine_events = e.engine_events, to.engine_wall_s = e.engine_wall_s;
  result.accuracy = accuracy_of(*input.replay);
}

std::vector<store::MachineNumber> machine_numbers(const config::Hardware& hardware) {
  config::Hardware copy = hardware;  // knobs() wants to be able to change them
  std::vector<store::MachineNumber> numbers;
  for (const config::Knob& knob : config::knobs(copy)) {
    store::MachineNumber& n = numbers.emplace_back();
    n.key = knob.key;
    n.unit = dimension_name(knob.y);
    if (knob.value != nullptr) n.value = knob.value->value;
    n.origin = knob.value != nullptr ? knob.value->origin : knob.curve->origin;
    n.uncertainty = knob.value != nullptr ? knob.value->uncertainty : knob.curve->uncertainty;
    n.source = source_of(knob);
  }
  return numbers;
}

}  // namespace kvcast::app

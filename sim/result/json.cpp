#include "result/json.hpp"

#include <algorithm>

#include "base/or_null.hpp"

namespace kvcast::result {
namespace {

using nlohmann::json;

json& place_at(json& root, std::string_view path) {
  json* at = &root;
  while (true) {
    const std::size_t dot = path.find('.');
    at = &(*at)[std::string(path.substr(0, dot))];
    if (dot == std::string_view::npos) return *at;
    path.remove_prefix(dot + 1);
  }
}

json value_json(const SettingValue& value) {
  return std::visit([](const auto& v) { return json(v); }, value);
}

// A key that has a value as well as keys below it ("hardware", "hardware.gpu.hbm_bandwidth") keeps those under their
// full names.
void add_settings(json& config, const std::vector<Setting>& settings) {
  const auto below_a_value = [&settings](const std::string& key) {
    return std::ranges::any_of(settings, [&key](const Setting& other) {
      return key.size() > other.key.size() && key[other.key.size()] == '.' && key.starts_with(other.key);
    });
  };
  for (const Setting& s : settings) {
    (below_a_value(s.key) ? config[s.key] : place_at(config, s.key)) = value_json(s.value);
  }
}

json owners_json(const std::vector<OwnedBytes>& owners) {
  json list = json::array();
  for (const OwnedBytes& o : owners) list.push_back({{"owner", o.owner}, {"bytes", o.bytes}});
  return list;
}

json oom_json(const OutOfMemory& oom) {
  return {{"pool", oom.pool},
          {"moment", oom.moment},
          {"requested_for", oom.requested_for},
          {"requested_bytes", oom.requested},
          {"in_use_bytes", oom.in_use},
          {"capacity_bytes", oom.capacity},
          {"owners", owners_json(oom.owners)}};
}

json shares_json(const metrics::Attribution& time) {
  json shares = json::object();
  for (std::size_t o = 0; o < time.origin.size(); ++o) {
    if (time.origin[o] > 0) shares[std::string(origin_name(static_cast<Origin>(o)))] = time.origin[o] / time.total();
  }
  return shares;
}

json sensitivities_json(const std::vector<Effect>& effects) {
  json list = json::array();
  for (const Effect& f : by_reach(effects)) {
    list.push_back({{"keys", f.keys},
                    {"decode.tpot_s", {f.shorter.step, f.longer.step}},
                    {"prefill.ttft_s", {f.shorter.prefill, f.longer.prefill}}});
  }
  return list;
}

void add_metrics(json& out, const Result& r) {
  for (const Metric& metric : all_metrics()) {
    const auto number = value(r, metric);
    if (!number) continue;
    place_at(out, metric.path) = *number;
    out["origin"][metric.path] = origin_name(origin(r, metric));
    if (const auto range = interval(r, metric)) out["intervals"][metric.path] = {range->low, range->high};
  }
}

void add_times(json& out, const Result& r) {
  const Experiment& e = r.experiment;
  out["breakdown"] = breakdown_json(e.step);
  out["prefill"]["breakdown"] = breakdown_json(e.prefill);
  out["bottleneck"] = out["binding_resource"] = bottleneck(e.step);
  out["origin_shares"] = {{"decode", shares_json(e.step)}, {"prefill", shares_json(e.prefill)}};
  out["sensitivities"] = sensitivities_json(e.effects);
  // Groups of numbers that share an origin.
  const std::string_view decode = origin_name(origin_of(e.step));
  for (const char* group : {"decode.tpot_s", "transfer", "breakdown", "binding_resource"})
    out["origin"][group] = decode;
  out["origin"]["traffic"] = origin_name(origin(r, *find_metric("traffic.hbm_read_bytes")));
}

void add_memory(json& out, const Result& r) {
  const Experiment& e = r.experiment;
  json& memory = out["memory"];
  memory["hbm_owners"] = owners_json(e.hbm.owners);
  memory["decode_hbm_owners"] = owners_json(e.decode_hbm.owners);
  memory["dram_owners"] = owners_json(e.dram.owners);
  out["origin"]["memory"] = origin_name(origin(r, *find_metric("memory.hbm_peak_bytes")));
}

// The number itself is at its metric's path.
void add_score(json& out, const Result& r) {
  if (!r.benchmark_refused.empty()) {
    out["score"] = {{"benchmark", r.subject.text("score.benchmark")}, {"refused", r.benchmark_refused}};
  }
  if (!r.benchmark) return;
  json& score = out["score"];
  score["benchmark"] = r.benchmark->benchmark;
  score["interval"] = {r.benchmark->interval.low, r.benchmark->interval.high};
  score["origin"] = r.benchmark->origin;
  score["rests_on"] = r.benchmark->origin;  // for programs that read schema 1
  score["tasks"] = json::array();
  for (const BenchmarkTask& task : r.benchmark->tasks) {
    score["tasks"].push_back({{"task", task.task},
                              {"share_of_full", task.share_of_full},
                              {"interval", {task.interval.low, task.interval.high}},
                              {"full", task.full}});
    if (task.simulated) score["tasks"].back()["simulated"] = *task.simulated;
  }
}

void add_service(json& out, const Service& service) {
  const serving::Summary& s = service.summary;
  json& serving = out["serving"];
  serving["state"] = serving::state_name(s.state);
  json& moments = serving["over_time"] = json::array();
  for (const serving::Moment& m : s.moments) {
    moments.push_back({{"at_s", m.at},
                       {"running", m.running},
                       {"waiting", m.waiting},
                       {"kv_used_share", m.used},
                       {"preemptions", m.preemptions}});
  }
  serving["quantiles"] = {{"ttft_s", s.ttft_curve}, {"tpot_s", s.tpot_curve}};
}

void add_layers(json& out, const std::vector<LayerMap>& layers) {
  if (layers.empty()) return;
  json& list = out["accuracy"]["layers"] = json::array();
  for (const LayerMap& map : layers) {
    list.push_back({{"layer", map.layer},
                    {"attended", map.attended},
                    {"resident", map.resident},
                    {"recall_mass", map.recall_mass}});
  }
}

void add_timeline(json& out, const std::vector<TimelineSpan>& spans) {
  if (spans.empty()) return;
  json& list = out["timeline"] = json::array();
  for (const TimelineSpan& s : spans) {
    list.push_back({{"lane", s.lane},
                    {"kind", s.kind},
                    {"label", s.label},
                    {"layer", s.layer},
                    {"start_s", s.start_s},
                    {"dur_s", s.duration_s}});
    if (s.bytes) list.back()["bytes"] = *s.bytes;
    if (s.waited_for) list.back()["waited_for"] = *s.waited_for;
  }
}

const char* basis_text(Basis basis) {
  static constexpr const char* kTexts[] = {
      "decode time",  "decode time",      "prefill time",     "prefill time",
      "request time", "index build time", "index build time", "requests and times of passes",
      "memory",       "memory",           "memory",           "exact",
      "replay",       "replay",           "score model",      "score model",
      "simulation"};
  return kTexts[static_cast<std::size_t>(basis)];
}

}  // namespace

json breakdown_json(const metrics::Attribution& step) {
  json list = json::array();
  const std::array<double, graph::kKindCount> path = metrics::by_kind(step.path);
  for (int k = 0; k < graph::kKindCount; ++k) {
    const auto i = static_cast<std::size_t>(k);
    if (step.exposed[i] == 0 && step.hidden[i] == 0) continue;
    list.push_back({{"kind", graph::kind_name(static_cast<graph::Kind>(k))},
                    {"exposed_s", step.exposed[i]},
                    {"hidden_s", step.hidden[i]},
                    {"critical_s", path[i]},
                    {"uncertain_s", step.uncertain[i]}});
  }
  if (step.idle > 0) {
    list.push_back(
        {{"kind", "idle"}, {"exposed_s", step.idle}, {"hidden_s", 0.0}, {"critical_s", 0.0}, {"uncertain_s", 0.0}});
  }
  return list;
}

json to_json(const Metric& metric) {
  return {{"path", metric.path},
          {"alias", metric.alias.empty() ? json() : json(metric.alias)},
          {"unit", unit_name(metric.unit)},
          {"better", better_name(metric.better)},
          {"label", metric.label},
          {"definition", metric.definition},
          {"basis", basis_text(metric.basis)},
          {"interval", has_interval(metric)}};
}

json to_json(const std::optional<TaskScore>& task) {
  if (!task) return nullptr;
  return {{"task", task->task},
          {"known", task->known},
          {"share_of_full", task->share_of_full},
          {"interval", {task->interval.low, task->interval.high}},
          {"origin", origin_name(task->interval.low < task->interval.high ? Origin::kFitted : Origin::kExact)},
          {"source", task->source}};
}

json to_json(const std::string& machine, const MachineNumber& n) {
  return {{"what", machine + ": " + n.key},  {"value", or_null(n.value)},    {"unit", n.unit},
          {"origin", origin_name(n.origin)}, {"uncertainty", n.uncertainty}, {"source", n.source}};
}

json to_json(const Result& r) {
  json out;
  out["schema"] = "kvcast-result/2";
  add_settings(out["config"], r.subject.settings);
  out["status"] = status_name(r.status);
  if (r.status != Status::kFailed && !r.build) out["fit"] = fit_name(fit_of(r));
  out["oom"] = r.experiment.oom ? oom_json(*r.experiment.oom) : json();
  if (r.status == Status::kFailed) {
    out["error"] = r.error;
    return out;
  }
  add_metrics(out, r);
  if (r.build) {
    out["build"]["breakdown"] = breakdown_json(r.build->time);
    return out;
  }
  if (r.has_times()) add_times(out, r);
  if (r.service) add_service(out, *r.service);
  add_memory(out, r);
  out["accuracy"]["task"] = to_json(r.accuracy.task);
  out["origin"]["accuracy"] = origin_name(r.accuracy.origin);
  if (r.accuracy.task) {
    out["origin"]["accuracy.task"] = origin_name(origin(r, *find_metric("accuracy.task.share_of_full")));
  }
  add_score(out, r);
  add_layers(out, r.accuracy.layers);
  add_timeline(out, r.experiment.timeline);
  return out;
}

}  // namespace kvcast::result

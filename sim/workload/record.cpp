// The experiment as JSON: what `run --json` prints, the store keeps and the report reads.
#include "workload/record.hpp"

#include <algorithm>
#include <array>

#include "base/interval.hpp"
#include "workload/effects.hpp"
#include "workload/memory_interval.hpp"
#include "workload/record_parts.hpp"

namespace kvcast::workload {
namespace {

using nlohmann::json;
using result::Effect;
using result::OutOfMemory;
using result::OwnedBytes;
using result::ShiftedTimes;
using result::TimelineSpan;

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

json accuracy_json(const replay::ReplayResult& replay) {
  const replay::Proxies& p = replay.proxies;
  json out = {{"recall_mass_mean", p.recall_mass_mean},
              {"recall_mass_p10", p.recall_mass_p10},
              {"output_error_mean", p.output_error_mean},
              {"topk_overlap_mean", p.topk_overlap_mean},
              {"attended_mean", p.attended_mean}};
  if (const auto prompt = replay::prompt_attention(replay.layers)) {
    out["prompt_density"] = prompt->density;
    out["prompt_recall_mass_mean"] = prompt->recall_mass;
  }
  return out;
}

std::string largest_bound(const metrics::Attribution& step) {
  std::size_t best = 0;
  for (std::size_t b = 1; b < step.bound.size(); ++b) {
    if (step.bound[b] > step.bound[best]) best = b;
  }
  return std::string(metrics::bound_name(static_cast<metrics::Bound>(best)));
}

json shares_json(const metrics::Attribution& step) {
  json shares = json::object();
  for (std::size_t o = 0; o < step.origin.size(); ++o) {
    if (step.origin[o] > 0) shares[std::string(origin_name(static_cast<Origin>(o)))] = step.origin[o] / step.total();
  }
  return shares;
}

void add_times(json& out, const Experiment& e) {
  const auto kind = [&e](graph::Kind k) { return static_cast<std::size_t>(k); };
  out["decode"] = {{"tokens_per_s", e.tokens_per_s},
                   {"tpot_s", {{"mean", e.tpot_mean_s}, {"p50", e.tpot_p50_s}, {"p99", e.tpot_p99_s}}}};
  out["prefill"] = {{"ttft_s", e.ttft_s}, {"breakdown", breakdown_json(e.prefill)}};
  const std::size_t in = kind(graph::Kind::kCopyIn), back = kind(graph::Kind::kCopyOut);
  out["transfer"] = {{"exposed_s", e.step.exposed[in] + e.step.exposed[back]},
                     {"hidden_s", e.step.hidden[in] + e.step.hidden[back]}};
  out["breakdown"] = breakdown_json(e.step);
  out["binding_resource"] = largest_bound(e.step);
  out["traffic"] = {{"hbm_read_bytes", e.traffic.hbm_read}, {"hbm_write_bytes", e.traffic.hbm_write},
                    {"kv_read_bytes", e.traffic.kv_read},   {"h2d_bytes", e.traffic.h2d},
                    {"h2d_pieces", e.traffic.h2d_pieces},   {"d2h_bytes", e.traffic.d2h},
                    {"cpu_dram_bytes", e.traffic.cpu_dram}};
  const std::string decode_origin(origin_name(resting_on(e.step)));
  const std::string prefill_origin(origin_name(resting_on(e.prefill)));
  json& origin = out["origin"];
  for (const char* key : {"decode.tokens_per_s", "decode.tpot_s", "transfer", "breakdown", "binding_resource"}) {
    origin[key] = decode_origin;
  }
  origin["prefill.ttft_s"] = prefill_origin;
  origin["traffic"] = "exact";
  out["origin_shares"] = {{"decode", shares_json(e.step)}, {"prefill", shares_json(e.prefill)}};
}

json interval_json(double middle, const std::vector<Effect>& effects, double (*factor)(const ShiftedTimes&)) {
  FactorSpread spread;
  for (const Effect& effect : effects) spread.add(std::array{factor(effect.longer), factor(effect.shorter)});
  const Interval interval = spread.interval(middle);
  return {interval.low, interval.high};
}

const std::string& source_of(const config::Knob& knob) {
  return knob.value != nullptr ? knob.value->source : knob.curve->source;
}

void add_uncertainty(json& out, const Experiment& e) {
  using Times = ShiftedTimes;
  const auto step = [](const Times& t) { return t.step; };
  const auto rate = [](const Times& t) { return 1 / t.step; };
  const auto prefill = [](const Times& t) { return t.prefill; };
  out["intervals"] = {{"decode.tokens_per_s", interval_json(e.tokens_per_s, e.effects, rate)},
                      {"decode.tpot_s.mean", interval_json(e.tpot_mean_s, e.effects, step)},
                      {"prefill.ttft_s", interval_json(e.ttft_s, e.effects, prefill)}};
  std::vector<Effect> effects = e.effects;
  const auto reach = [](const Effect& f) { return std::max(f.longer.step, 1 / f.shorter.step); };
  std::stable_sort(effects.begin(), effects.end(),
                   [&](const Effect& a, const Effect& b) { return reach(a) > reach(b); });
  json& list = out["sensitivities"] = json::array();
  for (const Effect& f : effects) {
    list.push_back({{"keys", f.keys},
                    {"decode.tpot_s", {f.shorter.step, f.longer.step}},
                    {"prefill.ttft_s", {f.shorter.prefill, f.longer.prefill}}});
  }
}

}  // namespace

json breakdown_json(const metrics::Attribution& step) {
  json list = json::array();
  for (int k = 0; k < graph::kKindCount; ++k) {
    const auto i = static_cast<std::size_t>(k);
    if (step.exposed[i] == 0 && step.hidden[i] == 0) continue;
    list.push_back({{"kind", graph::kind_name(static_cast<graph::Kind>(k))},
                    {"exposed_s", step.exposed[i]},
                    {"hidden_s", step.hidden[i]},
                    {"uncertain_s", step.uncertain[i]}});
  }
  if (step.idle > 0) {
    list.push_back({{"kind", "idle"}, {"exposed_s", step.idle}, {"hidden_s", 0.0}, {"uncertain_s", 0.0}});
  }
  return list;
}

Origin resting_on(const metrics::Attribution& step) {
  Origin worst = Origin::kExact;
  for (std::size_t o = 0; o < step.origin.size(); ++o) {
    if (step.origin[o] > 0 && step.origin[o] >= 0.05 * step.total()) worst = worse(worst, static_cast<Origin>(o));
  }
  return worst;
}

json rests_on(const config::Hardware& hardware) {
  config::Hardware copy = hardware;  // knobs are for turning, too
  json list = json::array();
  for (const config::Knob& knob : config::knobs(copy)) {
    const Origin origin = knob.value != nullptr ? knob.value->origin : knob.curve->origin;
    const double uncertainty = knob.value != nullptr ? knob.value->uncertainty : knob.curve->uncertainty;
    list.push_back({{"what", fmt::format("{}: {}", hardware.name, knob.key)},
                    {"origin", origin_name(origin)},
                    {"uncertainty", uncertainty},
                    {"source", source_of(knob)}});
  }
  return list;
}

json shifted_json(const Experiment& e, const Phases& asked) {
  const auto times = [&](const ShiftedTimes& t) {
    json out = json::object();
    if (asked.step && t.step_parts) {
      out["decode"] = {
          {"tokens_per_s", e.tokens_per_s / t.step},
          {"tpot_s",
           {{"mean", e.tpot_mean_s * t.step}, {"p50", e.tpot_p50_s * t.step}, {"p99", e.tpot_p99_s * t.step}}}};
      out["breakdown"] = breakdown_json(*t.step_parts);
    }
    if (asked.prefill && t.prefill_parts) {
      out["prefill"] = {{"ttft_s", e.ttft_s * t.prefill}, {"breakdown", breakdown_json(*t.prefill_parts)}};
    }
    return out;
  };
  json list = json::array();
  for (const Effect& f : e.effects) {
    const json longer = times(f.longer);
    if (!longer.empty()) list.push_back({{"source", f.source}, {"longer", longer}, {"shorter", times(f.shorter)}});
  }
  return list;
}

json to_json(const Experiment& e, const ExperimentInput& input) {
  json out;
  if (e.oom) {
    out["oom"] = oom_json(*e.oom);
  } else {
    out["oom"] = nullptr;
    add_times(out, e);
    add_uncertainty(out, e);
  }
  out["memory"] = {{"hbm_peak_bytes", e.hbm.peak},
                   {"hbm_capacity_bytes", e.hbm.capacity},
                   {"hbm_owners", owners_json(e.hbm.owners)},
                   {"decode_hbm_peak_bytes", e.decode_hbm.peak},
                   {"decode_hbm_owners", owners_json(e.decode_hbm.owners)},
                   {"dram_peak_bytes", e.dram.peak},
                   {"dram_capacity_bytes", e.dram.capacity},
                   {"dram_owners", owners_json(e.dram.owners)}};
  add_memory_intervals(out, e);
  out["accuracy"] = accuracy_json(*input.replay);
  // Proxies are exact for the trace; a synthetic trace only stands for a model.
  out["origin"]["accuracy"] = input.replay->trace_source == "captured" ? "exact" : "assumed";
  out["engine"] = {{"ops", e.engine_ops}, {"events", e.engine_events}, {"wall_s", e.engine_wall_s}};
  if (!e.timeline.empty()) {
    json& list = out["timeline"] = json::array();
    for (const TimelineSpan& s : e.timeline) {
      list.push_back({{"lane", s.lane},
                      {"kind", s.kind},
                      {"label", s.label},
                      {"layer", s.layer},
                      {"start_s", s.start_s},
                      {"dur_s", s.duration_s}});
    }
  }
  return out;
}

}  // namespace kvcast::workload

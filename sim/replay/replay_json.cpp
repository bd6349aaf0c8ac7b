// The counts of a replay as compact JSON: one array of numbers per head and step.
#include "replay/replay.hpp"

namespace kvcast::replay {
namespace {

using nlohmann::json;
using policy::HeadCounts;

// The order in the arrays; `corrected` follows as 0 or 1.
constexpr std::int64_t HeadCounts::*kFields[] = {
    &HeadCounts::attended, &HeadCounts::cpu_attended, &HeadCounts::scored,  &HeadCounts::candidates,
    &HeadCounts::fetched,  &HeadCounts::fetched_runs, &HeadCounts::evicted, &HeadCounts::attended_runs};

json counts_json(const HeadCounts& counts) {
  json list = json::array();
  for (const auto field : kFields) list.push_back(counts.*field);
  list.push_back(counts.corrected ? 1 : 0);
  return list;
}

HeadCounts counts_from(const json& list) {
  HeadCounts counts;
  std::size_t i = 0;
  for (const auto field : kFields) counts.*field = list.at(i++).get<std::int64_t>();
  counts.corrected = list.at(i).get<int>() != 0;
  return counts;
}

json layer_json(const LayerCounts& layer) {
  json counts = json::array();
  for (const HeadCounts& c : layer.counts) counts.push_back(counts_json(c));
  return {{"layer", layer.layer},
          {"per_query_head", layer.per_query_head},
          {"heads", layer.heads},
          {"counts", counts},
          {"resident", layer.resident},
          {"distinct", layer.distinct},
          {"recall_mass", layer.recall_mass},
          {"prompt", {layer.prompt.sparse ? 1.0 : 0.0, layer.prompt.density, layer.prompt.recall_mass}}};
}

LayerCounts layer_from(const json& j) {
  LayerCounts layer;
  layer.layer = j.at("layer").get<int>();
  layer.per_query_head = j.at("per_query_head").get<bool>();
  layer.heads = j.at("heads").get<int>();
  for (const json& c : j.at("counts")) layer.counts.push_back(counts_from(c));
  layer.resident = j.at("resident").get<std::vector<std::int64_t>>();
  layer.distinct = j.at("distinct").get<std::vector<std::int64_t>>();
  layer.recall_mass = j.at("recall_mass").get<std::vector<double>>();
  const auto prompt = j.at("prompt").get<std::array<double, 3>>();
  layer.prompt = {prompt[0] != 0, prompt[1], prompt[2]};
  return layer;
}

}  // namespace

json to_json(const ReplayResult& r) {
  json layers = json::array();
  for (const LayerCounts& layer : r.layers) layers.push_back(layer_json(layer));
  const Proxies& p = r.proxies;
  const graph::ByteCounts& t = r.traffic;
  return {{"trace_source", r.trace_source},
          {"prompt_tokens", r.prompt_tokens},
          {"decode_steps", r.decode_steps},
          {"per_query_head", r.per_query_head},
          {"dense_layers", r.dense_layers},
          {"growth", {r.growth.attended, r.growth.scored}},
          {"fill", {r.growth.fill, r.growth.when_full}},
          {"proportional", r.growth.proportional},
          {"proxies",
           {p.recall_mass_mean, p.recall_mass_p10, p.output_error_mean, p.topk_overlap_mean, p.attended_mean,
            p.distinct_mean, p.corrected_mean}},
          {"traffic", {t.hbm_read, t.hbm_write, t.h2d, t.d2h, t.cpu_dram, t.kv_read}},
          {"task", r.task},
          {"targets", to_json(r.targets)},
          {"layers", layers}};
}

ReplayResult replay_from_json(const json& j) {
  ReplayResult r;
  r.trace_source = j.at("trace_source").get<std::string>();
  r.prompt_tokens = j.at("prompt_tokens").get<std::int64_t>();
  r.decode_steps = j.at("decode_steps").get<int>();
  r.per_query_head = j.at("per_query_head").get<bool>();
  r.dense_layers = j.at("dense_layers").get<int>();
  const auto growth = j.at("growth").get<std::array<double, 2>>();
  const auto fill = j.at("fill").get<std::array<std::int64_t, 2>>();
  r.growth = {growth[0], growth[1], fill[0], fill[1], j.at("proportional").get<bool>()};
  const auto p = j.at("proxies").get<std::array<double, 7>>();
  r.proxies = {p[0], p[1], p[2], p[3], p[4], p[5], p[6]};
  const auto t = j.at("traffic").get<std::array<double, 6>>();
  r.traffic = {t[0], t[1], t[2], t[3], t[4], t[5]};
  r.task = j.at("task").get<std::string>();
  r.targets = target_recall_from(j.at("targets"));
  for (const json& layer : j.at("layers")) r.layers.push_back(layer_from(layer));
  return r;
}

}  // namespace kvcast::replay

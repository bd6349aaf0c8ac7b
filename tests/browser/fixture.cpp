// Makes stores for the browser tests: results of the shape that a sweep leaves, with invented numbers that follow
// simple rules (weights and KV bytes over a bandwidth, recall rising with the budget), so that what the page shows can
// be derived.
//
//   report_fixture DIR sweep   two devices, three contexts, three batches, ten policies with variants, out-of-memory
//   rows report_fixture DIR large   the same grid with more budgets and batches: over 3000 experiments report_fixture
//   DIR bare    four results that lack nearly everything, a failed row, hostile names report_fixture DIR empty   a
//   store without rows
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/hash.hpp"
#include "store/store.hpp"

namespace {

using kvcast::store::Record;
using kvcast::store::Status;
using kvcast::store::Store;
using nlohmann::json;

struct Device {
  const char* name;
  double bandwidth;  // bytes/s
  double link;
  double capacity;
};
constexpr Device kDevices[] = {{"a100-40gb-pcie4", 1.555e12, 24e9, 40e9}, {"h100-sxm", 3.35e12, 50e9, 80e9}};

struct Policy {
  const char* name;
  bool keeps_all;           // the whole cache stays in HBM
  bool offloads;            // the cache lies in DRAM, pages are recalled
  double recall_at;         // budget at which recall reaches 1 - 1/e, as a share of sqrt(context)
  const char* variant_key;  // nullptr: none
  json variants;
};

const std::vector<Policy>& policies() {
  static const std::vector<Policy> list = {
      {"full", true, false, 0, nullptr, {}},
      {"exact_topk", true, false, 0.6, nullptr, {}},
      {"streaming_llm", false, false, 14, nullptr, {}},
      {"snapkv", false, false, 5, nullptr, {}},
      {"quest", true, false, 3.5, nullptr, {}},
      {"hsa", true, false, 2.2, nullptr, {}},
      {"rocketkv", false, false, 1.2, "split_factor", {"adaptive", "0.3", "0.4", "0.5", "0.6", "0.7"}},
      {"rocketkv_mt", true, false, 1.1, nullptr, {}},
      {"arkvale", false, true, 2.0, nullptr, {}},
      {"freekv", false, true, 1.6, "speculation", {"true", "false"}},
  };
  return list;
}

struct Point {
  const Device& device;
  const Policy& policy;
  std::string variant;
  double context, batch, budget;
};

constexpr double kWeights = 16.06e9;
constexpr double kKvPerToken = 131072;  // bytes: 32 layers, 8 KV heads, 128 dimensions, K and V, two bytes each

json owners(const std::vector<std::pair<const char*, double>>& parts) {
  json list = json::array();
  for (const auto& [owner, bytes] : parts) {
    if (bytes > 0) list.push_back({{"owner", owner}, {"bytes", bytes}});
  }
  return list;
}

struct Memory {
  double kv, index, activations;
  double total() const { return kWeights + kv + index + activations; }
};

Memory memory_of(const Point& p) {
  const double cache = p.context * p.batch * kKvPerToken;
  const double share = p.policy.keeps_all ? 1 : std::min(1.0, p.budget / p.context);
  return {cache * share, p.policy.recall_at > 0 && share < 1 ? 0.04 * cache : 0, 0.4e9 + 15e3 * p.context};
}

double recall_of(const Point& p) {
  if (p.policy.recall_at == 0) return 1;
  double half = p.policy.recall_at * std::sqrt(p.context) * 4;
  if (std::string(p.policy.name) == "rocketkv" && p.variant != "adaptive") {
    half *= 1 + 6 * std::pow(std::stod(p.variant) - 0.5, 2);
  }
  return 1 - std::exp(-p.budget / half);
}

json step_of(const Point& p) {
  const double read = p.policy.recall_at == 0 ? p.context : std::min(p.budget, p.context);
  const double gemm = kWeights / p.device.bandwidth;
  const double attention = read * p.batch * kKvPerToken / p.device.bandwidth;
  const double score = p.policy.recall_at == 0 ? 0 : 0.06 * p.context * p.batch * kKvPerToken / p.device.bandwidth;
  const double copy = p.policy.offloads ? 0.15 * read * p.batch * kKvPerToken / p.device.link : 0;
  // A recall loop on the host that a large budget makes far longer than any other step.
  const double launch = std::string(p.policy.name) == "arkvale" && p.budget == 4096 ? 0.5 : 2e-4;
  const double hidden = p.variant == "true" ? std::min(copy, gemm + attention) : 0;
  return json::array({{{"kind", "gemm"}, {"exposed_s", gemm}, {"hidden_s", 0}},
                      {{"kind", "attention"}, {"exposed_s", attention}, {"hidden_s", 0}},
                      {{"kind", "score"}, {"exposed_s", score}, {"hidden_s", 0}},
                      {{"kind", "topk"}, {"exposed_s", score > 0 ? 3e-4 : 0}, {"hidden_s", 0}},
                      {{"kind", "copy_in"}, {"exposed_s", copy - hidden}, {"hidden_s", hidden}},
                      {{"kind", "small"}, {"exposed_s", 4e-4}, {"hidden_s", 0}},
                      {{"kind", "launch"}, {"exposed_s", launch}, {"hidden_s", 2.5e-3}}});
}

json timeline_of(const json& breakdown, bool offloads) {
  json rows = json::array();
  double at = 0.5;  // a step somewhere in a longer run
  const auto add = [&](const char* lane, const std::string& kind, int layer, double start, double duration) {
    rows.push_back({{"lane", lane},
                    {"kind", kind},
                    {"label", kind + " of layer " + std::to_string(layer)},
                    {"layer", layer},
                    {"start_s", start},
                    {"dur_s", duration}});
  };
  for (int layer = 0; layer < 8; ++layer) {
    add("host thread", "launch", layer, at - 2e-5, 4e-5);
    for (const json& part : breakdown) {
      const double duration = part["exposed_s"].get<double>() / 8;
      if (duration <= 0 || part["kind"] == "launch") continue;
      if (part["kind"] == "copy_in") {
        add("copy stream A", "copy_in", layer, at, duration);
      } else {
        add("compute stream", part["kind"], layer, at, duration);
      }
      at += duration;
    }
    if (offloads) add("copy stream B", "copy_in", layer, at - 3e-4, 2.5e-4);
  }
  return rows;
}

json rests_on() {
  return json::array(
      {{{"what", "HBM bandwidth"}, {"origin", "datasheet"}, {"uncertainty", 0.1}, {"source", "NVIDIA data sheet"}},
       {{"what", "kernel latency floor"}, {"origin", "assumed"}, {"uncertainty", 0.5}, {"source", "own judgement"}},
       {{"what", "copy issue cost"}, {"origin", "literature"}, {"uncertainty", 0.3}, {"source", "FreeKV, section 4"}}});
}

json fitting_result(const Point& p, const Memory& memory) {
  const json breakdown = step_of(p);
  double step = 0;
  double hidden = 0;
  for (const json& part : breakdown) {
    step += part["exposed_s"].get<double>();
    hidden += part["hidden_s"].get<double>();
  }
  const double tps = p.batch / step;
  const double recall = recall_of(p);
  const bool extrapolated = p.context > 100000;
  const double offloaded = p.policy.offloads ? p.context * p.batch * kKvPerToken : 0;
  json result = {{"decode", {{"tokens_per_s", tps}, {"tpot_s", {{"mean", step}, {"p50", step}, {"p99", 1.2 * step}}}}},
                 {"prefill", {{"ttft_s", p.context * p.batch * 16e9 / 150e12}}},
                 {"memory",
                  {{"hbm_peak_bytes", memory.total()},
                   {"dram_peak_bytes", offloaded},
                   {"hbm_capacity_bytes", p.device.capacity},
                   {"dram_capacity_bytes", 256e9},
                   {"hbm_owners", owners({{"weights", kWeights},
                                          {"KV cache", memory.kv},
                                          {"index", memory.index},
                                          {"activations", memory.activations}})},
                   {"dram_owners", owners({{"offloaded KV", offloaded}})}}},
                 {"oom", nullptr},
                 {"traffic", {{"hbm_read_bytes", kWeights + memory.kv}, {"h2d_bytes", 0.01 * offloaded}}},
                 {"transfer", {{"exposed_s", breakdown[4]["exposed_s"]}, {"hidden_s", breakdown[4]["hidden_s"]}}},
                 {"breakdown", breakdown},
                 {"binding_resource", p.policy.offloads && p.variant != "true" ? "h2d" : "hbm"},
                 {"accuracy",
                  {{"recall_mass_mean", recall},
                   {"recall_mass_p10", recall * recall},
                   {"output_error_mean", 1 - recall},
                   {"topk_overlap_mean", 0.9 * recall},
                   {"task", {{"share_of_full", 0.5 + recall / 2}}},
                   {"attended_mean", p.policy.recall_at == 0 ? p.context : p.budget}}},
                 {"intervals",
                  {{"decode.tokens_per_s", {0.85 * tps, 1.2 * tps}}, {"accuracy.task.share_of_full", {recall / 2, 1}}}},
                 {"origin",
                  {{"decode.tokens_per_s", extrapolated ? "extrapolated" : "assumed"},
                   {"decode.tpot_s.mean", "assumed"},
                   {"memory", "exact"},
                   {"accuracy", "fitted"}}},
                 {"origin_shares", {{"decode", {{"literature", 0.75}, {"assumed", 0.25}}}}},
                 {"rests_on", rests_on()},
                 {"engine", {{"events", 12000}, {"wall_s", 0.004}}}};
  if (p.context == 32768 && p.batch == 4 && (p.budget == 0 || p.budget == 1024)) {
    result["timeline"] = timeline_of(breakdown, p.policy.offloads);
  }
  return result;
}

json oom_result(const Point& p, const Memory& memory) {
  const double in_use = kWeights + memory.activations;
  return {{"oom",
           {{"pool", "hbm"},
            {"moment", "prefill, layer 17"},
            {"requested_bytes", memory.total() - in_use},
            {"in_use_bytes", in_use},
            {"capacity_bytes", p.device.capacity},
            {"owners", owners({{"weights", kWeights}, {"activations", memory.activations}})}}},
          {"memory", {{"hbm_capacity_bytes", p.device.capacity}, {"dram_capacity_bytes", 256e9}}},
          {"rests_on", rests_on()}};
}

Record record_of(const Point& p, int ordinal) {
  const Memory memory = memory_of(p);
  Record r;
  r.ordinal = ordinal;
  json policy = {{"name", p.policy.name}};
  r.values = {{"policy", p.policy.name},
              {"hardware", p.device.name},
              {"workload.prompt_tokens", std::to_string(static_cast<int>(p.context))},
              {"workload.batch", std::to_string(static_cast<int>(p.batch))}};
  if (p.budget > 0) {
    policy["budget"] = p.budget;
    r.values["policy.budget"] = std::to_string(static_cast<int>(p.budget));
  }
  if (!p.variant.empty()) {
    policy[p.policy.variant_key] = p.variant;
    r.values[std::string("policy.") + p.policy.variant_key] = p.variant;
  }
  r.config = {{"model", "llama-3.1-8b"},
              {"hardware", p.device.name},
              {"policy", policy},
              {"workload", {{"prompt_tokens", p.context}, {"decode_tokens", 512}, {"batch", p.batch}}}};
  const bool fits = memory.total() <= p.device.capacity;
  r.status = fits ? Status::kOk : Status::kOom;
  r.result = fits ? fitting_result(p, memory) : oom_result(p, memory);
  r.key = kvcast::content_hash(r.config.dump());
  r.code_version = std::string("fixture");
  r.created_at = std::string("2025-01-31T12:00:00Z");
  r.wall_s = 0.004;
  return r;
}

void write_grid(Store& store, const std::vector<double>& contexts, const std::vector<double>& batches,
                const std::vector<double>& budgets) {
  int ordinal = 0;
  for (const Device& device : kDevices) {
    for (const double context : contexts) {
      for (const double batch : batches) {
        for (const Policy& policy : policies()) {
          const auto own_budgets = policy.recall_at == 0 ? std::vector<double>{0} : budgets;
          const auto variants = policy.variant_key == nullptr ? std::vector<std::string>{""}
                                                              : policy.variants.get<std::vector<std::string>>();
          for (const double budget : own_budgets) {
            for (const std::string& variant : variants) {
              store.put(record_of({device, policy, variant, context, batch, budget}, ordinal++));
            }
          }
        }
      }
    }
  }
  store.set_metadata(kvcast::store::kMetaName, "Fixture sweep");
  store.set_metadata(kvcast::store::kMetaDescription, "Invented numbers of the right shape, for testing the report.");
  store.set_metadata(kvcast::store::kMetaConfig, "model: llama-3.1-8b\nsweep:\n  policy.budget: [256, 1024, 4096]\n");
  store.set_metadata(
      kvcast::store::kMetaFindings,
      json::array({{{"title", "Best policy at the memory limit"},
                    {"text", "rocketkv, 412 tokens/s"},
                    {"detail", "On h100-sxm at 128K with batch 8 and budget 1024; full KV stops at batch 3."}},
                   {{"title", "Break-even batch"},
                    {"text", "2"},
                    {"detail", "From this batch on, freekv is faster than full KV at 32K."}},
                   {{"title", "Binding resource"},
                    {"text", "HBM bandwidth"},
                    {"detail", "In 71 % of the experiments that fit; the host link in 29 %."}}})
          .dump());
}

void write_bare(Store& store) {
  const auto put = [&](const char* key, json config, Status status, json result) {
    Record r;
    r.key = key;
    r.config = std::move(config);
    r.status = status;
    r.result = std::move(result);
    r.code_version = std::string("fixture");
    store.put(r);
  };
  put("a", json::object(), Status::kOk, json::object());
  put("b", {{"policy", "full"}}, Status::kOk, {{"decode", {{"tokens_per_s", 3}}}});
  put("c", {{"policy", {{"name", "</script><script>alert(1)</script>"}, {"budget", 64}}}, {"hardware", "<b>x</b>"}},
      Status::kOk, {{"decode", {{"tokens_per_s", 5}}}, {"accuracy", {{"recall_mass_mean", 0.5}}}});
  put("d", {{"policy", "quest"}}, Status::kOom, {{"oom", {{"pool", "hbm"}}}});
  put("e", {{"policy", "quest"}}, Status::kFailed, {{"error", "window 64 is longer than the prompt"}});
  store.set_metadata(kvcast::store::kMetaName, "</title><script>alert(2)</script>{{data}}");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: report_fixture DIR sweep|large|bare|empty\n");
    return 2;
  }
  const std::string kind = argv[2];
  Store store = Store::open(argv[1], Store::Open::kCreate);
  if (kind == "sweep") write_grid(store, {16384, 32768, 131072}, {1, 4, 8}, {256, 1024, 4096});
  if (kind == "large") write_grid(store, {16384, 32768, 65536, 131072}, {1, 2, 4, 8, 16}, {256, 512, 1024, 2048, 4096});
  if (kind == "bare") write_bare(store);
  return 0;
}

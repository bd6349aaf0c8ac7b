// Makes stores for the browser tests: results like those of a sweep, with invented numbers that follow simple rules
// (weights and KV bytes over a bandwidth, recall rising with the budget), so that the page's numbers can be derived.
//
//   report_fixture DIR sweep   two devices, three contexts, three batches, ten policies with variants, out-of-memory
//                              rows
//   report_fixture DIR large   the same grid with more budgets and batches: over 3000 experiments
//   report_fixture DIR seeds   three seeds, whose throughputs are 0.9, 1 and 1.1 times that of the other grids
//   report_fixture DIR match  two policies whose budgets are solved for three costs, one out of reach, and full KV
//   report_fixture DIR maps   needles at depths, and four replayed layers of two heads
//   report_fixture DIR bare    four results that lack nearly everything, a failed row, hostile names
//   report_fixture DIR empty   a store without rows
//   report_fixture DIR plan ANSWERS   three experiments of a plan and the answers of a JSON file; with `sweep` instead
//                              of `plan`, the answers together with a sweep
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "map_fixture.hpp"
#include "store/store.hpp"

namespace {

using kvcast::Origin;
using kvcast::graph::Kind;
using kvcast::metrics::Bound;
using kvcast::result::OwnedBytes;
using kvcast::result::Result;
using kvcast::result::Status;
using kvcast::store::Store;

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
  bool offloads;            // the cache is in DRAM, pages are recalled
  double recall_at;         // budget at which recall reaches 1 - 1/e, as a share of sqrt(context)
  const char* variant_key;  // nullptr: none
  std::vector<std::string> variants;
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
  int seed = 0;  // 0: no seeds are swept
};

constexpr double kWeights = 16.06e9;
constexpr double kKvPerToken = 131072;  // bytes: 32 layers, 8 KV heads, 128 dimensions, K and V, two bytes each

std::vector<OwnedBytes> owners(const std::vector<OwnedBytes>& parts) {
  std::vector<OwnedBytes> list;
  for (const OwnedBytes& part : parts) {
    if (part.bytes > 0) list.push_back(part);
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

kvcast::metrics::Attribution step_of(const Point& p) {
  const double read = p.policy.recall_at == 0 ? p.context : std::min(p.budget, p.context);
  const double gemm = kWeights / p.device.bandwidth;
  const double attention = read * p.batch * kKvPerToken / p.device.bandwidth;
  const double score = p.policy.recall_at == 0 ? 0 : 0.06 * p.context * p.batch * kKvPerToken / p.device.bandwidth;
  const double copy = p.policy.offloads ? 0.15 * read * p.batch * kKvPerToken / p.device.link : 0;
  // A recall loop on the host that a large budget makes far longer than any other step.
  const double launch = std::string(p.policy.name) == "arkvale" && p.budget == 4096 ? 0.5 : 2e-4;
  const double hidden = p.variant == "true" ? std::min(copy, gemm + attention) : 0;
  kvcast::metrics::Attribution step;
  const auto exposed = [&step](Kind kind) -> double& { return step.exposed[static_cast<std::size_t>(kind)]; };
  exposed(Kind::kGemm) = gemm;
  exposed(Kind::kAttention) = attention;
  exposed(Kind::kScore) = score;
  exposed(Kind::kTopK) = score > 0 ? 3e-4 : 0;
  exposed(Kind::kCopyIn) = copy - hidden;
  exposed(Kind::kSmall) = 4e-4;
  exposed(Kind::kLaunch) = launch;
  step.hidden[static_cast<std::size_t>(Kind::kCopyIn)] = hidden;
  step.hidden[static_cast<std::size_t>(Kind::kLaunch)] = 2.5e-3;
  const bool waits = p.policy.offloads && p.variant != "true";
  step.bound[static_cast<std::size_t>(waits ? Bound::kLink : Bound::kHbm)] = step.total();
  step.origin[static_cast<std::size_t>(Origin::kLiterature)] = 0.75 * step.total();
  step.origin[static_cast<std::size_t>(Origin::kAssumed)] = 0.25 * step.total();
  return step;
}

std::vector<kvcast::result::TimelineSpan> timeline_of(const kvcast::metrics::Attribution& step, bool offloads) {
  std::vector<kvcast::result::TimelineSpan> spans;
  double at = 0.5;  // a step somewhere in a longer run
  const auto add = [&](const char* lane, const std::string& kind, int layer, double start, double duration) {
    spans.push_back({lane, kind, kind + " of layer " + std::to_string(layer), layer, start, duration, {}, {}});
    if (kind == "copy_in") spans.back().bytes = 2.5e6;
  };
  std::optional<int> copy;  // the exposed copy that nothing has waited for yet
  for (int layer = 0; layer < 8; ++layer) {
    add("host thread", "launch", layer, at - 2e-5, 4e-5);
    for (std::size_t k = 0; k < step.exposed.size(); ++k) {
      const Kind kind = static_cast<Kind>(k);
      const double duration = step.exposed[k] / 8;
      if (duration <= 0 || kind == Kind::kLaunch) continue;
      add(kind == Kind::kCopyIn ? "copy stream A" : "compute stream", std::string(kind_name(kind)), layer, at,
          duration);
      at += duration;
      // An exposed copy waits for the kernel before it, and the kernel after it waits for the copy.
      const int last = static_cast<int>(spans.size()) - 1;
      if (kind == Kind::kCopyIn) spans.back().waited_for = last - 1;
      if (kind != Kind::kCopyIn && copy) spans.back().waited_for = std::exchange(copy, std::nullopt);
      if (kind == Kind::kCopyIn) copy = last;
    }
    if (offloads) add("copy stream B", "copy_in", layer, at - 3e-4, 2.5e-4);
  }
  return spans;
}

std::vector<kvcast::store::MachineNumber> machine_numbers(const Device& device) {
  return {{"HBM bandwidth", device.bandwidth, "bytes/s", Origin::kDatasheet, 0.1, "NVIDIA data sheet"},
          {"kernel latency floor", 2e-6, "seconds", Origin::kAssumed, 0.5, "own judgement"},
          {"copy issue cost", 1e-5, "seconds", Origin::kLiterature, 0.3, "FreeKV, section 4"}};
}

// A shifted cost of which one direction multiplies the throughput by 0.85, and the other one by 1.2.
kvcast::result::Effect effect() {
  kvcast::result::Effect effect{"NVIDIA data sheet", {"HBM bandwidth"}, {}, {}};
  effect.longer.step = 1 / 0.85, effect.shorter.step = 1 / 1.2;
  return effect;
}

void fill_in_accuracy(const Point& p, Result& r) {
  const double recall = recall_of(p);
  r.accuracy.recall_mass_mean = recall, r.accuracy.recall_mass_p10 = recall * recall;
  r.accuracy.output_error_mean = 1 - recall, r.accuracy.topk_overlap_mean = 0.9 * recall;
  r.accuracy.attended_mean = p.policy.recall_at == 0 ? p.context : p.budget;
  r.accuracy.origin = Origin::kAssumed;
  r.accuracy.task.emplace().share_of_full = 0.5 + recall / 2;
  r.accuracy.task->interval = {recall / 2, 1};
}

void fill_in_times(const Point& p, const Memory& memory, Result& r) {
  kvcast::result::Experiment& e = r.experiment;
  e.step = step_of(p);
  const double step = e.step.total();
  e.tokens_per_s = p.batch / step * (p.seed == 0 ? 1 : 0.8 + 0.1 * p.seed);
  e.tpot_mean_s = e.tpot_p50_s = step, e.tpot_p99_s = 1.2 * step;
  e.ttft_s = p.context * p.batch * 16e9 / 150e12;
  e.prefill.exposed[static_cast<std::size_t>(Kind::kGemm)] = e.ttft_s;
  e.prefill.origin[static_cast<std::size_t>(Origin::kAssumed)] = e.ttft_s;
  e.effects = {effect()};
  e.traffic.hbm_read = kWeights + memory.kv, e.traffic.h2d = 0.01 * e.dram.peak;
  e.engine_ops = 5000, e.engine_events = 12000, e.engine_wall_s = 0.004;
  if (p.context == 32768 && p.batch == 4 && (p.budget == 0 || p.budget == 1024)) {
    e.timeline = timeline_of(e.step, p.policy.offloads);
  }
}

void fill_in_memory(const Point& p, const Memory& memory, Result& r) {
  kvcast::result::Experiment& e = r.experiment;
  const double offloaded = p.policy.offloads ? p.context * p.batch * kKvPerToken : 0;
  // "workspace" instead of "activations": the page tests count these peaks as exact.
  e.hbm = {p.device.capacity, memory.total(),
           owners({{"weights", kWeights},
                   {"KV cache", memory.kv},
                   {"index", memory.index},
                   {"workspace", memory.activations}})};
  e.decode_hbm = e.hbm;
  e.dram = {256e9, offloaded, owners({{"offloaded KV", offloaded}})};
}

void fill_in_misfit(const Point& p, const Memory& memory, Result& r) {
  const double in_use = kWeights + memory.activations;
  r.status = Status::kOom;
  r.experiment.oom = {"hbm",  "prefill, layer 17", memory.total() - in_use,
                      in_use, p.device.capacity,   owners({{"weights", kWeights}, {"workspace", memory.activations}}),
                      ""};
  r.experiment.hbm.capacity = p.device.capacity, r.experiment.dram.capacity = 256e9;
}

kvcast::result::Subject subject_of(const Point& p) {
  using kvcast::result::SettingValue;
  kvcast::result::Subject s;
  s.name = "Fixture sweep", s.model = "llama-3.1-8b", s.hardware = p.device.name, s.policy = p.policy.name;
  s.prompt_tokens = static_cast<std::int64_t>(p.context), s.decode_tokens = 512;
  s.batch = static_cast<std::int64_t>(p.batch);
  s.settings = {{"hardware", s.hardware}, {"model", s.model}};
  s.swept = {{"policy", s.policy},
             {"hardware", s.hardware},
             {"workload.prompt_tokens", std::to_string(s.prompt_tokens)},
             {"workload.batch", std::to_string(s.batch)}};
  if (p.budget > 0) {
    const auto budget = static_cast<std::int64_t>(p.budget);
    s.settings.push_back({"policy.budget", budget});
    s.swept.emplace_back("policy.budget", std::to_string(budget));
  }
  s.settings.push_back({"policy.name", s.policy});
  if (!p.variant.empty()) {
    const std::string key = std::string("policy.") + p.policy.variant_key;
    s.settings.push_back({key, kvcast::result::setting_value(p.variant)});
    s.swept.emplace_back(key, p.variant);
  }
  if (p.seed > 0) {
    s.settings.push_back({"trace.seed", std::int64_t{p.seed}});
    s.swept.emplace_back("trace.seed", std::to_string(p.seed));
  }
  s.settings.push_back({"workload.batch", s.batch});
  s.settings.push_back({"workload.decode_tokens", s.decode_tokens});
  s.settings.push_back({"workload.prompt_tokens", s.prompt_tokens});
  return s;
}

Result result_of(const Point& p) {
  const Memory memory = memory_of(p);
  Result r;
  r.subject = subject_of(p);
  std::string inputs;
  for (const auto& setting : r.subject.settings)
    inputs += setting.key + "=" + kvcast::result::text_of(setting.value) + "\n";
  r.key = kvcast::content_hash(inputs);
  r.wall_s = 0.004;
  if (memory.total() > p.device.capacity) {
    fill_in_misfit(p, memory, r);
    return r;
  }
  fill_in_memory(p, memory, r);
  fill_in_times(p, memory, r);
  fill_in_accuracy(p, r);
  return r;
}

void write_grid(Store& store, const std::vector<double>& contexts, const std::vector<double>& batches,
                const std::vector<double>& budgets, const std::vector<int>& seeds = {0}) {
  int ordinal = 0;
  for (const Device& device : kDevices) {
    for (const double context : contexts) {
      for (const double batch : batches) {
        for (const Policy& policy : policies()) {
          const auto own_budgets = policy.recall_at == 0 ? std::vector<double>{0} : budgets;
          const auto variants = policy.variant_key == nullptr ? std::vector<std::string>{""} : policy.variants;
          for (const double budget : own_budgets) {
            for (const std::string& variant : variants) {
              for (const int seed : seeds) {
                store.put(ordinal++, result_of({device, policy, variant, context, batch, budget, seed}), "fixture");
              }
            }
          }
        }
      }
    }
  }
  store.set_metadata(kvcast::store::kMetaName, "Fixture sweep");
  store.set_metadata(kvcast::store::kMetaDescription, "Invented numbers of the right shape, for testing the report.");
  store.set_metadata(kvcast::store::kMetaConfig, "model: llama-3.1-8b\nsweep:\n  policy.budget: [256, 1024, 4096]\n");
  store.set_findings(
      {{"Best policy at the memory limit", "rocketkv, 412 tokens/s",
        "On h100-sxm at 128K with batch 8 and budget 1024; full KV stops at batch 3.",
        R"([{"place": "a100-40gb-pcie4", "text": "full KV is the fastest", "number": "90 tokens/s", "bars": []},
            {"place": "h100-sxm", "text": "rocketkv, budget 1024", "number": "4 × full KV", "bars": [
             {"label": "rocketkv", "text": "412 tokens/s", "from": 0, "to": 412},
             {"label": "full KV", "text": "103 tokens/s", "from": 0, "to": 103}]}])"},
       {"Largest uncertainty", "h100-sxm: the link may move a step by -10 % to +30 %", "",
        R"([{"place": "h100-sxm", "text": "the link may move a step", "number": "-10 % to +30 %", "bars": [
             {"label": "link", "text": "-10 % to +30 %", "from": -0.1, "to": 0.3}]}])"},
       {"Binding resource", "HBM bandwidth", "In 71 % of the experiments that fit; the host link in 29 %."}});
  for (const Device& device : kDevices) store.set_machine(device.name, machine_numbers(device));
}

void write_bare(Store& store) {
  auto add = [&, ordinal = 0](const char* key, const char* policy, Status status, const auto& change) mutable {
    Result r;
    r.key = key, r.status = status, r.subject.policy = policy;
    change(r);
    store.put(ordinal++, r, "fixture");
  };
  add("a", "", Status::kOk, [](Result&) {});
  add("b", "full", Status::kOk, [](Result& r) { r.experiment.tokens_per_s = 3; });
  add("c", "</script><script>alert(1)</script>", Status::kOk, [](Result& r) {
    r.subject.hardware = "<b>x</b>", r.subject.settings = {{"policy.budget", std::int64_t{64}}};
    r.experiment.tokens_per_s = 5, r.accuracy.recall_mass_mean = 0.5;
  });
  add("d", "quest", Status::kOom, [](Result& r) { r.experiment.oom.emplace().pool = "hbm"; });
  add("e", "quest", Status::kFailed, [](Result& r) { r.error = "window 64 is longer than the prompt"; });
  store.set_metadata(kvcast::store::kMetaName, "</title><script>alert(2)</script>{{data}}");
}

void write_match(Store& store) {
  int ordinal = 0;
  for (const int policy : {0, 3, 4}) {
    for (const std::int64_t cost : {256, 1024, 9000}) {
      const bool full = policy == 0;
      // snapkv needs a smaller budget than quest for the same cost.
      const double solved = static_cast<double>(policy == 3 ? cost - 9 : cost);
      Result r =
          result_of({kDevices[1], policies()[static_cast<std::size_t>(policy)], "", 32768, 4, full ? 0 : solved});
      r.key += std::to_string(cost);
      auto& settings = r.subject.settings;
      if (!full && cost == 9000) {
        std::erase_if(settings, [](const auto& s) { return s.key == "policy.budget"; });
        r.status = Status::kFailed, r.error = "match: tokens_attended 9000 cannot be reached";
      }
      settings.push_back({"match.tokens_attended", cost});
      std::sort(settings.begin(), settings.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
      r.subject.swept = {{"policy", r.subject.policy}, {"match.tokens_attended", std::to_string(cost)}};
      store.put(ordinal++, r, "fixture");
    }
  }
}

// A plan's experiments differ in their settings alone: nothing of them is swept.
void write_plan(Store& store) {
  int ordinal = 0;
  for (const int policy : {0, 4, 6}) {
    Result r = result_of({kDevices[1], policies()[static_cast<std::size_t>(policy)], policy == 6 ? "0.5" : "", 32768, 4,
                          policy == 0 ? 0.0 : 1024.0});
    r.subject.swept.clear();
    store.put(ordinal++, r, "fixture");
  }
  store.set_metadata(kvcast::store::kMetaName, "Fixture plan");
  store.set_machine(kDevices[1].name, machine_numbers(kDevices[1]));
}

void write_answers(Store& store, const char* path) {
  std::vector<kvcast::store::Answer> answers;
  for (const auto& a : nlohmann::json::parse(std::ifstream(path))) {
    answers.push_back({a.at("kind"), a.at("question"), a.at("text"), a.at("details"), a.at("data"), a.at("runs")});
  }
  store.set_answers(answers);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: report_fixture DIR sweep|large|seeds|match|maps|bare|empty|plan [ANSWERS]\n");
    return 2;
  }
  const std::string kind = argv[2];
  Store store = Store::open(argv[1], Store::Open::kCreate);
  if (kind == "sweep") write_grid(store, {16384, 32768, 131072}, {1, 4, 8}, {256, 1024, 4096});
  if (kind == "large") write_grid(store, {16384, 32768, 65536, 131072}, {1, 2, 4, 8, 16}, {256, 512, 1024, 2048, 4096});
  if (kind == "seeds") write_grid(store, {131072}, {4, 8}, {1024, 16384}, {1, 2, 3});
  if (kind == "match") write_match(store);
  if (kind == "maps") {
    kvcast::browser_test::write_maps(store, [](bool full, double context) {
      return result_of({kDevices[1], policies()[full ? 0 : 3], "", context, 4, full ? 0.0 : 1024.0});
    });
  }
  if (kind == "bare") write_bare(store);
  if (kind == "plan") write_plan(store);
  if (argc == 4) write_answers(store, argv[3]);
  return 0;
}

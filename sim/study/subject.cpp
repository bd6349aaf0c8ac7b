// The subject of a prepared experiment: its keys with names and defaults resolved.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "study/prepare.hpp"

namespace kvcast::study {
namespace {

// Collects the resolved keys of a run under their dotted names.
class SettingList {
 public:
  void add(const std::string& key, result::SettingValue value) { settings_.push_back({key, std::move(value)}); }
  void add(const std::string& key, double value) { add(key, result::SettingValue(value)); }
  void add(const std::string& key, std::int64_t value) { add(key, result::SettingValue(value)); }
  void add(const std::string& key, int value) { add(key, std::int64_t{value}); }
  void add(const std::string& key, const std::string& value) { add(key, result::SettingValue(value)); }

  // Parameters as written: quoted texts stay texts.
  void add(const std::string& prefix, const config::Node& map) {
    for (const auto& [key, value] : map.entries()) {
      const std::string name = prefix + key;
      if (value.kind() == config::Node::Kind::kMap) {
        add(name + ".", value);
      } else if (value.kind() != config::Node::Kind::kScalar) {
        add(name, value.canonical());
      } else {
        add(name, value.quoted() ? result::SettingValue(value.text()) : result::setting_value(value.text()));
      }
    }
  }

  std::vector<result::Setting> sorted() {
    std::sort(settings_.begin(), settings_.end(),
              [](const result::Setting& a, const result::Setting& b) { return a.key < b.key; });
    return std::move(settings_);
  }

 private:
  std::vector<result::Setting> settings_;
};

void add_framework(SettingList& list, const config::Framework& f) {
  if (!f.name.empty()) list.add("framework.name", f.name);
  for (const config::FrameworkKey& key : config::framework_keys()) {
    if (key.is_default) continue;  // its effect is a key of the workload
    list.add(std::string("framework.") + key.name, config::setting_of(f, key));
  }
}

// Precisions, the split over GPUs, and what lies in host memory.
void add_deployment(SettingList& list, const config::Run& run) {
  list.add("deployment.weights", std::string(config::precision_name(run.model.weights)));
  list.add("deployment.kv_cache", config::cache_name(run.model.cache));
  list.add("deployment.tensor_parallel", run.deployment.tensor_parallel);
  list.add("deployment.pipeline_parallel", run.deployment.pipeline_parallel);
  list.add("deployment.expert_parallel", result::SettingValue(run.deployment.expert_parallel));
  if (run.deployment.data_parallel_attention)
    list.add("deployment.data_parallel_attention", result::SettingValue(true));
  if (const auto& e = run.model.experts; e && e->host_layers > 0) {
    list.add("deployment.experts_on_host.layers", e->host_layers);
    list.add("deployment.experts_on_host.fetch_rows", e->fetch_rows);
  }
}

// Traffic, and the rules by which the engine serves it.
void add_service(SettingList& list, const config::Run& run) {
  const auto add = [&](const std::string& section) {
    return [&list, section](const std::string& key, const std::string& value) {
      list.add(section + "." + key, result::setting_value(value));
    };
  };
  list.add("deployment.replicas", run.deployment.replicas);
  list.add("deployment.routing", std::string(config::routing_name(run.deployment.routing)));
  list.add("deployment.prefill_replicas", run.deployment.prefill_replicas);
  if (run.deployment.prefill_replicas > 0) {
    const config::Transfer transfer = written_transfer(run);
    list.add("deployment.transfer.rate", *transfer.rate), list.add("deployment.transfer.latency", *transfer.latency);
    list.add("deployment.transfer.post", *transfer.post);
    list.add("deployment.transfer.overlap", std::string(config::overlap_name(*transfer.overlap)));
    list.add("deployment.transfer.staging", *transfer.staging);
  }
  config::for_each_key(*run.traffic, add("traffic"));
  config::for_each_rule(written_rules(run), add("scheduler"));
}

// Returns whether the same part of a recipe's text is captured.
bool same_extent(const config::TraceChoice& a, const config::TraceChoice& b) {
  return a.layers == b.layers && a.steps == b.steps && a.window == b.window;
}

// "needle 1", or the path of the file; with `extent` also the part that is captured: "needle 1 (2 layers, 16 steps)".
std::string short_name(const config::TraceChoice& t, bool extent) {
  if (!t.file.empty()) return t.file;
  const std::string depth = t.depth ? fmt::format(" at {} %", 100 * *t.depth) : "";
  const std::string name = fmt::format("{} {}{}", t.recipe, t.seed, depth);
  if (!extent) return name;
  const std::string window = t.window == 0 ? "" : fmt::format(", window {}", t.window);
  const auto count = [](int n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); };
  return fmt::format("{} ({}, {}{})", name, count(t.layers, "layer"), count(t.steps, "step"), window);
}

// A recipe among the traces if all recipes are captured in the same way, so that one column each can contain layers,
// steps and window.
const config::TraceChoice* common_extent(const std::vector<config::TraceChoice>& traces) {
  const config::TraceChoice* first = nullptr;
  for (const config::TraceChoice& t : traces) {
    if (!t.file.empty()) continue;
    if (first != nullptr && !same_extent(*first, t)) return nullptr;
    if (first == nullptr) first = &t;
  }
  return first;
}

// "needle 1, longbench-single-doc 2": several traces in one column.
std::string names_of(const std::vector<config::TraceChoice>& traces) {
  const bool extent = common_extent(traces) == nullptr;
  std::vector<std::string> names;
  for (const config::TraceChoice& t : traces) {
    const std::string name = short_name(t, extent);  // the same at each length that a service replays
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void add_extent(SettingList& list, const config::TraceChoice& trace) {
  list.add("trace.layers", trace.layers);
  list.add("trace.steps", trace.steps);
  list.add("trace.window", trace.window);
}

// One trace is written key by key. Several are written as one text, with the keys that all of them share.
void add_traces(SettingList& list, const std::vector<config::TraceChoice>& traces) {
  if (traces.size() > 1) {
    list.add("traces", names_of(traces));
    if (const config::TraceChoice* common = common_extent(traces)) add_extent(list, *common);
    return;
  }
  const config::TraceChoice& trace = traces.front();
  if (!trace.file.empty()) return list.add("trace.file", trace.file);
  list.add("trace.recipe", trace.recipe);
  list.add("trace.seed", static_cast<std::int64_t>(trace.seed));
  add_extent(list, trace);
  if (trace.depth) list.add("trace.depth", *trace.depth);
}

// Adds the default budget of a policy that is named without one, so that its results state which they are for. There is
// none to add while `match:` is unsolved, or if a parameter is written whose default follows from the budget: budget
// and parameter then follow from one another.
void add_default_budget(SettingList& list, const Prepared& prepared) {
  const config::Node& written = prepared.run.policy.parameters;
  if (written.find("budget") != nullptr || (prepared.matched && !prepared.matched->solved)) return;
  const std::int64_t* budget = nullptr;
  for (const policy::Parameter& p : prepared.policy->parameters) {
    const auto* const text = std::get_if<std::string>(&p.fallback);
    if (text != nullptr && text->starts_with("budget") && written.find(p.key) != nullptr) return;
    if (p.key == "budget") budget = std::get_if<std::int64_t>(&p.fallback);
  }
  if (budget != nullptr) list.add("policy.budget", *budget);
}

}  // namespace

std::string trace_name(const config::TraceChoice& choice) {
  return choice.file.empty() ? fmt::format("recipe {}, seed {}", choice.recipe, choice.seed) : choice.file;
}

void set_batch(result::Subject& subject, const config::Workload& workload) {
  subject.batch = workload.batch;
  subject.prompt_tokens = std::llround(workload.mean_prompt());
  for (result::Setting& s : subject.settings) {
    if (s.key == "workload.batch") s.value = std::int64_t{workload.batch};
  }
}

result::Subject subject_of(const Prepared& prepared) {
  const config::Run& run = prepared.run;
  const config::Workload& w = run.workload;
  result::Subject subject;
  subject.name = run.name;
  subject.model = run.model.name, subject.hardware = run.hardware.name, subject.host = run.hardware.host.name;
  subject.policy = run.policy.name, subject.category = prepared.policy->category;
  subject.trace = run.traces.size() == 1 ? trace_name(run.traces.front()) : names_of(run.traces);
  set_batch(subject, w);
  subject.decode_tokens = w.decode_tokens;
  SettingList list;
  list.add("name", subject.name);
  list.add("model", subject.model);
  list.add("hardware", subject.hardware);
  list.add("host", subject.host);
  list.add("hardware_fit", config::fit_text(run.hardware));
  list.add("policy.name", subject.policy);
  list.add("policy_category", std::string(policy::name(subject.category)));
  list.add("policy.", run.policy.parameters);
  add_default_budget(list, prepared);
  if (w.prompts.empty()) {
    list.add("workload.prompt_tokens", w.prompt_tokens);
  } else {
    list.add("workload.prompt_tokens", fmt::format("[{}]", fmt::join(w.prompts, ", ")));
  }
  list.add("workload.decode_tokens", w.decode_tokens);
  list.add("workload.batch", w.batch);
  list.add("workload.prefill_chunk", w.prefill_chunk);
  list.add("workload.prefill_batch", w.prefill_batch);
  add_traces(list, run.traces);
  if (prepared.matched) {
    const config::MatchChoice& request = prepared.matched->request;
    list.add(std::string("match.") + config::quantity_name(request.quantity), request.value);
    if (prepared.matched->solved) list.add("match.reached", prepared.matched->reached);
  }
  list.add("score.benchmark", run.score.benchmark);
  add_deployment(list, run);
  if (const auto& s = run.speculation) {
    list.add("speculation.kind", std::string(config::speculation_name(s->kind)));
    list.add("speculation.tokens", s->tokens);
    list.add("speculation.tokens_per_pass", s->tokens_per_pass);
    list.add("speculation.kv_reads", std::string(s->packed ? "once" : "each"));
    if (s->draft && !s->one_layer()) list.add("speculation.model", s->draft->name);
    if (s->head > 0) list.add("speculation.vocab", s->head);
  }
  if (run.price_per_hour) list.add("price_per_hour", *run.price_per_hour * run.deployment.gpus());
  if (run.traffic) add_service(list, run);
  add_framework(list, run.framework);
  for (const config::MachineChange& change : run.hardware.changes) {
    if (change.follows.empty()) list.add("hardware." + change.key, result::setting_value(change.value));
  }
  subject.settings = list.sorted();
  return subject;
}

}  // namespace kvcast::study

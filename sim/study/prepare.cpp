#include "study/prepare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/build.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "config/find.hpp"
#include "trace/synthetic.hpp"

namespace kvcast::study {
namespace {

std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return std::move(bytes).str();
}

std::string hash_of(std::initializer_list<std::string> parts) {
  std::string text;
  for (const std::string& part : parts) text += fmt::format("{}:{}\n", part.size(), part);  // lengths keep parts apart
  return content_hash(text);
}

void check_shape(const trace::TraceInfo& info, const config::Run& run) {
  const config::Model& m = run.model;
  if (info.n_q_heads == m.n_q_heads && info.n_kv_heads == m.n_kv_heads && info.head_dim == m.head_dim &&
      info.n_layers == m.layers) {
    return;
  }
  throw UserError(
      {run.trace.file, 0, 0},
      fmt::format("the trace has {} layers, {} query heads, {} KV heads of {} dimensions; {} has {}, {}, {}, {}",
                  info.n_layers, info.n_q_heads, info.n_kv_heads, info.head_dim, m.name, m.layers, m.n_q_heads,
                  m.n_kv_heads, m.head_dim));
}

// The content of files that parameters name: other policies, profiles.
std::string named_files(const config::Node& parameters) {
  std::string text;
  for (const auto& [key, value] : parameters.entries()) {
    if (value.kind() == config::Node::Kind::kMap) text += named_files(value);
    if (value.kind() != config::Node::Kind::kScalar) continue;
    const bool is_profile = key == "profile";
    const auto path = config::find_config_if_any(is_profile ? "profiles" : "policies", value.text(), value.where());
    if (!path) continue;
    text += read_bytes(*path);
    if (!is_profile) text += named_files(config::load_yaml(*path));
  }
  return text;
}

// Collects the resolved keys of a run under their dotted names.
class SettingList {
 public:
  void add(const std::string& key, result::SettingValue value) { settings_.push_back({key, std::move(value)}); }
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
  static constexpr const char* kLaunch[] = {"cuda_graph", "compiled", "eager"};
  list.add("framework.launch", std::string(kLaunch[static_cast<int>(f.launch)]));
  list.add("framework.expand_kv_heads", result::SettingValue(f.expand_kv_heads));
  list.add("framework.reread_kv_heads", result::SettingValue(f.reread_kv_heads));
  list.add("framework.unfused", result::SettingValue(f.unfused));
  list.add("framework.torch_topk", result::SettingValue(f.torch_topk));
  list.add("framework.eager_attention", result::SettingValue(f.eager_attention));
  list.add("framework.concatenate_cache", result::SettingValue(f.concatenate_cache));
  list.add("framework.quadratic_mask", result::SettingValue(f.quadratic_mask));
  list.add("framework.mlp_slice", f.mlp_slice);
  list.add("framework.warmup_steps", f.warmup_steps);
  list.add("framework.measured_steps", f.measured_steps);
  list.add("framework.sampled_contexts", f.sampled_contexts);
}

void add_trace(SettingList& list, const config::TraceChoice& trace) {
  if (!trace.file.empty()) return list.add("trace.file", trace.file);
  list.add("trace.recipe", trace.recipe);
  list.add("trace.seed", static_cast<std::int64_t>(trace.seed));
  list.add("trace.layers", trace.layers);
  list.add("trace.steps", trace.steps);
  list.add("trace.window", trace.window);
}

// Text from which a trace follows: equal texts give equal traces.
std::string trace_text(const config::Run& run) {
  const config::TraceChoice& t = run.trace;
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}", t.file, t.recipe, t.seed, t.layers, t.steps, t.window,
                     run.workload.prompt_tokens, config::canonical(run.model));
}

std::string files_of_scores() {
  std::string bytes;
  for (const char* name : {"tasks", "link"}) bytes += read_bytes(config::find_config("accuracy", name, {}));
  return content_hash(bytes);
}

}  // namespace

policy::Lengths lengths_of(const config::Run& run) { return {run.workload.prompt_tokens, run.workload.decode_tokens}; }

std::unique_ptr<policy::Policy> make_policy(const Prepared& prepared) {
  return policy::make_policy(*prepared.policy, prepared.run.policy.parameters, lengths_of(prepared.run));
}

std::unique_ptr<trace::Trace> make_trace(const config::Run& run) {
  if (!run.trace.file.empty()) {
    auto trace = trace::open_trace(run.trace.file);
    check_shape(trace->info(), run);
    if (trace->info().prompt_tokens != run.workload.prompt_tokens) {
      throw UserError(
          {run.trace.file, 0, 0},
          fmt::format("the trace has a prompt of {} tokens, workload.prompt_tokens is {}: counts taken at one "
                      "length do not hold for another",
                      trace->info().prompt_tokens, run.workload.prompt_tokens));
    }
    return trace;
  }
  trace::SynthShape shape =
      trace::synth_shape(run.model, run.workload.prompt_tokens, run.trace.steps, run.trace.layers, run.trace.seed);
  shape.window = run.trace.window;
  return trace::synthesize(trace::read_recipe(trace::find_recipe(run.trace.recipe, run.trace.where)), shape);
}

const std::string& code_version() {
  static const std::string version =
      std::string(kvcast::version()) + "-" + content_hash(read_bytes("/proc/self/exe")).substr(0, 16);
  return version;
}

// Setting the trace up checks it against the run.
std::string Preparer::trace_identity(const config::Run& run) {
  const auto [at, fresh] = identities_.try_emplace(trace_text(run));
  if (fresh) at->second = make_trace(run)->identity();
  return at->second;
}

// A policy's name, parameters and the content of the files that they name.
const std::string& Preparer::policy_text(const config::PolicyChoice& policy) {
  const std::string written = policy.name + " " + policy.parameters.canonical();
  const auto [at, fresh] = policies_.try_emplace(written);
  if (fresh) at->second = written + " " + named_files(policy.parameters);
  return at->second;
}

Prepared Preparer::prepare(const config::Node& config) {
  if (score_files_.empty()) score_files_ = files_of_scores();
  Prepared p;
  p.run = config::read_run(config);
  p.policy = &policy::find_policy(p.run.policy.name, p.run.policy.where);
  make_policy(p);  // throws for what the policy does not accept
  const config::Workload& w = p.run.workload;
  const std::string& policy = policy_text(p.run.policy);
  p.trace_key = hash_of({code_version(), trace_identity(p.run)});
  p.replay_key = hash_of({p.trace_key, policy, fmt::format("{} {}", w.prompt_tokens, w.decode_tokens)});
  // A description is for readers: it may change without a result being another.
  p.lowered_key = hash_of(
      {p.replay_key, config::canonical(p.run.model), config.without({"name", "description", "hardware"}).canonical()});
  p.key = hash_of(
      {p.lowered_key, config::canonical(p.run.hardware), config.without({"description"}).canonical(), score_files_});
  return p;
}

Prepared prepare(const config::Node& config) { return Preparer().prepare(config); }

std::vector<result::MachineNumber> machine_numbers(const config::Hardware& hardware) {
  std::vector<result::MachineNumber> numbers;
  for (const config::ConstKnob& knob : config::knobs(hardware)) {
    result::MachineNumber& n = numbers.emplace_back();
    n.key = knob.key;
    n.unit = knob.y == Dimension::kNone ? "number" : std::string(dimension_name(knob.y));
    if (knob.value != nullptr) {
      n.value = knob.value->value;
      n.origin = knob.value->origin, n.uncertainty = knob.value->uncertainty, n.source = knob.value->source;
    } else {
      n.origin = knob.curve->origin, n.uncertainty = knob.curve->uncertainty, n.source = knob.curve->source;
    }
  }
  return numbers;
}

result::Subject subject_of(const Prepared& prepared) {
  const config::Run& run = prepared.run;
  const config::Workload& w = run.workload;
  result::Subject subject;
  subject.name = run.name;
  subject.model = run.model.name, subject.hardware = run.hardware.name, subject.host = run.hardware.host.name;
  subject.policy = run.policy.name, subject.policy_category = prepared.policy->category;
  subject.trace =
      run.trace.file.empty() ? fmt::format("recipe {}, seed {}", run.trace.recipe, run.trace.seed) : run.trace.file;
  subject.prompt_tokens = w.prompt_tokens, subject.decode_tokens = w.decode_tokens, subject.batch = w.batch;
  SettingList list;
  list.add("name", subject.name);
  list.add("model", subject.model);
  list.add("hardware", subject.hardware);
  list.add("host", subject.host);
  list.add("policy.name", subject.policy);
  list.add("policy_category", subject.policy_category);
  list.add("policy.", run.policy.parameters);
  list.add("workload.prompt_tokens", w.prompt_tokens);
  list.add("workload.decode_tokens", w.decode_tokens);
  list.add("workload.batch", w.batch);
  list.add("workload.prefill_chunk", w.prefill_chunk);
  list.add("workload.prefill_batch", w.prefill_batch);
  add_trace(list, run.trace);
  add_framework(list, run.framework);
  for (const config::MachineChange& change : run.hardware.changes) {
    if (change.follows.empty()) list.add("hardware." + change.key, result::setting_value(change.value));
  }
  subject.settings = list.sorted();
  return subject;
}

}  // namespace kvcast::study

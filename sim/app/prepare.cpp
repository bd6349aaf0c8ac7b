#include "app/prepare.hpp"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/build.hpp"
#include "base/hash.hpp"
#include "config/find.hpp"
#include "trace/synthetic.hpp"

namespace kvcast::app {
namespace {

using nlohmann::json;

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

json parameters_json(const config::Node& parameters) {
  json out = json::object();
  for (const auto& [key, value] : parameters.entries()) {
    if (value.kind() != config::Node::Kind::kScalar) {
      out[key] = value.canonical();
      continue;
    }
    const json parsed = value.quoted() ? json(value.text()) : json::parse(value.text(), nullptr, false);
    out[key] = parsed.is_discarded() ? json(value.text()) : parsed;
  }
  return out;
}

// The trace is opened even where its identity is known: that checks it against the run.
std::string identity_of(const config::Run& run, TraceIdentities& identities) {
  const auto trace = make_trace(run);
  if (run.trace.file.empty()) return trace->identity();
  const auto [at, fresh] = identities.try_emplace(run.trace.file);
  if (fresh) at->second = trace->identity();
  return at->second;
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

namespace {

// What a stored result's task score rests on beside the replay.
std::string task_score_files() {
  std::string bytes;
  for (const char* name : {"tasks", "link"}) bytes += read_bytes(config::find_config("accuracy", name, {}));
  return bytes;
}

}  // namespace

const std::string& code_version() {
  static const std::string version =
      std::string(kvcast::version()) + "-" + content_hash(read_bytes("/proc/self/exe")).substr(0, 16);
  return version;
}

Prepared prepare(const config::Node& config) {
  TraceIdentities identities;
  return prepare(config, identities);
}

Prepared prepare(const config::Node& config, TraceIdentities& identities) {
  Prepared p;
  p.run = config::read_run(config);
  p.policy = &policy::find_policy(p.run.policy.name, p.run.policy.where);
  make_policy(p);  // throws for what the policy does not accept
  const config::Workload& w = p.run.workload;
  const std::string policy =
      p.run.policy.name + " " + p.run.policy.parameters.canonical() + " " + named_files(p.run.policy.parameters);
  p.trace_key = hash_of({code_version(), identity_of(p.run, identities)});
  p.replay_key = hash_of({p.trace_key, policy, fmt::format("{} {}", w.prompt_tokens, w.decode_tokens)});
  // A description is for readers: it may change without a result being another.
  p.key = hash_of({p.replay_key, config::canonical(p.run.model), config::canonical(p.run.hardware),
                   config.without({"description"}).canonical(), task_score_files()});
  return p;
}

std::string resolved_json(const Prepared& prepared) {
  const config::Run& run = prepared.run;
  const config::Workload& w = run.workload;
  const config::Framework& f = run.framework;
  static constexpr const char* kLaunch[] = {"cuda_graph", "compiled", "eager"};
  json policy = parameters_json(run.policy.parameters);
  policy["name"] = run.policy.name;
  json trace = {{"file", run.trace.file}};
  if (run.trace.file.empty()) {
    trace = {{"recipe", run.trace.recipe},
             {"seed", run.trace.seed},
             {"layers", run.trace.layers},
             {"steps", run.trace.steps},
             {"window", run.trace.window}};
  }
  return json{{"name", run.name},
              {"model", run.model.name},
              {"hardware", run.hardware.name},
              {"host", run.hardware.host.name},
              {"policy", policy},
              {"policy_category", prepared.policy->category},
              {"workload",
               {{"prompt_tokens", w.prompt_tokens},
                {"decode_tokens", w.decode_tokens},
                {"batch", w.batch},
                {"prefill_chunk", w.prefill_chunk},
                {"prefill_batch", w.prefill_batch}}},
              {"trace", trace},
              {"framework",
               {{"launch", kLaunch[static_cast<int>(f.launch)]},
                {"expand_kv_heads", f.expand_kv_heads},
                {"reread_kv_heads", f.reread_kv_heads},
                {"unfused", f.unfused},
                {"torch_topk", f.torch_topk},
                {"eager_attention", f.eager_attention},
                {"concatenate_cache", f.concatenate_cache},
                {"quadratic_mask", f.quadratic_mask},
                {"mlp_slice", f.mlp_slice},
                {"warmup_steps", f.warmup_steps},
                {"measured_steps", f.measured_steps},
                {"sampled_contexts", f.sampled_contexts}}}}
      .dump();
}

}  // namespace kvcast::app

#include "study/prepare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/build.hpp"
#include "base/error.hpp"
#include "base/file_state.hpp"
#include "base/hash.hpp"
#include "base/whole_file.hpp"
#include "config/find.hpp"
#include "config/text.hpp"
#include "policies/all.hpp"
#include "policies/replay_needs.hpp"
#include "score/benchmark.hpp"
#include "study/default_profile.hpp"
#include "synth/synthetic.hpp"

namespace kvcast::study {
namespace {

std::string read_bytes(const std::string& path) { return is_regular(path) ? read_whole_file(path, "the file") : ""; }

std::string hash_of(std::initializer_list<std::string_view> parts) {
  std::string text;
  // lengths keep parts separate
  for (const std::string_view part : parts)
    text.append(std::to_string(part.size())).append(":").append(part).append("\n");
  return content_hash(text);
}

void check_shape(const trace::TraceInfo& info, const config::Run& run, const std::string& file) {
  const config::Model m = config::attending(run.model);
  if (info.n_q_heads == m.n_q_heads && info.n_kv_heads == m.n_kv_heads && info.head_dim == m.head_dim &&
      info.n_layers == m.layers) {
    return;
  }
  throw UserError(
      {file, 0, 0},
      fmt::format("the trace has {} layers, {} query heads, {} KV heads of {} dimensions; {} has {}, {}, {}, {}",
                  info.n_layers, info.n_q_heads, info.n_kv_heads, info.head_dim, m.name, m.layers, m.n_q_heads,
                  m.n_kv_heads, m.head_dim));
}

// The content of the files that the policy's parameters name.
std::string content_of_files(const config::PolicyChoice& policy) {
  std::string text;
  const auto files = policy::named_files(policy::find_policy(policy), policy.parameters);
  for (const std::string& path : files.paths) text += read_bytes(path);
  return text;
}

// Text that determines a trace: equal texts give equal traces.
std::string trace_text(const config::Run& run, const config::TraceChoice& t) {
  return fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}", t.file, t.recipe, t.seed, t.layers, t.steps, t.window,
                     t.depth.value_or(-1), lengths_of(run, t).prompt_tokens, config::canonical(run.model));
}

std::string files_of_predictions() {
  static MadeOfFiles<std::string> hashes;
  std::vector<std::string> paths;
  for (const char* name : {"tasks", "link", "methods", "evidence"})
    paths.push_back(config::find_config("accuracy", name, {}));
  for (const char* below : {"accuracy/evidence.csv", "validation/intervals.yaml"}) {
    if (const auto path = config::find_file(below)) paths.push_back(*path);
  }
  return *hashes.of(paths, [&] {
    std::string bytes;
    for (const std::string& path : paths) bytes += read_bytes(path);
    return content_hash(bytes);
  });
}

}  // namespace

policy::Lengths lengths_of(const config::Run& run) { return {run.workload.prompt_tokens, run.workload.decode_tokens}; }

policy::Lengths lengths_of(const config::Run& run, const config::TraceChoice& choice) {
  return {choice.prompt_tokens > 0 ? choice.prompt_tokens : run.workload.prompt_tokens, run.workload.decode_tokens};
}

std::vector<config::TraceChoice> at_lengths(const std::vector<config::TraceChoice>& texts,
                                            std::span<const std::int64_t> lengths) {
  std::vector<config::TraceChoice> traces;
  for (const std::int64_t tokens : lengths) {
    for (config::TraceChoice choice : texts) {
      choice.prompt_tokens = tokens;
      traces.push_back(std::move(choice));
    }
  }
  return traces;
}

std::unique_ptr<policy::Policy> make_policy(const Prepared& prepared, std::size_t trace) {
  return make_policy(prepared, prepared.run.policy, trace);
}

std::unique_ptr<policy::Policy> make_policy(const Prepared& prepared, const config::PolicyChoice& choice,
                                            std::size_t trace) {
  auto made = policy::make_policy(*prepared.policy, choice.parameters,
                                  default_profile(prepared.run, choice, prepared.run.traces.at(trace)));
  for (const auto& prompts : prepared.run.workload.by_length())
    made->check({prompts.tokens, prepared.run.workload.decode_tokens});
  return made;
}

namespace {

config::PolicyChoice policy_with(const config::Node& run, std::int64_t budget) {
  return config::read_policy(*config::with_budget(run, budget).find("policy"));
}

}  // namespace

BudgetRange valid_budgets(const config::Node& config, const Prepared& prepared) {
  const auto is_valid = [&](std::int64_t budget) {
    try {
      make_policy(prepared, policy_with(config, budget));
    } catch (const UserError&) {
      return false;
    }
    return true;
  };
  // Policies attend to half or a quarter of budgets that count traffic, or that one stage passes on to the next.
  constexpr std::int64_t kContexts = 4;
  const std::int64_t high = kContexts * lengths_of(prepared.run).bound();
  make_policy(prepared, policy_with(config, high));
  return {smallest_valid(is_valid, high), high};
}

std::unique_ptr<trace::Trace> open_trace_of(const config::TraceChoice& choice) {
  std::error_code failure;
  if (!std::filesystem::exists(choice.file, failure)) {
    throw UserError(choice.where, fmt::format("no such file: {}", config::shorten(choice.file)));
  }
  return trace::open_trace(choice.file);
}

std::unique_ptr<trace::Trace> make_trace(const config::Run& run, const config::TraceChoice& choice) {
  if (!choice.file.empty()) {
    auto trace = open_trace_of(choice);
    check_shape(trace->info(), run, choice.file);
    if (trace->info().prompt_tokens != lengths_of(run, choice).prompt_tokens) {
      throw UserError({choice.file, 0, 0},
                      fmt::format("the trace has a prompt of {} tokens, but workload.prompt_tokens is {}: counts of "
                                  "one length are not valid for another",
                                  trace->info().prompt_tokens, lengths_of(run, choice).prompt_tokens));
    }
    return trace;
  }
  trace::SynthShape shape = trace::synth_shape(config::attending(run.model), lengths_of(run, choice).prompt_tokens,
                                               choice.steps, choice.layers, choice.seed);
  shape.window = choice.window;
  shape.depth = choice.depth;
  const trace::Recipe recipe = trace::read_recipe(trace::find_recipe(choice.recipe, choice.where));
  return at_location(where_is(run.source, "workload.prompt_tokens"), [&] { return trace::synthesize(recipe, shape); });
}

UserError refusal_of(const config::PolicyChoice& policy, const UserError& why, const std::string& on) {
  const bool in_file = !policy.named_at.file.empty() && policy.named_at.file != policy.where.file;
  return UserError(policy.where, fmt::format("{}{}{}", in_file ? policy.named_at.file + ": " : "",
                                             on.empty() ? "" : "on " + on + ": ", why.what()));
}

namespace {

// kvcast-mpi is linked from the same libraries as the kvcast next to it, and each continues from the other's results.
std::string program_file() {
  namespace fs = std::filesystem;
  std::error_code unknown;
  const fs::path self = code_file(), other = self.parent_path() / "kvcast";
  return self.filename() == "kvcast-mpi" && fs::exists(other, unknown) ? other.string() : self.string();
}

}  // namespace

const std::string& code_version() {
  static const std::string version =
      std::string(kvcast::version()) + "-" + content_hash(read_bytes(program_file())).substr(0, 16);
  return version;
}

namespace {

// The number of the prompt's last queries that a synthetic trace must hold for the policy; 0: no more than the recipe
// captures by itself.
int needed_window(const Prepared& prepared, const config::TraceChoice& trace) {
  const std::int64_t prompt = lengths_of(prepared.run, trace).prompt_tokens;
  const std::int64_t window = prepared.needs.whole_prompt ? prompt : std::min(prepared.needs.window, prompt);
  const int captured = trace::read_recipe(trace::find_recipe(trace.recipe, trace.where)).window;
  return window > captured ? static_cast<int>(window) : 0;
}

}  // namespace

// Setting up the trace checks it against the run.
std::string Preparer::trace_identity(const config::Run& run, const config::TraceChoice& choice) {
  const auto [at, fresh] = identities_.try_emplace(trace_text(run, choice));
  if (fresh) at->second = make_trace(run, choice)->identity();
  return at->second;
}

namespace {

std::string text_of(const config::PolicyChoice& policy) { return policy.name + " " + policy.parameters.canonical(); }

std::string replay_hash(const std::string& trace_key, const std::string& policy_text, const policy::Lengths& request) {
  return hash_of({trace_key, policy_text, fmt::format("{} {}", request.prompt_tokens, request.decode_steps)});
}

}  // namespace

std::string replay_key(const std::string& trace_key, const config::PolicyChoice& policy,
                       const config::Workload& workload) {
  return replay_hash(trace_key, text_of(policy) + " " + content_of_files(policy),
                     {workload.prompt_tokens, workload.decode_tokens});
}

// A policy's name, parameters and the content of the files that they name.
const std::string& Preparer::policy_text(const config::PolicyChoice& policy) {
  const std::string written = text_of(policy);
  const auto [at, fresh] = policies_.try_emplace(written);
  if (fresh) at->second = written + " " + content_of_files(policy);
  return at->second;
}

// The benchmark and all inputs of its scores other than policy, model and score model. The threshold (`floor`) affects
// conclusions, not results.
const std::string& Preparer::score_text(const config::ScoreChoice& choice) {
  const auto [at, fresh] = benchmarks_.try_emplace(choice.benchmark);
  if (!fresh || choice.benchmark == config::ScoreChoice::kNone) return at->second;
  if (!catalogue_) catalogue_.emplace();
  try {
    const score::Benchmark benchmark = score::find_benchmark(*catalogue_, choice);
    at->second = benchmark.name + " " + benchmark.identity;
  } catch (...) {
    benchmarks_.erase(at);
    throw;
  }
  return at->second;
}

namespace {

// Checks that the policy accepts some budget, or needs none. Returns it with the largest.
std::unique_ptr<policy::Policy> check_match(const config::Node& config, const Prepared& p) {
  if (p.policy->uncompressed()) return make_policy(p);
  const auto& parameters = p.policy->parameters;
  if (std::ranges::none_of(parameters, [](const auto& q) { return q.key == "budget"; })) {
    throw UserError(p.run.match->where,
                    fmt::format("match: {} has no budget to solve for; a sweep can set its own parameters in `cases:`",
                                p.policy->name));
  }
  return make_policy(p, policy_with(config, valid_budgets(config, p).high));
}

// The content of the files that the traffic names.
std::string files_of_traffic(const config::Traffic& traffic) {
  std::string bytes;
  for (const std::string& file : {traffic.file, traffic.prompt_tokens.file, traffic.output_tokens.file}) {
    if (!file.empty()) bytes += hash_of({file, read_bytes(file)});
  }
  return bytes.empty() ? "" : content_hash(bytes);
}

}  // namespace

// Reading the requests checks the files of the traffic.
void Preparer::prepare_requests(const config::Node& config, Prepared& p) {
  // Requests are read before the needs of a plan are known.
  constexpr std::int64_t kMostAsked = 200'000;
  const config::Node& traffic = *config.find("traffic");
  if (traffic.where().from_request && p.run.traffic->requests > kMostAsked) {
    throw UserError(traffic.where(), fmt::format("traffic: at most {} requests are simulated for the planner, not {}",
                                                 kMostAsked, p.run.traffic->requests));
  }
  const std::string text = traffic.canonical() + fmt::format(" {}", p.run.model.max_context);
  const auto [at, fresh] = requests_.try_emplace(text);
  if (fresh) {
    try {
      at->second = request_lengths(*p.run.traffic, p.run.model.max_context);
    } catch (...) {
      requests_.erase(at);
      throw;
    }
  }
  p.requests = at->second;
  derive_workload(p.run, *p.policy, at->second);
  at_location(p.run.scheduler.where.line > 0 ? p.run.scheduler.where : p.run.traffic->where, [&p] {
    serving::Rules rules = service_rules(p.run);
    rules.blocks = 1;  // known once passes can be timed
    serving::check(rules);
  });
}

Prepared Preparer::prepare(const config::Node& config) {
  cancel_.check();
  if (prediction_files_.empty()) prediction_files_ = files_of_predictions();
  Prepared p;
  p.run = config::read_run(config);
  p.policy = &policy::find_policy(p.run.policy);
  p.run.policy.name = p.policy->name;  // "RocketKV" is rocketkv
  policy::check_model(*p.policy, config::attending(p.run.model), p.run.policy.where);
  if (p.run.traffic) {
    prepare_requests(config, p);
  } else if (const auto reserved = engine_reserved(p.run)) {
    p.run.hardware.gpu.hbm_reserved = *reserved;
  }
  if (!p.run.workload.prompts.empty()) {
    config::Workload listed = p.run.workload;  // a larger batch may be asked for
    listed.set_batch(static_cast<int>(listed.prompts.size()));
    std::vector<std::int64_t> lengths;
    for (const auto& prompts : listed.by_length()) lengths.push_back(prompts.tokens);
    p.run.traces = at_lengths(p.run.traces, lengths);
  }
  if (p.run.match) {
    p.made = check_match(config, p);
    p.matched = Matched{*p.run.match, false, {}, 0};
  } else {
    p.made = make_policy(p);  // throws if the policy does not accept its parameters
  }
  p.needs = policy::replay_needs(*p.policy, p.run.policy.parameters, lengths_of(p.run));
  for (config::TraceChoice& choice : p.run.traces) {
    if (choice.file.empty() && choice.window == 0) choice.window = needed_window(p, choice);
  }
  const std::string& policy = policy_text(p.run.policy);
  const std::string model = config::canonical(p.run.model);
  // A trace's part of the work is independent of the run's other traces, and a description is for readers only.
  const std::string lowering =
      config.without({"name", "description", "hardware", "trace", "traces", "score", "price_per_hour"}).canonical() +
      config::canonical(p.run.framework);
  std::string all_lowered;
  for (const config::TraceChoice& choice : p.run.traces) {
    TraceKeys& keys = p.traces.emplace_back();
    const auto scores = config::find_file("profiles/" + p.run.model.name + ".yaml");
    keys.trace = hash_of({code_version(), trace_identity(p.run, choice), config::cache_name(p.run.model.cache),
                          choice.file.empty() || !scores ? "" : read_bytes(*scores)});
    keys.replay = replay_hash(keys.trace, policy, lengths_of(p.run, choice));
    keys.lowered = hash_of({keys.replay, model, lowering});
    p.replays += keys.replay, all_lowered += keys.lowered;
  }
  p.key = hash_of({all_lowered, p.run.traffic ? files_of_traffic(*p.run.traffic) : "",
                   config::canonical(p.run.hardware), config.without({"description", "score"}).canonical(),
                   prediction_files_, score_text(p.run.score), p.run.score.evidence ? "" : "without evidence"});
  return p;
}

Prepared Preparer::prepare(const config::Node& config, const Matched& solved) {
  KVCAST_CHECK(solved.solved && config.find("match") != nullptr);
  Prepared p = prepare(solved.budget ? config::with_budget(config, *solved.budget) : config.without({"match"}));
  p.key = hash_of({p.key, config.find("match")->canonical()});
  p.matched = solved;
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

}  // namespace kvcast::study

#include "plan/key.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "base/units.hpp"
#include "config/pcie.hpp"
#include "config/run.hpp"
#include "config/section.hpp"
#include "config/text.hpp"
#include "config/ties.hpp"
#include "policies/all.hpp"
#include "policy/policy.hpp"

namespace kvcast::plan {
namespace {

using config::Node;

// A key of a run that belongs to neither the machine nor the policy.
struct RunKey {
  const char* path;
  double (*value)(const config::Run& run);  // NaN if the run does not set it
  double low, high;
  bool integer = true;
  bool of_traffic = false;
  Dimension dimension = Dimension::kNone;
};

template <typename T>
double or_nan(const std::optional<T>& value) {
  return value ? static_cast<double>(*value) : std::nan("");
}
double fixed_length(const config::LengthDistribution& length) {
  return length.kind == config::LengthDistribution::Kind::kFixed ? length.mean : std::nan("");
}
double rate_of(const config::Run& r) {
  return r.traffic && r.traffic->arrivals == config::Traffic::Arrivals::kRate ? r.traffic->rate : std::nan("");
}

double shared_of(const config::Run& r) {
  const std::int64_t tokens = r.traffic ? r.traffic->shared_prefix.tokens : 0;
  return tokens > 0 ? static_cast<double>(tokens) : std::nan("");
}
double drafted_of(const config::Run& r) { return r.speculation ? r.speculation->tokens : std::nan(""); }

template <auto Member>
double turns_of(const config::Run& r) {
  return r.traffic && r.traffic->sessions ? static_cast<double>((*r.traffic->sessions).*Member) : std::nan("");
}

constexpr double kMostTokens = config::kMaxTokens;
constexpr double kMostRate = 1e6;  // requests a second
template <auto Member>
double of_workload(const config::Run& r) {
  return static_cast<double>(r.workload.*Member);
}
const RunKey kRunKeys[] = {
    {"workload.batch", of_workload<&config::Workload::batch>, 1, 65536},
    {"workload.prompt_tokens", of_workload<&config::Workload::prompt_tokens>, 1, kMostTokens},
    {"workload.decode_tokens", of_workload<&config::Workload::decode_tokens>, 1, kMostTokens},
    {"workload.prefill_chunk", of_workload<&config::Workload::prefill_chunk>, 0, kMostTokens},
    {"workload.prefill_batch", of_workload<&config::Workload::prefill_batch>, 0, 65536},
    {"framework.mlp_slice", [](const config::Run& r) { return static_cast<double>(r.framework.mlp_slice); }, 0,
     kMostTokens},
    {"speculation.tokens", drafted_of, 1, 64},
    {"speculation.acceptance", [](const config::Run&) { return std::nan(""); }, 0, 1, false, false,
     Dimension::kFraction},
    {"traffic.rate", rate_of, 1e-6, kMostRate, false, true},
    {"traffic.concurrency", [](const config::Run& r) { return static_cast<double>(r.traffic->concurrency); }, 1, 1e6,
     true, true},
    {"traffic.prompt_tokens", [](const config::Run& r) { return fixed_length(r.traffic->prompt_tokens); }, 1,
     kMostTokens, true, true},
    {"traffic.output_tokens", [](const config::Run& r) { return fixed_length(r.traffic->output_tokens); }, 1,
     kMostTokens, true, true},
    {"traffic.shared_prefix.tokens", shared_of, 1, kMostTokens, true, true},
    {"traffic.sessions.turns", turns_of<&config::Sessions::turns>, 1, 1e6, true, true},
    {"traffic.sessions.turn_tokens", turns_of<&config::Sessions::turn_tokens>, 1, kMostTokens, true, true},
    {"deployment.replicas", [](const config::Run& r) { return static_cast<double>(r.deployment.replicas); }, 1, 4096,
     true, true},
    {"deployment.prefill_replicas",
     [](const config::Run& r) { return static_cast<double>(r.deployment.prefill_replicas); }, 0, 4096, true, true},
    {"scheduler.max_num_seqs", [](const config::Run& r) { return or_nan(r.scheduler.max_num_seqs); }, 1, 1e6, true,
     true},
    {"scheduler.max_num_batched_tokens",
     [](const config::Run& r) { return or_nan(r.scheduler.max_num_batched_tokens); }, 1, kMostTokens, true, true},
    {"scheduler.host_cache", [](const config::Run& r) { return or_nan(r.scheduler.host_cache); }, 0, 1e18, false, true,
     Dimension::kBytes},
    {"scheduler.storage_cache", [](const config::Run& r) { return or_nan(r.scheduler.storage_cache); }, 0, 1e18, false,
     true, Dimension::kBytes},
    {"scheduler.storage_read", [](const config::Run& r) { return or_nan(r.scheduler.storage_read); }, 1e6, 1e15, false,
     true, Dimension::kBytesPerSecond},
    {"scheduler.remote_rate", [](const config::Run& r) { return or_nan(r.scheduler.remote_rate); }, 1e6, 1e15, false,
     true, Dimension::kBytesPerSecond},
    {"deployment.transfer.rate", [](const config::Run& r) { return or_nan(r.deployment.transfer.rate); }, 1e6, 1e13,
     false, true, Dimension::kBytesPerSecond},
    {"deployment.transfer.staging", [](const config::Run& r) { return or_nan(r.deployment.transfer.staging); }, 0, 1e18,
     false, true, Dimension::kBytes},
    {"scheduler.memory_utilization", [](const config::Run& r) { return or_nan(r.scheduler.memory_utilization); }, 0, 1,
     false, true},
};

// Keys of a workload are those of a run without traffic, and the other way round.
bool belongs(const RunKey& key, const config::Node& run) {
  const bool traffic = run.find("traffic") != nullptr;
  return key.of_traffic ? traffic : !traffic || !std::string_view(key.path).starts_with("workload.");
}

bool is_count(const std::string& knob) { return knob == "host.cores" || knob == "gpu.sm_count"; }

std::optional<VariedKey> key_of_machine(const Node& run, const std::string& knob) {
  const Node* const choice = run.find("hardware");
  if (choice == nullptr) return {};
  const config::Hardware machine = config::read_hardware(*choice);
  for (const config::ConstKnob& k : config::knobs(machine)) {
    if (k.key != knob) continue;
    VariedKey key;
    if (k.value == nullptr) {
      key.factor = true, key.now = 1, key.low = 1e-6, key.high = 1e6;
      return key;
    }
    key.integer = is_count(knob), key.dimension = k.y;
    key.now = k.value->value, key.low = k.low, key.high = k.high;
    return key;
  }
  return {};
}

const policy::Parameter* find_parameter(const policy::Descriptor& descriptor, const std::string& name) {
  const auto found =
      std::ranges::find_if(descriptor.parameters, [&](const policy::Parameter& p) { return p.key == name; });
  return found == descriptor.parameters.end() ? nullptr : &*found;
}

// Returns a numeric parameter of the policy; its value is the default or as written.
std::optional<VariedKey> key_of_policy(const Node& run, const std::string& name) {
  const Node* const choice = run.find("policy");
  if (choice == nullptr) return {};
  const config::PolicyChoice policy = config::read_policy(*choice);
  const policy::Parameter* const p = find_parameter(policy::find_policy(policy), name);
  if (p == nullptr) return {};
  VariedKey key;
  key.integer =
      std::holds_alternative<std::int64_t>(p->fallback) || std::ranges::find(p->names, "<integer>") != p->names.end();
  const bool number =
      std::holds_alternative<double>(p->fallback) || std::ranges::find(p->names, "<number>") != p->names.end();
  if (!key.integer && !number) return {};
  key.low = p->low, key.high = p->high;
  const policy::ParameterValues values(policy::find_policy(policy.name), policy.parameters);
  key.now = values.is_text(name) ? std::nan("") : values.number(name);
  return key;
}

std::optional<VariedKey> key_of_run(const Node& run, const std::string& path) {
  for (const RunKey& k : kRunKeys) {
    if (path != k.path || !belongs(k, run)) continue;
    VariedKey key;
    key.integer = k.integer, key.low = k.low, key.high = k.high, key.dimension = k.dimension;
    key.now = k.value(config::read_run(run));
    return key;
  }
  return {};
}

// Returns generation or lanes of PCIe, which move several numbers of the link at once.
std::optional<VariedKey> key_of_pcie(const std::string& name) {
  VariedKey key;
  key.integer = true, key.now = std::nan("");
  if (name == "generation") return key.low = config::kFirstPcie, key.high = config::kNewestPcie, key;
  if (name == "lanes") return key.low = 1, key.high = config::kMostLanes, key;
  return {};
}

std::optional<std::string> after(const std::string& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return {};
  return text.substr(prefix.size());
}

std::optional<VariedKey> find(const Node& run, const std::string& path) {
  if (const auto name = after(path, "hardware.link.pcie.")) return key_of_pcie(*name);
  if (const auto knob = after(path, "hardware.")) return key_of_machine(run, *knob);
  if (const auto name = after(path, "policy.")) return key_of_policy(run, *name);
  return key_of_run(run, path);
}

std::vector<std::string> known_keys(const Node& run) {
  std::vector<std::string> known;
  for (const RunKey& k : kRunKeys) {
    if (belongs(k, run)) known.emplace_back(k.path);
  }
  if (const Node* const choice = run.find("policy")) {
    const config::PolicyChoice policy = config::read_policy(*choice);
    for (const policy::Parameter& p : policy::find_policy(policy).parameters) {
      if (key_of_policy(run, p.key)) known.push_back("policy." + p.key);
    }
  }
  if (const Node* const choice = run.find("hardware")) {
    const config::Hardware machine = config::read_hardware(*choice);
    for (const config::ConstKnob& k : config::knobs(machine)) known.push_back("hardware." + k.key);
  }
  return known;
}

double round_to(const VariedKey& key, double value) { return key.integer ? std::round(value) : value; }

}  // namespace

VariedKey find_key(const Node& run, const std::string& path, const SourceLocation& asked_at) {
  config::check_dotted_path(path, asked_at);
  std::optional<VariedKey> key = find(run, path);
  if (!key) {
    const std::vector<std::string> known = known_keys(run);
    throw UserError(asked_at,
                    fmt::format("\"{}\" is not a numeric key of this run{}", path, config::did_you_mean(path, known)),
                    known);
  }
  key->path = path, key->where = asked_at;
  return *key;
}

bool has_key(const Node& run, const std::string& path) {
  const auto name = after(path, "policy.");
  if (!name) return true;
  const config::PolicyChoice policy = config::read_policy(*run.find("policy"));
  return find_parameter(policy::find_policy(policy), *name) != nullptr;
}

double read_value(const VariedKey& key, const Node& node) {
  const auto factor = config::read_factor(node, key.path);
  if (factor && std::isnan(key.now)) {
    throw UserError(node.where(),
                    fmt::format("{}: a factor needs a number to multiply, but the run sets none", key.path));
  }
  if (key.factor && !factor) {
    throw UserError(node.where(), fmt::format("{}: a curve: expected a factor such as x2, found {}", key.path,
                                              config::describe(node)));
  }
  if (factor) {
    const double value = round_to(key, *factor * key.now);
    if (value >= key.low && value <= key.high) return value;
    throw UserError(node.where(),
                    fmt::format("{}: {} is {}, outside of {} to {}", key.path, node.text(), value_text(key, value),
                                value_text(key, key.low), value_text(key, key.high)));
  }
  if (key.integer) {
    return static_cast<double>(config::read_integer(node, key.path, static_cast<std::int64_t>(std::ceil(key.low)),
                                                    static_cast<std::int64_t>(std::floor(key.high))));
  }
  if (key.dimension == Dimension::kNone) return config::read_number(node, key.path, key.low, key.high);
  return config::read_quantity(node, key.path, key.dimension, key.low, key.high);
}

std::optional<int> engine_batch(const Node& run) {
  const config::Run one = config::read_run(run.with("workload.batch", Node::scalar("1", run.where())));
  return one.framework.max_batch > 0 ? std::optional(one.framework.max_batch) : std::nullopt;
}

double end_of_range(const VariedKey& key, double end, const Node& config) {
  if (key.path == "workload.batch") return std::min<double>(end, engine_batch(config).value_or(end));
  if (key.path != "workload.prompt_tokens") return end;
  const config::Run run = config::read_run(config);
  const auto context = static_cast<double>(run.model.max_context);
  const double longest = context - static_cast<double>(run.workload.decode_tokens);
  return end <= context ? std::min(end, longest) : end;
}

std::string value_text(const VariedKey& key, double value) {
  if (key.factor) return fmt::format("x{:.9g}", value);
  if (key.integer) return fmt::format("{}", std::llround(value));
  return config::exact_text(value, key.dimension, 9);
}

nlohmann::json json_of(const VariedKey& key, double value) {
  return key.integer ? nlohmann::json(std::llround(value)) : nlohmann::json(value);
}

std::string short_text(const VariedKey& key, double value) {
  if (key.factor) return format_digits(value, 3) + " times";
  if (key.integer) return fmt::format("{}", std::llround(value));
  return key.dimension == Dimension::kNone ? format_digits(value, 3) : format_quantity(value, key.dimension);
}

Node with_value(const Node& run, const VariedKey& key, double value) {
  return run.with(key.path, Node::scalar(value_text(key, value), key.where));
}

}  // namespace kvcast::plan

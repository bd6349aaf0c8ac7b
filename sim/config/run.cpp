#include "config/run.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "config/keys.hpp"
#include "config/service.hpp"

namespace kvcast::config {
namespace {

// Reads a policy file: `name`, parameters, and texts for the reader that are not parameters.
PolicyChoice read_policy_file(const std::string& path) {
  const Node file = load_yaml(path);
  Section section(file, "policy file");
  PolicyChoice policy;
  policy.name = section.text("name");
  policy.named_at = section.where("name");
  section.text("description", "");
  section.text("source", "");
  policy.parameters = file.without({"name", "description", "source"});
  return policy;
}

// Merges `over` into `under`; a map without a name changes the map (or the policy of that name) that it is merged into.
Node laid_over(const Node& under, const Node& over) {
  if (over.kind() != Node::Kind::kMap || over.find("name") != nullptr || over.find("file") != nullptr) return over;
  if (under.kind() == Node::Kind::kNull || under.kind() == Node::Kind::kList) return over;
  Node changed = under.kind() == Node::Kind::kMap ? under : Node::map({{"name", under}}, under.where());
  for (const auto& [key, value] : over.entries()) {
    const Node* const there = changed.find(key);
    changed = changed.with(key, there == nullptr ? value : laid_over(*there, value));
  }
  return changed;
}

// Merges the parameters that the run writes next to the policy's name over `parameters`.
Node overridden(const Node& parameters, const Node& choice) {
  std::vector<std::pair<std::string, Node>> entries;
  std::vector<SourceLocation> locations;
  const auto take = [&](const Node& map, const std::string& key, const Node& value) {
    entries.emplace_back(key, value);
    locations.push_back(map.key_where(key));
  };
  for (const auto& [key, value] : parameters.entries()) {
    if (choice.find(key) == nullptr) take(parameters, key, value);
  }
  for (const auto& [key, value] : choice.entries()) {
    if (key == "name" || key == "file") continue;
    const Node* const there = parameters.find(key);
    take(choice, key, there == nullptr ? value : laid_over(*there, value));
  }
  return Node::map(std::move(entries), choice.where(), std::move(locations));
}

void read_trace_file(Section& section, const Key<TraceChoice>& key, TraceChoice& trace) {
  if (!section.has(key.name)) return;
  read_key(section, key, trace.file);
  for (const char* of_recipe : {"recipe", "seed", "layers", "steps", "window", "depth"}) {
    if (!section.has(of_recipe)) continue;
    throw UserError(section.where(of_recipe),
                    fmt::format("trace: \"{}\" belongs to a recipe, but `file` is given", of_recipe));
  }
}

bool is_recipe(const TraceChoice& trace) { return trace.file.empty(); }

constexpr Key<TraceChoice> kTraceKeys[] = {
    {"file", by(read_trace_file, own<TraceChoice>(KeyShape::Type::kText)),
     "a captured trace instead of a recipe, by its path from the working directory; its prompt must have "
     "`prompt_tokens` tokens"},
    {"recipe", when(is_recipe, into<&TraceChoice::recipe>),
     "a recipe of `traces/recipes`, generated with `prompt_tokens` tokens"},
    {"seed", when(is_recipe, within(0, Limits().high, into<&TraceChoice::seed>)),
     "seed of the recipe's random numbers"},
    {"layers", when(is_recipe, within(1, 10'000, into<&TraceChoice::layers>)),
     "layers that are generated and replayed; they represent all others"},
    {"steps", when(is_recipe, within(1, 4096, into<&TraceChoice::steps>)),
     "decode steps that are generated and replayed; they represent all others"},
    {"window", when(is_recipe, within(0, 1'000'000, into<&TraceChoice::window>)),
     "last queries of the prompt that the trace contains, for policies that score with them (CTkvr's centroids); 0: as "
     "many as the policy needs, at least the recipe's number"},
    {"depth", when(is_recipe, within(0, 1, into<&TraceChoice::depth>)),
     "share of the text before the needle, 0 to 1; sweep it with `prompt_tokens` for a needle map; left out: drawn"}};

TraceChoice read_trace(Section section) {
  TraceChoice trace;
  const bool file = section.has("file");
  trace.where = section.where(file ? "file" : "recipe");
  read_keys(section, kTraceKeys, trace);
  if (file) trace.recipe.clear();
  section.finish();
  return trace;
}

// `traces:` is a list of values of `trace:`.
std::vector<TraceChoice> read_traces(const Node& list) {
  if (list.kind() != Node::Kind::kList || list.items().empty()) {
    throw UserError(list.where(), "traces: expected a list of traces, found " + describe(list));
  }
  std::vector<TraceChoice> traces;
  const auto key = [](const TraceChoice& t) {
    return std::tie(t.file, t.recipe, t.seed, t.layers, t.steps, t.window, t.depth);
  };
  for (const Node& item : list.items()) {
    const TraceChoice trace = read_trace(Section(item, "trace"));
    const bool stands =
        std::ranges::any_of(traces, [&](const TraceChoice& earlier) { return key(earlier) == key(trace); });
    if (stands) throw UserError(item.where(), "traces: the same trace is listed twice");
    traces.push_back(trace);
  }
  return traces;
}

constexpr Limits kBytes{1, 1e15, Dimension::kBytes};

// The costs that a budget can be solved for, with their definitions; in the order of their numbers.
constexpr Key<MatchChoice> kMatchKeys[] = {
    {"bytes_read", within(kBytes, own<MatchChoice>(KeyShape::Type::kQuantity)),
     "bytes per sequence, layer and step that the policy's own work of a decode step reads: keys and values of "
     "attention, inputs of the selection (page summaries, centroids, partial keys, scores), and queries. Kernels' "
     "reads from HBM (those of `traffic.hbm_read_bytes` that belong to the policy) and CPU workers' reads from host "
     "memory (`traffic.cpu_dram_bytes`). Mean over all layers of the model, `first_dense_layers` included, at the "
     "replayed steps"},
    {"tokens_attended", within(1, kMaxTokens, own<MatchChoice>(KeyShape::Type::kNumber)),
     "KV pairs that a head attends to in a step, on GPU and CPU together: the metric `accuracy.attended_mean`. Mean "
     "over the replayed layers, steps and query heads. Uncompressed first layers count only if they are replayed"},
    {"bytes_resident", within(kBytes, own<MatchChoice>(KeyShape::Type::kQuantity)),
     "bytes per sequence that the policy keeps in HBM at the end of decoding, all layers together: KV cache, "
     "summaries, indexes, staging buffers (the owners that `run` lists under \"HBM at the peak\" without weights and "
     "activations), divided by `workload.batch`"}};

// Requires exactly one quantity and no budget in the run itself: a budget of a policy file is replaced, one written
// here would be lost.
MatchChoice read_match(Section section, const Node& policy) {
  check_keys(section, kMatchKeys);
  if (const Node* budget = policy.kind() == Node::Kind::kMap ? policy.find("budget") : nullptr) {
    throw UserError(budget->where(), "policy: `match:` solves for the budget; give one of the two");
  }
  std::vector<MatchChoice> given;
  for (const Key<MatchChoice>& key : kMatchKeys) {
    if (!section.has(key.name)) continue;
    const auto& [low, high, dimension] = key.slot.limits;
    const double value = section.quantity(key.name, dimension, low, high);
    given.push_back({static_cast<MatchChoice::Quantity>(&key - kMatchKeys), value, section.where(key.name)});
  }
  if (given.empty()) {
    throw UserError(section.where(), "match: give one of the quantities",
                    {"bytes_read", "bytes_resident", "tokens_attended"});
  }
  if (given.size() > 1) {
    throw UserError(given[1].where, fmt::format("match: {} and {}: a budget is solved for one of them",
                                                quantity_name(given[0].quantity), quantity_name(given[1].quantity)));
  }
  return given.front();
}

constexpr Key<ScoreChoice> kScoreKeys[] = {
    {"benchmark", into<&ScoreChoice::benchmark>,
     "`ruler`, `longbench`, `niah`, `scbench`, `none`, or the path of a YAML file with tasks of your own: one "
     "benchmark's map as in configs/accuracy/tasks.yaml"},
    {"floor", within(Limits{0, 1, Dimension::kFraction}, into<&ScoreChoice::floor>),
     "the minimum share of the uncompressed model's score; it affects conclusions, not results"},
    {"evidence", into<&ScoreChoice::evidence>, "whether published rows adjust the score; false: the simulation alone"}};

constexpr Key<Run> kRunKeys[] = {
    {"name", into<&Run::name>, "free text for readers"},
    {"description", into<&Run::description>, "free text for readers"},
    {"model",
     {.required = true},
     "a name under configs/models, a path, a published config.json, or a map (`model.like`)"},
    {"hardware",
     {.required = true},
     "a machine: a name under configs/hardware or one of its aliases, a path, or a map with `like` and the numbers "
     "that differ"},
    {"policy",
     {.required = true},
     "a policy or a file under configs/policies by its name, or a map with `name` or `file` and the parameters that "
     "differ (`kvcast policies NAME`)"},
    {"match", {}, "a cost; the policy's `budget` is solved for it"},
    {"workload", {}, "prompts, batch and decode length"},
    {"traffic", {}, "requests that arrive and leave, in place of `workload`"},
    {"scheduler", {}, "rules by which the engine serves `traffic`; the framework's by default"},
    {"trace", {}, "the trace on which the run is replayed"},
    {"traces",
     {},
     "a list of traces, each with the keys of `trace`, on all of which the run is replayed; without `trace` and "
     "`traces`: three recipes"},
    {"score", {}, "the benchmark whose score is predicted: its name, or a map"},
    {"framework",
     {},
     "a name under configs/frameworks, with a version where versions differ, or a map of `name` and the keys that "
     "differ (`kvcast frameworks`)"},
    {"deployment",
     {},
     "precisions, and the split of the model over GPUs; one GPU and the released precisions by default"},
    {"speculation", {}, "tokens that a draft proposes and a pass verifies"},
    {"price_per_hour",
     {},
     "price of one GPU with its share of the host, in any currency, or a map of machines to prices; gives the cost per "
     "million tokens"}};

// A number, or a map of machines to numbers, of which this machine's applies, however its name is written and whatever
// numbers of it the run changes.
std::optional<double> read_price(Section& run) {
  const Node node = run.node("price_per_hour"), hardware = run.node("hardware");
  constexpr double kMost = 1e9;
  if (node.kind() != Node::Kind::kMap) return read_number(node, "price_per_hour", 0, kMost);
  const Node& machine = machine_name(hardware);
  const std::string file = find_config("hardware", machine.text(), machine.where());
  std::optional<double> price;
  for (const auto& [name, value] : node.entries()) {
    const std::string priced = find_config("hardware", name, node.key_where(name));
    const double number = read_number(value, "price_per_hour", 0, kMost);
    if (priced != file) continue;
    if (price && *price != number) {
      throw UserError(node.key_where(name), fmt::format("price_per_hour: {} has another price under another name: "
                                                        "give one",
                                                        name));
    }
    price = number;
  }
  return price;
}

// Checks the rules that involve several sections.
void check_together(const Run& run) {
  if (!run.workload.prompts.empty() && (run.match || run.deployment.pipeline_parallel > 1)) {
    throw UserError(
        where_is(run.source, "workload.prompt_tokens"),
        fmt::format("workload: prompts of different lengths: not with {}", run.match ? "match" : "pipeline_parallel"));
  }
  if (run.deployment.data_parallel_attention && (run.traffic || run.match || !run.workload.prompts.empty())) {
    throw UserError(
        where_is(run.source, "deployment.data_parallel_attention"),
        "data_parallel_attention: modelled for batches of equal prompts, not with traffic, match or lists of prompts");
  }
  const std::int64_t context = run.workload.prompt_tokens + run.workload.decode_tokens;
  if (!run.traffic && context > run.model.max_context) {
    throw UserError(where_is(run.source, "workload.prompt_tokens"),
                    fmt::format("workload: {} prompt and {} decode tokens are {}, above the {} that {} can attend to",
                                run.workload.prompt_tokens, run.workload.decode_tokens, context, run.model.max_context,
                                run.model.title));
  }
  if (run.speculation && !run.traffic) check_context(*run.speculation, context, where_is(run.source, "speculation"));
  if (run.model.recurrence && run.framework.scan_chunk <= 0) {
    const bool named = run.source.find("framework") != nullptr;
    throw UserError(
        where_is(run.source, named ? "framework" : "model"),
        fmt::format("{} has layers with a recurrence, which {}: name one that does, such as `framework: "
                    "vllm` or `sglang`",
                    run.model.title,
                    named ? run.framework.name + " does not run" : "the runtime without a framework does not run"));
  }
  if (run.framework.max_batch > 0 && run.workload.batch > run.framework.max_batch) {
    throw UserError(
        where_is(run.source, "workload.batch"),
        fmt::format("workload: batch {}, but the engine runs at most {} sequences at a time (framework.max_batch)",
                    run.workload.batch, run.framework.max_batch));
  }
  for (std::size_t i = 0; i < run.traces.size(); ++i) {
    const TraceChoice& trace = run.traces[i];
    if (!trace.file.empty() || trace.layers <= run.model.attending_layers()) continue;
    const Node* const several = run.source.find("traces");
    const SourceLocation where =
        several == nullptr ? where_is(run.source, "trace.layers") : where_is(several->items()[i], "layers");
    throw UserError(where, fmt::format("trace: {} captured layers, but {} has {}", trace.layers, run.model.title,
                                       run.model.attending_layers()));
  }
}

}  // namespace

std::vector<TraceChoice> default_traces() {
  const auto of = [](const char* recipe, std::uint64_t seed) {
    TraceChoice trace;
    trace.recipe = recipe, trace.seed = seed;
    return trace;
  };
  return {of("needle", 1), of("longbench-single-doc", 2), of("ruler-multikey2", 3)};
}

PolicyChoice read_policy(const Node& choice) {
  const bool is_map = choice.kind() == Node::Kind::kMap;
  if (!is_map && choice.kind() != Node::Kind::kScalar) {
    throw UserError(choice.where(), "policy: expected a name, or a map with a name, found " + describe(choice));
  }
  const Node* name = is_map ? choice.find("name") : &choice;
  const Node* file = is_map ? choice.find("file") : nullptr;
  if ((name == nullptr) == (file == nullptr)) {
    throw UserError(choice.where(), "policy: give either name or file");
  }
  const Node& asked = name != nullptr ? *name : *file;
  const std::string text = read_text(asked, "policy");
  const std::optional<std::string> path = file != nullptr ? find_config("policies", text, asked.where())
                                                          : find_config_if_any("policies", text, asked.where());
  PolicyChoice policy =
      path ? read_policy_file(*path) : PolicyChoice{text, Node::map({}, choice.where()), {}, asked.where()};
  policy.where = asked.where();
  if (is_map) policy.parameters = overridden(policy.parameters, choice);
  return policy;
}

void resolve_budget(PolicyChoice& policy, std::int64_t prompt_tokens) {
  const Node* const budget = policy.parameters.find("budget");
  if (budget == nullptr || budget->kind() != Node::Kind::kScalar || !budget->text().ends_with('%')) return;
  const double share = read_quantity(*budget, "budget", Dimension::kFraction, 0, 1);
  const auto tokens = std::llround(share * static_cast<double>(prompt_tokens));
  policy.parameters =
      policy.parameters.with("budget", Node::scalar(std::to_string(std::max<long long>(1, tokens)), budget->where()));
}

// A benchmark's name alone is short for {benchmark: NAME}.
ScoreChoice read_score(const Node& node) {
  ScoreChoice score;
  score.requested = true;
  score.where = node.where();
  if (node.kind() == Node::Kind::kScalar) {
    score.benchmark = read_text(node, "score");
    return score;
  }
  Section section(node, "score");
  read_keys(section, kScoreKeys, score);
  if (section.has("benchmark")) score.where = section.where("benchmark");
  section.finish();
  return score;
}

const char* quantity_name(MatchChoice::Quantity quantity) {
  return kMatchKeys[static_cast<std::size_t>(quantity)].name.data();
}

Node with_budget(const Node& config, std::int64_t budget) {
  return config.without({"match"}).with("policy.budget", Node::scalar(std::to_string(budget), {}));
}

Run read_run(const Node& config) {
  Section section(config, "run");
  for (const auto& [key, why] : {std::pair{"sweep", "a run cannot have `sweep:`; `kvcast sweep` runs its points"},
                                 {"plan", "a run cannot have `plan:`; `kvcast plan` answers its questions"}}) {
    if (config.find(key) != nullptr) throw UserError(config.key_where(key), why);
  }
  check_keys(section, kRunKeys);
  Run run;
  run.source = config;
  read_keys(section, kRunKeys, run);
  run.model = read_model(section.node("model"));
  if (section.has("deployment")) run.deployment = read_deployment(section.node("deployment"), run.model);
  run.speculation = speculation_of(section, run.model, run.deployment);
  run.hardware = read_hardware(section.node("hardware"));
  if (section.has("price_per_hour")) run.price_per_hour = read_price(section);
  run.policy = read_policy(section.node("policy"));
  if (section.has("workload")) run.workload = read_workload(section.section("workload", "workload"));
  if (section.has("trace") && section.has("traces")) {
    throw UserError(section.where("traces"), "a run has either `trace:` or `traces:`, a list of several");
  }
  run.traces = section.has("traces")  ? read_traces(section.node("traces"))
               : section.has("trace") ? std::vector<TraceChoice>{read_trace(section.section("trace", "trace"))}
                                      : default_traces();
  if (section.has("score")) run.score = read_score(section.node("score"));
  if (section.has("match")) run.match = read_match(section.section("match", "match"), *config.find("policy"));
  if (section.has("framework")) run.framework = read_framework(section.node("framework"), run.model, run.hardware);
  read_service(section, run);
  complete_prefill(run.framework, config.find("workload"), run.workload);
  check_together(run);
  return run;
}

std::string unpriced_text(const Run& run) {
  if (run.price_per_hour || run.source.find("price_per_hour") == nullptr) return "";
  return fmt::format("price_per_hour has no price of {}: its results have no cost", run.hardware.name);
}

Shapes run_shapes() {
  Shapes all = {{"run", shapes_in(kRunKeys)},
                {"trace", shapes_in(kTraceKeys)},
                {"match", shapes_in(kMatchKeys)},
                {"score", shapes_in(kScoreKeys)}};
  for (const auto shapes : {model_shapes, workload_shapes, traffic_shapes, scheduler_shapes, framework_shapes,
                            deployment_shapes, speculation_shapes})
    all.merge(shapes());
  return all;
}

}  // namespace kvcast::config

#include "score/catalogue.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "base/file_state.hpp"
#include "config/find.hpp"
#include "config/section.hpp"
#include "policies/all.hpp"
#include "policies/replay_needs.hpp"

namespace kvcast::score {
namespace {

// Reads {tokens: points, ...}.
std::map<std::int64_t, double> read_full_scores(const config::Node& node) {
  std::map<std::int64_t, double> scores;
  if (node.entries().empty()) throw UserError(node.where(), "full: expected {tokens: points, ...}");
  for (const auto& [length, points] : node.entries()) {
    const config::Node tokens = config::Node::scalar(length, node.key_where(length));
    scores[config::read_integer(tokens, "full", 1, 4'000'000)] = config::read_number(points, "full", 0.1, 100);
  }
  return scores;
}

std::vector<PromptLength> read_lengths(const config::Node& node) {
  std::vector<PromptLength> lengths;
  if (node.entries().empty()) throw UserError(node.where(), "lengths: expected {tokens: prompts, ...}");
  for (const auto& [key, count] : node.entries()) {
    const config::Node tokens = config::Node::scalar(key, count.where());
    lengths.push_back({config::read_integer(tokens, "lengths", 1, 4'000'000),
                       config::read_number(count, "lengths", 0.001, 1'000'000)});
    if (lengths.size() > 1 && lengths[lengths.size() - 2].tokens >= lengths.back().tokens) {
      throw UserError(count.where(), "lengths: expected ascending numbers of tokens");
    }
  }
  return lengths;
}

TaskSpec read_task(const config::Node& node) {
  config::Section s(node, "task");
  TaskSpec task;
  task.context = s.integer("context", 0, 4'000'000, 0);
  task.category = s.text("category", "");
  task.weight = s.number("weight", 0.001, 1000, 1.0);
  if (s.has("parts")) {
    for (const config::Node& part : s.node("parts").items()) task.parts.push_back(read_task(part));
    if (task.parts.empty()) throw UserError(node.where(), "parts: a task has at least one");
    task.product = s.flag("product", false);
    s.finish();
    return task;
  }
  task.recipe = s.text("recipe");
  task.steps = static_cast<int>(s.integer("steps", 1, 100'000));
  task.answer = static_cast<int>(s.integer("answer", 1, 1'000'000, task.steps));
  const std::string score = s.choice("score", {"exact", "overlap", "count"});
  task.score = score == "exact" ? Score::kExact : score == "overlap" ? Score::kOverlap : Score::kCount;
  task.floor = s.number("floor", 0, 1, 0.0);
  task.turns = static_cast<int>(s.integer("turns", 1, 1000, 1));
  if (s.has("lengths")) task.lengths = read_lengths(s.node("lengths"));
  if (s.has("context_shares")) task.context_shares = s.numbers("context_shares", 0.001, 1);
  task.prompts = static_cast<int>(s.integer("prompts", 1, 100, 1));
  task.attempts = static_cast<int>(s.integer("attempts", 1, 1000, 1));
  task.attempt = s.number("attempt", 0.001, 1, 1.0);
  task.sparse_beats_full = s.number("sparse_beats_full", 0, 100, 0.0);
  if (s.has("full")) task.full = read_full_scores(s.node("full"));
  s.finish();
  return task;
}

MethodSpec read_method(const config::Node& node) {
  config::Section s(node, "method");
  MethodSpec method;
  method.methods = s.texts("methods");
  method.papers = s.texts("papers", {});
  method.benchmarks = s.texts("benchmarks", {});
  const std::string budget = s.choice("budget", {"tokens", "query_heads", "sparsity", "none"}, "tokens");
  method.budget = budget == "tokens"        ? MethodSpec::Budget::kTokens
                  : budget == "query_heads" ? MethodSpec::Budget::kQueryHeads
                  : budget == "sparsity"    ? MethodSpec::Budget::kSparsity
                                            : MethodSpec::Budget::kNone;
  method.contexts = s.texts("contexts", {});
  method.any_value = s.texts("any_value", {});
  method.coupled = s.flag("coupled", false);
  method.whole_prompt = s.flag("whole_prompt", false);
  method.each_turn = s.flag("each_turn", false);
  method.row_block = s.flag("row_block", false);
  method.window_share = s.number("window_share", 0, 1, 0.0);
  method.uncounted = s.integer("uncounted", 0, 1'000'000, 0);
  method.bits = static_cast<int>(s.integer("bits", 1, 16, 16));
  if (s.has("refused")) {
    method.refused = s.text("refused");
  } else {
    method.policy = s.node("policy");
  }
  s.text("source");
  s.finish();
  return method;
}

bool fits(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

bool fits_bare(const std::vector<std::string>& names, const std::string& name) {
  const auto same = [&](const std::string& other) { return bare_name(other) == bare_name(name); };
  return names.empty() || std::ranges::any_of(names, same);
}

template <typename Value>
auto named(const std::map<std::string, Value>& map, const std::string& name) {
  const auto at = map.find(name);
  if (at != map.end()) return at;
  return std::ranges::find_if(map, [&](const auto& entry) { return bare_name(entry.first) == bare_name(name); });
}

// A policy under its own name and with its own settings, for policies that no entry defines.
MethodSpec method_of(const policy::Descriptor& policy) {
  MethodSpec method;
  method.methods = {policy.name};
  method.policy = config::Node::map({{"name", config::Node::scalar(policy.name, {})}}, {});
  const bool has_budget = std::ranges::any_of(policy.parameters, [](const auto& p) {
    return p.key == "budget" && std::holds_alternative<std::int64_t>(p.fallback);
  });
  method.budget = has_budget ? MethodSpec::Budget::kTokens : MethodSpec::Budget::kNone;
  constexpr policy::Lengths kUsual{16384, 16};
  const policy::ReplayNeeds needs = policy::replay_needs(policy, config::Node::map({}, {}), kUsual);
  method.coupled = needs.coupled, method.whole_prompt = needs.whole_prompt, method.each_turn = needs.each_turn;
  method.window = needs.window, method.refused = needs.unseen;
  return method;
}

std::optional<double> number_in(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0) return {};
  return value;
}

void add_parts(const TaskSpec& task, double weight, bool each_turn, std::vector<TaskPart>& parts) {
  double all = 0;
  for (const TaskSpec& part : task.parts) all += part.weight;
  for (const TaskSpec& part : task.parts) {
    add_parts(part, task.product ? 1 : weight * part.weight / all, each_turn, parts);
    parts.back().factor = task.product;
  }
  if (!task.parts.empty()) return;
  const double first = each_turn ? 1 : 1.0 / task.turns;
  parts.push_back({task, weight * first, false});
  if (first < 1) parts.push_back({task, weight * (1 - first), true});
}

}  // namespace

std::string bare_name(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || byte > 127) letters += static_cast<char>(std::tolower(byte));
  }
  return letters;
}

double TaskSpec::full_at(std::int64_t tokens) const {
  const auto far = [tokens](const auto& entry) {
    return std::abs(
        std::log(static_cast<double>(entry.first) / static_cast<double>(std::max<std::int64_t>(1, tokens))));
  };
  const auto nearest = std::ranges::min_element(full, [&](const auto& a, const auto& b) { return far(a) < far(b); });
  return nearest == full.end() ? 100 : nearest->second;
}

std::vector<TaskPart> parts_of(const TaskSpec& task, bool each_turn) {
  std::vector<TaskPart> parts;
  add_parts(task, 1, each_turn, parts);
  return parts;
}

std::map<std::string, TaskSpec> read_tasks(const config::Node& list) {
  if (list.kind() != config::Node::Kind::kMap || list.entries().empty()) {
    throw UserError(list.where(), "expected a map of tasks by name");
  }
  std::map<std::string, TaskSpec> tasks;
  for (const auto& [name, node] : list.entries()) tasks[name] = read_task(node);
  return tasks;
}

Catalogue::Contents Catalogue::read(const std::string& tasks, const std::string& methods) {
  Contents contents;
  const config::Node benchmarks = config::load_yaml(tasks), list = config::load_yaml(methods);
  for (const auto& [benchmark, described] : benchmarks.entries()) contents.tasks[benchmark] = read_tasks(described);
  for (const config::Node& node : list.items()) contents.methods.push_back(read_method(node));
  for (const policy::Descriptor& policy : policy::all_policies()) {
    const bool there = std::ranges::any_of(contents.methods, [&](const MethodSpec& m) {
      return m.papers.empty() && m.benchmarks.empty() && fits_bare(m.methods, policy.name);
    });
    if (!there && !policy.uncompressed()) contents.methods.push_back(method_of(policy));
  }
  return contents;
}

Catalogue::Catalogue() {
  static MadeOfFiles<Contents> all;
  const std::string tasks = config::find_config("accuracy", "tasks", {});
  const std::string methods = config::find_config("accuracy", "methods", {});
  contents_ = all.of({tasks, methods}, [&] { return read(tasks, methods); });
}

const TaskSpec* Catalogue::task(const std::string& benchmark, const std::string& name) const {
  const auto list = named(contents_->tasks, benchmark);
  if (list == contents_->tasks.end()) return nullptr;
  auto at = named(list->second, name);
  // RULER's own files prefix its needle tasks with "niah"; tables mostly omit the prefix.
  const std::string letters = bare_name(name);
  if (at == list->second.end() && letters.starts_with("niah")) at = named(list->second, letters.substr(4));
  return at == list->second.end() ? nullptr : &at->second;
}

const TaskSpec* Catalogue::task_of_trace(const std::string& name) const {
  std::string recipe = name;
  std::replace(recipe.begin(), recipe.end(), '_', '-');
  if (recipe.empty()) return nullptr;
  for (const auto& [benchmark, list] : contents_->tasks) {
    for (const auto& [task, spec] : list) {
      if (spec.recipe == recipe) return &spec;
      for (const TaskSpec& part : spec.parts) {
        if (part.recipe == recipe) return &part;
      }
    }
  }
  return nullptr;
}

const std::map<std::string, TaskSpec>& Catalogue::tasks(const std::string& benchmark) const {
  static const std::map<std::string, TaskSpec> none;
  const auto list = named(contents_->tasks, benchmark);
  return list == contents_->tasks.end() ? none : list->second;
}

const MethodSpec* Catalogue::method(const PublishedRow& row) const {
  for (const MethodSpec& method : contents_->methods) {
    if (!method.methods.empty() && fits_bare(method.methods, row.method) && fits_bare(method.papers, row.paper) &&
        fits_bare(method.benchmarks, row.benchmark) && fits(method.contexts, row.context)) {
      return &method;
    }
  }
  return nullptr;
}

std::optional<std::int64_t> context_tokens(const std::string& context) {
  std::string_view text = context;
  if (text.starts_with("max_ctx=")) text.remove_prefix(8);
  double unit = 1;
  if (text.ends_with('K') || text.ends_with('k')) unit = 1024, text.remove_suffix(1);
  const std::optional<double> value = text.empty() ? std::nullopt : number_in(text);
  if (!value || *value * unit < 1 || *value * unit > 4'000'000) return {};
  return std::llround(*value * unit);
}

namespace {

std::optional<double> block_tokens(const PublishedRow& row) {
  return row.context.starts_with("block=") ? number_in(std::string_view(row.context).substr(6)) : std::nullopt;
}

config::Node block_of(const PublishedRow& row) {
  const std::optional<double> tokens = block_tokens(row);
  return config::Node::scalar(tokens ? std::to_string(std::llround(*tokens)) : "prompt", row.where);
}

}  // namespace

bool budget_in_tokens(const MethodSpec& method, const PublishedRow& row) {
  return method.budget != MethodSpec::Budget::kNone && method.budget != MethodSpec::Budget::kSparsity &&
         !row.budget_unit.starts_with("fraction_of_context") && row.budget_unit != "compression_ratio_removed";
}

config::PolicyChoice policy_of(const MethodSpec& method, const PublishedRow& row, const config::Model& model,
                               std::int64_t prompt_tokens) {
  config::PolicyChoice choice = config::read_policy(method.policy);
  if (method.row_block) choice.parameters = choice.parameters.with("block", block_of(row));
  if (method.budget == MethodSpec::Budget::kNone) return choice;
  const std::optional<double> value = number_in(row.budget);
  if (!value) throw UserError(row.where, fmt::format("budget: expected a number, found \"{}\"", row.budget));
  double tokens = *value;
  if (row.budget_unit.starts_with("fraction_of_context")) {
    tokens = *value * static_cast<double>(prompt_tokens);
  } else if (row.budget_unit == "compression_ratio_removed") {
    tokens = (1 - *value) * static_cast<double>(prompt_tokens);
  } else if (row.budget_unit != "tokens" && row.budget_unit != "tokens_per_layer" &&
             row.budget_unit != "traffic_equiv_tokens_per_attn_group") {
    throw UserError(row.where, fmt::format("unknown budget unit \"{}\"", row.budget_unit),
                    {"tokens", "tokens_per_layer", "traffic_equiv_tokens_per_attn_group", "fraction_of_context",
                     "compression_ratio_removed"});
  }
  if (method.budget == MethodSpec::Budget::kSparsity) {
    const double left_out = std::max(0.0, 1 - tokens / static_cast<double>(prompt_tokens));
    choice.parameters =
        choice.parameters.with("sparsity", config::Node::scalar(fmt::format("{:.4f}", left_out), row.where));
    return choice;
  }
  if (method.budget == MethodSpec::Budget::kQueryHeads) tokens /= model.group();
  tokens = 16.0 / method.bits * tokens - static_cast<double>(method.uncounted);
  const auto budget = std::max<std::int64_t>(1, std::llround(tokens));
  choice.parameters = choice.parameters.with("budget", config::Node::scalar(std::to_string(budget), row.where));
  return choice;
}

}  // namespace kvcast::score

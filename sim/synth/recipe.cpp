// One list of parameters (visit_parameters), which visitors read and print.
#include "synth/recipe.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <vector>

#include "base/build.hpp"
#include "config/find.hpp"
#include "config/section.hpp"
#include "config/text.hpp"
#include "config/yaml.hpp"

namespace kvcast::trace {
namespace {

const std::vector<std::string>& haystacks() {
  static const std::vector<std::string> names = {"text", "repeated"};
  return names;
}

void visit_keys_and_queries(Recipe& r, ParameterVisitor& v) {
  v.section("keys");
  v.number("mean", r.keys.mean, 0, 10);
  v.number("scale_spread", r.keys.scale_spread, 0, 2);
  v.number("outlier_mean", r.keys.outlier_mean, 0, 100);
  v.number("outlier_scale", r.keys.outlier_scale, 0, 10);
  v.number("recency_mean", r.keys.recency_mean, 0.01, 100);
  v.number("other_recency_mean", r.keys.other_recency_mean, 0.01, 100);
  v.number("recency_scale", r.keys.recency_scale, 0, 10);
  v.number("amplitude_spread", r.keys.amplitude_spread, 0, 1);
  v.number("topic_share", r.keys.topic_share, 0, 1);
  v.integer("topic_tokens", r.keys.topic_tokens, 1, 1'000'000);
  v.number("topic_memory", r.keys.topic_memory, 0, 1);
  v.section("queries");
  v.number("mean", r.queries.mean, 0, 10);
  v.number("jitter", r.queries.jitter, 0, 10);
  v.number("outlier", r.queries.outlier, 0.01, 100);
  v.number("other_outlier", r.queries.other_outlier, 0.01, 100);
  v.number("outlier_spread", r.queries.outlier_spread, 0, 2);
  v.number("weight_spread", r.queries.weight_spread, 0, 2);
  v.number("strength", r.queries.strength, 0, 20);
  v.number("strength_spread", r.queries.strength_spread, 0, 2);
  v.number("idle_strength", r.queries.idle_strength, 0, 1);
  v.number("other_strength", r.queries.other_strength, 0, 1);
  v.number("target", r.queries.target, 0, 1);
  v.number("drift", r.queries.drift, 0, 1);
  v.number("drift_memory", r.queries.drift_memory, 0, 1);
}

void visit_heads(Recipe& r, ParameterVisitor& v) {
  v.section("heads");
  v.number("retrieval", r.heads.retrieval, 0, 1);
  v.number("local", r.heads.local, 0, 1);
  v.number("streaming", r.heads.streaming, 0, 1);
  v.number("least_share", r.heads.least_share, 0.01, 1);
  v.number("most_share", r.heads.most_share, 0.01, 1);
  v.section("channels");
  v.number("content_share", r.channels.content_share, 0.1, 0.9);
  v.number("content_turn", r.channels.content_turn, 0.1, 1e6);
  v.number("outlier_share", r.channels.outlier_share, 0.05, 0.9);
  v.number("outlier_turn", r.channels.outlier_turn, 0.1, 1e6);
  v.number("outliers", r.channels.outliers, 1, 16);
  v.integer("outliers_spread", r.channels.outliers_spread, 0, 8);
  v.number("recency_shortest", r.channels.recency_shortest, 2, 1e6);
  v.number("recency_longest", r.channels.recency_longest, 2, 1e6);
  v.section("recency");
  v.number("retrieval", r.recency.retrieval, 0, 100);
  v.number("idle", r.recency.idle, 0, 100);
  v.number("local", r.recency.local, 0, 100);
  v.number("streaming", r.recency.streaming, 0, 100);
  v.number("spread", r.recency.spread, 0, 2);
  v.number("back", r.recency.back, 0, 1000);
  v.section("sink");
  v.number("retrieval", r.sink.retrieval, -20, 100);
  v.number("local", r.sink.local, -20, 100);
  v.number("streaming", r.sink.streaming, -20, 100);
  v.number("idle_factor", r.sink.idle_factor, 0.1, 10);
  v.number("key_noise", r.sink.key_noise, 0, 10);
  v.number("value_scale", r.sink.value_scale, 0, 10);
}

void visit_content(Recipe& r, ParameterVisitor& v) {
  v.section("codes");
  v.number("type", r.codes.type, 0, 1);
  v.number("phrase", r.codes.phrase, 0, 1);
  v.number("item", r.codes.item, 0, 1);
  v.number("item_decay", r.codes.item_decay, 0.01, 1e6);
  v.number("token", r.codes.token, 0, 1);
  v.integer("token_kinds", r.codes.token_kinds, 1, 1'000'000);
  v.number("odd", r.codes.odd, 0, 1);
  v.section("needles");
  v.number("amplitude", r.needles.amplitude, 0, 10);
  v.number("amplitude_spread", r.needles.amplitude_spread, 0, 2);
  v.number("content", r.needles.content, 0, 10);
  v.number("noise", r.needles.noise, 0, 10);
  v.number("distractor", r.needles.distractor, 0, 10);
  v.number("trained", r.needles.trained, 0, 1);
  v.section("question");
  v.integer("tokens", r.question.tokens, 1, 4096);
  v.number("strength", r.question.strength, 0, 10);
  v.number("strength_spread", r.question.strength_spread, 0, 2);
  v.integer("key_queries", r.question.key_queries, 0, 4096);
  v.number("key_share", r.question.key_share, 0, 1);
  v.number("key_noise", r.question.key_noise, 0, 10);
  v.integer("value_queries", r.question.value_queries, 0, 4096);
  v.number("common_share", r.question.common_share, 0, 1);
  v.integer("earlier", r.question.earlier, 0, 1'000'000);
  v.integer("type_queries", r.question.type_queries, 0, 4096);
  v.integer("turns", r.question.turns, 1, 64);
  v.section("decoys");
  v.number("count", r.decoys.count, 0, 1e6);
  v.number("growth", r.decoys.growth, 0, 2);
  v.integer("queries", r.decoys.queries, 1, 4096);
  v.number("amplitude", r.decoys.amplitude, 0, 10);
  v.number("amplitude_spread", r.decoys.amplitude_spread, 0, 2);
  v.section("evidence");
  v.number("share", r.evidence.share, 0, 1);
  v.number("amplitude", r.evidence.amplitude, 0, 10);
  v.number("middle", r.evidence.middle, 0, 10);
}

void visit_task(Recipe& r, ParameterVisitor& v) {
  v.section("task");
  v.integer("repeat_tokens", r.task.repeat_tokens, 1, 1'000'000);
  v.number("repeat_share", r.task.repeat_share, 0, 1);
  v.number("earliest", r.task.earliest, 0, 1);
  v.number("latest", r.task.latest, 0, 1);
  v.integer("needles", r.task.needles, 0, 1'000'000);
  v.integer("distractors", r.task.distractors, 0, 1'000'000);
  v.number("distractor_density", r.task.distractor_density, 0, 1000);
  v.integer("key_tokens", r.task.key_tokens, 0, 4096);
  v.integer("gap_tokens", r.task.gap_tokens, 0, 4096);
  v.integer("value_tokens", r.task.value_tokens, 1, 4096);
  v.number("shared_key", r.task.shared_key, 0, 1);
  v.integer("pause_steps", r.task.pause_steps, 0, 1'000'000);
  v.integer("copies", r.task.copies, 1, 1'000'000);
  v.number("copy_density", r.task.copy_density, 0, 1000);
  v.number("copy_decay", r.task.copy_decay, 0, 10);
  v.integer("spots", r.task.spots, 0, 100'000);
  v.integer("spot_radius", r.task.spot_radius, 0, 1000);
  v.integer("spot_steps", r.task.spot_steps, 1, 1'000'000);
  v.integer("spots_a_step", r.task.spots_a_step, 0, 100'000);
  v.integer("section_steps", r.task.section_steps, 0, 1'000'000);
  v.integer("back_steps", r.task.back_steps, 0, 1'000'000);
  v.integer("back_reach", r.task.back_reach, 1, 1'000'000);
}

// Reads the values that the file contains; all others keep their defaults.
class Reader final : public ParameterVisitor {
 public:
  explicit Reader(config::Section& root) : root_(root) {}

  void section(const char* name) override {
    finish();
    // Every section, `task` included, is optional.
    if (root_.has(name)) current_.emplace(root_.section(name, name));
  }
  void number(const char* key, double& value, double low, double high) override {
    if (current_) value = current_->number(key, low, high, value);
  }
  void integer(const char* key, int& value, int low, int high) override {
    if (current_) value = static_cast<int>(current_->integer(key, low, high, value));
  }
  std::optional<config::Section>& current() { return current_; }
  void finish() {
    if (current_) current_->finish();
    current_.reset();
  }

 private:
  config::Section& root_;
  std::optional<config::Section> current_;
};

class Printer final : public ParameterVisitor {
 public:
  void section(const char* name) override { text += fmt::format("{}:", name); }
  void number(const char* key, double& value, double, double) override { text += fmt::format(" {}={}", key, value); }
  void integer(const char* key, int& value, int, int) override {
    // Younger than the files that name traces by this text.
    if (value == 1 && std::string_view(key) == "turns") return;
    text += fmt::format(" {}={}", key, value);
  }
  std::string text;
};

void check_sections(const RecipeTask& task, const SectionLocations& where) {
  if (task.section_steps == 0) {
    if (task.back_steps > 0) throw UserError(where("task"), "task: back_steps need sections (section_steps)");
    return;
  }
  if (task.spots == 0) throw UserError(where("task"), "task: sections rest on spots of evidence in the prompt (spots)");
  // Answers are separated by steps without targets.
  const int least = std::max(task.spot_steps + task.back_steps, 2 * task.spot_radius + 1) + 1;
  if (task.section_steps < least) {
    throw UserError(where("task"),
                    fmt::format("task: section_steps is {}, its steps and its beginning need {} at least",
                                task.section_steps, least));
  }
}

}  // namespace

void check_recipe(const Recipe& r, const SectionLocations& where) {
  check_sections(r.task, where);
  const double sum = r.heads.retrieval + r.heads.local + r.heads.streaming;
  if (std::fabs(sum - 1) > 1e-6) {
    throw UserError(where("heads"),
                    fmt::format("heads: retrieval + local + streaming are {}, they must add up to 1", sum));
  }
  if (r.heads.most_share < r.heads.least_share)
    throw UserError(where("heads"), "heads: most_share is below least_share");
  if (r.channels.recency_longest < r.channels.recency_shortest) {
    throw UserError(where("channels"), "channels: recency_longest is below recency_shortest");
  }
  if (r.task.latest <= r.task.earliest) throw UserError(where("task"), "task: latest must be above earliest");
  if (r.task.spots > 0 && (r.task.needles > 0 || r.task.distractor_density > 0)) {
    throw UserError(where("task"), "task: needles and spots of evidence do not go together");
  }
  if (r.question.earlier > 0 && (r.task.needles == 0 || r.task.copies > 1 || r.task.copy_density > 0)) {
    throw UserError(where("question"), "question: earlier needs needles, each in one place");
  }
  if (r.question.turns > 1) {
    if (r.task.needles == 0 || r.task.copies > 1 || r.task.copy_density > 0) {
      throw UserError(where("question"), "question: turns need needles, each in one place");
    }
    if (r.question.earlier > 0) throw UserError(where("question"), "question: earlier is for a prompt of one turn");
    if (r.question.turns * r.question.tokens > r.window) {
      throw UserError(where("question"),
                      fmt::format("question: {} turns of {} tokens need a window of {} captured queries, not {}",
                                  r.question.turns, r.question.tokens, r.question.turns * r.question.tokens, r.window));
    }
  }
  const std::int64_t asked = r.task.needles + r.task.spots;
  const std::int64_t asking = asked * r.question.key_queries + (r.task.needles > 0 ? r.question.value_queries : 0) +
                              (asked > 0 ? r.question.type_queries : 0);
  if (asking > r.question.tokens) {
    throw UserError(where("question"),
                    fmt::format("question: the needles need {} queries, but the question has {} tokens", asking,
                                r.question.tokens));
  }
}

void visit_parameters(Recipe& recipe, ParameterVisitor& visitor) {
  visit_keys_and_queries(recipe, visitor);
  visit_heads(recipe, visitor);
  visit_content(recipe, visitor);
  visit_task(recipe, visitor);  // the task's section comes last because read_recipe adds its texts
}

Recipe read_recipe(const std::string& path) {
  config::Section root(config::load_yaml(path), "recipe");
  Recipe recipe;
  recipe.name = config::stem_of(path);
  recipe.description = root.text("description");
  recipe.window = static_cast<int>(root.integer("window", 1, 1'000'000, recipe.window));
  Reader reader(root);
  visit_parameters(recipe, reader);
  recipe.task.name = recipe.name;
  if (reader.current()) {
    recipe.task.name = reader.current()->text("name", recipe.task.name);
    recipe.task.haystack = reader.current()->choice("haystack", haystacks(), recipe.task.haystack);
  }
  reader.finish();
  root.finish();
  check_recipe(recipe, [&](const char* section) { return root.where(section); });
  return recipe;
}

std::string canonical(const Recipe& recipe) {
  Recipe copy = recipe;
  Printer printer;
  visit_parameters(copy, printer);
  return fmt::format("window={} task={} haystack={} {}", recipe.window, recipe.task.name, recipe.task.haystack,
                     printer.text);
}

std::vector<std::string> recipe_names() {
  std::set<std::string> names;
  for (const std::filesystem::path& root : {std::filesystem::path("."), std::filesystem::path(data_dir())}) {
    std::error_code failure;
    for (const auto& entry : std::filesystem::directory_iterator(root / "traces/recipes", failure)) {
      if (entry.path().extension() == ".yaml") names.insert(entry.path().stem().string());
    }
  }
  return {names.begin(), names.end()};
}

std::string find_recipe(const std::string& name, const SourceLocation& asked_at) {
  namespace fs = std::filesystem;
  const bool is_path = config::is_path(name);
  if (is_path && asked_at.from_request) config::refuse_request_for_file(asked_at, recipe_names());
  const fs::path below = is_path ? fs::path(name) : fs::path("traces/recipes") / (name + ".yaml");
  for (const fs::path& root : {fs::path("."), fs::path(data_dir())}) {
    std::error_code failure;
    const bool found = asked_at.from_request ? config::is_own_file(root.string(), below.string())
                                             : fs::is_regular_file(root / below, failure);
    if (found) return (root / below).lexically_normal().string();
  }
  if (is_path) throw UserError(asked_at, fmt::format("no such file: {}", config::shorten(name)));
  const std::vector<std::string> known = recipe_names();
  throw UserError(asked_at,
                  fmt::format("there is no recipe \"{}\"{}", config::shorten(name), config::did_you_mean(name, known)),
                  known);
}

}  // namespace kvcast::trace

// kvcast keys [KEY]: the reference of the keys of a run, from the tables of their readers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "base/error.hpp"
#include "config/run.hpp"
#include "config/text.hpp"

namespace kvcast::app {
namespace {

using config::KeyShape;
using nlohmann::json;

struct KeysOptions {
  std::string key;
  bool as_json = false, as_markdown = false;
};

// A map of a run, with its keys.
struct KeyMap {
  const char* name;
  const char* title;
  const char* within = "";  // the map that contains it, with a dot
};
constexpr KeyMap kMaps[] = {{"run", "A run"},
                            {"model", "Model: a map of `like` or `config` and the keys that differ"},
                            {"rope", "Positions", "model."},
                            {"experts", "Experts", "model."},
                            {"sliding", "Sliding layers", "model."},
                            {"latent", "Latent attention", "model."},
                            {"recurrence", "Layers with a recurrence", "model."},
                            {"compressed", "Attention to compressed entries", "model."},
                            {"workload", "Workload"},
                            {"traffic", "Traffic"},
                            {"prompt_tokens", "Lengths of prompts (and of outputs)", "traffic."},
                            {"shared_prefix", "Shared prefix", "traffic."},
                            {"sessions", "Sessions", "traffic."},
                            {"slo", "SLO", "traffic."},
                            {"scheduler", "Scheduler"},
                            {"trace", "Trace"},
                            {"match", "Match"},
                            {"score", "Score"},
                            {"deployment", "Deployment"},
                            {"experts_on_host", "Experts in host memory", "deployment."},
                            {"transfer", "Transfer", "deployment."},
                            {"speculation", "Speculation"},
                            {"framework", "Framework"}};

std::string dotted(std::string_view map, const KeyShape& key) {
  if (map == "run") return key.key;
  const auto* const of = std::ranges::find(kMaps, map, [](const KeyMap& m) { return std::string_view(m.name); });
  return fmt::format("{}{}.{}", of->within, map, key.key);
}

// The values that a key takes: "1 to 65536", "true or false".
std::string values_text(const KeyShape& key) {
  using Type = KeyShape::Type;
  switch (key.type) {
    case Type::kInteger:
    case Type::kNumber:
      if (key.low && key.high) return fmt::format("{} to {}", format_digits(*key.low, 9), format_digits(*key.high, 9));
      return key.type == Type::kInteger ? "integer" : "number";
    case Type::kQuantity:
      return "such as " + key.example;
    case Type::kValue:
      return fmt::format("such as {}, or with its origin", key.example);
    case Type::kFlag:
      return "true or false";
    case Type::kText:
      return key.choices.empty() ? "text" : fmt::format("{}", fmt::join(key.choices, ", "));
    case Type::kList:
      return "list";
    case Type::kMap:
      return "map";
    case Type::kAny:
      break;
  }
  return "";
}

std::string default_text(const KeyShape& key) { return key.required ? "required" : key.fallback.value_or(""); }

json to_json(std::string_view map, const KeyShape& key) {
  json out = {{"key", dotted(map, key)}, {"values", values_text(key)}, {"meaning", key.about}};
  out["required"] = key.required;
  if (key.fallback) out["default"] = *key.fallback;
  if (key.low) out["low"] = *key.low;
  if (key.high) out["high"] = *key.high;
  if (!key.choices.empty()) out["choices"] = key.choices;
  return out;
}

template <class Visit>
void for_each(const config::Shapes& shapes, const Visit& visit) {
  for (const KeyMap& map : kMaps) {
    for (const KeyShape& key : shapes.at(map.name)) visit(map.name, key);
  }
}

void print_line(std::string_view map, const KeyShape& key) {
  fmt::print("{:<31} {:<14} {}\n", dotted(map, key), default_text(key), key.about);
}

// A map, with the keys in it, or another key.
void print_one(const config::Shapes& shapes, const KeysOptions& options) {
  std::vector<std::string> known;
  bool found = false;
  for_each(shapes, [&](std::string_view map, const KeyShape& key) {
    known.push_back(dotted(map, key));
    if (known.back() != options.key) return;
    found = true;
    if (options.as_json) return fmt::print("{}\n", to_json(map, key).dump(1));
    fmt::print("{}\n{}\n\n", known.back(), key.about);
    if (const std::string values = values_text(key); !values.empty()) fmt::print("  {:<12} {}\n", "values", values);
    if (const std::string text = default_text(key); !text.empty()) fmt::print("  {:<12} {}\n", "default", text);
  });
  if (found && options.as_json) return;
  for_each(shapes, [&](std::string_view map, const KeyShape& key) {
    if (dotted(map, key).starts_with(options.key + ".")) print_line(map, key), found = true;
  });
  if (found) return;
  for (const auto& [map, command] : {std::pair{"policy.", "policies"}, std::pair{"hardware.", "hardware"}}) {
    if (options.key.starts_with(map)) {
      throw UserError(fmt::format("\"{}\": `kvcast {} NAME` lists the keys under `{}`", options.key, command,
                                  std::string(map, std::string_view(map).size() - 1)));
    }
  }
  throw UserError(fmt::format("unknown key \"{}\"{}; `kvcast keys` lists them", options.key,
                              config::did_you_mean(options.key, known)));
}

void print_list(const config::Shapes& shapes) {
  for_each(shapes, print_line);
  fmt::print(
      "\n`kvcast keys KEY` shows one in full; `kvcast policies`, `kvcast hardware` and `kvcast frameworks` list what "
      "the names of these mean, `kvcast plan --help` the questions of a plan.\n");
}

void print_markdown(const config::Shapes& shapes) {
  fmt::print(
      "# Keys\n\n"
      "Every key of a run, as configurations write it and `--set KEY=VALUE` takes it. A policy's own parameters "
      "are keys\nunder `policy` (`kvcast policies NAME`), a machine's numbers are keys under `hardware` "
      "(`kvcast hardware NAME`).\n`kvcast keys --markdown` writes this page from the readers' own tables; "
      "[configs](../configs/README.md) explains\nhow the keys work together.\n");
  for (const KeyMap& map : kMaps) {
    fmt::print("\n## {}\n\n| key | values | default | meaning |\n|---|---|---|---|\n", map.title);
    for (const KeyShape& key : shapes.at(map.name)) {
      fmt::print("| `{}` | {} | {} | {} |\n", dotted(map.name, key), values_text(key), default_text(key), key.about);
    }
  }
}

void run(const KeysOptions& options) {
  const config::Shapes shapes = config::run_shapes();
  if (!options.key.empty()) return print_one(shapes, options);
  if (options.as_markdown) return print_markdown(shapes);
  if (!options.as_json) return print_list(shapes);
  json list = json::array();
  for_each(shapes, [&](std::string_view map, const KeyShape& key) { list.push_back(to_json(map, key)); });
  fmt::print("{}\n", list.dump(1));
}

}  // namespace

void add_keys(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("keys", "list the keys of a run, or describe one");
  auto options = std::make_shared<KeysOptions>();
  CLI::Option* key = command->add_option("KEY", options->key, "a key, with the map that contains it: workload.batch");
  CLI::Option* as_json = command->add_flag("--json", options->as_json, "print JSON");
  command->add_flag("--markdown", options->as_markdown, "print the page docs/keys.md")
      ->excludes(as_json)
      ->excludes(key);
  command->callback([options, &result] {
    run(*options);
    result = 0;
  });
}

}  // namespace kvcast::app

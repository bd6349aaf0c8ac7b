// kvcast frameworks [NAME]: the serving frameworks, or every key of one with its origin.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/settings.hpp"
#include "config/find.hpp"
#include "config/framework.hpp"
#include "config/hardware.hpp"
#include "config/model.hpp"

namespace kvcast::app {
namespace {

using config::Framework;
using config::FrameworkFile;
using nlohmann::json;

std::string versions_text(const FrameworkFile& file) {
  if (file.from.empty() && file.before.empty()) return "all versions";
  if (file.before.empty()) return file.from + " and later";
  if (file.from.empty()) return fmt::format("before {}", file.before);
  return fmt::format("from {}, before {}", file.from, file.before);
}

// Keys other than numbers with an origin, as they are written.
std::vector<std::pair<std::string, std::string>> plain_keys(const config::Node& keys) {
  std::vector<std::pair<std::string, std::string>> plain;
  for (const auto& [key, value] : keys.entries()) {
    if (value.kind() == config::Node::Kind::kScalar) plain.emplace_back(key, value.text());
  }
  return plain;
}

json to_json(const FrameworkFile& file, const Framework& framework) {
  json out = {{"name", file.name},
              {"title", file.title},
              {"source", file.source},
              {"from", file.from},
              {"before", file.before}};
  for (const auto& [key, value] : plain_keys(file.keys)) out["keys"][key] = value;
  if (file.for_models.kind() != config::Node::Kind::kNull) out["for_models"] = file.for_models.canonical();
  if (file.for_gpus.kind() != config::Node::Kind::kNull) out["for_gpus"] = file.for_gpus.canonical();
  out["numbers"] = json::array();
  for (const config::FrameworkNumber& n : config::framework_numbers()) {
    const Value& v = framework.*n.member;
    if (v.source.empty()) continue;
    out["numbers"].push_back({{"key", n.key},
                              {"value", v.value},
                              {"unit", dimension_name(n.dimension)},
                              {"origin", origin_name(v.origin)},
                              {"uncertainty", v.uncertainty},
                              {"source", v.source}});
  }
  return out;
}

void print_number(const std::string& key, std::string_view value, std::string_view origin, std::string_view uncertainty,
                  std::string_view source) {
  fmt::print("  {:<22} {:<10} {:<12} ± {:<6} {}\n", key, value, origin, uncertainty, source);
}

// A value as it is written, alone or in a map with its grounds.
void print_key(const std::string& key, const config::Node& value) {
  if (value.kind() != config::Node::Kind::kMap) return fmt::print("  {:<22} {}\n", key, value.canonical());
  const auto part = [&](const char* name) {
    const config::Node* found = value.find(name);
    return found == nullptr ? "" : found->text();
  };
  print_number(key, part("value"), part("origin"), part("uncertainty"), part("source"));
}

// The keys that hold for the names in a `names` list of each item only.
void print_list(const char* names, const config::Node& list) {
  if (list.kind() == config::Node::Kind::kNull) return;
  for (const config::Node& item : list.items()) {
    std::vector<std::string> texts;
    for (const config::Node& name : item.find(names)->items()) texts.push_back(name.text());
    fmt::print("For {} only:\n", fmt::join(texts, ", "));
    for (const auto& [key, value] : item.entries()) {
      if (key != names) print_key(key, value);
    }
  }
}

void print_one(const FrameworkFile& file, const Framework& framework) {
  fmt::print("{}: {} ({})\nSource: {}\n\nKeys; each is a key of a run under `framework:`\n", file.name, file.title,
             versions_text(file), file.source);
  for (const auto& [key, value] : plain_keys(file.keys)) fmt::print("  {:<22} {}\n", key, value);
  for (const config::FrameworkNumber& n : config::framework_numbers()) {
    const Value& v = framework.*n.member;
    if (v.source.empty()) continue;
    print_number(n.key, format_quantity(v.value, n.dimension), origin_name(v.origin),
                 format_quantity(v.uncertainty, Dimension::kFraction), v.source);
  }
  print_list("models", file.for_models);
  print_list("gpus", file.for_gpus);
}

}  // namespace

void add_frameworks(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("frameworks", "list the serving frameworks, or every key of one");
  auto name = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  command->add_option("NAME", *name, "a framework: a name, with a version where versions differ (vllm-0.6), or a path");
  command->add_flag("--json", *as_json, "print JSON");
  command->callback([name, as_json, &result] {
    result = 0;
    json all = json::array();
    const auto show = [&](const std::string& path) {
      const FrameworkFile file = config::read_framework_file(path);
      config::refuse_unmatched_names(file);
      const Framework framework = config::read_framework(config::Node::scalar(path, {}), {}, {});
      all.push_back(to_json(file, framework));
      if (*as_json) return;
      if (!name->empty()) return print_one(file, framework);
      fmt::print("  {:<31} {:<22} {}\n", file.name, versions_text(file), file.title);
    };
    if (name->empty()) result = for_each_config("frameworks", show);
    if (!name->empty()) show(config::find_framework(*name, {}));
    if (*as_json) return fmt::print("{}\n", (name->empty() ? all : all.front()).dump(1));
    if (name->empty()) fmt::print("\n`kvcast frameworks NAME` prints every key of one with its source.\n");
  });
}

}  // namespace kvcast::app

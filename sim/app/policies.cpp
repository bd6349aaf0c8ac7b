// kvcast policies [NAME]: a one-sentence description of each policy and the names of the policy files, or everything
// needed to use one.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "api/catalogue.hpp"
#include "app/commands.hpp"
#include "config/find.hpp"
#include "config/run.hpp"
#include "config/section.hpp"
#include "config/text.hpp"
#include "policies/all.hpp"
#include "policy/policy.hpp"

namespace kvcast::app {
namespace {

using nlohmann::json;

std::string value_text(const policy::ParameterValue& value) {
  const json v = std::visit([](const auto& held) { return json(held); }, value);
  return v.is_string() ? v.get<std::string>() : v.dump();
}

void print_lines(const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return;
  fmt::print("\n{}\n", title);
  for (const std::string& line : lines) fmt::print("  {}\n", line);
}

void print_one(const policy::Descriptor& d) {
  fmt::print("{} ({})\n{}\n", d.name, policy::name(d.category), d.sentence);
  if (!d.paper.empty()) fmt::print("Source: {}\n", d.paper);
  if (!d.budget_convention.empty()) fmt::print("budget counts: {}\n", d.budget_text());
  const policy::ReuseClass reuse = d.reuse();
  fmt::print("Reuse by later prompts: {} ({})\n", config::reuse_name(reuse.reuse), reuse.reason);
  if (!d.parameters.empty()) fmt::print("\nParameters\n");
  for (const policy::Parameter& p : d.parameters) {
    fmt::print("  {:<20} {:<12} {}{}\n", p.key, value_text(p.fallback), p.unit.empty() ? "" : "[" + p.unit + "] ",
               p.meaning);
    if (!p.names.empty()) fmt::print("  {:<33} one of: {}\n", "", fmt::join(p.names, ", "));
  }
  fmt::print("\nA service reads its prompts {}{}\n", config::prefill_name(d.prefill),
             d.prefill_source.empty() ? "" : " (" + d.prefill_source + ")");
  if (d.stages) {
    fmt::print("\nTwo stages: fits {}kivi's selector\n",
               d.budget_convention.empty() ? "" : "a first or second stage (rocketkv) and ");
  }
  print_lines("Per layer and sequence (b: bytes of an element)", d.formulas);
  print_lines("Differs from the paper or its released code", d.differences);
}

// A file under configs/policies, or one of the user's.
struct PolicyFile {
  std::string name, path, description, source;
  config::PolicyChoice choice;
};

PolicyFile read_policy_file_at(const std::string& path) {
  PolicyFile file{config::stem_of(path), path, "", "", config::read_policy(config::Node::scalar(path, {}))};
  config::Section section(config::load_yaml(path), "policy file");
  file.description = section.text("description", ""), file.source = section.text("source", "");
  return file;
}

std::string setting_text(const config::Node& value) {
  return value.kind() == config::Node::Kind::kScalar ? value.text() : value.canonical();
}

json to_json(const PolicyFile& file, const policy::Descriptor& d) {
  json settings = json::object();
  for (const auto& [key, value] : file.choice.parameters.entries()) settings[key] = setting_text(value);
  return {{"name", file.name},     {"file", file.path},    {"description", file.description},
          {"source", file.source}, {"settings", settings}, {"policy", api::to_json(d)}};
}

void print_file(const PolicyFile& file, const policy::Descriptor& d) {
  fmt::print("{} ({})\n", file.name, file.path);
  if (!file.description.empty()) fmt::print("{}\n", file.description);
  if (!file.source.empty()) fmt::print("Source: {}\n", file.source);
  fmt::print("\nSettings\n  {:<20} {}\n", "policy", d.name);
  for (const auto& [key, value] : file.choice.parameters.entries())
    fmt::print("  {:<20} {}\n", key, setting_text(value));
  fmt::print("\n");
  print_one(d);
}

void refuse_unknown(const std::string& name) {
  std::vector<std::string> policies;
  for (const policy::Descriptor& d : policy::all_policies()) policies.push_back(d.name);
  policies.push_back(policy::replayed_policy().name);
  if (std::ranges::find(policies, name) != policies.end()) return;
  std::vector<std::string> known = policies;
  for (const std::string& path : config::config_files("policies")) known.push_back(config::stem_of(path));
  throw UserError({}, fmt::format("unknown policy \"{}\"{}", name, config::did_you_mean(name, known)), policies);
}

// Lists the files under configs/policies, as many names per line as fit.
void print_files() {
  constexpr std::size_t kWidth = 120;
  std::string lines, line;
  for (const std::string& path : config::config_files("policies")) {
    const std::string name = config::stem_of(path);
    if (!line.empty() && line.size() + name.size() + 3 > kWidth) lines += "  " + std::exchange(line, "") + ",\n";
    line += (line.empty() ? "" : ", ") + name;
  }
  if (!line.empty())
    fmt::print("files under configs/policies: settings of papers and releases\n{}  {}\n\n", lines, line);
}

// Lists the policies by category, in the order in which categories first occur.
void print_all() {
  std::vector<std::pair<policy::Category, std::string>> groups;  // category, lines
  const auto add = [&](const policy::Descriptor& d) {
    auto group = std::ranges::find_if(groups, [&](const auto& other) { return other.first == d.category; });
    if (group == groups.end()) group = groups.insert(group, {d.category, ""});
    group->second += fmt::format("  {:<20} {}\n", d.name, d.sentence);
  };
  for (const policy::Descriptor& d : policy::all_policies()) add(d);
  add(policy::replayed_policy());
  for (const auto& [category, lines] : groups)
    fmt::print("{}\n{}\n", category == policy::Category::kNone ? "reference" : policy::name(category), lines);
  print_files();
  fmt::print("kvcast policies NAME tells more about a policy or a file.\n");
}

}  // namespace

void add_policies(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("policies", "list the policies and their files, or describe one");
  auto name = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  command->add_option("NAME", *name, "a policy or a policy file: a name under configs/policies, or a path");
  command->add_flag("--json", *as_json, "print JSON");
  command->callback([name, as_json, &result] {
    result = 0;
    if (!name->empty()) {
      // A run, too, prefers a file to a policy of the same name.
      if (const auto path = config::find_config_if_any("policies", *name, {})) {
        const PolicyFile file = read_policy_file_at(*path);
        const policy::Descriptor& d = policy::find_policy(file.choice);
        policy::ParameterValues(d, file.choice.parameters);  // throws for what a run would refuse
        if (*as_json) return fmt::print("{}\n", to_json(file, d).dump(1));
        return print_file(file, d);
      }
      refuse_unknown(*name);
      const policy::Descriptor& d = policy::find_policy(*name);
      if (*as_json) return fmt::print("{}\n", api::to_json(d).dump(1));
      return print_one(d);
    }
    if (!*as_json) return print_all();
    json all = json::array();
    for (const policy::Descriptor& d : policy::all_policies()) all.push_back(api::to_json(d));
    fmt::print("{}\n", all.dump(1));
  });
}

}  // namespace kvcast::app

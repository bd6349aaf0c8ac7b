// kvcast policies [NAME]: a one-sentence description of each policy, and everything needed to use it.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "policies/all.hpp"
#include "policy/policy.hpp"
#include "serve/catalogue.hpp"

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
  fmt::print("{} ({})\n{}\n", d.name, d.category, d.sentence);
  if (!d.paper.empty()) fmt::print("Source: {}\n", d.paper);
  if (!d.budget_convention.empty()) fmt::print("budget counts: {}\n", d.budget_convention);
  if (!d.parameters.empty()) fmt::print("\nParameters\n");
  for (const policy::Parameter& p : d.parameters) {
    fmt::print("  {:<20} {:<12} {}{}\n", p.key, value_text(p.fallback), p.unit.empty() ? "" : "[" + p.unit + "] ",
               p.meaning);
    if (!p.names.empty()) fmt::print("  {:<33} one of: {}\n", "", fmt::join(p.names, ", "));
  }
  if (d.stages) {
    const char* const rocket = d.budget_convention.empty() ? "" : "RocketKV's first_stage or second_stage and ";
    fmt::print("\nTwo stages: fits {}kivi's selector\n", rocket);
  }
  print_lines("Per layer and sequence (b: bytes of an element)", d.formulas);
  print_lines("Differs from the paper or its released code", d.differences);
}

// Lists the policies by category, in the order in which categories first occur.
void print_all() {
  std::vector<std::pair<std::string, std::string>> groups;  // category, lines
  const auto add = [&](const policy::Descriptor& d) {
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const auto& other) { return other.first == d.category; });
    if (group == groups.end()) group = groups.insert(group, {d.category, ""});
    group->second += fmt::format("  {:<20} {}\n", d.name, d.sentence);
  };
  for (const policy::Descriptor& d : policy::all_policies()) add(d);
  add(policy::replayed_policy());
  for (const auto& [category, lines] : groups) fmt::print("{}\n{}\n", category, lines);
  fmt::print("kvcast policies NAME tells more.\n");
}

}  // namespace

void add_policies(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("policies", "list the policies, or tell all about one");
  auto name = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  command->add_option("NAME", *name, "a policy");
  command->add_flag("--json", *as_json, "print JSON");
  command->callback([name, as_json, &result] {
    result = 0;
    if (!name->empty()) {
      const policy::Descriptor& d = policy::find_policy(*name);
      if (*as_json) return fmt::print("{}\n", serve::to_json(d).dump(1));
      return print_one(d);
    }
    if (!*as_json) return print_all();
    json all = json::array();
    for (const policy::Descriptor& d : policy::all_policies()) all.push_back(serve::to_json(d));
    fmt::print("{}\n", all.dump(1));
  });
}

}  // namespace kvcast::app

// kvcast hardware [NAME]: the machines, or every number of one with its origin; --here: this one.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "api/catalogue.hpp"
#include "app/commands.hpp"
#include "app/hardware_here.hpp"
#include "app/settings.hpp"
#include "config/find.hpp"
#include "config/hardware.hpp"

namespace kvcast::app {
namespace {

using config::ConstKnob;
using config::Hardware;
using nlohmann::json;

Hardware altered(const std::string& name, const std::vector<std::string>& settings) {
  config::Node config = config::Node::map({{"hardware", config::Node::scalar(name, {})}}, {});
  for (const std::string& setting : settings) {
    const auto [key, value] = config::parse_setting(setting);
    config = config.with(key.starts_with("hardware.") ? key : "hardware." + key, value);
  }
  return config::read_hardware(*config.find("hardware"));
}

std::string curve_text(const ConstKnob& knob) {
  std::string text;
  for (std::size_t i = 0; i < knob.curve->x.size(); ++i) {
    text += fmt::format("{}[{}, {}]", i == 0 ? "" : " ", format_quantity(knob.curve->x[i], knob.x),
                        format_quantity(knob.curve->y[i], knob.y));
  }
  return text;
}

void print_changes(const Hardware& machine) {
  for (const config::MachineChange& c : machine.changes) {
    const std::string base = c.base.empty() ? "" : fmt::format(" instead of {}", c.base);
    const std::string why = c.follows.empty() ? "set" : fmt::format("follows {}: {}", c.follows, c.rule);
    fmt::print("  {} = {}{} ({})\n", c.key, c.value, base, why);
  }
}

void print_one(const Hardware& machine) {
  fmt::print("{}: {}\nhost {}: {}\n", machine.name, machine.title, machine.host.name, machine.host.title);
  if (!machine.aliases.empty()) fmt::print("also known as {}\n", fmt::join(machine.aliases, ", "));
  if (!machine.changes.empty()) fmt::print("\nChanges\n");
  print_changes(machine);
  fmt::print("\nNumbers: key, value, origin, uncertainty, source; each is a key of a run under `hardware:`\n");
  for (const ConstKnob& knob : config::knobs(machine)) {
    const auto print = [&](const std::string& value, const auto& number) {
      fmt::print("  {:<32} {:<14} {:<12} ± {:<6} {}\n", knob.key, value, origin_name(number.origin),
                 format_quantity(number.uncertainty, Dimension::kFraction), number.source);
    };
    if (knob.value != nullptr) print(format_quantity(knob.value->value, knob.y), *knob.value);
    if (knob.curve != nullptr) print(curve_text(knob), *knob.curve);
  }
}

int list_machines(bool as_json) {
  json all = json::array();
  const int result = for_each_config("hardware", [&](const std::string& file) {
    const Hardware machine = config::read_hardware(file);
    if (!as_json) fmt::print("  {:<24} {:<56} host {}\n", machine.name, machine.title, machine.host.name);
    all.push_back(api::summary_json(machine));
  });
  if (as_json) fmt::print("{}\n", all.dump(1));
  if (!as_json) fmt::print("\n`kvcast hardware NAME` prints every number of one with its source.\n");
  return result;
}

}  // namespace

void add_hardware(CLI::App& app, int& result) {
  CLI::App* command = app.add_subcommand("hardware", "list the machines, or every number of one");
  auto name = std::make_shared<std::string>();
  auto settings = std::make_shared<std::vector<std::string>>();
  auto as_json = std::make_shared<bool>(false);
  command->add_option("NAME", *name, "a machine: a name, an alias or a path");
  add_settings(*command, *settings, "change a number of the machine, such as gpu.clock=x2");
  CLI::Option* json_flag = command->add_flag("--json", *as_json, "print JSON");
  auto here = std::make_shared<bool>(false);
  command->add_flag("--here", *here, "read the machine on which kvcast runs, by nvidia-smi")->excludes(json_flag);
  command->callback([name, settings, as_json, here, &result] {
    result = 0;
    if (*here && name->empty() && settings->empty()) return print_hardware_here();
    if (*here) throw UserError("--here takes neither a name nor --set: it prints what both would be");
    if (name->empty() && !settings->empty()) throw UserError("--set changes a machine: name one");
    if (name->empty()) return void(result = list_machines(*as_json));
    const Hardware machine = altered(*name, *settings);
    if (!*as_json) return print_one(machine);
    fmt::print("{}\n", api::to_json(machine).dump(1));
  });
}

}  // namespace kvcast::app

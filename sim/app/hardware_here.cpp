// kvcast hardware --here: the machine on which it runs, from nvidia-smi and /proc, as the `hardware:` of a run.
#include "app/hardware_here.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <vector>

#include "app/program.hpp"
#include "base/units.hpp"
#include "config/find.hpp"
#include "config/hardware.hpp"
#include "config/machine_names.hpp"
#include "config/pcie.hpp"
#include "config/text.hpp"

namespace kvcast::app {
namespace {

using config::Node;

constexpr double kMebibyte = 1024.0 * 1024, kNoise = 0.03;

struct GpuHere {
  std::string name;
  double memory = 0;  // bytes
  int generation = 0, lanes = 0;
  bool operator==(const GpuHere&) const = default;
};

struct CpuHere {
  std::string name;
  std::int64_t cores = 0;
  double memory = 0;  // bytes
};

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  if (pipe == nullptr) return text;
  char part[4096];
  while (const std::size_t n = std::fread(part, 1, sizeof(part), pipe.get())) text.append(part, n);
  return text;
}

std::string trimmed_field(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
  return start == std::string_view::npos ? "" : std::string(text.substr(start, end - start + 1));
}

// A number of nvidia-smi's line; fields that a driver does not know read "[N/A]".
double field_number(const std::string& field) {
  double number = 0;
  return std::istringstream(field) >> number ? number : 0;
}

std::vector<GpuHere> cards_here() {
  const std::string program = program_on_path("nvidia-smi", "nvidia-smi");
  std::istringstream lines(
      output_of("'" + program +
                "' --query-gpu=name,memory.total,pcie.link.gen.max,pcie.link.width.max --format=csv,noheader,nounits"));
  std::vector<GpuHere> cards;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::vector<std::string> parts;
    for (std::string part; std::getline(fields, part, ',');) parts.push_back(trimmed_field(part));
    if (parts.size() != 4)
      throw UserError(fmt::format("{}: \"{}\" is not a line of a GPU", program, config::shorten(line)));
    cards.push_back({parts[0], field_number(parts[1]) * kMebibyte, static_cast<int>(field_number(parts[2])),
                     static_cast<int>(field_number(parts[3]))});
  }
  if (cards.empty())
    throw UserError(program + " lists no GPU: `kvcast hardware` lists the machines that have profiles");
  return cards;
}

CpuHere cpu_here() {
  CpuHere cpu;
  std::set<std::pair<std::string, std::string>> cores;
  std::string socket;
  std::ifstream info("/proc/cpuinfo"), memory("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = std::min(line.find(':'), line.size());
    const std::string key = trimmed_field(line.substr(0, colon)),
                      value = trimmed_field(line.substr(std::min(colon + 1, line.size())));
    if (key == "model name") cpu.name = value;
    if (key == "physical id") socket = value;
    if (key == "core id") cores.emplace(socket, value);
  }
  cpu.cores = static_cast<std::int64_t>(cores.size());
  std::string key;
  if (double kib = 0; memory >> key >> kib) cpu.memory = kib * 1024;
  return cpu;
}

// The profile of a host each word of whose name is part of the CPU's.
std::string host_profile_of(const std::string& cpu) {
  const std::string loose = config::loose_name(cpu);
  for (const std::string& name : config::names_in("hosts")) {
    std::istringstream words(name);
    bool all = true;
    for (std::string word; std::getline(words, word, '-');) all = all && loose.find(word) != std::string::npos;
    if (all) return name;
  }
  return "";
}

Node plain_node(const std::string& text) { return Node::scalar(text, {}); }

// The profile of a card, or the machine proposed for it, as a map with `like`.
Node machine_of(const GpuHere& card) {
  if (const auto proposed = config::proposed_machine(card.name)) return *proposed;
  const std::string file = config::find_config("hardware", card.name, {});
  return Node::map({{"like", plain_node(config::stem_of(file))}}, {});
}

bool differs_by_noise(double here, double profile) { return here > 0 && std::abs(here / profile - 1) > kNoise; }

}  // namespace

void print_hardware_here() {
  const std::vector<GpuHere> cards = cards_here();
  const CpuHere cpu = cpu_here();
  const GpuHere& card = cards.front();
  const auto same = std::ranges::count(cards, card);
  fmt::print("{} of {}, {}, PCIe {}.0 x{}\n", same, card.name, format_quantity(card.memory, Dimension::kBytes),
             card.generation, card.lanes);
  if (same < static_cast<std::ptrdiff_t>(cards.size()))
    fmt::print("and {} other GPUs, which are not read\n", cards.size() - static_cast<std::size_t>(same));
  fmt::print("{}, {} cores, {}\n\n", cpu.name.empty() ? "CPU" : cpu.name, cpu.cores,
             format_quantity(cpu.memory, Dimension::kBytes));
  Node choice = machine_of(card);
  const config::Hardware profile = config::read_hardware(choice);
  if (differs_by_noise(card.memory, profile.gpu.hbm_capacity) &&
      config::find_below(choice, "gpu.hbm_capacity") == nullptr) {
    choice = choice.with("gpu.hbm_capacity", plain_node(fmt::format("{:.0f} MiB", card.memory / kMebibyte)));
  }
  if (card.generation >= config::kFirstPcie && card.generation <= config::kNewestPcie && card.lanes > 0 &&
      differs_by_noise(config::pcie_bandwidth(card.generation, card.lanes), profile.link.theory_bandwidth)) {
    choice = choice.with("link.pcie.generation", plain_node(std::to_string(card.generation)));
    choice = choice.with("link.pcie.lanes", plain_node(std::to_string(card.lanes)));
  }
  const std::string host = host_profile_of(cpu.name);
  if (!host.empty() && host != profile.host.name) choice = choice.with("host.like", plain_node(host));
  const std::int64_t cores = cpu.cores / static_cast<std::int64_t>(cards.size());
  if (cores > 0) choice = choice.with("host.cores", plain_node(std::to_string(cores)));
  if (cpu.memory > 0) {
    choice = choice.with("host.dram_capacity", plain_node(fmt::format("{:.0f} GiB", cpu.memory / kMebibyte / 1024)));
  }
  config::read_hardware(choice);  // throws for numbers that contradict each other
  fmt::print("hardware: {}\n\n", config::flow_text(choice));
  if (host.empty())
    fmt::print("No profile of this CPU: host {} of the GPU's profile, with this one's cores.\n", profile.host.name);
  fmt::print("Its kernels: {}. `kvcast calibrate cuda` measures them.\n", config::fit_text(profile));
}

}  // namespace kvcast::app

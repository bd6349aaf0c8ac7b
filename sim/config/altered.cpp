// Reads `hardware:` of a run: takes a machine by name, sets the run's own numbers, moves the numbers tied to them, and
// checks the result against physical limits. Errors are located in the text of the run, never in a profile that its
// user did not write.

#include <cmath>
#include <map>
#include <set>

#include "base/hash.hpp"
#include "config/changed_number.hpp"
#include "config/find.hpp"
#include "config/hardware.hpp"
#include "config/include.hpp"
#include "config/pcie.hpp"
#include "config/physics.hpp"
#include "config/section.hpp"
#include "config/steady.hpp"
#include "config/ties.hpp"

namespace kvcast::config {
namespace {

class Alteration {
 public:
  explicit Alteration(const Node& choice) : choice_(choice) {}

  Hardware apply() {
    Section section(choice_, "hardware");
    section.only({"like", "gpu", "link", "host"});
    section.require({"like"});
    take_over(section.node("like"));
    if (section.has("host")) choose_host(section.node("host"));
    base_ = machine_;
    knobs_ = knobs(machine_);
    refuse_unknown();
    for (const Knob& knob : knobs_) {
      const Node* node = find_below(choice_, knob.key);
      if (node == nullptr) continue;
      set_.emplace(knob.key, node->where());
      if (auto change = change_number(knob, *node, uncertainty_)) changes_.push_back(*std::move(change));
    }
    set_pcie();
    replace_shapes();
    if (!set_.empty()) moved_ = move_tied(machine_, knobs_, base_, keys_set());
    refuse_contradictions();
    give_name();
    return std::move(machine_);
  }

 private:
  // `like: NAME` or `like: {name: NAME, uncertainty: 15 %}`.
  void take_over(const Node& like) {
    if (like.kind() != Node::Kind::kMap) {
      machine_ = read_hardware(find_config("hardware", read_text(like, "like"), like.where()));
      return;
    }
    Section section(like, "like");
    const std::string name = section.text("name");
    machine_ = read_hardware(find_config("hardware", name, section.where("name")));
    if (section.has("uncertainty")) {
      uncertainty_ = section.uncertainty();
      for (const Knob& knob : knobs(machine_)) {
        if (!knob.key.starts_with("host.")) assume(knob, name, *uncertainty_);
      }
      note("like.uncertainty", exact_text(*uncertainty_, Dimension::kFraction), "");
    }
    section.finish();
  }

  // `host: NAME`, `host: {like: NAME, cores: 64}` or `host: {cores: 64}` of the same one.
  void choose_host(const Node& host) {
    const Node* name = is_scalar(&host) ? &host : host.find("like");
    if (name == nullptr) return;
    Host other = read_host(find_config("hosts", read_text(*name, "host"), name->where()));
    if (other.name == machine_.host.name) return;
    note("host", other.name, machine_.host.name);
    machine_.host = std::move(other);
  }

  void refuse_unknown() {
    for (const char* part : {"gpu", "link", "host"}) {
      const Node* map = choice_.find(part);
      if (map == nullptr || (is_scalar(map) && std::string_view(part) == "host")) continue;
      std::vector<std::string_view> extra;
      if (std::string_view(part) == "gpu") extra = {"attention_mha", "attention_correction", "range"};
      if (std::string_view(part) == "link") extra = {"pcie"};
      if (std::string_view(part) == "host") extra = {"like"};
      refuse_unknown(*map, std::string(part) + ".", extra);
    }
    const Node* mha = find_below(choice_, "gpu.attention_mha");
    if (mha == nullptr) return;
    if (!machine_.gpu.attention_mha) {
      throw UserError(mha->where(), fmt::format("hardware.gpu.attention_mha: {} has no separate kernel for multi-head "
                                                "attention; its attention keys apply to both",
                                                machine_.name));
    }
    refuse_unknown(*mha, "gpu.attention_mha.", {});
  }

  void refuse_unknown(const Node& map, const std::string& prefix, std::vector<std::string_view> known) {
    for (const Knob& knob : knobs_) {
      if (!knob.key.starts_with(prefix)) continue;
      const std::string_view name = std::string_view(knob.key).substr(prefix.size());
      if (name.find('.') == std::string_view::npos) known.emplace_back(name);
    }
    Section(map, "hardware." + prefix.substr(0, prefix.size() - 1)).only(known);
  }

  // `link.pcie: {generation: 6, lanes: 16}`.
  void set_pcie() {
    const Node* node = find_below(choice_, "link.pcie");
    if (node == nullptr) return;
    const char* const key = "link.theory_bandwidth";
    if (set_.count(key) > 0) {
      throw UserError(node->where(), "hardware.link: pcie and theory_bandwidth set the same number: give one");
    }
    Section pcie(*node, "hardware.link.pcie");
    pcie.only({"generation", "lanes"});
    const auto generation = static_cast<int>(pcie.integer("generation", kFirstPcie, kNewestPcie));
    const auto lanes = static_cast<int>(pcie.integer("lanes", 1, kMostLanes, kMostLanes));
    if ((lanes & (lanes - 1)) != 0) {
      throw UserError(pcie.where("lanes"), fmt::format("lanes: {} lanes; links have 1, 2, 4, 8 or 16", lanes));
    }
    set_.emplace(key, node->where());
    Value& theory = machine_.link.theory_bandwidth;
    const double now = pcie_bandwidth(generation, lanes), before = theory;
    if (std::abs(now / before - 1) < kRounding) return;  // link bandwidth unchanged
    const std::string text = fmt::format("{}.0 x{}", generation, lanes);
    theory = {now, Origin::kExact, 0, "PCI Express Base Specification: PCIe " + text};
    note("link.pcie", text, "");
    moved_by_pcie_ = {key, exact_text(now, Dimension::kBytesPerSecond), exact_text(before, Dimension::kBytesPerSecond),
                      "link.pcie", "lanes times transfer rate times coding"};
  }

  // Replaces the parts that are not single numbers, each as a whole.
  void replace_shapes() {
    const Node* gpu = choice_.find("gpu");
    if (gpu == nullptr) return;
    Section section(*gpu, "hardware.gpu");
    const auto replace = [&](const char* key, auto& part, const auto& read) {
      if (!section.has(key)) return;
      const auto text = [](const auto& p) { return canonical(p); };
      const std::string before = text(part);
      part = read();
      if (text(part) != before) note(std::string("gpu.") + key, content_hash(text(part)).substr(0, 6), "");
    };
    replace("range", machine_.gpu.range, [&] { return read_range(section); });
    if (!section.has("attention_correction")) return;
    if (!machine_.gpu.attention_correction) machine_.gpu.attention_correction.emplace();
    replace("attention_correction", *machine_.gpu.attention_correction, [&] {
      Section correction = section.section("attention_correction", "hardware.gpu.attention_correction");
      return read_attention_correction(correction);
    });
  }

  std::set<std::string> keys_set() const {
    std::set<std::string> keys;
    for (const auto& [key, where] : set_) keys.insert(key);
    return keys;
  }

  void refuse_contradictions() const {
    for (const auto& found :
         {contradiction(machine_.gpu), contradiction(machine_.link), contradiction(machine_.host)}) {
      if (!found) continue;
      const auto refused = set_.find(found->key), bound = set_.find(found->bound);
      const bool both = refused != set_.end() && bound != set_.end();
      const SourceLocation& where = refused != set_.end() ? refused->second
                                    : bound != set_.end() ? bound->second
                                                          : choice_.where();
      const std::string& other = refused != set_.end() ? found->bound : found->key;
      throw UserError(where, fmt::format("hardware.{}: {}{}", found->key, found->why,
                                         both ? "" : fmt::format("; set hardware.{} as well", other)));
    }
  }

  void give_name() {
    if (changes_.empty()) return;
    std::vector<std::string> all, of_host;
    for (const MachineChange& change : changes_) {
      all.push_back(change.key + " " + change.value);
      if (change.key.starts_with("host.")) of_host.push_back(change.key.substr(5) + " " + change.value);
    }
    const auto append = [](std::string& name, const std::vector<std::string>& what) {
      if (!what.empty()) name += fmt::format(" ({})", fmt::join(what, ", "));
    };
    append(machine_.name, all);
    append(machine_.title, all);
    append(machine_.host.name, of_host);
    append(machine_.host.title, of_host);
    machine_.aliases.clear();       // measurements published under these names are of the unmodified machine
    machine_.calibrations.clear();  // and so are the fits
    if (!of_host.empty()) machine_.host.calibrations.clear();
    machine_.changes = std::move(changes_);
    if (moved_by_pcie_) machine_.changes.push_back(*moved_by_pcie_);
    machine_.changes.insert(machine_.changes.end(), moved_.begin(), moved_.end());
  }

  void note(std::string key, std::string value, std::string base) {
    changes_.push_back({std::move(key), std::move(value), std::move(base), "", ""});
  }

  static constexpr double kRounding = 1e-3;  // profiles give three digits of a theoretical bandwidth

  const Node& choice_;
  Hardware machine_, base_;
  std::vector<Knob> knobs_;            // of machine_
  std::optional<double> uncertainty_;  // of `like`
  std::map<std::string, SourceLocation> set_;
  std::vector<MachineChange> changes_, moved_;
  std::optional<MachineChange> moved_by_pcie_;
};

}  // namespace

const Node& machine_name(const Node& choice) {
  const Node* name = &choice;
  for (const char* const key : {"like", "name"}) {
    if (name->kind() == Node::Kind::kMap) name = name->find(key);
    KVCAST_CHECK(name != nullptr);
  }
  return *name;
}

Hardware read_hardware(const Node& choice) {
  if (choice.kind() == Node::Kind::kMap) {
    FoundFiles* const found = SteadyFiles::found();
    if (found == nullptr) return Alteration(choice).apply();
    std::shared_ptr<const Hardware>& made = found->altered[choice.where().file + "\n" + choice.canonical()];
    if (!made) made = std::make_shared<const Hardware>(Alteration(choice).apply());
    return *made;
  }
  if (choice.kind() != Node::Kind::kScalar) {
    throw UserError(choice.where(), "hardware: expected a name, or a map with `like`, found " + describe(choice));
  }
  return read_hardware(find_config("hardware", read_text(choice, "hardware"), choice.where()));
}

}  // namespace kvcast::config

#include "accuracy/ablation.hpp"

#include <map>
#include <set>

#include "accuracy/evaluate.hpp"
#include "config/section.hpp"

namespace kvcast::accuracy {
namespace {

using nlohmann::json;

// A replay for scores sets the shares of sampled heads itself, and the task is not part of the generator.
bool is_fixed(const std::string& section, const std::string& key) {
  return section == "task" || (section == "heads" && key != "least_share" && key != "most_share");
}

// Sets the visited parameters whose keys are in a map to the values there.
class Setter final : public trace::ParameterVisitor {
 public:
  explicit Setter(const config::Node& set) : set_(set) {}

  void section(const char* name) override { section_ = name; }
  void number(const char* key, double& value, double low, double high) override {
    if (const config::Node* node = take(key)) value = config::read_number(*node, name(key), low, high);
  }
  void integer(const char* key, int& value, int low, int high) override {
    if (const config::Node* node = take(key)) {
      value = static_cast<int>(config::read_integer(*node, name(key), low, high));
    }
  }
  // Throws UserError for a key that no recipe has.
  void finish() const {
    for (const auto& [key, node] : set_.entries()) {
      if (known_.count(key) > 0) continue;
      throw UserError(set_.key_where(key), fmt::format("ablation: a recipe has no key \"{}\" that can be set", key),
                      {known_.begin(), known_.end()});
    }
  }

 private:
  std::string name(const char* key) const { return section_ + "." + key; }
  const config::Node* take(const char* key) {
    if (is_fixed(section_, key)) return nullptr;
    known_.insert(name(key));
    return set_.find(name(key));
  }

  const config::Node& set_;
  std::string section_;
  std::set<std::string> known_;
};

void put(const config::Node& set, trace::Recipe& recipe) {
  Setter setter(set);
  trace::visit_parameters(recipe, setter);
  setter.finish();
  trace::check_recipe(recipe, [&](const char*) { return set.where(); });
}

Ablation read_ablation(const std::string& name, const config::Node& node) {
  config::Section s(node, "ablation");
  Ablation ablation;
  ablation.name = name;
  ablation.takes_away = s.text("takes_away");
  ablation.scales_rope = s.flag("scales_rope", true);
  ablation.set = s.optional_node("set").value_or(config::Node::map({}, node.where()));
  s.finish();
  if (ablation.set.kind() != config::Node::Kind::kMap) {
    throw UserError(ablation.set.where(), "set: expected a map of SECTION.KEY to numbers");
  }
  if (ablation.set.entries().empty() && ablation.scales_rope) {
    throw UserError(node.where(), fmt::format("ablation {}: it takes nothing away", name));
  }
  trace::Recipe plain;
  put(ablation.set, plain);
  if (ablation.scales_rope && trace::canonical(plain) == trace::canonical(trace::Recipe{})) {
    throw UserError(ablation.set.where(), fmt::format("ablation {}: recipes have these values anyway", name));
  }
  return ablation;
}

struct Mean {
  double published = 0, predicted = 0, ablated = 0;
  std::size_t n = 0;
  void add(const Cell& whole, const Cell& without) {
    published += whole.row.value, predicted += whole.predicted, ablated += without.predicted;
    ++n;
  }
};

// Orders whole numbers by value, so that a curve over budgets is in order.
struct BudgetOrder {
  bool operator()(const std::string& a, const std::string& b) const {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
  }
};

}  // namespace

std::vector<Ablation> read_ablations(const std::string& path) {
  const config::Node root = config::load_yaml(path);
  if (root.kind() != config::Node::Kind::kMap) throw UserError(root.where(), "expected a map of ablations by name");
  std::vector<Ablation> out;
  for (const auto& [name, node] : root.entries()) {
    if (name == "all") throw UserError(root.key_where(name), "\"all\" stands for every ablation and cannot be one");
    out.push_back(read_ablation(name, node));
  }
  return out;
}

std::vector<Ablation> choose_ablations(const std::vector<Ablation>& all, const std::string& name) {
  if (name == "all") return all;
  std::vector<std::string> known = {"all"};
  for (const Ablation& ablation : all) {
    if (ablation.name == name) return {ablation};
    known.push_back(ablation.name);
  }
  throw UserError({}, fmt::format("there is no ablation \"{}\"", name.substr(0, 80)), known);
}

void ablate(const Ablation& ablation, trace::Recipe& recipe) { put(ablation.set, recipe); }

score::RecipeChange change_of(const Ablation& ablation) {
  return {[ablation](trace::Recipe& recipe) { ablate(ablation, recipe); }, ablation.scales_rope};
}

json ablation_report(const Ablation& ablation, const ScoreComparison& whole, const ScoreComparison& ablated) {
  KVCAST_CHECK(whole.cells.size() == ablated.cells.size());
  std::vector<const Cell*> cells;
  std::map<std::string, std::map<std::string, Mean, BudgetOrder>> methods;
  for (std::size_t i = 0; i < whole.cells.size(); ++i) {
    const Cell &with = whole.cells[i], &without = ablated.cells[i];
    cells.push_back(&without);
    if (with.refused.empty() && without.refused.empty()) methods[with.row.method][with.row.budget].add(with, without);
  }
  json out = to_json(agreement(cells));
  out["name"] = ablation.name;
  out["takes_away"] = ablation.takes_away;
  out["methods"] = json::object();
  for (const auto& [method, budgets] : methods) {
    Mean all;
    json curve = json::array();
    for (const auto& [budget, mean] : budgets) {
      const auto n = static_cast<double>(mean.n);
      curve.push_back({{"budget", budget},
                       {"n", mean.n},
                       {"published", mean.published / n},
                       {"predicted", mean.predicted / n},
                       {"ablated", mean.ablated / n}});
      all.predicted += mean.predicted, all.ablated += mean.ablated;
      all.n += mean.n;
    }
    out["methods"][method] = {{"shift", (all.ablated - all.predicted) / static_cast<double>(all.n)},
                              {"curve", std::move(curve)}};
  }
  return out;
}

}  // namespace kvcast::accuracy

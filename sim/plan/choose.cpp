// Selects among many settings: the best one that meets the targets, and the Pareto front of those that do
// (plan/grid_search.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "config/find.hpp"
#include "config/run.hpp"
#include "config/section.hpp"
#include "config/text.hpp"
#include "plan/compare.hpp"
#include "plan/findings.hpp"
#include "plan/grid_search.hpp"
#include "plan/key.hpp"
#include "plan/pareto.hpp"
#include "plan/question.hpp"
#include "plan/target.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {
namespace {

using config::Node;
using nlohmann::json;

constexpr double kTokens = 1e6;  // a cost is per this many tokens
constexpr double kHour = 3600;   // seconds

class Choose final : public Question {
 public:
  Choose(const Node& run, const Node& map) {
    if (map.kind() != Node::Kind::kMap) {
      throw UserError(map.where(), "choose: expected a map of keys to lists, found " + config::describe(map));
    }
    config::Section section(map, "choose");  // never finished: all other keys belong to the run
    const auto targets = section.optional_node("targets"), prices = section.optional_node("price_per_hour");
    const std::string objective = section.choice("objective", {"cheapest", "fastest"}, "");
    read_grid(run, map);
    refuse_duplicates();
    if (targets) targets_ = read_targets_of(run, *targets);
    targets_ = with_floor(std::move(targets_), run);
    if (prices) read_prices(*prices);
    read_objective(objective, prices.has_value(), map.where());
    for (const Setting& s : grid_) check_run(s.run);
  }

  Answer answer(Experiments& experiments) const override {
    std::vector<Setting> grid = grid_;
    GridSearch(experiments, targets_).run(grid);
    std::vector<const Setting*> good, perhaps;
    std::map<std::string, int> misses;
    for (const Setting& s : grid) {
      if (!s.result) continue;
      const auto miss = missed(*s.result, targets_);
      if (miss) {
        ++misses[*miss];
        if (!is_oracle(*s.result) && !missed(*s.result, targets_, Reading::kPossible)) perhaps.push_back(&s);
      } else if (is_oracle(*s.result)) {
        ++misses["being an oracle"];
      } else {
        good.push_back(&s);
      }
    }
    for (auto* const settings : {&good, &perhaps}) {
      std::ranges::stable_sort(*settings, [this](const Setting* a, const Setting* b) { return merit(*a) > merit(*b); });
    }
    Answer out = conclude(grid, good, misses);
    add_perhaps(perhaps, out);
    return out;
  }

  bool needs_scores() const override { return plan::needs_scores(targets_); }

 private:
  void read_grid(const Node& run, const Node& map) {
    const Node lists = map.without({"targets", "price_per_hour", "objective"});
    if (lists.entries().empty())
      throw UserError(map.where(), "choose: no lists to choose from, such as policy: [full, quest]");
    for (const config::SweepPoint& p : points_of(run, lists)) {
      const Node* const workload = p.config.find("workload");
      const Node* const batch = workload == nullptr ? nullptr : workload->find("batch");
      if (batch != nullptr &&
          config::read_integer(*batch, "batch", 1, 1'000'000) > engine_batch(p.config).value_or(1'000'000)) {
        ++beyond_engine_;
        continue;
      }
      const config::Run read = config::read_run(p.config);
      Setting& s = grid_.emplace_back();
      s.run = p.config, s.values = name_budget(p.values, p.config);
      s.batch = read.workload.batch, s.gpus = read.deployment.gpus();
      if (read.price_per_hour) s.price_per_s = *read.price_per_hour / kHour * s.gpus;
      if (const std::string name = machine_of(s); !files_.contains(name)) files_[name] = file_of_machine(name);
    }
    if (grid_.empty())
      throw UserError(map.where(), "choose: every batch is larger than its engine serves (framework.max_batch)");
  }

  // Two names of one machine give equal settings, which a sweep's own check does not see.
  void refuse_duplicates() const {
    std::map<std::string, const Setting*> seen;
    for (const Setting& s : grid_) {
      const Node& hardware = *s.run.find("hardware");
      const bool named = hardware.kind() == Node::Kind::kScalar;
      const Node same =
          named ? s.run.with("hardware", Node::scalar(files_.at(machine_of(s)), hardware.where())) : s.run;
      const auto [first, fresh] = seen.emplace(same.canonical(), &s);
      if (fresh) continue;
      throw UserError(hardware.where(),
                      fmt::format("choose: {} is the same as {}", label_of(s.values), label_of(first->second->values)));
    }
  }

  void read_prices(const Node& prices) {
    if (prices.kind() != Node::Kind::kMap || prices.entries().empty()) {
      throw UserError(prices.where(),
                      "price_per_hour: expected a map of machines to prices, found " + config::describe(prices));
    }
    std::vector<std::string> machines;
    for (const auto& [name, file] : files_) machines.push_back(name);
    for (const auto& [name, value] : prices.entries()) {
      const std::string file = file_of_machine(name);
      const double price = config::read_number(value, "price_per_hour", 1e-9, 1e9);
      bool asked = false;
      for (Setting& s : grid_) {
        if (files_.at(machine_of(s)) != file) continue;
        asked = true;
        set_price(s, price, prices.key_where(name), value);
      }
      if (asked) continue;
      throw UserError(prices.key_where(name),
                      fmt::format("price_per_hour: \"{}\" is not a machine of this question{}", name,
                                  config::did_you_mean(name, machines)),
                      machines);
    }
  }

  // The run of a setting states the price as well, so that results have a cost. Prices are per GPU.
  static void set_price(Setting& s, double price, const SourceLocation& where, const Node& written) {
    const double per_s = price / kHour * s.gpus;
    if (s.price_per_s && std::abs(*s.price_per_s - per_s) > 1e-9 * per_s) {
      throw UserError(where, fmt::format("price_per_hour: {} is {:.6g} here, but the run states {:.6g} or another name "
                                         "of the machine does: give one price",
                                         machine_of(s), price, *s.price_per_s * kHour / s.gpus));
    }
    s.price_per_s = per_s;
    s.run = s.run.with("price_per_hour", written);
  }

  // The same for a machine's name and its aliases; a name that no file has is returned as it is.
  static std::string file_of_machine(const std::string& name) {
    try {
      return config::find_config("hardware", name, {});
    } catch (const UserError&) {
      return name;
    }
  }

  // The machine's name as the plan writes it.
  static std::string machine_of(const Setting& s) { return config::machine_name(*s.run.find("hardware")).text(); }

  // An empty objective means the lowest cost if the question gives prices, or the run gives all of them. A cost that
  // only some of the settings have is left out: they could not be compared by it.
  void read_objective(const std::string& objective, bool asked, const SourceLocation& where) {
    std::vector<std::string> missing;
    for (const Setting& s : grid_) {
      if (!s.price_per_s && std::ranges::find(missing, machine_of(s)) == missing.end())
        missing.push_back(machine_of(s));
    }
    priced_ = missing.empty();
    cheapest_ = objective.empty() ? asked || priced_ : objective == "cheapest";
    if (priced_) return;
    if (cheapest_) {
      throw UserError(where,
                      fmt::format("choose: the objective `cheapest` needs price_per_hour of every machine; missing: {}",
                                  fmt::join(missing, ", ")));
    }
    const auto of_cost =
        std::ranges::find_if(targets_, [](const Target& t) { return t.metric->unit == result::Unit::kMoney; });
    if (of_cost != targets_.end()) {
      throw UserError(of_cost->where, fmt::format("targets: {} needs price_per_hour of every machine; missing: {}",
                                                  of_cost->metric->path, fmt::join(missing, ", ")));
    }
    for (Setting& s : grid_) s.price_per_s.reset();
  }

  // ---- conclusion

  // All that were asked about.
  std::size_t total() const { return grid_.size() + beyond_engine_; }

  double merit(const Setting& s) const {
    const double rate = s.number("decode.tokens_per_s");
    return cheapest_ ? -*s.cost(rate) : rate;
  }

  json entry(const Setting& s) const {
    json config = json::object();
    for (const auto& [key, value] : s.values) config[key] = value;
    json metrics = json::object();
    for (const char* path : {"decode.tokens_per_s", "decode.tpot_s.mean", "decode.tpot_s.p99", "prefill.ttft_s",
                             "memory.hbm_peak_bytes"}) {
      metrics[path] = s.number(path);
    }
    for (const Target& t : targets_) {
      if (const auto v = result::value(*s.result, *t.metric)) metrics[t.metric->path] = *v;
    }
    if (const auto score = s.score()) metrics["score"] = *score;
    if (const auto cost = s.cost(s.number("decode.tokens_per_s"))) {
      // The path of the metric, and a short name that readers of earlier answers know.
      metrics["decode.cost_per_million_tokens"] = metrics["cost_per_million_tokens"] = kTokens * *cost;
    }
    json out = {
        {"config", config}, {"metrics", metrics}, {"binding_resource", result::bottleneck(s.result->experiment.step)}};
    const auto range = result::interval(*s.result, *result::find_metric("decode.tokens_per_s"));
    if (range) out["intervals"]["decode.tokens_per_s"] = {range->low, range->high};
    return out;
  }

  std::string numbers_text(const Setting& s) const {
    const double rate = s.number("decode.tokens_per_s");
    std::string text = fmt::format("{:.4g} tokens/s", rate);
    if (const auto range = result::interval(*s.result, *result::find_metric("decode.tokens_per_s")))
      text += fmt::format(" ({:.4g} to {:.4g})", range->low, range->high);
    text += fmt::format(", TPOT {}", format_seconds(s.number("decode.tpot_s.mean")));
    text += fmt::format(", HBM {}", format_quantity(s.number("memory.hbm_peak_bytes"), Dimension::kBytes));
    if (const auto score = s.score()) text += fmt::format(", score {:.1f} %", 100 * *score);
    if (const auto cost = s.cost(rate)) text += fmt::format(", {:.3g} per million tokens", kTokens * *cost);
    return text;
  }

  // Costs scale with the inverse of throughput; prices are exact.
  Comparison lead(const Setting& a, const Setting& b) const {
    Comparison c = compare(*a.result, *b.result, *result::find_metric("decode.tokens_per_s"));
    if (!cheapest_) return c;
    const double price = *b.price_per_s == *a.price_per_s ? 1 : *b.price_per_s / *a.price_per_s;  // both may be 0
    c.times *= price, c.interval.low *= price, c.interval.high *= price;
    return c;
  }

  Answer conclude(const std::vector<Setting>& grid, const std::vector<const Setting*>& good,
                  const std::map<std::string, int>& misses) const {
    Answer out;
    out.kind = "choose";
    out.question =
        fmt::format("Which of {} settings is the {}{}?", total(), cheapest_ ? "cheapest per token" : "fastest",
                    targets_.empty() ? "" : " that meets " + target_text(targets_));
    out.data = {{"grid", total()},
                {"objective", cheapest_ ? "cheapest" : "fastest"},
                {"best", json::array()},
                {"front", json::array()}};
    add_misses(misses, out);
    if (!needs_scores()) out.details.push_back("No score was requested, so there is no floor.");
    if (good.empty()) {
      out.text = "None of the settings fits and meets the targets.";
      return out;
    }
    const Setting& best = *good.front();
    out.data["best"].push_back(entry(best));
    std::vector<std::string> tied;
    const Setting* next = nullptr;
    for (const Setting* s : good) {
      if (s == &best) continue;
      if (next == nullptr) next = s;
      if (lead(best, *s).beyond_uncertainty()) continue;
      out.data["best"].push_back(entry(*s));
      tied.push_back(label_of(s->values));
    }
    add_front(good, std::ranges::count_if(grid, [](const Setting& s) { return s.result != nullptr; }), out);
    out.text = fmt::format("{}: {}.", label_of(best.values), numbers_text(best));
    if (next != nullptr) out.details.insert(out.details.begin(), lead_text(best, *next));
    if (!tied.empty()) out.details.push_back(fmt::format("Within its uncertainty: {}.", fmt::join(tied, "; ")));
    const std::string moved = most_sensitive(*best.result, *result::find_metric("decode.tokens_per_s"));
    out.details.push_back(fmt::format("Grounds: {}; bottleneck {}{}.", grounds_of(*best.result),
                                      result::bottleneck(best.result->experiment.step),
                                      moved.empty() ? "" : "; most sensitive to " + moved));
    return out;
  }

  std::string lead_text(const Setting& best, const Setting& next) const {
    const Comparison c = lead(best, next);
    return fmt::format("It is {} as {} as the next, {} ({}){}.", times_text(c), cheapest_ ? "cheap" : "fast",
                       label_of(next.values), numbers_text(next), c.beyond_uncertainty() ? "" : ", within uncertainty");
  }

  void add_front(const std::vector<const Setting*>& good, std::int64_t simulated, Answer& out) const {
    std::vector<Goodness> points;
    for (const Setting* s : good) points.push_back(s->goodness());
    std::vector<std::string> texts;
    std::map<Goodness, int> seen;
    for (const std::size_t i : pareto_front(points)) {
      out.data["front"].push_back(entry(*good[i]));
      if (seen[points[i]]++ == 0)
        texts.push_back(fmt::format("{}: {}", label_of(good[i]->values), numbers_text(*good[i])));
    }
    out.details.push_back(fmt::format(
        "Pareto front over throughput{}{} ({} of {} settings simulated; equal ones are listed once):",
        needs_scores() ? ", score" : "", priced_ ? ", memory and cost" : " and memory", simulated, total()));
    for (std::string& text : texts) out.details.push_back("  " + std::move(text));
  }

  void add_misses(const std::map<std::string, int>& misses, Answer& out) const {
    std::vector<std::string> texts;
    for (const auto& [miss, count] : misses) {
      const std::string memory = memory_name(miss), what = memory.empty() ? miss : memory;
      texts.push_back(fmt::format("{} by {}", count, what));
    }
    if (!texts.empty())
      out.details.push_back(fmt::format("Ruled out among those simulated: {}.", fmt::join(texts, "; ")));
    out.data["ruled_out"] = misses;
    if (beyond_engine_ == 0) return;
    out.details.push_back(fmt::format(
        "Ruled out without a simulation: {} by framework.max_batch, the most sequences that the engine serves.",
        beyond_engine_));
    out.data["ruled_out"]["framework.max_batch"] = beyond_engine_;
  }

  // Settings whose intervals leave open whether they meet the targets, best first; of settings that differ in their
  // batch alone the first.
  void add_perhaps(const std::vector<const Setting*>& perhaps, Answer& out) const {
    constexpr std::size_t kShown = 4;
    std::vector<std::string> texts, shown;
    out.data["uncertain"] = json::array();
    for (const Setting* s : perhaps) {
      out.data["uncertain"].push_back(entry(*s));
      auto values = s->values;
      std::erase_if(values, [](const auto& value) { return value.first == "workload.batch"; });
      std::string name = label_of(values);
      if (std::ranges::find(shown, name) != shown.end()) continue;
      shown.push_back(std::move(name));
      std::string text = label_of(s->values);
      for (const Target& t : targets_) text += missed_text(*s->result, t);
      texts.push_back(std::move(text));
    }
    if (texts.empty()) return;
    const std::size_t more = texts.size() - std::min(kShown, texts.size());
    texts.resize(texts.size() - more);
    out.details.push_back(fmt::format("Ruled out, though their intervals reach the limit: {}{}.",
                                      fmt::join(texts, "; "), more > 0 ? fmt::format("; and {} more", more) : ""));
  }

  // " (score.share_of_full 92.63 %, 78.70 % to 97.32 %)", or nothing if the target is met.
  static std::string missed_text(const result::Result& result, const Target& target) {
    const auto value = result::value(result, *target.metric);
    const auto range = result::interval(result, *target.metric);
    if (!value || !range || target.holds_for(*value)) return "";
    const auto text = [&](double number) { return result::format_value(*target.metric, number); };
    return fmt::format(" ({} {}, {} to {})", target.metric->path, text(*value), text(range->low), text(range->high));
  }

  std::vector<Setting> grid_;
  std::map<std::string, std::string> files_;  // of the settings' machines, by their names in the plan
  std::size_t beyond_engine_ = 0;  // settings with more sequences than their engine serves, which are not in the grid
  std::vector<Target> targets_;
  bool cheapest_ = false, priced_ = false;
};

}  // namespace

std::unique_ptr<Question> make_choose(const Node& run, const Node& map) { return std::make_unique<Choose>(run, map); }

}  // namespace kvcast::plan

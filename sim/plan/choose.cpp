// Selects among many settings: the best one that meets the targets, and the Pareto front of those that do. Batches are
// searched (plan/best_batch.hpp) unless the question lists them (plan/grid_search.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "config/find.hpp"
#include "config/run.hpp"
#include "config/section.hpp"
#include "config/text.hpp"
#include "plan/admit.hpp"
#include "plan/best_batch.hpp"
#include "plan/compare.hpp"
#include "plan/findings.hpp"
#include "plan/grid_search.hpp"
#include "plan/key.hpp"
#include "plan/pareto.hpp"
#include "plan/question.hpp"
#include "plan/setting_text.hpp"
#include "plan/target.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {
namespace {

using config::Node;
using nlohmann::json;

constexpr double kHour = 3600;  // seconds
constexpr const char* kBatch = "workload.batch";
constexpr const char* kCheapest = "cheapest";
constexpr const char* kFastest = "fastest";
constexpr const char* kLargerBatch = "a larger batch than fits";

const result::Metric& cost_metric() { return *result::find_metric("request.cost_per_million_output_tokens"); }
const result::Metric& rate_metric() { return *result::find_metric("request.output_tokens_per_s"); }

class Choose final : public Question {
 public:
  Choose(const Node& run, const Node& map) {
    if (map.kind() != Node::Kind::kMap) {
      throw UserError(map.where(), "choose: expected a map of keys to lists, found " + config::describe(map));
    }
    config::Section section(map, "choose");  // never finished: all other keys belong to the run
    const auto targets = section.optional_node("targets"), prices = section.optional_node("price_per_hour");
    const auto objective = section.optional_node("objective");
    read_grid(run, map);
    refuse_duplicates();
    if (targets) targets_ = read_targets_of(run, *targets);
    targets_ = with_floor(std::move(targets_), run);
    if (prices) read_prices(*prices);
    read_objective(objective ? &*objective : nullptr, prices.has_value(), map.where());
    for (const Setting& s : grid_) check_run(s.run);
  }

  Answer answer(Experiments& experiments) const override {
    std::vector<Setting> grid = grid_;
    if (lists_batches_) {
      GridSearch(experiments, targets_).run(grid);
    } else {
      grid = at_searched_batches(experiments);
    }
    std::vector<const Setting*> good, perhaps;
    std::map<std::string, int> misses;
    for (const Setting& s : grid) {
      if (!s.result) continue;
      const auto miss = missed(*s.result, targets_);
      if (miss) {
        ++misses[memory_name(*miss).empty() || s.batch == 1 || lists_batches_ ? *miss : kLargerBatch];
        if (!is_oracle(*s.result) && !missed(*s.result, targets_, Reading::kPossible)) perhaps.push_back(&s);
      } else if (is_oracle(*s.result)) {
        ++misses["being an oracle"];
      } else {
        good.push_back(&s);
      }
    }
    if (const auto doubtful = drop_borderline(good)) misses["memory that is borderline"] = static_cast<int>(doubtful);
    for (auto* const settings : {&good, &perhaps}) {
      std::ranges::stable_sort(*settings, [this](const Setting* a, const Setting* b) { return merit(*a) > merit(*b); });
    }
    Answer out = conclude(grid, good, misses, experiments);
    add_perhaps(perhaps, out);
    add_nearest(grid, good, experiments, out);
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
      const auto is_batch = [](const auto& value) { return value.first == kBatch; };
      lists_batches_ = lists_batches_ || std::ranges::any_of(p.values, is_batch);
      if (lists_batches_ && batch != nullptr &&
          config::read_integer(*batch, "batch", 1, 1'000'000) > engine_batch(p.config).value_or(1'000'000)) {
        ++beyond_engine_;
        continue;
      }
      const config::Run read = config::read_run(p.config);
      Setting& s = grid_.emplace_back();
      s.run = p.config, s.values = name_budget(p.values, p.config);
      s.batch = read.workload.batch, s.gpus = read.deployment.gpus();
      if (read.price_per_hour) s.price_per_s = *read.price_per_hour / kHour * s.gpus;
      if (const std::string name = machine_of(s); !files_.contains(name)) {
        files_[name] = file_of_machine(name, config::machine_name(*s.run.find("hardware")).where());
      }
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
      const std::string file = file_of_machine(name, prices.key_where(name));
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
  static std::string file_of_machine(const std::string& name, const SourceLocation& where) {
    try {
      return config::find_config("hardware", name, where);
    } catch (const UserError&) {
      return name;
    }
  }

  // The machine's name as the plan writes it.
  static std::string machine_of(const Setting& s) { return config::machine_name(*s.run.find("hardware")).text(); }

  // No objective means the lowest cost if the question gives prices, or the run gives all of them. A cost that only
  // some of the settings have is left out: they could not be compared by it.
  void read_objective(const Node* objective, bool asked, const SourceLocation& where) {
    std::vector<std::string> missing;
    for (const Setting& s : grid_) {
      if (!s.price_per_s && std::ranges::find(missing, machine_of(s)) == missing.end())
        missing.push_back(machine_of(s));
    }
    priced_ = missing.empty();
    const std::string name = objective != nullptr ? config::read_text(*objective, "objective")
                             : asked || priced_   ? kCheapest
                                                  : kFastest;
    objective_ = name == kCheapest ? &cost_metric() : name == kFastest ? &rate_metric() : result::find_metric(name);
    if (objective_ == nullptr || objective_->better == result::Better::kNeither) {
      throw UserError(
          objective->where(),
          fmt::format("choose: objective \"{}\" is neither cheapest, fastest nor a metric of which higher or "
                      "lower is better",
                      name),
          {kCheapest, kFastest});
    }
    if (priced_) return;
    if (objective_->unit == result::Unit::kMoney) {
      throw UserError(where,
                      fmt::format("choose: the objective `{}` needs price_per_hour of every machine; missing: {}", name,
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

  // ---- batches

  // Every batch that was simulated in the search, as a setting of its own.
  std::vector<Setting> at_searched_batches(Experiments& experiments) const {
    std::vector<BatchLine> lines;
    for (const Setting& s : grid_) lines.push_back(line_of(s));
    search(lines, experiments);
    std::vector<Setting> settings;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      for (const auto& [batch, result] : lines[i].results()) {
        Setting& s = settings.emplace_back(grid_[i]);
        s.run = lines[i].with_batch(batch), s.batch = batch, s.result = result;
        s.values.emplace_back(kBatch, std::to_string(batch));
      }
    }
    return settings;
  }

  BatchLine line_of(const Setting& s) const {
    std::int64_t most = most_sequences(s.run);
    if (lists_batches_) {
      std::int64_t listed = 1;
      for (const Setting& other : grid_) listed = std::max(listed, other.batch);
      most = std::min(most, listed);
    }
    return {s.run, *objective_, targets_, most};
  }

  // Drops settings whose fit is borderline where another batch of the same fits beyond doubt. Returns how many.
  static std::size_t drop_borderline(std::vector<const Setting*>& good) {
    const std::vector<const Setting*> all = good;
    return std::erase_if(good, [&all](const Setting* s) {
      return s->result->borderline && std::ranges::any_of(all, [s](const Setting* other) {
               return !other->result->borderline && same_line(*other, *s);
             });
    });
  }

  static KeyValues without_batch(KeyValues values) {
    std::erase_if(values, [](const auto& value) { return value.first == kBatch; });
    return values;
  }
  static bool same_line(const Setting& a, const Setting& b) {
    return without_batch(a.values) == without_batch(b.values);
  }

  // ---- conclusion

  // All that were asked about.
  std::size_t total() const { return grid_.size() + beyond_engine_; }
  bool cheapest() const { return objective_->better == result::Better::kLower; }

  double merit(const Setting& s) const {
    const double value = s.number(objective_->path.c_str());
    return cheapest() ? -value : value;
  }

  json entry(const Setting& s) const {
    json config = json::object();
    for (const auto& [key, value] : s.values) config[key] = value;
    json metrics = json::object();
    for (const char* path :
         {"request.requests_per_s", "request.output_tokens_per_s", "request.latency_s", "request.ttft_s",
          "request.tpot_s", "request.cost", "request.cost_per_million_output_tokens", "request.cost_per_million_tokens",
          "decode.tokens_per_s", "decode.tpot_s.mean", "decode.tpot_s.p99", "decode.cost_per_million_tokens",
          "prefill.ttft_s", "memory.hbm_peak_bytes"}) {
      if (const auto v = result::value(*s.result, *result::find_metric(path))) metrics[path] = *v;
    }
    for (const Target& t : targets_) {
      if (const auto v = result::value(*s.result, *t.metric)) metrics[t.metric->path] = *v;
    }
    if (const auto score = s.score()) metrics["score"] = *score;
    // A short name that readers of earlier answers know.
    if (const auto cost = result::value(*s.result, cost_metric())) metrics["cost_per_million_tokens"] = *cost;
    json out = {{"config", config},
                {"metrics", metrics},
                {"fit", result::fit_name(result::fit_of(*s.result))},
                {"binding_resource", result::bottleneck(s.result->experiment.step)}};
    for (const char* path : {"request.output_tokens_per_s", "decode.tokens_per_s"}) {
      const auto range = result::interval(*s.result, *result::find_metric(path));
      if (range) out["intervals"][path] = {range->low, range->high};
    }
    return out;
  }

  std::string numbers_text(const Setting& s) const {
    const result::Result& r = *s.result;
    std::string text;
    const auto own = result::value(r, *objective_);
    if (own) {
      text = objective_->unit == result::Unit::kMoney ? fmt::format("{:.3g} {}", *own, cost_unit())
                                                      : result::format_value(*objective_, *own);
      if (const auto range = result::interval(r, *objective_))
        text += fmt::format(" ({:.3g} to {:.3g})", range->low, range->high);
      text += "; ";
    }
    text += fmt::format("{}, TPOT {} while decoding, HBM {}", request_text(r),
                        format_seconds(s.number("decode.tpot_s.mean")),
                        format_quantity(s.number("memory.hbm_peak_bytes"), Dimension::kBytes));
    if (r.borderline) text += ", borderline";
    if (const auto score = s.score()) text += fmt::format(", score {:.1f} %", 100 * *score);
    return text;
  }

  std::string cost_unit() const {
    if (objective_ == &cost_metric()) return "per million output tokens, prompts included";
    return label_in_sentence(*objective_);
  }

  std::string objective_text() const {
    if (objective_ == &cost_metric()) return "the cheapest per output token, prompts included";
    if (objective_ == &rate_metric()) return "the fastest, prompts included";
    return fmt::format("the best by {}", objective_->path);
  }

  Comparison lead(const Setting& a, const Setting& b) const { return compare(*a.result, *b.result, *objective_); }

  // A difference that uncertainty covers, or of less than a per cent, is none.
  bool is_tie(const Setting& a, const Setting& b) const {
    constexpr double kTie = 1.01;
    const Comparison c = lead(a, b);
    return !c.beyond_uncertainty() || (c.times < kTie && c.times > 1 / kTie);
  }

  Answer conclude(const std::vector<Setting>& grid, const std::vector<const Setting*>& good,
                  const std::map<std::string, int>& misses, Experiments& experiments) const {
    Answer out;
    out.kind = "choose";
    out.question = fmt::format("Which of {} settings is {}{}{}?", total(), objective_text(),
                               lists_batches_ ? "" : ", each at its own best batch,",
                               targets_.empty() ? "" : " that meets " + target_text(targets_));
    out.data = {{"grid", total()},
                {"objective", objective_ == &cost_metric()   ? json(kCheapest)
                              : objective_ == &rate_metric() ? json(kFastest)
                                                             : json(objective_->path)},
                {"metric", objective_->path},
                {"batches", lists_batches_ ? "listed" : "searched"},
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
    std::vector<const Setting*> lines;  // the best of every other line
    for (const Setting* s : good) {
      const bool known = same_line(*s, best) ||
                         std::ranges::any_of(lines, [s](const Setting* other) { return same_line(*s, *other); });
      if (!known) lines.push_back(s);
    }
    std::vector<const Setting*> tied;
    std::ranges::copy_if(lines, std::back_inserter(tied), [&](const Setting* s) { return is_tie(best, *s); });
    for (const Setting* s : tied) out.data["best"].push_back(entry(*s));
    add_front(good, std::ranges::count_if(grid, [](const Setting& s) { return s.result != nullptr; }), out);
    out.text =
        fmt::format("{}: {}.{}", label_of(best.values), numbers_text(best),
                    tied.empty() ? "" : fmt::format(" {} tie{} with it.", tied.size(), tied.size() == 1 ? "s" : ""));
    if (!tied.empty()) out.details.insert(out.details.begin(), ties_text(best, tied));
    const auto next = std::ranges::find_if(lines, [&](const Setting* s) { return !is_tie(best, *s); });
    if (next != lines.end()) {
      out.details.insert(out.details.begin(), lead_text(best, **next, experiments, out.data["lead"]));
    }
    const std::string moved = most_sensitive(*best.result, *objective_);
    out.details.push_back(fmt::format("Grounds: {}; bottleneck while decoding {}{}.", grounds_of(*best.result),
                                      result::bottleneck(best.result->experiment.step),
                                      moved.empty() ? "" : "; most sensitive to " + moved));
    return out;
  }

  // Names the ties, and the numbers by which they differ more than the objective does.
  std::string ties_text(const Setting& best, const std::vector<const Setting*>& tied) const {
    std::vector<std::string> names, apart;
    for (const Setting* s : tied) names.push_back(label_of(s->values));
    for (const char* path : {"score", "request.ttft_s", "request.latency_s", "memory.hbm_peak_bytes"}) {
      const result::Metric& metric = *result::find_metric(path);
      const Setting *low = &best, *high = &best;
      for (const Setting* s : tied) {
        if (s->number(path) < low->number(path)) low = s;
        if (s->number(path) > high->number(path)) high = s;
      }
      if (!(high->number(path) > 1.02 * low->number(path))) continue;
      apart.push_back(fmt::format("{} is {} of {} and {} of {}", label_in_sentence(metric),
                                  result::format_value(metric, low->number(path)), label_of(low->values),
                                  result::format_value(metric, high->number(path)), label_of(high->values)));
    }
    return fmt::format("Within its uncertainty or a per cent: {}.{}", fmt::join(names, "; "),
                       apart.empty() ? " Nothing tells them apart."
                                     : fmt::format(" What tells them apart: {}.", fmt::join(apart, "; ")));
  }

  // Compares two settings, each at its own best batch up to the largest that the question allows, and at one batch.
  std::string lead_text(const Setting& best, const Setting& next, Experiments& experiments, json& data) const {
    std::vector<BatchLine> lines{line_of(best), line_of(next)};
    search(lines, experiments);
    const ResultPtr own = lines[0].best(), other = lines[1].best();
    if (!own || !other) return "";
    const Comparison c = compare_best(lines[0], lines[1], *objective_);
    const std::int64_t equal = std::min(own->subject.batch, other->subject.batch);
    const auto at_equal = experiments.run(std::vector{lines[0].with_batch(equal), lines[1].with_batch(equal)});
    const Comparison e = compare(*at_equal[0], *at_equal[1], *objective_);
    data = {{"times", c.times},
            {"interval", {c.interval.low, c.interval.high}},
            {"batches", {own->subject.batch, other->subject.batch}},
            {"at_equal_batch", {{"batch", equal}, {"times", e.times}}}};
    return fmt::format(
        "It is {} as {} as the next, {} ({}), each at its own best batch ({} and {}); both at batch {}: {}{}.",
        times_text(c), cheapest() ? objective_ == &cost_metric() ? "cheap" : "good" : "fast",
        label_of(without_batch(next.values)), numbers_text(next), own->subject.batch, other->subject.batch, equal,
        times_text(e), c.beyond_uncertainty() ? "" : "; within uncertainty");
  }

  void add_front(const std::vector<const Setting*>& good, std::int64_t simulated, Answer& out) const {
    constexpr std::size_t kShown = 8;
    std::vector<Goodness> points;
    for (const Setting* s : good) points.push_back(s->goodness());
    std::vector<std::string> texts;
    std::map<Goodness, int> seen;
    for (const std::size_t i : pareto_front(points)) {
      out.data["front"].push_back(entry(*good[i]));
      if (seen[points[i]]++ == 0)
        texts.push_back(fmt::format("{}: {}", label_of(good[i]->values), numbers_text(*good[i])));
    }
    const std::size_t more = texts.size() - std::min(kShown, texts.size());
    texts.resize(texts.size() - more);
    out.details.push_back(
        fmt::format("Pareto front over output tokens per second{}{} ({} experiments for {} settings; equal ones are "
                    "listed once{}):",
                    needs_scores() ? ", score" : "", priced_ ? ", memory and cost" : " and memory", simulated, total(),
                    more > 0 ? fmt::format(", the {} best of {}", kShown, kShown + more) : ""));
    for (std::string& text : texts) out.details.push_back("  " + std::move(text));
  }

  void add_misses(const std::map<std::string, int>& misses, Answer& out) const {
    std::vector<std::string> texts;
    for (const auto& [miss, count] : misses) {
      const std::string memory = memory_name(miss), what = memory.empty() ? miss : memory;
      texts.push_back(fmt::format("{} by {}", count, what));
    }
    if (!texts.empty()) {
      out.details.push_back(fmt::format("Excluded among the {} that were simulated: {}.",
                                        lists_batches_ ? "settings" : "batches", fmt::join(texts, "; ")));
    }
    out.data["ruled_out"] = misses;
    if (beyond_engine_ == 0) return;
    out.details.push_back(fmt::format(
        "Excluded without a simulation: {} by framework.max_batch, the most sequences that the engine serves.",
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
    out.details.push_back(fmt::format("Excluded, though their intervals reach the limit: {}{}.", fmt::join(texts, "; "),
                                      more > 0 ? fmt::format("; and {} more", more) : ""));
  }

  // Says for the line that comes nearest to the targets without meeting them what would admit it.
  void add_nearest(const std::vector<Setting>& grid, const std::vector<const Setting*>& good, Experiments& experiments,
                   Answer& out) const {
    const Setting* nearest = nullptr;
    const Setting* unfit = nullptr;
    double best_margin = 0;
    for (const Setting& s : grid) {
      const bool admitted = std::ranges::any_of(good, [&s](const Setting* g) { return same_line(*g, s); });
      if (!s.result || admitted || is_oracle(*s.result) || s.result->status == result::Status::kFailed) continue;
      if (s.result->experiment.oom && (unfit == nullptr || s.batch < unfit->batch)) unfit = &s;
      const double kept = margin(*s.result, targets_);
      if (kept > best_margin) best_margin = kept, nearest = &s;
    }
    if (nearest != nullptr) {
      std::vector<std::string> needed;
      for (const Target& t : targets_) {
        const auto value = result::value(*nearest->result, *t.metric);
        if (value && !t.holds_for(*value)) {
          needed.push_back(fmt::format("{} {} {}", t.metric->path,
                                       t.at_most ? "<=" : ">=", result::format_value(*t.metric, *value)));
        }
      }
      out.details.push_back(
          fmt::format("Of the settings without a batch that meets the targets, {} comes nearest; {} "
                      "would admit it.",
                      label_of(nearest->values), fmt::join(needed, " and ")));
      out.data["nearest"] = entry(*nearest);
    }
    const bool lacks_memory = unfit != nullptr && std::ranges::none_of(grid, [&](const Setting& s) {
                                return same_line(s, *unfit) && s.result && s.result->has_times();
                              });
    if (!lacks_memory) return;
    out.details.push_back(fmt::format("{} does not fit; {}.", label_of(unfit->values),
                                      admission_text(nearest_that_fits(unfit->run, experiments))));
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
  const result::Metric* objective_ = nullptr;
  bool lists_batches_ = false, priced_ = false;
};

}  // namespace

std::unique_ptr<Question> make_choose(const Node& run, const Node& map) { return std::make_unique<Choose>(run, map); }

}  // namespace kvcast::plan

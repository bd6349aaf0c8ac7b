// Reads the question, searches the grid, and sorts its settings into those that meet the targets, those that may, and
// those that do not. Batches are searched (plan/best_batch.hpp) unless the question lists them (plan/grid_search.hpp).
#include "plan/choose.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/find.hpp"
#include "config/run.hpp"
#include "config/section.hpp"
#include "config/text.hpp"
#include "plan/findings.hpp"
#include "plan/key.hpp"

namespace kvcast::plan {
namespace {

using config::Node;

constexpr double kHour = 3600;  // seconds
constexpr const char* kBatch = "workload.batch";
constexpr const char* kLargerBatch = "a larger batch than fits";

// Returns the machine's name as the plan writes it.
std::string machine_of(const Candidate& s) { return config::machine_name(*s.run.find("hardware")).text(); }

// Returns the same for a machine's name and its aliases; a name that no file has is returned as it is.
std::string file_of_machine(const std::string& name, const SourceLocation& where) {
  try {
    return config::find_config("hardware", name, where);
  } catch (const UserError&) {
    return name;
  }
}

// Sets the price per GPU. The run of the setting states it as well, so that results have a cost.
void set_price(Candidate& s, double price, const SourceLocation& where, const Node& written) {
  const double per_s = price / kHour * s.gpus;
  if (s.price_per_s && std::abs(*s.price_per_s - per_s) > 1e-9 * per_s) {
    throw UserError(where, fmt::format("price_per_hour: {} is {:.6g} here, but the run states {:.6g} or another name "
                                       "of the machine does: give one price",
                                       machine_of(s), price, *s.price_per_s * kHour / s.gpus));
  }
  s.price_per_s = per_s;
  s.run = s.run.with("price_per_hour", written);
}

}  // namespace

Choose::Choose(const Node& run, const Node& map) {
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
  for (const Candidate& s : grid_) check_run(s.run);
}

Answer Choose::answer(Experiments& experiments) const {
  std::vector<Candidate> grid = grid_;
  if (lists_batches_) {
    GridSearch(experiments, targets_).run(grid);
  } else {
    grid = at_searched_batches(experiments);
  }
  std::vector<const Candidate*> good, perhaps;
  std::map<std::string, int> misses;
  for (const Candidate& s : grid) {
    if (!s.result) continue;
    const auto miss = missed(*s.result, targets_);
    if (miss) {
      ++misses[memory_name(*miss).empty() || s.batch == 1 || lists_batches_ ? *miss : kLargerBatch];
      if (!is_oracle(*s.result) && !missed(*s.result, targets_, Certainty::kPossible)) perhaps.push_back(&s);
    } else if (is_oracle(*s.result)) {
      ++misses["being an oracle"];
    } else {
      good.push_back(&s);
    }
  }
  if (const auto doubtful = drop_borderline(good)) misses["memory that is borderline"] = static_cast<int>(doubtful);
  for (auto* const settings : {&good, &perhaps}) {
    std::ranges::stable_sort(*settings,
                             [this](const Candidate* a, const Candidate* b) { return merit(*a) > merit(*b); });
  }
  Answer out = conclude(grid, good, misses, experiments);
  add_perhaps(perhaps, out);
  add_nearest(grid, good, experiments, out);
  return out;
}

void Choose::read_grid(const Node& run, const Node& map) {
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
    Candidate& s = grid_.emplace_back();
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

void Choose::refuse_duplicates() const {
  std::map<std::string, const Candidate*> seen;
  for (const Candidate& s : grid_) {
    const Node& hardware = *s.run.find("hardware");
    const bool named = hardware.kind() == Node::Kind::kScalar;
    const Node same = named ? s.run.with("hardware", Node::scalar(files_.at(machine_of(s)), hardware.where())) : s.run;
    const auto [first, fresh] = seen.emplace(same.canonical(), &s);
    if (fresh) continue;
    throw UserError(hardware.where(),
                    fmt::format("choose: {} is the same as {}", label_of(s.values), label_of(first->second->values)));
  }
}

void Choose::read_prices(const Node& prices) {
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
    for (Candidate& s : grid_) {
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

void Choose::read_objective(const Node* objective, bool asked, const SourceLocation& where) {
  std::vector<std::string> missing;
  for (const Candidate& s : grid_) {
    if (!s.price_per_s && std::ranges::find(missing, machine_of(s)) == missing.end()) missing.push_back(machine_of(s));
  }
  priced_ = missing.empty();
  const std::string name = objective != nullptr ? config::read_text(*objective, "objective")
                           : asked || priced_   ? kCheapest
                                                : kFastest;
  metric_ = name == kCheapest ? &cost_metric() : name == kFastest ? &rate_metric() : result::find_metric(name);
  if (metric_ == nullptr || metric_->better == result::Better::kNeither) {
    throw UserError(objective->where(),
                    fmt::format("choose: objective \"{}\" is neither cheapest, fastest nor a metric of which higher or "
                                "lower is better",
                                name),
                    {kCheapest, kFastest});
  }
  if (priced_) return;
  if (metric_->unit == result::Unit::kMoney) {
    throw UserError(where, fmt::format("choose: the objective `{}` needs price_per_hour of every machine; missing: {}",
                                       name, fmt::join(missing, ", ")));
  }
  const auto of_cost =
      std::ranges::find_if(targets_, [](const Target& t) { return t.metric->unit == result::Unit::kMoney; });
  if (of_cost != targets_.end()) {
    throw UserError(of_cost->where, fmt::format("targets: {} needs price_per_hour of every machine; missing: {}",
                                                of_cost->metric->path, fmt::join(missing, ", ")));
  }
  for (Candidate& s : grid_) s.price_per_s.reset();
}

const result::Metric& Choose::cost_metric() { return *result::find_metric("request.cost_per_million_output_tokens"); }
const result::Metric& Choose::rate_metric() { return *result::find_metric("request.output_tokens_per_s"); }

// ---- batches

std::vector<Candidate> Choose::at_searched_batches(Experiments& experiments) const {
  std::vector<BatchLine> lines;
  for (const Candidate& s : grid_) lines.push_back(line_of(s));
  search(lines, experiments);
  std::vector<Candidate> settings;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (const auto& [batch, result] : lines[i].results()) {
      Candidate& s = settings.emplace_back(grid_[i]);
      s.run = lines[i].with_batch(batch), s.batch = batch, s.result = result;
      s.values.emplace_back(kBatch, std::to_string(batch));
    }
  }
  return settings;
}

BatchLine Choose::line_of(const Candidate& s) const {
  std::int64_t most = most_sequences(s.run);
  if (lists_batches_) {
    std::int64_t listed = 1;
    for (const Candidate& other : grid_) listed = std::max(listed, other.batch);
    most = std::min(most, listed);
  }
  return {s.run, *metric_, targets_, most};
}

std::size_t Choose::drop_borderline(std::vector<const Candidate*>& good) {
  const std::vector<const Candidate*> all = good;
  return std::erase_if(good, [&all](const Candidate* s) {
    return s->result->borderline && std::ranges::any_of(all, [s](const Candidate* other) {
             return !other->result->borderline && same_line(*other, *s);
           });
  });
}

KeyValues Choose::without_batch(KeyValues values) {
  std::erase_if(values, [](const auto& value) { return value.first == kBatch; });
  return values;
}

bool Choose::same_line(const Candidate& a, const Candidate& b) {
  return without_batch(a.values) == without_batch(b.values);
}

namespace {

constexpr const char* kSearches[] = {"best", "all"};
constexpr config::Key<Node> kChooseKeys[] = {
    {"targets"},
    {"price_per_hour"},
    {"objective"},
    {"search", config::among<kSearches>(config::own<Node>(config::KeyShape::Type::kText))}};

std::unique_ptr<Question> make_choose(const Node& run, const Node& map) {
  if (run.find("traffic") != nullptr && map.kind() == Node::Kind::kMap) return make_choose_service(run, map);
  return std::make_unique<Choose>(run, map);
}

Chart draw(const nlohmann::json& data, const Machines&) {
  return data.contains("settings") ? draw_choose_service(data) : draw_choose(data);
}

}  // namespace

constinit const Kind kChoose{
    .name = "choose", .draw = draw, .make = make_choose, .keys = kChooseKeys, .has_axes = true};

}  // namespace kvcast::plan

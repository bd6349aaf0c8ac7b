// `choose` for a run with traffic: each setting at its own capacity, the cheapest or the one that serves most first.
// Settings that cannot reach the rate at which they would tie with the best so far are left out.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>

#include "base/or_null.hpp"
#include "base/units.hpp"
#include "config/section.hpp"
#include "plan/capacity.hpp"
#include "plan/choose.hpp"
#include "plan/findings.hpp"
#include "plan/key.hpp"
#include "plan/question.hpp"
#include "plan/setting_text.hpp"

namespace kvcast::plan {
namespace {

using config::Node;
using nlohmann::json;

constexpr double kHourSeconds = 3600, kMillion = 1e6;
constexpr double kTied = 1.01;        // times the best
constexpr double kCostsFarApart = 8;  // ratio of costs from which their axis is logarithmic
constexpr double kMargin = 0.9;       // of the rate that a setting needs, at which it is tried

struct Served {
  Node run;
  KeyValues values;
  std::optional<double> price_per_s;  // of all its GPUs
  double gpus = 1, outputs = 1;       // tokens of a request, mean
  Capacity capacity;
  double guess = 0;           // requests a second
  std::optional<double> out;  // at this rate, which does not suffice, it misses the targets

  // Per million output tokens at a capacity; requests a second and GPU without a price, as a number to be small.
  double merit(double rate) const {
    if (rate <= 0) return std::numeric_limits<double>::infinity();
    return price_per_s ? *price_per_s / (rate * outputs) * kMillion : gpus / rate;
  }
  double value() const { return merit(capacity.rate); }
  // Requests a second at which it has a value.
  double rate_at(double value) const { return merit(1) / value; }
};

const char* merit_name(bool priced) { return priced ? "cost_per_million_output_tokens" : "gpus_per_request_per_s"; }

// The bound of a setting that is out of reach.
std::string least_name(bool priced) { return std::string("least_") + merit_name(priced); }

// Ranges of what is compared overlap, or the values differ by a per cent at most.
bool ties(const Served& best, const Served& other) {
  const bool overlap = other.merit(other.capacity.high) <= best.merit(best.capacity.rate) &&
                       best.merit(best.capacity.low) >= other.merit(other.capacity.rate);
  return overlap || other.value() <= kTied * best.value();
}

class ChooseService final : public Question {
 public:
  ChooseService(const Node& run, const Node& map) {
    config::Section section(map, "choose");
    const auto targets = section.optional_node("targets"), prices = section.optional_node("price_per_hour");
    if (section.has("search")) all_ = section.choice("search", {"best", "all"}) == "all";
    const Node lists = map.without({"targets", "price_per_hour", "search"});
    if (lists.entries().empty())
      throw UserError(map.where(), "choose: no lists to choose from, such as policy: [full, quest]");
    for (const config::SweepPoint& p : points_of(run, lists)) {
      Served& s = served_.emplace_back();
      s.run = prices ? p.config.with("price_per_hour", *prices) : p.config;
      s.values = name_budget(p.values, p.config);
      check_run(s.run);
      const config::Run read = config::read_run(s.run);
      using Arrivals = config::Traffic::Arrivals;
      const bool open = read.traffic && read.traffic->arrivals == Arrivals::kRate;
      if (!open && (!read.traffic || read.traffic->arrivals != Arrivals::kConcurrency))
        throw UserError(map.where(), "choose: the capacity of a service needs `traffic.rate` or `traffic.concurrency`");
      all_ = all_ || !open;
      s.gpus = read.deployment.all_gpus();
      if (read.price_per_hour) s.price_per_s = *read.price_per_hour * s.gpus / kHourSeconds;
    }
    targets_ = service_targets(served_.front().run, targets ? read_targets_of(run, *targets) : std::vector<Target>{});
    targets_ = with_floor(std::move(targets_), run);
    std::ranges::partition_copy(targets_, std::back_inserter(of_scores_), std::back_inserter(of_loads_), is_of_score);
    priced_ = std::ranges::all_of(served_, [](const Served& s) { return s.price_per_s.has_value(); });
    if (priced_) return;
    for (Served& s : served_) s.price_per_s.reset();
  }

  Answer answer(Experiments& experiments) const override {
    std::vector<Served> all = capacities(experiments);
    std::vector<Served> out_of_reach;
    std::ranges::copy_if(all, std::back_inserter(out_of_reach), [](const Served& s) { return s.out.has_value(); });
    std::erase_if(all, [](const Served& s) { return s.out.has_value(); });
    std::ranges::stable_sort(all, {}, [](const Served& s) { return s.value(); });
    Answer out;
    out.kind = kChoose.name;
    out.question =
        fmt::format("Which of {} settings {} of what it serves with {}, each at its own capacity?", served_.size(),
                    priced_ ? "costs least per output token" : "serves most requests a GPU", target_text(targets_));
    out.data = {{"grid", served_.size()},
                {"objective", priced_ ? "cheapest" : "fastest"},
                {"metric", priced_ ? "serving.cost_per_million_output_tokens" : "serving.requests_per_s"},
                {"best", json::array()},
                {"front", json::array()},
                {"settings", json::array()},
                {"out_of_reach", json::array()}};
    for (const Served& s : out_of_reach)
      out.data["out_of_reach"].push_back(
          {{"config", json_of(s.values)}, {"capacity_below_per_s", *s.out}, {least_name(priced_), s.merit(*s.out)}});
    for (const Served& s : all) out.data["settings"].push_back(entry(s));
    const Served& best = all.front();
    if (best.capacity.rate <= 0) {
      out.text = "None of the settings meets the targets at any rate that was tried.";
      for (const Served& s : all) out.say("{}", line(s));
      return out;
    }
    std::vector<std::string> tied;
    for (const Served& s : all) {
      if (&s != &best && (s.capacity.rate <= 0 || !ties(best, s))) continue;
      out.data["best"].push_back(entry(s));
      if (&s != &best) tied.push_back(label_of(s.values));
    }
    out.text =
        fmt::format("{}{}.", line(best), tied.empty() ? "" : fmt::format("; ties with it: {}", fmt::join(tied, "; ")));
    for (std::size_t i = 1; i < all.size(); ++i) out.say("{}{}.", line(all[i]), compared(best, all[i]));
    for (const Served& s : out_of_reach)
      out.say("{}: out of reach, less than {} requests/s.", label_of(s.values), format_digits(*s.out, 3));
    out.say("Grounds: {}.", grounds_of(*best.capacity.result));
    return out;
  }

 private:
  // Searches all settings, or only those that may tie with the best: those that promise most come first.
  std::vector<Served> capacities(Experiments& experiments) const {
    std::vector<Served> all = served_;
    for (Served& s : all) {
      const ResultPtr result = experiments.run(s.run);
      s.outputs = std::max<double>(1, static_cast<double>(result->subject.decode_tokens));
      if (const auto excluded = excluded_by(*result)) {
        s.capacity.result = result, s.capacity.miss = *excluded;
      } else if (!all_) {
        s.guess = guessed_capacity(s.run, experiments);
      }
    }
    if (!all_) std::ranges::stable_sort(all, {}, [](const Served& s) { return s.merit(s.guess); });
    double best = std::numeric_limits<double>::infinity();
    for (Served& s : all) {
      if (s.capacity.result) continue;
      const double needed = kMargin * s.rate_at(kTied * best);
      if (!all_ && needed > 0 && !may_reach(s.run, needed, of_loads_, experiments)) {
        s.out = needed;
        continue;
      }
      s.capacity = find_capacity(s.run, of_loads_, experiments);
      best = std::min(best, s.value());
    }
    return all;
  }

  // Why a setting is not recommended at any load: the score does not depend on it.
  std::optional<std::string> excluded_by(const result::Result& result) const {
    if (result.status != result::Status::kOk || result.experiment.oom) return {};
    if (is_oracle(result)) return "an oracle, which is a yardstick";
    return missed(result, of_scores_);
  }

  std::string price_text(const Served& s, double rate) const {
    return priced_ ? format_digits(s.merit(rate), 3) + " per million output tokens"
                   : format_digits(1 / s.merit(rate), 3) + " requests/s a GPU";
  }

  std::string line(const Served& s) const {
    const Capacity& c = s.capacity;
    if (c.rate <= 0) {
      if (is_oracle(*c.result)) return fmt::format("{}: {}", label_of(s.values), *c.miss);
      auto miss = excluded_by(*c.result);
      if (!miss) miss = missed(*c.result, of_loads_);
      return fmt::format("{}: none; {}{}", label_of(s.values),
                         c.result->status == result::Status::kFailed ? c.result->error
                         : miss                                      ? "misses " + *miss
                                                                     : "no rate that was tried meets the targets",
                         score_text(*c.result));
    }
    std::string text = fmt::format("{}: {} requests/s ({} to {}), {}", label_of(s.values), format_digits(c.rate, 3),
                                   format_digits(c.low, 3), format_digits(c.high, 3), price_text(s, c.rate));
    if (c.clients > 0) text += fmt::format(", to {} clients", c.clients);
    if (c.max_num_seqs > 0) text += fmt::format(", at most {} sequences at a time", c.max_num_seqs);
    if (const auto ttft = result::value(*c.result, *result::find_metric("serving.ttft_s.p99"))) {
      text += fmt::format("; there TTFT p99 {}, TPOT p99 {}", format_seconds(*ttft),
                          format_seconds(*result::value(*c.result, *result::find_metric("serving.tpot_s.p99"))));
    }
    text += score_text(*c.result);
    if (c.miss) text += fmt::format("; a higher rate misses {}", *c.miss);
    return text;
  }

  // ", score 96.2 %, which may miss score.share_of_full >= 95 %".
  std::string score_text(const result::Result& result) const {
    const auto score = result::value(result, *result::find_metric("score"));
    if (!score) return "";
    const auto perhaps = missed(result, of_scores_, Certainty::kCertain);
    return fmt::format(", score {:.1f} %{}", 100 * *score,
                       perhaps && !missed(result, of_scores_) ? ", which may miss " + *perhaps : "");
  }

  std::string compared(const Served& best, const Served& other) const {
    if (other.capacity.rate <= 0) return "";
    return fmt::format("; {:.2f} times {}", priced_ ? other.value() / best.value() : best.value() / other.value(),
                       priced_ ? "the cost of the best" : "what the best serves");
  }

  json entry(const Served& s) const {
    const Capacity& c = s.capacity;
    json out = {
        {"config", json_of(s.values)},
        {"metrics", metrics_of(*c.result,
                               {"serving.requests_per_s", "serving.output_tokens_per_s", "serving.ttft_s.p99",
                                "serving.tpot_s.p99", "serving.slo_share", "serving.cost_per_million_output_tokens",
                                "serving.running.mean", "memory.hbm_peak_bytes", "score"},
                               {})},
        {"capacity_per_s", c.rate},
        {"interval", {c.low, c.high}},
        {"fit", result::fit_name(result::fit_of(*c.result))},
        {"binding_resource", or_null(c.miss)}};
    if (c.clients > 0) out["clients"] = c.clients;
    if (c.rate > 0) out[merit_name(priced_)] = s.value();
    if (c.max_num_seqs > 0) out["config"]["scheduler.max_num_seqs"] = std::to_string(c.max_num_seqs);
    return out;
  }

  std::vector<Served> served_;
  std::vector<Target> of_scores_, of_loads_;  // of the targets, those on scores, and those on what depends on the load
  bool priced_ = false, all_ = false;
};

// A setting as a row of the chart. Its cost is inverse to its capacity, and so are the ends of their intervals.
json row_of(const json& setting, bool priced) {
  const json& config = setting.at("config");
  KeyValues values;
  std::string at_a_time;
  for (const auto& [key, value] : config.items()) {
    if (key == "scheduler.max_num_seqs") {
      at_a_time = fmt::format(", {} at a time", value.get<std::string>());
    } else {
      values.emplace_back(key, value);
    }
  }
  const std::string policy = config.value("policy.name", config.value("policy", "all settings"));
  json row = {
      {"label", label_of(values) + at_a_time}, {"policy", policy}, {"color", "variants/" + policy}, {"sign", "none"}};
  if (!setting.contains("metrics")) {  // out of reach
    row["text"] = "out of reach";
    if (!setting.contains(least_name(priced))) return row;  // answers of earlier versions
    row["sign"] = "above", row["value"] = setting.at(least_name(priced));
    row["text"] = "more than " + number_text(row["value"]);
    row["served"] = fmt::format("less than {} requests/s", number_text(setting.at("capacity_below_per_s")));
    return row;
  }
  row["text"] = setting.at("binding_resource").is_null()
                    ? "never meets the targets"
                    : "misses " + setting.at("binding_resource").get<std::string>();
  if (!setting.contains(merit_name(priced))) return row;
  const double value = setting.at(merit_name(priced)), rate = setting.at("capacity_per_s");
  const double slowest = setting.at("interval").at(0), fastest = setting.at("interval").at(1);
  row["sign"] = "", row["value"] = value, row["low"] = value * rate / fastest;
  if (slowest > 0) row["high"] = value * rate / slowest;
  const std::string text = number_text(value), low = number_text(row["low"]);
  row["text"] = slowest <= 0 ? fmt::format("{} ({} or more)", text, low)
                : low == text && number_text(row["high"]) == text
                    ? text
                    : fmt::format("{} ({} to {})", text, low, number_text(row["high"]));
  row["served"] =
      fmt::format("{} requests/s ({} to {})", number_text(rate), number_text(slowest), number_text(fastest));
  for (const auto& [name, path] : {std::pair("ttft", "serving.ttft_s.p99"), std::pair("tpot", "serving.tpot_s.p99"),
                                   std::pair("score", "score")}) {
    const auto found = setting.at("metrics").find(path);
    if (found != setting.at("metrics").end())
      row[name] = result::format_value(*result::find_metric(path), found->get<double>());
  }
  return row;
}

}  // namespace

Chart draw_choose_service(const json& data) {
  constexpr std::size_t kShown = 24;
  const bool priced = data.at("objective") == "cheapest";
  std::vector<json> rows;
  for (const char* const list : {"settings", "out_of_reach"}) {
    for (const json& setting : data.at(list)) {
      json& row = rows.emplace_back(row_of(setting, priced));
      const auto is_it = [&](const json& best) { return best.at("config") == setting.at("config"); };
      if (std::ranges::any_of(data.at("best"), is_it)) row["sign"] = rows.size() == 1 ? "best" : "tie";
    }
  }
  const auto has_value = [](const json& row) { return row.contains("value"); };
  std::ranges::stable_partition(rows, has_value);
  if (!has_value(rows.front())) return {};
  Chart chart{.spec = "plan_capacities"};
  chart.signals["x_title"] = priced ? "cost per million output tokens" : "GPUs for each request a second";
  const auto full =
      std::ranges::find_if(rows, [&](const json& row) { return row["policy"] == "full" && has_value(row); });
  if (full != rows.end()) {
    const double value = (*full)["value"];
    chart.signals["full_kv"] = value, chart.signals["full_kv_is_more"] = (*full)["sign"] == "above";
    for (json& row : rows)
      if (has_value(row)) row["of_full"] = fmt::format("{:.2f}", row["value"].get<double>() / value);
  }
  if (rows.size() > kShown) {
    chart.signals["more"] = rows.size() - kShown;
    if (full - rows.begin() >= static_cast<std::ptrdiff_t>(kShown)) std::iter_swap(full, rows.begin() + kShown - 1);
    rows.resize(kShown);
  }
  double least = std::numeric_limits<double>::infinity(), most = 0;
  std::set<std::string> policies;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    json& row = rows[i];
    row["row"] = i;
    policies.insert(row["policy"]);
    if (!has_value(row)) continue;
    least = std::min(least, row.value("low", row["value"].get<double>()));
    most = std::max(most, row.value("high", row["value"].get<double>()));
  }
  chart.variants.assign(policies.begin(), policies.end());
  chart.signals["from"] = least, chart.signals["to"] = most;
  chart.scales["x"] = {{"type", most > kCostsFarApart * least ? "log" : "linear"}};
  chart.data["rows"] = std::move(rows);
  return chart;
}

std::unique_ptr<Question> make_choose_service(const Node& run, const Node& map) {
  return std::make_unique<ChooseService>(run, map);
}

}  // namespace kvcast::plan

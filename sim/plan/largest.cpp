// Finds the largest value of a key at which the run fits in memory and meets its targets. Doubling brackets it from
// below and bisection closes the bracket. While the targets are missed, larger values are examined as long as they come
// nearer (a score, by the budget; a throughput, by the batch), at last the largest one that fits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include "base/or_null.hpp"
#include "config/run.hpp"
#include "config/section.hpp"
#include "plan/admit.hpp"
#include "plan/crossings.hpp"
#include "plan/key.hpp"
#include "plan/question.hpp"
#include "plan/setting_text.hpp"
#include "plan/target.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {

extern const Kind kLargest;

namespace {

using config::Node;
using nlohmann::json;

constexpr double kFirstPassFactor = 2;  // from one value of the first pass to the next
constexpr double kClosedInterval = 1e-2;
// The range of rates, requests a second, and of sequences, unless one is given. A capacity is uncertain by far more
// than the width at which its search ends.
constexpr double kLeastRate = 1.0 / 64, kHighestRate = 4096, kMostSequences = 4096, kMostReplicas = 64,
                 kClosedLoad = 1e-2;

class Largest final : public Question {
 public:
  Largest(const Node& run, const Node& map) {
    config::Section section = section_of(kLargest, map);
    const std::string path = section.text("key");
    of_ = section.has("of") ? read_variant(run, section.node("of"), {path}) : Variant{"", run, {}};
    key_ = find_key(of_.run, path, section.where("key"));
    refuse_varied(of_, key_.path, "largest", section.where("of"));
    if (section.has("targets")) targets_ = read_targets_of(of_.run, section.node("targets"));
    from_ = section.has("from") ? read_value(key_, section.node("from")) : default_from();
    to_ = section.has("to") ? end_of_range(key_, read_value(key_, section.node("to")), of_.run) : default_to();
    if (from_ > to_) {
      throw UserError(section.has("from") ? section.where("from") : map.where(),
                      fmt::format("largest: {} from {} to {} is no range", key_.path, value_text(key_, from_),
                                  value_text(key_, to_)));
    }
    check_run(with_value(of_.run, key_, from_));
  }

  Answer answer(Experiments& experiments) const override {
    Search nominal(*this, experiments, Certainty::kNominal);
    const std::optional<double> value = nominal.largest();
    Answer out;
    out.kind = kLargest.name;
    out.question =
        fmt::format("What is the largest {}{} that fits{}?", key_.path, of_.label.empty() ? "" : " of " + of_.label,
                    targets_.empty() ? "" : " and meets " + target_text(targets_));
    const auto limit = nominal.limit();
    out.data = {{"key", key_.path},
                {"range", {json_of(key_, from_), json_of(key_, to_)}},
                {"value", value ? json_of(key_, *value) : json()},
                {"limited_by", or_null(limit)}};
    if (!value) {
      out.text = none_text(nominal.last_missed(), limit);
      const Node at = with_value(of_.run, key_, nominal.last_missed());
      if (limit && !memory_name(*limit).empty()) {
        out.say("At {} {}.", short_text(key_, nominal.last_missed()),
                admission_text(nearest_that_fits(at, experiments)));
      }
      out.data["binding_resource"] = nullptr;
      return out;
    }
    add_interval(experiments, *value, out);
    const ResultPtr at = experiments.run(with_value(of_.run, key_, *value));
    out.data["binding_resource"] = binding_resource(*at, prefill_target());
    out.data["metrics"] =
        metrics_of(*at,
                   {"serving.requests_per_s", "serving.output_tokens_per_s", "serving.ttft_s.p99", "serving.tpot_s.p99",
                    "serving.cost_per_million_output_tokens", "request.requests_per_s", "request.output_tokens_per_s",
                    "request.latency_s", "request.ttft_s", "request.cost", "request.cost_per_million_output_tokens",
                    "decode.tokens_per_s", "decode.tpot_s.mean", "prefill.ttft_s", "memory.hbm_peak_bytes"},
                   targets_);
    out.data["fit"] = result::fit_name(result::fit_of(*at));
    out.text = fmt::format("{} {}: {}.", key_.path, short_text(key_, *value), limit_text(limit));
    out.say("There: {}; bottleneck{} {}.", numbers_text(*at), prefill_target() == nullptr ? "" : " of the prefill",
            binding_resource(*at, prefill_target()));
    out.say("{}", grounds_of(*at, *result::find_metric("decode.tpot_s.mean"), "a step is most"));
    return out;
  }

 private:
  // One pass over the key with one reading of the targets.
  class Search {
   public:
    Search(const Largest& question, Experiments& experiments, Certainty reading)
        : q_(question), experiments_(experiments), reading_(reading) {}

    std::optional<double> largest() {
      double good = NAN, bad = NAN;
      for (double x = q_.from_;; x = next_of(x)) {
        const double before = bad;
        if (meets(x)) {
          good = x, bad = NAN;
        } else if (!std::isnan(good)) {
          bad = x;
          break;
        } else if (!tried_.at(x).fits && !std::isnan(before)) {
          std::tie(good, bad) = last_that_fits(before, x);
          break;
        } else {
          bad = x;
          if (!may_be_met_above(x, before)) break;
        }
        if (x >= q_.to_) break;
      }
      if (std::isnan(good)) return limit_at_ = bad, std::nullopt;
      if (std::isnan(bad)) return good;  // the range ends first
      for (int step = 0; !closed(good, bad); ++step) {
        const double x = proposal(good, bad, step);
        (meets(x) ? good : bad) = x;
      }
      limit_at_ = bad;
      return good;
    }

    // The target or pool that the next larger value violates; nothing if the range ends first.
    std::optional<std::string> limit() const { return limit_at_ ? tried_.at(*limit_at_).miss : std::nullopt; }
    // Without a value, the nearest to one among those that were examined.
    double last_missed() const { return limit_at_.value_or(q_.from_); }

   private:
    struct Tried {
      ResultPtr result;
      std::optional<std::string> miss;  // target or pool
      bool fits = false;
    };

    bool meets(double x) {
      const ResultPtr r = experiments_.run(with_value(q_.of_.run, q_.key_, x));
      require_numbers(*r, q_.targets_, q_.of_.label.empty() ? "the run" : q_.of_.label);
      Tried& t = tried_[x] = {r, missed(*r, q_.targets_, reading_), r->status == result::Status::kOk};
      const bool fit_open = !r->alternatives.empty();
      if (reading_ == Certainty::kCertain && fit_open && !t.miss) t.miss = "memory that is uncertain", t.fits = false;
      // Does not fit with the stated memory, but fits with the largest amount within its uncertainty.
      if (reading_ == Certainty::kPossible && r->experiment.oom && fit_open) return t.miss = std::nullopt, true;
      if (!t.miss) loads_[x] = loads_of(*r);
      return !t.miss;
    }

    // The point at which the first target or pool is exhausted, on lines through the two largest good values; every
    // third time the middle, so that no bracket stays wide.
    double proposal(double good, double bad, int step) const {
      double x = (good + bad) / 2;
      const auto near = loads_.find(good);
      if (step % 3 != 2 && near != loads_.begin() && near != loads_.end()) {
        const std::vector<double>&loads = near->second, &before = std::prev(near)->second;
        double full = bad;
        for (std::size_t i = 0; i < loads.size(); ++i) {
          const double slope = (loads[i] - before[i]) / (good - std::prev(near)->first);
          if (slope > 0) full = std::min(full, good + (1 - loads[i]) / slope);
        }
        if (full >= good && full < bad) x = full;
      }
      return q_.key_.integer ? std::clamp(std::floor(x), good + 1, bad - 1) : x;
    }

    // Utilisation of each pool and each upper limit: 1 is all of it.
    std::vector<double> loads_of(const result::Result& r) const {
      std::vector<double> loads{memory_fill(r)};
      for (const Target& t : q_.targets_) {
        const auto value = result::value(r, *t.metric);
        if (t.at_most && value && t.limit > 0) loads.push_back(*value / t.limit);
      }
      return loads;
    }

    // Between a value that fits and one that does not: a value that meets the targets and the nearest larger one that
    // does not, or NaN and the largest that fits.
    std::pair<double, double> last_that_fits(double low, double high) {
      while (!closed(low, high)) {
        const double x = q_.key_.integer ? std::floor((low + high) / 2) : (low + high) / 2;
        if (meets(x)) return {x, high};
        (tried_.at(x).fits ? low : high) = x;
      }
      return {NAN, low};
    }

    // Returns whether larger values may meet the targets: a minimum may always be reached, a maximum if x is nearer to
    // it than the value before.
    bool may_be_met_above(double x, double before) const {
      if (!tried_.at(x).fits || x >= q_.to_) return false;
      const auto& at = *tried_.at(x).result;
      return std::ranges::all_of(q_.targets_, [&](const Target& t) {
        const auto value = result::value(at, *t.metric);
        if (!value) return false;
        if (!t.at_most || t.holds_for(*value) || std::isnan(before)) return true;
        const auto earlier = result::value(*tried_.at(before).result, *t.metric);
        return earlier && *value < *earlier;
      });
    }

    double next_of(double x) const {
      const double next = std::max(x * kFirstPassFactor, q_.key_.integer ? x + 1 : x * kFirstPassFactor);
      return std::min(q_.to_, next > x ? next : q_.to_);
    }

    bool closed(double good, double bad) const {
      // The ends of an interval need not be as precise.
      const double exact = q_.key_.path == "traffic.rate" ? kClosedLoad : kClosed;
      const double width = reading_ == Certainty::kNominal ? exact : kClosedInterval;
      const bool narrow = bad - good <= width * std::abs(bad);
      return q_.key_.integer ? bad - good <= 1 || (narrow && reading_ != Certainty::kNominal) : narrow;
    }

    const Largest& q_;
    Experiments& experiments_;
    Certainty reading_;
    std::map<double, Tried> tried_;
    std::map<double, std::vector<double>> loads_;  // loads at good values
    std::optional<double> limit_at_;
  };

  double default_from() const {
    if (key_.path == "workload.prompt_tokens") return std::min(1024.0, longest_prompt());
    if (key_.path == "policy.budget") return least_budget();
    if (key_.integer) return std::max(1.0, key_.low);
    if (key_.path == "traffic.rate") return kLeastRate;
    throw UserError(key_.where, fmt::format("largest: {} needs `from` and `to`", key_.path));
  }

  // The smallest power of two that the policy takes: pages and windows are larger than a token.
  double least_budget() const {
    const double most = default_to();
    double budget = std::max(1.0, key_.low);
    for (; budget < most; budget *= 2) {
      try {
        check_run(with_value(of_.run, key_, budget));
        break;
      } catch (const UserError&) {
        // Too small.
      }
    }
    return budget;
  }

  double default_to() const {
    if (key_.path == "workload.prompt_tokens") return longest_prompt();
    if (key_.path == "workload.batch") return end_of_range(key_, 4096, of_.run);
    if (key_.path == "traffic.rate") return kHighestRate;
    if (key_.path == "deployment.replicas") return kMostReplicas;
    if (key_.path == "traffic.concurrency" || key_.path == "scheduler.max_num_seqs") return kMostSequences;
    const config::Workload w = config::read_run(of_.run).workload;
    if (key_.path == "policy.budget") return static_cast<double>(w.prompt_tokens + w.decode_tokens);
    throw UserError(key_.where, fmt::format("largest: {} needs `to`", key_.path));
  }

  // The model's context less the generated tokens.
  double longest_prompt() const {
    const config::Run run = config::read_run(of_.run);
    return static_cast<double>(run.model.max_context - run.workload.decode_tokens);
  }

  // The first target if all are times of the prefill; otherwise null, and the bottleneck is that of a decode step.
  const result::Metric* prefill_target() const {
    const bool all = std::ranges::all_of(targets_, [](const Target& t) { return result::is_of_prefill(*t.metric); });
    return all && !targets_.empty() ? targets_.front().metric : nullptr;
  }

  // Says in which memory a value does not fit, or which number it lacks; empty for a limit that is a target.
  static std::string unfit_text(const std::string& limit) {
    if (limit.starts_with("no ")) return "has " + limit;
    const std::string memory = memory_name(limit);
    return memory.empty() ? "" : "does not fit in " + memory;
  }

  std::string limit_text(const std::optional<std::string>& limit) const {
    if (!limit && key_.path == "workload.batch" && to_ == engine_batch(of_.run)) {
      return "the engine serves no more sequences at a time (framework.max_batch)";
    }
    if (!limit) return "the range ends there";
    const std::string unfit = unfit_text(*limit);
    return unfit.empty() ? "limited by " + *limit : "the next larger value " + unfit;
  }

  std::string none_text(double missed_at, const std::optional<std::string>& limit) const {
    const std::string unfit = limit ? unfit_text(*limit) : "";
    return fmt::format("None from {} to {}: {} {}.", short_text(key_, from_), short_text(key_, to_),
                       short_text(key_, missed_at), unfit.empty() ? "misses " + limit.value_or("the targets") : unfit);
  }

  std::string numbers_text(const result::Result& r) const {
    std::vector<std::string> parts;
    const auto add = [&](const result::Metric& m) {
      if (const auto v = result::value(r, m))
        parts.push_back(fmt::format("{} {}", m.path, result::format_value(m, *v)));
    };
    parts.push_back(request_text(r));
    add(*result::find_metric("decode.tokens_per_s"));
    add(*result::find_metric("memory.hbm_peak_bytes"));
    if (r.borderline) parts.push_back("borderline");
    for (const Target& t : targets_) {
      if (t.metric->path != "decode.tokens_per_s" && t.metric->path != "memory.hbm_peak_bytes") add(*t.metric);
    }
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  // Adds the largest value with every number at the worse end of its interval, and with every number at the better end.
  void add_interval(Experiments& experiments, double value, Answer& out) const {
    Search certain(*this, experiments, Certainty::kCertain), possible(*this, experiments, Certainty::kPossible);
    const std::optional<double> low = certain.largest(), high = possible.largest();
    out.data["interval"] = {low ? json_of(key_, *low) : json(), json_of(key_, std::max(value, high.value_or(value)))};
    out.say("With all numbers at the worse ends of their 80 % intervals {}, at the better ends {}.",
            low ? short_text(key_, *low) : "none", short_text(key_, std::max(value, high.value_or(value))));
  }

  Variant of_;
  VariedKey key_;
  double from_ = 0, to_ = 0;
};

constexpr config::Key<Node> kLargestKeys[] = {{"key", kNeededText}, {"from"}, {"to"}, {"of"}, {"targets"}};

// The value on the range that was searched.
Chart draw_largest(const json& data, const Machines& machines) {
  if (!data.at("value").is_number()) return {};
  const json &range = data.at("range"), &interval = data.at("interval"), &limit = data.at("limited_by");
  const double low = interval.at(0).is_null() ? range.at(0) : interval.at(0);  // null: it reaches below the range
  const KeyAxis axis = axis_of(data.at("key"), range.at(1), machines);
  Chart chart = axis.chart("plan_largest", range.at(0), range.at(1));
  json row = axis.mark(data.at("value"), low, interval.at(1));
  row["interval"] = axis.text(low) + " to " + axis.text(interval.at(1));
  const std::string memory = memory_name(limit.is_null() ? "" : limit);
  row["limit"] = limit.is_null() ? "the end of the range" : memory.empty() ? limit : json(memory);
  chart.data["values"] = json::array({row});
  return chart;
}

}  // namespace

constinit const Kind kLargest{"largest", draw_largest, make<Largest>, kLargestKeys};

}  // namespace kvcast::plan

// Finds the values of a key at which one variant becomes better than another, or meets its targets
// (plan/crossings.hpp).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "config/section.hpp"
#include "plan/compare.hpp"
#include "plan/crossings.hpp"
#include "plan/key.hpp"
#include "plan/question.hpp"
#include "plan/target.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {

extern const Kind kBreakEven;

namespace {

using config::Node;
using nlohmann::json;

// Returns whether more or less memory would change the answer to whether it fits.
bool fit_is_open(const ResultPtr& r) { return r && !r->alternatives.empty(); }

// The result with as much memory as there may be; null if it does not fit even then.
const result::Result* fitting(const result::Result& r) {
  if (r.status == result::Status::kOk) return &r;
  return r.alternatives.empty() ? nullptr : r.alternatives.front().shorter.get();
}

bool needs_less(const result::Result& a, const result::Result& b) {
  const auto &x = a.experiment, &y = b.experiment;
  return x.hbm.peak < y.hbm.peak || x.dram.peak < y.dram.peak;
}

// Returns whether `other` may be better than `best` within the uncertainty of costs and memory. The one that needs less
// memory may be the only one that fits. `unknown` is returned where `other` may fit, but its times are not known.
bool may_be_better(const result::Result& other, const result::Result& best, const result::Metric& metric,
                   bool unknown = true) {
  const result::Result *const a = fitting(other), *const b = fitting(best);
  if (a == nullptr || b == nullptr) return a != nullptr;
  const bool best_may_not_fit = b != &best || !best.alternatives.empty();
  if (best_may_not_fit && needs_less(*a, *b)) return true;
  if (a != &other) return b == &best && unknown;
  return !compare(best, other, metric).beyond_uncertainty();
}

// A capacity is uncertain by far more than this.
constexpr double kClosedRate = 1e-2;

// Both have the same number: requests that all keep the SLO, say.
bool is_equal(const VariantPair& s) { return s.against != nullptr && s.comparison.times == 1; }

// The state of equal samples, so that a change from them to others counts: the opposite of the first that is not equal.
int state_of_equal(const std::vector<VariantPair>& samples) {
  const auto other = std::ranges::find_if(samples, [](const VariantPair& s) { return s.state != 0 && !is_equal(s); });
  return other == samples.end() || other->state < 0 ? 1 : -1;
}

class BreakEven final : public Question {
 public:
  BreakEven(const Node& run, const Node& map) {
    config::Section section = section_of(kBreakEven, map);
    const std::string path = section.text("key");
    of_ = section.has("of") ? read_variant(run, section.node("of"), {path}) : Variant{"the run", run, {}};
    if (section.has("against") == section.has("targets")) {
      throw UserError(map.where(), "break_even: give either `against`, another variant, or `targets`, limits to meet");
    }
    if (section.has("against")) {
      against_ = read_variant(run, section.node("against"), {path});
      tell_apart(of_, *against_);
      metric_ = &read_metric(section.node("metric"));
      metric_where_ = section.where("metric");
    } else {
      targets_ = read_targets_of(of_.run, section.node("targets"));
      if (section.has("metric")) {
        throw UserError(section.where("metric"), "break_even: `targets` name their metrics themselves");
      }
    }
    const bool of_has = has_key(of_.run, path);
    key_ = find_key(of_has || !against_ ? of_.run : against_->run, path, section.where("key"));
    refuse_varied(of_, key_.path, "break_even", section.where("of"));
    if (against_) refuse_varied(*against_, key_.path, "break_even", section.where("against"));
    if (against_ && of_.run.canonical() == against_->run.canonical()) {
      throw UserError(section.where("against"), "break_even: `of` and `against` are the same settings");
    }
    from_ = read_value(key_, section.node("from"));
    to_ = end_of_range(key_, read_value(key_, section.node("to")), run);
    if (from_ >= to_) throw UserError(section.where("to"), "break_even: `to` must be above `from`");
    for (const double end : {from_, to_}) {
      check_run(at(of_.run, end));
      if (against_) check_run(at(against_->run, end));
    }
  }

  Answer answer(Experiments& experiments) const override {
    const KeyRange range{from_, to_, key_.integer, key_.path == "traffic.rate" ? kClosedRate : kClosed};
    int equal = 0;  // the state of samples that are equal, once the grid is known
    Crossings search(range, [&](const std::vector<double>& xs, const Crossings::Bracket& between) {
      std::vector<VariantPair> samples = evaluate(experiments, xs, between);
      if (equal == 0) equal = state_of_equal(samples);
      for (VariantPair& s : samples) {
        if (is_equal(s)) s.state = equal;
      }
      return samples;
    });
    std::vector<Crossing> crossings = search.find();
    std::map<double, VariantPair> samples = search.samples();
    for (Crossing& crossing : crossings) {
      for (VariantPair* const side : {&crossing.below, &crossing.above}) complete(experiments, *side, samples);
    }
    return conclude(crossings, samples);
  }

 private:
  // Sets the key only if the run has it: a policy's parameter that the other variant's policy lacks leaves that variant
  // unchanged.
  Node at(const Node& run, double x) const { return has_key(run, key_.path) ? with_value(run, key_, x) : run; }

  void judge(VariantPair& s) const {
    if (against_) {
      s.comparison = compare(*s.of, *s.against, *metric_);
      s.state = !s.comparison.known() ? 0 : s.comparison.first_better() ? 1 : -1;
      s.settled = (s.state > 0 || !may_be_better(*s.of, *s.against, *metric_)) &&
                  (s.state < 0 || !may_be_better(*s.against, *s.of, *metric_));
      return;
    }
    s.state = missed(*s.of, targets_) ? -1 : 1;
    s.settled = (s.state > 0 ? !missed(*s.of, targets_, Certainty::kCertain)
                             : missed(*s.of, targets_, Certainty::kPossible).has_value()) &&
                !fit_is_open(s.of);
    s.comparison.times = margin(*s.of, targets_);
    s.comparison.interval = {margin(*s.of, targets_, Certainty::kCertain),
                             margin(*s.of, targets_, Certainty::kPossible)};
  }

  // Refuses a variant that was rejected, and one that fits and lacks the number: it is neither better nor worse, and
  // misses no limit. A score that cannot be predicted is a miss, and the answer gives the reason.
  void check(const ResultPtr& r, const Variant& variant) const {
    if (r->status == result::Status::kFailed) throw UserError(r->error);
    if (metric_ != nullptr) require_number(*r, *metric_, variant.label, metric_where_);
    require_numbers(*r, targets_, variant.label);
  }

  // Simulates a variant whose result was taken from another value of the key, so that its numbers are those of this
  // one.
  void complete(Experiments& experiments, VariantPair& s, std::map<double, VariantPair>& samples) const {
    if (s.of_simulated && s.against_simulated) return;
    ResultPtr& missing = s.of_simulated ? s.against : s.of;
    const Variant& variant = s.of_simulated ? *against_ : of_;
    missing = experiments.run(at(variant.run, s.x));
    check(missing, variant);
    s.of_simulated = s.against_simulated = true;
    samples[s.x] = s;
  }

  std::vector<VariantPair> evaluate(Experiments& experiments, const std::vector<double>& xs,
                                    const Crossings::Bracket& between) const {
    if (between.first != nullptr && !(between.first->finite() && between.second->finite())) {
      if (auto sample = misfit(experiments, xs.front(), *between.first, *between.second)) return {*sample};
    }
    std::vector<Node> runs;
    for (const double x : xs) {
      runs.push_back(at(of_.run, x));
      if (against_) runs.push_back(at(against_->run, x));
    }
    const std::vector<ResultPtr> results = experiments.run(runs);
    std::vector<VariantPair> samples;
    std::size_t next = 0;
    for (const double x : xs) {
      VariantPair& s = samples.emplace_back();
      s.x = x, s.of = results[next++];
      if (against_) s.against = results[next++];
      check(s.of, of_);
      if (against_) check(s.against, *against_);
      judge(s);
    }
    return samples;
  }

  // Samples a value in a bracket at one end of which one variant does not fit: if it does not fit here either, the
  // other variant, which fits at both ends, need not be simulated.
  std::optional<VariantPair> misfit(Experiments& experiments, double x, const VariantPair& low,
                                    const VariantPair& high) const {
    const bool of_changes = misfits(low.of) != misfits(high.of);
    if (!against_ || of_changes == (misfits(low.against) != misfits(high.against))) return {};
    const ResultPtr changing = experiments.run(at(of_changes ? of_.run : against_->run, x));
    if (!misfits(changing)) return {};
    VariantPair s = misfits(of_changes ? low.of : low.against) ? low : high;
    s.x = x;
    (of_changes ? s.of : s.against) = changing;
    (of_changes ? s.against_simulated : s.of_simulated) = false;
    s.settled = !fit_is_open(changing);
    return s;
  }

  std::string name_of_state(int state) const {
    if (!against_) return state > 0 ? "met" : "missed";
    return state == 0 ? "neither" : state > 0 ? of_.label : against_->label;
  }

  json side(const VariantPair& s) const {
    const ResultPtr& better = against_ && s.state < 0 ? s.against : s.of;
    return {{"better", is_equal(s) ? "neither" : name_of_state(s.state)},
            {"binding_resource", binding_resource(*better, metric_)},
            {"at", json_of(key_, s.x)},
            {"of", number(s.of)},
            {"against", number(s.against)}};
  }

  json number(const ResultPtr& r) const {
    if (!r) return nullptr;
    json out = {{"binding_resource", binding_resource(*r, metric_)}, {"fits", !r->experiment.oom.has_value()}};
    if (metric_ != nullptr && r->has_times()) out["value"] = *result::value(*r, *metric_);
    return out;
  }

  std::string value_of(const ResultPtr& r, const std::string& label) const {
    if (r->experiment.oom) return label + " does not fit";
    return fmt::format("{} {} ({})", label, result::format_value(*metric_, *result::value(*r, *metric_)),
                       binding_resource(*r, metric_));
  }

  std::string side_text(const VariantPair& s) const {
    if (against_) return fmt::format("{}, {}", value_of(s.of, of_.label), value_of(s.against, against_->label));
    const auto miss = missed(*s.of, targets_);
    if (!miss) return "the targets are met";
    const std::string memory = memory_name(*miss);
    return memory.empty() ? fmt::format("missed: {}", *miss) : fmt::format("does not fit in {}", memory);
  }

  std::string crossing_text(const Crossing& c) const {
    const std::string open =
        c.interval.low < c.interval.high
            ? fmt::format(" (80 %: {} to {})", short_text(key_, c.interval.low), short_text(key_, c.interval.high))
            : "";
    return fmt::format("from {} {}{} on, {}", key_.path, short_text(key_, c.value), open,
                       is_equal(c.above) ? "neither is better"
                       : against_        ? fmt::format("{} is better", name_of_state(c.above.state))
                                         : fmt::format("the targets are {}", name_of_state(c.above.state)));
  }

  json crossing_json(const Crossing& c, const std::map<double, VariantPair>& samples) const {
    const auto ends = [&](double x) { return !samples.at(x).settled; };
    return {{"value", json_of(key_, c.value)},
            {"interval", {json_of(key_, c.interval.low), json_of(key_, c.interval.high)}},
            {"open", {c.interval.low == from_ && ends(from_), c.interval.high == to_ && ends(to_)}},
            {"below", side(c.below)},
            {"above", side(c.above)}};
  }

  Answer conclude(const std::vector<Crossing>& crossings, const std::map<double, VariantPair>& samples) const {
    Answer out;
    out.kind = kBreakEven.name;
    const std::string range =
        fmt::format("{} from {} to {}", key_.path, short_text(key_, from_), short_text(key_, to_));
    out.question = against_ ? fmt::format("At which {} does {} beat {} in {}?", range, of_.label, against_->label,
                                          result::label_in_sentence(*metric_))
                            : fmt::format("At which {} does {} meet its targets?", range, of_.label);
    out.data = {{"key", key_.path},
                {"metric", metric_ == nullptr ? json() : json(metric_->path)},
                {"crossings", json::array()},
                {"samples", json::array()},
                {"always", nullptr},
                {"of", of_.label},
                {"against", against_ ? json(against_->label) : json()}};
    const std::vector<std::string> unfit = add_unfit(samples, out.data);
    std::vector<std::string> texts;
    for (const Crossing& c : crossings) {
      out.data["crossings"].push_back(crossing_json(c, samples));
      texts.push_back(crossing_text(c));
      out.say("Below {}: {}. From there on: {}.", short_text(key_, c.value), side_text(c.below), side_text(c.above));
    }
    const VariantPair &first = samples.begin()->second, &last = samples.rbegin()->second;
    if (crossings.empty()) {
      const int state = first.state != 0 ? first.state : last.state;
      const bool equal = std::ranges::all_of(samples, [](const auto& s) { return is_equal(s.second); });
      out.data["always"] = equal ? "neither" : name_of_state(state);
      out.text = always_text(state, range, samples, unfit);
      out.say("At {}: {}. At {}: {}.", short_text(key_, first.x), side_text(first), short_text(key_, last.x),
              side_text(last));
    } else {
      texts.insert(texts.end(), unfit.begin(), unfit.end());
      out.text = fmt::format("{}: {}.", against_ ? metric_->label : of_.label, fmt::join(texts, "; "));
    }
    // The nearest comparison shows on which costs the answer depends.
    const auto closest = std::ranges::min_element(samples, [](const auto& a, const auto& b) {
      return std::abs(a.second.log_times()) < std::abs(b.second.log_times());
    });
    const result::Metric& metric = metric_ != nullptr ? *metric_ : *targets_.front().metric;
    out.say("{}", grounds_of(*closest->second.of, metric, "most"));
    for (const auto& [x, s] : samples)
      out.data["samples"].push_back({{"x", json_of(key_, x)},
                                     {"of", s.of_simulated ? number(s.of) : json()},
                                     {"against", s.against_simulated ? number(s.against) : json()}});
    return out;
  }

  // Adds the ranges in which neither variant fits to `data`, and describes each.
  std::vector<std::string> add_unfit(const std::map<double, VariantPair>& samples, json& data) const {
    data["neither_fits"] = json::array();
    std::vector<std::string> texts;
    if (!against_) return texts;
    for (auto at = samples.begin(); at != samples.end();) {
      const auto fits = [](const auto& s) { return s.second.state != 0; };
      const auto first = std::find_if_not(at, samples.end(), fits);
      if (first == samples.end()) break;
      at = std::find_if(first, samples.end(), fits);
      const double low = first->first, high = std::prev(at)->first;
      data["neither_fits"].push_back({json_of(key_, low), json_of(key_, high)});
      const std::string from = short_text(key_, low), to = short_text(key_, high);
      texts.push_back(at == samples.end()        ? fmt::format("neither fits from {} on", from)
                      : first == samples.begin() ? fmt::format("neither fits up to {}", to)
                                                 : fmt::format("neither fits from {} to {}", from, to));
    }
    return texts;
  }

  std::string always_text(int state, const std::string& range, const std::map<double, VariantPair>& samples,
                          const std::vector<std::string>& unfit) const {
    if (!against_) return fmt::format("{}'s targets are {} for all of {}.", of_.label, name_of_state(state), range);
    if (std::ranges::all_of(samples, [](const auto& s) { return is_equal(s.second); }))
      return fmt::format("No crossing: {} and {} are equal for all of {}.", of_.label, against_->label, range);
    if (state == 0) return fmt::format("Neither {} nor {} fits for {}.", of_.label, against_->label, range);
    // If one of them fits only with more memory, the values at which both fit show which is better.
    const bool unknown = std::ranges::none_of(samples, [](const auto& s) { return s.second.finite(); });
    const bool settled = std::ranges::none_of(samples, [&](const auto& s) {
      const VariantPair& at = s.second;
      return state > 0 ? may_be_better(*at.against, *at.of, *metric_, unknown)
                       : may_be_better(*at.of, *at.against, *metric_, unknown);
    });
    return fmt::format("No crossing: {} is better for all of {}{}{}.", name_of_state(state), range,
                       unfit.empty() ? "" : fmt::format(" at which either fits; {}", fmt::join(unfit, "; ")),
                       settled ? "" : ", though uncertain costs or memory leave this open in part");
  }

  Variant of_;
  std::optional<Variant> against_;
  SourceLocation metric_where_;
  VariedKey key_;
  double from_ = 0, to_ = 0;
};

constexpr config::Key<Node> kBreakEvenKeys[] = {
    {"key", kNeededText}, {"from", kNeeded}, {"to", kNeeded}, {"metric"}, {"of"}, {"against"}, {"targets"}};
constexpr std::string_view kBetweenVariants[] = {"against", "metric"}, kWithinTargets[] = {"targets"};

}  // namespace

Chart draw_break_even(const json& data, const Machines& machines);

constinit const Kind kBreakEven{.name = "break_even",
                                .draw = draw_break_even,
                                .make = make<BreakEven>,
                                .keys = kBreakEvenKeys,
                                .either = kBetweenVariants,
                                .other = kWithinTargets};

}  // namespace kvcast::plan

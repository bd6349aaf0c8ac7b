#include "plan/findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "result/metric.hpp"

namespace kvcast::plan {
namespace {

// "quest, budget 1024": the name and every parameter that the configuration sets.
std::string policy_text(const result::Subject& subject) {
  constexpr std::string_view kPrefix = "policy.";
  std::string text = subject.policy;
  for (const result::Setting& setting : subject.settings) {
    if (!setting.key.starts_with(kPrefix) || setting.key == "policy.name") continue;
    text += fmt::format(", {} {}", setting.key.substr(kPrefix.size()), result::text_of(setting.value));
  }
  return text;
}

// Three significant digits without an exponent: 1050, 82.3.
std::string rate_text(double tokens_per_s) {
  if (tokens_per_s < 100) return fmt::format("{:.3g}", tokens_per_s);
  const double unit = std::pow(10, std::floor(std::log10(tokens_per_s)) - 2);
  return fmt::format("{:.0f}", std::round(tokens_per_s / unit) * unit);
}

std::string tokens_text(std::int64_t tokens) {
  return tokens >= 10240 ? fmt::format("{}K", (tokens + 512) / 1024) : fmt::format("{}", tokens);
}

// What experiments share that can be set beside each other.
using Place = std::tuple<std::string, std::string, std::string, std::int64_t>;
Place place_of(const Row& r) { return {r.model, r.hardware, r.trace, r.decode_tokens}; }

// By place, in order of appearance.
std::vector<std::vector<Row>> by_place(const std::vector<Row>& rows) {
  std::vector<std::vector<Row>> places;
  std::map<Place, std::size_t> at;
  for (const Row& r : rows) {
    const auto [found, fresh] = at.emplace(place_of(r), places.size());
    if (fresh) places.emplace_back();
    places[found->second].push_back(r);
  }
  return places;
}

// A place's card, and what else of it the sweep varies.
std::string place_text(const Row& here, const std::vector<Row>& all) {
  const auto varies = [&](auto member) {
    return std::any_of(all.begin(), all.end(), [&](const Row& r) { return r.*member != here.*member; });
  };
  std::string text = varies(&Row::model) ? here.model + " on " + here.hardware : here.hardware;
  if (varies(&Row::trace)) text += ", " + here.trace;
  if (varies(&Row::decode_tokens)) text += fmt::format(", {} generated", here.decode_tokens);
  return text;
}

// The rows that fit and keep enough, among those that `wanted` lets through; fastest first.
template <typename Wanted>
std::vector<Row> recommended(const std::vector<Row>& rows, const Wanted& wanted) {
  double best_recall = 0;
  const auto candidate = [&wanted](const Row& r) { return !r.oom && !r.oracle && wanted(r); };
  for (const Row& r : rows) {
    if (candidate(r)) best_recall = std::max(best_recall, r.recall);
  }
  std::vector<Row> good;
  for (const Row& r : rows) {
    if (candidate(r) && r.recall >= kRecallShare * best_recall) good.push_back(r);
  }
  std::stable_sort(good.begin(), good.end(),
                   [](const Row& a, const Row& b) { return a.tokens_per_s > b.tokens_per_s; });
  return good;
}

struct Limit {
  std::int64_t context = 0, batch = 0;
};

// The longest context, and the largest batch at which anything fits there.
std::optional<Limit> memory_limit(const std::vector<Row>& rows) {
  std::optional<Limit> limit;
  for (const Row& r : rows) {
    if (r.oom) continue;
    const auto size = [](const Limit& l) { return std::pair{l.context, l.batch}; };
    if (!limit || size({r.context, r.batch}) > size(*limit)) limit = Limit{r.context, r.batch};
  }
  return limit;
}

// What is recommended at the memory limit, fastest first.
std::vector<Row> ranked(const std::vector<Row>& rows) {
  const auto limit = memory_limit(rows);
  if (!limit) return {};
  return recommended(rows, [&](const Row& r) { return r.context == limit->context && r.batch == limit->batch; });
}

const Row* full_at(const std::vector<Row>& rows, std::int64_t context, std::int64_t batch) {
  for (const Row& r : rows) {
    if (r.context == context && r.batch == batch && r.policy_name == "full") return &r;
  }
  return nullptr;
}

struct Line {
  std::string text, detail;
};

// How far the best leads the next policy of another name, told as what the uncertainty of costs leaves of it.
std::string lead_text(const std::vector<Row>& ranking) {
  const Row& best = ranking.front();
  for (const Row& next : ranking) {
    if (next.policy_name == best.policy_name) continue;
    const Interval lead = times_as_fast(best, next);
    const std::string times = fmt::format("{:.3g} to {:.3g} times as fast as {}", lead.low, lead.high, next.policy);
    return lead.low > 1 ? times : fmt::format("not told apart from the next: {}", times);
  }
  return "";
}

Line best_line(const std::vector<Row>& rows, const std::vector<Row>& ranking) {
  const Row& best = ranking.front();
  const Row* full = full_at(rows, best.context, best.batch);
  Line line;
  line.text = fmt::format("{} ({} tokens/s at {} tokens, batch {})", best.policy, rate_text(best.tokens_per_s),
                          tokens_text(best.context), best.batch);
  line.detail = fmt::format("between {} and {} tokens/s, {:.1f} % of the attention mass kept", rate_text(best.low),
                            rate_text(best.high), 100 * best.recall);
  if (best.score) {
    line.detail += fmt::format(", {:.0f} to {:.0f} % of the uncompressed model's task score", 100 * best.score->low,
                               100 * best.score->high);
  }
  if (full != nullptr) {
    line.detail +=
        full->oom ? ", full KV does not fit" : fmt::format(", full KV {} tokens/s", rate_text(full->tokens_per_s));
  }
  if (const std::string lead = lead_text(ranking); !lead.empty()) line.detail += "; " + lead;
  return line;
}

struct BreakEven {
  // By context, the smallest batch at which the policy is faster than full KV.
  std::map<std::int64_t, std::string> first;
  // Whether full KV was swept beside the policy anywhere.
  bool compared = false;
};

BreakEven break_even(const std::vector<Row>& rows, const Row& best) {
  std::map<std::pair<std::int64_t, std::int64_t>, const Row*> of_policy;
  for (const Row& r : rows) {
    if (r.policy == best.policy && !r.oom) of_policy[{r.context, r.batch}] = &r;
  }
  BreakEven out;
  std::map<std::int64_t, std::string>& first = out.first;
  for (const auto& [point, row] : of_policy) {
    const auto [context, batch] = point;
    const Row* full = full_at(rows, context, batch);
    if (full == nullptr) continue;
    out.compared = true;
    if (first.count(context) != 0) continue;
    if (full->oom) first[context] = fmt::format("{} (full KV no longer fits)", batch);
    if (!full->oom && row->tokens_per_s > full->tokens_per_s) first[context] = fmt::format("{}", batch);
  }
  return out;
}

Line break_even_line(const std::vector<Row>& rows, const std::vector<Row>& ranking) {
  const Row& best = ranking.front();
  if (best.policy_name == "full") return {"full KV is the fastest here", ""};
  const BreakEven found = break_even(rows, best);
  if (!found.compared) return {fmt::format("{} was not swept beside full KV", best.policy), ""};
  std::map<std::string, std::vector<std::string>> contexts;  // by batch
  std::vector<std::string> batches;                          // in order of the first context
  for (const auto& [context, batch] : found.first) {
    if (contexts.count(batch) == 0) batches.push_back(batch);
    contexts[batch].push_back(tokens_text(context));
  }
  std::vector<std::string> parts;
  for (const std::string& batch : batches) {
    parts.push_back(fmt::format("{} at {}", batch, fmt::join(contexts[batch], ", ")));
  }
  if (parts.empty()) return {fmt::format("{} is never faster than full KV in this sweep", best.policy), ""};
  return {fmt::format("{} beats full KV from batch {}", best.policy, fmt::join(parts, "; ")),
          "the smallest swept batch at which it is faster, by context"};
}

Line bound_line(const std::vector<Row>& rows, const std::vector<Row>& ranking) {
  const Row& best = ranking.front();
  const Row* full = full_at(rows, best.context, 1);
  const std::string detail = full != nullptr && !full->oom ? fmt::format("full KV at batch 1: {}", full->bound) : "";
  return {fmt::format("{} sets the pace of {}", best.bound, best.policy), detail};
}

// How far a cost may move the step, whichever way is farther: 1 is not at all.
double reach(const Row::Factors& f) { return std::max(f.longer, 1 / f.shorter); }

std::string percent_text(double factor) { return fmt::format("{:+.0f} %", 100 * (factor - 1)); }

Line uncertain_line(const std::vector<Row>&, const std::vector<Row>& ranking) {
  constexpr std::size_t kTold = 3;
  const Row& best = ranking.front();
  std::vector<std::pair<std::string, Row::Factors>> moved(best.moved_by.begin(), best.moved_by.end());
  moved.emplace_back("other layers and steps", best.of_trace);
  std::erase_if(moved, [](const auto& m) { return !is_significant(m.second); });
  std::stable_sort(moved.begin(), moved.end(),
                   [](const auto& a, const auto& b) { return reach(a.second) > reach(b.second); });
  if (moved.empty()) return {fmt::format("no cost moves {} by a per cent", best.policy), ""};
  std::vector<std::string> others;
  for (std::size_t i = 1; i < std::min(kTold, moved.size()); ++i) {
    const auto& [keys, f] = moved[i];
    others.push_back(fmt::format("{}: {} to {}", keys, percent_text(f.shorter), percent_text(f.longer)));
  }
  const auto& [keys, most] = moved.front();
  return {fmt::format("{} may move a step of {} by {} to {}", keys, best.policy, percent_text(most.shorter),
                      percent_text(most.longer)),
          others.empty() ? "" : fmt::format("then {}", fmt::join(others, "; "))};
}

}  // namespace

std::string name_of(const std::vector<std::string>& keys) {
  if (keys.empty()) return "?";
  return keys.size() == 1 ? keys[0] : fmt::format("{} and {} of the same source", keys[0], keys.size() - 1);
}

bool is_significant(const Row::Factors& factors) {
  constexpr double kTimesAsLong = 1.01;
  return reach(factors) >= kTimesAsLong;
}

Interval times_as_fast(const Row& a, const Row& b) {
  std::set<std::string> causes;
  for (const Row* row : {&a, &b}) {
    for (const auto& [cause, factors] : row->moved_by) causes.insert(cause);
  }
  const auto factors = [](const Row& row, const std::string& cause) {
    const auto found = row.moved_by.find(cause);
    return found == row.moved_by.end() ? Row::Factors{} : found->second;
  };
  FactorSpread spread;
  for (const std::string& cause : causes) {
    const Row::Factors of_a = factors(a, cause), of_b = factors(b, cause);
    spread.add(std::array{of_b.shorter / of_a.shorter, of_b.longer / of_a.longer});
  }
  spread.add(std::array{1 / a.of_trace.shorter, 1 / a.of_trace.longer});
  spread.add(std::array{b.of_trace.shorter, b.of_trace.longer});
  return spread.interval(a.tokens_per_s / b.tokens_per_s);
}

Row row_of(const result::Result& result) {
  using result::find_metric;
  const result::Subject& subject = result.subject;
  Row row;
  row.model = subject.model, row.hardware = subject.hardware, row.trace = subject.trace;
  row.decode_tokens = subject.decode_tokens, row.context = subject.prompt_tokens, row.batch = subject.batch;
  row.policy_name = subject.policy;
  row.policy = policy_text(subject);
  row.oracle = subject.policy_category.find("oracle") != std::string::npos;
  row.oom = !result.has_times();
  row.recall = result.accuracy.recall_mass_mean;
  if (result.accuracy.task) row.score = result.accuracy.task->interval;
  if (row.oom) return row;
  row.tokens_per_s = result.experiment.tokens_per_s;
  const Interval rate = interval(result, *find_metric("decode.tokens_per_s")).value();
  row.low = rate.low, row.high = rate.high;
  row.bound = result::bottleneck(result.experiment.step);
  for (const result::Effect& effect : result.experiment.effects) {
    const Row::Factors factors{effect.shorter.step, effect.longer.step};
    (effect.source == result::kTraceSample ? row.of_trace : row.moved_by[name_of(effect.keys)]) = factors;
  }
  return row;
}

namespace {

// A line a place that has something to tell; one where all places have the same.
std::string details_text(const std::vector<std::pair<std::string, std::string>>& details) {
  const bool same = details.size() > 1 && std::all_of(details.begin(), details.end(), [&](const auto& d) {
                      return d.second == details.front().second;
                    });
  if (same) return details.front().second;
  std::string text;
  for (const auto& [place, detail] : details) {
    if (!detail.empty()) text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", place, detail);
  }
  return text;
}

}  // namespace

std::vector<Finding> findings(const std::vector<Row>& rows) {
  using Describe = Line (*)(const std::vector<Row>& rows, const std::vector<Row>& ranking);
  static constexpr std::pair<const char*, Describe> kKinds[] = {{"Best policy at the memory limit", best_line},
                                                                {"Break-even batch", break_even_line},
                                                                {"Binding resource", bound_line},
                                                                {"What to measure first", uncertain_line}};
  std::vector<Finding> all;
  for (const auto& [title, describe] : kKinds) {
    Finding finding{title, "", ""};
    std::vector<std::pair<std::string, std::string>> details;  // by place
    for (const std::vector<Row>& here : by_place(rows)) {
      const std::string place = place_text(here.front(), rows);
      const std::vector<Row> ranking = ranked(here);
      const Line line = ranking.empty() ? Line{"nothing in this sweep fits", ""} : describe(here, ranking);
      finding.text += fmt::format("{}{}: {}", finding.text.empty() ? "" : "\n", place, line.text);
      details.emplace_back(place, line.detail);
    }
    finding.detail = details_text(details);
    all.push_back(std::move(finding));
  }
  return all;
}

std::vector<Finding> findings(std::span<const result::Result> results) {
  std::vector<Row> rows;
  for (const result::Result& result : results) {
    if (result.status != result::Status::kFailed) rows.push_back(row_of(result));
  }
  return findings(rows);
}

}  // namespace kvcast::plan

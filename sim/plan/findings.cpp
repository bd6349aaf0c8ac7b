#include "plan/findings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/units.hpp"
#include "plan/compare.hpp"
#include "plan/replicas.hpp"
#include "plan/setting_text.hpp"
#include "plan/sweep_view.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {
namespace {

using result::Result;

// ResultRows by group, in order of appearance.
std::vector<ResultRows> by_group(const ResultRows& rows) {
  std::vector<ResultRows> groups;
  std::map<Group, std::size_t> at;
  for (const Result* r : rows) {
    const auto [found, fresh] = at.emplace(group_of(*r), groups.size());
    if (fresh) groups.emplace_back();
    groups[found->second].push_back(r);
  }
  return groups;
}

// Describes a group: its machine, and the other swept values that it fixes.
std::string group_text(const Result& here, const ResultRows& all) {
  const auto varies = [&](auto member) {
    return std::ranges::any_of(all, [&](const Result* r) { return r->subject.*member != here.subject.*member; });
  };
  using result::Subject;
  std::string text =
      varies(&Subject::model) ? here.subject.model + " on " + here.subject.hardware : here.subject.hardware;
  if (varies(&Subject::trace) && !std::get<2>(group_of(here)).empty()) text += ", " + here.subject.trace;
  if (varies(&Subject::decode_tokens)) text += fmt::format(", {} generated", here.subject.decode_tokens);
  const std::string score = benchmark_of(here);
  if (std::ranges::any_of(all, [&](const Result* r) { return benchmark_of(*r) != score; })) text += ", score " + score;
  return text;
}

std::string ratio_text(double times) {
  if (times < 2) return fmt::format("{:.3g} × full KV", times);  // "1 ×" would hide a lead of 4 %
  return times < 10 ? fmt::format("{:.2g} × full KV", times) : fmt::format("{:.0f} × full KV", times);
}

struct Bar {
  std::string label, text;
  double from, to;
};

struct Line {
  std::string text, detail;
  std::string number = {};
  std::vector<Bar> bars = {};
};

Bar rate_bar(const Result& r) {
  return {r.subject.uncompressed() ? "full KV" : r.subject.policy, requests_rate_text(r), 0, requests_rate_of(r)};
}

std::string score_text(const Result& r, const config::ScoreChoice& choice) {
  if (!r.benchmark) return "";
  const result::BenchmarkScore& s = *r.benchmark;
  std::string text = fmt::format("predicted {} score {:.1f} % of full KV's", s.benchmark, 100 * s.share_of_full);
  if (s.interval.low < s.interval.high) {
    text += fmt::format(" ({:.1f} to {:.1f} %)", 100 * s.interval.low, 100 * s.interval.high);
  }
  return text + fmt::format(", floor {:.3g} %", 100 * choice.floor);
}

std::string batch_text(const Result& r, const Result& best) {
  return r.subject.batch == best.subject.batch ? "" : fmt::format(" at batch {}", r.subject.batch);
}

bool swept_full(const ResultRows& rows) {
  return std::ranges::any_of(rows, [](const Result* r) { return r->subject.uncompressed(); });
}

// Describes the fastest setting that is certain to meet the floor, if the recommended one's interval reaches below it.
std::string safe_text(const SweepView& view) {
  const auto is_safe = [&](const Result* r) { return r->benchmark && r->benchmark->interval.low >= view.score.floor; };
  const Result& best = view.best();
  if (!best.benchmark || is_safe(&best)) return "";
  const auto safe = std::ranges::find_if(view.ranking, is_safe);
  if (safe == view.ranking.end()) return "no setting's whole score interval is above the floor";
  return fmt::format("of those whose whole score interval is above the floor, {}{} serves most ({})",
                     describe_setting(**safe), batch_text(**safe, best), requests_rate_text(**safe));
}

// Describes the settings that were left out because they have no score, with a reason.
std::string unscored_text(const SweepView& view) {
  if (view.score.benchmark == config::ScoreChoice::kNone) return "no score was requested, so there is no floor";
  std::set<std::string> settings;
  std::string reason;
  for (const Result* r : view.longest) {
    if (r->benchmark || is_oracle(*r)) continue;
    settings.insert(describe_setting(*r));
    if (reason.empty()) reason = r->benchmark_refused;
  }
  if (settings.empty()) return "";
  return fmt::format("not considered, because no score is predicted: {}{}",
                     settings.size() == 1 ? *settings.begin() : fmt::format("{} settings", settings.size()),
                     reason.empty() ? "" : fmt::format(" ({})", reason));
}

Line best_line(const SweepView& view) {
  const Result& best = view.best();
  const Interval rate = result::interval(best, requests_rate()).value();
  Line line;
  line.text = fmt::format("{} at {} tokens, batch {}: {}", describe_setting(best),
                          tokens_text(best.subject.prompt_tokens), best.subject.batch, request_text(best));
  if (best.borderline) line.text += "; borderline in memory";
  const ResultRows tied = ties_of(view);
  if (!tied.empty()) line.text += fmt::format("; {} tie{} with it", tied.size(), tied.size() == 1 ? "s" : "");
  if (best.benchmark && best.benchmark->interval.low < view.score.floor)
    line.text += fmt::format("; its score may be as low as {:.1f} %", 100 * best.benchmark->interval.low);
  std::vector<std::string> parts{fmt::format("{:.3g} to {:.3g} requests/s", rate.low, rate.high)};
  const auto add = [&parts](std::string text) {
    if (!text.empty()) parts.push_back(std::move(text));
  };
  add(score_text(best, view.score));
  line.number = requests_rate_text(best);
  line.bars.push_back(rate_bar(best));
  const Result* const full = best_full(view);
  if (!best.subject.uncompressed()) {
    if (full != nullptr) {
      const Lead lead = lead_of(view, best, *full);
      add(lead_text(best, *full, lead, "full KV"));
      const Comparison& c = lead.headline();
      if (c.known()) {
        line.number = is_tie(c)
                          ? "as many requests/s as full KV"
                          : ratio_text(c.times) + (lead.searched ? "" : fmt::format(" at batch {}", lead.equal_batch));
      }
    }
    if (full == nullptr && swept_full(view.longest)) add("full KV does not fit");
  }
  if (!tied.empty()) add(ties_text(best, tied));
  const auto next =
      std::ranges::find_if(view.ranking, [&](const Result* r) { return r->subject.policy != best.subject.policy; });
  if (next != view.ranking.end() && !(*next)->subject.uncompressed()) {
    line.bars.push_back(rate_bar(**next));
    add(lead_text(best, **next, lead_of(view, best, **next),
                  fmt::format("the next policy, {}", describe_setting(**next))));
  }
  if (full != nullptr && full != &best) line.bars.push_back(rate_bar(*full));
  add(safe_text(view));
  add(unscored_text(view));
  line.detail = fmt::format("{}", fmt::join(parts, "; "));
  return line;
}

// The smallest swept batch from which on the recommended setting serves more requests than full KV.
struct FirstBatch {
  std::int64_t batch = 0, certain = 0;    // certain: smallest one with a lead beyond the uncertainty; 0: none
  bool smallest = false, misfit = false;  // of all swept batches; full KV does not fit
};

std::string text_of(const FirstBatch& first) {
  std::string notes = first.misfit ? "; full KV no longer fits" : first.smallest ? "; the smallest swept" : "";
  if (first.certain == 0) notes += "; within uncertainty";
  if (first.certain > first.batch) notes += fmt::format("; within uncertainty below {}", first.certain);
  return fmt::format("{}{}", first.batch, notes.empty() ? "" : " (" + notes.substr(2) + ")");
}

// Keyed by context. A larger batch at which full KV is as fast or faster discards the one found.
std::map<std::int64_t, FirstBatch> first_batches(const SweepView& view, std::vector<Bar>& bars) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::pair<const Result*, const Result*>> pairs;  // setting, full
  const std::string setting = describe_setting(view.best());
  for (const Result* r : view.here) {
    auto& pair = pairs[{r->subject.prompt_tokens, r->subject.batch}];
    if (describe_setting(*r) == setting) pair.first = r;
    if (r->subject.uncompressed()) pair.second = r;
  }
  std::map<std::int64_t, FirstBatch> first;
  std::int64_t context = 0;
  for (const auto& [point, pair] : pairs) {
    const auto& [own, full] = pair;
    if (own == nullptr || full == nullptr || !own->has_times()) continue;
    const Comparison c = compare(*own, *full, requests_rate());
    const bool smallest = point.first != context;
    if (smallest) bars.clear();  // only those of the longest context are reported
    context = point.first;
    bars.push_back({fmt::format("{} tokens, batch {}", tokens_text(point.first), point.second),
                    full->has_times() ? ratio_text(c.times) : "full KV does not fit", 0,
                    full->has_times() ? c.times : 0});
    if (full->has_times() && !c.first_better()) {
      first.erase(point.first);
      continue;
    }
    FirstBatch& found =
        first.try_emplace(point.first, FirstBatch{point.second, 0, smallest, !full->has_times()}).first->second;
    if (found.certain == 0 && (!full->has_times() || c.beyond_uncertainty())) found.certain = point.second;
  }
  return first;
}

Line break_even_line(const SweepView& view) {
  const Result& best = view.best();
  if (best.subject.uncompressed()) {
    return {fmt::format("full KV serves most of all that {}",
                        view.score.benchmark == config::ScoreChoice::kNone ? "was swept" : "meets the floor"),
            ""};
  }
  std::vector<Bar> bars;
  const auto first = first_batches(view, bars);
  if (bars.empty()) return {describe_setting(best) + " was not swept together with full KV", ""};
  std::map<std::string, std::vector<std::string>> contexts;  // by batch
  std::vector<std::string> batches;                          // in order of the first context
  for (const auto& [context, found] : first) {
    const std::string batch = text_of(found);
    if (!contexts.contains(batch)) batches.push_back(batch);
    contexts[batch].push_back(tokens_text(context));
  }
  std::vector<std::string> parts;
  for (const std::string& batch : batches)
    parts.push_back(fmt::format("batch {} on at {} tokens", batch, fmt::join(contexts[batch], ", ")));
  if (parts.empty())
    return {describe_setting(best) + " does not serve more than full KV at equal batch in this sweep", "", "never",
            bars};
  return {
      fmt::format("{} serves more requests than full KV from {}", describe_setting(best), fmt::join(parts, ", from ")),
      "the smallest swept batch from which on it serves more, by context",
      fmt::format("batch {}", first.rbegin()->second.batch), bars};
}

Line bound_line(const SweepView& view) {
  const Result& best = view.best();
  const Result* const full = best_full(view);
  const std::string detail =
      full == nullptr || full == &best
          ? ""
          : fmt::format("full KV at batch {}: {}", full->subject.batch, result::bottleneck(full->experiment.step));
  const metrics::Attribution& step = best.experiment.step;
  Line line{fmt::format("{} is bound by {} while decoding", describe_setting(best), result::bottleneck(step)), detail};
  for (std::size_t b = 0; b < step.bound.size(); ++b) {
    const double share = step.bound[b] / step.total();
    const std::string name(metrics::bound_name(static_cast<metrics::Bound>(b)));
    if (share >= 0.01) line.bars.push_back({name, fmt::format("{:.0f} % of a step", 100 * share), 0, share});
  }
  std::ranges::stable_sort(line.bars, [](const Bar& a, const Bar& b) { return a.to > b.to; });
  if (!line.bars.empty()) line.number = fmt::format("{:.0f} % {}", 100 * line.bars.front().to, line.bars.front().label);
  return line;
}

std::string percent_text(double factor) { return fmt::format("{} %", format_change(100 * (factor - 1), 0)); }

Line uncertain_line(const SweepView& view) {
  constexpr std::size_t kReported = 3;
  const Result& best = view.best();
  std::vector<result::Effect> effects = best.experiment.effects;
  std::erase_if(effects, [](const auto& e) { return !is_significant(e.longer.step, e.shorter.step); });
  effects = result::by_reach(std::move(effects));
  if (effects.empty()) return {fmt::format("no cost changes {} by one per cent", describe_setting(best)), ""};
  std::vector<std::string> texts;
  std::vector<Bar> bars;
  for (std::size_t i = 0; i < std::min(kReported, effects.size()); ++i) {
    const result::Effect& e = effects[i];
    const std::string name = e.source == result::kTraceSample ? "other texts and layers" : name_of(e.keys);
    const std::string range = fmt::format("{} to {}", percent_text(e.shorter.step), percent_text(e.longer.step));
    texts.push_back(i == 0 ? fmt::format("{} may change a step of {} by {}", name, describe_setting(best), range)
                           : fmt::format("{}: {}", name, range));
    bars.push_back({name, range, e.shorter.step - 1, e.longer.step - 1});
  }
  const std::string text = texts.front();
  texts.erase(texts.begin());
  return {text, texts.empty() ? "" : fmt::format("then {}", fmt::join(texts, "; ")), bars.front().text, bars};
}

nlohmann::json group_json(const std::string& group, const Line& line) {
  nlohmann::json bars = nlohmann::json::array();
  for (const Bar& b : line.bars) bars.push_back({{"label", b.label}, {"text", b.text}, {"from", b.from}, {"to", b.to}});
  return {{"place", group}, {"text", line.text}, {"number", line.number}, {"bars", std::move(bars)}};
}

// One line per group that has details; a single line if all groups have the same.
std::string details_text(const std::vector<std::pair<std::string, std::string>>& details) {
  const bool same = details.size() > 1 &&
                    std::ranges::all_of(details, [&](const auto& d) { return d.second == details.front().second; });
  if (same) return details.front().second;
  std::string text;
  for (const auto& [group, detail] : details) {
    if (!detail.empty()) text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", group, detail);
  }
  return text;
}

// Explains why nothing is recommended: nothing fits, or nothing keeps enough.
Line nothing_line(const SweepView& view) {
  ResultRows fits;
  std::ranges::copy_if(view.longest, std::back_inserter(fits), &Result::has_times);
  if (fits.empty()) return {"nothing in this sweep fits", ""};
  std::erase_if(fits, [](const Result* r) { return is_oracle(*r); });
  if (fits.empty()) return {"nothing but oracles of selection fits", ""};
  const auto share = [](const Result* r) { return r->benchmark ? r->benchmark->share_of_full : -1.0; };
  const Result& nearest = **std::ranges::max_element(fits, {}, share);
  std::string text = fmt::format("nothing that fits is predicted to keep {:.3g} % of full KV's {} score",
                                 100 * view.score.floor, view.score.benchmark);
  if (nearest.benchmark) {
    text += fmt::format("; {} comes nearest with {:.1f} %", describe_setting(nearest), 100 * share(&nearest));
  }
  return {text, unscored_text(view)};
}

}  // namespace

Group group_of(const Result& r) {
  const result::Subject& s = r.subject;
  const bool seeded = std::ranges::any_of(s.swept, [](const auto& e) { return is_seed(e.first); });
  return {s.model, s.hardware, seeded ? "" : s.trace, s.decode_tokens, benchmark_of(r)};
}

bool FirstGroups::has(const Result& r) {
  if (r.status == result::Status::kFailed || r.build) return false;
  if (groups_.size() < kMostGroups) groups_.insert(group_of(r));
  return groups_.contains(group_of(r));
}

std::vector<Finding> findings(std::span<const Result> results, const config::ScoreChoice& score,
                              const SearchBatches& search) {
  using Describe = Line (*)(const SweepView& view);
  static constexpr std::pair<const char*, Describe> kKinds[] = {{"Best policy at the longest context", best_line},
                                                                {"Break-even batch", break_even_line},
                                                                {"Bottleneck", bound_line},
                                                                {"Largest uncertainty", uncertain_line}};
  ResultRows rows;
  for (const Result& r : results) {
    if (r.status != result::Status::kFailed && !r.build) rows.push_back(&r);
  }
  std::vector<ResultRows> groups = by_group(middle_replicas(rows));
  const std::size_t left_out = groups.size() - std::min(groups.size(), kMostGroups);
  groups.resize(groups.size() - left_out);
  std::vector<SweepView> views;
  for (const ResultRows& here : groups) {
    views.push_back(view_of(here, score, views.size() < kSearchedGroups ? search : SearchBatches{}));
  }
  std::vector<Finding> all;
  if (views.empty()) return all;  // a shard without experiments
  for (const auto& [title, describe] : kKinds) {
    Finding finding{title, "", ""};
    std::vector<std::pair<std::string, std::string>> details;  // by group
    nlohmann::json lines = nlohmann::json::array();
    for (const SweepView& view : views) {
      if (view.ranking.empty() && !all.empty()) continue;  // the first finding has said why
      const std::string group = group_text(*view.here.front(), rows);
      const Line line = view.ranking.empty() ? nothing_line(view) : describe(view);
      finding.text += fmt::format("{}{}: {}", finding.text.empty() ? "" : "\n", group, line.text);
      details.emplace_back(group, line.detail);
      lines.push_back(group_json(group, line));
    }
    if (lines.empty() && !all.empty()) continue;
    if (left_out > 0) finding.text += fmt::format("\n{} further groups are not described", left_out);
    finding.places = lines.dump();
    finding.detail = details_text(details);
    all.push_back(std::move(finding));
  }
  return all;
}

}  // namespace kvcast::plan

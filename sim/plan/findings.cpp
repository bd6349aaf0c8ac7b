#include "plan/findings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
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

// Machine, model, trace (of rows without seeds), generated tokens, benchmark.
using Group = std::tuple<int, int, int, std::int64_t, int>;
Group group_of(const ResultRow& r) {
  return {r.model, r.hardware, r.replica < 0 ? r.trace : -1, r.decode_tokens, r.benchmark};
}

// Rows by group, in order of appearance, and the number of further groups.
struct Groups {
  std::vector<ResultRows> described;
  std::size_t left_out = 0;

  explicit Groups(const ResultRows& rows) {
    std::map<Group, std::size_t> at;
    for (const ResultRow& r : rows) {
      const auto [found, fresh] = at.emplace(group_of(r), at.size());
      if (found->second >= kMostGroups) continue;
      if (fresh) described.emplace_back();
      described[found->second].push_back(r);
    }
    left_out = at.size() - described.size();
  }
};

// The properties in which the rows of different groups differ.
struct Varied {
  bool model = false, trace = false, decode_tokens = false, benchmark = false;

  explicit Varied(const ResultRows& rows) {
    for (const ResultRow& r : rows) {
      const ResultRow& first = rows.front();
      model |= r.model != first.model, trace |= r.trace != first.trace;
      decode_tokens |= r.decode_tokens != first.decode_tokens, benchmark |= r.benchmark != first.benchmark;
    }
  }
};

// Describes a group: its machine, and the other swept values that it fixes.
std::string group_text(const ResultRow& here, const Texts& texts, const Varied& varied) {
  std::string text = varied.model ? texts[here.model] + " on " + texts[here.hardware] : texts[here.hardware];
  if (varied.trace && here.replica < 0 && !texts[here.trace].empty()) text += ", " + texts[here.trace];
  if (varied.decode_tokens) text += fmt::format(", {} generated", here.decode_tokens);
  if (varied.benchmark) text += ", score " + texts[here.benchmark];
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
  nlohmann::json best = {}, full = {};  // numbers of the recommended setting and of full KV, each at its best batch
};

// As the rows of a report's experiments name them.
nlohmann::json numbers_of(const Result& r) {
  nlohmann::json out = {{"batch", r.subject.batch}};
  for (const char* const name : {"rps", "hbm", "request_cost"}) {
    if (const auto value = result::value(r, *result::find_metric(name))) out[name] = *value;
  }
  if (const auto rate = result::interval(r, requests_rate())) out["rps_low"] = rate->low, out["rps_high"] = rate->high;
  return out;
}

Bar rate_bar(const SweepView& view, const ResultRow& r) {
  return {r.uncompressed ? "full KV" : view.texts[r.policy], requests_rate_text(r), 0, r.requests_per_s};
}

// Returns whether both are the same row or the same searched batch.
bool is_same(const ResultRow& a, const ResultRow& b) { return a.index == b.index && a.searched == b.searched; }

std::string score_text(const Result& r, const config::ScoreChoice& choice) {
  if (!r.benchmark) return "";
  const result::BenchmarkScore& s = *r.benchmark;
  std::string text = fmt::format("predicted {} score {:.1f} % of full KV's", s.benchmark, 100 * s.share_of_full);
  if (s.interval.low < s.interval.high) {
    text += fmt::format(" ({:.1f} to {:.1f} %)", 100 * s.interval.low, 100 * s.interval.high);
  }
  return text + fmt::format(", floor {:.3g} %", 100 * choice.floor);
}

std::string batch_text(const ResultRow& r, const ResultRow& best) {
  return r.batch == best.batch ? "" : fmt::format(" at batch {}", r.batch);
}

// Describes the fastest setting that is certain to meet the floor, if the recommended one's interval reaches below it.
std::string safe_text(const SweepView& view) {
  const auto is_safe = [&](const ResultRow& r) { return r.has_score() && r.least_score >= view.score.floor; };
  const ResultRow& best = view.ranking.front();
  if (!best.has_score() || is_safe(best)) return "";
  const auto safe = std::ranges::find_if(view.ranking, is_safe);
  if (safe == view.ranking.end()) return "no setting's whole score interval is above the floor";
  return fmt::format("of those whose whole score interval is above the floor, {}{} serves most ({})",
                     view.setting(*safe), batch_text(*safe, best), requests_rate_text(*safe));
}

// Describes the settings that were left out because they have no score, with a reason.
std::string unscored_text(const SweepView& view) {
  if (view.score.benchmark == config::ScoreChoice::kNone) return "no score was requested, so there is no floor";
  std::set<int> settings;
  std::string reason;
  for (const ResultRow& r : view.longest) {
    if (r.has_score() || r.oracle) continue;
    settings.insert(r.setting);
    if (reason.empty()) reason = view.texts[r.refused];
  }
  if (settings.empty()) return "";
  return fmt::format("not considered, because no score is predicted: {}{}",
                     settings.size() == 1 ? view.texts[*settings.begin()] : fmt::format("{} settings", settings.size()),
                     reason.empty() ? "" : fmt::format(" ({})", reason));
}

// Adds to the line how the best setting compares with full KV.
void add_full(const SweepView& view, const std::optional<ResultRow>& full, Line& line,
              std::vector<std::string>& parts) {
  const ResultRow& best = view.ranking.front();
  if (!full) {
    if (std::ranges::any_of(view.longest, &ResultRow::uncompressed)) parts.push_back("full KV does not fit");
    return;
  }
  const Lead lead = lead_of(view, best, *full);
  parts.push_back(lead_text(best, *full, lead, "full KV"));
  const Comparison& c = lead.headline();
  if (!c.known()) return;
  line.number = is_tie(c) ? "as many requests/s as full KV"
                          : ratio_text(c.times) + (lead.searched ? "" : fmt::format(" at batch {}", lead.equal_batch));
}

Line best_line(const SweepView& view) {
  const ResultRow& best = view.ranking.front();
  const Interval rate = result::interval(*view.best, requests_rate()).value();
  Line line;
  line.text = fmt::format("{} at {} tokens, batch {}: {}", view.setting(best), tokens_text(best.prompt_tokens),
                          best.batch, request_text(*view.best));
  if (best.borderline) line.text += "; borderline in memory";
  const ResultRows tied = ties_of(view);
  if (!tied.empty()) line.text += fmt::format("; {} tie{} with it", tied.size(), tied.size() == 1 ? "s" : "");
  if (best.has_score() && best.least_score < view.score.floor)
    line.text += fmt::format("; its score may be as low as {:.1f} %", 100 * best.least_score);
  std::vector<std::string> parts{
      fmt::format("{} to {} requests/s", format_digits(rate.low, 3), format_digits(rate.high, 3))};
  const auto add = [&parts](std::string text) {
    if (!text.empty()) parts.push_back(std::move(text));
  };
  add(score_text(*view.best, view.score));
  line.number = requests_rate_text(best);
  line.bars.push_back(rate_bar(view, best));
  line.best = numbers_of(*view.best);
  const std::optional<ResultRow> full = best_full(view);
  if (full) line.full = numbers_of(*view.result(*full));
  if (!best.uncompressed) add_full(view, full, line, parts);
  if (!tied.empty()) add(ties_text(view, tied));
  const auto next = std::ranges::find_if(view.ranking, [&](const ResultRow& r) { return r.policy != best.policy; });
  if (next != view.ranking.end() && !next->uncompressed) {
    line.bars.push_back(rate_bar(view, *next));
    add(lead_text(best, *next, lead_of(view, best, *next), fmt::format("the next policy, {}", view.setting(*next))));
  }
  if (full && !is_same(*full, best)) line.bars.push_back(rate_bar(view, *full));
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
  std::map<std::pair<std::int64_t, std::int64_t>, std::pair<const ResultRow*, const ResultRow*>>
      pairs;  // setting, full
  for (const ResultRow& r : view.here) {
    auto& pair = pairs[{r.prompt_tokens, r.batch}];
    if (r.setting == view.ranking.front().setting) pair.first = &r;
    if (r.uncompressed) pair.second = &r;
  }
  std::map<std::int64_t, FirstBatch> first;
  std::int64_t context = 0;
  for (const auto& [point, pair] : pairs) {
    const auto& [own, full] = pair;
    if (own == nullptr || full == nullptr || !own->has_times) continue;
    const Comparison c = compare(*view.result(*own), *view.result(*full), requests_rate());
    const bool smallest = point.first != context;
    if (smallest) bars.clear();  // only those of the longest context are reported
    context = point.first;
    bars.push_back({fmt::format("{} tokens, batch {}", tokens_text(point.first), point.second),
                    full->has_times ? ratio_text(c.times) : "full KV does not fit", 0, full->has_times ? c.times : 0});
    if (full->has_times && !c.first_better()) {
      first.erase(point.first);
      continue;
    }
    FirstBatch& found =
        first.try_emplace(point.first, FirstBatch{point.second, 0, smallest, !full->has_times}).first->second;
    if (found.certain == 0 && (!full->has_times || c.beyond_uncertainty())) found.certain = point.second;
  }
  return first;
}

Line break_even_line(const SweepView& view) {
  const std::string& best = view.setting(view.ranking.front());
  if (view.ranking.front().uncompressed) {
    return {fmt::format("full KV serves most of all that {}",
                        view.score.benchmark == config::ScoreChoice::kNone ? "was swept" : "meets the floor"),
            ""};
  }
  std::vector<Bar> bars;
  const auto first = first_batches(view, bars);
  if (bars.empty()) return {best + " was not swept together with full KV", ""};
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
    return {best + " does not serve more than full KV at equal batch in this sweep", "", "never", bars};
  return {fmt::format("{} serves more requests than full KV from {}", best, fmt::join(parts, ", from ")),
          "the smallest swept batch from which on it serves more, by context",
          fmt::format("batch {}", first.rbegin()->second.batch), bars};
}

Line bound_line(const SweepView& view) {
  const std::string& best = view.setting(view.ranking.front());
  const std::optional<ResultRow> full = best_full(view);
  const std::string detail = !full || is_same(*full, view.ranking.front())
                                 ? ""
                                 : fmt::format("full KV at batch {}: {}", full->batch,
                                               result::bottleneck(view.result(*full)->experiment.step));
  const metrics::Attribution& step = view.best->experiment.step;
  Line line{fmt::format("{} is bound by {} while decoding", best, result::bottleneck(step)), detail};
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
  const std::string& best = view.setting(view.ranking.front());
  std::vector<result::Effect> effects = view.best->experiment.effects;
  std::erase_if(effects, [](const auto& e) { return !is_significant(e.longer.step, e.shorter.step); });
  effects = result::by_reach(std::move(effects));
  if (effects.empty()) return {fmt::format("no cost changes {} by one per cent", best), ""};
  std::vector<std::string> texts;
  std::vector<Bar> bars;
  for (std::size_t i = 0; i < std::min(kReported, effects.size()); ++i) {
    const result::Effect& e = effects[i];
    const std::string name = e.source == result::kTraceSample ? "other texts and layers" : name_of(e.keys);
    const std::string range = fmt::format("{} to {}", percent_text(e.shorter.step), percent_text(e.longer.step));
    texts.push_back(i == 0 ? fmt::format("{} may change a step of {} by {}", name, best, range)
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
  nlohmann::json out = {{"place", group}, {"text", line.text}, {"number", line.number}, {"bars", std::move(bars)}};
  if (!line.best.is_null()) out["best"] = line.best;
  if (!line.full.is_null()) out["full"] = line.full;
  return out;
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
  std::ranges::copy_if(view.longest, std::back_inserter(fits), &ResultRow::has_times);
  if (fits.empty()) return {"nothing in this sweep fits", ""};
  std::erase_if(fits, [](const ResultRow& r) { return r.oracle; });
  if (fits.empty()) return {"nothing but oracles of selection fits", ""};
  const auto share = [](const ResultRow& r) { return r.has_score() ? r.score : -1.0; };
  const ResultRow& nearest = *std::ranges::max_element(fits, {}, share);
  std::string text = fmt::format("nothing that fits is predicted to keep {:.3g} % of full KV's {} score",
                                 100 * view.score.floor, view.score.benchmark);
  if (nearest.has_score())
    text += fmt::format("; {} comes nearest with {:.1f} %", view.setting(nearest), 100 * nearest.score);
  return {text, unscored_text(view)};
}

using Describe = Line (*)(const SweepView& view);
constexpr std::pair<const char*, Describe> kDescribed[] = {{"Best policy at the longest context", best_line},
                                                           {"Break-even batch", break_even_line},
                                                           {"Bottleneck", bound_line},
                                                           {"Largest uncertainty", uncertain_line}};

// A finding of one kind, to which groups are added one after the other.
struct Described {
  std::string text = {};
  std::vector<std::pair<std::string, std::string>> details = {};  // by group
  nlohmann::json lines = nlohmann::json::array();

  void add(const std::string& group, const Line& line) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "\n", group, line.text);
    details.emplace_back(group, line.detail);
    lines.push_back(group_json(group, line));
  }
};

}  // namespace

std::vector<Finding> findings(const ResultRows& all_rows, Texts& texts, const LoadResult& load,
                              const config::ScoreChoice& score, const SearchBatches& search) {
  ResultRows rows;
  std::ranges::copy_if(all_rows, std::back_inserter(rows), &ResultRow::compared);
  if (rows.empty()) return {};  // a shard without experiments
  const Varied varied(rows);
  const Groups groups(middle_replicas(rows));
  std::array<Described, std::size(kDescribed)> described;
  for (std::size_t g = 0; g < groups.described.size(); ++g) {
    const ResultRows& here = groups.described[g];
    const SweepView view = view_of(here, score, texts, load, g < kSearchedGroups ? search : SearchBatches{});
    const std::string group = group_text(here.front(), texts, varied);
    if (view.ranking.empty()) {
      described[0].add(group, nothing_line(view));  // the other findings have nothing to add
      continue;
    }
    for (std::size_t kind = 0; kind < described.size(); ++kind)
      described[kind].add(group, kDescribed[kind].second(view));
  }
  std::vector<Finding> all;
  for (std::size_t kind = 0; kind < described.size(); ++kind) {
    Described& d = described[kind];
    if (d.lines.empty()) continue;
    if (groups.left_out > 0) d.text += fmt::format("\n{} further groups are not described", groups.left_out);
    all.push_back({kDescribed[kind].first, d.text, details_text(d.details), d.lines.dump()});
  }
  return all;
}

}  // namespace kvcast::plan

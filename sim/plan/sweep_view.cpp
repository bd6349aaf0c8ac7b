#include "plan/sweep_view.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "plan/setting_text.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {

using result::Result;

namespace {

// Rows that fit, reach the floor and are no oracles, those that serve most requests first.
ResultRows recommended(const ResultRows& rows, const config::ScoreChoice& score) {
  const std::vector<Target> floor = floor_target(score);
  ResultRows good;
  for (const ResultRow& r : rows) {
    const bool reached = floor.empty() || (r.has_score() && floor.front().holds_for(r.score));
    if (!r.oracle && r.has_times && reached) good.push_back(r);
  }
  std::ranges::stable_sort(good, std::greater<>(), &ResultRow::requests_per_s);
  return good;
}

// The best row of each setting; those whose fit is borderline only where no row fits beyond doubt.
ResultRows best_of_settings(const ResultRows& ranked) {
  std::set<int> certain, seen;
  for (const ResultRow& r : ranked) {
    if (!r.borderline) certain.insert(r.setting);
  }
  ResultRows best;
  for (const ResultRow& r : ranked) {
    if (r.borderline && certain.contains(r.setting)) continue;
    if (seen.insert(r.setting).second) best.push_back(r);
  }
  return best;
}

// A representative row of each setting that may be recommended, and of full KV.
ResultRows settings_to_search(const SweepView& view) {
  ResultRows rows = best_of_settings(recommended(view.longest, view.score));
  std::set<int> there;
  for (const ResultRow& r : rows) there.insert(r.setting);
  for (const ResultRow& r : view.longest) {
    if (r.uncompressed && r.has_times && there.insert(r.setting).second) rows.push_back(r);
  }
  return rows;
}

// A setting at a batch, with times: a row, or a searched result.
struct AtBatch {
  std::optional<ResultRow> row;
  ResultPtr searched;
  bool found() const { return row || searched; }
  ResultPtr result(const SweepView& view) const { return row ? view.result(*row) : searched; }
};

// `line`: the setting's, or null.
AtBatch at_batch(const SweepView& view, const ResultRow& setting, const BatchLine* line, std::int64_t batch) {
  const auto row = view.with_times.find({setting.setting, batch});
  if (row != view.with_times.end()) return {view.longest[row->second], nullptr};
  if (setting.batch == batch) return {setting, nullptr};
  if (line == nullptr) return {};
  const auto found = line->results().find(batch);
  return found == line->results().end() || !found->second->has_times() ? AtBatch{} : AtBatch{{}, found->second};
}

}  // namespace

const result::Metric& requests_rate() { return *result::find_metric("request.requests_per_s"); }
double requests_rate_of(const Result& r) { return result::value(r, requests_rate()).value_or(0); }
std::string requests_rate_text(const ResultRow& row) {
  return result::format_value(requests_rate(), row.requests_per_s);
}

std::string benchmark_of(const Result& r) { return r.subject.text("score.benchmark"); }

const BatchLine* SweepView::line_of(const ResultRow& row) const {
  const auto found = std::ranges::find(line_settings, row.setting);
  return found == line_settings.end() ? nullptr : &lines[static_cast<std::size_t>(found - line_settings.begin())];
}

namespace {

// Adds the best batches of the settings.
void add_searched(SweepView& view, const SearchBatches& search) {
  const ResultRows rows = settings_to_search(view);
  if (rows.empty()) return;
  {
    std::vector<ResultPtr> loaded;
    std::vector<const Result*> settings;
    for (const ResultRow& r : rows) loaded.push_back(view.load(r.index)), settings.push_back(loaded.back().get());
    view.lines = search(settings);
  }
  for (std::size_t i = 0; i < view.lines.size(); ++i) {
    const ResultPtr best = view.lines[i].best();
    view.line_settings.push_back(best ? rows[i].setting : -1);
    if (!best) continue;
    const ResultPtr row = view.load(rows[i].index);
    auto added = std::make_shared<Result>(*best);
    added->subject.swept = row->subject.swept;
    added->benchmark = row->benchmark, added->benchmark_refused = row->benchmark_refused;  // as at any batch
    view.searched.push_back(row_of(*added, view.searched_results.size(), view.texts));
    view.searched.back().searched = true;
    view.searched_results.push_back(std::move(added));
  }
}

}  // namespace

SweepView view_of(const ResultRows& here, const config::ScoreChoice& score, Texts& texts, const LoadResult& load,
                  const SearchBatches& search) {
  SweepView view{here, score, texts, load, {}};
  if (const std::string& benchmark = texts[here.front().benchmark]; !benchmark.empty())
    view.score.benchmark = benchmark;
  std::int64_t context = 0;
  for (const ResultRow& r : here) {
    if (r.has_times) context = std::max(context, r.prompt_tokens);
  }
  for (const ResultRow& r : here) {
    if (r.prompt_tokens != context) continue;
    if (r.has_times) view.with_times.try_emplace({r.setting, r.batch}, view.longest.size());
    view.longest.push_back(r);
  }
  if (search) add_searched(view, search);
  ResultRows all = view.longest;
  all.insert(all.end(), view.searched.begin(), view.searched.end());
  view.ranking = best_of_settings(recommended(all, view.score));
  if (!view.ranking.empty()) view.best = view.result(view.ranking.front());
  return view;
}

std::optional<ResultRow> best_full(const SweepView& view) {
  std::optional<ResultRow> best;
  for (const ResultRow& r : view.longest) {
    if (!r.uncompressed || !r.has_times) continue;
    if (!best || r.requests_per_s > best->requests_per_s) best = r;
  }
  for (const ResultRow& r : view.searched) {
    if (r.uncompressed && (!best || best->borderline || r.requests_per_s > best->requests_per_s)) best = r;
  }
  return best;
}

Lead lead_of(const SweepView& view, const ResultRow& a, const ResultRow& b) {
  Lead lead;
  const BatchLine *const of_a = view.line_of(a), *const of_b = view.line_of(b);
  lead.searched = of_a != nullptr && of_b != nullptr;
  if (lead.searched) lead.best = compare_best(*of_a, *of_b, requests_rate());
  for (std::int64_t batch = std::min(a.batch, b.batch); batch > 0; --batch) {
    const AtBatch at_a = at_batch(view, a, of_a, batch), at_b = at_batch(view, b, of_b, batch);
    if (!at_a.found() || !at_b.found()) continue;
    lead.equal = compare(*at_a.result(view), *at_b.result(view), requests_rate()), lead.equal_batch = batch;
    break;
  }
  return lead;
}

std::string lead_text(const ResultRow& best, const ResultRow& other, const Lead& lead, const std::string& name) {
  std::vector<std::string> parts;
  if (lead.searched) {
    parts.push_back(fmt::format("{}{}, each at its own best batch ({} and {})", times_text(lead.best),
                                is_tie(lead.best) ? ", a tie" : "", best.batch, other.batch));
  }
  if (lead.equal.known()) {
    parts.push_back(fmt::format("{}{} at equal batch {}", times_text(lead.equal), is_tie(lead.equal) ? ", a tie," : "",
                                lead.equal_batch));
  }
  if (parts.empty()) parts.push_back("no batch was simulated for both: unknown");
  return fmt::format("requests per second relative to {}: {}", name, fmt::join(parts, "; "));
}

ResultRows ties_of(const SweepView& view) {
  ResultRows tied;
  for (std::size_t i = 1; i < view.ranking.size(); ++i) {
    const Lead lead = lead_of(view, view.ranking.front(), view.ranking[i]);
    if (lead.headline().known() && is_tie(lead.headline())) tied.push_back(view.ranking[i]);
  }
  return tied;
}

std::string ties_text(const SweepView& view, const ResultRows& tied) {
  constexpr std::size_t kNamed = 6;
  std::vector<std::string> names;
  TieRanges ranges;
  ranges.add(view.setting(view.ranking.front()), *view.best);
  for (const ResultRow& row : tied) {
    if (names.size() < kNamed) names.push_back(view.setting(row));
    ranges.add(view.setting(row), *view.result(row));
  }
  const std::vector<std::string> texts = ranges.texts();
  return fmt::format(
      "{} tie{} with it: {}{}; {}", tied.size(), tied.size() == 1 ? "s" : "", fmt::join(names, "; "),
      tied.size() > kNamed ? fmt::format("; and {} more", tied.size() - kNamed) : "",
      texts.empty() ? "nothing tells them apart" : fmt::format("they differ in {}", fmt::join(texts, ", ")));
}

}  // namespace kvcast::plan

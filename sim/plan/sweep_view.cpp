#include "plan/sweep_view.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "plan/setting_text.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {

using result::Result;

namespace {

// The best row of each setting; those whose fit is borderline only where no row fits beyond doubt.
ResultRows best_of_settings(const ResultRows& ranked) {
  std::map<std::string, bool> certain;
  for (const Result* r : ranked) certain[describe_setting(*r)] |= !r->borderline;
  std::set<std::string> seen;
  ResultRows best;
  for (const Result* r : ranked) {
    const std::string setting = describe_setting(*r);
    if (r->borderline && certain[setting]) continue;
    if (seen.insert(setting).second) best.push_back(r);
  }
  return best;
}

// A representative row of each setting that may be recommended, and of full KV.
ResultRows settings_to_search(const SweepView& view) {
  ResultRows rows = best_of_settings(recommended(view.longest, floor_target(view.score)));
  for (const Result* r : view.longest) {
    const bool there = std::ranges::any_of(
        rows, [r](const Result* other) { return describe_setting(*other) == describe_setting(*r); });
    if (r->subject.uncompressed() && r->has_times() && !there) rows.push_back(r);
  }
  return rows;
}

// The row of a setting at a batch, with times; null if there is none. `line`: the setting's, or null.
const Result* row_at(const SweepView& view, const Result& setting, const BatchLine* line, std::int64_t batch) {
  for (const Result* r : view.longest) {
    if (r->subject.batch == batch && r->has_times() && describe_setting(*r) == describe_setting(setting)) return r;
  }
  if (setting.subject.batch == batch) return &setting;
  if (line == nullptr) return nullptr;
  const auto found = line->results().find(batch);
  return found == line->results().end() || !found->second->has_times() ? nullptr : found->second.get();
}

}  // namespace

const result::Metric& requests_rate() { return *result::find_metric("request.requests_per_s"); }
double requests_rate_of(const Result& r) { return *result::value(r, requests_rate()); }
std::string requests_rate_text(const Result& r) { return result::format_value(requests_rate(), requests_rate_of(r)); }

std::string benchmark_of(const Result& r) { return r.subject.text("score.benchmark"); }

const BatchLine* SweepView::line_of(const Result& r) const {
  const auto found = std::ranges::find_if(
      lines, [&](const BatchLine& l) { return l.best() && describe_setting(*l.best()) == describe_setting(r); });
  return found == lines.end() ? nullptr : &*found;
}

SweepView view_of(const ResultRows& here, const config::ScoreChoice& score, const SearchBatches& search) {
  SweepView view(here, score);
  if (std::string benchmark = benchmark_of(*here.front()); !benchmark.empty()) view.score.benchmark = benchmark;
  std::int64_t context = 0;
  for (const Result* r : here) {
    if (r->has_times()) context = std::max(context, r->subject.prompt_tokens);
  }
  for (const Result* r : here) {
    if (r->subject.prompt_tokens == context) view.longest.push_back(r);
  }
  const ResultRows rows = search ? settings_to_search(view) : ResultRows{};
  if (!rows.empty()) view.lines = search(rows);
  for (std::size_t i = 0; i < view.lines.size(); ++i) {
    const ResultPtr best = view.lines[i].best();
    if (!best) continue;
    Result& added = view.searched.emplace_back(*best);
    added.subject.swept = rows[i]->subject.swept;
    added.benchmark = rows[i]->benchmark, added.benchmark_refused = rows[i]->benchmark_refused;  // as at any batch
  }
  ResultRows all = view.longest;
  for (const Result& r : view.searched) all.push_back(&r);
  view.ranking = best_of_settings(recommended(all, floor_target(view.score)));
  return view;
}

const Result* best_full(const SweepView& view) {
  const Result* best = nullptr;
  for (const Result* r : view.longest) {
    if (!r->subject.uncompressed() || !r->has_times()) continue;
    if (best == nullptr || requests_rate_of(*r) > requests_rate_of(*best)) best = r;
  }
  for (const Result& r : view.searched) {
    if (r.subject.uncompressed() &&
        (best == nullptr || best->borderline || requests_rate_of(r) > requests_rate_of(*best)))
      best = &r;
  }
  return best;
}

Lead lead_of(const SweepView& view, const Result& a, const Result& b) {
  Lead lead;
  const BatchLine *const of_a = view.line_of(a), *const of_b = view.line_of(b);
  lead.searched = of_a != nullptr && of_b != nullptr;
  if (lead.searched) lead.best = compare_best(*of_a, *of_b, requests_rate());
  for (std::int64_t batch = std::min(a.subject.batch, b.subject.batch); batch > 0; --batch) {
    const Result *const at_a = row_at(view, a, of_a, batch), *const at_b = row_at(view, b, of_b, batch);
    if (at_a == nullptr || at_b == nullptr) continue;
    lead.equal = compare(*at_a, *at_b, requests_rate()), lead.equal_batch = batch;
    break;
  }
  return lead;
}

std::string lead_text(const Result& best, const Result& other, const Lead& lead, const std::string& name) {
  std::vector<std::string> parts;
  if (lead.searched) {
    parts.push_back(fmt::format("{}{}, each at its own best batch ({} and {})", times_text(lead.best),
                                is_tie(lead.best) ? ", a tie" : "", best.subject.batch, other.subject.batch));
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
  for (const Result* r : view.ranking) {
    if (r == &view.best()) continue;
    const Lead lead = lead_of(view, view.best(), *r);
    if (lead.headline().known() && is_tie(lead.headline())) tied.push_back(r);
  }
  return tied;
}

std::string ties_text(const Result& best, ResultRows tied) {
  constexpr std::size_t kNamed = 6;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::min(kNamed, tied.size()); ++i) names.push_back(describe_setting(*tied[i]));
  std::string text =
      fmt::format("{} tie{} with it: {}{}", tied.size(), tied.size() == 1 ? "s" : "", fmt::join(names, "; "),
                  tied.size() > kNamed ? fmt::format("; and {} more", tied.size() - kNamed) : "");
  tied.push_back(&best);
  std::vector<std::string> apart;
  for (const char* path : {"score.share_of_full", "request.ttft_s", "request.latency_s", "memory.hbm_peak_bytes"}) {
    const result::Metric& metric = *result::find_metric(path);
    ResultRows known = tied;
    std::erase_if(known, [&](const Result* r) { return !result::value(*r, metric); });
    if (known.empty()) continue;
    const auto [low, high] =
        std::ranges::minmax_element(known, {}, [&](const Result* r) { return *result::value(*r, metric); });
    const double least = *result::value(**low, metric), most = *result::value(**high, metric);
    if (most <= 1.02 * least) continue;
    apart.push_back(fmt::format("{} from {} ({}) to {} ({})", label_in_sentence(metric),
                                result::format_value(metric, least), describe_setting(**low),
                                result::format_value(metric, most), describe_setting(**high)));
  }
  return text +
         (apart.empty() ? "; nothing tells them apart" : fmt::format("; they differ in {}", fmt::join(apart, ", ")));
}

}  // namespace kvcast::plan

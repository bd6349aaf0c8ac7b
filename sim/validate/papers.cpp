#include "validate/papers.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

#include "config/run.hpp"
#include "validate/paper_records.hpp"

namespace kvcast::validate {
namespace {

std::string readings_text(const std::vector<std::pair<std::string, double>>& readings) {
  std::string text;
  for (const auto& [of, value] : readings) text += fmt::format("{}{}: {:.3g}", text.empty() ? "" : "; ", of, value);
  return text;
}

void append(std::string& text, const std::string& more) {
  if (!more.empty()) text += (text.empty() ? "" : ". ") + more;
}

void raise(Case& c, double value) {
  c.low = c.low ? std::min(*c.low, value) : value;
  c.high = c.high ? std::max(*c.high, value) : value;
}

// Gives the verdict on readings alone: uncertainty of costs excuses nothing.
Case judge(const Claim& claim, const Records& records) {
  Case c = claim.base;
  if (claim.readings.empty()) {
    c.verdict = Verdict::kUnanswered;
    return c;
  }
  std::string missing;
  std::vector<std::pair<std::string, double>> values;
  for (const Reading& r : claim.readings) {
    const auto value = records.value(r.predict, missing);
    if (!value) continue;
    values.emplace_back(r.of, *value);
    raise(c, *value);
  }
  const bool several = values.size() > 1;
  append(c.note, missing);
  if (values.empty() || !records.value(claim.readings.front().predict, missing)) {
    c.verdict = Verdict::kOff;  // the claim has a formula, but no value came out
    return c;
  }
  c.predicted = values.front().second;
  c.origin = records.origin(claim.readings.front().predict);
  if (several) append(c.depends_on, "readings: " + readings_text(values));
  if (claim.is_trend()) {
    const auto holds = [&](const Reading& r) {
      const auto value = r.holds ? records.value(*r.holds, missing) : std::nullopt;
      return value && *value != 0;
    };
    c.verdict = holds(claim.readings.front())                ? Verdict::kAgrees
                : std::ranges::any_of(claim.readings, holds) ? Verdict::kBracketed
                                                             : Verdict::kOff;
  } else {
    c.verdict = verdict_of(c, several);
  }
  for (const Reading& r : claim.readings) {
    const auto interval = records.interval(r.predict);
    if (!interval) continue;
    if (!c.cost_low) c.cost_low = interval->low, c.cost_high = interval->high;
    raise(c, interval->low), raise(c, interval->high);
  }
  const bool bracketed = c.verdict == Verdict::kBracketed && !is_telling(c);
  if (bracketed || c.verdict == Verdict::kUnanswered) {
    c.verdict = Verdict::kUnanswered;
    append(c.note, "The bounds contain the value, but are more than a factor of four apart");
  }
  return c;
}

// Times by bytes over bandwidth and products over the peak alone; empty if an experiment has no times.
struct Roofline {
  std::optional<double> step, prefill;  // seconds
  double batch = 1;
};

Roofline roofline_of(const PaperRun& run, const result::Result& r) {
  Roofline line;
  if (!r.has_times() || r.experiment.oom || r.subject.model.empty()) return line;
  const config::Run config = config::read_run(run.point.config);
  const config::Model& model = config.model;
  const double tokens = static_cast<double>(r.subject.prompt_tokens), batch = static_cast<double>(r.subject.batch);
  line.batch = batch;
  const double pairs = batch * r.accuracy.attended_mean * model.kv_bytes_per_token();
  line.step = (model.weight_bytes() + pairs) / config.hardware.gpu.hbm_bandwidth;
  const double causal = 2 * tokens * tokens * model.layers * model.n_q_heads * model.head_dim;
  const double products = batch * (2 * model.parameters() * tokens + causal);
  line.prefill = std::max(products / config.hardware.gpu.tensor_flops, *line.step);
  return line;
}

// The formula's value by rooflines; empty if it uses numbers other than times of steps and prompts.
std::optional<double> baseline_of(const Formula& formula, const std::map<std::string, Roofline>& rooflines) {
  const auto number = [&](const std::string& name) -> std::optional<double> {
    const std::size_t dot = name.find('.');
    const Roofline& line = rooflines.at(name.substr(0, dot));
    const std::string what = name.substr(dot + 1);
    if (!line.step) return {};
    if (what == "tpot") return line.step;
    if (what == "tps") return line.batch / *line.step;
    if (what == "ttft") return line.prefill;
    return {};
  };
  for (const std::string& name : formula.names()) {
    if (!number(name)) return {};
  }
  try {
    return formula.value([&](const std::string& name) { return number(name).value(); });
  } catch (const UserError&) {  // e.g. a ratio to a difference that is zero for rooflines
    return {};
  }
}

// Limits that the suite sets itself, so that no change worsens the overall result unnoticed.
std::vector<SuiteLimit> budgets(const Suite& suite) {
  constexpr double kMedian = 15, kShare = 60;  // per cent
  const GroupSummary all = summarise(suite).front();
  SuiteLimit median{"held-out numbers, median error", "%", kMedian, {}, false};
  if (all.errors.n > 0) median.value = 100 * all.errors.median;
  SuiteLimit share{"held-out claims that agree or are bracketed", "%", kShare, {}, true};
  int good = 0, judged = 0;
  for (const Case& c : suite.cases) {
    if (!c.held_out || c.verdict == Verdict::kUnanswered || c.verdict == Verdict::kUnmeasured) continue;
    ++judged;
    good += c.verdict == Verdict::kAgrees || c.verdict == Verdict::kBracketed ? 1 : 0;
  }
  if (judged > 0) share.value = 100.0 * good / judged;
  return {median, share};
}

}  // namespace

std::vector<Case> cases_of(const std::vector<Paper>& papers, const RunAll& run_all) {
  std::vector<Case> cases;
  std::vector<study::Point> points;
  for (const Paper& paper : papers) {
    for (const PaperRun& run : paper.runs) {
      points.push_back(run.point);
      for (const config::Node& other : run.on_other_traces) {
        study::Point& on_other = points.emplace_back(run.point);
        on_other.config = other, on_other.ask.effects = simulate::Effects::kNone;
      }
    }
  }
  std::vector<result::Result> results = run_all(std::move(points));
  auto next = std::make_move_iterator(results.begin());
  for (const Paper& paper : papers) {
    Records records;
    std::map<std::string, Roofline> rooflines;
    for (const PaperRun& run : paper.runs) {
      const auto others = static_cast<std::ptrdiff_t>(run.on_other_traces.size());
      result::Result own = *next++;
      rooflines[run.name] = roofline_of(run, own);
      records.add(run.name, std::move(own), {next, next + others});
      next += others;
    }
    std::set<std::string> asked;
    for (const Claim& claim : paper.claims) {
      cases.push_back(judge(claim, records));
      Case& c = cases.back();
      if (!claim.readings.empty()) c.repeated = !asked.insert(claim.readings.front().predict.text()).second;
      if (c.predicted && c.expected && *c.expected == 1 && std::abs(*c.predicted - 1) < 1e-9) c.repeated = true;
      if (!claim.readings.empty()) cases.back().baseline = baseline_of(claim.readings.front().predict, rooflines);
    }
  }
  return cases;
}

Suite papers(const std::vector<Paper>& papers, const RunAll& run_all) {
  Suite suite;
  suite.name = "papers";
  suite.question = "How accurately are the papers' efficiency claims predicted from mechanisms?";
  suite.expected_is = "published";
  suite.baseline_is = kStepBaseline;
  suite.size_unit = "context, tokens";
  suite.cases = cases_of(papers, run_all);
  suite.budgets = budgets(suite);
  return suite;
}

}  // namespace kvcast::validate

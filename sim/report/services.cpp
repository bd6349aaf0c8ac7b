#include "report/services.hpp"

#include <algorithm>

namespace kvcast::report {

namespace {

// These limits keep the page small: a run has some thousand numbers here.
constexpr std::size_t kMostEmbedded = 120, kMostMoments = 120;

void add_moments(Table& table, double id, const std::vector<serving::Moment>& moments) {
  const std::size_t step = 1 + (moments.size() - 1) / kMostMoments;
  for (std::size_t i = 0; i < moments.size(); i += step) {
    const serving::Moment& m = moments[i];
    table.begin_row();
    table.set("id", id), table.set("at", m.at);
    table.set("running", m.running), table.set("waiting", m.waiting), table.set("used", m.used);
    table.set("preemptions", m.preemptions);
  }
}

void add_curves(Table& table, double id, const serving::Summary& summary) {
  const std::size_t points = std::max(summary.ttft_curve.size(), summary.tpot_curve.size());
  for (std::size_t i = 0; i < points; ++i) {
    table.begin_row();
    table.set("id", id), table.set("share", static_cast<double>(i) / static_cast<double>(points - 1));
    if (i < summary.ttft_curve.size()) table.set("ttft", summary.ttft_curve[i]);
    if (i < summary.tpot_curve.size()) table.set("tpot", summary.tpot_curve[i]);
  }
}

}  // namespace

bool serves(const result::Subject& subject) { return subject.find("traffic.requests") != nullptr; }

std::optional<LoadAxis> load_of(const result::Subject& subject) {
  if (const auto rate = subject.number("traffic.rate")) return LoadAxis{*rate, "requests/s"};
  if (const auto at_a_time = subject.number("traffic.concurrency")) return LoadAxis{*at_a_time, "requests at a time"};
  if (const auto speedup = subject.number("traffic.speedup")) return LoadAxis{*speedup, "times the trace's rate"};
  return {};
}

void set_service(Table& experiments, const result::Result& result) {
  if (const auto load = load_of(result.subject)) {
    experiments.set("load", load->value), experiments.set("load_unit", load->unit);
  }
  if (!result.service) return;
  experiments.set("state", std::string(serving::state_name(result.service->summary.state)));
  for (const char* bound : {"ttft", "tpot", "e2e"}) {
    const auto slo = result.subject.number(std::string("traffic.slo.") + bound);
    if (slo) experiments.set(std::string("slo_") + bound, *slo);
  }
}

std::optional<ServiceTables::Point> ServiceTables::add(double id, const result::Result& result) {
  if (result.status == result::Status::kFailed || !serves(result.subject)) return {};
  const result::Subject& subject = result.subject;
  if (result.service && embedded_ < kMostEmbedded) {
    ++embedded_;
    const serving::Summary& summary = result.service->summary;
    if (!summary.moments.empty()) add_moments(moments, id, summary.moments);
    add_curves(curves, id, summary);
  }
  const auto load = load_of(subject);
  const bool bounded =
      std::ranges::any_of(subject.settings, [](const auto& s) { return s.key.starts_with("traffic.slo."); });
  if (!load || !bounded) return {};
  // In a saturated service the queue keeps growing, so the share of requests within the SLO falls with the length of
  // the simulation and says nothing about the load.
  const bool passes = result.service && result.service->summary.state != serving::Trend::kSaturated &&
                      result.service->summary.slo_share.value_or(0) >= kPassingShare;
  return Point{id, load->value, passes, load->unit};
}

void ServiceTables::add(const Point& point, const std::string& line, const result::Subject& subject) {
  const Place place{subject.model, subject.hardware, subject.prompt_tokens, line + "|" + point.unit};
  const auto [at, fresh] = lines_.try_emplace(place);
  if (fresh) order_.push_back(place);
  at->second.push_back(point);
}

void ServiceTables::add(double id, const std::string& line, const result::Result& result) {
  if (const auto point = add(id, result)) add(*point, line, result.subject);
}

Table ServiceTables::capacities() const {
  Table table;
  for (const Place& place : order_) {
    const std::vector<Point>& line = lines_.at(place);
    std::map<double, bool> passing;  // load → whether all experiments at it pass: seeds are several
    for (const Point& p : line) {
      const auto [at, fresh] = passing.try_emplace(p.load, p.passes);
      at->second = at->second && p.passes;
    }
    const auto most = std::find_if(passing.rbegin(), passing.rend(), [](const auto& entry) { return entry.second; });
    table.begin_row();
    table.set("id", line.front().id);
    table.set("least", passing.begin()->first), table.set("top", passing.rbegin()->first);
    table.set("load_unit", line.front().unit);
    if (most != passing.rend()) table.set("most", most->first);
    // All larger loads fail.
    const auto next = most.base();
    if (next != passing.end()) table.set("fails", next->first);
  }
  return table;
}

}  // namespace kvcast::report

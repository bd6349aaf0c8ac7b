#include "report/content.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "base/build.hpp"
#include "base/error.hpp"
#include "base/origin.hpp"
#include "graph/op.hpp"
#include "metrics/attribution.hpp"
#include "plan/changes.hpp"
#include "report/answers.hpp"
#include "report/defaults.hpp"
#include "report/measures.hpp"
#include "report/series.hpp"
#include "report/services.hpp"

namespace kvcast::report {

namespace {

using nlohmann::json;
using result::Result;
using result::Status;
using store::Stored;

// A step of a long model has some thousand operations; these limits keep the page well under its size limit.
constexpr std::size_t kMaxTimelines = 48;
constexpr std::size_t kMaxTimelineRows = 16000;
constexpr std::size_t kMaxHeadRows = 60000;

std::string store_of(const result::Subject& subject) {
  for (const auto& [key, value] : subject.swept) {
    if (key == kStoreKey) return value;
  }
  return "";
}

std::vector<std::string> compared_names(const std::vector<ReportSource>& sources) {
  std::vector<std::string> names;
  for (std::size_t i = 1; i < sources.size(); ++i) names.push_back(sources[i].name);
  return names;
}

plan::Machines machines_of(const std::vector<ReportSource>& sources) {
  plan::Machines machines;
  for (const ReportSource& source : sources) machines.merge(source.store->machines());
  return machines;
}

class Collector {
 public:
  explicit Collector(Palette palette) : palette_(std::move(palette)) {}

  void add(const Stored& stored);
  Content finish(const std::vector<ReportSource>& sources, const std::vector<store::Answer>& answers);

 private:
  // The parts of a row that wait for its name, which depends on all rows.
  struct Unnamed {
    result::Subject subject;
    Status status;
    std::vector<result::TimelineSpan> timeline;
    std::optional<ServiceTables::Point> capacity;
  };
  void name_rows();
  void add_setting(const Result& result);
  void add_metrics(const Result& result);
  void add_oom(const result::OutOfMemory& oom);
  void add_breakdown(const metrics::Attribution& step);
  void add_owners(const result::Experiment& experiment);
  void add_timeline(std::size_t r, const std::string& series);
  void add_heads(const std::vector<result::LayerMap>& layers);
  json origins(const std::vector<ReportSource>& sources) const;
  json sweep(const std::vector<ReportSource>& sources) const;

  Palette palette_;
  std::vector<const result::Metric*> metrics_ = page_metrics();
  SeriesNames names_;
  ServiceTables services_;
  Content content_;
  std::vector<Unnamed> unnamed_;
  double id_ = -1;
  bool swept_ = false;  // whether any experiment has a swept key
  std::map<Status, std::int64_t> counts_;
  std::set<std::string> versions_;
  std::string first_created_;
  std::string last_created_;
  std::map<std::string, std::size_t> owner_order_;  // owner → rank by first appearance
  std::size_t timelines_ = 0;
  std::size_t timelines_embedded_ = 0;
  // model, hardware and series that have a timeline
  std::set<std::tuple<std::string, std::string, std::string>> with_timeline_;
  std::map<std::pair<std::string, std::string>, int> machines_;  // number of experiments by store and machine
};

void Collector::add(const Stored& stored) {
  const Result& result = stored.result;
  names_.learn_keys(result.subject);
  swept_ = swept_ || !result.subject.swept.empty();
  id_ += 1;
  ++counts_[result.status];
  versions_.insert(stored.code_version);
  if (first_created_.empty() || stored.created_at < first_created_) first_created_ = stored.created_at;
  last_created_ = std::max(last_created_, stored.created_at);
  ++machines_[{store_of(result.subject), result.subject.hardware}];
  add_setting(result);
  add_metrics(result);
  if (result.experiment.oom) add_oom(*result.experiment.oom);
  if (result.has_times()) add_breakdown(result.experiment.step);
  add_owners(result.experiment);
  add_heads(result.accuracy.layers);
  unnamed_.push_back({result.subject, result.status, result.experiment.timeline, services_.add(id_, result)});
}

void Collector::name_rows() {
  names_.choose_cost();
  for (const Unnamed& row : unnamed_) names_.learn_values(row.subject);
  Table& table = content_.experiments;
  for (std::size_t r = 0; r < unnamed_.size(); ++r) {
    const auto& [subject, status, timeline, capacity] = unnamed_[r];
    const std::string variant = names_.variant_of(subject);
    const std::string series = SeriesNames::join(SeriesNames::policy_of(subject), variant);
    // Failed rows are listed, but no line of a chart shows them.
    if (status != Status::kFailed) names_.appear(subject);
    table.set(r, "variant", variant);
    table.set(r, "series", series);
    const std::optional<double> budget = names_.budget_of(subject, status);
    table.set(r, "budget", budget.value_or(std::nan("")));  // a missing cell
    if (!names_.cost().empty()) table.set(r, "solved_budget", subject.number("policy.budget").value_or(std::nan("")));
    add_timeline(r, series);
    if (capacity) services_.add(*capacity, fmt::format("{}, {}", series, budget.value_or(0)), subject);
  }
}

void Collector::add_setting(const Result& result) {
  const result::Subject& subject = result.subject;
  Table& table = content_.experiments;
  const auto set_number = [&](const char* column, std::optional<double> number) {
    if (number) table.set(column, *number);
  };
  const auto set_count = [&](const char* column, std::int64_t count) {
    if (count > 0) table.set(column, static_cast<double>(count));
  };
  table.begin_row();
  table.set("id", id_);
  table.set("key", result.key);
  table.set("status", std::string(status_name(result.status)));
  if (result.status != Status::kFailed) table.set("fit", std::string(fit_name(fit_of(result))));
  table.set("model", subject.model);
  table.set("hardware", subject.hardware);
  table.set("policy", SeriesNames::policy_of(subject));
  if (subject.category == policy::Category::kOracle) table.set("oracle", 1.0);
  table.set("replica", SeriesNames::replica_of(subject));
  table.set("store", store_of(subject));
  set_count("context", subject.prompt_tokens);
  set_count("decode_tokens", subject.decode_tokens);
  if (!serves(subject)) set_count("batch", subject.batch);  // of a service: the mean number of requests that ran
  set_service(table, result);
  set_number("depth", subject.number("trace.depth"));
  table.set("split", subject.text("policy.split_factor"));
  set_number("split_value", subject.number("policy.split_factor"));
  table.set("error", result.error);
  table.set("simulated_in", result.wall_s);
}

void Collector::add_metrics(const Result& result) {
  Table& table = content_.experiments;
  for (const result::Metric* const metric : metrics_) {
    const auto number = value(result, *metric);
    if (!number) continue;
    table.set(metric->alias, *number);
    table.set("origin_" + metric->alias, std::string(origin_name(origin(result, *metric))));
    // An interval of zero width, such as that of a peak of exact bytes, is not shown.
    if (const auto range = interval(result, *metric); range && range->low < range->high) {
      table.set(metric->alias + "_low", range->low);
      table.set(metric->alias + "_high", range->high);
    }
  }
  if (!result.has_times()) return;
  const metrics::Attribution& step = result.experiment.step;
  table.set("bottleneck", std::string(result::bottleneck(step)));
  for (std::size_t o = 0; o < step.origin.size(); ++o) {
    if (step.origin[o] == 0) continue;
    table.set("share_" + std::string(origin_name(static_cast<Origin>(o))), step.origin[o] / step.total());
  }
}

void Collector::add_oom(const result::OutOfMemory& oom) {
  Table& table = content_.experiments;
  table.set("oom_pool", oom.pool);
  table.set("oom_moment", oom.moment);
  table.set("oom_requested_for", oom.requested_for);
  table.set("oom_requested", oom.requested);
  table.set("oom_in_use", oom.in_use);
  table.set("oom_capacity", oom.capacity);
}

void Collector::add_breakdown(const metrics::Attribution& step) {
  const auto add = [this](const std::string& kind, double exposed, double hidden) {
    if (exposed == 0 && hidden == 0) return;
    content_.breakdown.begin_row();
    content_.breakdown.set("id", id_);
    content_.breakdown.set("kind", kind);
    content_.breakdown.set("color", palette_.color("kinds", kind));
    content_.breakdown.set("exposed_s", exposed);
    content_.breakdown.set("hidden_s", hidden);
  };
  for (std::size_t k = 0; k < step.exposed.size(); ++k) {
    add(std::string(graph::kind_name(static_cast<graph::Kind>(k))), step.exposed[k], step.hidden[k]);
  }
  add("idle", step.idle, 0);
}

void Collector::add_owners(const result::Experiment& experiment) {
  const auto add = [this](const std::string& pool, const std::string& owner, double bytes) {
    if (!(bytes > 0)) return;
    content_.owners.begin_row();
    content_.owners.set("id", id_);
    content_.owners.set("pool", pool);
    content_.owners.set("owner", owner);
    content_.owners.set("owner_order",
                        static_cast<double>(owner_order_.emplace(owner, owner_order_.size()).first->second));
    content_.owners.set("color", palette_.color("owners", owner));
    content_.owners.set("bytes", bytes);
  };
  const auto& oom = experiment.oom;
  for (const auto& [pool, use] : {std::pair("hbm", &experiment.hbm), std::pair("dram", &experiment.dram)}) {
    // The owners at the failed allocation, because a later peak was never reached.
    const bool failed_here = oom && oom->pool == pool;
    for (const result::OwnedBytes& o : failed_here ? oom->owners : use->owners) add(pool, o.owner, o.bytes);
    if (failed_here) add(pool, kDoesNotFit, oom->requested);
  }
}

void Collector::add_timeline(std::size_t r, const std::string& series) {
  const auto& [subject, status, spans, capacity] = unnamed_[r];
  if (spans.empty()) return;
  ++timelines_;
  const std::tuple<std::string, std::string, std::string> identity(subject.model, subject.hardware, series);
  if (with_timeline_.size() >= kMaxTimelines || with_timeline_.count(identity) > 0 ||
      content_.timeline.rows() + spans.size() > kMaxTimelineRows) {
    return;
  }
  with_timeline_.insert(identity);
  content_.experiments.set(r, "timeline", 1);
  ++timelines_embedded_;
  double begin = std::numeric_limits<double>::infinity();
  for (const result::TimelineSpan& span : spans) begin = std::fmin(begin, span.start_s);
  Table& table = content_.timeline;
  for (const result::TimelineSpan& span : spans) {
    table.begin_row();
    table.set("id", static_cast<double>(r));
    table.set("lane", span.lane);
    table.set("kind", span.kind);
    table.set("label", span.label);
    table.set("color", palette_.color("kinds", span.kind));
    if (span.layer >= 0) table.set("layer", span.layer);
    table.set("start_s", span.start_s - begin);
    table.set("dur_s", span.duration_s);
    if (span.bytes) table.set("bytes", *span.bytes);
    if (span.waited_for) table.set("waited_for", *span.waited_for);
    table.set("place", static_cast<double>(&span - spans.data()));
  }
}

// Maps beyond the limit are left out of the page; the store has them all.
void Collector::add_heads(const std::vector<result::LayerMap>& layers) {
  if (layers.empty() || content_.heads.rows() + layers.size() * layers.front().attended.size() > kMaxHeadRows) return;
  for (const result::LayerMap& map : layers) {
    for (std::size_t h = 0; h < map.attended.size(); ++h) {
      content_.heads.begin_row();
      content_.heads.set("id", id_);
      content_.heads.set("layer", map.layer);
      content_.heads.set("head", static_cast<double>(h));
      content_.heads.set("attended", map.attended[h]);
      content_.heads.set("resident", map.resident[h]);
      content_.heads.set("recall", map.recall_mass[h]);
    }
  }
}

// Numbers of the machines that the experiments ran on, with their origins.
json Collector::origins(const std::vector<ReportSource>& sources) const {
  std::vector<std::pair<Origin, json>> rows;
  for (const ReportSource& source : sources) {
    for (const auto& [machine, numbers] : source.store->machines()) {
      const auto experiments = machines_.find({source.name, machine});
      if (experiments == machines_.end()) continue;  // belongs to another sweep in the same store
      const std::string owner = source.name.empty() ? machine : source.name + ", " + machine;
      for (const store::MachineNumber& number : numbers) {
        rows.emplace_back(number.origin, json{{"what", owner + ": " + number.key},
                                              {"origin", origin_name(number.origin)},
                                              {"uncertainty", number.uncertainty},
                                              {"source", number.source},
                                              {"experiments", experiments->second}});
      }
    }
  }
  std::ranges::stable_sort(rows, [](const auto& a, const auto& b) { return a.first > b.first; });
  json list = json::array();
  for (auto& [origin, row] : rows) list.push_back(std::move(row));
  return list;
}

json Collector::sweep(const std::vector<ReportSource>& sources) const {
  json sweep = {{"counts", json::object()},
                {"code_versions", versions_},
                {"created", {first_created_, last_created_}},
                {"timelines", {timelines_embedded_, timelines_}},
                {"kvcast", version()}};
  for (const Status status : {Status::kOk, Status::kOom, Status::kFailed}) {
    const auto count = counts_.find(status);
    sweep["counts"][std::string(status_name(status))] = count == counts_.end() ? 0 : count->second;
  }
  if (const ReportPart& part = sources.front().part; !part.is_all())
    sweep["part"] = {{"where", part.where}, {"values", part.values}, {"of", part.of}};
  if (sources.size() > 1) {
    for (const ReportSource& source : sources) sweep["compared"].push_back(source.name);
    sweep["name"] = fmt::format("{} compared with {}", fmt::join(compared_names(sources), ", "), sources.front().name);
    return sweep;
  }
  const store::Store& store = *sources.front().store;
  for (const char* name : {store::kMetaName, store::kMetaDescription, store::kMetaConfig}) {
    if (const auto text = store.metadata(name)) sweep[name] = *text;
  }
  if (const auto planned = store.metadata(store::kMetaPlanned)) {
    sweep["planned"] = json::parse(*planned, nullptr, false);
  }
  return sweep;
}

json findings_json(const store::Store& store) {
  json list = json::array();
  for (const store::Finding& f : store.findings()) {
    try {
      list.push_back({{"title", f.title}, {"text", f.text}, {"detail", f.detail}, {"places", json::parse(f.places)}});
    } catch (const json::exception& error) {
      throw UserError({store.path(), 0, 0},
                      fmt::format("the finding \"{}\" cannot be read: {}", f.title, error.what()));
    }
  }
  return list;
}

Content Collector::finish(const std::vector<ReportSource>& sources, const std::vector<store::Answer>& answers) {
  name_rows();
  content_.series = names_.table(palette_);
  content_.moments = services_.moments, content_.curves = services_.curves;
  content_.capacities = services_.capacities();
  content_.origins = origins(sources);
  content_.sweep = sweep(sources);
  content_.findings = sources.size() == 1 ? findings_json(*sources.front().store) : json::array();
  content_.changes = sources.size() > 1 ? changes_table(answers) : Table();
  content_.answers = answers_json(answers, machines_of(sources), content_.experiments, palette_);
  content_.sweep["swept"] = swept_ || content_.answers.empty();
  content_.defaults = choose_defaults(content_.experiments, content_.series);
  content_.defaults["cost"] = names_.cost().empty() ? json() : json(names_.cost());
  return std::move(content_);
}

}  // namespace

void ReportSource::for_each(const std::function<void(const Stored&)>& visit) const {
  store->for_each(visit, [this](const std::string& key) { return part.shows(key); });
}

Content collect(const std::vector<ReportSource>& sources, Palette palette) {
  KVCAST_CHECK(!sources.empty());
  Collector collector(std::move(palette));
  if (sources.size() == 1) {
    sources.front().for_each([&](const Stored& stored) { collector.add(stored); });
    return collector.finish(sources, sources.front().store->answers());
  }
  std::vector<store::Answer> answers;
  plan::StoreResults first;
  for (const ReportSource& source : sources) {
    plan::StoreResults all{source.name, {}, source.store->machines()};
    source.for_each([&](const Stored& stored) {
      all.results.push_back(stored.result);
      Stored labelled = stored;
      labelled.result.subject.swept.emplace_back(kStoreKey, source.name);
      collector.add(labelled);
    });
    if (&source == &sources.front())
      first = std::move(all);
    else
      std::ranges::move(plan::changes(first, all), std::back_inserter(answers));
  }
  return collector.finish(sources, answers);
}

}  // namespace kvcast::report

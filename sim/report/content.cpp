#include "report/content.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "base/build.hpp"
#include "base/error.hpp"
#include "base/origin.hpp"
#include "report/defaults.hpp"
#include "report/lookup.hpp"
#include "report/series.hpp"

namespace kvcast::report {

namespace {

using nlohmann::json;
using store::Record;
using store::Status;

// A step of a long model has some thousand operations; what these admit keeps the page well under its size.
constexpr std::size_t kMaxTimelines = 48;
constexpr std::size_t kMaxTimelineRows = 16000;

const json& list_at(const json& value, const std::string& path) {
  static const json none = json::array();
  const json* found = find_path(value, path);
  return found != nullptr && found->is_array() ? *found : none;
}

// The origin stated for a number, or for the part of the result that the number belongs to: "memory" speaks for
// "memory.hbm_peak_bytes".
std::string origin_of(const json& result, std::string path) {
  const json* origins = find_path(result, "origin");
  while (origins != nullptr && !path.empty()) {
    const std::string origin = text_at(*origins, path);
    if (!origin.empty()) return origin;
    const std::size_t dot = path.rfind('.');
    path.resize(dot == std::string::npos ? 0 : dot);
  }
  return "";
}

class Collector {
 public:
  Collector(const json& metrics, Palette palette) : metrics_(metrics), palette_(std::move(palette)) {}

  void learn_keys(const Record& record) { names_.learn_keys(record); }
  void learn_values(const Record& record) { names_.learn_values(record); }
  void add(const Record& record);
  Content finish(const store::Store& store);

 private:
  void add_setting(const Record& record);
  void add_metrics(const json& result);
  void add_oom(const json& result);
  void add_breakdown(const json& result);
  void add_owners(const json& result);
  void add_timeline(const Record& record);
  void add_rests_on(const json& list, int experiments = 1);
  json rests_on() const;
  json sweep(const store::Store& store) const;

  const json& metrics_;
  Palette palette_;
  SeriesNames names_;
  Content content_;
  double id_ = -1;
  std::set<std::string> versions_;
  std::string first_created_;
  std::string last_created_;
  std::map<std::string, std::size_t> owner_order_;  // owner → place by first appearance
  std::size_t timelines_ = 0;
  std::size_t timelines_embedded_ = 0;
  std::set<std::tuple<std::string, std::string, std::string>> with_timeline_;               // model, hardware, series
  std::map<std::string, int> machines_;                                                     // → experiments
  std::map<std::tuple<std::string, std::string, std::string, double>, int> rests_on_rows_;  // → experiments
};

void Collector::add(const Record& record) {
  id_ += 1;
  versions_.insert(record.code_version);
  if (first_created_.empty() || record.created_at < first_created_) first_created_ = record.created_at;
  last_created_ = std::max(last_created_, record.created_at);
  add_setting(record);
  add_metrics(record.result);
  add_oom(record.result);
  add_breakdown(record.result);
  add_owners(record.result);
  add_timeline(record);
  add_rests_on(list_at(record.result, "rests_on"));
  ++machines_[text_at(record.config, "hardware")];
}

void Collector::add_setting(const Record& record) {
  const std::string policy = SeriesNames::policy_of(record);
  const std::string variant = names_.variant_of(record);
  // Failed rows are listed, and no line of a chart is theirs.
  if (record.status != Status::kFailed) names_.appear(policy, variant);
  Table& table = content_.experiments;
  table.begin_row();
  table.set("id", id_);
  table.set("key", record.key);
  table.set("status", std::string(status_name(record.status)));
  table.set("model", text_at(record.config, "model"));
  table.set("hardware", text_at(record.config, "hardware"));
  table.set("policy", policy);
  table.set("variant", variant);
  table.set("series", SeriesNames::join(policy, variant));
  table.set("context", number_at(record.config, "workload.prompt_tokens"));
  table.set("decode_tokens", number_at(record.config, "workload.decode_tokens"));
  table.set("batch", number_at(record.config, "workload.batch"));
  table.set("budget", number_at(record.config, "policy.budget"));
  table.set("split", text_at(record.config, "policy.split_factor"));
  table.set("split_value", number_at(record.config, "policy.split_factor"));
  table.set("error", text_at(record.result, "error"));
  table.set("simulated_in", record.wall_s);
}

void Collector::add_metrics(const json& result) {
  Table& table = content_.experiments;
  for (const json& metric : metrics_) {
    const std::string field = text_at(metric, "field");
    const std::string path = text_at(metric, "path");
    table.set(field, number_at(result, path));
    table.set("origin_" + field, origin_of(result, path));
    const json* intervals = find_path(result, "intervals");
    const json& interval = intervals == nullptr ? result : list_at(*intervals, path);
    if (interval.is_array() && interval.size() == 2) {
      table.set(field + "_low", as_number(interval[0]));
      table.set(field + "_high", as_number(interval[1]));
    }
  }
  table.set("binding_resource", text_at(result, "binding_resource"));
  if (const json* shares = find_path(result, "origin_shares.decode"); shares != nullptr && shares->is_object()) {
    for (const auto& [origin, share] : shares->items()) table.set("share_" + origin, as_number(share));
  }
}

void Collector::add_oom(const json& result) {
  const json* oom = find_path(result, "oom");
  if (oom == nullptr || !oom->is_object()) return;
  Table& table = content_.experiments;
  table.set("oom_pool", text_at(*oom, "pool"));
  table.set("oom_moment", text_at(*oom, "moment"));
  table.set("oom_requested_for", text_at(*oom, "requested_for"));
  table.set("oom_requested", number_at(*oom, "requested_bytes"));
  table.set("oom_in_use", number_at(*oom, "in_use_bytes"));
  table.set("oom_capacity", number_at(*oom, "capacity_bytes"));
}

void Collector::add_breakdown(const json& result) {
  for (const json& part : list_at(result, "breakdown")) {
    content_.breakdown.begin_row();
    content_.breakdown.set("id", id_);
    content_.breakdown.set("kind", text_at(part, "kind"));
    content_.breakdown.set("color", palette_.color("kinds", text_at(part, "kind")));
    content_.breakdown.set("exposed_s", number_at(part, "exposed_s"));
    content_.breakdown.set("hidden_s", number_at(part, "hidden_s"));
  }
}

void Collector::add_owners(const json& result) {
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
  const std::string oom_pool = text_at(result, "oom.pool");
  for (const char* pool : {"hbm", "dram"}) {
    // What stood in the way of the allocation that failed, rather than a peak that was never reached.
    const bool failed_here = oom_pool == pool;
    const std::string path = failed_here ? "oom.owners" : "memory." + std::string(pool) + "_owners";
    for (const json& owner : list_at(result, path)) add(pool, text_at(owner, "owner"), number_at(owner, "bytes"));
    if (failed_here) add(pool, kDoesNotFit, number_at(result, "oom.requested_bytes"));
  }
}

void Collector::add_timeline(const Record& record) {
  const json& rows = list_at(record.result, "timeline");
  if (rows.empty()) return;
  ++timelines_;
  const std::tuple<std::string, std::string, std::string> place(
      text_at(record.config, "model"), text_at(record.config, "hardware"),
      SeriesNames::join(SeriesNames::policy_of(record), names_.variant_of(record)));
  if (with_timeline_.size() >= kMaxTimelines || with_timeline_.count(place) > 0 ||
      content_.timeline.rows() + rows.size() > kMaxTimelineRows) {
    return;
  }
  with_timeline_.insert(place);
  content_.experiments.set("timeline", 1);
  ++timelines_embedded_;
  double begin = std::numeric_limits<double>::infinity();
  for (const json& row : rows) begin = std::fmin(begin, number_at(row, "start_s"));
  for (const json& row : rows) {
    content_.timeline.begin_row();
    content_.timeline.set("id", id_);
    for (const char* text : {"lane", "kind", "label"}) content_.timeline.set(text, text_at(row, text));
    content_.timeline.set("color", palette_.color("kinds", text_at(row, "kind")));
    content_.timeline.set("layer", number_at(row, "layer"));
    content_.timeline.set("start_s", number_at(row, "start_s") - begin);
    content_.timeline.set("dur_s", number_at(row, "dur_s"));
  }
}

void Collector::add_rests_on(const json& list, int experiments) {
  std::set<decltype(rests_on_rows_)::key_type> here;  // a result that names a number twice rests on it once
  for (const json& entry : list) {
    const double uncertainty = number_at(entry, "uncertainty");
    here.emplace(text_at(entry, "what"), text_at(entry, "origin"), text_at(entry, "source"),
                 std::isnan(uncertainty) ? -1 : uncertainty);  // -1: not stated; NaN would be equal to nothing
  }
  for (const auto& entry : here) rests_on_rows_[entry] += experiments;
}

// The better known origins last; names that this version does not know come first.
int badness(const std::string& origin) {
  try {
    return static_cast<int>(origin_from_name(origin));
  } catch (const UserError&) {
    return 1 + static_cast<int>(Origin::kExtrapolated);
  }
}

json Collector::rests_on() const {
  json list = json::array();
  for (const auto& [entry, experiments] : rests_on_rows_) {
    const auto& [what, origin, source, uncertainty] = entry;
    json row = {{"what", what}, {"origin", origin}, {"source", source}, {"experiments", experiments}};
    if (uncertainty >= 0) row["uncertainty"] = uncertainty;
    list.push_back(std::move(row));
  }
  std::stable_sort(list.begin(), list.end(), [](const json& a, const json& b) {
    return badness(a["origin"].get<std::string>()) > badness(b["origin"].get<std::string>());
  });
  return list;
}

json Collector::sweep(const store::Store& store) const {
  json sweep = {{"counts", json::object()},
                {"code_versions", versions_},
                {"created", {first_created_, last_created_}},
                {"timelines", {timelines_embedded_, timelines_}},
                {"kvcast", version()}};
  for (const Status status : {Status::kOk, Status::kOom, Status::kFailed}) {
    sweep["counts"][std::string(status_name(status))] = store.count(status);
  }
  for (const char* name : {store::kMetaName, store::kMetaDescription, store::kMetaConfig}) {
    if (const auto text = store.metadata(name)) sweep[name] = *text;
  }
  if (const auto planned = store.metadata(store::kMetaPlanned)) {
    sweep["planned"] = json::parse(*planned, nullptr, false);
  }
  return sweep;
}

json read_findings(const store::Store& store) {
  json findings = json::array();
  const auto text = store.metadata(store::kMetaFindings);
  if (!text.has_value()) return findings;
  try {
    for (const json& finding : json::parse(*text)) {
      findings.push_back({{"title", text_at(finding, "title")},
                          {"text", text_at(finding, "text")},
                          {"detail", text_at(finding, "detail")}});
    }
  } catch (const json::exception& error) {
    throw UserError({store.path(), 0, 0}, fmt::format("the findings in the metadata are damaged: {}", error.what()));
  }
  return findings;
}

Content Collector::finish(const store::Store& store) {
  content_.series = names_.table(palette_);
  // What all experiments on a machine rest on is told once, not in each result.
  for (const auto& [machine, experiments] : machines_) {
    const auto text = store.metadata(store::kMetaRestsOn + machine);
    if (text) add_rests_on(json::parse(*text, nullptr, false), experiments);
  }
  content_.rests_on = rests_on();
  content_.sweep = sweep(store);
  content_.findings = read_findings(store);
  content_.defaults = choose_defaults(content_.experiments, content_.series);
  return std::move(content_);
}

}  // namespace

Content collect(const store::Store& store, const json& metrics, Palette palette) {
  Collector collector(metrics, std::move(palette));
  store.for_each([&](const Record& record) { collector.learn_keys(record); });
  store.for_each([&](const Record& record) { collector.learn_values(record); });
  store.for_each([&](const Record& record) { collector.add(record); });
  return collector.finish(store);
}

}  // namespace kvcast::report

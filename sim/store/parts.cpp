// The members of each struct are listed once, for both directions (store/archive.hpp).
#include "store/parts.hpp"

#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "graph/op.hpp"
#include "metrics/attribution.hpp"
#include "result/metric.hpp"
#include "serving/summary.hpp"
#include "store/archive.hpp"
#include "store/row.hpp"

// Argument-dependent lookup finds the members of a struct in the struct's own namespace.
namespace kvcast::metrics {

// Stores keep the first spelling of these names, so that older ones can still be read.
std::string_view stored_bound(std::size_t i) {
  switch (const auto bound = static_cast<Bound>(i)) {
    case Bound::kHbm:
      return "hbm bandwidth";
    case Bound::kDram:
      return "host dram";
    case Bound::kCores:
      return "cpu cores";
    default:
      return bound_name(bound);
  }
}

struct Path {
  KindsByBound& seconds;
};

template <class Io>
static void members(Io& io, Path& path) {
  for (std::size_t k = 0; k < path.seconds.size(); ++k) {
    // from a literal, hence null-terminated
    const char* const kind = graph::kind_name(static_cast<graph::Kind>(k)).data();
    io(kind, store::Named<kBoundCount>{path.seconds[k], stored_bound});
  }
}

template <class Io>
static void members(Io& io, Attribution& a) {
  const auto kind = [](std::size_t i) { return graph::kind_name(static_cast<graph::Kind>(i)); };
  const auto origin = [](std::size_t i) { return origin_name(static_cast<Origin>(i)); };
  io("exposed", store::Named<graph::kKindCount>{a.exposed, kind});
  io("hidden", store::Named<graph::kKindCount>{a.hidden, kind});
  io("uncertain", store::Named<graph::kKindCount>{a.uncertain, kind});
  io("bound", store::Named<kBoundCount>{a.bound, stored_bound});
  Path path{a.path};
  io("path", path);
  io("origin", store::Named<kOriginCount>{a.origin, origin});
  io("idle", a.idle);
}

}  // namespace kvcast::metrics

namespace kvcast::result {

template <class Io>
static void members(Io& io, OwnedBytes& o) {
  io("owner", o.owner), io("bytes", o.bytes);
}

template <class Io>
static void members(Io& io, OutOfMemory& oom) {
  io("pool", oom.pool), io("moment", oom.moment), io("requested_for", oom.requested_for);
  io("requested_bytes", oom.requested), io("in_use_bytes", oom.in_use), io("capacity_bytes", oom.capacity);
  io("owners", oom.owners);
}

template <class Io>
static void members(Io& io, TimelineSpan& s) {
  io("lane", s.lane), io("kind", s.kind), io("label", s.label), io("layer", s.layer);
  io("start_s", s.start_s), io("dur_s", s.duration_s);
  io("bytes", s.bytes), io("waited_for", s.waited_for);
}

template <class Io>
static void members(Io& io, ShiftedTimes& t) {
  io("step", t.step), io("prefill", t.prefill), io("build", t.build);
  io("step_parts", t.step_parts), io("prefill_parts", t.prefill_parts), io("build_parts", t.build_parts);
}

template <class Io>
static void members(Io& io, Effect& e) {
  io("source", e.source), io("keys", e.keys), io("longer", e.longer), io("shorter", e.shorter);
}

template <class Io>
static void members(Io& io, TextInterval& t) {
  io("metric", t.metric), io("low", t.interval.low), io("high", t.interval.high);
}

template <class Io>
static void members(Io& io, TraceTimes& t) {
  io("step_s", t.step_s), io("prefill_s", t.prefill_s);
  io("step_spread", t.step_spread), io("prefill_spread", t.prefill_spread);
}

template <class Io>
static void members(Io& io, IndexBuild& build) {
  io("time", build.time), io("effects", build.effects);
}

template <class Io>
static void members(Io& io, LayerMap& map) {
  io("layer", map.layer), io("attended", map.attended), io("resident", map.resident);
  io("recall_mass", map.recall_mass);
}

template <class Io>
static void members(Io& io, TaskScore& t) {
  io("task", t.task), io("known", t.known), io("interval", t.interval), io("steps", t.steps);
  io("recall_mean", t.recall_mean), io("recall_min", t.recall_min), io("other_recall", t.other_recall);
  io("source", t.source);
}

template <class Io>
static void members(Io& io, BenchmarkTask& t) {
  io("task", t.task), io("share_of_full", t.share_of_full), io("interval", t.interval), io("full", t.full);
  io("simulated", t.simulated);
}

template <class Io>
static void members(Io& io, BenchmarkScore& s) {
  io("benchmark", s.benchmark), io("context", s.context), io("interval", s.interval);
  io("tasks", s.tasks), io("origin", s.origin);
}

// Another result is written with all cells of its row.
static nlohmann::json value_json(std::shared_ptr<const Result>& other) {
  return store::row_json(store::row_of(*other));
}

static void read_value(const nlohmann::json& json, std::shared_ptr<const Result>& other) {
  other = std::make_shared<Result>(store::result_of(store::row_of_json(json)));
}

template <class Io>
static void members(Io& io, Alternative& a) {
  io("source", a.source), io("longer", a.longer), io("shorter", a.shorter);
}

template <class Io>
static void members(Io& io, Service& s) {
  serving::Summary& sum = s.summary;
  io("served", s.served), io("state", sum.state), io("origin", s.origin), io("apart", sum.apart);
  io("slo_share", sum.slo_share), io("goodput_per_s", sum.goodput_per_s);
  io("good_tokens_per_s", sum.good_tokens_per_s);
  io("moments", sum.moments), io("ttft_curve", sum.ttft_curve), io("tpot_curve", sum.tpot_curve);
}

}  // namespace kvcast::result

namespace kvcast::serving {

template <class Io>
static void members(Io& io, Moment& m) {
  io("at", m.at), io("running", m.running), io("waiting", m.waiting), io("used", m.used);
  io("preemptions", m.preemptions);
}

static nlohmann::json value_json(Trend state) { return state_name(state); }
static void read_value(const nlohmann::json& json, Trend& state) {
  std::string text;
  store::read_value(json, text);
  const auto known = state_of(text);
  if (!known) throw std::runtime_error("unknown state " + text);
  state = *known;
}

}  // namespace kvcast::serving

namespace kvcast::store {
namespace {

// Parts of a result that cells cannot represent.
struct Parts {
  result::Result& result;
  std::vector<std::string> flag_texts;   // settings that are texts, though they read "true" or "false"
  std::vector<std::string> not_numbers;  // metrics that are NaN, which SQLite keeps as NULL
};

bool is_flag_text(const result::Setting& setting) {
  const auto* text = std::get_if<std::string>(&setting.value);
  return text != nullptr && (*text == "true" || *text == "false");
}

template <class Io>
void members(Io& io, Parts& p) {
  result::Result& r = p.result;
  result::Experiment& e = r.experiment;
  io("swept", r.subject.swept);
  io("flag_texts", p.flag_texts), io("not_numbers", p.not_numbers);
  io("hbm_owners", e.hbm.owners), io("decode_hbm_owners", e.decode_hbm.owners), io("dram_owners", e.dram.owners);
  io("decode_hbm_capacity_bytes", e.decode_hbm.capacity);
  io("hbm_capacity_spread_bytes", e.hbm.capacity_spread), io("hbm_capacity_origin", e.hbm.capacity_origin);
  io("hbm_uncounted_bytes", e.hbm.uncounted), io("decode_hbm_uncounted_bytes", e.decode_hbm.uncounted);
  io("dram_capacity_spread_bytes", e.dram.capacity_spread), io("dram_capacity_origin", e.dram.capacity_origin);
  io("borderline", r.borderline);
  io("oom", e.oom);
  io("decode", e.step), io("prefill", e.prefill);
  io("effects", e.effects), io("by_trace", e.by_trace), io("by_text", r.by_text), io("timeline", e.timeline);
  io("build", r.build), io("service", r.service);
  io("accuracy_origin", r.accuracy.origin), io("task", r.accuracy.task);
  io("layer_maps", r.accuracy.layers);
  io("benchmark", r.benchmark), io("benchmark_refused", r.benchmark_refused);
  io("alternatives", r.alternatives);
}

}  // namespace

std::string parts_text(const result::Result& result) {
  result::Result rest = result;
  Parts parts{rest, {}, {}};
  for (const result::Setting& setting : rest.subject.settings) {
    if (is_flag_text(setting)) parts.flag_texts.push_back(setting.key);
  }
  for (const result::Metric& metric : result::all_metrics()) {
    double* const field = metric.field == nullptr ? nullptr : metric.field(rest, metric.which);
    if (field == nullptr) continue;
    if (std::isnan(*field)) parts.not_numbers.push_back(metric.path);
    *field = 0;  // it has a column
  }
  return struct_json(parts).dump();
}

void read_parts(const std::string& text, result::Result& result) {
  Parts parts{result, {}, {}};
  read_struct(nlohmann::json::parse(text), parts);
  for (result::Setting& setting : result.subject.settings) {
    const auto& texts = parts.flag_texts;
    if (std::find(texts.begin(), texts.end(), setting.key) != texts.end())
      setting.value = result::text_of(setting.value);
  }
  for (const std::string& path : parts.not_numbers) {
    const result::Metric* const metric = result::find_metric(path);
    if (metric == nullptr || metric->field == nullptr) throw std::runtime_error("no number is called " + path);
    double* const field = metric->field(result, metric->which);
    if (field != nullptr) *field = std::numeric_limits<double>::quiet_NaN();
  }
}

}  // namespace kvcast::store

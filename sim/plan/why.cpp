// Explains why one variant is faster or slower than another: the critical paths of both, by kind of operation and by
// bottleneck, add up to their times, so that the differences add up to the difference. The gain from a free resource is
// found by simulating it. The time to first token of a service has the parts that its requests pass through.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>

#include "config/hardware.hpp"
#include "config/section.hpp"
#include "plan/compare.hpp"
#include "plan/question.hpp"
#include "plan/setting_text.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {

extern const Kind kWhy;

namespace {

using config::Node;
using nlohmann::json;
using result::Result;

// Numbers of a machine that together describe one resource.
struct Resource {
  const char* name;
  std::vector<std::string_view> knobs;
};

const std::vector<Resource>& resources() {
  static const std::vector<Resource> all = {
      {"HBM bandwidth", {"gpu.hbm_bandwidth", "gpu.l2_bandwidth"}},
      {"compute", {"gpu.tensor_flops", "gpu.vector_flops"}},
      {"kernel latency",
       {"gpu.floor_attention", "gpu.floor_gemm", "gpu.floor_score", "gpu.floor_topk", "gpu.floor_small",
        "gpu.memory_ramp", "gpu.block_bandwidth", "gpu.gap_stream", "gpu.gap_graph"}},
      {"host link",
       {"link.theory_bandwidth", "link.h2d_bandwidth", "link.d2h_bandwidth", "link.both_bandwidth",
        "link.pageable_bandwidth"}},
      {"copy issue and engine",
       {"link.copy_latency", "link.load_latency", "link.issue_2d", "link.issue_row", "link.issue_batched",
        "link.issue_call", "link.engine_row", "link.engine_batched", "link.engine_turn", "link.engine_piece"}},
      {"host threads",
       {"host.launch", "host.graph_launch", "host.graph_node", "host.eager_op", "host.eager_layer", "host.stream_sync",
        "host.item_sync", "host.python_page", "host.python_head", "host.task"}},
      {"CPU cores",
       {"host.core_flops", "host.core_products", "host.core_bandwidth", "host.core_rank", "host.core_rank_again",
        "host.core_lookup", "host.core_bucket", "host.core_translation", "host.dispatch"}},
      {"host DRAM", {"host.dram_bandwidth"}},
  };
  return all;
}

constexpr double kLeastDifference = 1e-3;  // smaller relative differences count as none
constexpr double kLeastPart = 1e-9;        // seconds; smaller parts of a difference may be rounding

// Returns whether a part is too small to explain anything of a difference. Both in seconds.
bool is_negligible(double part, double difference) {
  return std::abs(part) < std::max(kLeastPart, kLeastDifference * std::abs(difference));
}

class Why final : public Question {
 public:
  Why(const Node& run, const Node& map) {
    config::Section section = section_of(kWhy, map);
    metric_ = result::find_metric("decode.tpot_s.mean");
    if (section.has("metric")) metric_ = &read_metric(section.node("metric"));
    if_free_ = section.flag("if_free", true);
    const std::string& path = metric_->path;
    // Throughput is reported as time per token of the whole batch.
    per_token_ = path == "decode.tokens_per_s";
    if (path == "serving.ttft_s.mean") served_ = &serving::Summary::ttft_mean;
    if (path == "serving.ttft_s.p99") served_ = &serving::Summary::ttft_p99;
    if (path != "decode.tpot_s.mean" && path != "prefill.ttft_s" && !per_token_ && served_ == nullptr) {
      throw UserError(
          section.where("metric"), fmt::format("why: {} has no parts", path),
          {"decode.tpot_s.mean", "prefill.ttft_s", "decode.tokens_per_s", "serving.ttft_s.mean", "serving.ttft_s.p99"});
    }
    of_ = read_variant(run, section.node("of"));
    against_ = read_variant(run, section.node("against"));
    if (served_ != nullptr && !(of_.run.find("traffic") != nullptr && against_.run.find("traffic") != nullptr)) {
      throw UserError(section.where("metric"), fmt::format("why: {} needs a run with `traffic:`", path));
    }
    tell_apart(of_, against_);
  }

  Answer answer(Experiments& experiments) const override {
    const std::vector<ResultPtr> pair = experiments.run({of_.run, against_.run});
    for (const ResultPtr& r : pair) {
      if (r->status == result::Status::kFailed) throw UserError(r->error);
    }
    Answer out;
    out.kind = kWhy.name;
    out.question = fmt::format("Why does {} differ from {} in {}?", of_.label, against_.label,
                               result::label_in_sentence(*metric_));
    if (!has_time(*pair[0]) || !has_time(*pair[1])) return misfit(*pair[0], *pair[1], std::move(out));
    explain(*pair[0], *pair[1], out);
    if (if_free_) add_free_resources(experiments, out);
    const std::string moved = most_sensitive(*pair[0], *metric_);
    out.say("Grounds: {}; {} for {}{}.", grounds_of(*pair[0]), origin_name(result::origin_of(time_of(*pair[1]))),
            against_.label, moved.empty() ? "" : fmt::format("; {} is most sensitive to {}", of_.label, moved));
    return out;
  }

 private:
  using Parts = std::map<std::pair<std::string, std::string>, double>;  // seconds by kind and bottleneck

  bool of_prefill() const { return result::is_of_prefill(*metric_); }
  const metrics::Attribution& time_of(const Result& r) const { return plan::time_of(r, metric_); }

  bool has_time(const Result& r) const {
    return r.has_times() && (served_ == nullptr || (r.service && r.service->served));
  }

  // Seconds that the question is about: those of a step, of a prefill, or a generated token's share of a step.
  double seconds(const Result& r) const {
    if (served_ != nullptr) return (r.service->summary.*served_).sum();
    if (of_prefill()) return r.experiment.ttft_s;
    return per_token_ ? 1 / r.experiment.tokens_per_s : r.experiment.tpot_mean_s;
  }

  std::string bottleneck_of(const Result& r) const {
    if (served_ == nullptr) return std::string(result::bottleneck(time_of(r)));
    const auto seconds = [&](const serving::TtftPart& part) { return r.service->summary.*served_.*part.seconds; };
    return std::ranges::max_element(serving::kTtftParts, {}, seconds)->cause;
  }

  // The critical path, scaled to these seconds if they are a token's.
  Parts parts_of(const Result& r) const {
    if (served_ != nullptr) {
      Parts parts;
      for (const serving::TtftPart& part : serving::kTtftParts)
        parts[{part.label, part.cause}] = r.service->summary.*served_.*part.seconds;
      return parts;
    }
    const metrics::Attribution& time = time_of(r);
    const double whole = time.total(), scale = whole > 0 ? seconds(r) / whole : 0;
    Parts parts;
    double on_path = 0;
    for (std::size_t k = 0; k < time.path.size(); ++k) {
      for (std::size_t b = 0; b < time.path[k].size(); ++b) {
        if (time.path[k][b] == 0) continue;
        const auto kind = graph::kind_name(static_cast<graph::Kind>(k));
        const auto bound = metrics::bound_name(static_cast<metrics::Bound>(b));
        parts[{std::string(kind), std::string(bound)}] += scale * time.path[k][b];
        on_path += time.path[k][b];
      }
    }
    if (const double rest = whole - on_path; std::abs(rest) > 1e-6 * whole) parts[{"idle", "none"}] = scale * rest;
    return parts;
  }

  struct Part {
    std::string kind, resource;
    double of = 0, against = 0;
    double difference() const { return of - against; }
  };

  std::vector<Part> merged(const Result& a, const Result& b) const {
    std::map<std::pair<std::string, std::string>, Part> all;
    for (const auto& [name, s] : parts_of(a)) all[name].of = s;
    for (const auto& [name, s] : parts_of(b)) all[name].against = s;
    std::vector<Part> parts;
    for (auto& [name, part] : all) {
      part.kind = name.first, part.resource = name.second;
      parts.push_back(part);
    }
    std::ranges::stable_sort(
        parts, [](const Part& x, const Part& y) { return std::abs(x.difference()) > std::abs(y.difference()); });
    return parts;
  }

  static std::string signed_seconds(double s) { return (s < 0 ? "-" : "+") + format_seconds(std::abs(s)); }

  void explain(const Result& a, const Result& b, Answer& out) const {
    const double of = seconds(a), against = seconds(b), difference = of - against;
    const Comparison c = compare(a, b, *metric_);
    const std::vector<Part> parts = merged(a, b);
    out.data = {{"of", of_.label},
                {"against", against_.label},
                {"seconds", {{"of", of}, {"against", against}}},
                {"difference", difference},
                {"parts", json::array()},
                {"times", c.times},
                {"interval", {c.interval.low, c.interval.high}},
                {"binding_resource", {{"of", bottleneck_of(a)}, {"against", bottleneck_of(b)}}}};
    const std::string what = served_ != nullptr ? label_in_sentence(*metric_)
                             : of_prefill()     ? "the time to first token"
                             : per_token_       ? "a generated token"
                                                : "a decode step";
    const bool equal = std::abs(difference) <= kLeastDifference * std::max(of, against);
    const std::string verdict = equal                     ? "No significant difference"
                                : !c.beyond_uncertainty() ? "The two are within uncertainty of each other"
                                : difference < 0          ? fmt::format("{} is {} as fast", of_.label, times_text(c))
                                                 : fmt::format("{} is slower: {} as fast", of_.label, times_text(c));
    out.text = fmt::format("{}: {} takes {} with {} and {} with {}{}.", verdict, what, format_seconds(of), of_.label,
                           format_seconds(against), against_.label, equal ? "" : largest_parts(parts, difference));
    out.say("{} is bound by {}, {} by {}.", of_.label, bottleneck_of(a), against_.label, bottleneck_of(b));
    out.say("A request of {}: {}; of {}: {}.", of_.label, request_text(a), against_.label, request_text(b));
    double left_out = 0;
    for (const Part& p : parts) {
      out.data["parts"].push_back({{"kind", p.kind},
                                   {"resource", p.resource},
                                   {"seconds", p.difference()},
                                   {"of", p.of},
                                   {"against", p.against}});
      if (std::abs(p.difference()) < 0.01 * std::max(of, against)) {
        left_out += p.difference();
        continue;
      }
      out.say("{} ({}): {} ({} against {})", p.kind, p.resource, signed_seconds(p.difference()), format_seconds(p.of),
              format_seconds(p.against));
    }
    if (!is_negligible(left_out, difference)) out.say("smaller parts together: {}", signed_seconds(left_out));
    add_hidden(a, b, out);
    add_bytes(a, b, out);
  }

  // "; the largest differences on the critical path are attention (HBM bandwidth) -12 ms, launch (host thread) +3 ms".
  std::string largest_parts(const std::vector<Part>& parts, double difference) const {
    constexpr std::size_t kNamed = 2;
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < std::min(kNamed, parts.size()); ++i) {
      if (is_negligible(parts[i].difference(), difference)) break;  // parts are in order of size
      texts.push_back(
          fmt::format("{} ({}) {}", parts[i].kind, parts[i].resource, signed_seconds(parts[i].difference())));
    }
    return texts.empty() ? ""
                         : fmt::format("; the largest difference{}{} {} {}", texts.size() == 1 ? "" : "s",
                                       served_ == nullptr ? " on the critical path" : "",
                                       texts.size() == 1 ? "is" : "are", fmt::join(texts, ", "));
  }

  // Work behind other work, by kind of operation.
  void add_hidden(const Result& a, const Result& b, Answer& out) const {
    json& list = out.data["hidden"] = json::array();
    if (served_ != nullptr) return;
    std::vector<std::string> texts;
    for (std::size_t k = 0; k < time_of(a).hidden.size(); ++k) {
      const double of = time_of(a).hidden[k], against = time_of(b).hidden[k];
      if (of == 0 && against == 0) continue;
      const auto kind = graph::kind_name(static_cast<graph::Kind>(k));
      list.push_back({{"kind", kind}, {"of", of}, {"against", against}});
      texts.push_back(fmt::format("{} {} and {}", kind, format_seconds(of), format_seconds(against)));
    }
    if (!texts.empty()) out.say("Hidden behind other work: {}.", fmt::join(texts, "; "));
  }

  void add_bytes(const Result& a, const Result& b, Answer& out) const {
    static constexpr std::pair<const char*, double graph::ByteCounts::*> kTraffic[] = {
        {"hbm_read", &graph::ByteCounts::hbm_read}, {"hbm_write", &graph::ByteCounts::hbm_write},
        {"kv_read", &graph::ByteCounts::kv_read},   {"h2d", &graph::ByteCounts::h2d},
        {"d2h", &graph::ByteCounts::d2h},           {"cpu_dram", &graph::ByteCounts::cpu_dram}};
    std::vector<std::string> texts;
    for (const auto& [name, member] : kTraffic) {
      const double of = a.experiment.traffic.*member, against = b.experiment.traffic.*member;
      out.data["bytes"][name] = {{"of", of}, {"against", against}};
      if (of == 0 && against == 0) continue;
      texts.push_back(fmt::format("{} {} and {}", name, format_quantity(of, Dimension::kBytes),
                                  format_quantity(against, Dimension::kBytes)));
    }
    if (of_prefill() || served_ != nullptr) return;
    out.say("Bytes of a step, {} and {}: {}.", of_.label, against_.label, fmt::join(texts, "; "));
  }

  Node without_cost(const Node& run, const Resource& resource) const {
    const config::Hardware machine = config::read_hardware(*run.find("hardware"));
    Node changed = run;
    for (const config::ConstKnob& knob : config::knobs(machine)) {
      if (std::ranges::find(resource.knobs, knob.key) == resource.knobs.end()) continue;
      // A time of 0 and a thousand times the rate make the cost negligible.
      const char* const factor = knob.y == Dimension::kSeconds ? "x0" : "x1000";
      changed = changed.with("hardware." + knob.key, Node::scalar(factor, {}));
    }
    return changed;
  }

  void add_free_resources(Experiments& experiments, Answer& out) const {
    std::vector<Node> runs;
    for (const Resource& r : resources()) {
      runs.push_back(without_cost(of_.run, r)), runs.push_back(without_cost(against_.run, r));
    }
    const std::vector<ResultPtr> results = experiments.run(runs);
    const double of = out.data["seconds"]["of"], against = out.data["seconds"]["against"];
    json& list = out.data["free"] = json::array();
    std::vector<std::pair<double, std::string>> gains;
    for (std::size_t i = 0; i < resources().size(); ++i) {
      const Result &a = *results[2 * i], &b = *results[2 * i + 1];
      if (!a.has_times() || !b.has_times()) continue;
      const double gain = of - seconds(a), other = against - seconds(b);
      list.push_back({{"resource", resources()[i].name}, {"of", gain}, {"against", other}});
      if (gain > 0.01 * of) gains.emplace_back(-gain, fmt::format("{} {}", resources()[i].name, format_seconds(gain)));
    }
    std::ranges::sort(gains);
    if (gains.empty())
      out.say("No single resource, if it cost nothing, would make {} faster by a per cent.", of_.label);
    else
      out.say("{} would gain, if a resource cost nothing: {}.", of_.label, fmt::join(std::views::values(gains), "; "));
  }

  Answer misfit(const Result& a, const Result& b, Answer out) const {
    const auto text = [](const Result& r, const std::string& label) {
      if (r.service && !r.service->served) return fmt::format("{} serves nothing", label);
      if (!r.experiment.oom) return fmt::format("{} fits", label);
      const result::OutOfMemory& oom = *r.experiment.oom;
      return fmt::format("{} does not fit ({}: {} in use of {}, {} for {})", label, oom.pool,
                         format_quantity(oom.in_use, Dimension::kBytes),
                         format_quantity(oom.capacity, Dimension::kBytes),
                         format_quantity(oom.requested, Dimension::kBytes), oom.requested_for);
    };
    out.text = fmt::format("No difference to explain: {}, {}.", text(a, of_.label), text(b, against_.label));
    out.data = {{"of", of_.label}, {"against", against_.label}, {"difference", nullptr}, {"parts", json::array()}};
    return out;
  }

  bool per_token_ = false;
  // The parts, if the question is about a time to first token of a service.
  serving::TtftParts<double> serving::Summary::*served_ = nullptr;
  bool if_free_ = true;  // whether to simulate each resource being free, which takes most of the experiments
  Variant of_, against_;
};

constexpr config::Key<Node> kWhyKeys[] = {{"metric"},
                                          {"of", kNeeded},
                                          {"against", kNeeded},
                                          {"if_free", {.type = config::KeyShape::Type::kFlag, .fallback = "true"}}};

// A waterfall from one variant's time to the other's.
Chart draw_why(const json& data, const Machines&) {
  constexpr std::size_t kMostBars = 8;  // of single parts
  constexpr double kSmallBar = 0.01;    // share of the difference: smaller parts are combined
  constexpr double kSmallSpread = .1;   // share of the longer time: bars from 0 would hide smaller differences
  constexpr double kNoSpread = 1e-3;    // share of the longer time: nothing to enlarge
  const json& parts = data.at("parts");
  if (parts.empty()) return {};
  const double of = data.at("seconds").at("of"), against = data.at("seconds").at("against");
  const double longer = std::max(of, against);
  // One to three digits before the point.
  const double scale = longer >= 1 ? 1 : longer >= 1e-3 ? 1e3 : 1e6;
  const char* const unit = longer >= 1 ? "s" : longer >= 1e-3 ? "ms" : "µs";
  Chart chart{.spec = "plan_why", .variants = {data.at("against"), data.at("of")}};
  json& steps = chart.data["steps"];
  double least = std::min(of, against), most = longer;
  const auto add = [&](const std::string& label, const std::string& under, double from, double to,
                       const std::string& variant = "") {
    const double length = scale * (to - from);
    least = std::min(least, to), most = std::max(most, to);
    steps.push_back({{"row", steps.size()},
                     {"label", label},
                     {"under", under},
                     {"kind", variant.empty() ? "part" : "total"},
                     {"from", scale * from},
                     {"to", scale * to},
                     {"color", !variant.empty() ? "variants/" + variant
                               : length > 0     ? "signs/more"
                                                : "signs/less"},
                     {"text", (variant.empty() ? signed_text(length) : number_text(length)) + " " + unit}});
  };
  // Shows a variant's name, and under it the rest of its label.
  const auto add_total = [&](const char* side, double seconds) {
    const std::string label = data.at(side), bound = data.at("binding_resource").at(side);
    const std::size_t comma = label.find(", ");
    add(label.substr(0, comma), comma < label.size() ? label.substr(comma + 2) : "bottleneck " + bound, 0, seconds,
        label);
  };
  add_total("against", against);
  double at = against;
  std::size_t shown = 0;
  for (const json& part : parts) {
    const double s = part.at("seconds");
    if (shown == kMostBars || std::abs(s) < kSmallBar * std::max(std::abs(of - against), kSmallBar * longer)) break;
    add(part.at("kind"), part.at("resource"), at, at + s);
    at += s, ++shown;
  }
  if (shown < parts.size()) add("all others", fmt::format("{} parts", parts.size() - shown), at, of);
  add_total("of", of);
  const bool cut = most - least < kSmallSpread * longer && most - least > kNoSpread * longer;
  chart.signals = {{"x_min", cut ? scale * std::max(0.0, least - (most - least)) : 0},
                   {"x_max", scale * most},
                   {"x_title", fmt::format("time, {}{}", unit, cut ? " (the axis does not start at 0)" : "")}};
  return chart;
}

}  // namespace

constinit const Kind kWhy{"why", draw_why, make<Why>, kWhyKeys};

}  // namespace kvcast::plan

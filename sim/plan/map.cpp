// Maps the best policy over two keys: a coarse lattice over both ranges, refined only where neighbouring corners
// disagree about the best policy. Between corners that agree the winner is inferred, and marked so.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/or_null.hpp"
#include "config/section.hpp"
#include "plan/compare.hpp"
#include "plan/crossings.hpp"
#include "plan/key.hpp"
#include "plan/question.hpp"
#include "plan/target.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {

extern const Kind kMap;

namespace {

using config::Node;
using nlohmann::json;

constexpr int kFine = 16;     // steps of an axis that needs no replays
constexpr int kReplayed = 8;  // steps of an axis on which every value needs its own traces or replays
constexpr int kCoarse = 4;    // fine steps of the first lattice
constexpr const char* kNone = "none";

bool needs_replay(const VariedKey& key) {
  return key.path.starts_with("policy.") || key.path == "workload.prompt_tokens" ||
         key.path == "workload.decode_tokens";
}

class Axis {
 public:
  Axis() = default;
  Axis(VariedKey key, double from, double to)
      : key_(std::move(key)),
        values_(KeyRange{from, to, key_.integer}.values(needs_replay(key_) ? kReplayed : kFine)) {}
  const VariedKey& key() const { return key_; }
  int size() const { return static_cast<int>(values_.size()); }
  double operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  json at(int i) const { return json_of(key_, (*this)[i]); }

 private:
  VariedKey key_;
  std::vector<double> values_;
};

using Point = std::array<int, 2>;

struct Cell {
  int best = -1;  // index of the policy; -1: none fits and meets the targets
  bool simulated = false;
  // The factor by which it is better than the second best, and whether that is beyond the uncertainty of costs; nothing
  // if there is no second. A cell that is not simulated has no factor.
  std::optional<double> times;
  std::optional<bool> distinguished;
  std::string binding;
};

class Map final : public Question {
 public:
  Map(const Node& run, const Node& map) {
    config::Section section = section_of(kMap, map);
    metric_ =
        section.has("metric") ? &read_metric(section.node("metric")) : result::find_metric("request.requests_per_s");
    metric_where_ = section.has("metric") ? section.where("metric") : map.where();
    if (section.has("targets")) targets_ = read_targets_of(run, section.node("targets"));
    targets_ = with_floor(std::move(targets_), run);
    read_policies(run, section.node("policies"), {section.text("x"), section.text("y")});
    for (const bool second : {false, true}) read_axis(section, second);
    if (axes_[0].key().path == axes_[1].key().path)
      throw UserError(section.where("y"), "map: x and y are the same key");
    for (const Variant& v : policies_) {
      for (const int i : {0, axes_[0].size() - 1}) {
        for (const int j : {0, axes_[1].size() - 1}) check_run(at(v, {i, j}));
      }
    }
  }

  Answer answer(Experiments& experiments) const override {
    Cells cells;
    Lacks lacks;
    const int span = std::max(axes_[0].size(), axes_[1].size()) - 1;
    int stride = 1;
    while (stride * kCoarse < span) stride *= 2;
    evaluate(experiments, lattice(stride), cells, lacks);
    refuse_if_none(cells, lacks);
    for (; stride > 1; stride /= 2) evaluate(experiments, disputed(cells, stride), cells, lacks);
    infer(cells);
    return conclude(cells, lacks);
  }

 private:
  using Cells = std::map<Point, Cell>;
  // A number that a policy lacks where it fits, and why; it is then no candidate.
  struct Lack {
    const result::Metric* metric = nullptr;
    SourceLocation where;  // of the question's own metric or target; unknown for the floor on the score
    std::string why;
  };
  using Lacks = std::map<std::size_t, Lack>;  // by policy

  void read_policies(const Node& run, const Node& list, const std::vector<std::string>& varied) {
    if (list.kind() != Node::Kind::kList || list.items().size() < 2) {
      throw UserError(list.where(), "map: policies: expected a list of at least two, found " + config::describe(list));
    }
    for (const Node& item : list.items()) {
      policies_.push_back(read_variant(run, Node::map({{"policy", item}}, item.where()), varied));
    }
  }

  // Reads a key of any of the policies' runs.
  void read_axis(config::Section& section, bool second) {
    const char* const name = second ? "y" : "x";
    const std::string path = section.text(name);
    const auto knows = [&](const Variant& v) { return has_key(v.run, path); };
    const auto owner = std::ranges::find_if(policies_, knows);
    const VariedKey key =
        find_key((owner == policies_.end() ? policies_.front() : *owner).run, path, section.where(name));
    const auto end = [&](const char* which) {
      const Node pair = section.node(which);
      if (pair.kind() != Node::Kind::kList || pair.items().size() != 2) {
        throw UserError(pair.where(), fmt::format("map: {}: expected [x, y], found {}", which, config::describe(pair)));
      }
      return read_value(key, pair.items()[second ? 1 : 0]);
    };
    const double from = end("from"), to = end_of_range(key, end("to"), policies_.front().run);
    if (from >= to) throw UserError(section.where("to"), fmt::format("map: {}: `to` must be above `from`", path));
    axes_[second ? 1 : 0] = Axis(key, from, to);
  }

  Node at(const Variant& v, const Point& point) const {
    Node run = v.run;
    for (std::size_t axis = 0; axis < 2; ++axis) {
      const VariedKey& key = axes_[axis].key();
      if (has_key(run, key.path)) run = with_value(run, key, axes_[axis][point[axis]]);
    }
    return run;
  }

  // Every stride-th value of both axes, and their last ones.
  std::vector<int> stops(std::size_t axis, int stride) const {
    std::vector<int> all;
    for (int i = 0; i < axes_[axis].size(); i += stride) all.push_back(i);
    if (all.back() != axes_[axis].size() - 1) all.push_back(axes_[axis].size() - 1);
    return all;
  }

  std::vector<Point> lattice(int stride) const {
    std::vector<Point> points;
    for (const int j : stops(1, stride)) {
      for (const int i : stops(0, stride)) points.push_back({i, j});
    }
    return points;
  }

  // Points halfway in the blocks whose corners disagree. A corner that was not simulated lies where all agreed.
  std::vector<Point> disputed(const Cells& cells, int stride) const {
    const std::vector<int> xs = stops(0, stride), ys = stops(1, stride);
    const std::array<std::vector<int>, 2> finer = {stops(0, stride / 2), stops(1, stride / 2)};
    std::set<Point> points;
    for (std::size_t j = 0; j + 1 < ys.size() || (j == 0 && ys.size() == 1); ++j) {
      for (std::size_t i = 0; i + 1 < xs.size() || (i == 0 && xs.size() == 1); ++i) {
        const int x0 = xs[i], x1 = xs[std::min(i + 1, xs.size() - 1)], y0 = ys[j],
                  y1 = ys[std::min(j + 1, ys.size() - 1)];
        std::set<int> winners;
        for (const Point& corner : {Point{x0, y0}, Point{x1, y0}, Point{x0, y1}, Point{x1, y1}}) {
          const auto found = cells.find(corner);
          if (found != cells.end()) winners.insert(found->second.best);
        }
        if (winners.size() < 2) continue;
        for (const int x : finer[0]) {
          if (x < x0 || x > x1) continue;
          for (const int y : finer[1]) {
            if (y >= y0 && y <= y1 && !cells.contains({x, y})) points.insert({x, y});
          }
        }
      }
    }
    return {points.begin(), points.end()};
  }

  void evaluate(Experiments& experiments, const std::vector<Point>& points, Cells& cells, Lacks& lacks) const {
    std::vector<Node> runs;
    for (const Point& point : points) {
      for (const Variant& v : policies_) runs.push_back(at(v, point));
    }
    const std::vector<ResultPtr> results = experiments.run(runs);
    for (std::size_t p = 0; p < points.size(); ++p) {
      cells[points[p]] = winner(std::span(results).subspan(p * policies_.size(), policies_.size()), lacks);
    }
  }

  std::optional<Lack> lack_of(const result::Result& result) const {
    std::vector<Target> numbers = targets_;
    numbers.insert(numbers.begin(), {metric_, false, false, 0, metric_where_});
    for (const Target& number : numbers) {
      if (const auto why = why_missing(result, *number.metric)) return Lack{number.metric, number.where, *why};
    }
    return {};
  }

  // Without a candidate anywhere, every cell would be empty for want of a number rather than of a good policy.
  void refuse_if_none(const Cells& cells, const Lacks& lacks) const {
    if (std::ranges::any_of(cells, [](const auto& cell) { return cell.second.best >= 0; })) return;
    if (lacks.size() < policies_.size()) return;
    for (const auto& [policy, lack] : lacks) {
      if (lack.where.line == 0) continue;
      throw UserError(lack.where, fmt::format("{}: {} has none, and neither has any other policy: {}",
                                              lack.metric->path, policies_[policy].label, lack.why));
    }
  }

  Cell winner(std::span<const ResultPtr> results, Lacks& lacks) const {
    Cell cell;
    cell.simulated = true;
    std::optional<std::size_t> second;
    const auto better = [&](std::size_t a, std::size_t b) {
      return compare(*results[a], *results[b], *metric_).first_better();
    };
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (auto lack = lack_of(*results[i])) {
        lacks.try_emplace(i, std::move(*lack));
        continue;
      }
      if (missed(*results[i], targets_)) continue;
      if (cell.best < 0) {
        cell.best = static_cast<int>(i);
      } else if (better(i, static_cast<std::size_t>(cell.best))) {
        second = static_cast<std::size_t>(cell.best), cell.best = static_cast<int>(i);
      } else if (!second || better(i, *second)) {
        second = i;
      }
    }
    if (cell.best < 0) return cell;
    const result::Result& best = *results[static_cast<std::size_t>(cell.best)];
    cell.binding = binding_resource(best, metric_);
    if (second) {
      const Comparison c = compare(best, *results[*second], *metric_);
      cell.times = c.times, cell.distinguished = c.beyond_uncertainty();
    }
    return cell;
  }

  // Copies the winner of the nearest simulated point: refinement has left out only blocks whose corners agree. The
  // factor changes within such a block and is not copied.
  void infer(Cells& cells) const {
    Cells inferred;
    for (const Point& point : lattice(1)) {
      if (cells.contains(point)) continue;
      const Cell* nearest = nullptr;
      int least = 0;
      for (const auto& [there, cell] : cells) {
        const int far = std::abs(there[0] - point[0]) + std::abs(there[1] - point[1]);
        if (nearest == nullptr || far < least) nearest = &cell, least = far;
      }
      inferred[point] = *nearest;
      inferred[point].simulated = false, inferred[point].times.reset();
    }
    cells.merge(inferred);
  }

  std::string name_of_cell(const Cell& cell) const {
    return cell.best < 0 ? kNone : policies_[static_cast<std::size_t>(cell.best)].label;
  }

  Answer conclude(const Cells& cells, const Lacks& lacks) const {
    Answer out;
    out.kind = kMap.name;
    const VariedKey &x = axes_[0].key(), &y = axes_[1].key();
    out.question =
        fmt::format("Which policy is best in {} over {} and {}?", result::label_in_sentence(*metric_), x.path, y.path);
    out.data = {{"x", x.path}, {"y", y.path}, {"metric", metric_->path}, {"borders", json::array()}};
    std::map<std::string, int> counts;
    for (const auto& [point, cell] : cells) {
      ++counts[name_of_cell(cell)];
      out.data["cells"].push_back({{"x", axes_[0].at(point[0])},
                                   {"y", axes_[1].at(point[1])},
                                   {"best", name_of_cell(cell)},
                                   {"simulated", cell.simulated},
                                   {"told_apart", or_null(cell.distinguished)},
                                   {"times", or_null(cell.times)},
                                   {"binding_resource", cell.binding}});
      for (std::size_t axis = 0; axis < 2; ++axis) {  // edges towards neighbours with another winner
        Point next = point;
        ++next[axis];
        const auto found = cells.find(next);
        if (found == cells.end() || found->second.best == cell.best) continue;
        out.data["borders"].push_back({{"x", {axes_[0].at(point[0]), axes_[0].at(next[0])}},
                                       {"y", {axes_[1].at(point[1]), axes_[1].at(next[1])}},
                                       {"between", {name_of_cell(cell), name_of_cell(found->second)}}});
      }
    }
    std::vector<std::string> shares;
    for (const auto& [name, count] : counts)
      shares.push_back(fmt::format("{} in {} of {} cells", name, count, cells.size()));
    out.text = fmt::format("Best of those that fit{}: {}.",
                           targets_.empty() ? ", with no floor on the score" : " and meet " + target_text(targets_),
                           fmt::join(shares, ", "));
    draw(cells, out);
    for (const auto& [policy, lack] : lacks) {
      out.say("{} is no candidate where it has no {}: {}.", policies_[policy].label, lack.metric->path, lack.why);
    }
    return out;
  }

  // Rows of letters, the largest y on top; a small letter if the best and the second best are within uncertainty of
  // each other.
  void draw(const Cells& cells, Answer& out) const {
    std::string legend;
    for (std::size_t i = 0; i < policies_.size(); ++i) {
      legend += fmt::format("{}{} {}", i == 0 ? "" : ", ", static_cast<char>('A' + i), policies_[i].label);
    }
    out.say("{}, . none; lower case: the second best is within uncertainty.", legend);
    for (int j = axes_[1].size() - 1; j >= 0; --j) {
      std::string row;
      for (int i = 0; i < axes_[0].size(); ++i) {
        const Cell& cell = cells.at({i, j});
        row += cell.best < 0 ? '.' : static_cast<char>((cell.distinguished.value_or(true) ? 'A' : 'a') + cell.best);
      }
      out.say("  {:>12} {}", short_text(axes_[1].key(), axes_[1][j]), row);
    }
    const Axis& x = axes_[0];
    out.say("  {} from {} to {} from left to right.", x.key().path, short_text(x.key(), x[0]),
            short_text(x.key(), x[x.size() - 1]));
  }

  std::vector<Variant> policies_;
  std::array<Axis, 2> axes_;
  SourceLocation metric_where_;
};

constexpr config::Key<Node> kMapKeys[] = {{"x", kNeededText},    {"y", kNeededText}, {"from", kNeeded}, {"to", kNeeded},
                                          {"policies", kNeeded}, {"metric"},         {"targets"}};

// Cells of the best policy.
Chart draw_map(const json& data, const Machines& machines) {
  Chart chart{.spec = "plan_map"};
  std::map<std::string, KeyAxis> axes;
  for (const char* const name : {"x", "y"}) {
    std::set<double> values;
    for (const json& cell : data.at("cells")) values.insert(cell.at(name).get<double>());
    const KeyAxis& axis = axes[name] = axis_of(data.at(name), *values.rbegin(), machines);
    const std::string prefix = name;
    chart.signals[prefix + "_title"] = axis.title, chart.signals[prefix + "_tokens"] = axis.tokens;
    for (const double value : values) chart.signals[prefix + "s"].push_back(axis.shown(value));
  }
  const KeyAxis &x = axes["x"], &y = axes["y"];
  std::map<std::string, std::string> colors;
  for (const json& cell : data.at("cells")) {
    const std::string best = cell.at("best");
    const std::string& color = colors[best] = (best == kNone ? "signs/" : "variants/") + best;
    const json& distinguished = cell.at("told_apart");  // null without a second best
    const bool has_second = best != kNone && distinguished.is_boolean();
    json row = {{"x", x.shown(cell.at("x"))},
                {"y", y.shown(cell.at("y"))},
                {"where", fmt::format("{} {}, {} {}", data.at("x").get<std::string>(), x.text(cell.at("x")),
                                      data.at("y").get<std::string>(), y.text(cell.at("y")))},
                {"best", best},
                {"color", color},
                {"open", has_second && !distinguished.get<bool>()},
                {"simulated", cell.at("simulated")},
                {"bottleneck", cell.at("binding_resource")}};
    if (has_second) row["distinguished"] = distinguished.get<bool>() ? "yes" : "no";
    if (cell.at("times").is_number() && best != kNone) row["times"] = number_text(cell.at("times"));
    chart.data["places"].push_back(std::move(row));
  }
  const auto none = colors.extract(kNone);
  for (const auto& [best, color] : colors) {
    chart.variants.push_back(best);
    chart.data["series"].push_back({{"series", best}, {"color", color}});
  }
  if (!none.empty()) chart.data["series"].push_back({{"series", kNone}, {"color", none.mapped()}});
  json& edges = chart.data["edges"] = json::array();
  for (const json& b : data.at("borders")) {
    const bool across = b.at("x").at(0) != b.at("x").at(1);  // the edge between two columns
    edges.push_back({{"across", across}, {"x", x.shown(b.at("x").at(1))}, {"y", y.shown(b.at("y").at(0))}});
  }
  return chart;
}

}  // namespace

constinit const Kind kMap{"map", draw_map, make<Map>, kMapKeys};

}  // namespace kvcast::plan

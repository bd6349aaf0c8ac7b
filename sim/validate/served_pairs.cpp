// Pairs of load points: is the sign of the difference right that a cache, a tier, a balancer or a split makes?
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "validate/serving.hpp"

namespace kvcast::validate {
namespace {

using nlohmann::json;

// Smaller differences may be noise of the measurement: their sign is not judged.
constexpr double kTelling = 1.1;
constexpr double kRightSigns = 90;  // percent of the pairs of a kind

// A target that is missed has the share of today as its limit, rounded down.
struct ReachedOfPairs {
  const char* kind;
  double right;
};
constexpr ReachedOfPairs kReachedOfPairs[] = {{"tier", 45}};

bool differs(double ratio) { return std::max(ratio, 1 / ratio) > kTelling; }

struct KindOfPairs {
  int differ = 0, right = 0;
};

// Finds or appends the line of a campaign, kind and number.
json& pairs_line(json& lines, const ServedPoint& p, const PointPair& pair) {
  for (json& line : lines) {
    if (line["campaign"] == p.point.campaign && line["kind"] == pair.kind && line["number"] == pair.number) return line;
  }
  lines.push_back({{"campaign", p.point.campaign},
                   {"kind", pair.kind},
                   {"number", pair.number},
                   {"pairs", 0},
                   {"differ", 0},
                   {"right", 0},
                   {"of", json::array()}});
  return lines.back();
}

void increment(json& line, const char* key) { line[key] = line[key].get<int>() + 1; }

}  // namespace

void add_pairs(const std::vector<ServedPoint>& points, Suite& suite) {
  json& lines = suite.detail["pairs"] = json::array();
  std::map<std::string, KindOfPairs> kinds;
  for (const ServedPoint& p : points) {
    for (const PointPair& pair : p.point.pairs) {
      const auto than = std::ranges::find_if(points, [&](const ServedPoint& q) { return q.point.id == pair.than; });
      const double measured = p.point.measured.at(pair.number) / than->point.measured.at(pair.number);
      const auto with = predicted_number(p, pair.number), without = predicted_number(*than, pair.number);
      json of = {{"ids", {pair.than, p.point.id}}, {"measured", measured}};
      json& line = pairs_line(lines, p, pair);
      increment(line, "pairs");
      const bool answered = with && without && *without > 0;
      if (answered) of["predicted"] = *with / *without;
      if (differs(measured)) {
        const bool right = answered && (*with > *without) == (measured > 1) && *with != *without;
        increment(line, "differ"), ++kinds[pair.kind].differ;
        if (right) increment(line, "right"), ++kinds[pair.kind].right;
        of["right"] = right;
      }
      line["of"].push_back(std::move(of));
    }
  }
  for (const auto& [kind, n] : kinds) {
    double limit = kRightSigns;
    for (const ReachedOfPairs& r : kReachedOfPairs) {
      if (kind == r.kind) limit = r.right;
    }
    const std::string missed = limit == kRightSigns ? "" : fmt::format(" (target {:g})", kRightSigns);
    suite.budgets.push_back({fmt::format("pairs, {}: right signs{}", kind, missed), "%", limit,
                             n.differ > 0 ? std::optional(100.0 * n.right / n.differ) : std::nullopt});
    suite.budgets.back().at_least = true;
  }
}

std::string pairs_text(const json& lines) {
  if (lines.empty()) return "";
  std::string text = fmt::format("\n{:<16} {:<9} {:<20} {:>5} {:>6} {:>5}  {}\n", "pairs", "of", "number", "n",
                                 "differ", "right", "wrong: predicted, measured ratio");
  for (const json& line : lines) {
    std::string wrong;
    for (const json& of : line["of"]) {
      if (!of.contains("right") || of["right"].get<bool>()) continue;
      const std::string predicted =
          of.contains("predicted") ? fmt::format("{:.2f}", of["predicted"].get<double>()) : "-";
      wrong += fmt::format("{}{}-{} {} {:.2f}", wrong.empty() ? "" : ", ", of["ids"][0].get<std::string>(),
                           of["ids"][1].get<std::string>(), predicted, of["measured"].get<double>());
    }
    text += fmt::format("{:<16} {:<9} {:<20} {:>5} {:>6} {:>5}  {}\n", line["campaign"].get<std::string>(),
                        line["kind"].get<std::string>(), line["number"].get<std::string>(), line["pairs"].get<int>(),
                        line["differ"].get<int>(), line["right"].get<int>(), wrong);
  }
  return text +
         fmt::format("differ: by more than {:.0f} % in the measurement; right: the prediction has the same sign\n",
                     100 * (kTelling - 1));
}

}  // namespace kvcast::validate

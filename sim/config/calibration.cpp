#include "config/calibration.hpp"

#include <fmt/format.h>

#include "config/fields.hpp"
#include "config/section.hpp"

namespace kvcast::config {
namespace {

struct SpanField {
  const char* key;
  SizeRange KernelRange::*member;
};
constexpr SpanField kSpans[] = {
    {"attention_rows", &KernelRange::attention_rows},
    {"attention_tokens", &KernelRange::attention_tokens},
    {"attention_head_dim", &KernelRange::attention_head_dim},
};

// Reads {points: 366, median: 2.1 %, p90: 6.4 %}.
Calibration::Residuals read_residuals(Section& entry, const char* key) {
  Section map = entry.section(key, key);
  Calibration::Residuals r;
  r.n = map.integer("points", 0, 1000000000);
  r.median = map.quantity("median", Dimension::kFraction, 0, kHuge);
  r.p90 = map.quantity("p90", Dimension::kFraction, r.median, kHuge);
  map.finish();
  return r;
}

void check_budget(const Section& entry, const Calibration& c) {
  const auto check = [&](const char* what, double value, double limit) {
    if (value <= limit) return;
    throw UserError(entry.where("budget"), fmt::format("{}: {} {:.1f} % of the held-out points is above the budget, "
                                                       "{:.1f} %",
                                                       c.kernel, what, 100 * value, 100 * limit));
  };
  check("median error", c.judged().median, c.budget_median);
  check("p90 error", c.judged().p90, c.budget_p90);
}

Calibration read_calibration(const Node& node) {
  Section entry(node, "calibration");
  Calibration c;
  c.kernel = entry.text("kernel");
  c.points = entry.text("points");
  c.source = entry.text("source");
  c.date = entry.text("date");
  c.fit = read_residuals(entry, "fit");
  c.held_out = read_residuals(entry, "held_out");
  if (entry.has("repeated")) c.repeated = read_residuals(entry, "repeated");
  if (entry.has("beyond_cache")) c.beyond_cache = read_residuals(entry, "beyond_cache");
  Section budget = entry.section("budget", "budget");
  c.budget_median = budget.quantity("median", Dimension::kFraction, 0, kHuge);
  c.budget_p90 = budget.quantity("p90", Dimension::kFraction, 0, kHuge);
  budget.finish();
  entry.finish();
  check_budget(entry, c);
  return c;
}

}  // namespace

KernelRange read_range(Section& gpu) {
  KernelRange range;
  if (!gpu.has("range")) return range;
  Section map = gpu.section("range", "range");
  for (const SpanField& field : kSpans) {
    if (!map.has(field.key)) continue;
    const std::vector<double> ends = map.numbers(field.key, 0, kHuge);
    if (ends.size() != 2 || ends[0] > ends[1]) {
      throw UserError(map.where(field.key), fmt::format("{}: expected [low, high]", field.key));
    }
    range.*field.member = {ends[0], ends[1]};
  }
  map.finish();
  return range;
}

std::vector<Calibration> read_calibrations(Section& profile) {
  std::vector<Calibration> all;
  const std::optional<Node> list = profile.optional_node("calibration");
  if (!list) return all;
  if (list->kind() != Node::Kind::kList) throw UserError(list->where(), "calibration: expected a list");
  for (const Node& entry : list->items()) all.push_back(read_calibration(entry));
  return all;
}

std::string canonical(const KernelRange& range) {
  std::string text;
  for (const SpanField& field : kSpans) {
    const SizeRange& span = range.*field.member;
    text += fmt::format("range.{} {} {}\n", field.key, span.low, span.high);
  }
  return text;
}

}  // namespace kvcast::config

#include "config/changed_number.hpp"

#include "base/hash.hpp"
#include "config/points.hpp"
#include "config/section.hpp"
#include "config/ties.hpp"

namespace kvcast::config {
namespace {

// Path of the number in a run, for messages.
std::string path_of(const Knob& knob) { return "hardware." + knob.key; }

const std::vector<std::string>& origins() {
  static const std::vector<std::string> names = {"exact", "measured", "fitted", "literature", "datasheet", "assumed"};
  return names;
}

// Reads origin, uncertainty and source of a number that is written as a map; all three are optional.
template <typename Number>
void read_grounds(Section& entry, Number& number) {
  if (entry.has("origin")) number.origin = origin_from_name(entry.choice("origin", origins()));
  number.uncertainty = entry.uncertainty(number.uncertainty);
  number.source = entry.text("source", number.source);
  entry.finish();
}

// Describes how an assumption differs from the default for a number without stated origin; empty if it does not.
template <typename Number>
std::string differing_grounds(const Number& number, const Number& usual) {
  std::vector<std::string> parts;
  if (number.uncertainty != usual.uncertainty) {
    parts.push_back("± " + exact_text(number.uncertainty, Dimension::kFraction));
  }
  if (number.origin != usual.origin) parts.emplace_back(origin_name(number.origin));
  if (parts.empty() && number.source != usual.source) parts.emplace_back("of another source");
  return fmt::format("{}", fmt::join(parts, " "));
}

void change_value(const Knob& knob, const Node& node, std::string& text) {
  Value& number = *knob.value;
  const double before = number.value;
  number.value = read_change(node, path_of(knob), knob.y, knob.low, knob.high, before);
  if (number.value != before) text = exact_text(number.value, knob.y);
}

void scale_curve(const Knob& knob, const Node& node, std::string& text) {
  const std::optional<double> factor = read_factor(node, path_of(knob));
  if (!factor) {
    throw UserError(node.where(),
                    fmt::format("{}: a curve: expected a factor such as x2, or {{points: [[x, y], ...]}}, found {}",
                                path_of(knob), describe(node)));
  }
  for (double& y : knob.curve->y) y = read_change(node, path_of(knob), knob.y, knob.low, knob.high, y);
  if (*factor != 1) text = fmt::format("x{:.6g}", *factor);
}

void replace_points(const Knob& knob, const Node& points, std::string& text) {
  const std::vector<double> x = knob.curve->x, y = knob.curve->y;
  read_points(points, path_of(knob), {knob.x, knob.y, knob.low, knob.high}, *knob.curve);
  if (knob.curve->x != x || knob.curve->y != y) text = "points " + content_hash(points.canonical()).substr(0, 6);
}

// Sets the amount alone, not its origin. `text` describes the change, and stays empty if the amount is unchanged.
void change_amount(const Knob& knob, const Node& node, std::string& text) {
  if (node.kind() != Node::Kind::kMap) {
    knob.value != nullptr ? change_value(knob, node, text) : scale_curve(knob, node, text);
    return;
  }
  Section entry(node, path_of(knob));
  if (knob.value != nullptr) {
    entry.only({"value", "origin", "uncertainty", "source"});
    if (entry.has("value")) change_value(knob, entry.node("value"), text);
    return;
  }
  entry.only({"value", "points", "origin", "uncertainty", "source"});
  if (entry.has("value") && entry.has("points")) {
    throw UserError(entry.where("points"), fmt::format("{}: give either a factor or points", path_of(knob)));
  }
  if (entry.has("value")) scale_curve(knob, entry.node("value"), text);
  if (entry.has("points")) replace_points(knob, entry.node("points"), text);
}

template <typename Number>
void change_grounds(const Knob& knob, const Node& node, std::optional<double> uncertainty, Number& number,
                    std::string& text) {
  if (!text.empty()) {
    number.origin = Origin::kAssumed;
    number.uncertainty = uncertainty.value_or(number.uncertainty);
    number.source = knob.key + " as the run sets it";
  }
  if (node.kind() != Node::Kind::kMap) return;
  const Number usual = number;
  Section entry(node, path_of(knob));
  for (const char* key : {"value", "points"}) entry.has(key);
  read_grounds(entry, number);
  const std::string differing = differing_grounds(number, usual);
  if (!differing.empty()) text += (text.empty() ? "" : " ") + differing;
}

}  // namespace

std::optional<MachineChange> change_number(const Knob& knob, const Node& node, std::optional<double> uncertainty) {
  const std::string base = knob.value != nullptr ? exact_text(knob.value->value, knob.y) : "";
  std::string text;
  change_amount(knob, node, text);
  if (knob.value != nullptr) {
    change_grounds(knob, node, uncertainty, *knob.value, text);
  } else {
    change_grounds(knob, node, uncertainty, *knob.curve, text);
  }
  if (text.empty()) return {};
  return MachineChange{knob.key, text, base, "", ""};
}

}  // namespace kvcast::config

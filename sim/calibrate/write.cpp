#include "calibrate/write.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvcast::calibrate {
namespace {

constexpr double kMostUncertainty = 10;  // the largest that a profile may state: the number is meaningless
constexpr double kDigit = 0.01;          // larger than the rounding to three digits

std::string percent(double fraction) { return fmt::format("{:.1f} %", 100 * fraction); }

double rounded(double value, Dimension dimension) {
  return parse_quantity(format_quantity(value, dimension), dimension).value();
}

std::string origin_text(Origin origin, double uncertainty, const std::string& source, std::string_view separator) {
  return fmt::format("origin: {}{}uncertainty: {}{}source: {}", origin_name(origin), separator, percent(uncertainty),
                     separator, yaml_text(source));
}

std::string residuals(const char* name, const config::Calibration::Residuals& r) {
  return fmt::format("    {}: {{points: {}, median: {}, p90: {}}}\n", name, r.n, percent(r.median), percent(r.p90));
}

}  // namespace

std::string yaml_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

int decimals_apart(double fraction, double limit) {
  constexpr int kMostDecimals = 9;
  const auto text = [](double x, int decimals) { return fmt::format("{:.{}f}", 100 * x, decimals); };
  int decimals = 1;
  while (decimals < kMostDecimals && fraction > limit && text(fraction, decimals) == text(limit, decimals)) ++decimals;
  return decimals;
}

void mark_fitted(config::Hardware& hardware, std::span<const std::string_view> keys, double uncertainty,
                 const std::string& source) {
  uncertainty = std::min(uncertainty, kMostUncertainty);
  for (const std::string_view key : keys) {
    const config::Knob knob = config::knob_of(hardware, key);
    if (knob.value != nullptr) {
      *knob.value = {rounded(knob.value->value, knob.y), Origin::kFitted, uncertainty, source};
      continue;
    }
    knob.curve->origin = Origin::kFitted, knob.curve->uncertainty = uncertainty, knob.curve->source = source;
    const double first = knob.curve->x.front(), last = knob.curve->x.back();
    for (double& x : knob.curve->x) x = rounded(x, knob.x);
    if (knob.curve->x.front() > first) knob.curve->x.front() = rounded(first * (1 - kDigit), knob.x);
    if (knob.curve->x.back() < last) knob.curve->x.back() = rounded(last * (1 + kDigit), knob.x);
    for (double& y : knob.curve->y) y = rounded(y, knob.y);
  }
}

std::string yaml_of(config::Hardware& hardware, std::span<const std::string_view> keys) {
  std::string text;
  std::string_view within;
  for (const std::string_view key : keys) {
    const config::Knob knob = config::knob_of(hardware, key);
    const std::size_t first = key.find('.'), last = key.rfind('.');
    const std::string_view name = key.substr(last + 1);
    const std::string_view inner = first == last ? "" : key.substr(first + 1, last - first - 1);
    if (inner != within && !inner.empty()) text += fmt::format("  {}:\n", inner);
    within = inner;
    const std::string indent(inner.empty() ? 2 : 4, ' ');
    if (knob.value != nullptr) {
      const Value& v = *knob.value;
      text += fmt::format("{}{}: {{value: {}, {}}}\n", indent, name, format_quantity(v.value, knob.y),
                          origin_text(v.origin, v.uncertainty, v.source, ", "));
      continue;
    }
    std::string points;
    for (std::size_t i = 0; i < knob.curve->x.size(); ++i) {
      points += fmt::format("{}[{}, {}]", i == 0 ? "" : ", ", format_quantity(knob.curve->x[i], knob.x),
                            format_quantity(knob.curve->y[i], knob.y));
    }
    const std::string line = "\n  " + indent;
    text += fmt::format("{}{}:{}points: [{}]{}{}\n", indent, name, line, points, line,
                        origin_text(knob.curve->origin, knob.curve->uncertainty, knob.curve->source, line));
  }
  return text;
}

std::string yaml_of(config::Hardware& hardware, std::string_view prefix) {
  std::vector<std::string> keys;
  for (const config::Knob& knob : config::knobs(hardware)) {
    if (knob.key.starts_with(prefix)) keys.push_back(knob.key);
  }
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  return yaml_of(hardware, views);
}

std::string machine_yaml(config::Hardware& hardware, std::string_view host_title) {
  std::string gpu = yaml_of(hardware, "gpu.") + yaml_of(hardware.gpu.range);
  if (hardware.gpu.attention_correction) gpu += yaml_of(*hardware.gpu.attention_correction);
  return "gpu:\n" + gpu + "link:\n" + yaml_of(hardware, "link.") +
         fmt::format("host:\n  title: {}\n", yaml_text(host_title)) + yaml_of(hardware, "host.");
}

std::string yaml_of(const config::KernelRange& range) {
  const auto span = [](const config::SizeRange& s) { return fmt::format("[{}, {}]", s.low, s.high); };
  return fmt::format("  range: {{attention_rows: {}, attention_tokens: {}, attention_head_dim: {}}}\n",
                     span(range.attention_rows), span(range.attention_tokens), span(range.attention_head_dim));
}

std::string yaml_of(const config::AttentionCorrection& c) {
  const auto axis = [](const std::vector<double>& nodes) { return fmt::format("[{}]", fmt::join(nodes, ", ")); };
  std::string text = fmt::format(
      "  attention_correction:\n    rows: {}\n    tokens: {}\n    groups: {}\n    repeated: {}\n    source: {}\n"
      "    percent:\n",
      axis(c.rows), axis(c.tokens), axis(c.groups), c.repeated, yaml_text(c.source));
  for (std::size_t group = 0; group < c.groups.size(); ++group) {
    for (std::size_t row = 0; row < c.rows.size(); ++row) {
      text += row == 0 ? "    - - [" : "      - [";
      for (std::size_t token = 0; token < c.tokens.size(); ++token) {
        text += fmt::format("{}{:.1f}", token == 0 ? "" : ", ", 100 * c.at(group, row, token));
      }
      text += "]\n";
    }
  }
  return text;
}

std::string yaml_of(std::span<const config::Calibration> calibrations) {
  std::string text = calibrations.empty() ? "" : "calibration:\n";
  for (const config::Calibration& c : calibrations) {
    text += fmt::format("  - kernel: {}\n    points: {}\n    source: {}\n    date: {}\n", c.kernel, yaml_text(c.points),
                        yaml_text(c.source), yaml_text(c.date));
    text += residuals("fit", c.fit) + residuals("held_out", c.held_out);
    if (c.repeated) text += residuals("repeated", *c.repeated);
    if (c.beyond_cache) text += residuals("beyond_cache", *c.beyond_cache);
    text += fmt::format("    budget: {{median: {}, p90: {}}}\n", percent(c.budget_median), percent(c.budget_p90));
  }
  return text;
}

}  // namespace kvcast::calibrate

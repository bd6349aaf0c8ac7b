// The syntax follows nvbench's command line (NVIDIA/nvbench, docs/cli_help.md), with one spelling for each thing.
#include "harness/axis.hpp"

#include <algorithm>
#include <charconv>

namespace kvcast::kernels {

namespace {

constexpr std::size_t kMostValues = 4096;

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  while (true) {
    const std::size_t end = text.find(by, from);
    parts.emplace_back(text.substr(from, end == std::string_view::npos ? end : end - from));
    if (end == std::string_view::npos) return parts;
    from = end + 1;
  }
}

std::int64_t number_in(const std::string& part, std::string_view whole) {
  std::int64_t value = 0;
  if (!whole_number(part, value)) {
    throw UsageError("axis '" + std::string(whole) + "': '" + part + "' is not a whole number");
  }
  return value;
}

// from:to:step, or from:to with step 1.
std::vector<std::int64_t> range(const std::vector<std::string>& parts, std::string_view whole) {
  if (parts.size() > 3) throw UsageError("axis '" + std::string(whole) + "': a range is from:to or from:to:step");
  const std::int64_t from = number_in(parts[0], whole);
  const std::int64_t to = number_in(parts[1], whole);
  const std::int64_t step = parts.size() == 3 ? number_in(parts[2], whole) : 1;
  if (step <= 0 || to < from) throw UsageError("axis '" + std::string(whole) + "': the range is empty");
  // Divided rather than added up: the end of the range may be the largest representable number.
  const std::uint64_t steps =
      (static_cast<std::uint64_t>(to) - static_cast<std::uint64_t>(from)) / static_cast<std::uint64_t>(step);
  if (steps >= kMostValues) throw UsageError("axis '" + std::string(whole) + "': more than 4096 values");
  std::vector<std::int64_t> values;
  for (std::uint64_t i = 0; i <= steps; ++i) values.push_back(from + static_cast<std::int64_t>(i) * step);
  return values;
}

std::string power_of_two(std::int64_t exponent, std::string_view whole) {
  if (exponent < 0 || exponent > 40) {
    throw UsageError("axis '" + std::string(whole) + "': exponents of two lie in 0 to 40");
  }
  return std::to_string(std::int64_t{1} << exponent);
}

}  // namespace

bool whole_number(std::string_view text, std::int64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  return text == std::to_string(out);
}

Axis parse_axis(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    throw UsageError("axis '" + std::string(text) + "': expected name=values");
  }
  Axis axis{std::string(text.substr(0, equals)), {}};
  bool power = false;
  if (const std::size_t bracket = axis.name.find('['); bracket != std::string::npos) {
    if (axis.name.substr(bracket) != "[pow2]" || bracket == 0) {
      throw UsageError("axis '" + std::string(text) + "': the only mark is [pow2]");
    }
    axis.name.resize(bracket);
    power = true;
  }
  const std::string_view list = text.substr(equals + 1);
  const std::vector<std::string> ends = split(list, ':');
  if (ends.size() > 1) {
    for (const std::int64_t v : range(ends, text))
      axis.values.push_back(power ? power_of_two(v, text) : std::to_string(v));
  } else {
    for (const std::string& v : split(list, ',')) {
      if (v.empty()) throw UsageError("axis '" + std::string(text) + "': an empty value");
      axis.values.push_back(power ? power_of_two(number_in(v, text), text) : v);
    }
  }
  if (axis.values.size() > kMostValues) throw UsageError("axis '" + std::string(text) + "': more than 4096 values");
  std::vector<std::string> sorted = axis.values;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) throw UsageError("axis '" + std::string(text) + "': value '" + *twice + "' twice");
  return axis;
}

Axis numbers(std::string name, std::vector<std::int64_t> values) {
  Axis axis{std::move(name), {}};
  for (const std::int64_t v : values) axis.values.push_back(std::to_string(v));
  return axis;
}

Axis words(std::string name, std::vector<std::string> values) { return {std::move(name), std::move(values)}; }

std::vector<std::int64_t> doubling(std::int64_t last) {
  std::vector<std::int64_t> values;
  for (std::int64_t v = 1; v < last; v *= 2) values.push_back(v);
  values.push_back(last);
  return values;
}

std::vector<Case> product(const std::vector<Axis>& axes) {
  std::vector<Case> cases{{}};
  for (const Axis& axis : axes) {
    std::vector<Case> longer;
    for (const Case& c : cases) {
      for (const std::string& value : axis.values) {
        longer.push_back(c);
        longer.back().emplace_back(axis.name, value);
      }
    }
    cases = std::move(longer);
  }
  return cases;
}

int replace_axes(std::vector<Axis>& axes, const std::vector<Axis>& with) {
  int replaced = 0;
  for (const Axis& other : with) {
    for (Axis& axis : axes) {
      if (axis.name != other.name) continue;
      axis.values = other.values;
      ++replaced;
    }
  }
  return replaced;
}

std::string describe(const Case& c) {
  std::string out;
  for (const auto& [name, value] : c) out += (out.empty() ? "" : " ") + name + "=" + value;
  return out;
}

}  // namespace kvcast::kernels

#include "config/section.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

#include "config/text.hpp"

namespace kvcast::config {
namespace {

constexpr std::size_t kOriginCount = 7;

std::vector<std::string> origin_names() {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kOriginCount; ++i) names.emplace_back(origin_name(static_cast<Origin>(i)));
  return names;
}

std::string list_of(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

// Throws "what: expected X, found Y" at the node.
[[noreturn]] void refuse(const Node& node, std::string_view what, std::string_view expected,
                         std::string_view hint = {}) {
  throw UserError(node.where(), fmt::format("{}: expected {}, found {}{}", what, expected, describe(node), hint));
}

// Returns a hint if the text is a count with another suffix than K or M.
std::string meant_count(std::string_view text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view suffix = text.substr(digits);
  const std::string_view unit = suffix.substr(std::min<std::size_t>(1, suffix.size()));
  const char letter = suffix.empty() ? ' ' : static_cast<char>(std::toupper(static_cast<unsigned char>(suffix[0])));
  const bool is_unit = unit.empty() || unit == "b" || unit == "B" || unit == "i" || unit == "iB";
  if (digits == 0 || !is_unit || (letter != 'K' && letter != 'M')) return "";
  return fmt::format(" (did you mean \"{0}{1}\", which is {0} · {2}?)", text.substr(0, digits), letter,
                     letter == 'K' ? "1024" : "1024²");
}

const std::string* plain_text(const Node& node) {
  return node.kind() == Node::Kind::kScalar && !node.quoted() ? &node.text() : nullptr;
}

// Quotes make a number a text, but not what has a unit as well ("5 s"): JSON can write it in no other way.
const std::string* quantity_text(const Node& node) {
  const bool has_unit = node.kind() == Node::Kind::kScalar && !parse_quantity(node.text(), Dimension::kNone);
  return has_unit ? &node.text() : plain_text(node);
}

// Returns "between a and b", "at least a" or "at most b", omitting an end that is not a limit.
template <typename T, typename Format>
std::string range_text(T low, T high, const Format& format) {
  const bool has_low = low > std::numeric_limits<T>::lowest();
  const bool has_high = high < std::numeric_limits<T>::max();
  if (has_low && has_high) return fmt::format("between {} and {}", format(low), format(high));
  return has_low ? "at least " + format(low) : "at most " + format(high);
}

template <typename T, typename Format>
[[noreturn]] void out_of_range(const Node& node, std::string_view what, T low, T high, const Format& format) {
  throw UserError(node.where(), fmt::format("{}: {} is out of range, must be {}", what, shorten(node.text()),
                                            range_text(low, high, format)));
}

}  // namespace

std::string_view example_of(Dimension dimension) {
  switch (dimension) {
    case Dimension::kNone:
      return "0.5";
    case Dimension::kBytes:
      return "40 GB";
    case Dimension::kBytesPerSecond:
      return "3.35 TB/s";
    case Dimension::kFlops:
      return "2 GFLOP";
    case Dimension::kFlopPerSecond:
      return "312 TFLOP/s";
    case Dimension::kSeconds:
      return "2 us";
    case Dimension::kHertz:
      return "1410 MHz";
    case Dimension::kFraction:
      return "5 %";
  }
  return "";
}

std::int64_t read_integer(const Node& node, std::string_view what, std::int64_t low, std::int64_t high) {
  const std::string* text = plain_text(node);
  const std::string_view digits = text == nullptr ? "" : std::string_view(*text).substr(text->starts_with('-') ? 1 : 0);
  const bool well_formed = !digits.empty() && std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  if (!well_formed) refuse(node, what, "an integer", text == nullptr ? "" : meant_count(*text));
  if (digits.size() > 1 && digits.front() == '0') refuse(node, what, "an integer without leading zeros");
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (failure != std::errc()) {
    throw UserError(node.where(), fmt::format("{}: {} is out of range, must be between {} and {}", what,
                                              shorten(node.text()), low, high));
  }
  if (value < low || value > high) {
    out_of_range(node, what, low, high, [](std::int64_t v) { return fmt::format("{}", v); });
  }
  return value;
}

double read_number(const Node& node, std::string_view what, double low, double high) {
  const std::string* text = plain_text(node);
  const std::optional<double> value = text == nullptr ? std::nullopt : parse_quantity(*text, Dimension::kNone);
  if (!value) refuse(node, what, "a number such as 0.5, 12 or 1e-6");
  if (*value < low || *value > high) {
    out_of_range(node, what, low, high, [](double v) { return fmt::format("{}", v); });
  }
  return *value;
}

double read_quantity(const Node& node, std::string_view what, Dimension dimension, double low, double high) {
  if (dimension == Dimension::kNone) return read_number(node, what, low, high);
  const std::string* text = quantity_text(node);
  const std::optional<double> value = text == nullptr ? std::nullopt : parse_quantity(*text, dimension);
  if (!value) {
    const bool bare = text != nullptr && parse_quantity(*text, Dimension::kNone).has_value();
    refuse(
        node, what,
        fmt::format("{}{} such as {}", dimension_name(dimension), bare ? " with a unit" : "", example_of(dimension)));
  }
  if (*value < low || *value > high) {
    out_of_range(node, what, low, high, [&](double v) { return format_quantity(v, dimension); });
  }
  return *value;
}

std::optional<double> read_factor(const Node& node, std::string_view what) {
  if (node.kind() != Node::Kind::kScalar || !node.text().starts_with('x')) return {};
  const std::optional<double> factor = parse_quantity(std::string_view(node.text()).substr(1), Dimension::kNone);
  if (factor && *factor < 0) refuse(node, what, "a factor of at least x0");
  return factor;
}

double read_change(const Node& node, std::string_view what, Dimension dimension, double low, double high, double base) {
  const auto shown = [&](double v) { return format_quantity(v, dimension); };
  const std::optional<double> factor = read_factor(node, what);
  const std::string* text = quantity_text(node);
  if (!factor && (text == nullptr || !parse_quantity(*text, dimension))) {
    refuse(node, what,
           fmt::format("{} such as {}, or a factor such as x2", dimension_name(dimension), example_of(dimension)));
  }
  if (!factor) return read_quantity(node, what, dimension, low, high);
  const double value = base * *factor;
  if (value >= low && value <= high) return value;
  throw UserError(node.where(), fmt::format("{}: {} of {} is {}, out of range, must be {}", what, shorten(node.text()),
                                            shown(base), shown(value), range_text(low, high, shown)));
}

bool read_flag(const Node& node, std::string_view what) {
  const std::string* text = plain_text(node);
  if (text != nullptr && *text == "true") return true;
  if (text != nullptr && *text == "false") return false;
  refuse(node, what, "true or false");
}

std::string read_text(const Node& node, std::string_view what) {
  if (node.kind() != Node::Kind::kScalar) refuse(node, what, "a text");
  if (node.text().empty()) refuse(node, what, "a text that is not empty");
  return node.text();
}

Section::Section(const Node& map, std::string title) : map_(map), title_(std::move(title)) {
  if (map.kind() != Node::Kind::kMap) refuse(map, title_, "a map of keys to values");
}

void Section::only(const std::vector<std::string_view>& keys) {
  known_.insert(known_.end(), keys.begin(), keys.end());
  finish();
}

void Section::require(const std::vector<std::string_view>& keys) {
  std::vector<std::string> missing;
  for (const std::string_view key : keys) {
    if (take(key, false) == nullptr) missing.emplace_back(key);
  }
  if (!missing.empty()) refuse_missing(missing);
}

// An unused key with a similar name is probably a misspelling of the missing one.
void Section::refuse_missing(const std::vector<std::string>& missing) const {
  std::vector<std::string> others;
  for (const auto& [key, value] : map_.entries()) {
    if (std::ranges::find(known_, key) == known_.end()) others.push_back(key);
  }
  constexpr std::size_t kShortest = 3;  // in shorter names any two words are near each other
  for (const std::string& key : missing) {
    const std::string* meant = key.size() < kShortest ? nullptr : nearest_name(key, others);
    if (meant == nullptr) continue;
    throw UserError(
        map_.key_where(*meant),
        fmt::format("{}: the required key \"{}\" is missing; is \"{}\" meant for it?", title_, key, shorten(*meant)));
  }
  throw UserError(map_.where(), missing.size() == 1
                                    ? fmt::format("{}: the required key \"{}\" is missing", title_, missing.front())
                                    : fmt::format("{}: {} required keys are missing: {}", title_, missing.size(),
                                                  fmt::join(missing, ", ")));
}

const Node* Section::take(std::string_view key, bool required) {
  if (std::ranges::find(known_, key) == known_.end()) known_.emplace_back(key);
  const Node* value = map_.find(key);
  if (value == nullptr && required) refuse_missing({std::string(key)});
  return value;
}

bool Section::has(std::string_view key) { return take(key, false) != nullptr; }

SourceLocation Section::where(std::string_view key) const {
  const Node* value = map_.find(key);
  return value == nullptr ? map_.where() : value->where();
}

std::string Section::text(std::string_view key, std::optional<std::string> fallback) {
  const Node* value = take(key, !fallback);
  return value == nullptr ? *fallback : read_text(*value, key);
}

std::string Section::choice(std::string_view key, const std::vector<std::string>& names,
                            std::optional<std::string> fallback) {
  const Node* const written = take(key, !fallback);
  if (written == nullptr) return *fallback;
  const Node& value = *written;
  if (value.kind() != Node::Kind::kScalar) refuse(value, key, "one of " + list_of(names));
  if (std::ranges::find(names, value.text()) == names.end()) {
    throw UserError(value.where(),
                    fmt::format("{}: unknown value {}{}", key, describe(value), did_you_mean(value.text(), names)),
                    names);
  }
  return value.text();
}

std::int64_t Section::integer(std::string_view key, std::int64_t low, std::int64_t high,
                              std::optional<std::int64_t> fallback) {
  const Node* value = take(key, !fallback);
  return value == nullptr ? *fallback : read_integer(*value, key, low, high);
}

double Section::number(std::string_view key, double low, double high, std::optional<double> fallback) {
  const Node* value = take(key, !fallback);
  return value == nullptr ? *fallback : read_number(*value, key, low, high);
}

double Section::quantity(std::string_view key, Dimension dimension, double low, double high,
                         std::optional<double> fallback) {
  const Node* value = take(key, !fallback);
  return value == nullptr ? *fallback : read_quantity(*value, key, dimension, low, high);
}

bool Section::flag(std::string_view key, std::optional<bool> fallback) {
  const Node* value = take(key, !fallback);
  return value == nullptr ? *fallback : read_flag(*value, key);
}

double Section::uncertainty(std::optional<double> fallback) {
  const Node* const written = map_.find("uncertainty");
  const std::string* const text = written == nullptr ? nullptr : quantity_text(*written);
  const std::optional<double> bare = text == nullptr ? std::nullopt : parse_quantity(*text, Dimension::kNone);
  if (bare && *bare >= 1) {
    throw UserError(written->where(),
                    fmt::format("uncertainty: {0} has no unit: write {0:g} % or {1:g} %", *bare, 100 * *bare));
  }
  return quantity("uncertainty", Dimension::kFraction, 0, 10, fallback);
}

Value Section::value(std::string_view key, Dimension dimension, double low, double high) {
  const Node* const written = take(key, true);
  if (written->kind() != Node::Kind::kMap) refuse(*written, key, "a map {value, origin, uncertainty, source}");
  Section entry(*written, std::string(key));
  Value value;
  value.value = entry.quantity("value", dimension, low, high);
  value.origin = origin_from_name(entry.choice("origin", origin_names()));
  const bool assumed = worse(value.origin, Origin::kAssumed) == value.origin;
  value.uncertainty = entry.uncertainty(assumed ? std::nullopt : std::optional<double>(0));
  value.source = entry.text("source");
  entry.finish();
  return value;
}

Section Section::section(std::string_view key, std::string title) { return {*take(key, true), std::move(title)}; }

Node Section::node(std::string_view key) { return *take(key, true); }

std::optional<Node> Section::optional_node(std::string_view key) {
  const Node* value = take(key, false);
  return value == nullptr ? std::nullopt : std::optional<Node>(*value);
}

std::vector<std::string> Section::texts(std::string_view key) {
  const Node& list = *take(key, true);
  if (list.kind() != Node::Kind::kList) refuse(list, key, "a list of texts");
  std::vector<std::string> texts;
  for (const Node& item : list.items()) texts.push_back(read_text(item, key));
  return texts;
}

std::vector<std::string> Section::texts(std::string_view key, std::vector<std::string> fallback) {
  return has(key) ? texts(key) : std::move(fallback);
}

std::vector<double> Section::numbers(std::string_view key, double low, double high) {
  const Node* value = take(key, true);
  if (value->kind() != Node::Kind::kList) refuse(*value, key, "a list of numbers");
  std::vector<double> numbers;
  for (const Node& item : value->items()) numbers.push_back(read_number(item, key, low, high));
  return numbers;
}

void Section::finish() const {
  for (const auto& [key, value] : map_.entries()) {
    if (std::ranges::find(known_, key) != known_.end()) continue;
    throw UserError(map_.key_where(key),
                    fmt::format("{}: unknown key \"{}\"{}", title_, shorten(key), did_you_mean(key, known_)), known_);
  }
}

}  // namespace kvcast::config

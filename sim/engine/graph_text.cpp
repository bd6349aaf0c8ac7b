// Uses nlohmann's parser as a source of events (SAX), because a finished JSON tree no longer knows where its values
// were and keeps only the last of two equal keys. The events are checked against the grammar as they come, so that
// nesting never goes deeper than the grammar does.
#include "engine/graph_text.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/graph_grammar.hpp"

namespace kvcast::engine {

std::uint32_t Names::id(const std::string& name) {
  const auto [place, is_new] = ids_.try_emplace(name, static_cast<std::uint32_t>(texts_.size()));
  if (is_new) texts_.push_back(name);
  return place->second;
}

SourceLocation locate(std::string_view text, const std::string& file_name, TextOffset at) {
  const std::string_view before = text.substr(0, std::min(at, text.size()));
  const std::size_t line_break = before.rfind('\n');
  const std::size_t column = line_break == std::string_view::npos ? before.size() : before.size() - line_break - 1;
  return {file_name, static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1,
          static_cast<int>(column) + 1};
}

namespace {

// An iterator that reports how far the parser has read.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  CountingIterator(const char* at, const char** seen) : at_(at), seen_(seen) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *seen_ = ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** seen_;
};

// A number as the parser hands it over.
struct Number {
  double value = 0;
  std::optional<std::int64_t> whole;
};

class Reader {
 public:
  Reader(std::string_view text, const std::string& file_name)
      : text_(text), file_name_(file_name), seen_(text.data()) {}

  GraphText read() {
    const char* end = text_.data() + text_.size();
    nlohmann::json::sax_parse(CountingIterator(seen_, &seen_), CountingIterator(end, &seen_), this);
    return std::move(graph_);
  }

  // The parser's events. They return whether to continue; mistakes leave by exception.
  bool null() { return refuse("null"); }
  bool boolean(bool value) { return refuse(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) { return number({static_cast<double>(value), value}); }
  bool number_unsigned(std::uint64_t value) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    if (value > kMost) return number({static_cast<double>(value), {}});
    return number({static_cast<double>(value), static_cast<std::int64_t>(value)});
  }
  bool number_float(double value, const std::string&) { return number({value, {}}); }
  bool string(const std::string& value);
  bool binary(const nlohmann::json::binary_t&) { return refuse("binary data"); }
  bool start_object(std::size_t);
  bool key(const std::string& name);
  bool end_object();
  bool start_array(std::size_t);
  bool end_array();
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error);

 private:
  struct Open {  // an object or list that has begun
    Part part;
    TextOffset at;
    unsigned seen_keys = 0;  // bit i: the i-th of keys_of(part)
  };

  // Returns the part of the grammar that the next value is.
  Part current() const {
    if (open_.empty()) return Part::kGraph;
    const PartSpec& container = spec(open_.back().part);
    return container.type == JsonType::kArray ? container.element : key_part_;
  }
  TextOffset read_up_to() const { return static_cast<TextOffset>(seen_ - text_.data()); }
  TextOffset start_of_string() const;
  TextOffset start_of_word() const;
  [[noreturn]] void fail(TextOffset at, const std::string& what, const std::vector<std::string>& known = {}) const {
    throw UserError(locate(text_, file_name_, at), what, known);
  }
  [[noreturn]] void wrong_type(TextOffset at, std::string_view found) const {
    const PartSpec& expected = spec(current());
    fail(at, fmt::format("{} must be {}, found {}", expected.name, json_type_name(expected.type), found));
  }
  bool refuse(std::string_view word) const { wrong_type(start_of_word(), word); }
  bool number(const Number& number);
  void store_whole(Part part, const Number& number, TextOffset at);
  void unknown_key(const std::string& name, std::span<const KeySpec> keys) const;
  void key_of_demand(const std::string& name);

  std::string_view text_;
  const std::string& file_name_;
  const char* seen_;  // end of what the parser has read
  GraphText graph_;
  std::vector<Open> open_;
  Part key_part_ = Part::kGraph;  // part that the last key announces
};

// The parser has just read the closing quote; a quote within the string has an odd number of backslashes before it.
TextOffset Reader::start_of_string() const {
  TextOffset at = read_up_to() - 1;
  while (at > 0) {
    --at;
    if (text_[at] != '"') continue;
    TextOffset backslash = at;
    while (backslash > 0 && text_[backslash - 1] == '\\') --backslash;
    if ((at - backslash) % 2 == 0) return at;
  }
  return 0;
}

// Start of a number, true, false or null; the parser may have read one character more.
TextOffset Reader::start_of_word() const {
  const auto of_word = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == 'E' || c == '+' || c == '-' || c == '.';
  };
  TextOffset end = read_up_to();
  while (end > 0 && !of_word(text_[end - 1])) --end;
  while (end > 0 && of_word(text_[end - 1])) --end;
  return end;
}

bool Reader::start_object(std::size_t) {
  const Part part = current();
  const TextOffset at = read_up_to() - 1;
  if (spec(part).type != JsonType::kObject) wrong_type(at, "an object");
  open_.push_back({part, at});
  if (part == Part::kResource) graph_.resources.push_back({.at = at});
  if (part == Part::kOp) {
    graph_.ops.push_back({.at = at, .first_demand = graph_.demands.size(), .first_after = graph_.after.size()});
  }
  return true;
}

bool Reader::end_object() {
  const Open object = open_.back();
  const auto keys = keys_of(object.part);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].required && !(object.seen_keys >> i & 1u)) {
      fail(object.at, fmt::format("{} lacks the key \"{}\"", spec(object.part).name, keys[i].name));
    }
  }
  open_.pop_back();
  return true;
}

bool Reader::start_array(std::size_t) {
  const Part part = current();
  const TextOffset at = read_up_to() - 1;
  if (spec(part).type != JsonType::kArray) wrong_type(at, "a list");
  open_.push_back({part, at});
  return true;
}

bool Reader::end_array() {
  open_.pop_back();
  return true;
}

bool Reader::key(const std::string& name) {
  Open& object = open_.back();
  if (object.part == Part::kDemand) {
    key_of_demand(name);
    return true;
  }
  const auto keys = keys_of(object.part);
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const KeySpec& k) { return k.name == name; });
  if (found == keys.end()) unknown_key(name, keys);
  const unsigned bit = 1u << (found - keys.begin());
  if (object.seen_keys & bit) fail(start_of_string(), fmt::format("duplicate key \"{}\"", name));
  object.seen_keys |= bit;
  key_part_ = found->part;
  return true;
}

void Reader::unknown_key(const std::string& name, std::span<const KeySpec> keys) const {
  std::vector<std::string> known;
  for (const KeySpec& k : keys) known.emplace_back(k.name);
  fail(start_of_string(), fmt::format("unknown key \"{}\" in {}", name, spec(open_.back().part).name), known);
}

void Reader::key_of_demand(const std::string& name) {
  const TextOffset at = start_of_string();
  const std::uint32_t resource = graph_.names.id(name);
  for (std::size_t d = graph_.ops.back().first_demand; d < graph_.demands.size(); ++d) {
    if (graph_.demands[d].resource == resource) fail(at, fmt::format("duplicate key \"{}\"", name));
  }
  graph_.demands.push_back({.resource = resource, .at = at});
  key_part_ = Part::kAmount;
}

bool Reader::string(const std::string& value) {
  const Part part = current();
  const TextOffset at = start_of_string();
  switch (part) {
    case Part::kResourceName:
      graph_.resources.back().name = graph_.names.id(value);
      break;
    case Part::kLaneName:
      graph_.lanes.push_back({.name = graph_.names.id(value), .at = at});
      break;
    case Part::kOpLane:
      graph_.ops.back().lane = graph_.names.id(value);
      graph_.ops.back().lane_at = at;
      break;
    case Part::kSharing:
      if (value != "fair" && value != "fifo") fail(at, fmt::format("unknown sharing \"{}\"", value), {"fair", "fifo"});
      graph_.resources.back().sharing = value == "fifo" ? Sharing::kFifo : Sharing::kFair;
      break;
    default:
      wrong_type(at, fmt::format("\"{}\"", value));
  }
  return true;
}

bool Reader::number(const Number& number) {
  const Part part = current();
  const TextOffset at = start_of_word();
  const JsonType type = spec(part).type;
  if (type != JsonType::kNumber && type != JsonType::kWholeNumber) wrong_type(at, fmt::format("{}", number.value));
  if (!std::isfinite(number.value)) fail(at, fmt::format("{} must be finite", spec(part).name));
  if (number.value < 0) fail(at, fmt::format("{} must not be negative, found {}", spec(part).name, number.value));
  switch (part) {
    case Part::kRate:
      graph_.resources.back().rate = number.value;
      break;
    case Part::kLatency:
      graph_.ops.back().latency_s = number.value;
      break;
    case Part::kAmount:
      graph_.demands.back().amount = number.value;
      break;
    default:
      store_whole(part, number, at);
  }
  return true;
}

void Reader::store_whole(Part part, const Number& number, TextOffset at) {
  if (!number.whole) wrong_type(at, fmt::format("{}", number.value));
  if (part == Part::kId) {
    graph_.ops.back().id = *number.whole;
  } else {
    graph_.after.push_back({*number.whole, at});
  }
}

bool Reader::parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) {
  // "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error ...": the location is ours already.
  std::string what = error.what();
  what.erase(0, what.find("] ") + 2);
  if (what.starts_with("parse error at line")) what.erase(0, what.find(": ") + 2);
  constexpr int kNumberOverflow = 406;
  if (error.id == kNumberOverflow) fail(start_of_word(), what);
  fail(read_up_to() == 0 ? 0 : read_up_to() - 1, what);
}

}  // namespace

GraphText parse_graph_text(std::string_view text, const std::string& file_name) {
  return Reader(text, file_name).read();
}

}  // namespace kvcast::engine

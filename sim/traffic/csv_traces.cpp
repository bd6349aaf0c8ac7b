#include <algorithm>
#include <chrono>

#include "base/csv.hpp"
#include "traffic/draws.hpp"
#include "traffic/lines.hpp"
#include "traffic/numbers.hpp"
#include "traffic/trace.hpp"

namespace kvcast::traffic {
namespace {

using Format = config::Traffic::Format;

// A table with a header, row by row.
class Table : public TraceRows {
 public:
  Table(const std::string& path, const std::vector<const char*>& required) : lines_(path) {
    std::string line;
    if (!lines_.next(line)) throw UserError({path, 0, 0}, "the trace has no requests");
    names_ = read_csv_line(lines_.where(), std::move(line));
    header_.emplace(names_);
    for (const char* column : required) {
      if (!header_->has(column)) throw UserError(names_.where, fmt::format("the column \"{}\" is missing", column));
    }
  }

 protected:
  const CsvRow& names() const { return names_; }
  bool next() {
    std::string line;
    do {
      if (!lines_.next(line)) return false;
      row_ = read_csv_line(lines_.where(), std::move(line));
    } while (row_.fields.empty());
    header_->check(row_);
    return true;
  }
  const SourceLocation& where() const { return row_.where; }
  SourceLocation where(const char* column) const { return row_.at(header_->at(column)); }
  const std::string& text(const char* column) const { return row_.fields[header_->at(column)]; }
  bool has(const char* column) const { return header_->has(column) && !text(column).empty(); }
  std::int64_t tokens(const char* column, std::int64_t least) const {
    return tokens_of(text(column), column, least, [&] { return where(column); });
  }
  double seconds(const char* column) const {
    const std::optional<double> value = number_in(text(column));
    if (value && *value >= 0) return *value;
    throw UserError(where(column),
                    fmt::format("{}: expected a time in seconds, found {}", column, quote(text(column))));
  }

 private:
  Lines lines_;
  CsvRow names_, row_;
  std::optional<CsvHeader> header_;
};

// Reads digits, exactly `width` of them; nothing for any other text.
std::optional<int> digits(std::string_view& text, std::size_t width) {
  int value = 0;
  if (text.size() < width) return {};
  for (const char c : text.substr(0, width)) {
    if (c < '0' || c > '9') return {};
    value = 10 * value + (c - '0');
  }
  text.remove_prefix(width);
  return value;
}

bool skip(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

// Nanoseconds since 1970 of "2023-11-16 18:17:03.9799600", in UTC if no offset follows ("+00:00", "Z").
std::optional<std::int64_t> nanoseconds_of(std::string_view text) {
  using namespace std::chrono;
  std::optional<int> parts[6];  // year to second
  const char* const before[] = {"", "-", "-", " T", ":", ":"};
  for (int i = 0; i < 6; ++i) {
    if (i > 0 && !skip(text, before[i])) return {};
    parts[i] = digits(text, i == 0 ? 4 : 2);
    if (!parts[i]) return {};
  }
  const year_month_day date{year{*parts[0]}, month{static_cast<unsigned>(*parts[1])},
                            day{static_cast<unsigned>(*parts[2])}};
  const bool time_ok = *parts[3] < 24 && *parts[4] < 60 && *parts[5] <= 60;  // 60: a leap second
  if (!date.ok() || *parts[0] < 1970 || *parts[0] > 2200 || !time_ok) return {};
  std::int64_t nanos = 0, unit = 100'000'000;
  if (skip(text, ".")) {
    for (std::optional<int> digit; (digit = digits(text, 1)); unit /= 10) nanos += *digit * unit;
  }
  std::int64_t offset = 0;  // minutes
  const bool east = text.starts_with('+');
  if (skip(text, "+-")) {
    const std::optional<int> hours = digits(text, 2);
    skip(text, ":");
    const std::optional<int> minutes = digits(text, 2);
    if (!hours || !minutes) return {};
    offset = (east ? 1 : -1) * (*hours * 60 + *minutes);
  } else {
    skip(text, "Z");
  }
  if (!text.empty()) return {};
  const std::int64_t days = sys_days(date).time_since_epoch().count();
  const std::int64_t minute = (days * 24 + *parts[3]) * 60 + *parts[4] - offset;
  return (minute * 60 + *parts[5]) * 1'000'000'000 + nanos;
}

class Azure final : public Table {
 public:
  explicit Azure(const std::string& path) : Table(path, {"TIMESTAMP", "ContextTokens", "GeneratedTokens"}) {}
  bool read(TraceRow& row) override {
    if (!next()) return false;
    const std::optional<std::int64_t> time = nanoseconds_of(text("TIMESTAMP"));
    if (!time) {
      throw UserError(where("TIMESTAMP"), fmt::format("TIMESTAMP: expected a time such as 2023-11-16 18:17:03.98, "
                                                      "found {}",
                                                      quote(text("TIMESTAMP"))));
    }
    if (!first_) first_ = time;
    row = {};
    row.where = where();
    row.seconds = static_cast<double>(*time - *first_) * 1e-9;
    row.prompt_tokens = tokens("ContextTokens", 0);
    row.output_tokens = tokens("GeneratedTokens", 0);
    return true;
  }

 private:
  std::optional<std::int64_t> first_;
};

class BurstGpt final : public Table {
 public:
  explicit BurstGpt(const std::string& path) : Table(path, {"Timestamp", "Request tokens", "Response tokens"}) {}
  bool read(TraceRow& row) override {
    if (!next()) return false;
    row = {};
    row.where = where();
    row.seconds = seconds("Timestamp");
    row.prompt_tokens = tokens("Request tokens", 0);
    row.output_tokens = tokens("Response tokens", 0);
    return true;
  }
};

constexpr const char* kColumns[] = {"arrival_s", "prompt_tokens", "output_tokens", "session",
                                    "turn",      "prefix_group",  "prefix_tokens"};
// Further columns of `kvcast run --requests`.
constexpr const char* kResults[] = {"id",           "hit_tokens",  "scheduled_s", "first_token_s",
                                    "last_token_s", "preemptions", "replica"};

class Kvcast final : public Table {
 public:
  explicit Kvcast(const std::string& path) : Table(path, {kColumns[0], kColumns[1], kColumns[2]}) {
    const auto listed = [](const auto& list, const std::string& name) {
      return std::ranges::find(list, name) != std::end(list);
    };
    for (std::size_t i = 0; i < names().fields.size(); ++i) {
      const std::string& name = names().fields[i];
      if (listed(kColumns, name) || listed(kResults, name)) continue;
      throw UserError(names().at(i), "unknown column " + quote(name), {std::begin(kColumns), std::end(kColumns)});
    }
  }
  bool from_zero() const override { return true; }

  bool read(TraceRow& row) override {
    if (!next()) return false;
    row = {};
    row.where = where();
    row.seconds = seconds("arrival_s");
    row.prompt_tokens = tokens("prompt_tokens", 1);
    row.output_tokens = tokens("output_tokens", 1);
    if (has("session") && text("session") != "-1") {
      follow(row);
    } else if (has("turn")) {
      throw UserError(where("turn"), "turn: the row has no session");
    } else {
      share(row);
    }
    return true;
  }

 private:
  struct Turn {
    std::int32_t turn = 0;
    std::int64_t tokens = 0;  // prompt and answer
    std::vector<Segment> content;
  };

  static std::uint64_t key(Purpose purpose, std::int64_t i, std::int64_t j = 0) {
    return stream_of(0, purpose).child({static_cast<std::uint64_t>(i)}).bits(static_cast<std::uint64_t>(j)) | 1u;
  }

  // Begins the prompt with the group's prefix; returns its tokens.
  std::int64_t share(TraceRow& row) const {
    const bool group = has("prefix_group"), tokens_too = has("prefix_tokens");
    if (group != tokens_too) {
      throw UserError(where(group ? "prefix_group" : "prefix_tokens"), "give both prefix_group and prefix_tokens");
    }
    if (!group) return 0;
    const std::int64_t prefix = tokens("prefix_tokens", 0);
    if (prefix > row.prompt_tokens) {
      throw UserError(where("prefix_tokens"), fmt::format("prefix_tokens: {}, but the prompt, which contains them, "
                                                          "has {}",
                                                          prefix, row.prompt_tokens));
    }
    if (prefix > 0) row.content.push_back({key(Purpose::kGroup, tokens("prefix_group", 0)), prefix});
    return prefix;
  }

  void follow(TraceRow& row) {
    row.session = tokens("session", 0);
    const Turn* const before = turns_.find(row.session);
    row.turn = before == nullptr ? 0 : before->turn + 1;
    if (has("turn")) {
      const std::int64_t turn = tokens("turn", 0);
      if (turn < row.turn) {
        throw UserError(where("turn"), fmt::format("turn: {}, but the session has had turn {}", turn, row.turn - 1));
      }
      row.turn = static_cast<std::int32_t>(turn);
    }
    std::int64_t known = share(row);
    if (before != nullptr && before->tokens <= row.prompt_tokens) row.content = before->content, known = before->tokens;
    const std::int64_t own = row.prompt_tokens - known;
    if (own > 0) row.content.push_back({key(Purpose::kContent, row.session, row.turn), own});
    row.answer_key = key(Purpose::kAnswer, row.session, row.turn);
    Turn turn{row.turn, row.prompt_tokens + row.output_tokens, row.content};
    turn.content.push_back({row.answer_key, row.output_tokens});
    turns_.put(row.session, std::move(turn));
  }

  FifoMap<Turn> turns_;
};

}  // namespace

std::unique_ptr<TraceRows> open_csv_trace(const std::string& path, Format format) {
  if (format == Format::kAzure) return std::make_unique<Azure>(path);
  if (format == Format::kBurstGpt) return std::make_unique<BurstGpt>(path);
  return std::make_unique<Kvcast>(path);
}

}  // namespace kvcast::traffic

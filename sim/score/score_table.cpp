#include "score/score_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <tuple>

#include "base/build.hpp"
#include "base/csv.hpp"
#include "config/find.hpp"

namespace kvcast::score {
namespace {

constexpr std::size_t kFixed = 4;  // columns before those of the tasks
const std::vector<std::string> kFirstColumns = {"made_with", "model", "context", "policy"};

std::int64_t integer(const CsvRow& line, std::size_t field, std::string_view text, std::int64_t high) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 0 && value <= high) return value;
  throw UserError(line.at(field),
                  fmt::format("expected an integer from 0 to {}, found \"{}\"", high, std::string(text.substr(0, 40))));
}

// Reads "983 941 1000": the share, low and high.
result::BenchmarkTask read_task(const CsvRow& line, std::size_t field, const std::string& name) {
  const std::string& text = line.fields[field];
  const std::size_t first = text.find(' '), second = first == std::string::npos ? first : text.find(' ', first + 1);
  if (second == std::string::npos) {
    throw UserError(line.at(field), "expected three integers: the share, low and high, in thousandths");
  }
  const auto share = [&](std::size_t begin, std::size_t end) {
    return static_cast<double>(integer(line, field, std::string_view(text).substr(begin, end - begin), 1000)) / 1000;
  };
  return {name, share(0, first), {share(first + 1, second), share(second + 1, text.size())}};
}

std::string key_of(const std::string& made_with, const std::string& model, std::int64_t context,
                   const std::string& policy) {
  return fmt::format("{}|{}|{}|{}", made_with, model, context, policy);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

}  // namespace

ScoreTable::ScoreTable(const std::string& path) {
  std::vector<std::string> tasks;
  for (const CsvRow& line : read_csv(path, "the table of scores")) {
    if (tasks.empty()) {
      if (line.fields.size() <= kFixed ||
          !std::equal(kFirstColumns.begin(), kFirstColumns.end(), line.fields.begin())) {
        throw UserError(line.where, "expected the columns made_with, model, context, policy and one column per task");
      }
      tasks.assign(line.fields.begin() + kFixed, line.fields.end());
      continue;
    }
    if (line.fields.size() != tasks.size() + kFixed) {
      throw UserError(line.where,
                      fmt::format("expected {} fields, found {}", tasks.size() + kFixed, line.fields.size()));
    }
    ScoreRow row{line.fields[0], line.fields[1], line.fields[3], integer(line, 2, line.fields[2], 100'000'000), {}};
    for (std::size_t t = 0; t < tasks.size(); ++t) row.tasks.push_back(read_task(line, kFixed + t, tasks[t]));
    if (!by_key_.emplace(key_of(row.made_with, row.model, row.context, row.policy), rows_.size()).second) {
      throw UserError(line.where, "the same model, context and policy stand twice");
    }
    rows_.push_back(std::move(row));
  }
}

const ScoreRow* ScoreTable::find(const std::string& made_with, const std::string& model, std::int64_t context,
                                 const std::string& policy) const {
  const auto at = by_key_.find(key_of(made_with, model, context, policy));
  return at == by_key_.end() ? nullptr : &rows_[at->second];
}

std::optional<std::string> score_table_file() { return config::find_file("accuracy/scores/ruler.csv"); }

std::string write_score_table(std::vector<ScoreRow> rows) {
  const auto order = [](const ScoreRow& r) { return std::tie(r.model, r.context, r.policy, r.made_with); };
  std::sort(rows.begin(), rows.end(), [&](const auto& a, const auto& b) { return order(a) < order(b); });
  std::string out = fmt::format("{},{},{},{}", kFirstColumns[0], kFirstColumns[1], kFirstColumns[2], kFirstColumns[3]);
  if (!rows.empty()) {
    for (const result::BenchmarkTask& task : rows.front().tasks) out += "," + task.task;
  }
  out += '\n';
  const auto thousandths = [](double share) { return std::llround(1000 * share); };
  for (const ScoreRow& row : rows) {
    out += fmt::format("{},{},{},{}", row.made_with, row.model, row.context, quoted(row.policy));
    for (const result::BenchmarkTask& task : row.tasks) {
      out += fmt::format(",{} {} {}", thousandths(task.share_of_full), thousandths(task.interval.low),
                         thousandths(task.interval.high));
    }
    out += '\n';
  }
  return out;
}

}  // namespace kvcast::score

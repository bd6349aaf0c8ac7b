#include "score/table.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/build.hpp"
#include "base/csv.hpp"
#include "config/find.hpp"

namespace kvcast::score {
namespace {

constexpr std::string PublishedRow::*kTexts[] = {
    &PublishedRow::paper,     &PublishedRow::table,   &PublishedRow::model,
    &PublishedRow::benchmark, &PublishedRow::context, &PublishedRow::task,
    &PublishedRow::method,    &PublishedRow::budget,  &PublishedRow::budget_unit};
const std::vector<std::string> kColumns = {"paper", "table",  "model",  "benchmark",   "context",
                                           "task",  "method", "budget", "budget_unit", "value"};

// The units of scores, and the points of a unit each. A row without a unit is in points.
constexpr std::pair<const char*, double> kUnits[] = {{"accuracy_%", 1}, {"score_0_100", 1}, {"fraction", 100}};

class Header {
 public:
  explicit Header(const CsvRow& row) : columns_(row) {
    for (const std::string& name : kColumns) {
      if (!columns_.has(name)) throw UserError(row.where, fmt::format("no column \"{}\"", name), kColumns);
    }
  }

  // Returns nothing, and adds the reason, for a row without a score.
  std::optional<PublishedRow> read(const CsvRow& line, std::vector<LeftOutRow>& left_out) const {
    columns_.check(line);
    PublishedRow row;
    row.where = line.where;
    for (std::size_t i = 0; i < std::size(kTexts); ++i) row.*kTexts[i] = line.fields[columns_.at(kColumns[i])];
    const std::optional<double> points = points_of_unit(line, left_out);
    if (!points) return {};
    if (const auto held = columns_.find("held_out")) {
      const std::string& flag = line.fields[*held];
      if (flag != "true" && flag != "false") {
        throw UserError(line.at(*held),
                        fmt::format("held_out: expected true or false, found \"{}\"", flag.substr(0, kMostShown)));
      }
      row.held_out = flag == "true";
    }
    if (!read_value(line, *points, row.value, left_out)) return {};
    return row;
  }

 private:
  std::optional<double> points_of_unit(const CsvRow& line, std::vector<LeftOutRow>& left_out) const {
    const auto column = columns_.find("unit");
    if (!column || line.fields[*column].empty()) return 1;
    std::string known;
    for (const auto& [name, points] : kUnits) {
      if (name == line.fields[*column]) return points;
      known += std::string(known.empty() ? "" : ", ") + name;
    }
    left_out.push_back(
        {line.at(*column), fmt::format("unit: \"{}\" is not a unit of scores; known: {}, or none for points of 100",
                                       line.fields[*column].substr(0, kMostShown), known)});
    return {};
  }

  bool read_value(const CsvRow& line, double unit_points, double& value, std::vector<LeftOutRow>& left_out) const {
    const std::size_t column = columns_.at("value");
    const std::string& text = line.fields[column];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    value *= unit_points;
    if (is_number && value >= 0 && value <= 100) return true;
    left_out.push_back({line.at(column), fmt::format("value: expected a score from 0 to {}, found \"{}\"",
                                                     100 / unit_points, text.substr(0, kMostShown))});
    return false;
  }

  static constexpr std::size_t kMostShown = 40;  // characters of a field in a message
  CsvHeader columns_;
};

// No benchmark's scores are all below one point, unless they are shares of 1.
void check_scale(const std::vector<PublishedRow>& rows) {
  const double best = std::ranges::max_element(rows, {}, &PublishedRow::value)->value;
  if (best <= 0 || best > 1) return;
  throw UserError(rows.front().where,
                  fmt::format("no score of the table is above {} of 100 points; if the values are shares of 1, state "
                              "`fraction` in the column `unit`",
                              best));
}

}  // namespace

std::vector<PublishedRow> read_table(const std::string& path, std::vector<LeftOutRow>* left_out) {
  std::optional<Header> header;
  std::vector<PublishedRow> rows;
  std::vector<LeftOutRow> without_score;
  for (const CsvRow& line : read_csv(path, "the published table")) {
    if (!header) {
      header.emplace(line);
    } else if (const std::optional<PublishedRow> row = header->read(line, without_score)) {
      rows.push_back(*row);
    }
  }
  if (rows.empty() && !without_score.empty()) {
    throw UserError(without_score.front().where,
                    fmt::format("no row of the table has a score; {}", without_score.front().reason));
  }
  if (rows.empty()) throw UserError({path, 0, 0}, "no scores in the table");
  check_scale(rows);
  if (left_out != nullptr) left_out->insert(left_out->end(), without_score.begin(), without_score.end());
  return rows;
}

std::string own_table(const std::string& name) {
  const std::string below = "validation/accuracy/" + name + ".csv";
  const auto path = config::find_file(below);
  if (!path) throw UserError({"configs/" + below, 0, 0}, "no such table");
  return *path;
}

}  // namespace kvcast::score

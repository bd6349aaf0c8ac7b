#include "score/table.hpp"

#include <charconv>
#include <filesystem>
#include <optional>

#include "base/build.hpp"
#include "base/csv.hpp"
#include "config/find.hpp"

namespace kvcast::score {
namespace {

constexpr std::string Row::*kTexts[] = {&Row::paper, &Row::table,  &Row::model,  &Row::benchmark,  &Row::context,
                                        &Row::task,  &Row::method, &Row::budget, &Row::budget_unit};
const std::vector<std::string> kColumns = {"paper", "table",  "model",  "benchmark",   "context",
                                           "task",  "method", "budget", "budget_unit", "value"};

class Header {
 public:
  explicit Header(const CsvRow& row) : columns_(row) {
    for (const std::string& name : kColumns) {
      if (!columns_.has(name)) throw UserError(row.where, fmt::format("no column \"{}\"", name), kColumns);
    }
  }

  std::optional<Row> read(const CsvRow& line) const {
    columns_.check(line);
    const std::vector<std::string>& fields = line.fields;
    Row row;
    row.where = line.where;
    for (std::size_t i = 0; i < std::size(kTexts); ++i) row.*kTexts[i] = fields[columns_.at(kColumns[i])];
    double unit_points = 1;
    if (const auto unit = columns_.find("unit")) {
      const std::string& name = fields[*unit];
      if (!name.empty() && name != "accuracy_%" && name != "score_0_100" && name != "fraction") return {};
      unit_points = name == "fraction" ? 100 : 1;
    }
    if (const auto held = columns_.find("held_out")) {
      const std::string& flag = fields[*held];
      if (flag != "true" && flag != "false") {
        throw UserError(line.at(*held),
                        fmt::format("held_out: expected true or false, found \"{}\"", flag.substr(0, 40)));
      }
      row.held_out = flag == "true";
    }
    const std::string& text = fields[columns_.at("value")];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), row.value);
    if (error != std::errc() || end != text.data() + text.size()) return {};
    row.value *= unit_points;
    if (!(row.value >= 0 && row.value <= 100)) return {};
    return row;
  }

 private:
  CsvHeader columns_;
};

}  // namespace

std::vector<Row> read_table(const std::string& path, std::int64_t* left_out) {
  std::optional<Header> header;
  std::vector<Row> rows;
  for (const CsvRow& line : read_csv(path, "the published table")) {
    if (!header) {
      header.emplace(line);
    } else if (const std::optional<Row> row = header->read(line)) {
      rows.push_back(*row);
    } else if (left_out != nullptr) {
      ++*left_out;
    }
  }
  if (rows.empty()) throw UserError({path, 0, 0}, "no scores in the table");
  return rows;
}

std::string own_table(const std::string& name) {
  const std::string below = "validation/accuracy/" + name + ".csv";
  const auto path = config::find_file(below);
  if (!path) throw UserError({"configs/" + below, 0, 0}, "no such table");
  return *path;
}

}  // namespace kvcast::score

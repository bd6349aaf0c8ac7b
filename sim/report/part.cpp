#include "report/part.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "report/series.hpp"

namespace kvcast::report {
namespace {

using Column = store::Settings::Column;
using Rows = std::vector<std::size_t>;  // numbers of rows

bool has_value(const Column& column, std::size_t row, const std::string& value) {
  return column.values[column.cells[row]] == value;
}

// For the list of an error.
std::vector<std::string> shown(const std::vector<std::string>& values) {
  std::vector<std::string> texts;
  for (const std::string& value : values) texts.push_back(value.empty() ? "nothing (not set)" : value);
  return texts;
}

// 0: the key makes series of its own, too many to draw on one page; 1: the page has an axis or a filter for it; 2: the
// policy, which pages compare.
int rank_of(const std::string& key) {
  if (key.starts_with("policy")) return 2;
  return is_axis(key) ? 1 : 0;
}

// The column whose first value leaves few enough rows, with as few values as possible; otherwise that with the most.
const Column* next_column(const Rows& rows, const std::vector<Column>& columns, std::size_t most) {
  struct Candidate {
    int rank;
    bool too_many;
    std::size_t order, column;
    auto operator<=>(const Candidate&) const = default;
  };
  std::vector<Candidate> candidates;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const std::vector<std::uint32_t>& cells = columns[c].cells;
    std::set<std::uint32_t> values;
    for (const std::size_t row : rows) values.insert(cells[row]);
    if (values.size() < 2 || rank_of(columns[c].key) == 2) continue;
    const auto left = static_cast<std::size_t>(
        std::ranges::count_if(rows, [&](std::size_t row) { return cells[row] == cells[rows.front()]; }));
    candidates.push_back(
        {rank_of(columns[c].key), left > most, left > most ? rows.size() - values.size() : values.size(), c});
  }
  return candidates.empty() ? nullptr : &columns[std::ranges::min(candidates).column];
}

}  // namespace

std::vector<std::pair<std::string, std::string>> parse_where(const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, std::string>> where;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UserError(fmt::format("--where {}: expected KEY=VALUE, such as hardware=h100-sxm", text));
    where.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return where;
}

ReportPart part_of(const store::Store& store, const std::vector<std::pair<std::string, std::string>>& where,
                   std::size_t most) {
  ReportPart part;
  const store::Settings settings = store.settings();
  part.of = settings.rows.size(), part.settings = settings.keys();
  if (where.empty() && part.of <= most) return part;
  Rows rows(part.of);
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  const auto fix = [&](const Column& column, const std::string& value) {
    std::erase_if(rows, [&](std::size_t row) { return !has_value(column, row, value); });
    part.where.emplace_back(column.key, value);
    part.values[column.key] = column.values;
  };
  for (const auto& [key, value] : where) {
    auto column = std::ranges::find(settings.columns, key, &Column::key);
    // Runs write `policy: NAME` for the policy's name, and so for others.
    if (column == settings.columns.end()) column = std::ranges::find(settings.columns, key + ".name", &Column::key);
    if (column == settings.columns.end()) {
      std::vector<std::string> several;
      for (const Column& other : settings.columns) {
        if (other.values.size() > 1) several.push_back(other.key);
      }
      throw UserError(SourceLocation{}, fmt::format("--where {}={}: no experiment sets this key", key, value), several);
    }
    if (std::ranges::find(column->values, value) == column->values.end())
      throw UserError(SourceLocation{}, fmt::format("--where {}={}: no experiment has this value", key, value),
                      shown(column->values));
    fix(*column, value);
  }
  if (rows.empty()) throw UserError(fmt::format("no experiment of {} has all settings of --where", store.path()));
  while (where.empty() && rows.size() > most) {
    const Column* const column = next_column(rows, settings.columns, most);
    if (column == nullptr) break;
    fix(*column, column->values[column->cells[rows.front()]]);
  }
  for (const std::size_t row : rows) part.keys.insert(settings.rows[row]);
  return part;
}

}  // namespace kvcast::report

#include "report/part.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "report/series.hpp"

namespace kvcast::report {
namespace {

using Settings = std::vector<store::Store::Settings>;

std::vector<std::string> distinct(const Settings& rows, std::size_t column) {
  std::set<std::string> seen;
  std::vector<std::string> values;
  for (const store::Store::Settings& row : rows) {
    if (seen.insert(row.values[column]).second) values.push_back(row.values[column]);
  }
  return values;
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

void keep(Settings& rows, std::size_t column, const std::string& value) {
  std::erase_if(rows, [&](const auto& row) { return row.values[column] != value; });
}

// The column whose first value leaves few enough rows, with as few values as possible; otherwise that with the most.
std::size_t next_column(const Settings& rows, const std::vector<std::string>& keys, std::size_t most) {
  struct Candidate {
    int rank;
    bool too_many;
    std::size_t order, column;
    auto operator<=>(const Candidate&) const = default;
  };
  std::vector<Candidate> candidates;
  for (std::size_t c = 0; c < keys.size(); ++c) {
    const std::size_t values = distinct(rows, c).size();
    if (values < 2 || rank_of(keys[c]) == 2) continue;
    const auto left = static_cast<std::size_t>(
        std::ranges::count_if(rows, [&](const auto& row) { return row.values[c] == rows.front().values[c]; }));
    candidates.push_back({rank_of(keys[c]), left > most, left > most ? rows.size() - values : values, c});
  }
  return candidates.empty() ? keys.size() : std::ranges::min(candidates).column;
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

Part part_of(const store::Store& store, const std::vector<std::pair<std::string, std::string>>& where,
             std::size_t most) {
  Part part;
  part.of = store.keys().size();
  if (where.empty() && part.of <= most) return part;
  const std::vector<std::string> keys = store.setting_keys(where.empty());
  const Settings all = store.settings(keys);
  Settings rows = all;
  const auto fix = [&](std::size_t column, const std::string& value) {
    keep(rows, column, value);
    part.where.emplace_back(keys[column], value);
    part.values[keys[column]] = distinct(all, column);
  };
  for (const auto& [key, value] : where) {
    const auto found = std::ranges::find(keys, key);
    if (found == keys.end()) {
      std::vector<std::string> several;
      for (std::size_t c = 0; c < keys.size(); ++c) {
        if (distinct(all, c).size() > 1) several.push_back(keys[c]);
      }
      throw UserError(SourceLocation{}, fmt::format("--where {}={}: no experiment sets this key", key, value), several);
    }
    const auto column = static_cast<std::size_t>(found - keys.begin());
    const std::vector<std::string> known = distinct(all, column);
    if (std::ranges::find(known, value) == known.end())
      throw UserError(SourceLocation{}, fmt::format("--where {}={}: no experiment has this value", key, value),
                      shown(known));
    fix(column, value);
  }
  if (rows.empty()) throw UserError(fmt::format("no experiment of {} has all settings of --where", store.path()));
  while (where.empty() && rows.size() > most) {
    const std::size_t column = next_column(rows, keys, most);
    if (column == keys.size()) break;
    fix(column, std::string(rows.front().values[column]));
  }
  for (store::Store::Settings& row : rows) part.keys.insert(std::move(row.key));
  return part;
}

}  // namespace kvcast::report

#include "store/settings.hpp"

#include <fmt/format.h>

#include <unordered_map>

#include "store/schema.hpp"
#include "store/sqlite.hpp"

namespace kvcast::store {

std::vector<std::string> Settings::keys() const {
  std::vector<std::string> keys;
  for (const Column& column : columns) keys.push_back(column.key);
  return keys;
}

Settings read_settings(Database& database) {
  const Snapshot snapshot(database);  // others may add a column
  Settings settings;
  std::string names = "key";
  for (const std::string& column : experiment_columns(database)) {
    if (!column.starts_with(kSettingPrefix)) continue;
    settings.columns.push_back({column.substr(kSettingPrefix.size()), {}, {}});
    names += ", " + sql_name(column);
  }
  std::vector<std::unordered_map<std::string, std::uint32_t>> places(settings.columns.size());
  std::vector<bool> is_set(settings.columns.size());
  Statement all(database, fmt::format("SELECT {} FROM experiments WHERE {} ORDER BY ordinal, key", names, kIsShown));
  while (all.step()) {
    settings.rows.push_back(all.text(0));
    for (std::size_t c = 0; c < settings.columns.size(); ++c) {
      Settings::Column& column = settings.columns[c];
      const Cell cell = all.cell(static_cast<int>(c) + 1);
      if (!std::holds_alternative<std::monostate>(cell)) is_set[c] = true;
      std::string text = text_of(cell);
      const auto [at, is_new] = places[c].try_emplace(text, static_cast<std::uint32_t>(column.values.size()));
      if (is_new) column.values.push_back(std::move(text));
      column.cells.push_back(at->second);
    }
  }
  std::erase_if(settings.columns, [&](const Settings::Column& column) {
    return !is_set[static_cast<std::size_t>(&column - settings.columns.data())];
  });
  return settings;
}

}  // namespace kvcast::store

#include "store/row_reader.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/quote.hpp"
#include "store/row.hpp"

namespace kvcast::store {
namespace {

constexpr const char* kDiffers = "its cells do not have the checksum with which they were written";

}  // namespace

template <class Made>
Made RowReader::checked(const std::function<Made()>& make) {
  find_columns();
  try {
    Made made = make();
    if (!has_checksum()) throw std::runtime_error(kDiffers);
    return made;
  } catch (const std::exception& error) {
    throw UserError({database_.path(), 0, 0},
                    damage(error.what()) + "; the sweep that wrote it, run again, computes it anew");
  }
}

Stored RowReader::read() {
  return checked<Stored>([this] {
    Row row;
    read_cells(row);
    return Stored{std::get<std::int64_t>(row["ordinal"]), std::get<std::string>(row["code_version"]),
                  std::get<std::string>(row["created_at"]), result_of(row)};
  });
}

std::string RowReader::text(const std::vector<std::string>& columns, const MakeText& make) {
  return checked<std::string>([&] {
    for (std::size_t i = picked_.size(); i < columns.size(); ++i) {
      const auto found = std::ranges::lower_bound(columns_, columns[i], {}, [](const auto& c) { return c.first; });
      KVCAST_CHECK(found != columns_.end() && found->first == columns[i]);
      picked_.push_back(found->second);
    }
    std::vector<CellView> cells;
    cells.reserve(picked_.size());
    for (const int column : picked_) cells.push_back(rows_.view(column));
    return make(cells);
  });
}

std::string RowReader::damage() {
  find_columns();
  try {
    return has_checksum() ? "" : damage(kDiffers);
  } catch (const std::exception& error) {
    return damage(error.what());
  }
}

void RowReader::find_columns() {
  if (!columns_.empty()) return;
  for (std::string& name : rows_.column_names())
    columns_.emplace_back(std::move(name), static_cast<int>(columns_.size()));
  std::ranges::sort(columns_);
}

void RowReader::read_cells(Row& row) {
  for (const auto& [name, i] : columns_) {
    Cell cell = rows_.cell(i);
    if (!std::holds_alternative<std::monostate>(cell)) row.emplace_hint(row.end(), name, std::move(cell));
  }
}

// Needs no row: that is made of hundreds of names.
bool RowReader::has_checksum() {
  text_.clear();
  std::string written;
  for (const auto& [name, i] : columns_) {
    const CellView cell = rows_.view(i);
    append_cell(text_, name, cell);
    if (const auto* text = std::get_if<std::string_view>(&cell); text != nullptr && name == kChecksum) written = *text;
  }
  return written == content_hash(text_);
}

std::string RowReader::damage(const char* why) const {
  const auto is_key = [](const auto& column) { return column.first == "key"; };
  const auto found = std::ranges::find_if(columns_, is_key);
  const std::string key = found == columns_.end() ? "" : rows_.text(found->second);
  return fmt::format("row {} is damaged: {}", key.empty() ? "without a key" : escape_controls(key),
                     escape_controls(why));
}

std::vector<std::pair<std::int64_t, std::string>> damaged_rows(Database& database) {
  std::vector<std::pair<std::int64_t, std::string>> list;
  Statement all(database, "SELECT * FROM experiments ORDER BY rowid");
  Statement numbers(database, "SELECT rowid FROM experiments ORDER BY rowid");
  for (RowReader reader(database, all); all.step() && numbers.step();) {
    if (std::string damage = reader.damage(); !damage.empty()) list.emplace_back(numbers.integer(0), std::move(damage));
  }
  return list;
}

}  // namespace kvcast::store

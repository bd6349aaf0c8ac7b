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
  try {
    read_cells();
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
    Row cells = row();
    return Stored{std::get<std::int64_t>(cells["ordinal"]), std::get<std::string>(cells["code_version"]),
                  std::get<std::string>(cells["created_at"]), result_of(cells)};
  });
}

std::string RowReader::text(const std::vector<std::string>& columns, const MakeText& make) {
  return checked<std::string>([&] {
    for (std::size_t i = picked_.size(); i < columns.size(); ++i) {
      const auto found = std::ranges::lower_bound(columns_, columns[i], {}, [](const auto& c) { return c.first; });
      KVCAST_CHECK(found != columns_.end() && found->first == columns[i]);
      picked_.push_back(static_cast<std::size_t>(found - columns_.begin()));
    }
    std::vector<CellView> cells;
    cells.reserve(picked_.size());
    for (const std::size_t place : picked_) cells.push_back(cells_[place]);
    return make(cells);
  });
}

std::string RowReader::damage() {
  try {
    read_cells();
    return has_checksum() ? "" : damage(kDiffers);
  } catch (const std::exception& error) {
    return damage(error.what());
  }
}

void RowReader::read_cells() {
  if (columns_.empty()) {
    for (std::string& name : rows_.column_names())
      columns_.emplace_back(std::move(name), static_cast<int>(columns_.size()));
    std::ranges::sort(columns_);
  }
  cells_.clear();
  for (const auto& [name, i] : columns_) cells_.push_back(rows_.view(i));
}

Row RowReader::row() const {
  Row row;
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    if (!std::holds_alternative<std::monostate>(cells_[i]))
      row.emplace_hint(row.end(), columns_[i].first, owned(cells_[i]));
  }
  return row;
}

// Needs no row: that is made of hundreds of names.
bool RowReader::has_checksum() {
  text_.clear();
  std::string written;
  for (std::size_t i = 0; i < cells_.size(); ++i) {
    const std::string& name = columns_[i].first;
    append_cell(text_, name, cells_[i]);
    const auto* const text = std::get_if<std::string_view>(&cells_[i]);
    if (text != nullptr && name == kChecksum) written = *text;
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

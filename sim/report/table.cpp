// Columns by name; distinct texts are stored once, cells are indices into them.
#include "report/table.hpp"

#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/error.hpp"
#include "store/csv.hpp"

namespace kvcast::report {

namespace {

using nlohmann::json;

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
// An integer above this may not be exact in a double, and is written as a double.
constexpr double kExactInteger = 1e15;

json rounded_number(double value) {
  if (!std::isfinite(value)) return nullptr;
  const std::string six_digits = fmt::format("{:.6g}", value);
  double rounded = 0;
  std::from_chars(six_digits.data(), six_digits.data() + six_digits.size(), rounded);
  if (rounded == std::floor(rounded) && std::abs(rounded) < kExactInteger) return static_cast<std::int64_t>(rounded);
  return rounded;
}

}  // namespace

void Table::set(std::size_t row, const std::string& column, double value) {
  KVCAST_CHECK(row < rows_);
  if (!std::isfinite(value)) return;
  std::vector<double>& cells = numbers_[column];
  if (cells.size() <= row) cells.resize(row + 1, kMissing);
  cells[row] = value;
}

void Table::set(std::size_t row, const std::string& column, const std::string& text) {
  KVCAST_CHECK(row < rows_);
  if (text.empty()) return;
  Texts& texts = texts_[column];
  if (texts.cells.size() <= row) texts.cells.resize(row + 1, -1);
  const auto [entry, added] = texts.index.emplace(text, static_cast<int>(texts.distinct.size()));
  if (added) texts.distinct.push_back(text);
  texts.cells[row] = entry->second;
}

double Table::number(std::size_t row, const std::string& column) const {
  const auto found = numbers_.find(column);
  return found == numbers_.end() || row >= found->second.size() ? kMissing : found->second[row];
}

std::string Table::text(std::size_t row, const std::string& column) const {
  const auto found = texts_.find(column);
  if (found == texts_.end() || row >= found->second.cells.size() || found->second.cells[row] < 0) return "";
  return found->second.distinct[static_cast<std::size_t>(found->second.cells[row])];
}

json Table::compact() const {
  json out = {{"rows", rows_}, {"numbers", json::object()}, {"texts", json::object()}};
  for (const auto& [name, cells] : numbers_) {
    json& column = out["numbers"][name] = json::array();
    for (std::size_t r = 0; r < rows_; ++r) column.push_back(r < cells.size() ? rounded_number(cells[r]) : json());
  }
  for (const auto& [name, texts] : texts_) {
    json at = json::array();
    for (std::size_t r = 0; r < rows_; ++r) {
      const int cell = r < texts.cells.size() ? texts.cells[r] : -1;
      at.push_back(cell < 0 ? json() : json(cell));
    }
    out["texts"][name] = {{"of", texts.distinct}, {"at", std::move(at)}};
  }
  return out;
}

json Table::objects() const {
  json out = json::array();
  for (std::size_t r = 0; r < rows_; ++r) {
    json row = json::object();
    for (const auto& [name, cells] : numbers_) {
      if (r < cells.size() && std::isfinite(cells[r])) row[name] = rounded_number(cells[r]);
    }
    for (const auto& [name, texts] : texts_) {
      if (r < texts.cells.size() && texts.cells[r] >= 0) {
        row[name] = texts.distinct[static_cast<std::size_t>(texts.cells[r])];
      }
    }
    out.push_back(std::move(row));
  }
  return out;
}

void Table::write_csv(std::ostream& out) const {
  std::string_view separator;
  const auto next = [&]() -> std::ostream& {
    out << separator;
    separator = ",";
    return out;
  };
  for (const auto& [name, texts] : texts_) store::write_csv_field(next(), name);
  for (const auto& [name, cells] : numbers_) store::write_csv_field(next(), name);
  for (std::size_t r = 0; r < rows_; ++r) {
    out << "\r\n";
    separator = {};
    for (const auto& [name, texts] : texts_) store::write_csv_field(next(), text(r, name));
    for (const auto& [name, cells] : numbers_) {
      const double value = number(r, name);
      next() << (std::isfinite(value) ? json(value).dump() : "");
    }
  }
  out << "\r\n";
}

}  // namespace kvcast::report

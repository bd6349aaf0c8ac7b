#include "base/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/quote.hpp"
#include "base/whole_file.hpp"

namespace kvcast {
namespace {

class Reader {
 public:
  Reader(const std::string& path, std::string text, int line = 1) : path_(path), text_(std::move(text)), line_(line) {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = line_begin_ = 3;
  }

  std::vector<CsvRow> rows() {
    refuse_other_encodings();
    std::vector<CsvRow> out;
    while (at_ < text_.size()) {
      CsvRow row{here(), {}, {}};
      do {
        field(row);
      } while (take(','));
      if (row.fields.size() > 1 || !row.fields[0].empty()) out.push_back(std::move(row));
      end_line();
    }
    return out;
  }

 private:
  SourceLocation here() const { return {path_, line_, static_cast<int>(at_ - line_begin_) + 1}; }
  bool ends() const { return at_ >= text_.size() || text_[at_] == '\n' || text_.compare(at_, 2, "\r\n") == 0; }

  // Names of the table go into messages and JSON, which are UTF-8.
  void refuse_other_encodings() const {
    const std::string_view rows = std::string_view(text_).substr(at_);
    const std::size_t at = utf8_prefix(rows);
    if (at == rows.size()) return;
    const std::string_view before = rows.substr(0, at);
    const auto line = std::ranges::count(before, '\n') + line_;
    const std::size_t column = at - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
    throw UserError(
        {path_, static_cast<int>(line), static_cast<int>(column)},
        fmt::format("byte 0x{:02x} is no UTF-8; save the table as UTF-8", static_cast<unsigned char>(rows[at])));
  }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void end_line() {
    take('\r');
    if (take('\n')) ++line_, line_begin_ = at_;
  }

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }

  void field(CsvRow& row) {
    skip_blanks();
    row.columns.push_back(here().column);
    std::string& out = row.fields.emplace_back();
    const SourceLocation begin = here();
    if (take('"')) {
      quoted(out, begin);
      skip_blanks();
      if (!ends() && text_[at_] != ',') throw UserError(here(), "expected a comma after the quoted field");
      return;
    }
    while (!ends() && text_[at_] != ',') out += text_[at_++];
    out.erase(out.find_last_not_of(" \t") + 1);
  }

  void quoted(std::string& out, const SourceLocation& begin) {
    for (;;) {
      if (at_ >= text_.size()) throw UserError(begin, "this quote is not closed");
      const char c = text_[at_++];
      if (c == '"' && !take('"')) return;
      if (c == '\n') ++line_, line_begin_ = at_;
      out += c;
    }
  }

  const std::string& path_;
  std::string text_;
  std::size_t at_ = 0, line_begin_ = 0;
  int line_;
};

}  // namespace

CsvHeader::CsvHeader(const CsvRow& row) {
  for (std::size_t i = 0; i < row.fields.size(); ++i) {
    if (!columns_.emplace(row.fields[i], i).second) {
      throw UserError(row.at(i), fmt::format("column \"{}\" occurs twice", row.fields[i].substr(0, 40)));
    }
  }
}

std::optional<std::size_t> CsvHeader::find(const std::string& name) const {
  const auto column = columns_.find(name);
  return column == columns_.end() ? std::nullopt : std::optional(column->second);
}

void CsvHeader::check(const CsvRow& row) const {
  if (row.fields.size() == columns_.size()) return;
  throw UserError(row.where, fmt::format("{} fields, the header has {}", row.fields.size(), columns_.size()));
}

CsvCells::CsvCells(std::shared_ptr<const CsvHeader> header, CsvRow row)
    : header_(std::move(header)), row_(std::move(row)) {
  header_->check(row_);
}

double CsvCells::number(const std::string& column, double low, double high) const {
  const std::string& field = text(column);
  double value = 0;
  const auto [end, failure] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (failure == std::errc() && end == field.data() + field.size() && value >= low && value <= high) return value;
  throw UserError(where(column),
                  fmt::format("{}: expected a number from {} to {}, found \"{}\"", column, low, high, field));
}

std::vector<CsvCells> read_table(const std::string& path, const std::string& what,
                                 const std::vector<std::string>& columns) {
  std::vector<CsvRow> rows = read_csv(path, what);
  if (rows.empty()) throw UserError({path, 0, 0}, "the file is empty");
  const auto header = std::make_shared<const CsvHeader>(rows.front());
  for (const std::string& column : columns) {
    if (!header->has(column)) throw UserError(rows.front().where, fmt::format("the column \"{}\" is missing", column));
  }
  std::vector<CsvCells> cells;
  for (std::size_t i = 1; i < rows.size(); ++i) cells.emplace_back(header, std::move(rows[i]));
  return cells;
}

std::vector<CsvRow> read_csv(const std::string& path, const std::string& what) {
  return Reader(path, read_whole_file(path, what)).rows();
}

CsvRow read_csv_line(const SourceLocation& where, std::string text) {
  std::vector<CsvRow> rows = Reader(where.file, std::move(text), where.line).rows();
  return rows.empty() ? CsvRow{where, {}, {}} : std::move(rows.front());
}

}  // namespace kvcast

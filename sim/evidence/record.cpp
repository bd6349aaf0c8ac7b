#include "evidence/record.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <tuple>

#include "base/csv.hpp"

namespace kvcast::evidence {
namespace {

struct TextColumn {
  const char* name;
  std::string Setting::*member;
};
constexpr TextColumn kTexts[] = {{"paper", &Setting::paper}, {"table", &Setting::table},
                                 {"model", &Setting::model}, {"benchmark", &Setting::benchmark},
                                 {"task", &Setting::task},   {"method", &Setting::method}};
struct NumberColumn {
  const char* name;
  double Record::*member;
  double high;
};
constexpr NumberColumn kNumbers[] = {{"group", &Record::group, 1e9},         {"context", &Record::context, 1e9},
                                     {"budget", &Record::budget, 1e9},       {"full", &Record::full, 100},
                                     {"simulated", &Record::simulated, 100}, {"published", &Record::published, 100},
                                     {"noise", &Record::noise, 1e9}};

double number_of(const CsvRow& row, std::size_t column, const NumberColumn& wanted) {
  const std::string& text = row.fields[column];
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || !(value >= 0) || value > wanted.high) {
    throw UserError(row.at(column),
                    fmt::format("{}: expected a number from 0 to {}, found \"{}\"", wanted.name, wanted.high, text));
  }
  return value;
}

auto key_of(const Record& r) {
  return std::tie(r.paper, r.table, r.model, r.benchmark, r.task, r.method, r.context, r.budget, r.full, r.simulated,
                  r.published);
}

// Returns the text as a CSV field: names of tables contain commas.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

}  // namespace

bool Setting::operator<(const Setting& o) const {
  return std::tie(paper, table, model, benchmark, task, method, context, budget, full, simulated, group) <
         std::tie(o.paper, o.table, o.model, o.benchmark, o.task, o.method, o.context, o.budget, o.full, o.simulated,
                  o.group);
}

std::vector<Record> read_records(const std::string& path) {
  const std::vector<CsvRow> rows = read_csv(path, "the evidence");
  if (rows.empty()) throw UserError({path, 0, 0}, "the file is empty");
  const CsvHeader header(rows.front());
  const auto need = [&](const char* name) {
    if (!header.has(name)) throw UserError(rows.front().where, fmt::format("the column \"{}\" is missing", name));
    return header.at(name);
  };
  std::vector<Record> records;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    header.check(rows[i]);
    Record& record = records.emplace_back();
    for (const TextColumn& c : kTexts) record.*c.member = rows[i].fields[need(c.name)];
    for (const NumberColumn& c : kNumbers) record.*c.member = number_of(rows[i], need(c.name), c);
  }
  return records;
}

std::string write_records(std::vector<Record> records) {
  // Papers repeat rows of one table in others.
  const auto same = [](const Record& a, const Record& b) {
    Record c = a;
    c.table = b.table;
    return key_of(c) == key_of(b);
  };
  std::sort(records.begin(), records.end(), [](const Record& a, const Record& b) {
    return std::tie(a.paper, a.model, a.benchmark, a.task, a.method, a.context, a.budget, a.published, a.full,
                    a.table) <
           std::tie(b.paper, b.model, b.benchmark, b.task, b.method, b.context, b.budget, b.published, b.full, b.table);
  });
  records.erase(std::unique(records.begin(), records.end(), same), records.end());
  std::sort(records.begin(), records.end(), [](const Record& a, const Record& b) { return key_of(a) < key_of(b); });
  std::string text;
  for (const TextColumn& c : kTexts) text += std::string(c.name) + ",";
  for (const NumberColumn& c : kNumbers) text += std::string(c.name) + (&c == std::end(kNumbers) - 1 ? "\n" : ",");
  for (const Record& r : records) {
    for (const TextColumn& c : kTexts) text += quoted(r.*c.member) + ",";
    for (const NumberColumn& c : kNumbers)
      text += fmt::format("{:.6g}{}", r.*c.member, &c == std::end(kNumbers) - 1 ? "\n" : ",");
  }
  return text;
}

}  // namespace kvcast::evidence

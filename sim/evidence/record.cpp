#include "evidence/record.hpp"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "base/csv.hpp"

namespace kvcast::evidence {
namespace {

struct TextColumn {
  const char* name;
  std::string ScoredTask::*member;
};
constexpr TextColumn kTexts[] = {{"paper", &ScoredTask::paper}, {"table", &ScoredTask::table},
                                 {"model", &ScoredTask::model}, {"benchmark", &ScoredTask::benchmark},
                                 {"task", &ScoredTask::task},   {"method", &ScoredTask::method}};
struct NumberColumn {
  const char* name;
  double ScoreRecord::*member;
  double high;
};
constexpr NumberColumn kNumbers[] = {
    {"group", &ScoreRecord::group, 1e9},         {"context", &ScoreRecord::context, 1e9},
    {"budget", &ScoreRecord::budget, 1e9},       {"full", &ScoreRecord::full, 100},
    {"simulated", &ScoreRecord::simulated, 100}, {"published", &ScoreRecord::published, 100},
    {"noise", &ScoreRecord::noise, 1e9}};

auto key_of(const ScoreRecord& r) {
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

bool ScoredTask::operator<(const ScoredTask& o) const {
  return std::tie(paper, table, model, benchmark, task, method, context, budget, full, simulated, group) <
         std::tie(o.paper, o.table, o.model, o.benchmark, o.task, o.method, o.context, o.budget, o.full, o.simulated,
                  o.group);
}

std::vector<ScoreRecord> read_records(const std::string& path) {
  std::vector<std::string> columns;
  for (const TextColumn& c : kTexts) columns.emplace_back(c.name);
  for (const NumberColumn& c : kNumbers) columns.emplace_back(c.name);
  std::vector<ScoreRecord> records;
  for (const CsvCells& row : read_table(path, "the evidence", columns)) {
    ScoreRecord& record = records.emplace_back();
    for (const TextColumn& c : kTexts) record.*c.member = row.text(c.name);
    for (const NumberColumn& c : kNumbers) record.*c.member = row.number(c.name, 0, c.high);
  }
  return records;
}

std::string write_records(std::vector<ScoreRecord> records) {
  // Papers repeat rows of one table in others.
  const auto same = [](const ScoreRecord& a, const ScoreRecord& b) {
    ScoreRecord c = a;
    c.table = b.table;
    return key_of(c) == key_of(b);
  };
  std::sort(records.begin(), records.end(), [](const ScoreRecord& a, const ScoreRecord& b) {
    return std::tie(a.paper, a.model, a.benchmark, a.task, a.method, a.context, a.budget, a.published, a.full,
                    a.table) <
           std::tie(b.paper, b.model, b.benchmark, b.task, b.method, b.context, b.budget, b.published, b.full, b.table);
  });
  records.erase(std::unique(records.begin(), records.end(), same), records.end());
  std::sort(records.begin(), records.end(),
            [](const ScoreRecord& a, const ScoreRecord& b) { return key_of(a) < key_of(b); });
  std::string text;
  for (const TextColumn& c : kTexts) text += std::string(c.name) + ",";
  for (const NumberColumn& c : kNumbers) text += std::string(c.name) + (&c == std::end(kNumbers) - 1 ? "\n" : ",");
  for (const ScoreRecord& r : records) {
    for (const TextColumn& c : kTexts) text += quoted(r.*c.member) + ",";
    for (const NumberColumn& c : kNumbers)
      text += fmt::format("{:.6g}{}", r.*c.member, &c == std::end(kNumbers) - 1 ? "\n" : ",");
  }
  return text;
}

}  // namespace kvcast::evidence

#include "report/validation.hpp"

#include "base/build.hpp"
#include "base/error.hpp"
#include "base/whole_file.hpp"
#include "report/page.hpp"
#include "report/table.hpp"

namespace kvcast::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kTextColumns[] = {"id", "group", "quantity", "unit", "verdict", "depends_on", "note", "source"};
constexpr const char* kNumberColumns[] = {"predicted", "low", "high", "error", "tolerance", "size"};

void check_suite(const json& suite) {
  for (const char* key : {"name", "question", "status", "expected_is", "size_unit"}) {
    suite.at(key).get_ref<const std::string&>();
  }
  for (const json& row : suite.at("cases")) {
    for (const char* key : kTextColumns) row.at(key).get_ref<const std::string&>();
    for (const char* key : kNumberColumns) {
      if (!row.at(key).is_null()) row.at(key).get<double>();
    }
    row.at("held_out").get<bool>();
  }
  for (const json& budget : suite.at("budgets")) {
    for (const char* key : {"name", "unit", "limit", "value", "at_least", "passed"}) budget.at(key);
  }
  for (const json& part : suite.at("summary")) {
    for (const char* key : {"group", "n", "median", "p90", "max", "bias"}) part.at(key);
  }
}

Table table_of(const json& document) {
  Table table;
  for (const json& suite : document.at("suites")) {
    const std::string expected_is = suite.at("expected_is").get<std::string>();
    for (const json& row : suite.at("cases")) {
      table.begin_row();
      table.set("suite", suite.at("name").get<std::string>());
      for (const char* key : kTextColumns) table.set(key, row.at(key).get<std::string>());
      if (row.contains("origin") && row["origin"].is_string()) table.set("origin", row["origin"].get<std::string>());
      for (const char* key : kNumberColumns) {
        if (row.at(key).is_number()) table.set(key, row.at(key).get<double>());
      }
      if (row.contains(expected_is) && row[expected_is].is_number()) {
        table.set("expected", row[expected_is].get<double>());
      }
      table.set("held_out", row.at("held_out").get<bool>() ? 1.0 : 0.0);
    }
  }
  return table;
}

}  // namespace

json read_validation(const std::string& path) {
  const std::string text = read_whole_file(path, "the validation");
  try {
    json document = json::parse(text);
    for (const json& suite : document.at("suites")) check_suite(suite);
    return document;
  } catch (const json::exception& error) {
    throw UserError({path, 0, 0}, fmt::format("not a file of `kvcast validate -o`: {}", error.what()));
  }
}

void write_validation(const json& document, const fs::path& folder, const Assets& assets, bool swept) {
  json data = {{"suites", document.at("suites")}, {"themes", assets.themes}, {"kvcast", version()}, {"sweep", swept}};
  data["charts"] = json::array();
  for (const ChartFile& chart : assets.validation.charts) {
    data["charts"].push_back({{"name", chart.name}, {"spec", chart.spec}});
  }
  const std::string page = fill(assets.validation.page, {{"{{style}}", assets.style},
                                                         {"{{data}}", inside_script(dump(data))},
                                                         {"{{vega}}", assets.vega},
                                                         {"{{script}}", assets.validation.script}});
  const auto write_page = [&page](std::ostream& file) { file << page; };
  write_file(folder / "validation.html", write_page);
  if (!swept) write_file(folder / "index.html", write_page);
  const Table table = table_of(document);
  write_file(folder / "tables" / "validation.csv", [&table](std::ostream& file) { table.write_csv(file); });
}

}  // namespace kvcast::report

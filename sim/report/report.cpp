// Fills the page's template with the style, Vega, our scripts and the data, all inline.
#include "report/report.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "base/build.hpp"
#include "base/error.hpp"
#include "policies/all.hpp"
#include "policy/policy.hpp"
#include "report/answers.hpp"
#include "report/assets.hpp"
#include "report/content.hpp"
#include "report/figures.hpp"
#include "report/measures.hpp"
#include "report/page.hpp"
#include "report/stores.hpp"
#include "report/validation.hpp"
#include "store/csv.hpp"

namespace kvcast::report {
namespace {

using nlohmann::json;

std::string text_at(const json& map, const char* key) { return escape_html(map.at(key).get<std::string>()); }

std::string topic_html(const json& topic) {
  std::string rows;
  for (const json& a : topic.at("assumptions")) {
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", text_at(a, "statement"),
                        text_at(a, "basis"), text_at(a, "source"), text_at(a, "moves"));
  }
  return fmt::format(
      "<section><h2>{}</h2>\n<div class=\"table-frame\"><table>\n<thead><tr><th scope=\"col\">Assumption</th><th "
      "scope=\"col\">Basis</th><th scope=\"col\">Source</th><th scope=\"col\">Affects</th></tr></thead>\n"
      "<tbody>\n{}</tbody></table></div></section>\n",
      text_at(topic, "title"), rows);
}

std::string list_html(const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string items;
  for (const std::string& line : lines) items += fmt::format("<li>{}</li>", escape_html(line));
  return fmt::format("<h4>{}</h4><ul>{}</ul>\n", title, items);
}

std::string policy_html(const policy::Descriptor& d) {
  return fmt::format(
      "<details id=\"policy-{0}\"><summary>{0}: {1}</summary>\n<p>Source: {2}</p>\n<p>Budget: "
      "{3}</p>\n{4}{5}</details>\n",
      escape_html(d.name), escape_html(d.sentence), escape_html(d.paper), escape_html(d.budget_text()),
      list_html("Formulas", d.formulas), list_html("Differences from the paper", d.differences));
}

// Writes FOLDER/methods.html: the assumptions of reports/methods.json by topic, and for each of these policies its
// paper, its conventions, its formulas, and its differences from the paper. Unknown names are left out.
void write_methods(const std::filesystem::path& folder, const Assets& assets, const std::set<std::string>& policies) {
  std::string body;
  for (const json& topic : assets.methods) body += topic_html(topic);
  std::string used;
  for (const policy::Descriptor& d : policy::all_policies()) {
    if (policies.contains(d.name)) used += policy_html(d);
  }
  if (!used.empty()) body += "<section><h2>The policies of this report</h2>\n" + used + "</section>\n";
  const std::string page = fill(
      assets.methods_page, {{"{{style}}", assets.style}, {"{{version}}", escape_html(version())}, {"{{body}}", body}});
  write_file(folder / "methods.html", [&page](std::ostream& file) { file << page; });
}

namespace fs = std::filesystem;

json page_data(const Assets& assets, const Content& content, const json& answers) {
  json charts = json::array();
  if (content.sweep["swept"]) {
    for (const ChartFile& chart : charts_of(assets, content))
      charts.push_back({{"name", chart.name}, {"spec", chart.spec}});
  }
  json tables = json::object();
  for (const std::string& name : table_names(content)) {
    tables[name] = table_named(content, name)->compact();
  }
  return {{"sweep", content.sweep},
          {"findings", content.findings},
          {"answers", answers},
          {"origins", content.origins},
          {"tables", tables},
          {"charts", charts},
          {"metrics", page_metrics_json()},
          {"themes", assets.themes},
          {"defaults", content.defaults}};
}

// Removes what an earlier report of other stores left in the folder: its names would refer to other experiments now.
void remove_earlier(const fs::path& folder, const std::vector<ChartFile>& charts) {
  static const std::regex table(R"((changes|moments|curves|capacities|experiments(_\d+)?)\.csv)"),
      answer(R"(plan_\d+_\w+\.json)");
  std::vector<fs::path> earlier;
  for (const auto& [place, names] : {std::pair("tables", table), {"figures", answer}}) {
    for (const auto& entry : fs::directory_iterator(folder / place)) {
      if (std::regex_match(entry.path().filename().string(), names)) earlier.push_back(entry.path());
    }
  }
  for (const ChartFile& chart : charts) earlier.push_back(folder / "figures" / (chart.name + ".json"));
  std::error_code error;  // writing reports what is wrong with the folder
  for (const fs::path& path : earlier) fs::remove(path, error);
}

// Writes a figure's text with the rows of a table in the place of each mark.
void write_filled(std::ostream& out, std::string_view text, std::string_view mark,
                  const std::map<std::string, std::string, std::less<>>& rows) {
  for (std::size_t at; (at = text.find(mark)) != text.npos;) {
    out << text.substr(0, at);
    text.remove_prefix(at + mark.size());
    const std::size_t end = text.find('"');
    out << rows.find(text.substr(0, end))->second;
    text.remove_prefix(end + 1);
  }
  out << text;
}

// Makes the text of each table's rows once for all figures that draw them. Figures have a mark in its place, which no
// text of theirs can be: quotes inside texts are escaped.
void write_figures(const fs::path& folder, const Assets& assets, const Content& content, const json& answers) {
  const std::string mark = "rows of ", value = "\"values\":\"" + mark;
  std::map<std::string, std::string, std::less<>> rows;
  const std::vector<ChartFile> figures = standalone_figures(assets, content, answers, [&](const std::string& table) {
    if (const auto [at, is_new] = rows.try_emplace(table); is_new)
      at->second = "\"values\":" + dump(table_named(content, table)->objects());
    return mark + table;
  });
  for (const ChartFile& figure : figures) {
    write_file(folder / (figure.name + ".json"),
               [&](std::ostream& file) { write_filled(file, dump(figure.spec), value, rows); });
  }
}

void write_tables(const fs::path& folder, const Stores& stores, const Content& content) {
  const std::vector<ReportSource> sources = stores.sources();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::string name = sources.size() == 1 ? "experiments.csv" : fmt::format("experiments_{}.csv", i + 1);
    write_file(folder / name,
               [&](std::ostream& out) { store::export_csv(*sources[i].store, out, sources[i].part.settings); });
  }
  if (sources.size() > 1) {
    write_file(folder / "changes.csv", [&](std::ostream& out) { content.changes.write_csv(out); });
  }
  for (const std::string& name : table_names(content)) {
    if (name == "experiments") continue;  // above, with all columns of the store
    write_file(folder / (name + ".csv"), [&](std::ostream& out) { table_named(content, name)->write_csv(out); });
  }
  write_file(folder / "summary.csv", [&](std::ostream& out) { content.experiments.write_csv(out); });
}

// Returns the answers of the page.
json write_stores(const Stores& stores, const fs::path& folder, const Assets& assets, bool validated) {
  const Content content = collect(stores.sources(), Palette(assets.palette));
  remove_earlier(folder, assets.charts);
  remove_earlier(folder, assets.service_charts);
  write_tables(folder / "tables", stores, content);
  const json answers = drawn_answers(assets, content.answers);
  write_figures(folder / "figures", assets, content, answers);
  json data = page_data(assets, content, answers);
  data["validated"] = validated;
  const std::string page = fill(assets.page, {{"{{title}}", escape_html(content.sweep.value("name", "kvcast report"))},
                                              {"{{style}}", assets.style},
                                              {"{{data}}", inside_script(dump(data))},
                                              {"{{vega}}", assets.vega},
                                              {"{{script}}", assets.script}});
  write_file(folder / "index.html", [&](std::ostream& file) { file << page; });
  write_methods(folder, assets, policies_of(content.experiments));
  return content.answers;
}

}  // namespace

Written write_report(const std::vector<std::string>& dirs, const std::string& out, const Options& options) {
  KVCAST_CHECK(!dirs.empty());
  const fs::path validation = fs::path(dirs.front()) / "validation.json";
  const bool validated = dirs.size() == 1 && fs::exists(validation);
  const bool swept = !validated || store::Store::exists(dirs.front());
  // Unreadable stores are rejected before anything is written.
  Written report;
  if (swept) report.stores.emplace(dirs, options.where);
  const json found = validated ? read_validation(validation.string()) : json();
  const Assets assets = load_assets(options);

  const fs::path folder(out);
  make_folder(folder / "figures");
  make_folder(folder / "tables");
  if (report.stores) report.answers = write_stores(*report.stores, folder, assets, validated);
  if (validated) write_validation(found, folder, assets, swept);
  report.page = (folder / "index.html").string();
  return report;
}

}  // namespace kvcast::report

// Fills the page's template with the style, Vega, our scripts and the data, all inline.
#include "report/report.hpp"

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/error.hpp"
#include "report/answers.hpp"
#include "report/assets.hpp"
#include "report/content.hpp"
#include "report/figures.hpp"
#include "report/measures.hpp"
#include "report/page.hpp"
#include "report/validation.hpp"
#include "store/csv.hpp"
#include "store/store.hpp"

namespace kvcast::report {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

json page_data(const Assets& assets, const Content& content, const json& answers) {
  json charts = json::array();
  if (content.sweep["swept"]) {
    for (const Chart& chart : assets.charts) charts.push_back({{"name", chart.name}, {"spec", chart.spec}});
  }
  json tables = json::object();
  for (const char* name : {"experiments", "breakdown", "owners", "timeline", "series"}) {
    tables[name] = table_named(content, name)->compact();
  }
  return {{"sweep", content.sweep},
          {"findings", content.findings},
          {"answers", answers},
          {"rests_on", content.rests_on},
          {"tables", tables},
          {"charts", charts},
          {"metrics", page_metrics_json()},
          {"themes", assets.themes},
          {"defaults", content.defaults}};
}

void write_figures(const fs::path& folder, const std::vector<Chart>& figures) {
  for (const Chart& figure : figures) {
    write_file(folder / (figure.name + ".json"), [&](std::ostream& file) { file << dump(figure.spec); });
  }
}

void write_tables(const fs::path& folder, const store::Store& store, const Content& content) {
  write_file(folder / "experiments.csv", [&](std::ostream& out) { store::export_csv(store, out); });
  for (const char* name : {"breakdown", "owners", "timeline", "series"}) {
    write_file(folder / (std::string(name) + ".csv"),
               [&](std::ostream& out) { table_named(content, name)->write_csv(out); });
  }
  write_file(folder / "summary.csv", [&](std::ostream& out) { content.experiments.write_csv(out); });
}

}  // namespace

namespace {

void write_sweep(const store::Store& store, const fs::path& folder, const Assets& assets, bool validated) {
  const Content content = collect(store, Palette(assets.palette));
  write_tables(folder / "tables", store, content);
  const json answers = drawn_answers(assets, content.answers);
  write_figures(folder / "figures", standalone_figures(assets, content, answers));
  json data = page_data(assets, content, answers);
  data["validated"] = validated;
  const std::string page = fill(assets.page, {{"{{title}}", escape_html(content.sweep.value("name", "kvcast report"))},
                                              {"{{style}}", assets.style},
                                              {"{{data}}", inside_script(dump(data))},
                                              {"{{vega}}", assets.vega},
                                              {"{{script}}", assets.script}});
  write_file(folder / "index.html", [&](std::ostream& file) { file << page; });
}

}  // namespace

std::string write_report(const std::string& dir, const std::string& out, const Options& options) {
  const fs::path validation = fs::path(dir) / "validation.json";
  const bool validated = fs::exists(validation);
  const bool swept = !validated || fs::exists(fs::path(dir) / "results.sqlite");
  // What cannot be read is refused before anything is written.
  std::optional<store::Store> store;
  if (swept) store = store::Store::open(dir, store::Store::Open::kExisting);
  const json found = validated ? read_validation(validation.string()) : json();
  const Assets assets = load_assets(options);

  const fs::path folder(out);
  make_folder(folder / "figures");
  make_folder(folder / "tables");
  if (store) write_sweep(*store, folder, assets, validated);
  if (validated) write_validation(found, folder, assets, swept);
  return (folder / "index.html").string();
}

}  // namespace kvcast::report

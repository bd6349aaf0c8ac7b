// Fills the page's template with the style, Vega, our scripts and the data, all inline.
#include "report/report.hpp"

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "base/error.hpp"
#include "report/assets.hpp"
#include "report/content.hpp"
#include "store/csv.hpp"
#include "store/store.hpp"

namespace kvcast::report {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Written beside its place and moved there, so that whoever opens the file sees the old one or the new one.
void write_file(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  const fs::path part = path.string() + ".part";
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  write(out);
  out.close();
  std::error_code error;
  if (out) fs::rename(part, path, error);
  if (!out || error) {
    std::error_code ignored;
    fs::remove(part, ignored);
    throw UserError({path.string(), 0, 0}, "the report cannot be written here");
  }
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw UserError({folder.string(), 0, 0}, fmt::format("the folder cannot be made ({})", error.message()));
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// An HTML parser ends a script at "</script" wherever it stands. In JSON "<" stands inside strings only, where it can
// be written as an escape that means the same.
std::string inside_script(std::string text) {
  replace_all(text, "<", "\\u003c");
  return text;
}

std::string escape_html(std::string text) {
  replace_all(text, "&", "&amp;");
  replace_all(text, "<", "&lt;");
  replace_all(text, ">", "&gt;");
  return text;
}

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

const Table* table_named(const Content& content, const std::string& name) {
  if (name == "experiments") return &content.experiments;
  if (name == "breakdown") return &content.breakdown;
  if (name == "owners") return &content.owners;
  if (name == "timeline") return &content.timeline;
  if (name == "series") return &content.series;
  return nullptr;
}

json page_data(const Assets& assets, const Content& content) {
  json charts = json::array();
  for (const Chart& chart : assets.charts) charts.push_back({{"name", chart.name}, {"spec", chart.spec}});
  json tables = json::object();
  for (const char* name : {"experiments", "breakdown", "owners", "timeline", "series"}) {
    tables[name] = table_named(content, name)->compact();
  }
  return {{"sweep", content.sweep},
          {"findings", content.findings},
          {"rests_on", content.rests_on},
          {"tables", tables},
          {"charts", charts},
          {"metrics", assets.metrics},
          {"themes", assets.themes},
          {"defaults", content.defaults}};
}

// Each marker stands once in the template. Searching goes on behind what was put in, so no marker inside the store's
// own texts is ever replaced.
std::string fill(const std::string& page, const std::vector<std::pair<std::string, std::string>>& parts) {
  std::string filled;
  std::size_t from = 0;
  for (const auto& [marker, text] : parts) {
    const std::size_t at = page.find(marker, from);
    if (at == std::string::npos)
      throw UserError(fmt::format("the report's page template lacks {} in its place", marker));
    filled += page.substr(from, at - from) + text;
    from = at + marker.size();
  }
  return filled + page.substr(from);
}

// A specification that stands alone: opens in any Vega 5, with the light theme and the page's first selection.
json standalone(const Chart& chart, const Content& content, const json& themes) {
  json spec = chart.spec;
  for (json& signal : spec["signals"]) {
    const auto chosen = content.defaults.find(signal.value("name", ""));
    if (chosen != content.defaults.end()) signal["value"] = *chosen;
  }
  for (json& data : spec["data"]) {
    const Table* table = table_named(content, data.value("name", ""));
    if (table != nullptr && !data.contains("source")) data["values"] = table->objects();
  }
  spec["config"] = themes.value("light", json::object());
  return spec;
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

std::string write_report(const std::string& dir, const std::string& out, const Options& options) {
  const store::Store store = store::Store::open(dir, store::Store::Open::kExisting);
  const Assets assets = load_assets(options);
  const Content content = collect(store, assets.metrics, Palette(assets.palette));

  const fs::path folder(out);
  make_folder(folder / "figures");
  make_folder(folder / "tables");
  write_tables(folder / "tables", store, content);
  for (const Chart& chart : assets.charts) {
    write_file(folder / "figures" / (chart.name + ".json"),
               [&](std::ostream& file) { file << dump(standalone(chart, content, assets.themes)); });
  }
  const std::string page = fill(assets.page, {{"{{title}}", escape_html(content.sweep.value("name", "kvcast report"))},
                                              {"{{style}}", assets.style},
                                              {"{{data}}", inside_script(dump(page_data(assets, content)))},
                                              {"{{vega}}", assets.vega},
                                              {"{{script}}", assets.script}});
  const fs::path index = folder / "index.html";
  write_file(index, [&](std::ostream& file) { file << page; });
  return index.string();
}

}  // namespace kvcast::report

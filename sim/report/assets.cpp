// Debian's libjs-vega holds Vega as some thirty separate UMD modules and no bundle. Each is wrapped in a function and
// registered by name with the small registry of reports/js/modules.js, which resolves their require() calls among
// themselves: no server, no module loader and no network, so the page works from file://.
#include "report/assets.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/build.hpp"
#include "base/error.hpp"
#include "base/quote.hpp"
#include "base/whole_file.hpp"
#include "report/measures.hpp"

namespace kvcast::report {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kVegaPackage = "libjs-vega";

std::string read_file(const fs::path& path, const std::string& hint) {
  std::ifstream in;
  if (is_regular(path.string())) in.open(path, std::ios::binary);
  if (!in.is_open()) {
    throw UserError({path.string(), 0, 0}, "the report needs this file, and it cannot be read" + hint);
  }
  return {std::istreambuf_iterator<char>(in), {}};
}

// Reports an error of the JSON library as one of the file, without the library's name and number of the error.
[[noreturn]] void malformed(const fs::path& path, const json::exception& error) {
  const std::string text = error.what();
  const std::size_t end = text.find("] ");
  throw UserError({path.string(), 0, 0}, end == std::string::npos ? text : text.substr(end + 2));
}

json read_json(const fs::path& path) {
  try {
    return json::parse(read_file(path, ""));
  } catch (const json::exception& error) {
    malformed(path, error);
  }
}

fs::path find_assets(const std::string& asked) {
  if (!asked.empty()) return asked;
  for (const fs::path& folder : {fs::path("reports"), fs::path(data_dir()) / "reports"}) {
    if (fs::exists(folder / "page.json")) return folder;
  }
  throw UserError(
      fmt::format("the report's page template was not found, neither in ./reports nor in {}/reports", data_dir()));
}

std::string concatenate(const fs::path& folder, const json& names) {
  std::string all;
  for (const json& name : names) {
    all += read_file(folder / name.get<std::string>(), "");
    all += '\n';
  }
  return all;
}

// Source maps are not shipped with the page, and a browser would look for them next to it.
std::string without_source_map(std::string text) {
  const std::size_t at = text.rfind("//# sourceMappingURL");
  return at == std::string::npos ? text : text.substr(0, at);
}

std::string join_vega(const fs::path& javascript, const fs::path& assets, const json& manifest) {
  const std::string hint = fmt::format("; it is part of Debian's package {0} (apt-get install {0})", kVegaPackage);
  std::string script = read_file(assets / manifest.at("registry").get<std::string>(), "");
  for (const auto& [module, file] : manifest.at("modules").items()) {
    const std::string part = read_file(javascript / "vega" / file.get<std::string>(), hint);
    script += fmt::format("\nkvcastModules.define({}, function (exports, module, require) {{\n{}\n}});\n",
                          json(module).dump(), without_source_map(part));
  }
  script += fmt::format("\nwindow.vega = kvcastModules.join({}, {});\n", manifest.at("api").dump(),
                        manifest.at("transforms").dump());
  return script;
}

fs::path vega_folder(const Options& options) {
  const fs::path own = fs::path(data_dir()) / "javascript";
  return fs::is_directory(own / "vega") ? own : fs::path(options.javascript);
}

using Names = std::vector<std::string>;

// Keys of a chart's `usermeta` that the page's scripts read (reports/README.md).
const Names kMetaKeys = {"title",     "caption",    "drawn",       "metrics",  "empty", "absent_when",
                         "elsewhere", "batch_rule", "budget_rule", "controls", "log"};

void require_known(const std::string& path, const std::string& what, const std::string& name, const Names& known) {
  if (std::ranges::find(known, name) != known.end()) return;
  throw UserError({path, 0, 0}, fmt::format("{} {}", what, quote(name)), known);
}

// Throws UserError if a chart's `usermeta` lacks a needed key or has an unknown one, or if the chart names a metric or
// a data set that does not exist: the page would leave out a text or fail without the chart's name.
void check_chart(const std::string& path, const json& spec, const Names& needed) {
  const json meta = spec.value("usermeta", json::object());
  for (const std::string& key : needed) {
    if (!meta.contains(key)) throw UserError({path, 0, 0}, fmt::format("usermeta has no {}", quote(key)));
  }
  for (const auto& [key, unused] : meta.items()) require_known(path, "unknown key of usermeta:", key, kMetaKeys);
  Names sets, metrics;
  for (const json& set : spec.at("data")) sets.push_back(set.at("name").get<std::string>());
  if (meta.contains("drawn")) require_known(path, "drawn: no data set", meta.at("drawn").get<std::string>(), sets);
  for (const json& set : spec.at("data")) {
    const json source = set.value("source", json::array());
    for (const json& name : source.is_array() ? source : json::array({source})) {
      require_known(path, fmt::format("source of {}: no data set", set.at("name").get<std::string>()),
                    name.get<std::string>(), sets);
    }
  }
  for (const result::Metric* metric : page_metrics()) metrics.push_back(metric->alias);
  for (const json& name : meta.value("metrics", json::array())) {
    const std::string metric = name.get<std::string>();
    if (!metric.starts_with('$')) require_known(path, "metrics: unknown metric", metric, metrics);
  }
}

// Reads the charts that a list of page.json names, and merges each into the shared specification.
std::vector<ChartFile> read_charts(const fs::path& folder, const json& names, const json& shared, const Names& needed) {
  std::vector<ChartFile> charts;
  for (const json& entry : names) {
    const std::string name = entry.get<std::string>();
    if (std::ranges::any_of(charts, [&](const ChartFile& other) { return other.name == name; })) {
      throw UserError({(folder / "page.json").string(), 0, 0}, fmt::format("the chart {} is named twice", quote(name)));
    }
    const fs::path path = folder / "charts" / (name + ".json");
    const json own = read_json(path);
    try {
      charts.push_back({name, merge_spec(shared, own)});
      check_chart(path.string(), charts.back().spec, needed);
    } catch (const json::exception& error) {
      malformed(path, error);
    }
  }
  return charts;
}

}  // namespace

json merge_spec(const json& shared, const json& chart) {
  json merged = shared;
  for (const auto& [key, own] : chart.items()) {
    json& target = merged[key];
    if (!own.is_array() || !target.is_array()) {
      target = own;
      continue;
    }
    for (const json& entry : own) {
      const auto same = [&](const json& other) {
        return entry.contains("name") && other.contains("name") && entry["name"] == other["name"];
      };
      const auto found = std::ranges::find_if(target, same);
      if (found != target.end()) {
        *found = entry;
      } else {
        target.push_back(entry);
      }
    }
  }
  return merged;
}

Assets load_assets(const Options& options) {
  const fs::path folder = find_assets(options.assets);
  const json manifest = read_json(folder / "page.json");
  Assets assets;
  try {
    assets.page = read_file(folder / manifest.at("page").get<std::string>(), "");
    assets.style = concatenate(folder, manifest.at("styles"));
    assets.script = concatenate(folder, manifest.at("scripts"));
    if (options.vega) assets.vega = join_vega(vega_folder(options), folder, manifest.at("vega"));
    assets.print = (folder / manifest.at("print").get<std::string>()).string();
    const json& methods = manifest.at("methods");
    assets.methods_page = read_file(folder / methods.at("page").get<std::string>(), "");
    assets.methods = read_json(folder / methods.at("assumptions").get<std::string>());
    assets.palette = read_json(folder / manifest.at("palette").get<std::string>());
    assets.themes = read_json(folder / manifest.at("themes").get<std::string>());
    const json shared = read_json(folder / manifest.at("shared_spec").get<std::string>());
    assets.charts =
        read_charts(folder, manifest.at("charts"), shared, {"title", "caption", "drawn", "metrics", "empty"});
    assets.service_charts =
        read_charts(folder, manifest.at("service_charts"), shared, {"title", "caption", "drawn", "metrics", "empty"});
    const json& plan = manifest.at("plan");
    const json plan_shared = read_json(folder / plan.at("shared_spec").get<std::string>());
    assets.plan_charts = read_charts(folder, plan.at("charts"), plan_shared, {"title", "caption"});
    const json& validation = manifest.at("validation");
    assets.validation.page = read_file(folder / validation.at("page").get<std::string>(), "");
    assets.validation.script = concatenate(folder, validation.at("scripts"));
    assets.validation.charts =
        read_charts(folder, validation.at("charts"), json::object(), {"title", "caption", "drawn", "empty"});
    const json& planner = manifest.at("planner");
    assets.planner.page = read_file(folder / planner.at("page").get<std::string>(), "");
    assets.planner.style = concatenate(folder, planner.at("styles"));
    assets.planner.script = concatenate(folder, planner.at("scripts"));
    assets.planner.ahead = (folder / planner.at("ahead").get<std::string>()).string();
    assets.planner.charts = read_charts(folder, planner.at("charts"), plan_shared, {"title", "caption"});
  } catch (const json::exception& error) {
    malformed(folder / "page.json", error);
  }
  return assets;
}

}  // namespace kvcast::report

// Debian's libjs-vega holds Vega as some thirty separate UMD modules and no bundle. Each is wrapped in a function and
// registered by name with the small registry of reports/js/modules.js, which resolves their require() calls among
// themselves: no server, no module loader and no network, so the page works from file://.
#include "report/assets.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/build.hpp"
#include "base/error.hpp"

namespace kvcast::report {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kVegaPackage = "libjs-vega";

std::string read_file(const fs::path& path, const std::string& hint) {
  std::ifstream in(path, std::ios::binary);
  // Opening a directory succeeds; only reading it fails.
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!in.is_open() || in.bad() || fs::is_directory(path)) {
    throw UserError({path.string(), 0, 0}, "the report needs this file, and it cannot be read" + hint);
  }
  return text;
}

json read_json(const fs::path& path) {
  try {
    return json::parse(read_file(path, ""));
  } catch (const json::exception& error) {
    throw UserError({path.string(), 0, 0}, error.what());
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
      const auto found = std::find_if(target.begin(), target.end(), same);
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
    assets.vega = join_vega(options.javascript, folder, manifest.at("vega"));
    assets.print = (folder / manifest.at("print").get<std::string>()).string();
    const json& methods = manifest.at("methods");
    assets.methods_page = read_file(folder / methods.at("page").get<std::string>(), "");
    assets.methods = read_json(folder / methods.at("assumptions").get<std::string>());
    assets.palette = read_json(folder / manifest.at("palette").get<std::string>());
    assets.themes = read_json(folder / manifest.at("themes").get<std::string>());
    const json shared = read_json(folder / manifest.at("shared_spec").get<std::string>());
    for (const json& name : manifest.at("charts")) {
      const std::string chart = name.get<std::string>();
      assets.charts.push_back({chart, merge_spec(shared, read_json(folder / "charts" / (chart + ".json")))});
    }
    const json& plan = manifest.at("plan");
    const json plan_shared = read_json(folder / plan.at("shared_spec").get<std::string>());
    for (const json& name : plan.at("charts")) {
      const std::string chart = name.get<std::string>();
      assets.plan_charts.push_back({chart, merge_spec(plan_shared, read_json(folder / "charts" / (chart + ".json")))});
    }
    const json& validation = manifest.at("validation");
    assets.validation.page = read_file(folder / validation.at("page").get<std::string>(), "");
    assets.validation.script = concatenate(folder, validation.at("scripts"));
    for (const json& name : validation.at("charts")) {
      const std::string chart = name.get<std::string>();
      assets.validation.charts.push_back({chart, read_json(folder / "charts" / (chart + ".json"))});
    }
    const json& planner = manifest.at("planner");
    assets.planner.page = read_file(folder / planner.at("page").get<std::string>(), "");
    assets.planner.style = concatenate(folder, planner.at("styles"));
    assets.planner.script = concatenate(folder, planner.at("scripts"));
    for (const json& name : planner.at("charts")) {
      const std::string chart = name.get<std::string>();
      assets.planner.charts.push_back(
          {chart, merge_spec(plan_shared, read_json(folder / "charts" / (chart + ".json")))});
    }
  } catch (const json::exception& error) {
    throw UserError({(folder / "page.json").string(), 0, 0}, error.what());
  }
  return assets;
}

}  // namespace kvcast::report

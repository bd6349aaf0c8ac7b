// The files of a report, without a browser: complete, self-contained, replaced atomically, and errors that name the
// file.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "report/assets.hpp"
#include "report/measures.hpp"
#include "report/report.hpp"
#include "store/store.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

namespace fs = std::filesystem;
using kvcast::UserError;
using kvcast::report::load_assets;
using kvcast::report::merge_spec;
using kvcast::report::Options;
using kvcast::report::write_report;
using kvcast::store::Store;
using nlohmann::json;

namespace {

const std::string kAssets = std::string(KVCAST_SOURCE_DIR) + "/reports";

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

Options options() {
  Options options;
  options.assets = kAssets;
  return options;
}

void make_store(const std::string& dir) {
  Store store = Store::open(dir, Store::Open::kCreate);
  kvcast::result::Result r;
  r.key = "k";
  r.subject.policy = "full", r.subject.hardware = "</script><b>";
  r.experiment.tokens_per_s = 2.5;
  store.put(0, r, "v1");
  store.set_metadata(kvcast::store::kMetaName, "A & B </title>");
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("a chart's specification follows the shared one and overrides its entries") {
  const json merged = merge_spec(json::parse(R"({"width": 1, "signals": [{"name": "a", "value": 1}, {"name": "b"}],
                                                 "marks": [{"type": "rect"}]})"),
                                 json::parse(R"({"width": 2, "signals": [{"name": "c"}, {"name": "a", "value": 9}],
                                                 "marks": [{"type": "line"}], "scales": [1]})"));
  CHECK(merged == json::parse(R"({"width": 2, "signals": [{"name": "a", "value": 9}, {"name": "b"}, {"name": "c"}],
                                  "marks": [{"type": "rect"}, {"type": "line"}], "scales": [1]})"));
}

TEST_CASE("page.json names every chart") {
  const fs::path reports = fs::path(KVCAST_SOURCE_DIR) / "reports";
  std::ifstream in(reports / "page.json");
  const json page = json::parse(in);
  std::set<std::string> named;
  for (const json& list : {page.at("charts"), page.at("service_charts"), page.at("plan").at("charts"),
                           page.at("planner").at("charts"), page.at("validation").at("charts")}) {
    for (const json& name : list) named.insert(name.get<std::string>());
  }
  for (const auto& file : fs::directory_iterator(reports / "charts")) {
    INFO("reports/page.json does not name " << file.path());
    CHECK(named.contains(file.path().stem().string()));
  }
}

TEST_CASE("every chart states what a figure needs and draws metrics that exist") {
  const auto assets = load_assets(options());
  CHECK(assets.charts.size() == 9);
  CHECK(assets.service_charts.size() == 5);
  std::vector<kvcast::report::ChartFile> charts = assets.charts;
  charts.insert(charts.end(), assets.service_charts.begin(), assets.service_charts.end());
  for (const auto& chart : charts) {
    INFO(chart.name);
    const json& meta = chart.spec.at("usermeta");
    for (const char* key : {"title", "caption", "empty", "drawn"}) CHECK_FALSE(meta.at(key).get<std::string>().empty());
    for (const json& name : meta.at("metrics")) {
      const std::string field = name.get<std::string>();
      if (field[0] == '$') continue;  // named by a signal
      bool known = false;
      for (const auto* metric : kvcast::report::page_metrics()) known = known || metric->alias == field;
      CHECK(known);
    }
  }
}

TEST_CASE("the page is complete in itself, and no text of the store becomes markup") {
  const kvcast::TemporaryDirectory dir;
  make_store(dir.path());
  const std::string path = write_report({dir.path()}, dir.path() + "/out", options()).page;
  CHECK(path == dir.path() + "/out/index.html");
  const std::string page = read(path);
  CHECK(page.find("<title>A &amp; B &lt;/title&gt;</title>") != std::string::npos);
  CHECK(count(page, "<script") == 4);  // the guard, the data, Vega, the page's script
  CHECK(count(page, "</script>") == 4);
  CHECK(count(page, "<script>") == 3);  // only the data has an attribute, so nothing is fetched
  CHECK(page.find("<link") == std::string::npos);
  CHECK(page.find("sourceMappingURL") == std::string::npos);
  for (const char* marker : {"{{title}}", "{{style}}", "{{data}}", "{{vega}}", "{{script}}"}) {
    CHECK(page.find(marker) == std::string::npos);
  }
  for (const char* table : {"experiments", "summary", "breakdown", "owners", "timeline", "series"}) {
    CHECK(fs::exists(dir.path() + "/out/tables/" + table + ".csv"));
  }
  const json figure = json::parse(read(dir.path() + "/out/figures/throughput_budget.json"));
  bool found = false;
  for (const json& data : figure.at("data")) {
    if (data.at("name") == "experiments") found = data.at("values").at(0).at("tps") == 2.5;
  }
  CHECK(found);
}

TEST_CASE("a report replaces an earlier one and leaves no partial files") {
  const kvcast::TemporaryDirectory dir;
  make_store(dir.path());
  const std::string out = dir.path() + "/out";
  fs::create_directories(out);
  std::ofstream(out + "/index.html") << "old";
  write_report({dir.path()}, out, options());
  CHECK(read(out + "/index.html").size() > 100000);
  for (const auto& entry : fs::recursive_directory_iterator(out)) CHECK(entry.path().extension() != ".part");
}

TEST_CASE("the page of methods states every assumption with its source, and the policies of the store") {
  const kvcast::TemporaryDirectory dir;
  make_store(dir.path());
  write_report({dir.path()}, dir.path() + "/out", options());
  const std::string page = read(dir.path() + "/out/methods.html");
  CHECK(page.find("{{") == std::string::npos);
  CHECK(page.find("<script") == std::string::npos);
  const json topics = json::parse(read(options().assets + "/methods.json"));
  std::size_t assumptions = 0;
  for (const json& topic : topics) {
    for (const json& a : topic.at("assumptions")) {
      ++assumptions;
      for (const char* key : {"statement", "source", "basis", "moves"}) {
        const std::string text = a.at(key);
        CHECK(!text.empty());
        CHECK(page.find(text) != std::string::npos);
      }
    }
  }
  // Files named by sources exist.
  std::istringstream words(topics.dump());
  std::size_t files = 0;
  for (std::string word; words >> word;) {
    const std::size_t from = word.find_last_of("\"(") + 1, to = word.find_last_not_of(".,;:)\"}]") + 1;
    const std::string name = word.substr(std::min(from, to), to - std::min(from, to));
    if (name.find('/') == std::string::npos || !fs::exists(kAssets + "/../" + name.substr(0, name.find('/')))) continue;
    ++files;
    CHECK(fs::exists(kAssets + "/../" + name));
  }
  CHECK(files >= 9);
  CHECK(count(page, "<tr><td>") == assumptions);
  CHECK(count(page, "<details id=\"policy-") == 1);
  CHECK(page.find("<summary>full: ") != std::string::npos);
}

TEST_CASE("a report of two stores has a table of changes and both tables of experiments") {
  const kvcast::TemporaryDirectory a, b, out;
  make_store(a.path()), make_store(b.path());
  write_report({a.path(), b.path()}, out.path(), options());
  for (const char* table : {"experiments_1", "experiments_2", "changes", "summary"})
    CHECK(fs::exists(out.path() + "/tables/" + table + ".csv"));
  // A report of fewer stores removes these files, which would refer to other experiments; all other files stay.
  std::ofstream(out.path() + "/tables/experiments_mine.csv") << "own";
  std::ofstream(out.path() + "/figures/plan_9_changes.json") << "{}";
  write_report({a.path()}, out.path(), options());
  std::set<std::string> left;
  for (const char* folder : {"tables", "figures"}) {
    for (const auto& entry : fs::directory_iterator(out.path() + "/" + folder)) left.insert(entry.path().filename());
  }
  for (const char* gone : {"experiments_1.csv", "experiments_2.csv", "changes.csv", "plan_9_changes.json"})
    CHECK_FALSE(left.contains(gone));
  for (const char* kept : {"experiments.csv", "experiments_mine.csv", "memory_owners.json"}) CHECK(left.contains(kept));
  CHECK_THROWS_WITH(write_report({a.path(), a.path() + "/."}, out.path(), options()),
                    Catch::Contains("is given twice"));
}

TEST_CASE("a chart that the page cannot draw is named with the reason") {
  const kvcast::TemporaryDirectory dir;
  fs::copy(kAssets, dir.path() + "/assets", fs::copy_options::recursive);
  Options broken = options();
  broken.assets = dir.path() + "/assets";
  const fs::path path = fs::path(broken.assets) / "charts" / "memory_owners.json";
  const json chart = json::parse(read(path));
  const auto error_of = [&](const json& changes, const fs::path& file) {
    json changed = json::parse(read(file));
    changed.merge_patch(changes);
    std::ofstream(file) << changed;
    try {
      load_assets(broken);
    } catch (const UserError& error) {
      std::ofstream(path) << chart;
      return std::string(error.what());
    }
    return std::string();
  };
  const auto starts = [](const fs::path& file, const std::string& text) {
    return Catch::StartsWith(file.string() + ": " + text);
  };
  CHECK_THAT(error_of({{"usermeta", nullptr}}, path), starts(path, "usermeta has no \"title\""));
  CHECK_THAT(error_of({{"usermeta", {{"captoin", "x"}}}}, path),
             starts(path, "unknown key of usermeta: \"captoin\"; known: title, caption"));
  CHECK_THAT(error_of({{"usermeta", {{"empty", nullptr}}}}, path), starts(path, "usermeta has no \"empty\""));
  CHECK_THAT(error_of({{"usermeta", {{"metrics", {"ttfft"}}}}}, path),
             starts(path, "metrics: unknown metric \"ttfft\"; known: ") && Catch::Contains("ttft"));
  CHECK_THAT(error_of({{"usermeta", {{"drawn", "barz"}}}}, path),
             starts(path, "drawn: no data set \"barz\"; known: ") && Catch::Contains("owners"));
  CHECK_THAT(error_of({{"data", {{{"name", "drawn"}, {"source", "chosn"}}}}}, path),
             starts(path, "source of drawn: no data set \"chosn\"; known: ") && Catch::Contains("chosen"));
  CHECK_THAT(error_of({{"data", 1}}, path), starts(path, "cannot use at() with number"));
  const fs::path page = fs::path(broken.assets) / "page.json";
  CHECK_THAT(error_of({{"charts", {"memory_owners", "memory_owners"}}}, page),
             starts(page, "the chart \"memory_owners\" is named twice"));
  CHECK_THAT(error_of({{"charts", nullptr}}, page), starts(page, "key 'charts' not found"));
}

TEST_CASE("a missing input of a report is named") {
  const kvcast::TemporaryDirectory dir;
  const std::string out = dir.path() + "/out";
  CHECK_THROWS_WITH(write_report({dir.path()}, out, options()), Catch::Contains("results.sqlite"));
  make_store(dir.path());
  SECTION("Vega is not installed") {
    Options without = options();
    without.javascript = dir.path();
    CHECK_THROWS_AS(write_report({dir.path()}, out, without), UserError);
    CHECK_THROWS_WITH(write_report({dir.path()}, out, without),
                      Catch::Contains("apt-get install libjs-vega") && Catch::Contains(dir.path() + "/vega/"));
  }
  SECTION("the page's parts are missing") {
    Options without = options();
    without.assets = dir.path() + "/nowhere";
    CHECK_THROWS_WITH(write_report({dir.path()}, out, without), Catch::Contains("nowhere/page.json"));
  }
  SECTION("a part is malformed") {
    fs::copy(kAssets, dir.path() + "/assets", fs::copy_options::recursive);
    std::ofstream(dir.path() + "/assets/charts/split_factor.json") << "{\"data\":";
    Options broken = options();
    broken.assets = dir.path() + "/assets";
    CHECK_THROWS_WITH(write_report({dir.path()}, out, broken), Catch::Contains("split_factor.json"));
  }
  SECTION("a part is a folder") {
    fs::copy(kAssets, dir.path() + "/assets", fs::copy_options::recursive);
    fs::remove(dir.path() + "/assets/charts/split_factor.json");
    fs::create_directory(dir.path() + "/assets/charts/split_factor.json");
    Options broken = options();
    broken.assets = dir.path() + "/assets";
    CHECK_THROWS_WITH(write_report({dir.path()}, out, broken),
                      Catch::Contains("split_factor.json: the report needs this file, and it cannot be read"));
  }
  SECTION("the report's folder is a file") {
    std::ofstream(out) << "in the way";
    CHECK_THROWS_WITH(write_report({dir.path()}, out, options()), Catch::Contains(out));
  }
}

}  // namespace kvcast::tests

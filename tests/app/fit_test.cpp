// kvcast fit with a user's own tables: rows that are left out, files that stay, and predictions from measured rows.
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/process.hpp"

namespace kvcast::tests {

using Catch::Contains;
namespace fs = std::filesystem;

namespace {

const std::string kTableHeader = "paper,table,model,benchmark,context,task,method,budget,budget_unit,value,unit\n";

// A data folder like the project's, except that its evidence is a single table, so that fits take no time.
class SmallData {
 public:
  SmallData() {
    const fs::path source = fs::path(KVCAST_SOURCE_DIR) / "configs", own = scratch_ / "data/configs";
    fs::create_directories(own / "accuracy");
    for (const auto& entry : fs::directory_iterator(source)) {
      if (entry.path().filename() != "accuracy") fs::create_symlink(entry.path(), own / entry.path().filename());
    }
    for (const auto& entry : fs::directory_iterator(source / "accuracy")) {
      if (!entry.path().filename().string().starts_with("evidence"))
        fs::create_symlink(entry.path(), own / "accuracy" / entry.path().filename());
    }
    fs::create_symlink(fs::path(KVCAST_SOURCE_DIR) / "traces", scratch_ / "data/traces");
    std::istringstream all(slurp((source / "accuracy/evidence.csv").string()));
    std::string rows, line;
    std::getline(all, rows);
    for (rows += '\n'; std::getline(all, line);) {
      if (line.starts_with("CTkvr,Table 10,")) rows += line + "\n";
    }
    scratch_.write("data/configs/accuracy/evidence.csv", rows);
    scratch_.write("data/configs/accuracy/evidence.yaml", slurp((source / "accuracy/evidence.yaml").string()));
    fs::create_directories(scratch_ / "configs/accuracy");
  }

  // Runs the command in a folder of its own, outside the project.
  Output kvcast(const std::vector<std::string>& arguments) const {
    const std::string folder = scratch_ / "", data = scratch_ / "data";
    return tests::kvcast(arguments, [&] {
      setenv("KVCAST_DATA", data.c_str(), 1);
      if (chdir(folder.c_str()) != 0) _exit(125);
    });
  }
  const Scratch& scratch() const { return scratch_; }

 private:
  Scratch scratch_;
};

std::string row_of(const std::string& paper, const std::string& rest) {
  return paper + ",T,Llama-3.1-8B-Instruct,RULER,4K," + rest + "\n";
}

std::string full_row(const std::string& task, const std::string& paper = "Mine") {
  return row_of(paper, task + ",Full,full,tokens,100,");
}
std::string snapkv_row(const std::string& task, const std::string& value, const std::string& paper = "Mine") {
  return row_of(paper, task + ",SnapKV,512,tokens," + value + ",");
}

long lines_in(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

}  // namespace

TEST_CASE("fit evidence keeps all other rows and reports which rows it leaves out") {
  const SmallData data;
  const std::string evidence = data.scratch() / "data/configs/accuracy/evidence.csv", before = slurp(evidence);
  data.scratch().write("t.csv", kTableHeader + full_row("single1") + snapkv_row("single1", "50") +
                                    snapkv_row("single1", "60") + row_of("Mine", "single1,Foo,512,tokens,50,") +
                                    row_of("Mine", "single1,SnapKV,512,pages,50,") + snapkv_row("single1", "500") +
                                    row_of("Mine", "avg13,SnapKV,512,tokens,50,"));
  // The default files are those of the data folder, because the working directory has none.
  const Output added = data.kvcast({"fit", "evidence", "--published", "t.csv"});
  INFO(added.err);
  REQUIRE(added.code == 0);
  CHECK(lines_in(slurp(evidence)) == lines_in(before) + 2);
  CHECK_THAT(added.err, Contains("t.csv: 2 rows added, 4 left out") &&
                            Contains("left out, t.csv:5: no policy for the method Foo") &&
                            Contains("left out, t.csv:6: unknown budget unit \"pages\"") &&
                            Contains("left out, t.csv:7: value: expected a score from 0 to 100") &&
                            Contains("left out, t.csv:8: a mean over tasks"));
  CHECK_THAT(added.err, Contains("t.csv:4:1: warning: 60 points, but line 3 has 50 for the same setting"));
  const std::string after = slurp(evidence);
  data.scratch().write("t.csv", kTableHeader + full_row("single1") + row_of("Mine", "single1,Foo,512,tokens,50,"));
  const Output none = data.kvcast({"fit", "evidence", "--rows", "t.csv"});
  CHECK(none.code == 2);
  CHECK_THAT(none.err, Contains("left out, t.csv:3: no policy for the method Foo") && Contains("no row can be added"));
  CHECK(slurp(evidence) == after);
}

TEST_CASE("the prediction of a measured setting agrees with its measurement, whatever paper its rows name") {
  const std::string paper = GENERATE(std::string("Mine"), std::string());
  const SmallData data;
  std::string rows = kTableHeader;
  for (const char* task : {"single1", "single2", "multikey1"})
    rows += full_row(task, paper) + snapkv_row(task, "50", paper);
  data.scratch().write("t.csv", rows);
  const std::string records = "configs/accuracy/evidence.csv";  // new: it starts from that of the data folder
  const Output fitted =
      data.kvcast({"fit", "evidence", "--rows", "t.csv", "--records", records, "-o", "configs/accuracy/evidence.yaml"});
  INFO(fitted.err);
  REQUIRE(fitted.code == 0);
  CHECK(lines_in(slurp(data.scratch() / records)) == lines_in(slurp(data.scratch() / ("data/" + records))) + 3);
  data.scratch().write("run.yaml",
                       "model: llama-3.1-8b\nhardware: h100-sxm\npolicy: {name: snapkv, budget: 512}\n"
                       "workload: {prompt_tokens: 4096, decode_tokens: 16}\nscore: ruler\n");
  const Output run = data.kvcast({"run", "run.yaml", "--json"});
  INFO(run.err);
  REQUIRE(run.code == 0);
  const nlohmann::json score = nlohmann::json::parse(run.out)["score"];
  CHECK_THAT(score["origin"].get<std::string>(), Contains(paper.empty() ? "measured T (" : "Mine T ("));
  int found = 0;
  for (const nlohmann::json& task : score["tasks"]) {
    if (rows.find("," + task["task"].get<std::string>() + ",") == std::string::npos) continue;
    ++found;
    INFO(task.dump());
    CHECK(task["share_of_full"].get<double>() == Approx(.5).margin(.06));
    CHECK(task["interval"][0].get<double>() < .5);
    CHECK(task["interval"][1].get<double>() > .5);
  }
  CHECK(found == 3);
}

TEST_CASE("fits refuse to overwrite their inputs and detect an unwritable output before the replays") {
  const SmallData data;
  const std::string table = kTableHeader + full_row("single1") + snapkv_row("single1", "50");
  data.scratch().write("t.csv", table);
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& why) {
    const Output out = data.kvcast(arguments);
    CHECK(out.code == 2);
    CHECK_THAT(out.err, Contains(why) && !Contains("Replaying") && !Contains("added") && !Contains("a new file"));
    CHECK(slurp(data.scratch() / "t.csv") == table);
  };
  const std::string read = "t.csv is also read (t.csv) and would be overwritten: name another file by ";
  refused({"fit", "accuracy", "--published", "t.csv", "-o", "t.csv"}, read + "-o");
  refused({"fit", "evidence", "--rows", "t.csv", "--records", "t.csv"}, read + "--records");
  refused({"fit", "evidence", "--rows", "t.csv", "--records", "e.csv", "-o", "t.csv"}, read + "-o");
  refused({"fit", "evidence", "--rows", "t.csv", "--records", "new", "-o", "new"},
          "new: -o and --records name one file");
  refused({"fit", "accuracy", "--published", "t.csv", "-o", "none/link.yaml"}, "none/link.yaml: cannot be written");
  refused({"fit", "evidence", "--rows", "t.csv", "-o", "none/e.yaml"}, "none/e.yaml: cannot be written");
  refused({"fit", "accuracy", "--published", "t.csv", "--published", "./t.csv", "-o", "link.yaml"},
          "./t.csv: the same file as t.csv: its rows would count twice");
  data.scratch().write("whole.yaml", "model: llama-3.1-8b\nhardware: h100-sxm\npolicy: {name: snapkv, budget: 8192}\n");
  refused({"fit", "scores", "--sweep", "whole.yaml", "--contexts", "4K", "--replays", "replays", "-o", "none/s.csv"},
          "none/s.csv: cannot be written");
  CHECK_FALSE(fs::exists(data.scratch() / "replays"));
}

TEST_CASE("fit accuracy reports which rows it leaves out") {
  const SmallData data;
  data.scratch().write("t.csv", kTableHeader + full_row("single3") + snapkv_row("single3", "40") +
                                    row_of("Mine", "single3,Foo,512,tokens,50,") + snapkv_row("single3", "n/a"));
  const Output out = data.kvcast({"fit", "accuracy", "--published", "t.csv", "--seeds", "1", "-o", "link.yaml"});
  INFO(out.err);
  CHECK(out.code == 0);
  CHECK_THAT(out.err, Contains("left out, t.csv:4: no policy for the method Foo") &&
                          Contains("left out, t.csv:5: value: expected a score") &&
                          Contains("1 row for 4 parameters: the rows do not determine the fit"));
}

TEST_CASE("fit scores writes each row that a run looks up once, and keeps the rows of other models") {
  const SmallData data;
  data.scratch().write("whole.yaml", "model: llama-3.1-8b\nhardware: h100-sxm\npolicy: {name: snapkv, budget: 8192}\n");
  const auto fit = [&](std::vector<std::string> more) {
    std::vector<std::string> all = {"fit", "scores", "-o", "s.csv"};
    all.insert(all.end(), more.begin(), more.end());
    return data.kvcast(all);
  };
  const auto refused = [&](const std::vector<std::string>& more, const std::string& why) {
    const Output out = fit(more);
    CHECK(out.code == 2);
    CHECK_THAT(out.err, Contains(why));
    CHECK_FALSE(fs::exists(data.scratch() / "s.csv"));
  };
  refused({}, "name the policies by --sweep or --all");
  refused({"--sweep", "whole.yaml", "--budgets", "512"}, "--budgets belongs to --all");
  refused({"--sweep", "whole.yaml", "--contexts", "4000"}, "--contexts 4000: ");
  refused({"--sweep", "whole.yaml", "--model", "llama-3-8b", "--contexts", "16384"}, "known: 4096, 8192");
  refused({"--sweep", "whole.yaml", "--contexts", "4Q"},
          "--contexts: expected tokens, such as 4096 or 4K, found \"4Q\"");
  refused({"--all", "--budgets", "0"}, "--budgets: expected tokens, such as 4096 or 4K, found \"0\"");
  REQUIRE(fit({"--sweep", "whole.yaml", "--contexts", "4K"}).code == 0);
  for (int time = 0; time < 2; ++time) {  // llama-3-8b takes 8192 tokens
    REQUIRE(fit({"--sweep", "whole.yaml", "--model", "llama-3-8b"}).code == 0);
    std::istringstream table(slurp(data.scratch() / "s.csv"));
    std::string line, models;
    for (std::getline(table, line); std::getline(table, line);) models += line.substr(17, line.find(",\"") - 17) + ";";
    CHECK(models == "llama-3-8b,4096;llama-3-8b,8192;llama-3.1-8b,4096;");
  }
}

}  // namespace kvcast::tests

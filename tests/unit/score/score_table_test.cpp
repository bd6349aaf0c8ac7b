// The table of scores: it reads back what it wrote and rejects anything else, and the committed rows are valid for this
// program.
#include "score/score_table.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <map>

#include "config/find.hpp"
#include "score/benchmark.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace score;

namespace {

using Catch::Contains;

std::string refusal(const std::string& text) {
  const TemporaryDirectory folder;
  std::ofstream(folder.path() + "/t.csv") << text;
  return error_of([&] { ScoreTable(folder.path() + "/t.csv"); });
}

TEST_CASE("a table of scores is read back as written") {
  const TemporaryDirectory folder;
  const ScoreRow row{"0123",
                     "llama",
                     "quest {\"budget\": 64, \"page\": 16}",
                     4096,
                     {{"cwe", 0.98349, {0.9414, 1}}, {"vt", 0, {0, 0.5}}}};
  std::ofstream(folder.path() + "/t.csv") << write_score_table({row});
  const ScoreTable table(folder.path() + "/t.csv");
  CHECK(table.find("0124", row.model, row.context, row.policy) == nullptr);  // another version
  CHECK(table.find(row.made_with, row.model, 8192, row.policy) == nullptr);
  const ScoreRow* const found = table.find(row.made_with, row.model, row.context, row.policy);
  REQUIRE(found != nullptr);
  REQUIRE(found->tasks.size() == 2);
  CHECK(found->tasks[0].task == "cwe");
  CHECK(found->tasks[0].share_of_full == Approx(0.983));  // thousandths
  CHECK(found->tasks[0].interval.low == Approx(0.941));
  CHECK(found->tasks[1].interval.high == Approx(0.5));
}

TEST_CASE("a broken table of scores is rejected with its location") {
  const std::string header = "made_with,model,context,policy,vt\n";
  CHECK_THAT(refusal("model,context\n"), Contains("expected the columns made_with, model, context, policy"));
  CHECK_THAT(refusal(header + "1,m,4096,p\n"), Contains("t.csv:2:1") && Contains("expected 5 fields, found 4"));
  CHECK_THAT(refusal(header + "1,m,4096,p,100 90\n"), Contains("t.csv:2:12") && Contains("three integers"));
  CHECK_THAT(refusal(header + "1,m,4096,p,1001 90 1000\n"), Contains("from 0 to 1000"));
  CHECK_THAT(refusal(header + "1,m,4K,p,100 90 1000\n"), Contains("t.csv:2:5"));
  const std::string row = "1,m,4096,p,100 90 1000\n";
  CHECK_THAT(refusal(header + row + row), Contains("t.csv:3:1") && Contains("stand twice"));
}

TEST_CASE("the committed scores are valid for this generator, these recipes and this score model") {
  const auto path = score_table_file();
  REQUIRE(path);
  const ScoreTable table(*path);
  REQUIRE_FALSE(table.rows().empty());
  const ScoreModel model;
  const BenchmarkScores scores(model, nullptr, "", 1);
  const Benchmark ruler = find_benchmark(model.catalogue, {});
  std::map<std::string, std::string> made_with;  // by model
  for (const ScoreRow& row : table.rows()) {
    const auto [at, fresh] = made_with.try_emplace(row.model);
    if (fresh) at->second = scores.made_with(ruler, config::read_model(config::find_config("models", row.model, {})));
    INFO(row.policy << " at " << row.context << ": run `kvcast fit scores` again");
    REQUIRE(row.made_with == at->second);
    REQUIRE(row.tasks.size() == 13);
  }
}

TEST_CASE("committed scores equal those of replays, and need no replay") {
  const ScoreTable table(score_table_file().value());
  const ScoreModel model;
  BenchmarkScores scores(model, nullptr, "", 2);
  const BenchmarkScores known(model, &table, "", 1);
  BenchmarkRequest request;
  request.model = "llama-3.1-8b";
  request.prompt_tokens = 16384;
  std::vector<BenchmarkRequest> requests;
  for (const char* text : {"{name: snapkv, budget: 1024}", "{name: quest, budget: 1024}"}) {
    request.policy = config::read_policy(config::parse_yaml(text, "test"));
    CHECK(known.is_known(request));
    scores.request(request);
    requests.push_back(request);
  }
  scores.run([](std::int64_t, std::int64_t) {});
  for (const BenchmarkRequest& r : requests) {
    const auto made = scores.row_of(r);
    REQUIRE(made);
    const ScoreRow* const row = table.find(made->made_with, made->model, made->context, made->policy);
    REQUIRE(row != nullptr);
    for (std::size_t t = 0; t < made->tasks.size(); ++t) {
      INFO(made->policy << ": " << made->tasks[t].task);
      CHECK(row->tasks[t].task == made->tasks[t].task);
      CHECK(std::fabs(row->tasks[t].share_of_full - made->tasks[t].share_of_full) <= 0.0006);
      CHECK(std::fabs(row->tasks[t].interval.low - made->tasks[t].interval.low) <= 0.0006);
      CHECK(std::fabs(row->tasks[t].interval.high - made->tasks[t].interval.high) <= 0.0006);
    }
  }
}

}  // namespace
}  // namespace kvcast::tests

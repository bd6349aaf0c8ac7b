// Published tables: reading, planning, rank correlations.
#include "accuracy/score.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>

#include "accuracy/evaluate.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace accuracy;

namespace {

const std::string kHeader = "paper,table,model,benchmark,context,task,method,budget,budget_unit,value\n";

class TableFile {
 public:
  std::string write(const std::string& text) const {
    const std::string path = folder_.path() + "/t.csv";
    std::ofstream(path) << text;
    return path;
  }

 private:
  TemporaryDirectory folder_;
};

TEST_CASE("Kendall's tau-b and Spearman's rho equal those worked out by hand") {
  // Pairs of (1,2,3,4) against (1,3,2,4): five agree, one does not: 4/6. Ranks off by 0,1,1,0: 1 − 6·2/(4·15).
  CHECK(kendall({1, 2, 3, 4}, {1, 3, 2, 4}).value() == Approx(4.0 / 6));
  CHECK(spearman({1, 2, 3, 4}, {1, 3, 2, 4}).value() == Approx(0.8));
  CHECK(kendall({1, 2, 3}, {3, 2, 1}) == -1);
  // One tie on one side: two of two comparable pairs agree; √((3 − 1)·(3 − 0)) = √6.
  CHECK(kendall({1, 1, 2}, {1, 2, 3}).value() == Approx(2 / std::sqrt(6.0)));
  // Ranks 0.5, 0.5, 2 against 0, 1, 2: covariance 1.5, squares 1.5 and 2.
  CHECK(spearman({1, 1, 2}, {1, 2, 3}).value() == Approx(1.5 / std::sqrt(3.0)));
  // Without a comparable pair there is no order.
  CHECK_FALSE(kendall({1, 1}, {1, 2}).has_value());
  CHECK_FALSE(spearman({1, 1}, {1, 2}).has_value());
  CHECK_FALSE(kendall({1}, {1}).has_value());
  CHECK_FALSE(spearman({1}, {1}).has_value());
}

TEST_CASE("rows without scores are skipped, malformed lines are rejected") {
  const TableFile file;
  std::vector<score::LeftOutRow> left_out;
  const auto rows = score::read_table(file.write(kHeader + "P,T,M,RULER,16K,vt,Quest,256,tokens,12.5\n"
                                                           "P,T,M,RULER,16K,vt,Quest,512,tokens,n/a\n"
                                                           "P,T,M,RULER,16K,vt,Quest,1024,tokens,101\n"),
                                      &left_out);
  CHECK(left_out.size() == 2);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].value == 12.5);
  CHECK(rows[0].where.line == 2);
  CHECK_FALSE(rows[0].held_out);
  const auto quoted = score::read_table(file.write(kHeader + "P,\"T, 1\",M,RULER,16K,\\vt,Quest,256,tokens,12.5\n"));
  CHECK(quoted.at(0).table == "T, 1");
  CHECK(quoted.at(0).task == "\\vt");
  CHECK_THROWS_WITH(score::read_table(file.write("paper,table\nP,T\n")), Catch::Contains("no column \"model\""));
  CHECK_THROWS_WITH(score::read_table(file.write(kHeader + "P,T\n")),
                    Catch::Contains(":2") && Catch::Contains("2 fields"));
  CHECK_THROWS_AS(score::read_table(file.write("")), UserError);
  CHECK_THROWS_AS(score::read_table("no such file"), UserError);
  const std::string text = kHeader + "P,T,M,RULER,16K,vt,Quest,256,tokens,12.5\n";
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const char c : {',', '"', '\\', '\n', '\0'}) {
      std::string broken = text;
      broken[i] = c;
      try {
        score::read_table(file.write(broken));
      } catch (const UserError&) {
      }
    }
  }
}

TEST_CASE("a context is a number of tokens or absent") {
  CHECK(context_tokens("16K") == 16384);
  CHECK(context_tokens("32768") == 32768);
  CHECK(context_tokens("max_ctx=8192") == 8192);
  CHECK_FALSE(context_tokens("block=128"));
  CHECK_FALSE(context_tokens(""));
  CHECK_FALSE(context_tokens("-4K"));
}

std::vector<PublishedRow> table(const std::string& rows) {
  return score::read_table(TableFile().write(kHeader + rows));
}

TEST_CASE("a plan states the inputs of each row, and why a row cannot be predicted") {
  const std::string full = "RocketKV,T,Llama3.1-8B-Ins,RULER,16K,single2,Full-KV,full,tokens,80\n";
  const std::string unit = "traffic_equiv_tokens_per_attn_group";
  const ScoreComparison plan =
      make_comparison(table(full + "RocketKV,T,Llama3.1-8B-Ins,RULER,16K,single2,SnapKV,1024," + unit + ",50\n" +
                            "RocketKV,T,Llama3.1-8B-Ins,RULER,16K,single2,Quest,1024," + unit + ",50\n" +
                            "RocketKV,T,Llama3.1-8B-Ins,RULER,16K,vt,Quest,1024," + unit + ",50\n" +
                            "RocketKV,T,nobody,RULER,16K,single2,Quest,1024," + unit + ",50\n" +
                            "RocketKV,T,Llama3.1-8B-Ins,RULER,16K,single2,Magic,1024," + unit + ",50\n" +
                            "RocketKV,T,Llama3.1-8B-Ins,RULER,16K,single2,Quest,1024,bananas,50\n"),
                      Catalogue());
  REQUIRE(plan.cells.size() == 6);
  CHECK(plan.averages.empty());
  const Cell& snapkv = plan.cells[0];
  CHECK(snapkv.refused.empty());
  CHECK(snapkv.full == 80);
  CHECK(snapkv.model == "llama-3.1-8b");
  CHECK(snapkv.contexts == std::vector<PromptLength>{{16384 - 128}});
  // Four query heads share a KV head: RocketKV's budget of a group is split over them (its appendix A).
  CHECK(snapkv.policy.parameters.find("budget")->text() == "256");
  CHECK(plan.cells[1].policy.parameters.find("budget")->text() == "1024");
  CHECK_THAT(plan.cells[2].refused, Catch::Contains("no score of the uncompressed model"));
  CHECK_FALSE(plan.cells[3].refused.empty());
  CHECK_THAT(plan.cells[4].refused, Catch::Contains("no policy for the method Magic"));
  CHECK_THAT(plan.cells[5].refused, Catch::Contains("unknown budget unit"));
}

TEST_CASE("budgets exclude tokens that a policy always keeps, and their number depends on the benchmark") {
  const auto cell = [](const char* benchmark, const char* task) {
    const std::string text = fmt::format("FreeKV,T,Llama-3.1-8B-Instruct,{},max_gen=16K,{},", benchmark, task);
    return make_comparison(table(text + "FullKV,full,tokens,30\n" + text + "RaaS,2048,tokens,28\n"), Catalogue())
        .cells.at(0);
  };
  // A sink and a window of 512 each leave pages of 2048 − 1024 tokens in long generation; both are 128 elsewhere.
  const Cell generation = cell("LongGenBench", "CR"), input = cell("LongBench v2", "overall");
  CHECK(generation.policy.parameters.find("budget")->text() == "1024");
  CHECK(generation.policy.parameters.find("sink")->text() == "512");
  CHECK(generation.contexts == std::vector<PromptLength>{{640}});
  CHECK(input.policy.parameters.find("budget")->text() == "1792");
  CHECK(input.policy.parameters.find("sink")->text() == "128");
  // Two traces for the product, one for each factor.
  CHECK(traces_of(cell("LongGenBench", "CRxAcc"), 1).size() == 2);
}

TEST_CASE("the success rate of one attempt is taken from the table") {
  const std::string row = "FreeKV,T,DeepSeek-R1-Llama-8B,AIME24,,";
  const std::string quest = row + "pass@k,Quest,2048,tokens,7\n";
  const std::string pass = row + "pass@k,FullKV,full,tokens,80\n", avg = row + "avg@k,FullKV,full,tokens,40\n";
  CHECK(make_comparison(table(pass + avg + quest), Catalogue()).cells.at(0).task.attempt == Approx(0.5));
  CHECK(make_comparison(table(pass + quest), Catalogue()).cells.at(0).task.attempt == Approx(0.6));
}

TEST_CASE("a policy evicts after the blocks of its row, or after the prompt") {
  const auto block = [](const char* context) {
    const std::string text = fmt::format("KeyDiff,T,Llama-3.1-8B-Instruct,LongBench,{},qasper,", context);
    return make_comparison(table(text + "Full,full,tokens,40\n" + text + "KeyDiff,2048,tokens,38\n"), Catalogue())
        .cells.at(0)
        .policy.parameters.find("block")
        ->text();
  };
  CHECK(block("block=128") == "128");
  CHECK(block("block=64") == "64");
  CHECK(block("block=inf") == "prompt");
  CHECK(block("") == "prompt");
}

TEST_CASE("the full score of a combined method is that of the method it is combined with") {
  const std::string row = "CTkvr,T,Llama-3-8B-262K,RULER,8K,vt,";
  const ScoreComparison plan =
      make_comparison(table(row + "FullKV,full,tokens,90\n" + row + "MInference+FullKV,full,tokens,80\n" + row +
                            "MInference+CTkvr,512,tokens,7\n" + row + "CTkvr,512,tokens,7\n"),
                      Catalogue());
  REQUIRE(plan.cells.size() == 2);
  CHECK(plan.cells[0].full == 80);
  CHECK(plan.cells[1].full == 90);
}

TEST_CASE("the full score of truncated prompts is scaled by the truncation") {
  const std::string row = "CompressKV,T,Llama-3.1-8B-Instruct,LongBench,";
  const std::string all = row + ",musique,FullKV,full,tokens,30\n" + row + ",qasper,FullKV,full,tokens,40\n";
  const std::string cut = row + "max_ctx=8192,";
  const ScoreComparison plan =
      make_comparison(table(all + cut + "musique,CompressKV,0.875,compression_ratio_removed,7\n" + cut +
                            "qasper,CompressKV,0.875,compression_ratio_removed,7\n"),
                      Catalogue());
  // musique: 16000 tokens, floor 0.65; 8192 - 128 of them are seen.
  const double seen = 8064.0 / 16000, expected = 0.65 + 0.35 * seen;
  REQUIRE(plan.cells.size() == 2);
  CHECK(plan.cells[0].contexts == std::vector<PromptLength>{{8064}});
  CHECK(plan.cells[0].full == Approx(30 * expected));
  CHECK(plan.cells[0].full * plan.cells[0].full_low == Approx(30 * seen));
  CHECK(plan.cells[0].full * plan.cells[0].full_high == Approx(30));
  // qasper's prompts fit.
  CHECK(plan.cells[1].full == 40);
  CHECK(plan.cells[1].full_low == 1);
  // A length that is not a truncation has its own full score or none.
  CHECK_FALSE(
      make_comparison(table(all + row + "16K,qasper,CompressKV,0.875,compression_ratio_removed,7\n"), Catalogue())
          .cells[0]
          .refused.empty());
}

TEST_CASE("names of benchmarks and tasks ignore case and dashes") {
  const Catalogue catalogue;
  REQUIRE(catalogue.task("RULER", "qa-1") != nullptr);
  CHECK(catalogue.task("ruler", "QA_1") == catalogue.task("RULER", "qa-1"));
  CHECK(catalogue.task("Math-500", "avg@k") == catalogue.task("MATH500", "avg@k"));
  CHECK(catalogue.task("RULER", "niah_multikey_1") == catalogue.task("RULER", "multikey1"));
  CHECK(catalogue.task("RULER", "niah_qa-3") == nullptr);
  CHECK(catalogue.task("RULER", "qa-3") == nullptr);
  CHECK(catalogue.task("Rules", "qa-1") == nullptr);
}

TEST_CASE("no score is predicted if sparse attention beats full attention") {
  const auto rows = [](const char* full) {
    return table(
        fmt::format("RocketKV,T,Llama3.1-8B-Ins,RULER,16K,cwe,Full-KV,full,tokens,{}\n"
                    "RocketKV,T,Llama3.1-8B-Ins,RULER,16K,cwe,Quest,1024,tokens,7\n",
                    full));
  };
  CHECK_THAT(make_comparison(rows("6"), Catalogue()).cells[0].refused, Catch::Contains("beats full attention"));
  CHECK(make_comparison(rows("60.6"), Catalogue()).cells[0].refused.empty());
}

TEST_CASE("an average is predicted from its tasks") {
  const ScoreComparison plan = make_comparison(table("RocketKV,T,Llama3.1-8B-Ins,RULER,16K,avg,Full-KV,full,tokens,90\n"
                                                     "RocketKV,T,Llama3.1-8B-Ins,RULER,16K,vt,Full-KV,full,tokens,99\n"
                                                     "RocketKV,T,Llama3.1-8B-Ins,RULER,16K,avg,Quest,1024,tokens,7\n"),
                                               Catalogue());
  CHECK(plan.cells.empty());
  REQUIRE(plan.averages.size() == 1);
  CHECK(plan.averages[0].parts.size() == 13);
  for (const Cell& part : plan.averages[0].parts) CHECK(part.full == (part.row.task == "vt" ? 99 : 90));
}

TEST_CASE("a difference of scores is not mistaken for their mean") {
  const std::string row = "CTkvr,T,Yi-9B-200K,RULER,16K,";
  const ScoreComparison plan =
      make_comparison(table(row + "avg,FullKV,full,tokens,90\n" + row + "avg_minus_FullKV,Quest,512,tokens,1\n" + row +
                            "avg_minus_FullKV,FullKV,full,tokens,0\n"),
                      Catalogue());
  REQUIRE(plan.averages.size() == 1);
  CHECK_THAT(plan.averages[0].refused, Catch::Contains("difference"));
}

// Names used by RocketKV, CompressKV, KeyDiff, CTkvr and FreeKV, and by the models' developers.
TEST_CASE("models are found by the names used in papers") {
  const std::pair<const char*, const char*> names[] = {
      {"Llama3.1-8B-Ins", "llama-3.1-8b"},
      {"Llama 3.1-8B-Instruct", "llama-3.1-8b"},
      {"Mistral-7B-Ins-v0.2", "mistral-7b-v0.2"},
      {"Mistral-7B-Instruct-v0.2", "mistral-7b-v0.2"},
      {"Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"},
      {"LongChat-7B-v1.5", "longchat-7b-v1.5-32k"},
      {"LongChat-7B-v1.5-32K", "longchat-7b-v1.5-32k"},
      {"Qwen2.5-7B-Instruct", "qwen2.5-7b"},
      {"Qwen-2.5-7B-Instruct", "qwen2.5-7b"},
      {"Qwen2.5-14B", "qwen2.5-14b"},
      {"Qwen2.5-32B-Instruct", "qwen2.5-32b"},
      {"Qwen 2.5-3B-Instruct", "qwen2.5-3b"},
      {"Qwen-3-32B", "qwen3-32b"},
      {"Llama 3.2-3B-Instruct", "llama-3.2-3b"},
      {"Llama3.2-3B-Instruct", "llama-3.2-3b"},
      {"Llama-3-8B-262K", "llama-3-8b-262k"},
      {"Llama-3-8B-1048K", "llama-3-8b-1048k"},
      {"Llama-3-8B-1M", "llama-3-8b-1048k"},
      {"Yi-9B", "yi-9b-200k"},
      {"Yi-9B-200K", "yi-9b-200k"},
      {"DeepSeek-R1-Llama-8B", "deepseek-r1-distill-llama-8b"},
      {"Deepseek-R1-Distill-Llama-8B", "deepseek-r1-distill-llama-8b"},
      {"DeepSeek-R1-Distill-Qwen-7B", "deepseek-r1-distill-qwen-7b"},
      {"DeepSeek-R1-Qwen-14B", "deepseek-r1-distill-qwen-14b"},
      {"DeepSeek-R1-Distill-Qwen-32B", "deepseek-r1-distill-qwen-32b"}};
  for (const auto& [name, model] : names) {
    CAPTURE(name);
    const std::string row = fmt::format("RocketKV,T,{},RULER,8K,vt,", name);
    const ScoreComparison plan =
        make_comparison(table(row + "Full-KV,full,tokens,90\n" + row + "RocketKV,512,tokens,80\n"), Catalogue());
    CHECK(plan.cells.at(0).refused.empty());
    CHECK(plan.cells.at(0).model == model);
  }
}

TEST_CASE("agreement counts pairs whose published scores are at least ten points apart") {
  std::vector<Cell> cells(3);
  cells[0].row.value = 10, cells[0].predicted = 20;
  cells[1].row.value = 15, cells[1].predicted = 30;
  cells[2].row.value = 40, cells[2].predicted = 25;
  Cell refused;
  refused.refused = "why";
  const Agreement a = agreement({&cells[0], &cells[1], &cells[2], &refused});
  CHECK(a.n == 3);
  CHECK(a.refused == 1);
  CHECK(a.mae == Approx((10 + 15 + 15) / 3.0));
  CHECK(a.pairs == 2);  // (40, 10) in order, (40, 15) not
  CHECK(a.order == 0.5);
}

TEST_CASE("later turns have a different question from the one a policy saw, unless it selects anew in each turn") {
  TaskSpec kv, text, mix;
  kv.turns = 4;
  kv.weight = 3;
  mix.parts = {kv, text};
  // Weights of 3 and 1. Only the first of four turns has its question in the prompt.
  const std::vector<TaskPart> parts = parts_of(mix, false);
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].weight == Approx(0.75 / 4));
  CHECK_FALSE(parts[0].later_turn);
  CHECK(parts[1].weight == Approx(0.75 * 3 / 4));
  CHECK(parts[1].later_turn);
  CHECK(parts[2].weight == Approx(0.25));
  const std::vector<TaskPart> anew = parts_of(mix, true);
  REQUIRE(anew.size() == 2);
  CHECK(anew[0].weight == Approx(0.75));
  CHECK_FALSE(anew[0].later_turn);

  const std::string row = "RocketKV,T,Llama3.1-8B-Ins,SCBench,,retr.kv,";
  const ScoreComparison plan =
      make_comparison(table(row + "Full-KV,full,tokens,76.2\n" + row + "RocketKV,1024,tokens,10.2\n" + row +
                            "RocketKV-MT,1024,tokens,64.4\n"),
                      Catalogue());
  REQUIRE(plan.cells.size() == 2);
  const std::vector<PartTrace> seen_once = traces_of(plan.cells[0], 1), seen_always = traces_of(plan.cells[1], 1);
  REQUIRE(seen_once.size() == 2);
  CHECK(seen_once[1].part == 1);
  CHECK(seen_once[1].trace.later_turn);
  REQUIRE(seen_always.size() == 1);
  CHECK(seen_always[0].trace == seen_once[0].trace);
}

TEST_CASE("a policy that evicts by the first question loses the targets of the second one") {
  TraceRequest first{"niah", "llama-3.1-8b", 2048, 8, 1}, later = first;
  later.later_turn = true;
  const std::string text = "RocketKV,T,Llama3.1-8B-Ins,NIAH,,avg,";
  const auto policy = [&](const char* method) {
    const ScoreComparison plan =
        make_comparison(table(text + "Full-KV,full,tokens,100\n" + text + method + ",512,tokens,1\n"), Catalogue());
    return plan.cells.at(0).policy;
  };
  const config::PolicyChoice rocket = policy("RocketKV"), free = policy("Exact-TopK");
  RecallReplays samples("", 1);
  for (const TraceRequest* trace : {&first, &later}) {
    for (const config::PolicyChoice* choice : {&rocket, &free}) samples.request(*trace, *choice);
  }
  samples.run([](std::int64_t, std::int64_t) {});
  const auto found = [&](const TraceRequest& trace, const config::PolicyChoice& choice) {
    double sum = 0;
    for (const replay::StepRecall& step : samples.recall(trace, choice).steps) sum += step.recall();
    return sum / 8;
  };
  CHECK(found(first, rocket) > found(later, rocket) + 0.1);
  // This policy does not depend on the last prompt queries.
  CHECK(found(first, free) == Approx(found(later, free)).margin(0.02));
}

// arXiv 2505.13109: a step uses the pages chosen in the last step unless its query has turned; without that correction
// accuracy falls.
TEST_CASE("speculation recalls as much as selection if it is corrected") {
  const TraceRequest generation{"longgen-sections", "llama-3.1-8b", 640, 500, 1};
  const auto policy = [](const char* how) {
    return config::read_policy(config::parse_yaml(
        fmt::format("{{name: freekv, budget: 320, sink: 64, recent: 64, tau: 0.9, {}}}", how), "test"));
  };
  const auto missed = [&](const char* how) {
    RecallReplays samples("", 1);
    samples.request(generation, policy(how));
    samples.run([](std::int64_t, std::int64_t) {});
    double full = 0, kept = 0;
    for (const replay::StepRecall& step : samples.recall(generation, policy(how)).steps) {
      full += step.full;
      kept += step.kept;
    }
    REQUIRE(full > 0);
    return 1 - kept / full;
  };
  const double selected = missed("speculation: false"), corrected = missed("correction: true");
  CHECK(corrected == Approx(selected).margin(0.01));
  // A section is opened by three steps; the first and the second attend to other tokens than the step before.
  CHECK(missed("correction: false") > 3 * corrected);
}

// Every name in the catalogue must resolve.
TEST_CASE("every task has a recipe that replays the stated number of steps") {
  const Catalogue catalogue;
  for (const char* benchmark : {"RULER", "NIAH", "LongBench", "SCBench", "LongGenBench", "MATH500", "AIME24", "GPQA"}) {
    CAPTURE(benchmark);
    CHECK_FALSE(catalogue.tasks(benchmark).empty());
    for (const auto& [name, whole] : catalogue.tasks(benchmark)) {
      CAPTURE(name);
      for (const TaskPart& part : parts_of(whole, true)) {
        const TaskSpec& task = part.task;
        CHECK_NOTHROW(trace::read_recipe(trace::find_recipe(task.recipe)));
        CHECK(task.steps >= 1);
        std::string written = task.recipe;
        for (char& c : written) c = c == '-' ? '_' : c;
        CHECK(trace::read_recipe(trace::find_recipe(task.recipe)).task.name == written);
        CHECK(catalogue.task_of_trace(written) != nullptr);
      }
    }
  }
}

}  // namespace
}  // namespace kvcast::tests

// Prompts of several lengths, for methods that one length does not represent.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "accuracy/evaluate.hpp"
#include "config/find.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace accuracy;

namespace {

std::vector<PublishedRow> length_table(const std::string& rows) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/t.csv";
  std::ofstream(path) << "paper,table,model,benchmark,context,task,method,budget,budget_unit,value\n" << rows;
  return score::read_table(path);
}

Cell length_cell(const std::string& context, const std::string& budget, const std::string& unit = "tokens") {
  const std::string text = "KeyDiff,T,Llama-3.1-8B-Instruct,LongBench," + context + ",multi_news,";
  return make_comparison(length_table(text + "Full,full,tokens,27\n" + text + "H2O," + budget + "," + unit + ",17\n"),
                         Catalogue())
      .cells.at(0);
}

TEST_CASE("a task uses prompts of all lengths if the budget covers some of them") {
  const Catalogue catalogue;
  const TaskSpec& task = *catalogue.task("LongBench", "multi_news");
  REQUIRE(task.lengths.size() == 4);
  REQUIRE(task.lengths.front().tokens == 1400);
  const std::vector<PromptLength> one = {{task.context}};
  CHECK(length_cell("block=128", "2048").contexts == task.lengths);
  CHECK(length_cell("block=inf", "1400").contexts == task.lengths);
  CHECK(length_cell("block=128", "1399").contexts == one);
  // A budget that is a share of each prompt covers no prompt completely.
  CHECK(length_cell("block=128", "0.5", "fraction_of_context").contexts == one);
  // The table's own length, or a truncated prompt.
  CHECK(length_cell("2560", "2048").contexts == std::vector<PromptLength>{{2560 - 128}});
  const std::vector<PartTrace> traces = traces_of(length_cell("block=128", "2048"), 2);
  REQUIRE(traces.size() == 2 * 4);
  CHECK(traces[0].trace.prompt_tokens == 1400);
  CHECK(traces[0].weight == 99);
  CHECK(traces[7].trace.prompt_tokens == 10300);
  CHECK(traces[7].weight == 11);
}

TEST_CASE("a task can use several prompts per trace") {
  Cell one = length_cell("block=128", "1399");
  one.task.prompts = 3;
  const std::vector<PartTrace> traces = traces_of(one, 2);
  std::vector<std::uint64_t> seeds;
  for (const PartTrace& t : traces) seeds.push_back(t.trace.seed);
  CHECK(seeds == std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6});  // no prompt twice
  // A single prompt would have the passage at one position only.
  CHECK(Catalogue().task("LongBench", "passage_retrieval_en")->prompts > 1);
}

TEST_CASE("a score is the mean over prompts, with lengths weighted by their counts") {
  TaskSpec task;
  task.answer = 1;
  task.score = Score::kOverlap;
  RecallMap link;
  link.kappa.value = 1;
  const auto found = [](double share, double weight) {
    Sample sample{1000, {}, 0, weight};
    sample.recall.steps = {{1, 1.0, share, 0}};
    return sample;
  };
  // Three prompts of four fit and keep everything, the fourth keeps 0.2: (3 · 1 + 0.2) / 4.
  const std::vector<Sample> samples = {found(1, 3), found(0.2, 1)};
  CHECK(predict(link, task, samples, 100).share == Approx(0.8));
  // One κ without residuals: the interval is the spread alone. Weights 0.75 and 0.25, 0.2 and 0.6 from the mean: √(2 ·
  // (0.15² + 0.15²)).
  const SharePrediction p = predict(link, task, samples, 100);
  CHECK(p.share - p.low == Approx(0.3));
  // Equal weights have no effect: the result is the standard error of a mean.
  const std::vector<Sample> same = {found(1, 5), found(0.5, 5)};
  CHECK(predict(link, task, same, 100).share == Approx(0.75));
  CHECK(0.75 - predict(link, task, same, 100).low == Approx(0.25));
}

// Reads the tasks of a working directory instead of the source tree's.
class WorkingFolder {
 public:
  WorkingFolder() : before_(std::filesystem::current_path()) { std::filesystem::current_path(folder_.path()); }
  ~WorkingFolder() { std::filesystem::current_path(before_); }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

 private:
  TemporaryDirectory folder_;
  std::filesystem::path before_;
};

TEST_CASE("invalid lengths are rejected with their location") {
  const WorkingFolder folder;
  std::filesystem::create_directories("configs/accuracy");
  const auto read = [](const std::string& lengths) {
    std::ofstream("configs/accuracy/tasks.yaml")
        << "B:\n  t: {recipe: niah, steps: 8, score: exact, context: 5000, lengths: " << lengths << "}\n";
    return Catalogue().task("B", "t")->lengths;
  };
  CHECK(read("{1400: 9, 3000: 0.5}") == std::vector<PromptLength>{{1400, 9}, {3000, 0.5}});
  for (const char* odd : {"{3000: 1, 1400: 1}", "{1400: 1, 1400: 2}", "{1400: 0}", "{1400: -1}", "{1400: many}",
                          "{0: 1}", "{-5: 1}", "{1.5: 1}", "{long: 1}", "{010: 1}", "{99999999999999999999: 1}",
                          "[1400]", "1400", "{}", "{1400: {}}", "{1400: .nan}"}) {
    CAPTURE(odd);
    CHECK_THROWS_WITH(read(odd), Catch::Contains("tasks.yaml:2:"));
  }
}

// arXiv 2504.15364, table 8: share of a prompt that a budget covers, mean over a task's prompts.
TEST_CASE("lengths of LongBench's prompts reproduce the shares of the paper that counted them") {
  const std::map<std::string, std::vector<double>> published = {{"qasper", {0.47, 0.82, 0.96, 0.98}},
                                                                {"multifieldqa_en", {0.40, 0.66, 0.82, 0.93}},
                                                                {"multifieldqa_zh", {0.49, 0.78, 0.91, 0.98}},
                                                                {"hotpotqa", {0.19, 0.37, 0.52, 0.66}},
                                                                {"2wikimqa", {0.36, 0.65, 0.85, 0.92}},
                                                                {"dureader", {0.17, 0.34, 0.52, 0.68}},
                                                                {"gov_report", {0.28, 0.52, 0.70, 0.81}},
                                                                {"qmsum", {0.18, 0.36, 0.52, 0.66}},
                                                                {"multi_news", {0.81, 0.96, 0.98}},
                                                                {"vcsum", {0.27, 0.49, 0.65}},
                                                                {"trec", {0.38, 0.66, 0.84, 0.94}},
                                                                {"triviaqa", {0.26, 0.46, 0.60, 0.72}},
                                                                {"samsum", {0.32, 0.55, 0.71, 0.82}},
                                                                {"passage_retrieval_zh", {0.37, 0.74, 0.99, 1.00}},
                                                                {"lcc", {0.78, 0.95, 0.98, 0.99}},
                                                                {"repobench-p", {0.27, 0.52, 0.67, 0.78}}};
  const Catalogue catalogue;
  for (const auto& [name, ratios] : published) {
    const TaskSpec& task = *catalogue.task("LongBench", name);
    CAPTURE(name);
    REQUIRE_FALSE(task.lengths.empty());
    for (std::size_t i = 0; i < ratios.size(); ++i) {
      const double budget = 2048.0 * static_cast<double>(i + 1);
      double kept = 0, all = 0, tokens = 0;
      for (const PromptLength& length : task.lengths) {
        kept += length.weight * std::min(1.0, budget / static_cast<double>(length.tokens));
        tokens += length.weight * static_cast<double>(length.tokens);
        all += length.weight;
      }
      CAPTURE(budget);
      CHECK(kept / all == Approx(ratios[i]).margin(0.07));
      CHECK(tokens / all == Approx(static_cast<double>(task.context)).epsilon(0.03));
    }
  }
}

}  // namespace
}  // namespace kvcast::tests

// Scores of whole benchmarks: mean and interval computed by hand, contexts, scores that cannot be predicted, and cached
// replays.
#include "score/benchmark.hpp"

#include <catch2/catch.hpp>
#include <fstream>

#include "config/find.hpp"
#include "evidence/intervals.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace score;

namespace {

using Catch::Contains;

config::PolicyChoice policy(const std::string& text) { return config::read_policy(config::parse_yaml(text, "test")); }

BenchmarkRequest request_of(const std::string& policy_yaml, const std::string& benchmark = "ruler",
                            std::int64_t prompt = 16384) {
  BenchmarkRequest request{policy(policy_yaml), "llama-3.1-8b", prompt, {}};
  request.choice.benchmark = benchmark;
  return request;
}

// Two tasks with prompts that are replayed within milliseconds.
class SmallBenchmark {
 public:
  SmallBenchmark() : path(folder_.path() + "/small.yaml") {
    std::ofstream(path) << "one: {recipe: niah, steps: 4, score: exact, context: 1024}\n"
                           "two: {recipe: niah, steps: 8, score: overlap, floor: 0.5, context: 2048}\n";
  }

 private:
  TemporaryDirectory folder_;

 public:
  std::string path;
};

void make(BenchmarkScores& scores) {
  scores.run([](std::int64_t, std::int64_t) {});
}

TEST_CASE("a benchmark's score is the mean of its tasks, and errors that are not common average out") {
  const double common = 0.28;  // of two tasks: √(0.28 + 0.72 / 2) = 0.8
  const result::BenchmarkScore score = mean_score("B", {{"a", 1, {0.8, 1}}, {"b", 0.5, {0.3, 0.7}}}, common);
  CHECK(score.share_of_full == Approx(0.75));
  CHECK(score.interval.low == Approx(0.75 - 0.8 * (0.2 + 0.2) / 2));
  CHECK(score.interval.high == Approx(0.75 + 0.8 * (0.0 + 0.2) / 2));
  REQUIRE(score.tasks.size() == 2);
  CHECK(score.tasks[0].task == "b");
  // A task in which the uncompressed model scores 25 points has a quarter of the weight of one with 100: (1 + 0.25 ·
  // 0.5) / 1.25.
  const result::BenchmarkScore weighed = mean_score("B", {{"a", 1, {0.8, 1}}, {"b", 0.5, {0.3, 0.7}, 25}}, common);
  CHECK(weighed.share_of_full == Approx(0.9));
  CHECK(weighed.interval.low == Approx(0.9 - 0.8 * (0.2 + 0.25 * 0.2) / 1.25));
  TaskSpec task;
  CHECK(task.full_at(16384) == 100);
  task.full = {{16384, 60.6}, {32768, 6}};
  CHECK(task.full_at(4096) == 60.6);
  CHECK(task.full_at(23170) == 60.6);  // √2 · 16384 is 23170.5
  CHECK(task.full_at(23171) == 6);
  CHECK(task.full_at(131072) == 6);
  // Fully common errors do not average out, nor do those of a single task.
  CHECK(kvcast::evidence::width_of_mean(1, 13) == 1);
  CHECK(kvcast::evidence::width_of_mean(common, 1) == 1);
}

TEST_CASE("RocketKV is the published method with any split factor, but not with other parameters") {
  const Catalogue catalogue;
  const auto method = [&](const std::string& text) { return published_method(catalogue, policy(text), "ruler"); };
  for (const char* text : {"{name: rocketkv, budget: 256}", "{name: rocketkv, budget: 4096, split_factor: 0.3}"}) {
    const PublishedMethod m = method(text);
    CHECK(m.paper == "RocketKV");
    CHECK(m.method == "rocketkv");
    CHECK(m.spec != nullptr);
  }
  const PublishedMethod other = method("{name: rocketkv, budget: 256, window: 16}");
  CHECK(other.paper.empty());
  CHECK(other.method == "rocketkv");
  CHECK(other.spec == nullptr);
  CHECK(method("{name: raas, budget: 256}").spec != nullptr);
}

TEST_CASE("a run's prompt is scored at the stated length that is nearest in ratio") {
  config::Model model;
  model.max_context = 131072;
  CHECK(stated_context(20000, model) == 16384);
  CHECK(stated_context(23170, model) == 16384);  // √2 · 16384 is 23170.5
  CHECK(stated_context(23171, model) == 32768);
  CHECK(stated_context(130560, model) == 131072);
  CHECK(stated_context(512, model) == 4096);
  model.max_context = 32768;
  CHECK(stated_context(131072, model) == 32768);
}

TEST_CASE("RULER is replayed at the stated length minus the room for an answer, other benchmarks at their own") {
  const Catalogue catalogue;
  const config::Model model = config::read_model(config::find_config("models", "llama-3.1-8b", {}));
  const BenchmarkRequest request = request_of("{name: snapkv, budget: 1024}");
  CHECK(replay_of(request, *catalogue.task("RULER", "vt"), model, 16384).contexts.front().tokens == 16384 - 128);
  const TaskSpec& news = *catalogue.task("LongBench", "multi_news");
  CHECK(replay_of(request, news, model, 16384).contexts == std::vector<PromptLength>{{news.context}});
  // 2048 tokens cover the shortest of its prompts, which have 1400.
  CHECK(replay_of(request_of("{name: snapkv, budget: 2048}"), news, model, 16384).contexts == news.lengths);
}

TEST_CASE("layers that a policy leaves uncompressed are not replayed") {
  CHECK(policy_text(policy("{name: quest, budget: 256, first_dense_layers: 2}")) ==
        policy_text(policy("{name: quest, budget: 256}")));
  CHECK(policy_text(policy("{name: d2o, budget: 256, exempt: released}")) ==
        policy_text(policy("{name: d2o, budget: 256}")));
  CHECK(policy_text(policy("{name: quest, budget: 256, page: 32}")) !=
        policy_text(policy("{name: quest, budget: 256}")));
  const SmallBenchmark small;
  const ScoreModel model;
  BenchmarkScores scores(model, nullptr, "", 1);
  const BenchmarkRequest all = request_of("{name: streaming_llm, budget: 64}", small.path),
                         dense = request_of("{name: streaming_llm, budget: 64, first_dense_layers: 2}", small.path);
  scores.request(all), scores.request(dense);
  make(scores);
  CHECK(scores.score(all).share_of_full == scores.score(dense).share_of_full);
  CHECK(scores.score(all).share_of_full < 0.9);  // a window of 64 contains no needle
}

TEST_CASE("a budget that covers the prompt keeps the full score") {
  const SmallBenchmark small;
  const ScoreModel model;
  BenchmarkScores scores(model, nullptr, "", 1);
  // Published rows, which exist for both on RULER, do not reduce the score below that of the uncompressed model.
  for (const char* text : {"{name: snapkv, budget: 4096}", "{name: quest, budget: 4096}"}) {
    for (const auto& [benchmark, prompt] : {std::pair(small.path, 16384), std::pair(std::string("ruler"), 1000)}) {
      const BenchmarkRequest request = request_of(text, benchmark, prompt);
      CHECK(scores.is_known(request));
      scores.request(request);
      make(scores);
      CHECK(scores.score(request).share_of_full == 1);
      CHECK(scores.score(request).interval.low == 1);
      CHECK_THAT(scores.score(request).origin, Contains("covers all tokens"));
    }
  }
  CHECK_FALSE(scores.is_known(request_of("{name: snapkv, budget: 4096}", "ruler", 4096)));  // not the answer
  CHECK_FALSE(scores.is_known(request_of("{name: compresskv, budget: 4096, quantisation: kivi}", small.path)));
  BenchmarkRequest rounded = request_of("{name: snapkv, budget: 4096}", small.path);
  rounded.cache = config::Precision::kFp8;
  CHECK_FALSE(scores.is_known(rounded));
  scores.request(rounded);
  make(scores);
  CHECK_THAT(scores.score(rounded).origin, Contains("without the loss from reading rounded values"));
}

TEST_CASE("a task whose prompts a budget covers keeps the full score, and others of the benchmark do not") {
  const SmallBenchmark small;
  const ScoreModel model;
  BenchmarkScores scores(model, nullptr, "", 1);
  const BenchmarkRequest request = request_of("{name: streaming_llm, budget: 1028}", small.path);  // 1024 and 4 steps
  scores.request(request);
  make(scores);
  const std::vector<result::BenchmarkTask> tasks = scores.score(request).tasks;
  REQUIRE(tasks.size() == 2);
  CHECK(tasks[0].task == "two");
  CHECK(tasks[0].share_of_full < 1);
  CHECK(tasks[1].share_of_full == 1);
  CHECK(tasks[1].interval.low == 1);
}

TEST_CASE("the uncompressed model has the full score without a replay") {
  const ScoreModel model;
  BenchmarkScores scores(model, nullptr, "", 1);
  const BenchmarkRequest request = request_of("full");
  CHECK(scores.is_known(request));
  scores.request(request);
  int replays = 0;
  scores.run([&](std::int64_t, std::int64_t) { ++replays; });
  CHECK(replays == 0);
  CHECK(scores.score(request).share_of_full == 1);
  CHECK(scores.score(request).interval.low == 1);
  CHECK(scores.score(request).tasks.size() == 13);
  CHECK(scores.score(request).context == 16384);
}

TEST_CASE("a score that a replay cannot show is rejected with the policy's reason") {
  const ScoreModel model;
  BenchmarkScores scores(model, nullptr, "", 1);
  const auto why = [&](const std::string& text, std::int64_t prompt = 16384) {
    const BenchmarkRequest request = request_of(text, "ruler", prompt);
    scores.request(request);
    make(scores);
    return error_of([&] { scores.score(request); });
  };
  CHECK_THAT(why("kivi"), Contains("does not show rounding"));
  CHECK_THAT(why("{name: minference, then: {name: snapkv, budget: 512}}"),
             Contains("without the effect of sparse attention"));
  CHECK_THAT(why("{name: h2o, budget: 512}", 131072), Contains("up to 65536 tokens, not 130944"));
  const std::string unknown = error_of([&] { scores.request(request_of("{name: snapkv}", "rule")); });
  CHECK_THAT(unknown, Contains("unknown benchmark \"rule\"") && Contains("ruler, longbench, niah, scbench"));
}

TEST_CASE("a killed run finds its replays when it is repeated") {
  const SmallBenchmark small;
  const TemporaryDirectory folder;
  const ScoreModel model;
  const BenchmarkRequest request = request_of("{name: snapkv, budget: 64}", small.path);
  const int all = 2 * kBenchmarkSeeds;
  std::stop_source stop;
  BenchmarkScores killed(model, nullptr, folder.path() + "/replays", 1);
  killed.request(request);
  int first = 0;
  const auto after_one = [&](std::int64_t, std::int64_t total) {
    ++first;
    CHECK(total == all);
    stop.request_stop();
  };
  CHECK_THROWS_AS(killed.run(after_one, stop.get_token()), Cancelled);
  CHECK(first == 1);

  BenchmarkScores again(model, nullptr, folder.path() + "/replays", 1);
  again.request(request);
  int second = 0;
  again.run([&](std::int64_t, std::int64_t) { ++second; });
  CHECK(second == all - first);
  BenchmarkScores alone(model, nullptr, "", 1);
  alone.request(request);
  make(alone);
  CHECK(again.score(request).share_of_full == alone.score(request).share_of_full);
}

}  // namespace
}  // namespace kvcast::tests

// Plans, caches and rejections in studies of small experiments.
#include "study/study.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <mutex>

#include "result/metric.hpp"

namespace kvcast::tests {
namespace {

using config::Node;
using result::Result;
using result::Status;

Node studied_run(const std::string& more) {
  return config::parse_yaml(
      "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\nworkload: {prompt_tokens: 1024, decode_tokens: 16, batch: 2}\n"
      "trace: {recipe: needle, layers: 2, steps: 6}\nframework: {warmup_steps: 1, measured_steps: 2, sampled_contexts: "
      "2}\n" +
          more,
      "run.yaml");
}

study::Point studied_point(const std::string& more) {
  study::Point point{studied_run(more), {}, {}};
  point.ask.effects = simulate::Effects::kNone;
  return point;
}

class Kept final : public study::ReplayCache {
 public:
  std::optional<replay::ReplayResult> get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto found = replays_.find(key);
    if (found == replays_.end()) return {};
    ++hits;
    return found->second;
  }
  void put(const std::string& key, const replay::ReplayResult& replayed) override {
    const std::lock_guard lock(mutex_);
    ++puts;
    replays_[key] = replayed;
  }
  int hits = 0, puts = 0;

 private:
  std::mutex mutex_;
  std::map<std::string, replay::ReplayResult> replays_;
};

double mean_step(const Result& r) { return r.experiment.tpot_mean_s; }

TEST_CASE("a result states the default budget of a policy that is named without one") {
  const auto budget = [](const std::string& more) {
    return study::subject_of(study::prepare(studied_run(more))).text("policy.budget");
  };
  CHECK(budget("policy: quest\n") == "2048");
  CHECK(budget("policy: rkv\n") == "1024");
  CHECK(budget("policy: {name: quest, budget: 128}\n") == "128");
  CHECK(budget("policy: full\n").empty());
  CHECK(budget("policy: magicpig\n").empty());
  CHECK(budget("policy: streaming_llm\n") == "2048");
  CHECK(budget("policy: {name: streaming_llm, recent: 60}\n").empty());  // the budget is 64: sink and window
  CHECK(budget("policy: quest\nmatch: {tokens_attended: 250}\n").empty());
}

TEST_CASE("results come in the order of the points and equal those of each point alone") {
  const std::vector<std::string> policies = {"policy: full\n", "policy: {name: quest, budget: 128}\n",
                                             "policy: {name: quest, budget: 256}\n"};
  std::vector<study::Point> points;
  for (const std::string& p : policies) points.push_back(studied_point(p));
  study::StudyOptions options;
  options.threads = 2;
  const std::vector<Result> all = study::run_all(points, options);
  REQUIRE(all.size() == 3);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Result alone = study::run_all({points[i]}, {}).front();
    CHECK(all[i].key == alone.key);
    for (const result::Metric& m : result::all_metrics()) {
      if (m.basis == result::Basis::kProgram) continue;
      INFO(m.path);
      CHECK(result::value(all[i], m) == result::value(alone, m));
    }
  }
  CHECK(all[1].subject.text("policy.budget") == "128");
  CHECK(all[2].subject.batch == 2);
}

TEST_CASE("one replay serves all machines and batches, and a cache serves later studies") {
  Kept cache;
  study::StudyOptions options;
  options.replays = &cache;
  const std::string quest = "policy: {name: quest, budget: 128}\n";
  std::vector<study::Point> points = {studied_point(quest), studied_point(quest), studied_point("policy: full\n")};
  points[1].config = points[1].config.with("hardware", Node::scalar("h100-sxm", {}));
  const std::vector<Result> first = study::run_all(points, options);
  CHECK(cache.puts == 2);
  CHECK(cache.hits == 0);
  CHECK(mean_step(first[1]) < mean_step(first[0]));  // HBM of an H100 is twice as fast
  const std::vector<Result> again = study::run_all(points, options);
  CHECK(cache.puts == 2);
  CHECK(cache.hits == 2);
  for (std::size_t i = 0; i < points.size(); ++i) CHECK(mean_step(again[i]) == mean_step(first[i]));
}

TEST_CASE("an experiment that its trace rejects is a result, and the others continue") {
  std::mutex mutex;
  std::map<std::size_t, Result> results;
  // h2o sums the weights of all prompt queries.
  study::Point narrow = studied_point("policy: {name: h2o, budget: 128}\n");
  narrow.config = narrow.config.with("trace.window", Node::scalar("64", {}));
  const study::Study plan({narrow, studied_point("policy: full\n")});
  study::run(plan, {}, [&](const study::Task& task, Result&& r) {
    const std::lock_guard lock(mutex);
    results[task.index] = std::move(r);
  });
  REQUIRE(results.size() == 2);
  CHECK(results[0].status == Status::kFailed);
  CHECK_THAT(results[0].error, Catch::Contains("run.yaml:6:16") && Catch::Contains("h2o"));
  CHECK(results[0].subject.policy == "h2o");
  CHECK(results[1].status == Status::kOk);
}

TEST_CASE("a mistake in any point is found before work begins") {
  CHECK_THROWS_WITH(study::Study({studied_point("policy: full\n"), studied_point("policy: {name: quest, budgt: 1}\n")}),
                    Catch::Contains("budgt"));
}

TEST_CASE("a part of a plan has the tasks of the whole, with their numbers") {
  const auto points = [](const std::vector<std::string>& budgets) {
    std::vector<study::Point> all;
    for (const std::string& budget : budgets)
      all.push_back(studied_point("policy: {name: quest, budget: " + budget + "}\n"));
    return all;
  };
  study::Study whole(points({"64", "128", "192", "256"}));
  study::Preparer preparer;
  for (const auto& [budgets, numbers] : std::vector<std::pair<std::vector<std::string>, std::vector<std::size_t>>>{
           {{"256", "64"}, {3, 0}}, {{"192"}, {2}}, {{"128"}, {1}}}) {
    const study::Study part(points(budgets), numbers, preparer);
    REQUIRE(part.tasks().size() == numbers.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      CHECK(part.tasks()[i].index == numbers[i]);
      CHECK(part.tasks()[i].prepared.key == whole.tasks()[numbers[i]].prepared.key);
    }
  }
  CHECK(whole.drop([](const study::Task& t) { return t.index % 2 == 0; }) == 2);
  REQUIRE(whole.tasks().size() == 2);
  CHECK(whole.tasks()[1].index == 3);  // it keeps the number of its point
}

TEST_CASE("a request to stop leaves the remaining tasks undone") {
  std::stop_source stop;
  study::StudyOptions options;
  options.cancel = stop.get_token();
  int done = 0;
  const study::Study plan({studied_point("policy: full\n"), studied_point("policy: {name: quest, budget: 64}\n")});
  const study::Finished finished = [&](const study::Task&, Result&&) { ++done, stop.request_stop(); };
  CHECK_THROWS_AS(study::run(plan, options, finished), Cancelled);
  CHECK(done == 1);
}

TEST_CASE("the largest batch is the last one that fits, and shifted memory may change it", "[minutes]") {
  study::Point point = studied_point("policy: full\n");
  point.ask.largest_batch = 4;
  point.ask.effects = simulate::Effects::kDetailed;
  const Result r = study::run_all({point}, {}).front();
  CHECK(r.subject.batch == 4);  // prompts are small, so the limit is reached
  CHECK(r.subject.text("workload.batch") == "4");
  CHECK(r.status == Status::kOk);
  study::Point too_large = point;
  too_large.config = too_large.config.with("workload.prompt_tokens", Node::scalar("120000", {}));
  too_large.config = too_large.config.with("workload.prefill_chunk", Node::scalar("4096", {}));
  too_large.config = too_large.config.with("workload.prefill_batch", Node::scalar("1", {}));
  too_large.ask.largest_batch = 64;
  too_large.ask.effects = simulate::Effects::kNone;
  const Result most = study::run_all({too_large}, {}).front();
  const auto fits_at = [&](std::int64_t batch) {
    study::Point p = too_large;
    p.ask.largest_batch = 0;
    p.config = p.config.with("workload.batch", Node::scalar(std::to_string(batch), {}));
    return study::run_all({p}, {}).front().status == Status::kOk;
  };
  CHECK(most.subject.batch > 1);
  CHECK(most.subject.batch < 64);
  CHECK(fits_at(most.subject.batch));
  CHECK_FALSE(fits_at(most.subject.batch + 1));
}
TEST_CASE("preparing, solving and simulating stop on request") {
  std::stop_source stop;
  stop.request_stop();
  const Cancel cancel(stop.get_token());
  CHECK_THROWS_AS(study::Study({studied_point("policy: full\n")}, cancel), Cancelled);
  study::StudyOptions options;
  options.cancel = cancel;
  study::Study open({studied_point("policy: quest\nmatch: {tokens_attended: 128}\n")});
  CHECK_THROWS_AS(open.solve(options), Cancelled);
  CHECK_FALSE(open.is_solved());
  // If the replay is at hand, only the simulation remains.
  Kept kept;
  study::StudyOptions with_replay;
  with_replay.replays = &kept;
  const auto ignore = [](const study::Task&, Result&&) {};
  study::run(study::Study({studied_point("policy: full\n")}), with_replay, ignore);
  with_replay.cancel = cancel;
  CHECK_THROWS_AS(study::run(study::Study({studied_point("policy: full\n")}), with_replay, ignore), Cancelled);
}

}  // namespace
}  // namespace kvcast::tests

// Budgets solved for a cost: solutions, sharing, reports and errors.
#include "study/match.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <mutex>
#include <set>

#include "study/replays_in_memory.hpp"

namespace kvcast::tests {
namespace {

using config::Node;
using result::Result;
using result::Status;

study::Point matched_point(const std::string& more) {
  study::Point point{config::parse_yaml("model: llama-3.2-1b\nhardware: a100-40gb-pcie4\n"
                                        "workload: {prompt_tokens: 1024, decode_tokens: 16, batch: 2}\n"
                                        "trace: {recipe: needle, layers: 1, steps: 4}\n"
                                        "framework: {warmup_steps: 1, measured_steps: 2, sampled_contexts: 2}\n" +
                                            more,
                                        "run.yaml"),
                     {},
                     {}};
  point.ask.effects = simulate::Effects::kNone;
  return point;
}

class CountedReplays final : public study::ReplayCache {
 public:
  std::optional<replay::ReplayResult> get(const std::string& key) override { return kept_.get(key); }
  void put(const std::string& key, const replay::ReplayResult& replayed) override {
    ++puts;
    kept_.put(key, replayed);
  }
  int puts = 0;

 private:
  study::ReplaysInMemory kept_;
};

study::Prepared solved(const std::string& more, study::ReplayCache* cache = nullptr) {
  study::Study plan({matched_point(more)});
  study::StudyOptions options;
  options.replays = cache;
  plan.solve(options);
  REQUIRE(plan.is_solved());
  INFO(plan.tasks().front().refused);
  REQUIRE(plan.tasks().front().refused.empty());
  return plan.tasks().front().prepared;
}

replay::ReplayResult replay_of(const study::Prepared& prepared) {
  const auto trace = study::make_trace(prepared.run, prepared.run.traces.front());
  return replay::replay(replay::prepare(*trace, 1), *study::make_policy(prepared), {});
}

TEST_CASE("a window attends to as many tokens as its budget, so that the budget equals the request") {
  const std::string policy = "policy: {name: streaming_llm, sink: 4}\n";
  const study::Prepared p = solved(policy + "match: {tokens_attended: 200}\n");
  REQUIRE(p.matched);
  CHECK(p.matched->budget == 200);
  CHECK(p.matched->reached == 200);
  CHECK_FALSE(p.run.match);
  CHECK(study::text_of(*p.matched, "streaming_llm") == "budget 200 solved for tokens_attended 200 (reached 200)");
}

TEST_CASE("a result states the solved budget, the request and what was reached") {
  const Result r =
      study::run_all({matched_point("policy: {name: streaming_llm, sink: 4}\nmatch: {tokens_attended: 200}\n")}, {})
          .front();
  CHECK(r.status == Status::kOk);
  CHECK(r.subject.number("policy.budget") == 200);
  CHECK(r.subject.number("match.tokens_attended") == 200);
  CHECK(r.subject.number("match.reached") == 200);
  CHECK(r.accuracy.attended_mean == 200);
}

TEST_CASE("a solved run shares the replays and the lowered work of a run with that budget, not its result") {
  const study::Prepared p = solved("policy: {name: streaming_llm, sink: 4}\nmatch: {tokens_attended: 200}\n");
  const study::Prepared plain =
      study::prepare(matched_point("policy: {name: streaming_llm, sink: 4, budget: 200}\n").config);
  CHECK(p.replays == plain.replays);
  CHECK(p.traces.front().lowered == plain.traces.front().lowered);
  CHECK(p.key != plain.key);  // its result states the request
  const study::Prepared file =
      solved("policy: {file: freekv-nhd, sink: 32, recent: 32}\nmatch: {tokens_attended: 264}\n");
  const std::string budget = std::to_string(file.matched->budget.value());
  CHECK(
      file.replays ==
      study::prepare(matched_point("policy: {file: freekv-nhd, sink: 32, recent: 32, budget: " + budget + "}\n").config)
          .replays);  // the solved budget replaces the file's
}

TEST_CASE("each candidate is one replay in the cache, and a repeated study makes none") {
  CountedReplays cache;
  study::StudyOptions options;
  options.replays = &cache;
  const auto point = matched_point("policy: {name: quest, page: 16}\nmatch: {tokens_attended: 250}\n");
  const Result first = study::run_all({point}, options).front();
  const int puts = cache.puts;
  // 13 bisections of 4 · 1040 budgets, the two ends, a step of 16 budgets and the neighbours.
  CHECK(puts >= 3);
  CHECK(puts <= 13 + 2 + 12 + 2);
  const Result again = study::run_all({point}, options).front();
  CHECK(cache.puts == puts);
  CHECK(again.key == first.key);
  CHECK(again.experiment.tpot_mean_s == first.experiment.tpot_mean_s);
  study::Point other = point;  // another machine
  other.config = other.config.with("hardware", Node::scalar("h100-sxm", {}));
  study::run_all({other}, options);
  CHECK(cache.puts == puts);
}

TEST_CASE("the uncompressed cache runs unchanged, and a policy without a budget is rejected before any work") {
  const Result r = study::run_all({matched_point("policy: full\nmatch: {tokens_attended: 256}\n")}, {}).front();
  CHECK(r.status == Status::kOk);
  CHECK(r.subject.number("match.tokens_attended") == 256);
  // A step attends to all its tokens: 1025 to 1028 at the four replayed steps.
  CHECK(r.subject.number("match.reached") == 1026.5);
  CHECK(r.subject.find("policy.budget") == nullptr);
  CHECK_THROWS_WITH(study::Study({matched_point("policy: magicpig\nmatch: {tokens_attended: 256}\n")}),
                    Catch::Contains("run.yaml:7:26: match: magicpig has no budget"));
  CHECK_THROWS_WITH(study::Study({matched_point("policy: {name: quest, pag: 8}\nmatch: {tokens_attended: 256}\n")}),
                    Catch::Contains("pag"));
}

TEST_CASE("an unreachable cost is rejected with the reachable range, and the other experiments continue") {
  std::mutex mutex;
  std::map<std::size_t, Result> results;
  study::Point narrow = matched_point("policy: {name: h2o, sink: 0}\nmatch: {tokens_attended: 50}\n");
  narrow.config = narrow.config.with("trace.window", Node::scalar("64", {}));
  const study::Study plan({matched_point("policy: {name: streaming_llm, sink: 4}\nmatch: {tokens_attended: 5000}\n"),
                           matched_point("policy: {name: streaming_llm, sink: 4}\nmatch: {tokens_attended: 50}\n"),
                           narrow});
  study::run(plan, {}, [&](const study::Task& task, Result&& r) {
    const std::lock_guard lock(mutex);
    results[task.index] = std::move(r);
  });
  REQUIRE(results.size() == 3);
  CHECK(results[0].status == Status::kFailed);
  CHECK_THAT(results[0].error, Catch::Contains("run.yaml:7:26: match: tokens_attended 5000 cannot be reached"));
  CHECK_THAT(results[0].error, Catch::Contains("and 1026.5 with its largest"));
  CHECK(results[1].status == Status::kOk);
  CHECK(results[2].status == Status::kFailed);  // h2o sums the weights of all prompt queries
  CHECK_THAT(results[2].error, Catch::Contains("run.yaml:6:16") && Catch::Contains("h2o"));
}

TEST_CASE("a stopped study of several policies at equal tokens resumes with equal results") {
  const auto points = [] {
    std::vector<study::Point> all;
    for (const char* policy : {"quest", "streaming_llm"}) {
      for (const char* tokens : {"128", "256"}) {
        all.push_back(matched_point(std::string("policy: ") + policy + "\nmatch: {tokens_attended: " + tokens + "}\n"));
      }
    }
    return all;
  };
  CountedReplays cache;
  std::stop_source stop;
  study::StudyOptions options;
  options.replays = &cache, options.cancel = stop.get_token();
  std::map<std::string, double> done;
  study::Study first(points());
  first.solve(options);
  const study::Finished finished = [&](const study::Task& task, Result&& r) {
    done[task.prepared.key] = r.experiment.tpot_mean_s;
    stop.request_stop();
  };
  CHECK_THROWS_AS(study::run(first, options, finished), Cancelled);
  REQUIRE(done.size() == 1);
  options.cancel = {};
  study::Study rest(points());
  rest.solve(options);
  CHECK(rest.drop([&](const study::Task& task) { return done.contains(task.prepared.key); }) == 1);
  study::run(rest, options,
             [&](const study::Task& task, Result&& r) { done[task.prepared.key] = r.experiment.tpot_mean_s; });
  REQUIRE(done.size() == 4);
  for (const Result& r : study::run_all(points(), {})) {
    REQUIRE(done.contains(r.key));
    CHECK(done.at(r.key) == r.experiment.tpot_mean_s);
  }
}

TEST_CASE("bytes read and bytes resident of the uncompressed cache follow from the model") {
  // 16 layers, 8 KV heads and 32 query heads of 64 numbers of 2 bytes.
  const study::Prepared p = study::prepare(matched_point("policy: full\n").config);
  const auto replayed = replay_of(p);
  const auto policy = study::make_policy(p);
  // Keys and values of 1026.5 tokens, the mean over the four steps, and the queries.
  CHECK(study::bytes_read(p.run, *policy, replayed) == Approx(2 * 1026.5 * 8 * 64 * 2 + 32 * 64 * 2));
  // Keys and values of 1024 + 16 tokens in all layers, for each of the two sequences.
  CHECK(study::bytes_resident(p.run, *policy, replayed) == Approx(16.0 * 2 * 1040 * 8 * 64 * 2));
}

TEST_CASE("bytes read are a mean over all layers, including the uncompressed ones") {
  const std::string policy = "policy: {name: streaming_llm, sink: 4, budget: 128, first_dense_layers: 4}\n";
  const study::Prepared p = study::prepare(matched_point(policy).config);
  const double queries = 32 * 64 * 2, token = 2 * 8 * 64 * 2;
  const double dense = 1026.5 * token + queries, window = 128 * token + queries;
  CHECK(study::bytes_read(p.run, *study::make_policy(p), replay_of(p)) == Approx((4 * dense + 12 * window) / 16));
}

TEST_CASE("bytes that CPU workers read count like those of kernels") {
  const study::Prepared p =
      study::prepare(matched_point("policy: {name: retrieval_attention, budget: 128, sink: 16, recent: 32}\n").config);
  const auto replayed = replay_of(p);
  REQUIRE(replayed.traffic.cpu_dram > 0);
  CHECK(study::bytes_read(p.run, *study::make_policy(p), replayed) ==
        Approx(replayed.traffic.hbm_read + replayed.traffic.cpu_dram));  // of the one layer that was replayed
}

}  // namespace
}  // namespace kvcast::tests

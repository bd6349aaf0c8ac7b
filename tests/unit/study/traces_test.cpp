// Points on several traces: each trace alone, all together, resumed, rejected and at the largest batch.
#include <catch2/catch.hpp>

#include <map>
#include <mutex>
#include <sstream>

#include "result/metric.hpp"
#include "study/study.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {
namespace {

using config::Node;
using result::Result;
using result::Status;

constexpr const char* kNeedle = "{recipe: needle, layers: 2, steps: 6}";
constexpr const char* kDocument = "{recipe: longbench-single-doc, seed: 2, layers: 2, steps: 6}";
constexpr const char* kKeys = "{recipe: ruler-multikey2, seed: 3, layers: 2, steps: 6}";
constexpr const char* kFreeKv = "{name: freekv, budget: 128, sink: 16, recent: 16, page: 16}";

study::Point point_of(const std::string& policy, const std::string& traces) {
  const bool several = traces.find("}, {") != std::string::npos;
  const std::string text =
      "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\nworkload: {prompt_tokens: 1024, decode_tokens: 16, batch: 2}\n"
      "framework: {warmup_steps: 1, measured_steps: 2, sampled_contexts: 2}\n" +
      (several ? "traces: [" + traces + "]" : "trace: " + traces) + "\npolicy: " + policy + "\n";
  study::Point point{config::parse_yaml(text, "run.yaml"), {}, {}};
  point.ask.effects = simulate::Effects::kNone;
  return point;
}

std::string list_of(std::initializer_list<const char*> traces) {
  std::string text;
  for (const char* t : traces) text += (text.empty() ? "" : ", ") + std::string(t);
  return text;
}

std::map<std::size_t, Result> results_of(const study::Study& plan, const study::StudyOptions& options,
                                         std::vector<std::size_t>* order = nullptr) {
  std::mutex mutex;
  std::map<std::size_t, Result> results;
  study::run(plan, options, [&](const study::Task& task, Result&& r) {
    const std::lock_guard lock(mutex);
    CHECK(results.count(task.index) == 0);
    results[task.index] = std::move(r);
    if (order != nullptr) order->push_back(task.index);
  });
  return results;
}

class Counted final : public study::ReplayCache {
 public:
  std::optional<replay::ReplayResult> get(const std::string& key) override {
    const auto found = replays.find(key);
    if (found == replays.end()) return {};
    return found->second;
  }
  void put(const std::string& key, const replay::ReplayResult& replayed) override { ++puts, replays[key] = replayed; }
  std::map<std::string, replay::ReplayResult> replays;
  int puts = 0;
};

double tpot(const Result& r) { return r.experiment.tpot_mean_s; }

TEST_CASE("a run on several traces is the mean of the runs on each of them") {
  const Result all = study::run_all({point_of(kFreeKv, list_of({kNeedle, kDocument, kKeys}))}, {}).front();
  double step = 0, prefill = 0, bytes = 0, recall = 0;
  for (const char* trace : {kNeedle, kDocument, kKeys}) {
    const Result alone = study::run_all({point_of(kFreeKv, trace)}, {}).front();
    step += tpot(alone) / 3, prefill += alone.experiment.ttft_s / 3;
    bytes += alone.experiment.traffic.h2d / 3, recall += alone.accuracy.recall_mass_mean / 3;
    CHECK(tpot(alone) != Approx(tpot(all)));
  }
  CHECK(tpot(all) == Approx(step));
  CHECK(all.experiment.ttft_s == Approx(prefill));
  CHECK(all.experiment.traffic.h2d == Approx(bytes));
  CHECK(all.accuracy.recall_mass_mean == Approx(recall));
  CHECK(all.subject.text("traces") == "needle 1, longbench-single-doc 2, ruler-multikey2 3");
  CHECK(all.subject.trace == all.subject.text("traces"));
  CHECK(all.subject.text("trace.layers") == "2");
  CHECK(all.subject.find("trace.recipe") == nullptr);
}

TEST_CASE("a list of one trace is equivalent to that trace") {
  const Result one = study::run_all({point_of(kFreeKv, kNeedle)}, {}).front();
  study::Point listed = point_of(kFreeKv, kNeedle);
  listed.config = listed.config.without({"trace"}).with(
      "traces", config::parse_yaml(std::string("[") + kNeedle + "]", "list.yaml"));
  const Result same = study::run_all({listed}, {}).front();
  CHECK(same.subject.trace == "recipe needle, seed 1");
  CHECK(same.subject.settings == one.subject.settings);
  for (const result::Metric& m : result::all_metrics()) {
    if (m.basis != result::Basis::kProgram) CHECK(result::value(same, m) == result::value(one, m));
  }
}

TEST_CASE("traces that are captured differently have names that state the differences") {
  const Result r =
      study::run_all({point_of("full", list_of({kNeedle, "{recipe: local, layers: 1, steps: 4, window: 8}"}))}, {})
          .front();
  CHECK(r.subject.trace == "needle 1 (2 layers, 6 steps), local 1 (1 layer, 4 steps, window 8)");
  CHECK(r.subject.find("trace.layers") == nullptr);
}

TEST_CASE("a trace file that does not exist is rejected with the location of its key") {
  CHECK(error_of([] { study::Study({point_of("full", "{file: absent.safetensors}")}); }) ==
        "run.yaml:5:15: no such file: absent.safetensors");
}

TEST_CASE("points on the same trace share its replay, and a result comes with the last trace of its point") {
  Counted cache;
  study::StudyOptions options;
  options.replays = &cache;
  std::vector<std::size_t> order;
  const study::Study plan({point_of(kFreeKv, list_of({kNeedle, kDocument, kKeys})), point_of(kFreeKv, kNeedle),
                           point_of(kFreeKv, list_of({kDocument, kNeedle})), point_of(kFreeKv, kKeys)});
  const auto first = results_of(plan, options, &order);
  CHECK(cache.puts == 3);
  REQUIRE(order.size() == 4);
  CHECK(order[0] == 1);  // done with the needle
  CHECK(order[1] == 2);  // with the document
  const auto again = results_of(plan, options);
  CHECK(cache.puts == 3);
  for (const auto& [index, r] : first) CHECK(tpot(again.at(index)) == tpot(r));
}

TEST_CASE("a stopped study resumes from the replays that it made") {
  Counted cache;
  std::stop_source stop;
  study::StudyOptions options;
  options.replays = &cache;
  options.cancel = stop.get_token();
  const auto points = [] {
    return std::vector{point_of(kFreeKv, kNeedle), point_of(kFreeKv, list_of({kNeedle, kDocument}))};
  };
  int done = 0;
  const study::Finished finished = [&](const study::Task&, Result&&) { ++done, stop.request_stop(); };
  CHECK_THROWS_AS(study::run(study::Study(points()), options, finished), Cancelled);
  CHECK(done == 1);
  CHECK(cache.puts == 1);
  options.cancel = {};
  const auto resumed = results_of(study::Study(points()), options);
  CHECK(cache.puts == 2);
  const auto afresh = results_of(study::Study(points()), {});
  REQUIRE(resumed.size() == 2);
  for (const auto& [index, r] : afresh) CHECK(tpot(resumed.at(index)) == tpot(r));
}

TEST_CASE("a rejection by one of the traces rejects the point once and names the trace") {
  // The last 200 prompt queries score the prompt.
  const std::string snapkv = "{name: snapkv, budget: 256, window: 200}";
  const char* wide = "{recipe: needle, layers: 2, steps: 6, window: 200}";
  const char* narrow = "{recipe: longbench-single-doc, seed: 2, layers: 2, steps: 6, window: 128}";
  const study::Study plan({point_of(snapkv, list_of({wide, narrow, kKeys})), point_of(snapkv, wide),
                           point_of("full", list_of({wide, kDocument}))});
  const auto results = results_of(plan, {});
  REQUIRE(results.size() == 3);
  CHECK(results.at(0).status == Status::kFailed);
  CHECK_THAT(results.at(0).error,
             Catch::StartsWith("run.yaml:6:16: on recipe longbench-single-doc, seed 2: ") && Catch::Contains("200"));
  CHECK(results.at(1).status == Status::kOk);
  CHECK(results.at(2).status == Status::kOk);
}

TEST_CASE("a trace without a window has the queries that its policy needs, and the scores of its own heads") {
  const auto prepared = [](const std::string& policy) { return study::prepare(point_of(policy, kNeedle).config); };
  CHECK(prepared("full").run.traces.front().window == 0);
  CHECK(prepared("{name: snapkv, budget: 256, window: 100}").run.traces.front().window == 0);  // the recipe has 128
  CHECK(prepared("{name: snapkv, budget: 256, window: 200}").run.traces.front().window == 200);
  CHECK(prepared("{name: h2o, budget: 256}").run.traces.front().window == prepared("full").run.workload.prompt_tokens);
  // In the 2 layers, the heads that retrieve in the recipe keep everything.
  const Result r = study::run_all({point_of("{name: duo_attention, threshold: 0.5}", kNeedle)}, {}).front();
  CHECK(r.status == Status::kOk);
  CHECK(r.accuracy.task->recall_mean > 0.9);
}

TEST_CASE("the timeline of a run is that of its first trace") {
  const auto timeline_of = [](const std::string& traces) {
    study::Point point = point_of(kFreeKv, traces);
    std::ostringstream chrome;
    point.ask.timeline = true, point.ask.chrome_trace = &chrome;
    const Result r = study::run_all({point}, {}).front();
    return std::pair(r.experiment.timeline.size(), chrome.str());
  };
  const auto both = timeline_of(list_of({kDocument, kNeedle}));
  CHECK(both.first > 0);
  CHECK(both == timeline_of(kDocument));
  CHECK(both.second != timeline_of(kNeedle).second);
}

TEST_CASE("the largest batch fits on every trace", "[minutes]") {
  const auto largest = [](const std::string& traces, int limit) {
    study::Point point = point_of("{name: hsa, budget: 256}", traces);
    point.config = point.config.with("workload.prompt_tokens", Node::scalar("100000", {}))
                       .with("workload.prefill_chunk", Node::scalar("4096", {}))
                       .with("workload.prefill_batch", Node::scalar("1", {}));
    point.ask.largest_batch = limit;
    return study::run_all({point}, {}).front();
  };
  const Result all = largest(list_of({kNeedle, kKeys}), 64);
  const std::int64_t needle = largest(kNeedle, 64).subject.batch, keys = largest(kKeys, 64).subject.batch;
  CHECK(all.subject.batch == std::min(needle, keys));
  CHECK(all.subject.batch > 1);
  CHECK(all.subject.batch < 64);
  CHECK(all.status == Status::kOk);
  CHECK(tpot(all) > 0);
}

// Coverage: an 80 % interval contains at least four fifths of the texts from which it is computed.
TEST_CASE("the interval of a run contains the times of the traces that it is based on", "[minutes]") {
  int inside = 0, texts = 0;
  for (const char* policy : {kFreeKv, "{name: arkvale, budget: 128}", "{name: quest, budget: 128}",
                             "{name: magicpig, sink: 16, recent: 16}", "{name: infinigen}"}) {
    INFO(policy);
    study::Point together = point_of(policy, list_of({kNeedle, kDocument, kKeys}));
    together.ask.effects = simulate::Effects::kTimes;
    const Result all = study::run_all({together}, {}).front();
    for (const char* path : {"decode.tpot_s.mean", "prefill.ttft_s"}) {
      const result::Metric& metric = *result::find_metric(path);
      const Interval range = result::interval(all, metric).value();
      CHECK(range.low <= result::value(all, metric));
      CHECK(range.high >= result::value(all, metric));
      for (const char* trace : {kNeedle, kDocument, kKeys}) {
        const double alone = *result::value(study::run_all({point_of(policy, trace)}, {}).front(), metric);
        ++texts;
        if (range.low <= alone * (1 + 1e-9) && alone * (1 - 1e-9) <= range.high) ++inside;
      }
    }
  }
  CHECK(inside >= 0.8 * texts);
}

TEST_CASE("FreeKV's steps on a needle and on a document are both within the interval of a run on both") {
  study::Point together = point_of(kFreeKv, list_of({kNeedle, kDocument}));
  together.ask.effects = simulate::Effects::kTimes;
  const Result all = study::run_all({together}, {}).front();
  const Interval range = result::interval(all, *result::find_metric("decode.tpot_s.mean")).value();
  for (const char* trace : {kNeedle, kDocument}) {
    const double alone = tpot(study::run_all({point_of(kFreeKv, trace)}, {}).front());
    CHECK(range.low < alone);
    CHECK(alone < range.high);
  }
}

}  // namespace
}  // namespace kvcast::tests

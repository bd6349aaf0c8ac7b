#include <catch2/catch.hpp>
#include <cmath>
#include <sstream>
#include <thread>

#include "replay/accuracy.hpp"
#include "replay/replay.hpp"
#include "support/error_of.hpp"
#include "support/memory_trace.hpp"
#include "support/select.hpp"

namespace kvcast::tests {

using namespace replay;

namespace {

ReplayResult run(const trace::Trace& trace, const std::string& name, const std::string& parameters,
                 const ReplayOptions& options = {}) {
  const auto layers = prepare(trace, 1);
  const auto policy = make(name, parameters, {trace.info().prompt_tokens, trace.info().decode_steps});
  return replay::replay(layers, *policy, options);
}

// One head of one dimension with keys ln 2 · (1, 0, 2, 0): for query 1 the exponentials are 2, 1, 4, 1, which sum to 8.
MemoryTrace trace_on_paper() {
  return {TraceShape{.kv_heads = 1, .group = 1, .head_dim = 1, .prompt = 3, .steps = 1, .window = 0},
          [](trace::Layer& layer) {
            const float ln2 = std::log(2.0f);
            const float keys[] = {ln2, 0, 2 * ln2, 0}, values[] = {4, 8, 2, 0};
            std::copy(std::begin(keys), std::end(keys), layer.mutable_keys(0));
            std::copy(std::begin(values), std::end(values), layer.mutable_values(0));
            *layer.mutable_queries(0) = 1;
          }};
}

TEST_CASE("proxies equal those worked out by hand") {
  const ReplayResult got = run(trace_on_paper(), "streaming_llm", "sink: 0, recent: 2");
  // Tokens 2 and 3 are attended to: their exponentials are 4 + 1 of 8.
  CHECK(got.proxies.recall_mass_mean == Approx(5.0 / 8));
  CHECK(got.proxies.recall_mass_p10 == Approx(5.0 / 8));
  // Full attention gives (2·4 + 1·8 + 4·2 + 1·0)/8 = 3, the two tokens give (4·2 + 1·0)/5 = 1.6: an error of 1.4 of 3.
  CHECK(got.proxies.output_error_mean == Approx(1.4 / 3));
  // The two largest scores are at positions 2 and 0, so one of the two is attended to.
  CHECK(got.proxies.topk_overlap_mean == 0.5);
  CHECK(got.proxies.attended_mean == 2);
}

TEST_CASE("full attention loses nothing and reads every pair once per step") {
  const TraceShape shape{.kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 50, .steps = 4, .layers = {0, 3}};
  const ReplayResult got = run(random_trace(shape, 1), "full", "");
  CHECK(got.proxies.recall_mass_mean == 1);
  CHECK(got.proxies.recall_mass_p10 == 1);
  CHECK(got.proxies.output_error_mean == 0);
  CHECK(got.proxies.topk_overlap_mean == 1);
  CHECK(got.proxies.attended_mean == 52.5);  // 51 … 54
  // Bytes of a step in two layers: 52.5 tokens × 2 heads × 2 × 8 × 2 bytes in each.
  CHECK(got.traffic.kv_read == 2 * 52.5 * 2 * 32);
  CHECK(got.traffic.h2d == 0);
  REQUIRE(got.layers.size() == 2);
  CHECK(got.layers[1].layer == 3);
  CHECK(got.layers[1].at(2)[1].attended == 53);
  CHECK(got.layers[0].resident == std::vector<std::int64_t>{50, 50});
}

TEST_CASE("tokens attended are a mean over query heads, whatever shares a list of tokens") {
  // The dense layer has one list for each KV head, of 41 and 42 tokens; the other has one for each of 8 query heads.
  const TraceShape shape{.kv_heads = 2, .group = 4, .head_dim = 8, .prompt = 40, .steps = 2, .layers = {0, 1}};
  const ReplayResult got =
      run(random_trace(shape, 1), "exact_topk", "budget: 10, group: per_head, first_dense_layers: 1");
  CHECK(got.layers[0].heads == 2);
  CHECK(got.layers[1].heads == 8);
  CHECK(got.proxies.attended_mean == (41.5 + 10) / 2);
}

TEST_CASE("no set of the same size keeps more attention mass than the exact top-k") {
  for (const TraceShape& shape :
       {TraceShape{.kv_heads = 2, .group = 1, .head_dim = 8, .prompt = 90, .steps = 5, .window = 90},
        TraceShape{.kv_heads = 1, .group = 4, .head_dim = 8, .prompt = 70, .steps = 9, .window = 70}}) {
    const MemoryTrace trace = random_trace(shape, 2);
    const Oracle oracle(trace.load(0, 1), 1);
    for (const char* name :
         {"streaming_llm", "snapkv", "quest", "hsa", "rocketkv", "arkvale", "freekv", "exact_topk"}) {
      const bool windowed = std::string(name) == "snapkv" || std::string(name) == "rocketkv";
      const bool paged =
          std::string(name) == "quest" || std::string(name) == "arkvale" || std::string(name) == "freekv";
      const auto policy =
          make(name, fmt::format("budget: 24{}{}", windowed ? ", window: 4" : "", paged ? ", page: 4" : ""),
               {shape.prompt, shape.steps});
      const auto selector = policy->selector(oracle.input());
      AccuracyMeter meter(oracle), best(oracle);
      policy::Ranking ranking;
      policy::LayerSelection selection;
      selector->prefill(selection);
      for (int t = 0; t < shape.steps; ++t) {
        selector->step(t, selection);
        std::vector<HeadAccuracy> got, most;
        meter.measure(t, selection, *selector, got);
        policy::LayerSelection exact;
        exact.reset(static_cast<std::size_t>(oracle.info().n_q_heads), true);
        for (int h = 0; h < oracle.info().n_q_heads; ++h) {
          const auto i = static_cast<std::size_t>(h);
          const std::size_t from = selection.per_query_head ? i : i / static_cast<std::size_t>(oracle.info().group());
          ranking.select(oracle.scores(h, t), selection.heads[from].attended.size(), exact.heads[i].attended);
        }
        best.measure(t, exact, *selector, most);
        for (std::size_t h = 0; h < got.size(); ++h) {
          CAPTURE(name, t, h);
          CHECK(got[h].recall_mass <= most[h].recall_mass * (1 + 1e-6));
          CHECK(most[h].topk_overlap == 1);
          CHECK(got[h].recall_mass > 0);
        }
      }
    }
  }
}

TEST_CASE("selections are written line by line in the order of layer, step and head") {
  const TraceShape shape{.kv_heads = 2, .group = 1, .head_dim = 4, .prompt = 5, .steps = 2, .layers = {1, 3}};
  std::ostringstream out;
  write_selections(run(random_trace(shape, 3), "streaming_llm", "sink: 1, recent: 2", {.keep_selections = true}), out);
  std::string wanted;
  for (const char* layer : {"1", "3"}) {
    const char* const lists[] = {R"([0,3,4],"fetched":[],"evicted":[])", R"([0,4,5],"fetched":[],"evicted":[3])",
                                 R"([0,5,6],"fetched":[],"evicted":[4])"};
    for (int step = -1; step < 2; ++step) {
      for (int head = 0; head < 2; ++head) {
        wanted += fmt::format("{{\"layer\":{},\"step\":{},\"kv_head\":{},\"attended\":{}}}\n", layer, step, head,
                              lists[step + 1]);
      }
    }
  }
  CHECK(out.str() == wanted);
  for (std::istringstream lines(out.str()); std::getline(lines, wanted);) CHECK_NOTHROW(nlohmann::json::parse(wanted));
}

TEST_CASE("lines name the query head if query heads select independently") {
  const TraceShape shape{.kv_heads = 1, .group = 2, .head_dim = 4, .prompt = 5, .steps = 1};
  const ReplayResult got = run(random_trace(shape, 3), "exact_topk", "budget: 2", {.keep_selections = true});
  CHECK(got.per_query_head);
  std::ostringstream out;
  write_selections(got, out);
  CHECK_THAT(out.str(), Catch::Contains("\"q_head\":1") && !Catch::Contains("kv_head"));
  // Only the first line names the trace.
  std::ostringstream named;
  write_selections(got, named, "file \"a\"");
  CHECK(named.str() == R"({"trace":"file \"a\"",)" + out.str().substr(1));
}

TEST_CASE("neither the number of threads nor concurrent policies change the result") {
  const TraceShape shape{
      .kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 120, .steps = 6, .window = 16, .layers = {0, 1, 2, 3}};
  const MemoryTrace trace = random_trace(shape, 4);
  const auto layers = prepare(trace, 2);
  const std::vector<std::pair<const char*, const char*>> policies = {
      {"snapkv", "budget: 40, window: 8"}, {"snapkv", "budget: 30, window: 16"},  {"quest", "budget: 32, page: 4"},
      {"quest", "budget: 32, page: 8"},    {"rocketkv", "budget: 24, window: 8"}, {"freekv", "budget: 32, page: 4"},
      {"arkvale", "budget: 32, page: 4"},  {"exact_topk", "budget: 16"}};
  const auto result = [&](std::size_t i, int threads) {
    const auto policy = make(policies[i].first, policies[i].second, {shape.prompt, shape.steps});
    return to_json(replay::replay(layers, *policy, {.threads = threads}));
  };
  std::vector<nlohmann::json> alone(policies.size()), together(policies.size());
  const auto fresh = prepare(trace, 1);
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const auto policy = make(policies[i].first, policies[i].second, {shape.prompt, shape.steps});
    alone[i] = to_json(replay::replay(fresh, *policy));
    CHECK(result(i, 3) == alone[i]);
  }
  {
    std::vector<std::jthread> workers;
    for (std::size_t i = 0; i < policies.size(); ++i) workers.emplace_back([&, i] { together[i] = result(i, 1); });
  }
  CHECK(together == alone);
}

TEST_CASE("an error names the data that a trace lacks") {
  const TraceShape shape{.kv_heads = 1, .group = 1, .head_dim = 4, .prompt = 100, .steps = 1, .window = 8};
  const MemoryTrace trace = random_trace(shape, 5);
  CHECK_THAT(error_of([&] { run(trace, "snapkv", "budget: 64, window: 32"); }),
             Catch::Contains("window of 32") && Catch::Contains("last 8"));
}

TEST_CASE("a result is unchanged by a round trip through JSON") {
  const TraceShape shape{.kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 80, .steps = 5, .layers = {0, 2}};
  const ReplayResult got = run(random_trace(shape, 6), "freekv", "budget: 24, page: 4, first_dense_layers: 1");
  const nlohmann::json written = to_json(got);
  const ReplayResult read = replay_from_json(nlohmann::json::parse(written.dump()));
  CHECK(to_json(read) == written);
  CHECK(read.dense_layers == 1);
  CHECK(read.growth.scored == 0.25);
  CHECK(read.layers[1].at(4)[1].fetched_runs == got.layers[1].at(4)[1].fetched_runs);
  CHECK(read.layers[1].at(0)[0].corrected);
  CHECK(read.proxies.recall_mass_mean == got.proxies.recall_mass_mean);
}

TEST_CASE("a replay holds one layer at a time, all of them for policies that survey them, with equal results") {
  const TraceShape shape{
      .kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 64, .steps = 3, .window = 64, .layers = {0, 1, 2, 3}};
  struct Case {
    const char *name, *parameters;
    long held;
  };
  for (const Case& c : {Case{"full", "", 1}, Case{"quest", "budget: 32", 1}, Case{"snapkv", "budget: 32", 1},
                        Case{"cake", "budget: 32", 4}, Case{"omnikv", "budget: 32", 4}}) {
    CAPTURE(c.name);
    const auto token = std::make_shared<int>(0);
    long most = 0;
    const MemoryTrace counted(shape, [&](trace::Layer& layer) {
      const std::shared_ptr<trace::Layer> source = random_trace(shape, 3).load(static_cast<std::size_t>(layer.id()), 1);
      const auto copy = [&](const MatrixView& from, float* to) { std::copy_n(from.data, from.rows * from.cols, to); };
      for (int h = 0; h < shape.kv_heads; ++h) copy(source->keys(h), layer.mutable_keys(h));
      for (int h = 0; h < shape.kv_heads * shape.group; ++h) copy(source->queries(h), layer.mutable_queries(h));
      // Every layer alive keeps its maker, and so a copy of the token.
      layer.make_values_by([token, source](int head, std::int64_t first, std::int64_t n, float* out) {
        const MatrixView from = source->values(head);
        std::copy_n(from.row(static_cast<std::size_t>(first)), static_cast<std::size_t>(n) * from.cols, out);
      });
      most = std::max(most, token.use_count() - 1);
    });
    const auto policy = make(c.name, c.parameters, {shape.prompt, shape.steps});
    const ReplayResult got = replay::replay(counted, *policy);
    CHECK(most == c.held);
    CHECK(to_json(got) == to_json(run(random_trace(shape, 3), c.name, c.parameters)));
  }
}

TEST_CASE("a replay stops on request in the middle of a layer") {
  const TraceShape shape{.kv_heads = 4, .group = 2, .head_dim = 8, .prompt = 64, .steps = 8, .window = 64};
  std::stop_source stop;
  int made = 0;
  // Values are made on first use; the first head's maker requests the stop.
  const MemoryTrace trace(shape, [&](trace::Layer& layer) {
    const auto all = random_trace(shape, 3).load(0, 1);
    const auto copy = [&](const MatrixView& from, float* to) { std::copy_n(from.data, from.rows * from.cols, to); };
    for (int h = 0; h < shape.kv_heads; ++h) copy(all->keys(h), layer.mutable_keys(h));
    for (int h = 0; h < shape.kv_heads * shape.group; ++h) copy(all->queries(h), layer.mutable_queries(h));
    layer.make_values_by([&](int, std::int64_t first, std::int64_t n, float* out) {
      std::fill_n(out, n * shape.head_dim, 1.0f);
      made += first == 0 ? 1 : 0;
      stop.request_stop();
    });
  });
  CHECK_THROWS_AS(prepare(trace, 1, config::Precision::kBf16, stop.get_token()), Cancelled);
  CHECK(made == 1);
  // Once the layers are there, the policy's own work stops as well.
  std::stop_source later;
  const auto layers = prepare(random_trace(shape, 3), 1, config::Precision::kBf16, later.get_token());
  for (const char* name : {"full", "h2o", "quest", "snapkv"}) {
    const auto policy = make(name, name == std::string("full") ? "" : "budget: 32", {shape.prompt, shape.steps});
    CHECK_NOTHROW(replay::replay(layers, *policy));
  }
  later.request_stop();
  for (const char* name : {"full", "h2o", "quest", "snapkv"}) {
    const auto policy = make(name, name == std::string("full") ? "" : "budget: 32", {shape.prompt, shape.steps});
    CHECK_THROWS_AS(replay::replay(layers, *policy), Cancelled);
  }
}

TEST_CASE("the density of a sparse prompt is a mean over all captured layers, dense ones included") {
  std::vector<LayerCounts> layers(3);
  layers[0].layer = 0;
  CHECK_FALSE(prompt_attention(layers));
  layers[1].layer = 4, layers[1].prompt = {true, 0.25, 0.9};
  layers[2].layer = 8, layers[2].prompt = {true, 0.35, 0.7};
  CHECK(prompt_attention(layers)->density == Approx((1 + 0.25 + 0.35) / 3));
  CHECK(prompt_attention(layers)->recall_mass == Approx((1 + 0.9 + 0.7) / 3));
  // The layers from the second on: those that the policy does not leave dense.
  CHECK(prompt_attention(layers, 1)->density == Approx(0.3));
  CHECK(prompt_attention(layers, 1)->recall_mass == Approx(0.8));
}

}  // namespace
}  // namespace kvcast::tests

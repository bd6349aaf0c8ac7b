#include "replay/steps.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "support/error_of.hpp"
#include "support/memory_trace.hpp"
#include "support/select.hpp"

namespace kvcast::tests {

using namespace replay;

namespace {

ReplayResult stepped(const trace::Trace& trace, const std::string& name, const std::string& parameters,
                     const ReplayOptions& options = {}) {
  const auto layers = prepare(trace, 1);
  const auto policy = make(name, parameters, {trace.info().prompt_tokens, trace.info().decode_steps});
  return replay::replay(layers, *policy, options);
}

double volume(const std::vector<float>& keys, std::size_t dims, const std::vector<std::int32_t>& positions) {
  return log_volume({keys.data(), keys.size() / dims, dims, dims}, positions);
}

TEST_CASE("the volume of keys is that of the box that they span") {
  // (3, 0) and (0, 4) span 12; the determinant is its square.
  const std::vector<float> keys = {3, 0, 0, 4, 1, 1, 6, 0};
  CHECK(volume(keys, 2, {0, 1}) == Approx(std::log(144)));
  CHECK(volume(keys, 2, {0}) == Approx(std::log(9)));
  // KᵀK of (3, 0), (0, 4) and (1, 1) is [[10, 1], [1, 17]], with determinant 169.
  CHECK(volume(keys, 2, {0, 1, 2}) == Approx(std::log(169)));
  CHECK(std::isinf(volume(keys, 2, {0, 3})));  // on one line
  CHECK(std::isinf(volume(keys, 2, {})));
}

TEST_CASE("different tokens of all steps are counted once for each list") {
  const TraceShape shape{.kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 20, .steps = 5};
  // The last two of 21 … 25 tokens: 19 … 24.
  const ReplayResult window = stepped(random_trace(shape, 1), "streaming_llm", "sink: 0, recent: 2");
  CHECK(window.proxies.distinct_mean == 6);
  CHECK(window.layers[0].distinct == std::vector<std::int64_t>{6, 6});
  CHECK(stepped(random_trace(shape, 1), "full", "").proxies.distinct_mean == 25);
  const ReplayResult again = replay_from_json(to_json(window));
  CHECK(again.layers[0].distinct == window.layers[0].distinct);
  CHECK(again.proxies.distinct_mean == 6);
}

TEST_CASE("the share of corrections is that of the steps that wait for their own pages") {
  const TraceShape shape{.kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 64, .steps = 4};
  const auto share = [&](const char* more) {
    return stepped(random_trace(shape, 1), "freekv", std::string("budget: 16, page: 4") + more).proxies.corrected_mean;
  };
  CHECK(share(", tau: -1") == 0.25);  // the first step alone: no cosine is below −1
  CHECK(share(", tau: 1") == 1);      // random queries are never equal
  CHECK(share(", speculation: false") == 1);
  CHECK(stepped(random_trace(shape, 1), "full", "").proxies.corrected_mean == 0);
}

TEST_CASE("a table of steps has the counts of each head and the cosine of its queries") {
  // Queries of one channel: 1, 2 and −1 in one head. Cosines 1 and −1.
  const MemoryTrace trace({.kv_heads = 1, .group = 1, .head_dim = 1, .prompt = 3, .steps = 3, .window = 0},
                          [](trace::Layer& layer) {
                            const float queries[] = {1, 2, -1};
                            std::copy(std::begin(queries), std::end(queries), layer.mutable_queries(0));
                          });
  std::ostringstream out;
  write_steps(stepped(trace, "streaming_llm", "sink: 0, recent: 2"), out);
  CHECK(out.str() ==
        "layer,step,head_kind,head,attended,cpu_attended,scored,candidates,fetched,fetched_runs,evicted,corrected,"
        "query_cosine\n"
        "0,0,kv_head,0,2,0,0,0,0,0,1,0,\n"
        "0,1,kv_head,0,2,0,0,0,0,0,1,0,1.000000\n"
        "0,2,kv_head,0,2,0,0,0,0,0,1,0,-1.000000\n");
}

TEST_CASE("excluded heads attend to nothing and lose what they would have found") {
  const TraceShape shape{.kv_heads = 1, .group = 2, .head_dim = 8, .prompt = 30, .steps = 3, .layers = {0, 2}};
  const auto with = [&](const ReplayOptions& options) { return stepped(random_trace(shape, 1), "full", "", options); };
  // Full attention keeps all; one of four heads of two layers loses all of it.
  const ReplayResult one = with({.excluded = {{2, 1}}});
  CHECK(one.proxies.recall_mass_mean == 0.75);
  CHECK(one.proxies.output_error_mean == 0.25);
  CHECK(one.proxies.attended_mean == with({}).proxies.attended_mean);
  CHECK(one.traffic.kv_read == with({}).traffic.kv_read);
  CHECK(with({.excluded = {{0, 0}, {0, 1}, {2, 0}, {2, 1}}}).proxies.recall_mass_mean == 0);
  CHECK(error_of([&] { with({.excluded = {{1, 0}}}); }).find("layers 0, 2") != std::string::npos);
  CHECK(error_of([&] { with({.excluded = {{0, 2}}}); }).find("0 to 1") != std::string::npos);
}

TEST_CASE("the volume of kept keys is computed if it is asked for") {
  const TraceShape shape{.kv_heads = 2, .group = 2, .head_dim = 4, .prompt = 40, .steps = 2};
  CHECK_FALSE(mean_log_volume(stepped(random_trace(shape, 1), "full", "")));
  const auto kept = [&](const char* name, const char* parameters) {
    return *mean_log_volume(stepped(random_trace(shape, 1), name, parameters, {.log_volume = true}));
  };
  // More keys span more.
  CHECK(kept("full", "") > kept("streaming_llm", "sink: 0, recent: 20"));
  CHECK(kept("streaming_llm", "sink: 0, recent: 20") > kept("streaming_llm", "sink: 0, recent: 8"));
}

}  // namespace
}  // namespace kvcast::tests

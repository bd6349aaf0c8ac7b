// Policies that evict by score and never recall.
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>

#include "paper.hpp"
#include "policy/profile.hpp"
#include "support/error_of.hpp"
#include "support/ops.hpp"
#include "support/select.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {
namespace {

// One dimension: scores are products of two numbers; keys in units of ln 2, so that a query of 1 gives weights that are
// powers of 2, and one of 0 equal weights.
Paper powers(std::vector<float> keys, std::vector<float> prompt_queries, std::vector<float> queries) {
  Paper paper;
  paper.prompt = static_cast<std::int64_t>(keys.size() - queries.size());
  for (const float key : keys) paper.keys.push_back(key * kLn2);
  paper.prompt_queries = {std::move(prompt_queries)};
  paper.queries = {std::move(queries)};
  return paper;
}

TEST_CASE("h2o, by hand") {
  // Keys 2 0 1 0 | 3 0, prompt queries 1 0 1 0. Weights row by row:
  //   query 0: 1. Query 1 (equal): 1/2 1/2. Query 2 (4 1 2): 4/7 1/7 2/7. Query 3 (equal): 1/4 each.
  // Totals: 2.321, .893, .536, .25. Budget 3, the last 1 stays: of 0 1 2 the best two are 0 and 1.
  const Paper paper = powers({2, 0, 1, 0, 3, 0}, {1, 0, 1, 0}, {0, 1});
  const Selected got = select("h2o", "budget: 3, recent: 1", paper);
  CHECK(got.resident.heads[0].attended == Positions{0, 1, 3});
  // Step 0, query 0: 1/4 for each of 0 1 3 4: totals 2.571 1.143 .5 and .25 for 4, which is recent: 3 goes.
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 3, 4});
  CHECK(got.steps[0].heads[0].evicted == Positions{3});
  // Step 1, query 1, keys 2 0 3 0: weights 4 1 8 1 over 14: totals 2.857 1.214 .821: 4 goes, the current 5 is recent.
  CHECK(got.steps[1].heads[0].attended == Positions{0, 1, 4, 5});
  CHECK(got.steps[1].heads[0].evicted == Positions{4});
}

TEST_CASE("h2o without decode eviction, and in blocks, by hand") {
  const Paper paper = powers({2, 0, 1, 0, 3, 0}, {1, 0, 1, 0}, {0, 1});
  const Selected once = select("h2o", "budget: 3, recent: 1, decode_eviction: false", paper);
  CHECK(once.steps[1].heads[0].attended == Positions{0, 1, 3, 4, 5});
  // Budget 1, blocks of 2. Block 1: totals 1 + 1/2, 1/2: with nothing recent, 0 stays. Block 2 (0 2 3): query 2 over 0
  // 2: 4/6, 2/6; query 3: 1/3 each: 0 has 1.5 + .667 + .333, 2 has .667: 0 stays.
  const Selected blocks = select("h2o", "budget: 1, recent: 0, block: 2", paper);
  CHECK(blocks.resident.heads[0].attended == Positions{0});
}

TEST_CASE("h2o reports what the trace lacks") {
  Paper paper = powers({2, 0, 1, 0, 3, 0}, {1, 0, 1, 0}, {0, 1});
  paper.prompt_queries = {{1, 0}};
  CHECK_THAT(error_of([&] { select("h2o", "budget: 3", paper); }),
             Catch::Contains("prompt positions 0 to 3") && Catch::Contains("the last 2 of 4"));
  CHECK(error_of([&] { select("h2o", "budget: 6", paper); }) == "no error");
  CHECK_THAT(error_of([&] { select("h2o", "budget: 3, sink: 2, recent: 2", paper); }),
             Catch::Contains("exceed the budget"));
}

TEST_CASE("tova, by hand") {
  // Last prompt query 1: weights as keys 2 0 1 3: the best three are 3 0 2. Step 0, query 1, key 0 at 4 is the least:
  // the current token itself goes. Step 1, query −1: minus keys −2 −1 −3 −1: 3 goes.
  const Paper paper = powers({2, 0, 1, 3, 0, 1}, {1}, {1, -1});
  const Selected got = select("tova", "budget: 3", paper);
  CHECK(got.resident.heads[0].attended == Positions{0, 2, 3});
  CHECK(got.steps[0].heads[0].attended == Positions{0, 2, 3, 4});
  CHECK(got.steps[0].heads[0].evicted == Positions{4});
  CHECK(got.steps[1].heads[0].attended == Positions{0, 2, 3, 5});
  CHECK(got.steps[1].heads[0].evicted == Positions{3});
  // kvpress's rule: the last token stays; at step 0 the least of 0 2 3 is 2.
  CHECK(select("tova", "budget: 3, recent: 1", paper).steps[0].heads[0].evicted == Positions{2});
}

TEST_CASE("keydiff, by hand") {
  // Unit keys at angles 0° 0° 90° 0° | 180°: mean (3/4, 1/4): cosines .949 (thrice) and .316. Budget 2: 2, and the
  // first of equals.
  const Paper paper{
      .prompt = 4, .head_dim = 2, .keys = {1, 0, 1, 0, 0, 1, 1, 0, -1, 0}, .prompt_queries = {}, .queries = {{1, 1}}};
  const Selected got = select("keydiff", "budget: 2", paper);
  CHECK(got.resident.heads[0].attended == Positions{0, 2});
  // Step 0: 0°, 90°, 180°: mean (0, 1/3): cosines 0 1 0: 2 goes.
  CHECK(got.steps[0].heads[0].attended == Positions{0, 2, 4});
  CHECK(got.steps[0].heads[0].evicted == Positions{2});
  // Half of the budget for the last token: 3 stays, and the best of the others, 2.
  CHECK(select("keydiff", "budget: 2, recent_fraction: 0.5", paper).resident.heads[0].attended == Positions{2, 3});
  // In blocks of 3 the first keeps 0 and 2 (cosines .894 .894 .447); then 0 2 3, mean (2/3, 1/3), keeps 2 and 0.
  CHECK(select("keydiff", "budget: 2, block: 3", paper).resident.heads[0].attended == Positions{0, 2});
  // Half of all tokens seen: 2 of 4, and 2 of 5; three fifths are 2 of 4, and 3 of 5.
  const Selected half = select("keydiff", "share: 0.5, interval: 1", paper);
  CHECK(half.resident.heads[0].attended == Positions{0, 2});
  CHECK(half.steps[0].heads[0].evicted == Positions{2});
  CHECK(select("keydiff", "share: 0.5, interval: 2", paper).steps[0].heads[0].evicted.empty());
  const Selected more = select("keydiff", "share: 0.6, interval: 1", paper);
  CHECK(more.resident.heads[0].attended == Positions{0, 2});
  CHECK(more.steps[0].heads[0].evicted.empty());
  CHECK_THAT(error_of([&] { select("keydiff", "share: 0.5, budget: 2", paper); }), Catch::Contains("takes no budget"));
  CHECK_THAT(error_of([&] { select("keydiff", "interval: 2", paper); }), Catch::Contains("needs share"));
}

TEST_CASE("keyl2norm, by hand") {
  // Norms 3 1 4 1 5 9: the smallest three are 1 1 3.
  const Paper paper{
      .prompt = 6, .head_dim = 1, .keys = {3, -1, 4, 1, -5, 9, 2}, .prompt_queries = {}, .queries = {{1}}};
  const Selected got = select("keyl2norm", "budget: 3", paper);
  CHECK(got.resident.heads[0].attended == Positions{0, 1, 3});
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 3, 6});
  CHECK(got.steps[0].heads[0].evicted.empty());
  CHECK(select("keyl2norm", "budget: 3, prune_after: 7", paper).resident.heads[0].attended.size() == 6);
}

TEST_CASE("raas, by hand") {
  // Sink 1, recent 1, pages of 2, room for one. Prompt of 6: (6 − 2) / 2 = 2 pages of tokens 1 to 4, scored by the last
  // query 1: keys 5 1 4 2: the best two, 1 and 3, are packed; 5 is recent.
  const Paper paper{
      .prompt = 6, .head_dim = 1, .keys = {9, 5, 1, 4, 2, 0, 7, 8, 1}, .prompt_queries = {{1}}, .queries = {{1, 1, 1}}};
  const Selected got = select("raas", "budget: 2, page: 2, sink: 1, recent: 1", paper);
  CHECK(got.resident.heads[0].attended == Positions{0, 1, 3, 5});
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 3, 5, 6});
  // Step 1: 5 6 7 are recent + page: 5 and 6 become a page, which replaces the only other one.
  CHECK(got.steps[1].heads[0].attended == Positions{0, 5, 6, 7});
  CHECK(got.steps[1].heads[0].evicted == Positions{1, 3});
  CHECK(got.steps[2].heads[0].attended == Positions{0, 5, 6, 7, 8});
}

TEST_CASE("raas replaces the least recently used page") {
  // No sink, nothing recent, pages of 1, room for two: tokens 0 and 1 with keys ±5 (scores ±5 ln 2 with query ±1; the
  // weight of the worse one is 1/1025, below alpha .1). Step 0, token 2 (key 0) comes: both are from the prompt, the
  // first goes. Step 0 marks 1 (query −1: weights 32 : 1 of 1 and 2). Step 1, token 3: 2 is from step 0, as is 1's
  // mark: of equals the first slot, which holds 2, goes.
  const Paper paper = powers({5, -5, 0, 0}, {1, 1}, {-1, 1});
  const Selected got = select("raas", "budget: 2, page: 1, alpha: 0.1", paper);
  CHECK(got.steps[0].heads[0].attended == Positions{1, 2});
  CHECK(got.steps[0].heads[0].evicted == Positions{0});
  CHECK(got.steps[1].heads[0].attended == Positions{1, 3});
  CHECK(got.steps[1].heads[0].evicted == Positions{2});
}

TEST_CASE("raas marks a page of one token by its weight in the step's attention, including the sink") {
  // Sink 0, recent 1, two pages of 1: tokens 1 and 2. Step 0 puts 3 in the place of 1, the first of equals. Of the
  // attention to 0 2 3 4, 2⁹ : 1 : 1 : 1, token 2 has 1/515, below alpha (of the pages it would have half): step 1, for
  // 4, evicts it.
  const Paper paper = powers({9, 1, 0, 0, 0, 0}, {1, 1, 1, 1}, {1, 1});
  const Selected got = select("raas", "budget: 2, page: 1, sink: 1, recent: 1, alpha: 0.1", paper);
  CHECK(got.steps[0].heads[0].attended == Positions{0, 2, 3, 4});
  CHECK(got.steps[1].heads[0].attended == Positions{0, 3, 4, 5});
  CHECK(got.steps[1].heads[0].evicted == Positions{2});
}

TEST_CASE("raas does not mark pages before the cache is full") {
  // Room for four pages of 1. Step 1 (3 tokens) attends to 0 alone, but marks nothing; step 2 (4 tokens, full) marks 3.
  // Step 3 evicts the stalest: 0, as old as the prompt.
  const Paper paper = powers({5, -5, -5, -9, 0}, {1}, {1, 1, -1, 1});
  const Selected got = select("raas", "budget: 4, page: 1, alpha: 0.1", paper);
  CHECK(got.steps[3].heads[0].attended == Positions{1, 2, 3, 4});
  CHECK(got.steps[3].heads[0].evicted == Positions{0});
}

TEST_CASE("d2o, by hand") {
  // The same as h2o, but the first step still attends to all. Keys 2 0 1 0 | 3 0: after step 0 (equal weights 1/5 each)
  // the totals are 2.521 1.093 .736 .45 .2. Of a budget of 3, ⌊3/2⌋ = 1 is recent, 4, and ⌊3/2⌋ = 1 heavy, 0.
  const Paper paper = powers({2, 0, 1, 0, 3, 0}, {1, 0, 1, 0}, {0, 1});
  const Selected got = select("d2o", "budget: 3, sink: 0, layers: uniform", paper);
  CHECK(got.resident.heads[0].attended == Positions{0, 1, 2, 3});
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 2, 3, 4});
  CHECK(got.steps[0].heads[0].evicted == Positions{1, 2, 3});
  CHECK(got.steps[1].heads[0].attended == Positions{0, 4, 5});
}

// Profile of one layer of `heads` query heads over one KV head (the traces above have 4 layers).
std::string profile_of(const TemporaryDirectory& directory, std::vector<double> scores,
                       std::map<int, double> errors = {{0, 3}, {1, 1}, {2, 1}, {3, 1}}) {
  policy::Profile profile;
  profile.n_layers = 4;
  profile.n_q_heads = static_cast<int>(scores.size());
  profile.n_kv_heads = 1;
  for (const std::string& kind : policy::head_score_kinds()) profile.heads[kind][0] = scores;
  profile.layer_errors = std::move(errors);
  const std::string path = directory.path() + "/profile.yaml";
  std::ofstream(path) << policy::write_profile(profile);
  return path;
}

TEST_CASE("pyramidkv keeps more in layer 0, by hand") {
  // Window 1, budget 3: base 2, beta 2: least 1, most 3; 6 tokens before the window. Layer 0 keeps 3 and the window:
  // the best of keys 0 5 1 4 2 3 are 1 3 5.
  const Paper paper = powers({0, 5, 1, 4, 2, 3, 0, 0}, {1}, {1});
  CHECK(select("pyramidkv", "budget: 3, window: 1, pool_kernel: 1, beta: 2", paper).resident.heads[0].attended ==
        Positions{1, 3, 5, 6});
}

TEST_CASE("compresskv lets its retrieval head choose, by hand") {
  // Two query heads: the first attends to large keys, the second to small ones; by the profile the second retrieves.
  // Errors 3 1 1 1 of 6; budget 4 a layer: 16 in all, at least 2 each, 8 to share: 4 for layer 0, 1.33 for the others,
  // 6 3 3 3, and the one left over for layer 0: 7, window of 1 included. Keys 0 5 1 4 2 3 6 7: all but the last two.
  Paper paper = powers({0, 5, 1, 4, 2, 3, 6, 7, 8, 0}, {1}, {1});
  paper.prompt_queries = {{1}, {-1}};
  paper.queries = {{1}, {-1}};
  const TemporaryDirectory directory;
  const std::string profile = profile_of(directory, {0.1, 0.9});
  const std::string rest =
      ", window: 1, pool_kernel: 1, retrieval_heads: 1, least_layer_budget: 2, profile: " + profile;
  CHECK(select("compresskv", "budget: 4" + rest, paper).resident.heads[0].attended == Positions{0, 1, 2, 3, 4, 5, 8});
  // Equal layers: the three smallest.
  CHECK(select("compresskv", "layers: uniform, budget: 4" + rest, paper).resident.heads[0].attended ==
        Positions{0, 2, 4, 8});
  CHECK_THAT(error_of([&] { select("compresskv", "budget: 8", paper); }), Catch::Contains("needs a profile"));
  // A prompt of 9 tokens within the mean budget of 9, but not within layer 0's: errors 1 3 1 1 of 6 share 36 − 4·2 as
  // 4.67 14 4.67 4.67, rounded 7 16 7 7 with the 2 each; the one too many is taken from layer 0: 6, window included.
  const std::string small = profile_of(directory, {0.1, 0.9}, {{0, 1}, {1, 3}, {2, 1}, {3, 1}});
  const std::string one = ", window: 1, pool_kernel: 1, retrieval_heads: 1, least_layer_budget: 2, profile: " + small;
  CHECK(select("compresskv", "budget: 9" + one, paper).resident.heads[0].attended == Positions{0, 2, 3, 4, 5, 8});
  CHECK(select("compresskv", "layers: uniform, budget: 9" + one, paper).resident.heads[0].attended.size() == 9);
}

TEST_CASE("compresskv can rank by traditional retrieval heads") {
  // The first query head attends to large keys and has the larger retrieval score; the second has the larger semantic
  // score.
  Paper paper = powers({0, 5, 1, 4, 2, 3, 6, 7, 8, 0}, {1}, {1});
  paper.prompt_queries = {{1}, {-1}};
  paper.queries = {{1}, {-1}};
  const TemporaryDirectory directory;
  const std::string path = profile_of(directory, {0.1, 0.9});
  policy::Profile profile = policy::read_profile(path);
  profile.heads["retrieval"][0] = {0.9, 0.1};
  std::ofstream(path) << policy::write_profile(profile);
  const std::string rest =
      "budget: 4, window: 1, pool_kernel: 1, retrieval_heads: 1, layers: uniform, profile: " + path;
  CHECK(select("compresskv", rest, paper).resident.heads[0].attended == Positions{0, 2, 4, 8});
  CHECK(select("compresskv", rest + ", ranked_by: retrieval", paper).resident.heads[0].attended ==
        Positions{1, 6, 7, 8});
}

TEST_CASE("cake prefers tokens with varying attention, by hand") {
  // Window 2, queries 1 and −1 over keys 1 −1 0 | 0 0: weights 2 1/2 1 and 1/2 2 1 over sums 4.5 (one window token) and
  // 5.5 (both): .444 .111 .222 and .0909 .3636 .1818. Means .268 .237 .202; unbiased variances .0625 .0319 .00082.
  // gamma 200 ranks 0 1 2; one token in addition to the window of 2 in a budget of 3: 0.
  Paper paper = powers({1, -1, 0, 0, 0, 0}, {1, -1}, {1});
  const std::string rest = "budget: 3, window: 2, pool_kernel: 1, layers: uniform";
  CHECK(select("cake", rest, paper).resident.heads[0].attended == Positions{0, 3, 4});
  // Decode eviction: query 1 over 0 3 4 5 ranks the tokens before the last two, 0 (2) and 3 (1): 3 goes.
  const Selected decode = select("cake", rest + ", decode_eviction: true", paper);
  CHECK(decode.steps[0].heads[0].attended == Positions{0, 3, 4, 5});
  CHECK(decode.steps[0].heads[0].evicted == Positions{3});
}

TEST_CASE("duo_attention and razor_attention, by hand") {
  // 4 layers of one KV head, all with the same score: of equals the first layers keep everything.
  const Paper paper = powers({1, 1, 1, 1, 1, 1, 1, 1}, {1}, {1, 1});
  const TemporaryDirectory directory;
  const std::string profile = ", profile: " + profile_of(directory, {0.5});
  CHECK(select("duo_attention", "sink: 1, recent: 2" + profile, paper).steps[0].heads[0].attended.size() == 7);
  const Selected streaming = select("duo_attention", "sparsity: 1, sink: 1, recent: 2" + profile, paper);
  CHECK(streaming.resident.heads[0].attended == Positions{0, 4, 5});
  CHECK(streaming.steps[0].heads[0].attended == Positions{0, 5, 6});
  CHECK(streaming.steps[0].heads[0].evicted == Positions{4});
  // Thresholds keep heads whose score equals them. A budget of 4 tokens, 8 at the end, 3 when streaming: ⌊4·(4 − 3) /
  // (8 − 3)⌋ = 0.
  CHECK(
      select("duo_attention", "threshold: 0.5, sink: 1, recent: 2" + profile, paper).steps[0].heads[0].evicted.empty());
  CHECK(select("duo_attention", "budget: 4, sink: 1, recent: 2" + profile, paper).steps[0].heads[0].attended.size() ==
        3);
  // A budget of 5 within twice the sink of 4: a fifth of it is the sink.
  CHECK(select("duo_attention", "budget: 5, sink: 4, recent: 4" + profile, paper).steps[0].heads[0].attended ==
        Positions{0, 3, 4, 5, 6});
  // Its limits: no head streams, or the window covers everything.
  CHECK(select("duo_attention", "sparsity: 0, sink: 1, recent: 2" + profile, paper).steps[1].heads[0].attended.size() ==
        8);
  CHECK(select("duo_attention", "sparsity: 1, sink: 1, recent: 7" + profile, paper).steps[1].heads[0].attended.size() ==
        8);
  // Razor: the window is max(1, ⌊6/3⌋) = 2. Shares of 0: no full head.
  const std::string razor = "echo_share: 0, induction_share: 0, sink: 1, least_buffer: 1, divisor: 3" + profile;
  CHECK(select("razor_attention", razor, paper).steps[0].heads[0].attended == Positions{0, 5, 6});
}

TEST_CASE("duo_attention reads the tokens kept by a layer's own heads, whichever layer was replayed") {
  // 4 layers of one KV head with equal scores: two keep everything, the first two. Replayed was one of those: 7 tokens.
  const TemporaryDirectory directory;
  const auto policy = make("duo_attention", "sink: 1, recent: 2, profile: " + profile_of(directory, {0.5}), {6, 2});
  config::Model model;
  model.layers = 4, model.n_q_heads = 1, model.n_kv_heads = 1, model.head_dim = 1;
  const auto read = [&](int layer) {
    policy::HeadCounts whole;
    whole.attended = 7;
    const std::vector<policy::HeadCounts> heads(2, whole);  // of two sequences
    policy::Recorder ops;
    policy->decode_layer(policy::EqualBatch(model, layer, 2, {7, {}}, heads, false), ops);
    return std::get<graph::DecodeAttention>(only(ops.ops(), "attention").work).tokens;
  };
  CHECK(read(0) == 14);
  CHECK(read(1) == 14);
  CHECK(read(2) == 6);  // the first and the last two
  CHECK(read(3) == 6);
}

TEST_CASE("razor_attention's averaged pair replaces all evicted pairs, by hand") {
  // Equal keys: every token weighs the same, and so does the average for each token that it replaces: the output is the
  // mean of all values, 0 1 2 3 4 5 6: 3; of 0 5 6 alone it would be 11/3.
  const Paper paper = powers({1, 1, 1, 1, 1, 1, 1}, {1}, {1});
  const MemoryTrace trace = write_down(paper);
  const auto layer = trace.load(0, 1);
  for (int i = 0; i < 7; ++i) layer->mutable_values(0)[i] = static_cast<float>(i);
  const TemporaryDirectory directory;
  const auto policy = make("razor_attention",
                           "echo_share: 0, induction_share: 0, sink: 1, least_buffer: 1, divisor: 3, profile: " +
                               profile_of(directory, {0.5}),
                           {6, 1});
  const policy::LayerInput input(*layer);
  const auto selector = policy->selector(input);
  policy::LayerSelection step;
  selector->prefill(step);
  selector->step(0, step);
  REQUIRE(selector->output(0).size() == 1);
  CHECK(selector->output(0)[0] == Approx(3));
}

}  // namespace
}  // namespace kvcast::tests

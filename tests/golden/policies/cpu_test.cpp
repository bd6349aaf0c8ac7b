// Policies that search host memory and attend on the CPU.
#include <catch2/catch.hpp>

#include "paper.hpp"
#include "policy/recorder.hpp"
#include "support/error_of.hpp"
#include "support/ops.hpp"

namespace kvcast::tests {
namespace {

// Two dimensions, so that a query has a direction. Keys of the prompt (positions 0 … 7), then of three steps. Prompt
// queries at positions 6 and 7: (1, 0) and (0, 1). With sink 1 and recent 2 positions 1 … 5 are in host memory.
Paper centroid_paper() {
  return {.prompt = 8,
          .head_dim = 2,
          .keys = {9, 9, 4, 0, 3, 1, 2, 2, 1, 3, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
          .prompt_queries = {{1, 0, 0, 1}},
          .queries = {{2, 1, 1, 3, 3, 1}}};
}

constexpr const char* kCentroids =
    "budget: 1, centroids: 2, retrieved_centroids: 1, recall_factor: 3, sink: 1, recent: 2, update: false";

TEST_CASE("ctkvr, by hand") {
  // Centroid (1, 0) scores the first coordinate: 4, 3, 2, 1, 0 of positions 1 … 5; its best three: 1, 2, 3. Centroid
  // (0, 1) the second, 0, 1, 2, 3, 4: 3, 4, 5. Position 0, whose key is 9, is on the GPU and in no list.
  const Selected got = select("ctkvr", kCentroids, centroid_paper());
  CHECK(got.resident.heads[0].attended == Positions{0, 6, 7});
  // Step 0, query (2, 1): nearer to (1, 0). Of 1, 2, 3 it scores 8, 7, 6: position 1. The window is now 7, 8.
  const policy::HeadSelection& first = got.steps[0].heads[0];
  CHECK(first.attended == Positions{0, 1, 7, 8});
  CHECK(first.evicted == Positions{6});
  CHECK(first.counts.scored == 2);
  CHECK(first.counts.candidates == 3);
  CHECK(first.counts.cpu_attended == 1);
  CHECK(first.counts.attended == 3);
  // Step 1, query (1, 3): nearer to (0, 1). Of 3, 4, 5 it scores 8, 10, 12: position 5.
  CHECK(got.steps[1].heads[0].attended == Positions{0, 5, 8, 9});
  // Step 2, query (3, 1): (1, 0) again; 12, 10, 8: position 1.
  CHECK(got.steps[2].heads[0].attended == Positions{0, 1, 9, 10});
}

TEST_CASE("ctkvr without rerank attends to all recalled tokens") {
  const Selected got = select("ctkvr", std::string(kCentroids) + ", rerank: false", centroid_paper());
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 2, 3, 7, 8});
  CHECK(got.steps[1].heads[0].attended == Positions{0, 3, 4, 5, 8, 9});
}

TEST_CASE("ctkvr's queries become centroids, first in, first out") {
  std::string setting = kCentroids;
  setting.replace(setting.find("update: false"), 13, "update: true");
  const Selected got = select("ctkvr", setting, centroid_paper());
  // Step 0 as above; its query takes the place of (1, 0) with the list 1, 2, 3 that it recalled.
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 7, 8});
  // Step 1, (1, 3), between (0, 1), cosine 3/√10 = 0.95, and (2, 1), 5/√50 = 0.71: list 3, 4, 5 as above. Its query
  // takes the place of (0, 1).
  CHECK(got.steps[1].heads[0].attended == Positions{0, 5, 8, 9});
  // Step 2, (3, 1), between (2, 1), 7/√50 = 0.99, and (1, 3), 6/10: list 1, 2, 3, the best again 1.
  CHECK(got.steps[2].heads[0].attended == Positions{0, 1, 9, 10});
  CHECK(got.steps[2].heads[0].counts.scored == 2);  // the queue is no longer than before

  // Two recalled centroids cover all of 1 … 5: the new list has three of them by the step's own scores. Step 0, (2, 1):
  // 8, 7, 6, 5, 4. Steps 1 and 2 then know both queries before them: step 2 recalls what these two left.
  setting.replace(setting.find("retrieved_centroids: 1"), 22, "retrieved_centroids: 2");
  const Selected two = select("ctkvr", setting, centroid_paper());
  CHECK(two.steps[0].heads[0].counts.candidates == 5);
  // Lists 3, 4, 5 of (0, 1) and 1, 2, 3 of (2, 1): all five. (1, 3) scores 4, 6, 8, 10, 12: new list 3, 4, 5.
  CHECK(two.steps[1].heads[0].counts.candidates == 5);
  CHECK(two.steps[1].heads[0].attended == Positions{0, 5, 8, 9});
  CHECK(two.steps[2].heads[0].counts.candidates == 5);
}

TEST_CASE("ctkvr can use tokens that left the window as candidates") {
  Paper paper = centroid_paper();
  paper.keys[12] = 9, paper.keys[13] = 9;  // position 6, which leaves the window at step 0
  const std::string departed = std::string(kCentroids) + ", departed: true";
  // It scores (2, 1)·(9, 9) = 27, but no list holds it.
  CHECK(select("ctkvr", kCentroids, paper).steps[0].heads[0].attended == Positions{0, 1, 7, 8});
  CHECK(select("ctkvr", departed, paper).steps[0].heads[0].attended == Positions{0, 6, 7, 8});
}

TEST_CASE("ctkvr's centroids are at the configured positions") {
  // Queries of all eight positions: (1, 0) at 0 and 1, (0, 1) at 2 … 7. Four of eight evenly: 0, 2, 4, 6.
  Paper paper = centroid_paper();
  paper.prompt_queries = {{1, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}};
  const auto recalled = [&](const char* positions, int centroids) {
    const Selected got =
        select("ctkvr",
               fmt::format("budget: 1, centroids: {}, retrieved_centroids: 1, recall_factor: 3, sink: 1, recent: 2, "
                           "update: false, rerank: false, positions: {}",
                           centroids, positions),
               paper);
    return got.steps[0].heads[0].attended;
  };
  // The step's query (2, 1) takes (1, 0)'s list 1, 2, 3 if there is one, otherwise (0, 1)'s 3, 4, 5.
  CHECK(recalled("first", 1) == Positions{0, 1, 2, 3, 7, 8});
  CHECK(recalled("last", 6) == Positions{0, 3, 4, 5, 7, 8});
  CHECK(recalled("last", 7) == Positions{0, 1, 2, 3, 7, 8});
  CHECK(recalled("uniform", 4) == Positions{0, 1, 2, 3, 7, 8});
  CHECK(recalled("random", 8) == Positions{0, 1, 2, 3, 7, 8});
}

TEST_CASE("ctkvr reports the query that a trace lacks") {
  const std::string error =
      error_of([] { select("ctkvr", "budget: 1, centroids: 3, sink: 1, recent: 2", centroid_paper()); });
  CHECK(error.find("prompt position 5") != std::string::npos);
  CHECK(error.find("3 centroids") != std::string::npos);
}

config::Model eight_heads() {
  config::Model model;
  model.layers = 1, model.n_q_heads = 32, model.n_kv_heads = 8, model.head_dim = 128;
  return model;
}

TEST_CASE("ctkvr has its published sizes and savings") {
  // Section 3.1.1, footnote: 4 KV heads, C = 512, ρ = 2560 (2.5 · 1024), 4 bytes: 4·512·2560·4 = 20 MiB.
  config::Model model = eight_heads();
  model.n_kv_heads = 4;
  const policy::Lengths lengths{100000, 100};
  const auto policy = make("ctkvr", "centroids: 512", lengths);
  for (const policy::MemoryItem& item : policy->memory({&model, 1, 100000, lengths, 0})) {
    if (graph::owner_name(item.owner) == "centroid lists") CHECK(item.bytes == 20.0 * 1024 * 1024);
  }
  // Section 3.1.2: rerank leaves (L_rec + 2·ρ') / (2·L_rec) of the CPU's arithmetic, 0.6 at 10K and 1K.
  model = eight_heads();
  const auto flops = [&](const char* rerank, std::int64_t attended) {
    policy::HeadCounts counts;
    counts.attended = 640, counts.cpu_attended = attended, counts.candidates = 10000, counts.scored = 512;
    const std::vector<policy::HeadCounts> heads(8, counts);
    policy::Recorder ops;
    make("ctkvr", fmt::format("centroids: 512, budget: 1000, update: false, rerank: {}", rerank), lengths)
        ->decode_layer(policy::EqualBatch(model, 0, 1, {100001, lengths}, heads, false), ops);
    double sum = 0;
    for (const graph::Op& op : ops.ops()) {
      if (std::string(op.label) != "rerank" && std::string(op.label) != "attention to recalled tokens") continue;
      sum += std::get<graph::CpuWork>(op.work).items * std::get<graph::CpuWork>(op.work).flops_per_item;
    }
    return sum;
  };
  // Without: 8 heads · 4·4·10000·128 flops.
  CHECK(flops("false", 10000) == 8.0 * 4 * 4 * 10000 * 128);
  CHECK(flops("true", 1000) / flops("false", 10000) == Approx(0.6));
}

TEST_CASE("ctkvr's static attention runs concurrently with the CPU, its update after the rerank") {
  const config::Model model = eight_heads();
  policy::HeadCounts counts;
  counts.attended = 640, counts.cpu_attended = 1000, counts.candidates = 5000, counts.scored = 512;
  counts.evicted = 1;
  const std::vector<policy::HeadCounts> heads(8, counts);
  policy::Recorder recorder;
  make("ctkvr", "centroids: 512, budget: 1000", {100000, 100})
      ->decode_layer(policy::EqualBatch(model, 0, 1, {100001, {100000, 100}}, heads, false), recorder);
  const auto& ops = recorder.ops();
  const auto at = [&](const char* label) { return labelled(ops, label).at(0); };
  CHECK_FALSE(waits_for(ops, at("attention"), at("rerank")));
  CHECK_FALSE(waits_for(ops, at("rerank"), at("attention")));
  CHECK(waits_for(ops, at("rerank"), at("unite lists")));
  CHECK(waits_for(ops, at("merge"), at("attention to recalled tokens")));
  CHECK(waits_for(ops, at("merge"), at("attention")));
  CHECK_FALSE(waits_for(ops, at("merge"), at("replace oldest centroid")));
  // To the host: 8 heads · 5000 positions of 4 bytes, 32 queries of 256 bytes, and the evicted token of 8·2·256. Back:
  // 32·(256 + 4) and the new centroid's lists, 8·2500 positions.
  CHECK(recorder.traffic().d2h == 8 * 5000 * 4 + 32 * 256 + 8 * 2 * 256);
  CHECK(recorder.traffic().h2d == 32 * 260 + 8 * 2500 * 4);
}

TEST_CASE("magicpig in one dimension samples the keys of the query's sign") {
  // A hyperplane of one dimension separates signs only: keys of the query's sign collide in every table, the others in
  // none. Sink 1, recent 1: positions 1 … 4 are hashed, centred on their mean (3 − 1 + 2 − 4) / 4 = 0.
  Paper paper{
      .prompt = 6, .head_dim = 1, .keys = {9, 3, -1, 2, -4, 0, 0, 0}, .prompt_queries = {}, .queries = {{1, -1}}};
  const std::string setting = "sink: 1, recent: 1, hash_bits: 3, hash_tables: 4";
  const Selected got = select("magicpig", setting, paper);
  REQUIRE(got.steps[0].per_query_head);
  CHECK(got.resident.heads[0].attended == Positions{0, 5});
  CHECK(got.steps[0].heads[0].attended == Positions{0, 1, 3, 5, 6});
  CHECK(got.steps[0].heads[0].counts.cpu_attended == 2);
  CHECK(got.steps[0].heads[0].counts.candidates == 2 * 4);  // two keys in each of four buckets
  CHECK(got.steps[1].heads[0].attended == Positions{0, 2, 4, 5, 6, 7});
  CHECK(got.steps[1].heads[0].evicted.empty());
  // Shifted by 10, all keys are positive: without centring the query 1 finds all four, −1 none.
  for (const std::size_t i : {1, 2, 3, 4}) paper.keys[i] += 10;
  CHECK(select("magicpig", setting, paper).steps[0].heads[0].attended == Positions{0, 1, 3, 5, 6});
  const Selected raw = select("magicpig", setting + ", centre: false", paper);
  CHECK(raw.steps[0].heads[0].attended == Positions{0, 1, 2, 3, 4, 5, 6});
  CHECK(raw.steps[1].heads[0].attended == Positions{0, 5, 6, 7});
}

}  // namespace
}  // namespace kvcast::tests

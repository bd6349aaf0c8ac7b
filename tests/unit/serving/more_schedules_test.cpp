// Further schedules of the first set, worked by hand: rules that the worked schedules of the engines do not reach.
#include "worked.hpp"

namespace kvcast::tests {

using namespace serving;

TEST_CASE("vLLM V0, chunked: a prompt takes all its blocks at once, and a decode needs a free one") {
  Rules rules = rules_of_set_1(Engine::kVllmV0, 8);
  rules.vllm_v0.chunked = true;
  // At 2, D's 9 tokens need 3 blocks and 2 are free. At 5, B takes the last block before C's turn. At 7, A does, and
  // there is one left for B.
  same_rows(run(rules, set_1()).table(), {{"A6* B2", "", "", 5},
                                          {"A1* B7", "", "", 5},
                                          {"A1* B1* C5*", "", "", 7},
                                          {"A1* B1* C1*", "", "", 8},
                                          {"A1* B1* C1*", "", "", 8},
                                          {"A1* B1*", "C", "", 7},
                                          {"A1* B1* C6", "", "", 9},
                                          {"A1* B1*", "C", "A B", 8},
                                          {"C8*", "", "", 2},
                                          {"C1* D7", "", "", 6},
                                          {"C1* D2* E4*", "", "", 7},
                                          {"C1* D1* E1*", "", "", 8},
                                          {"C1* D1* E1*", "", "C D", 8},
                                          {"E1*", "", "E", 2}});
}

TEST_CASE("TensorRT-LLM, maximum utilisation: the last started is paused, and whole prompts wait for the budget") {
  Rules rules = rules_of_set_1(Engine::kTrtllm, 16);
  rules.trtllm.max_utilisation = true;
  rules.prefix_caching = false;
  // At 5, C needs a third block and is the last started itself. At 6, D's 9 tokens exceed what A and C leave of 16.
  same_rows(run(rules, set_1()).table(), {{"A6* B10*", "", "", 5},
                                          {"A1* B1* C5*", "", "", 7},
                                          {"A1* B1* C1*", "", "", 7},
                                          {"A1* B1* C1*", "", "", 9},
                                          {"A1* B1* C1*", "", "", 9},
                                          {"A1* B1*", "C", "B", 7},
                                          {"A1* C9*", "", "", 6},
                                          {"A1* C1*", "", "A", 7},
                                          {"C1* D9* E4*", "", "", 7},
                                          {"C1* D1* E1*", "", "C", 8},
                                          {"D1* E1*", "", "D", 5},
                                          {"E1*", "", "E", 2}});
}

TEST_CASE("TensorRT-LLM with its overlap: an ended request runs once more, and its blocks are free after that") {
  Rules rules = rules_of_set_1(Engine::kTrtllm, 8);
  rules.trtllm.chunked_prefill = true;
  rules.in_flight = 2;
  const std::vector<Row> got = run(rules, set_1(1)).table();
  REQUIRE(got.size() > 9);
  same_rows({got.begin() + 7, got.begin() + 10}, {{"A1* B1*", "", "A B", 8}, {"A1 B1", "", "", 8}, {"C5*", "", "", 2}});
}

TEST_CASE("SGLang with its overlap: an arrival waits a pass longer, an ended request runs once more") {
  Rules rules = rules_of_set_1(Engine::kSglang, 8);
  rules.block = 1;
  rules.blocks = 34;
  rules.sglang.ratio = 0.5;
  rules.in_flight = 2;
  // C arrives at 1, when B3 is composed already.
  same_rows(run(rules, requests({{0, 4, 3}, {0, 7, 2}, {1, 3, 4}})).table(), {{"A4* B4", "", "", 8},
                                                                              {"B3*", "", "", 11},
                                                                              {"C3*", "", "", 14},
                                                                              {"A1* B1* C1*", "", "B", 17},
                                                                              {"A1* B1 C1*", "", "A", 20},
                                                                              {"A1 C1*", "", "C", 13},
                                                                              {"C1", "", "", 7}});
}

TEST_CASE("SGLang, mixed chunks: decodes join the passes that read, and take of their budget") {
  Rules rules = rules_of_set_1(Engine::kSglang, 8);
  rules.block = 1;
  rules.blocks = 34;
  rules.sglang.ratio = 0.5;
  rules.sglang.mixed_chunk = true;
  const auto set_2 = requests({{0, 4, 8}, {0, 7, 8}, {1, 3, 8}, {2, 6, 3}, {3, 3, 4}});
  const std::vector<Row> got = run(rules, set_2).table();
  REQUIRE(got.size() == 17);
  // At 1, C needs 3 + 8 = 11 and 26 − 1 − 3.5 − 11 = 10.5 are left: full, until 8 drops A. At 9 B has ended, but
  // counts.
  same_rows({got.begin(), got.begin() + 3}, {{"A4* B4", "", "", 8}, {"A1* B3*", "", "", 12}, {"A1* B1*", "", "", 14}});
  same_rows({got.begin() + 7, got.begin() + 11},
            {{"A1* B1*", "", "A", 24}, {"B1*", "", "B", 14}, {"C3* D4", "", "", 7}, {"C1* D2* E3*", "", "", 13}});
}

TEST_CASE("static batches: ended requests run along until the last of the batch ends") {
  Rules rules = rules_of_set_1(Engine::kStatic, 8);
  rules.max_num_seqs = 2;
  // B has its 6 outputs at 6 and grows to 10 + 7 tokens, 5 blocks.
  const std::vector<Row> got = run(rules, set_1()).table();
  REQUIRE(got.size() == 22);
  same_rows({got.begin(), got.begin() + 11}, {{"A6* B2", "", "", 3},
                                              {"B8*", "", "", 5},
                                              {"A1* B1*", "", "", 5},
                                              {"A1* B1*", "", "", 5},
                                              {"A1* B1*", "", "", 7},
                                              {"A1* B1*", "", "", 7},
                                              {"A1* B1*", "", "B", 7},
                                              {"A1* B1", "", "", 7},
                                              {"A1* B1", "", "A", 9},
                                              {"C5* D3", "", "", 3},
                                              {"D6*", "", "", 5}});
}

TEST_CASE("vLLM V1 with prompts that are read alone") {
  Rules rules = rules_of_set_1(Engine::kVllmV1, 8);
  rules.prompts = Prompts::kAlone;
  // C finds its 2 blocks at 8. D loses its third block to A at 11, and finds the other two.
  same_rows(run(rules, set_1()).table(), {{"A6*", "", "", 2},
                                          {"B10*", "", "", 5},
                                          {"C5*", "", "", 7},
                                          {"A1* B1* C1*", "", "", 7},
                                          {"A1* B1* C1*", "", "", 7},
                                          {"A1* B1* C1*", "", "", 9},
                                          {"A1* B1*", "C", "", 7},
                                          {"A1* B1*", "", "B", 7},
                                          {"C1*", "", "", 6},
                                          {"D9*", "", "", 9},
                                          {"A1* C1* D1*", "", "", 9},
                                          {"A1* C1*", "D", "A", 7},
                                          {"D3*", "", "D", 6},
                                          {"E4*", "", "", 4},
                                          {"C1* E1*", "", "C", 5},
                                          {"E1*", "", "", 2},
                                          {"E1*", "", "E", 2}});
}

TEST_CASE("a policy that evicts shrinks after its prompt, and reads it again in full") {
  // Reading takes a block for 4 tokens, decoding 1 block for the 4 tokens kept of the prompt and 1 for 4 outputs.
  class Keeps4 final : public Footprint {
   public:
    std::int64_t reading(std::int64_t tokens) const override { return (tokens + 3) / 4; }
    std::int64_t decoding(std::int64_t known, std::int64_t tokens) const override {
      return 1 + (tokens - known + 3) / 4;
    }
  };
  Rules rules = rules_of_set_1(Engine::kVllmV1, 32);
  rules.blocks = 6;
  ListedRequests source(requests({{0, 12, 9}, {1, 12, 9}}));
  LinearTimes times;
  EventRecorder seen(true);
  const auto footprint = std::make_shared<Keeps4>();
  serve(
      source, times, rules, [&](const traffic::Request&) { return footprint; }, seen);
  // A: 3 blocks, then 1 + 1, from its 6th output on 1 + 2. B fits at 1 as A has shrunk: 2 + 3.
  const std::vector<Row> got = seen.table();
  REQUIRE(got.size() == 10);
  same_rows({got.begin(), got.begin() + 7}, {{"A12*", "", "", 3},
                                             {"A1* B12*", "", "", 5},
                                             {"A1* B1*", "", "", 4},
                                             {"A1* B1*", "", "", 4},
                                             {"A1* B1*", "", "", 4},
                                             {"A1* B1*", "", "", 5},
                                             {"A1* B1*", "", "", 6}});
}

}  // namespace kvcast::tests

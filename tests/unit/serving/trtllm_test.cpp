// Worked schedules of TensorRT-LLM.
#include "worked.hpp"

namespace kvcast::tests {

using namespace serving;

namespace {

Rules trtllm_rules() {
  Rules made = rules_of_set_1(Engine::kTrtllm, 8);
  made.trtllm.chunked_prefill = true;
  made.max_num_seqs = 8;
  return made;
}

}  // namespace

TEST_CASE("TensorRT-LLM without eviction: the worked schedule") {
  same_rows(run(trtllm_rules(), set_1()).table(), {{"A6*", "", "", 2},
                                                   {"A1* B4", "", "", 5},
                                                   {"A1* B6*", "", "", 5},
                                                   {"A1* B1*", "", "", 6},
                                                   {"A1* B1*", "", "", 6},
                                                   {"A1* B1*", "", "", 7},
                                                   {"A1* B1*", "", "", 7},
                                                   {"A1* B1*", "", "A B", 8},
                                                   {"C5*", "", "", 2},
                                                   {"C1* D4", "", "", 5},
                                                   {"C1* D5*", "", "", 5},
                                                   {"C1* D1* E4*", "", "", 6},
                                                   {"C1* D1* E1*", "", "D", 8},
                                                   {"C1* E1*", "", "", 5},
                                                   {"C1* E1*", "", "E", 5},
                                                   {"C1*", "", "C", 3}});
}

TEST_CASE("TensorRT-LLM finds blocks of prompts that have been read, and waits for those that are") {
  // B begins as A for 12 tokens. Its first block is the one that A computes, so that it waits until all of A is read,
  // of which 15 tokens count: 3 blocks.
  auto pair = requests({{0, 16, 2}, {0, 16, 1}});
  pair[0].content = {{1, 16}};
  pair[1].content = {{1, 12}, {2, 4}};
  Rules rules = trtllm_rules();
  rules.blocks = 100;
  const EventRecorder seen = run(rules, pair);
  same_rows(seen.table(), {{"A8", "", "", 4}, {"A8*", "", "", 4}, {"A1* B4*", "", "A B", 6}});
  CHECK(seen.of(1).hit_tokens == 12);
  rules.prefix_caching = false;
  CHECK(run(rules, pair).of(1).hit_tokens == 0);
}

TEST_CASE("TensorRT-LLM finds blocks of answers once they have ended") {
  // 8 + 5 tokens, of which the last is never read: 3 blocks.
  auto turns = requests({{0, 8, 5}, {20, 16, 1}});
  turns[0].content = {{1, 8}}, turns[0].answer_key = 9;
  turns[1].content = {{1, 8}, {9, 5}, {2, 3}};
  Rules rules = trtllm_rules();
  rules.blocks = 100;
  CHECK(run(rules, turns).of(1).hit_tokens == 12);
}

}  // namespace kvcast::tests

// Worked schedules of SGLang. Blocks are tokens; they are in use when the pass is composed, before its ends.
#include "worked.hpp"

namespace kvcast::tests {

using namespace serving;

namespace {

std::vector<traffic::Request> set_2() { return requests({{0, 4, 8}, {0, 7, 8}, {1, 3, 8}, {2, 6, 3}, {3, 3, 4}}); }

Rules sglang_rules() {
  Rules made = Rules::of(Engine::kSglang);
  made.max_num_seqs = 4;
  made.max_num_batched_tokens = 8;
  made.blocks = 34;
  made.sglang.ratio = 0.5;
  made.in_flight = 1;
  made.skip = false;
  return made;
}

}  // namespace

TEST_CASE("SGLang 0.5.2: the worked schedule") {
  same_rows(run(sglang_rules(), set_2()).table(), {{"A4* B4", "", "", 8},
                                                   {"B3* C3*", "", "", 14},
                                                   {"D6*", "", "", 20},
                                                   {"A1* B1* C1* D1*", "", "", 24},
                                                   {"A1* B1* C1* D1*", "", "D", 28},
                                                   {"A1* B1* C1*", "", "", 23},
                                                   {"A1* B1* C1*", "", "", 26},
                                                   {"A1* B1* C1*", "", "", 29},
                                                   {"A1* B1* C1*", "", "", 32},
                                                   {"A1* C1*", "B", "A C", 21},
                                                   {"B5 E3*", "", "", 8},
                                                   {"B8", "", "", 16},
                                                   {"B1*", "", "B", 17},
                                                   {"E1*", "", "", 4},
                                                   {"E1*", "", "", 5},
                                                   {"E1*", "", "E", 6}});
}

TEST_CASE("SGLang to 0.4.9 retracts until 20 steps fit") {
  Rules with = sglang_rules();
  with.sglang.retract_steps = 20;
  const std::vector<Row> got = run(with, set_2()).table();
  REQUIRE(got.size() == 17);
  same_rows({got.begin() + 9, got.end()}, {{"C1*", "A B", "C", 10},
                                           {"B5 E3*", "", "", 8},
                                           {"B8", "", "", 16},
                                           {"B1*", "", "B", 17},
                                           {"A7*", "", "A", 14},
                                           {"E1*", "", "", 4},
                                           {"E1*", "", "", 5},
                                           {"E1*", "", "E", 6}});
}

TEST_CASE("SGLang of 2026 reserves a page more, and retracts nobody") {
  Rules with = sglang_rules();
  with.sglang.page_margin = true;
  const std::vector<Row> got = run(with, set_2()).table();
  std::vector<std::string> work;
  for (const Row& row : got) {
    work.push_back(row.work + (row.ended.empty() ? "" : ", ends " + row.ended));
    CHECK(row.preempted.empty());
  }
  CHECK(work == std::vector<std::string>{"A4* B4", "B3*", "A1* B1*", "A1* B1*", "A1* B1*", "A1* B1*", "A1* B1*",
                                         "A1* B1*", "A1* B1*, ends A B", "C3* D5", "D1* E3*", "C1* D1* E1*",
                                         "C1* D1* E1*, ends D", "C1* E1*, ends E", "C1*", "C1*", "C1*", "C1*, ends C"});
}

}  // namespace kvcast::tests

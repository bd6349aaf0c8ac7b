// Worked schedules of vLLM V1.
#include <catch2/catch.hpp>

#include "worked.hpp"

namespace kvcast::tests {

using namespace serving;

namespace {

Rules v1_rules(bool gate, bool caching, std::int64_t in_flight = 1) {
  Rules made = rules_of_set_1(Engine::kVllmV1, 8);
  made.full_prompt_gate = gate;
  made.prefix_caching = caching;
  made.in_flight = in_flight;
  return made;
}

// Rows 0 to 7 and 8 to 13 of the old gate without a prefix cache.
const std::vector<Row> kFirst = {{"A6* B2", "", "", 3},       {"A1* B7", "", "", 5},      {"A1* B1* C5* D1", "", "", 8},
                                 {"A1* B1* C1*", "D", "", 8}, {"A1* B1* C1*", "", "", 8}, {"A1* B1* C1*", "", "", 9},
                                 {"A1* B1*", "C", "", 7},     {"A1* B1*", "", "A B", 8}};
const std::vector<Row> kLast = {{"C8", "", "", 2},          {"C1* D7", "", "", 5},         {"C1* D2* E4*", "", "", 7},
                                {"C1* D1* E1*", "", "", 8}, {"C1* D1* E1*", "", "C D", 8}, {"E1*", "", "E", 2}};

std::vector<Row> join(std::vector<Row> first, const std::vector<Row>& last) {
  first.insert(first.end(), last.begin(), last.end());
  return first;
}

// D, with the gate, is not admitted at 2 and so not preempted at 3.
std::vector<Row> gated_first() {
  std::vector<Row> rows = kFirst;
  rows[2] = {"A1* B1* C5*", "", "", 7};
  rows[3] = {"A1* B1* C1*", "", "", 8};
  return rows;
}

const std::vector<Row> kCached = {{"C5* D3", "", "", 4},         {"C1* D6* E1", "", "", 7}, {"C1* D1* E3*", "", "", 7},
                                  {"C1* D1* E1*", "", "C D", 8}, {"E1*", "", "", 2},        {"E1*", "", "E", 2}};

}  // namespace

TEST_CASE("vLLM V1, gate of a chunk: the worked schedule") {
  const auto seen = run(v1_rules(false, false), set_1());
  same_rows(seen.table(), join(kFirst, kLast));
  const Picoseconds first[] = {0, 2, 2, 10, 10};  // passes
  for (const std::int64_t id : {0, 1, 2, 3, 4}) CHECK(seen.of(id).first_token == (first[id] + 1) * kUnit);
  for (const std::int64_t id : {0, 1, 4}) CHECK(seen.of(id).preemptions == 0);
  for (const std::int64_t id : {2, 3}) CHECK(seen.of(id).preemptions == 1);
  CHECK(seen.of(2).recomputed_tokens == 8);  // 5 of the prompt and 3 of 4 outputs
}

TEST_CASE("vLLM V1, gate of the whole prompt: the worked schedule") {
  const auto seen = run(v1_rules(true, false), set_1());
  same_rows(seen.table(), join(gated_first(), kLast));
  CHECK(seen.of(3).preemptions == 0);
  CHECK(seen.of(2).preemptions == 1);
}

TEST_CASE("vLLM V1 with a prefix cache: a preempted request finds its own blocks") {
  const auto old_gate = run(v1_rules(false, true), set_1());
  same_rows(old_gate.table(), join(kFirst, kCached));
  CHECK(old_gate.of(2).recomputed_tokens == 4);  // 8 less the block that was found
  CHECK(old_gate.of(2).hit_tokens == 0);
  same_rows(run(v1_rules(true, true), set_1()).table(), join(gated_first(), kCached));
}

TEST_CASE("vLLM V1 with two passes in flight: the same rows, for arrivals one pass earlier") {
  std::vector<Row> last = kLast;
  last.back().used = 8;  // composed before C and D have ended, whose blocks are then in use
  same_rows(run(v1_rules(false, false, 2), set_1(1)).table(), join(kFirst, last));
  same_rows(run(v1_rules(true, false, 2), set_1(1)).table(), join(gated_first(), last));
}

}  // namespace kvcast::tests

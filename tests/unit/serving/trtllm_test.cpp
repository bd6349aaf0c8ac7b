// Worked schedules of TensorRT-LLM.
#include "worked.hpp"

using namespace kvcast;
using namespace kvcast::serving;
using namespace kvcast::serving::testing;

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

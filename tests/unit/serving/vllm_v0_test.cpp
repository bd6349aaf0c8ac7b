// Worked schedules of vLLM V0.
#include "worked.hpp"

namespace kvcast::tests {

using namespace serving;

TEST_CASE("vLLM V0, prompts or decodes: the worked schedule") {
  same_rows(run(rules_of_set_1(Engine::kVllmV0, 32), set_1()).table(), {{"A6* B10*", "", "", 5},
                                                                        {"C5*", "", "", 7},
                                                                        {"A1* B1* C1*", "", "", 7},
                                                                        {"A1* B1* C1*", "", "", 7},
                                                                        {"A1* B1*", "C", "", 7},
                                                                        {"C8*", "", "", 9},
                                                                        {"A1* B1*", "C", "", 7},
                                                                        {"A1* B1*", "", "B", 7},
                                                                        {"C9* D9*", "", "", 9},
                                                                        {"A1* C1*", "D", "", 6},
                                                                        {"D10*", "", "", 9},
                                                                        {"A1* C1*", "D", "A", 7},
                                                                        {"D11* E4*", "", "D", 7},
                                                                        {"C1* E1*", "", "C", 5},
                                                                        {"E1*", "", "", 2},
                                                                        {"E1*", "", "E", 2}});
}

}  // namespace kvcast::tests

// Work of prompts under policies that attend to chosen tokens only, and budgets that choose none. Two sequences, 4
// query heads on 2 KV heads of 8 numbers.
#include <catch2/catch.hpp>

#include "config/model.hpp"
#include "support/error_of.hpp"
#include "unit/policy/two_sequences.hpp"

namespace kvcast::tests {
namespace {

TEST_CASE("the first queries of a prompt attend to fewer tokens than DSA's budget") {
  const auto prompt = [](const char* name, const char* setting, std::int64_t start, std::int64_t end) {
    const config::Model model = small_model();
    policy::Recorder ops;
    make(name, setting, kHundred)->prefill_attention({&model, 0, 2, start, end, static_cast<double>(start), 1}, ops);
    return std::vector<graph::Op>(ops.ops().begin(), ops.ops().end());
  };
  const auto flops = [&](const char* name, const char* setting, std::int64_t start, std::int64_t end) {
    return std::get<graph::PrefillAttention>(only(prompt(name, setting, start, end), "prefill attention").work).flops;
  };
  const double of_pair = 2 * 4 * 4 * 8;  // two sequences of four query heads, two products of eight numbers
  CHECK(flops("dsa", "budget: 20", 0, 100) == Approx(of_pair * (20 * 21 / 2 + 80 * 20)));
  CHECK(flops("dsa", "budget: 20", 10, 40) == Approx(of_pair * (20 * 21 / 2 - 10 * 11 / 2 + 20 * 20)));
  CHECK(flops("dsa", "budget: 20", 50, 60) == Approx(of_pair * 10 * 20));
  CHECK(flops("msa", "budget: 32, block: 16", 0, 100) == Approx(of_pair * (32 * 33 / 2 + 68 * 32)));
  // Queries choose as soon as one sees more than its budget.
  CHECK(labelled(prompt("dsa", "budget: 20", 0, 20), "index scores").empty());
  CHECK(flops("dsa", "budget: 20", 0, 20) == Approx(of_pair * 20 * 21 / 2));
  CHECK(labelled(prompt("dsa", "budget: 20", 0, 21), "index scores").size() == 1);
}

TEST_CASE("budgets that select nothing are refused in words") {
  const auto refused = [](const char* name, const char* setting) {
    return error_of([&] { make(name, setting, kHundred); });
  };
  CHECK_THAT(refused("shadowkv", "budget: 4"),
             Catch::Contains("budget (4 tokens) is smaller than one page (8 tokens)"));
  CHECK_THAT(refused("streaming_llm", "budget: 1"), Catch::Contains("budget (1) is smaller than sink (4)"));
  CHECK_THAT(refused("dsa", "budget: 20, index_share_from: 2"),
             Catch::Contains("index_share_from has no effect without an index_share above 1"));
}

}  // namespace
}  // namespace kvcast::tests

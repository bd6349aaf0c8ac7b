// Predictions of measured kernels of recurrences, and what is refused in their tables.
#include <catch2/catch.hpp>

#include <fstream>

#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"
#include "validate/recurrences.hpp"

namespace kvcast::tests {

using namespace validate;

namespace {

const std::string kColumns =
    "framework,kind,heads,key_heads,key_dim,value_dim,phase,sequences,tokens,us,fitted,kernel\n";

Suite suite_of_rows(const std::string& rows, const std::string& columns = kColumns) {
  const TemporaryDirectory folder;
  std::ofstream(folder.path() + "/h200.csv") << columns << rows;
  return recurrences_suite(folder.path());
}
std::string refusal_of_rows(const std::string& rows, const std::string& columns = kColumns) {
  return error_of([&] { suite_of_rows(rows, columns); });
}

TEST_CASE("prompts of a recurrence take a chunk's time for each 64 tokens, and rounds over the SMs") {
  const Suite suite = suite_of_rows(
      "vllm,gated_delta,32,16,128,128,prompt,1,6400,100,yes,a\n"
      "vllm,gated_delta,32,16,128,128,prompt,1,12800,100,no,b\n"
      "vllm,gated_delta,32,16,128,128,prompt,8,6400,100,no,c\n"
      "vllm,kimi_delta,32,32,128,128,prompt,1,12800,100,no,d\n");
  REQUIRE(suite.cases.size() == 4);
  const auto us = [&](std::size_t i) { return *suite.cases[i].predicted; };
  CHECK(us(1) - us(0) == Approx(100 * 3.0));        // chunks
  CHECK(us(2) - us(0) == Approx(100 * 3.0));        // 256 heads are two rounds over 132 SMs
  CHECK(us(3) - us(1) == Approx(200 * 3.0 * 0.8));  // each channel decays on its own
  CHECK_FALSE(suite.cases[0].held_out);
  CHECK(suite.cases[1].held_out);
  CHECK(suite.cases[0].depends_on.find("scan_chunk") != std::string::npos);
}

TEST_CASE("a step of a recurrence takes as long as its states cross the memory") {
  const Suite suite = suite_of_rows(
      "vllm,gated_delta,48,16,128,128,step,256,1,397.6,no,a\nvllm,gated_delta,48,16,128,128,step,512,1,789.1,no,b\n");
  // The states of 256 more sequences, 48 · 128 · 128 numbers of 4 bytes each, are read and written at 4.8 TB/s or less,
  // and with them inputs and outputs.
  const double floor = 256 * (2.0 * 48 * 128 * 128 * 4 + (2 * 16 + 2 * 48) * 128 * 2) / 4.8e12 * 1e6;
  const double more = *suite.cases[1].predicted - *suite.cases[0].predicted;
  CHECK(more > floor);
  CHECK(more < 1.2 * floor);
}

TEST_CASE("rows of recurrences that cannot be read are refused where they stand") {
  using Catch::Contains;
  const std::string good = "vllm,gated_delta,32,16,128,128,";
  CHECK_THAT(refusal_of_rows(good + "prompt,1,x,100,no,a\n"),
             Contains("h200.csv:2:41: tokens: expected a number from 1"));
  CHECK_THAT(refusal_of_rows(good + "prompt,0,64,100,no,a\n"), Contains("sequences"));
  CHECK_THAT(refusal_of_rows(good + "prompt,1,64,nan,no,a\n"), Contains("us: expected a number"));
  CHECK_THAT(refusal_of_rows(good + "chunk,1,64,100,no,a\n"), Contains("\"chunk\" is neither prompt nor step"));
  CHECK_THAT(refusal_of_rows(good + "step,1,64,100,maybe,a\n"), Contains("neither no nor yes"));
  CHECK_THAT(refusal_of_rows("vllm,rwkv,32,16,128,128,step,1,1,100,no,a\n"), Contains("h200.csv:2:6: kind: unknown"));
  CHECK_THAT(refusal_of_rows("vlm,gated_delta,32,16,128,128,step,1,1,100,no,a\n"), Contains("vllm"));
  CHECK_THAT(refusal_of_rows(good + "step,1,1,100,no\n"), Contains("h200.csv:2"));
  CHECK_THAT(refusal_of_rows("", "framework,kind\n"), Contains("the column \"heads\" is missing"));
  CHECK_THROWS_WITH(recurrences_suite("/nowhere"), Contains("no table of measured recurrences"));
}

}  // namespace
}  // namespace kvcast::tests

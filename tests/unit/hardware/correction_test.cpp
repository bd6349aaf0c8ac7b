// The optional factor of a profile on decode attention: values by hand on the round machine, and reading it.
#include <cmath>

#include "config/section.hpp"
#include "hardware/work.hpp"
#include "support/error_of.hpp"
#include "unit/hardware/support.hpp"

namespace kvcast::tests {

using Catch::Matchers::Contains;

namespace {

// Two groups, two rows, two lengths: 10, 20 / 30, 40 % with groups of 4, twice that with groups of 16.
config::AttentionCorrection lattice(bool repeated = false) {
  return {{100, 400}, {100, 1600}, {4, 16}, {0.1, 0.2, 0.3, 0.4, 0.2, 0.4, 0.6, 0.8}, repeated, "made up"};
}

graph::DecodeAttention work_of(double rows, double tokens, double group) {
  graph::DecodeAttention work;
  work.rows = rows, work.group = group, work.head_dim = 125;
  work.tokens = rows * tokens, work.longest = tokens;
  return work;
}

double factor(double rows, double tokens, double group) {
  return hardware::attention_factor(lattice(), work_of(rows, tokens, group));
}

// Seconds of 200 rows of 100 tokens with this excess at every node.
double seconds(double excess, bool repeated, double tokens = 100, bool warm = false) {
  config::Hardware machine = round_machine();
  machine.gpu.attention_correction = lattice(repeated);
  for (double& node : machine.gpu.attention_correction->excess) node = excess;
  graph::DecodeAttention work = work_of(200, tokens, 4);
  work.warm = warm;
  return hardware::CostModel(machine, framework(config::Framework::Launch::kCudaGraph)).cost(op_of(work)).alone;
}

config::AttentionCorrection read(const std::string& text) {
  config::Section section(config::parse_yaml(text, "correction.yaml"), "attention_correction");
  return config::read_attention_correction(section);
}

}  // namespace

TEST_CASE("the factor is linear in the logarithms between the nodes") {
  CHECK(factor(100, 100, 4) == Approx(1.1));
  CHECK(factor(400, 1600, 16) == Approx(1.8));
  CHECK(factor(200, 100, 4) == Approx(1.2));   // half-way from 10 to 30 %
  CHECK(factor(100, 400, 4) == Approx(1.15));  // half-way from 10 to 20 %
  CHECK(factor(200, 400, 4) == Approx(1 + (10 + 20 + 30 + 40) / 400.0));
  CHECK(factor(200, 400, 8) == Approx(1 + 1.5 * 0.25));  // half-way to the double
}

TEST_CASE("beyond the lattice the factor fades to 1 within an octave") {
  CHECK(factor(800, 1600, 16) == 1);                           // an octave
  CHECK(factor(400 * std::sqrt(2), 1600, 16) == Approx(1.4));  // half of one leaves half of 80 %
  CHECK(factor(400 * std::sqrt(2), 1600, 16 * std::sqrt(2)) == Approx(1.2));
  CHECK(factor(100 / std::sqrt(2), 100, 4) == Approx(1.05));
  CHECK(factor(100, 10, 4) == 1);
}

TEST_CASE("the factor applies to the kernel and not to the gap before it") {
  // kernels_test.cpp: 1 gap + 10 floor + 4.5 parts + 12.5 pairs + 0.5 others. 1.2 times 27.5 and the gap: 34 us.
  CHECK(seconds(0, false) == us(28.5));
  CHECK(seconds(0.2, false) == us(34));
  CHECK(seconds(-0.2, false) == us(23));
}

TEST_CASE("factors measured on pairs in the L2 are not applied to pairs in memory") {
  // 200 rows of 100 tokens are 10 MB, half of the L2: a benchmark finds all of them there.
  CHECK(seconds(0.2, true) == us(28.5));
  // Half of 20 MB is found: half of the factor. Two parts a row, 400 in 4 rounds: 8 + 0.5 us, 5 us merged, 25 us of
  // pairs and 0.5 us of others make 49 us.
  CHECK(seconds(0, true, 200) == us(1 + 10 + 5 + 8.5 + 25 + 0.5));
  CHECK(seconds(0.2, true, 200) == us(1 + 1.1 * 49));
  // The benchmark itself: 10 MB at 4 TB/s are 2.5 us, with others 3, less than the 3.2 us of its products (160 MFLOP).
  CHECK(seconds(0.2, true, 100, true) == us(1 + 1.2 * (10 + 4.5 + 3.2)));
}

TEST_CASE("no factor makes reads faster than the memory") {
  // 10 MB at 1 TB/s take 10 us.
  CHECK(seconds(-0.9, false) == us(1 + 10));
}

TEST_CASE("a correction is read as written") {
  const config::AttentionCorrection c = read(
      "{rows: [8, 16], tokens: [2, 4, 8], groups: [4], percent: [[[1, 2, 3], [-4, 5.5, 6]]], repeated: true, "
      "source: made up}");
  CHECK(c.at(0, 0, 2) == Approx(0.03));
  CHECK(c.at(0, 1, 0) == Approx(-0.04));
  CHECK(c.at(0, 1, 1) == Approx(0.055));
  CHECK(c.repeated);
  config::AttentionCorrection other = c;
  other.excess[4] = 0;
  CHECK(config::canonical(other) != config::canonical(c));
  other = c, other.repeated = false;
  CHECK(config::canonical(other) != config::canonical(c));
}

TEST_CASE("lists that do not fit their axes are rejected with their location") {
  const auto error = [](const std::string& percent, const std::string& rows = "[8, 16]") {
    return error_of([&] {
      read("rows: " + rows + "\ntokens: [2, 4]\ngroups: [4]\nrepeated: true\nsource: s\npercent: " + percent + "\n");
    });
  };
  CHECK(error("[[[1, 2], [3, 4]]]") == "no error");
  CHECK_THAT(error("[[[1, 2]]]"), Contains("correction.yaml:6:11") && Contains("a list of 2") && Contains("`rows`"));
  CHECK_THAT(error("[[[1, 2], [3]]]"), Contains("a list of 2") && Contains("`tokens`"));
  CHECK_THAT(error("[[1, 2], [3, 4]]"), Contains("a list of 1") && Contains("`groups`"));
  CHECK_THAT(error("7"), Contains("`groups`"));
  CHECK_THAT(error("[[[1, 2], [3, -100]]]"), Contains("out of range"));
  CHECK_THAT(error("[[[1, 2], [3, much]]]"), Contains("percent"));
  CHECK_THAT(error("[[[1, 2], [3, 4]]]", "[16, 8]"), Contains("rows: must ascend"));
  CHECK_THAT(error("[]", "[]"), Contains("at least one"));
  CHECK_THAT(error_of([] { read("{rows: [1], tokens: [1], groups: [1], percent: [[[0]]], repeated: true}"); }),
             Contains("source"));
}

}  // namespace kvcast::tests

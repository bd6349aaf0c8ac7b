// Policies that store pairs in a few bits.
#include <catch2/catch.hpp>
#include <cmath>

#include "paper.hpp"
#include "policies/kivi.hpp"
#include "policy/recorder.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {
namespace {

TEST_CASE("quantisation rounds to evenly spaced levels, by hand") {
  // 2 bits: four levels from 0 to 3·0.5 = 1.5: 0, 0.5, 1, 1.5. 0.3 / 0.5 = 0.6 → 1; 1.2 / 0.5 = 2.4 → 2.
  float x[] = {0, 0.3f, 1.2f, 1.5f};
  policy::quantise(x, 4, 1, 2);
  CHECK(x[0] == 0);
  CHECK(x[1] == Approx(0.5));
  CHECK(x[2] == Approx(1.0));
  CHECK(x[3] == Approx(1.5));
  // 1 bit, every second number: 2 and 6, of which 3 is nearer to 2. The numbers between them are unchanged.
  float y[] = {2, 9, 3, 9, 6};
  policy::quantise(y, 3, 2, 1);
  CHECK(y[1] == 9);
  CHECK(y[2] == 2);
  CHECK(y[4] == 6);
  float flat[] = {5, 5};  // no spread: no rounding
  policy::quantise(flat, 2, 1, 1);
  CHECK(flat[1] == 5);
}

TEST_CASE("kivi packs keys in blocks and values singly, by hand") {
  policy::KiviSetting s;
  s.residual = 4, s.group = 2;
  // Keys: 4·⌊(n − 1) / 4⌋. Values: n − 5.
  CHECK(s.packed_keys(4) == 0);
  CHECK(s.packed_keys(5) == 4);
  CHECK(s.packed_keys(8) == 4);
  CHECK(s.packed_keys(9) == 8);
  CHECK(s.packed_values(5) == 0);
  CHECK(s.packed_values(9) == 4);
  // 2 bits and 4 bytes for two: 2.25 bytes an element (the group is too small to pay). Nine tokens of 8 dimensions:
  // 8·(8·2.25 + 4·2.25 + (18 − 12)·2) = 8·(27 + 12) = 312.
  CHECK(s.bytes(9, 8) == Approx(312));
  // The published saving of 2 bits is 1 − 2/16 = 0.875; a scale and a minimum to 32 elements leave 1 − (0.25 + 0.125) /
  // 2 = 0.8125. One bit: 0.9375, and 0.875 with them.
  s.group = 32;
  CHECK(1 - s.packed_bytes(2) / 2 == Approx(0.8125));
  CHECK(1 - s.packed_bytes(1) / 2 == Approx(0.875));
}

TEST_CASE("kivi attends with quantised keys and values, by hand") {
  // One dimension, blocks and groups of 2, 1 bit: at the fifth token keys of four tokens are packed, values of two.
  // Keys (0 1) (1 0) are their own levels; all scores with the query 0 are 0 anyway, so that the output is the mean of
  // the values: 4 and 2 (one channel: each its own minimum and maximum, kept as it is), 0, 0, 4: 10 / 5 = 2.
  const Paper paper{.prompt = 4,
                    .head_dim = 1,
                    .keys = {0, 1, 1, 0, 7},
                    .prompt_queries = {},
                    .queries = {{0}},
                    .values = {4, 2, 0, 0, 4}};
  const std::string setting = "key_bits: 1, value_bits: 1, quant_group: 2, residual: 2";
  CHECK(select("kivi", setting, paper).steps[0].heads[0].attended == Positions{0, 1, 2, 3, 4});
  REQUIRE(last_output("kivi", setting, paper).size() == 1);
  CHECK(last_output("kivi", setting, paper)[0] == Approx(2));
}

TEST_CASE("kivi's rounded keys and values affect the output, by hand") {
  // Two dimensions, R = 3 = group, 1 bit, four tokens: keys of three are packed, values of none.
  // Channel 0 holds 0, ln 2, 3·ln 2 → 0, 0, 3·ln 2 (0.33 rounds to 0); channel 1 is 0. Query (√2, 0): weights 1 1 8
  // and, for the current token, 1 of 11. Values in dimension 0: 0 11 0 11: (11 + 11) / 11 = 2. Exact keys would give
  // weights 1 2 8 1 of 12: 33/12.
  const float l = std::log(2.0f), root = std::sqrt(2.0f);
  Paper paper{.prompt = 3,
              .head_dim = 2,
              .keys = {0, 0, l, 0, 3 * l, 0, 0, 0},
              .prompt_queries = {},
              .queries = {{root, 0}},
              .values = {0, 0, 11, 0, 0, 0, 11, 0}};
  CHECK(last_output("kivi", "key_bits: 1, quant_group: 3, residual: 3", paper)[0] == Approx(2));
  // Nothing is packed in a residual of all tokens: the attention is the trace's own.
  CHECK(last_output("kivi", "quant_group: 2, residual: 4", paper).empty());
  // R = 1 and groups of one: every group is its own minimum, so that packing changes nothing.
  paper.values = {0, 0, 11, 5, 0, 0, 11, 5};
  CHECK(last_output("kivi", "value_bits: 1, quant_group: 1, residual: 1", paper)[0] == Approx(33.0 / 12));
  CHECK(error_of([&] { select("kivi", "quant_group: 2, residual: 3", paper); }).find("multiple") != std::string::npos);
}

TEST_CASE("kivi's attention reads packed bytes, by hand") {
  // One KV head of 8 dimensions, 100 tokens, R = 32 = group, 2 bits: keys of 96 and values of 67 are packed, at 0.25 +
  // 0.125 bytes: 8·((96 + 67)·0.375 + (200 − 163)·2) = 8·(61.125 + 74) = 1081.
  config::Model model;
  model.layers = 1, model.n_q_heads = 1, model.n_kv_heads = 1, model.head_dim = 8;
  const auto policy = make("kivi", "", {90, 10});
  const std::vector<policy::HeadCounts> heads = {{.attended = 100, .attended_runs = 1}};
  policy::Recorder ops;
  policy->decode_layer(policy::EqualBatch(model, 0, 1, {100, {90, 10}}, heads, false), ops);
  CHECK(ops.traffic().kv_read == Approx(1081));
  // Its memory is the same.
  CHECK(policy->memory({&model, 1, 100, {90, 10}, 100})[0].bytes == Approx(1081));
}

}  // namespace
}  // namespace kvcast::tests

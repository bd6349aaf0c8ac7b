// Attention and storage by the format of the cache: vLLM's kernel for TurboQuant, and layers that keep 16 bits.
#include <catch2/catch.hpp>

#include "policy/costs.hpp"
#include "support/select.hpp"
#include "unit/policy/small_model.hpp"

namespace kvcast::tests {

using namespace policy;

namespace {

constexpr Lengths kRequest{100, 20};

TEST_CASE("TurboQuant's kernel unpacks pairs once for each query head, in tiles of four tokens") {
  // Two sequences of 100 tokens, 2 KV heads of 8 numbers with 2 query heads each. Keys and values in 3 bits: 20 + 15
  // instructions, each in the place of two FLOP. A 32nd of a sequence has 4 tokens, which are one tile.
  config::Model model = small_model();
  model.cache = *config::cache_from_name("turboquant_3bit_nc");
  const std::vector<HeadCounts> heads(4, HeadCounts{.attended = 100});
  const EqualBatch batch(model, 0, 2, {100, {90, 20}}, heads, false);
  const DecodeAttention work = attention_over(batch, 0);
  CHECK(work.unpack_flops == 2.0 * 35 * 8 * 400 * 2);
  CHECK(work.converted == 0);
  CHECK(work.separate_heads);
  CHECK(work.serial_tiles == 1);
  CHECK(work.tile_instructions == 4 * 8 / 32.0 * 35);
  CHECK(work.element_bytes == Approx((3 + 2 + 3 + 4) / 16.0));
  model.cache = *config::cache_from_name("turboquant_k8v4");
  CHECK(attention_over(batch, 0).unpack_flops == 2.0 * 22 * 8 * 400 * 2);
}

TEST_CASE("what a policy keeps is counted in the format of each layer") {
  // 3 layers, of which the first and the last have 2 bytes a number and the other FP8 keys of 8 and values of 4 + 4
  // bytes.
  config::Model model = small_model();
  model.cache = *config::cache_from_name("turboquant_k8v4"), model.plain_ends = 1;
  const auto policy = make("full", "", kRequest);
  double bytes = 0;
  for (const MemoryItem& item : storage(*policy, {&model, 2, 110, kRequest, 0})) bytes += item.bytes;
  CHECK(bytes == 2 * 110 * 2 * (2 * 2 * 8 * 2 + 8 + 4 + 4));
}

}  // namespace
}  // namespace kvcast::tests

// Memory of one request by hand: 3 layers of 2 KV heads of 8 dimensions are 3 · 2 · 2 · 8 · 2 = 192 bytes a token.
#include <catch2/catch.hpp>

#include "policy/request_memory.hpp"
#include "support/select.hpp"
#include "unit/policy/small_model.hpp"

namespace kvcast::tests {

using namespace policy;

namespace {

RequestMemory memory_of(const std::string& name, const std::string& setting) {
  const Lengths request{100, 20};
  return request_memory(*make(name, setting, request), small_model(), request);
}

TEST_CASE("the whole cache grows by a token") {
  const RequestMemory m = memory_of("full", "");
  CHECK(m.hbm.reading == 100 * 192);
  CHECK(m.hbm.read == 100 * 192);
  CHECK(m.hbm.per_token == Approx(192));
  CHECK(m.hbm.shared == 0);
  CHECK(m.dram.read == 0);
}

TEST_CASE("summaries of pages add a token for each page") {
  const RequestMemory m = memory_of("quest", "budget: 40, page: 4");
  CHECK(m.hbm.reading == 100 * 192);
  CHECK(m.hbm.read == (100 + 25) * 192);
  CHECK(m.hbm.per_token == Approx(1.25 * 192));
}

TEST_CASE("a prompt that is evicted at its end is held whole until then") {
  const RequestMemory m = memory_of("snapkv", "budget: 40, window: 8");
  CHECK(m.hbm.reading == 100 * 192);
  CHECK(m.hbm.read == 40 * 192);
  CHECK(m.hbm.per_token == Approx(192));
}

TEST_CASE("a prompt that is read in blocks holds a block and what earlier ones left") {
  // 30 tokens, then 20 + 30, 20 + 30 and 20 + 10; a step holds 21.
  const RequestMemory m = memory_of("keydiff", "budget: 20, block: 30");
  CHECK(m.hbm.reading == 50 * 192);
  CHECK(m.hbm.read == 21 * 192);
  CHECK(m.hbm.per_token == 0);
}

TEST_CASE("an offloaded cache grows in host memory, and buffers are held once") {
  const RequestMemory m = memory_of("freekv", "budget: 40, page: 4");
  // 40 tokens, 25 summaries, and the last queries of 4 query heads of 16 bytes in 3 layers.
  CHECK(m.hbm.read == 40 * 192 + 25 * 192 + 3 * 4 * 16);
  CHECK(m.hbm.per_token == Approx(192 / 4));
  // Two buffers of 10 pages of 4 keys and values of a head.
  CHECK(m.hbm.shared == 2 * 10 * 4 * 2 * 16);
  CHECK(m.dram.reading == 100 * 192);
  CHECK(m.dram.read == 100 * 192);
  CHECK(m.dram.per_token == Approx(192));
}

}  // namespace
}  // namespace kvcast::tests

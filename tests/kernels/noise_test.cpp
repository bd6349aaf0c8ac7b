// Tables that threads fill together.
#include <catch2/catch.hpp>

#include "cpu/data.hpp"

namespace kvcast::tests {

using namespace kernels;

TEST_CASE("a table is the same whatever the threads that fill it, and the last one is kept") {
  for (const std::size_t n : {1u, 4u, 1027u, 65536u}) {
    const Rows alone = bf16_noise(9, n);
    const std::vector<std::uint16_t> whole(alone.begin(), alone.end());
    CHECK(std::count(whole.begin(), whole.end(), 0) == 0);
    for (const int threads : {1, 2, 5}) {
      Pool pool(threads);
      const std::uint16_t* const other = noise_table(1, n + 1, pool).data();
      CHECK(other[0] != 0);
      const Rows& table = noise_table(9, n, pool);
      CHECK(std::vector<std::uint16_t>(table.begin(), table.end()) == whole);
      const std::uint16_t* const kept = table.data();
      CHECK(noise_table(9, n, pool).data() == kept);
    }
  }
}

}  // namespace kvcast::tests

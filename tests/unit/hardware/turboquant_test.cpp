// Kernels of one warp for each query head, as that of TurboQuant, on the round machine (round_machine.hpp).
#include "hardware/work.hpp"
#include "unit/hardware/support.hpp"

namespace kvcast::tests {

using hardware::Resource;

TEST_CASE("tiles of one warp follow each other, beside what all warps issue together") {
  graph::DecodeAttention work{.rows = 200, .group = 4, .head_dim = 125, .tokens = 20000, .longest = 100};
  work.separate_heads = true, work.serial_tiles = 50, work.tile_instructions = 858;
  // A tile of two round trips of 571 cycles and 858 instructions takes 2 us at 1 GHz; reading takes less than 100 us.
  const double shorter = round_model().cost(op_of(work)).alone;
  work.serial_tiles = 60;
  CHECK(round_model().cost(op_of(work)).alone - shorter == us(20));
  work.unpack_flops = 5e9;  // 1 ms on the vector units, longer than 120 us of tiles
  CHECK(round_model().cost(op_of(work)).bound == Resource::kVector);
  const double busy = round_model().cost(op_of(work)).alone;
  work.serial_tiles = 50;
  CHECK(round_model().cost(op_of(work)).alone == Approx(busy));
}

}  // namespace kvcast::tests

// Runs device code on the CPU: every thread of a block is a fiber, blocks run one after another. It exists to compare
// kernels with their references without a GPU; it does not model time.
//
// It detects wrong indices and masks, wrong fragment layouts of tensor-core products, misaligned 16-byte accesses,
// reads of asynchronous copies that were not waited for, barriers that not all threads reach, and missing barriers (the
// threads of a block run in ascending or in descending order between barriers, and shared memory starts as NaN). It
// cannot detect errors in the memory order between blocks, bank conflicts, or anything that depends on time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace kvcast::kernels::emulator {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

// Calls body once for each thread of each block of the grid. Throws std::logic_error if threads of one block or warp
// wait at different barriers, and any exception of body.
void run(Index grid, unsigned threads, std::size_t shared_bytes, const std::function<void()>& body);

// Index of the current block.
Index block_index();
Index grid_size();
unsigned thread_index();
unsigned block_size();
unsigned char* shared();
void block_barrier();

// All live lanes of the warp pass words in and see everyone's: from(lane) points at that lane's words.
inline constexpr int kWords = 6;
struct Exchange {
  const std::uint32_t (*lanes)[kWords];
  const std::uint32_t* from(unsigned lane) const { return lanes[lane]; }
};
Exchange exchange(const std::uint32_t* words, int count);
// Bit l is set if lane l took part in the last exchange.
std::uint32_t live_lanes();

// An asynchronous 16-byte copy: nothing arrives before the wait. valid false: zeros arrive.
void copy_async(void* to, const void* from, bool valid);
void copy_commit();
void copy_wait(int groups_left);

// Throws std::logic_error unless p is a multiple of bytes.
void require_aligned(const void* p, std::size_t bytes);

}  // namespace kvcast::kernels::emulator

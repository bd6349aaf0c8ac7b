// Memory of OpenBLAS. Each thread inside a product uses a buffer of 128 MiB, which OpenBLAS maps on first use, and
// without end tries again where that fails. So buffers are mapped before they are needed, as many as there is room for,
// and threads wait for their turn.
#pragma once

namespace kvcast {

// The right to call OpenBLAS, for its lifetime; not nested within a thread.
class BlasTurn {
 public:
  // Waits while all buffers are in use. Throws NoMemory if there is no room for a single one.
  BlasTurn();
  ~BlasTurn();
  BlasTurn(const BlasTurn&) = delete;
  BlasTurn& operator=(const BlasTurn&) = delete;
};

// Returns whether the system limits how much a process may map, so that OpenBLAS's own threads, which start with the
// program and map a buffer each, could use up the limit.
bool memory_is_limited();

}  // namespace kvcast

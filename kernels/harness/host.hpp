// The host: what it is, and measuring on it.
#pragma once

#include <functional>

#include "harness/bench.hpp"

namespace kvcast::kernels {

// Cores that this process may use, last-level cache, free memory.
Machine host_machine();
// Host CPU, cores, operating system, compiler, git commit of the source, date.
Json host_environment(const std::string& program);

// Measures call() as state.mode() asks. cold: the last-level cache is flushed before each call by writing twice its
// size. batch: as many calls for a sample as take 2 ms together. Records the samples in the state.
void measure_host(State& state, const std::function<void()>& call);

// Keeps the compiler from leaving out what computes it.
template <typename T>
inline void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

}  // namespace kvcast::kernels

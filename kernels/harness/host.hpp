// The host: its description, and measurements on it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/bench.hpp"
#include "harness/pool.hpp"

namespace kvcast::kernels {

// Bytes of all last-level caches of these CPUs, of which several may share one; cpus: /sys/devices/system/cpu.
double all_caches(const std::string& cpus, const std::vector<int>& used);

// Cores that this process may use, last-level cache, free memory; in a container its share of them.
Machine host_machine();
// CPUs that a control group's cpu.max grants ("150000 100000": 1.5); 0 for no limit and for invalid text.
double granted_cpus(const std::string& cpu_max);
// Host CPU, cores, operating system, compiler, git commit of the source, date.
Json host_environment(const std::string& program);

// Measures call() according to state.mode(). cold: before each call every thread of the pool that the call runs on
// (without one the caller) reads twice the size of the last-level cache: each has caches that no other thread reaches.
// batch: as many calls per sample as take 2 ms together. Records the samples in the state.
void measure_host(State& state, const std::function<void()>& call, Pool* pool = nullptr);

// Keeps the compiler from removing the computation of a value.
template <typename T>
inline void keep(const T& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

}  // namespace kvcast::kernels

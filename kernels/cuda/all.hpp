// The GPU benchmarks. To add one: a file that defines such a function, and a line in all.cpp.
#pragma once

#include <vector>

#include "harness/bench.hpp"

namespace kvcast::kernels {

Bench hbm_stream(const Machine& machine);
Bench hbm_gather(const Machine& machine);
Bench convert(const Machine& machine);
Bench topk(const Machine& machine);
Bench decode_attention(const Machine& machine);
Bench sparse_attention(const Machine& machine);
Bench lse_merge(const Machine& machine);

// Those whose kernels also run on the emulator.
std::vector<Bench> kernel_benches(const Machine& machine);
// Those that measure the runtime and the link, which no emulator has.
std::vector<Bench> runtime_benches(const Machine& machine);

}  // namespace kvcast::kernels

// The CPU benchmarks. To add one: a file that defines such a function, and a line in all.cpp.
#pragma once

#include <vector>

#include "harness/bench.hpp"

namespace kvcast::kernels {

Bench cpu_dram(const Machine& machine);
Bench cpu_gather_dot(const Machine& machine);
Bench cpu_sparse_attention(const Machine& machine);
Bench cpu_topk(const Machine& machine);
Bench cpu_lsh_lookup(const Machine& machine);
Bench cpu_fork_join(const Machine& machine);
Bench cpu_overlap(const Machine& machine);
Bench cpu_product(const Machine& machine);

std::vector<Bench> cpu_benches(const Machine& machine);

}  // namespace kvcast::kernels

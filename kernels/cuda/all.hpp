// The GPU benchmarks. To add one: a file that defines such a function, and a line in kernel_list.cpp, or in
// runtime_list.cu if the emulator lacks what it needs.
#pragma once

#include <vector>

#include "harness/bench.hpp"

namespace kvcast::kernels {

Bench hbm_stream(const Machine& machine);
Bench hbm_gather(const Machine& machine);
Bench convert(const Machine& machine);
Bench topk(const Machine& machine);
Bench page_summary(const Machine& machine);
Bench page_score(const Machine& machine);
Bench dim_score(const Machine& machine);
Bench keydiff(const Machine& machine);
Bench query_similarity(const Machine& machine);
Bench snapkv_score(const Machine& machine);
Bench lsh_hash(const Machine& machine);
Bench centroid_recall(const Machine& machine);
Bench decode_attention(const Machine& machine);
Bench sparse_attention(const Machine& machine);
Bench ragged_attention(const Machine& machine);
Bench key_rebuild(const Machine& machine);
Bench kivi_attention(const Machine& machine);
Bench prefill_attention(const Machine& machine);
Bench lse_merge(const Machine& machine);
Bench launch_chain(const Machine& machine);
Bench host_sync(const Machine& machine);
Bench host_copy(const Machine& machine);
Bench zero_copy_gather(const Machine& machine);
Bench copy_beside_stream(const Machine& machine);
Bench copy_turns(const Machine& machine);
Bench gemm(const Machine& machine);

// Those of kernel_list.cpp.
std::vector<Bench> kernel_benches(const Machine& machine);
// Those of runtime_list.cu: the runtime and the link.
std::vector<Bench> runtime_benches(const Machine& machine);

}  // namespace kvcast::kernels

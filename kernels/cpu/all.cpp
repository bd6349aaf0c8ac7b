#include "cpu/all.hpp"

namespace kvcast::kernels {

std::vector<Bench> cpu_benches(const Machine& machine) {
  return {cpu_dram(machine),       cpu_gather_dot(machine), cpu_sparse_attention(machine), cpu_topk(machine),
          cpu_lsh_lookup(machine), cpu_fork_join(machine),  cpu_product(machine),          cpu_overlap(machine)};
}

}  // namespace kvcast::kernels

#include "cuda/all.hpp"

namespace kvcast::kernels {

std::vector<Bench> runtime_benches(const Machine& m) {
  return {host_copy(m),          launch_chain(m), host_sync(m), zero_copy_gather(m),
          copy_beside_stream(m), copy_turns(m),   gemm(m)};
}

}  // namespace kvcast::kernels

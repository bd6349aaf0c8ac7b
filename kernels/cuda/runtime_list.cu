#include "cuda/all.hpp"

namespace kvcast::kernels {

std::vector<Bench> runtime_benches(const Machine& m) {
  return {launch_chain(m), host_sync(m), host_copy(m), zero_copy_gather(m), gemm(m)};
}

}  // namespace kvcast::kernels

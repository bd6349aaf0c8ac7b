// Products with weights: cuBLAS on the device if the build has found it; plain loops on the emulator.
#pragma once

#include <stdexcept>
#include <string>

#include "device/runtime.hpp"
#ifdef KVCAST_CUBLAS
#include <cublas_v2.h>
#endif

namespace kvcast::kernels {

struct ProductShape {
  int m, n, k;
};

#ifdef KVCAST_CUBLAS
inline void check_cublas(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error("cuBLAS failed with status " + std::to_string(static_cast<int>(status)));
}

class Blas {
 public:
  static constexpr bool kPresent = true;
  Blas() : workspace_(64 << 20) { check_cublas(cublasCreate(&handle_)); }
  ~Blas() { cublasDestroy(handle_); }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // y [m][n] = factor · x [m][k] · w [n][k] transposed, all by rows, fp32 accumulation; cuBLAS sees columns: yᵀ = w ·
  // xᵀ.
  void multiply(Queue queue, const Half* x, const Half* w, Half* y, const ProductShape& s, float factor = 1) {
    const float zero = 0;
    use(queue);
    check_cublas(cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, s.n, s.m, s.k, &factor, w, CUDA_R_16F, s.k, x,
                              CUDA_R_16F, s.k, &zero, y, CUDA_R_16F, s.n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }

 private:
  // A new stream loses the workspace; cuBLAS would allocate one of its own, and wait for a stream that is held.
  void use(Queue queue) {
    if (used_ && queue == queue_) return;
    check_cublas(cublasSetStream(handle_, queue));
    check_cublas(cublasSetWorkspace(handle_, workspace_.data(), workspace_.size()));
    queue_ = queue, used_ = true;
  }

  DeviceArray<unsigned char> workspace_;
  cublasHandle_t handle_ = nullptr;
  Queue queue_ = nullptr;
  bool used_ = false;
};
#elif defined(__CUDACC__)
class Blas {
 public:
  static constexpr bool kPresent = false;
  void multiply(Queue, const Half*, const Half*, Half*, const ProductShape&, float = 1) {
    throw std::runtime_error("built without cuBLAS");
  }
};
#else
class Blas {
 public:
  static constexpr bool kPresent = true;
  void multiply(Queue queue, const Half* x, const Half* w, Half* y, const ProductShape& s, float factor = 1) {
    const auto work = [=] {
      const auto columns = static_cast<std::size_t>(s.n), depth = static_cast<std::size_t>(s.k);
      for (std::size_t i = 0; i < static_cast<std::size_t>(s.m) * columns; ++i) {
        const Half* a = x + i / columns * depth;
        const Half* b = w + i % columns * depth;
        float sum = 0;
        for (std::size_t j = 0; j < depth; ++j) sum += to_float(a[j]) * to_float(b[j]);
        y[i] = to_half(sum * factor);
      }
    };
    if (queue) {
      queue->push(work);
    } else {
      work();
    }
  }
};
#endif

}  // namespace kvcast::kernels

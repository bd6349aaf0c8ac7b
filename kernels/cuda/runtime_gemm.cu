// Matrix products at the shapes of decode (few rows) and prefill (many), by cuBLAS with fp32 accumulation. Weights
// rotate through copies worth several L2 caches, as successive layers do.
#include "cuda/all.hpp"
#include "cuda/case.hpp"
#include "device/blas.hpp"

namespace kvcast::kernels {

namespace {

#ifdef KVCAST_CUBLAS
void run(State& state) {
  const int m = as_int(state, "m"), n = as_int(state, "n"), k = as_int(state, "k");
  if (m < 1 || n < 1 || k < 1 || n % 8 != 0 || k % 8 != 0)
    return state.skip("rows of weights are whole 16-byte pieces");
  const double weights = 2.0 * n * k;
  const std::size_t copies =
      state.checking()
          ? 1
          : std::clamp<std::size_t>(static_cast<std::size_t>(4 * state.machine().l2_bytes / weights) + 1, 2, 16);
  if (too_large(state, weights * static_cast<double>(copies) + 2.0 * m * (double{1.0} * n + k))) return;
  const std::size_t each = as_size(n) * as_size(k);
  const DeviceArray<Half> x = half_normals(95, as_size(m) * as_size(k)), w = half_normals(96, each * copies),
                          y(as_size(m) * as_size(n));
  Blas blas;
  std::size_t turn = 0;
  const auto call = [&](Queue queue) {
    blas.multiply(queue, x.data(), w.data() + each * (turn++ % copies), y.data(), {m, n, k});
  };
  state.moves(weights + 2.0 * m * (double{1.0} * n + k), Resource::kHbm);
  state.work("flops", 2.0 * m * n * k);
  state.work("launches", 1);
  state.note("weight_copies", static_cast<int>(copies));
  if (!state.checking()) return measure_device(state, call, {.launches = 2});  // a split product has a second kernel
  run_and_wait(call);
  const std::vector<float> a = floats_of(x), b = floats_of(w);
  std::vector<float> expected(y.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    double sum = 0;
    for (std::size_t j = 0; j < as_size(k); ++j)
      sum += double{a[i / as_size(n) * as_size(k) + j]} * double{b[i % as_size(n) * as_size(k) + j]};
    expected[i] = static_cast<float>(sum);
  }
  state.compare("product", floats_of(y), expected, 1e-3);
}
#else
void run(State& state) { state.skip("built without cuBLAS"); }
#endif

}  // namespace

Bench gemm(const Machine&) {
  return {"gemm",
          "fp16 product of m rows with n × k weights (cuBLAS), weights rotating; each operand once",
          {numbers("m", {1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192}),
           numbers("n", {1024, 4096, 6144, 14336, 28672}), numbers("k", {4096, 14336})},
          {numbers("m", {1, 3, 130}), numbers("n", {8, 256}), numbers("k", {8, 128})},
          {Mode::kCold},
          run,
          3};
}

}  // namespace kvcast::kernels

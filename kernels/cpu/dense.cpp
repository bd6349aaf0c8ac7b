// Dense products of few rows with a large matrix of bfloat16 weights, as in a decode step on a CPU: y = x Wᵀ with W
// stored row by row of outputs. Outputs are divided among the threads; four rows of x pass over W together.
#include <algorithm>

#include "cpu/all.hpp"
#include "cpu/data.hpp"
#include "cpu/vector.hpp"
#include "harness/host.hpp"
#include "harness/pool.hpp"

namespace kvcast::kernels {

namespace {

void four_dots(const float* x, std::size_t k, const std::uint16_t* w, float* sums) {
  float a = 0, b = 0, c = 0, d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
  for (std::size_t j = 0; j < k; ++j) {
    const float weight = bf16_value(w[j]);
    a += x[j] * weight;
    b += x[k + j] * weight;
    c += x[2 * k + j] * weight;
    d += x[3 * k + j] * weight;
  }
  sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;
}

void multiply(const float* x, const std::uint16_t* w, std::size_t m, std::size_t n, std::size_t k, std::size_t first,
              std::size_t last, float* y) {
  for (std::size_t o = first; o < last; ++o) {
    std::size_t i = 0;
    for (; i + 4 <= m; i += 4) {
      float sums[4];
      four_dots(x + i * k, k, w + o * k, sums);
      for (std::size_t r = 0; r < 4; ++r) y[(i + r) * n + o] = sums[r];
    }
    for (; i < m; ++i) y[i * n + o] = dot_row(x + i * k, w + o * k, k);
  }
}

void check(State& state, const std::vector<float>& x, const Rows& w, std::size_t m, std::size_t n, std::size_t k,
           const std::vector<float>& y) {
  std::vector<float> expected(m * n);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t o = 0; o < n; ++o) {
      double sum = 0;
      for (std::size_t j = 0; j < k; ++j) sum += double{x[i * k + j]} * double{bf16_value(w[o * k + j])};
      expected[i * n + o] = static_cast<float>(sum);
    }
  }
  state.compare("product", y, expected, 1e-5);
}

void run(State& state) {
  const std::int64_t threads = state.integer("threads");
  if (too_many_threads(state.machine(), threads)) return state.skip("more threads than cores");
  const auto size = [&](const char* axis) { return static_cast<std::size_t>(state.integer(axis)); };
  const std::size_t m = size("m"), n = size("n"), k = size("k");
  if (2.0 * static_cast<double>(n * k) > 0.5 * state.machine().dram_bytes) return state.skip("the weights do not fit");
  const Rows w = state.checking() ? bf16_normals(41, n * k) : bf16_noise(41, n * k);
  const std::vector<float> x = normals(42, m * k);
  std::vector<float> y(m * n, -1.0f);
  Pool pool(static_cast<int>(threads), true);
  const auto call = [&] {
    pool.split(
        n, [&](std::size_t first, std::size_t last) { multiply(x.data(), w.data(), m, n, k, first, last, y.data()); });
  };
  state.moves(2.0 * static_cast<double>(n * k) + 4.0 * static_cast<double>(m * (n + k)), Resource::kDram);
  state.work("flops", 2.0 * static_cast<double>(m * n) * static_cast<double>(k));
  if (!state.checking()) return measure_host(state, call, &pool);
  call();
  check(state, x, w, m, n, k, y);
}

}  // namespace

Bench cpu_dense(const Machine& machine) {
  return {"cpu_dense",
          "rows of floats times a matrix of bfloat16 weights, sums in floats",
          {numbers("m", {1, 4, 16}), numbers("n", {4096, 16384}), numbers("k", {4096}),
           numbers("threads", doubling(machine.cores))},
          {numbers("m", {1, 3, 9}), numbers("n", {1, 70}), numbers("k", {1, 129}), numbers("threads", {1, 2})},
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels

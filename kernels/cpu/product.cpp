// Products of matrices of floats, y = x Wᵀ, as clustering of keys has them: each thread its own, in its caches. Packed
// panels and a block of sums that stays in registers (Goto, van de Geijn 2008), as in libraries, but in plain C++: a
// library reaches at least this rate.
#include <algorithm>
#include <array>

#include "cpu/all.hpp"
#include "cpu/data.hpp"
#include "harness/host.hpp"
#include "harness/pool.hpp"

namespace kvcast::kernels {

namespace {

#if defined(__AVX512F__)
constexpr std::size_t kWide = 16;
#elif defined(__AVX__)
constexpr std::size_t kWide = 8;
#else
constexpr std::size_t kWide = 4;
#endif
using Wide = float __attribute__((vector_size(kWide * sizeof(float))));

// Twelve sums: enough independent ones for two units that take four cycles, and few enough for sixteen registers.
constexpr std::size_t kRows = 6, kColumns = 2 * kWide;
constexpr std::size_t kDepth = 256;  // a panel of columns then fits into the first cache
constexpr std::size_t kHeight = 96;  // and a block of rows into the second

struct ProductSize {
  std::size_t m, n, k;
};

// Packs numbers 0 … depth - 1 of `rows` rows, which are `pitch` floats apart, as strips of `strip` rows, depth by
// depth; zeros beyond the last row.
void pack(const float* from, std::size_t rows, std::size_t pitch, std::size_t depth, std::size_t strip, float* to) {
  for (std::size_t s = 0; s < rows; s += strip) {
    for (std::size_t j = 0; j < depth; ++j) {
      for (std::size_t r = 0; r < strip; ++r) *to++ = s + r < rows ? from[(s + r) * pitch + j] : 0.0f;
    }
  }
}

Wide load(const float* p) {
  Wide v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

// Writes the products of a strip of rows and a strip of columns to out [kRows][kColumns].
void multiply_strips(const float* a, const float* b, std::size_t depth, float* out) {
  Wide sums[kRows][2];
#pragma GCC unroll 6
  for (std::size_t r = 0; r < kRows; ++r) sums[r][0] = sums[r][1] = Wide{};
  for (std::size_t j = 0; j < depth; ++j, a += kRows, b += kColumns) {
    const Wide low = load(b), high = load(b + kWide);
#pragma GCC unroll 6
    for (std::size_t r = 0; r < kRows; ++r) {
      sums[r][0] += a[r] * low;
      sums[r][1] += a[r] * high;
    }
  }
  __builtin_memcpy(out, sums, sizeof sums);
}

// One thread's matrices and the room for its panels.
struct Job {
  std::vector<float> x, w, y, rows, columns;
  Job(const ProductSize& s, std::uint64_t seed)
      : x(normals(seed, s.m * s.k)),
        w(normals(seed + 1, s.n * s.k)),
        y(s.m * s.n),
        rows((kHeight + kRows) * kDepth),
        columns((s.n + kColumns) * kDepth) {}
};

void add_block(Job& job, const ProductSize& s, std::size_t top, std::size_t height, std::size_t depth) {
  std::array<float, kRows * kColumns> part;
  for (std::size_t c = 0; c < s.n; c += kColumns) {
    for (std::size_t r = 0; r < height; r += kRows) {
      multiply_strips(&job.rows[r * depth], &job.columns[c * depth], depth, part.data());
      const std::size_t high = std::min(kRows, height - r), wide = std::min(kColumns, s.n - c);
      for (std::size_t i = 0; i < high; ++i) {
        float* to = &job.y[(top + r + i) * s.n + c];
        for (std::size_t j = 0; j < wide; ++j) to[j] += part[i * kColumns + j];
      }
    }
  }
}

void multiply(Job& job, const ProductSize& s) {
  std::fill(job.y.begin(), job.y.end(), 0.0f);
  for (std::size_t first = 0; first < s.k; first += kDepth) {
    const std::size_t depth = std::min(kDepth, s.k - first);
    pack(job.w.data() + first, s.n, s.k, depth, kColumns, job.columns.data());
    for (std::size_t top = 0; top < s.m; top += kHeight) {
      const std::size_t height = std::min(kHeight, s.m - top);
      pack(job.x.data() + top * s.k + first, height, s.k, depth, kRows, job.rows.data());
      add_block(job, s, top, height, depth);
    }
  }
}

void check(State& state, const std::vector<Job>& jobs, const ProductSize& s) {
  for (const Job& job : jobs) {
    std::vector<float> expected(s.m * s.n);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < s.k; ++j) sum += double{job.x[i / s.n * s.k + j]} * double{job.w[i % s.n * s.k + j]};
      expected[i] = static_cast<float>(sum);
    }
    state.compare("product", job.y, expected, 1e-5);
  }
}

void run(State& state) {
  const std::int64_t threads = state.integer("threads");
  if (too_many_threads(state.machine(), threads)) return state.skip("more threads than cores");
  const auto size = [&](const char* axis) { return static_cast<std::size_t>(state.integer(axis)); };
  const ProductSize s{size("m"), size("n"), size("k")};
  const double each = 4.0 * static_cast<double>(s.m * s.k + s.n * s.k + s.m * s.n);
  if (each * static_cast<double>(threads) > 0.5 * state.machine().dram_bytes) {
    return state.skip("the matrices do not fit");
  }
  std::vector<Job> jobs;
  for (std::int64_t t = 0; t < threads; ++t) jobs.emplace_back(s, static_cast<std::uint64_t>(43 + 2 * t));
  Pool pool(static_cast<int>(threads));
  const auto call = [&] { pool.run([&](int t) { multiply(jobs[static_cast<std::size_t>(t)], s); }); };
  state.moves(each * static_cast<double>(threads), Resource::kCache);
  state.work("flops", 2.0 * static_cast<double>(threads) * static_cast<double>(s.m * s.n) * static_cast<double>(s.k));
  if (!state.checking()) return measure_host(state, call);
  call();
  check(state, jobs, s);
}

}  // namespace

Bench cpu_product(const Machine& machine) {
  return {"cpu_product",
          "a product of float matrices on each thread, register-blocked in plain C++; a library's may be faster",
          {numbers("m", {1024}), numbers("n", {256, 2048}), numbers("k", {128, 512}),
           numbers("threads", doubling(machine.cores))},
          {numbers("m", {1, 7, 100}), numbers("n", {1, 33, 70}), numbers("k", {1, 300}), numbers("threads", {1, 2})},
          {Mode::kBatch},
          run};
}

}  // namespace kvcast::kernels

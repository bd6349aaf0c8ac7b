// Half precision, inputs, references and the pool.
#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "cpu/vector.hpp"
#include "device/divisor.hpp"
#include "harness/half.hpp"
#include "harness/host.hpp"
#include "harness/input.hpp"
#include "harness/pool.hpp"
#include "reference/attention.hpp"

namespace kvcast::tests {

using namespace kernels;

#if defined(__x86_64__) && defined(__FLT16_MANT_DIG__)
TEST_CASE("half precision agrees with the compiler's, both ways") {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const Half h{static_cast<std::uint16_t>(bits)};
    _Float16 other;
    std::memcpy(&other, &h, sizeof other);
    const float mine = value_of(h), theirs = static_cast<float>(other);
    if (std::isnan(theirs)) {
      REQUIRE(std::isnan(mine));
      continue;
    }
    REQUIRE(float_bits(mine) == float_bits(theirs));
    REQUIRE(half_of(mine).bits == bits);
  }
  for (std::uint64_t i = 0; i < 2000000; ++i) {
    // Any exponent around the halves' range, and ties: 13 low bits of 0x1000 lie halfway.
    std::uint32_t u = static_cast<std::uint32_t>(random_bits(9, i));
    u = (u & 0x807FFFFFu) | (((u >> 23) % 50 + 95) << 23);
    if (i % 4 == 0) u = (u & ~0x1FFFu) | 0x1000u;
    const float x = bits_float(u);
    const _Float16 other = static_cast<_Float16>(x);
    std::uint16_t expected;
    std::memcpy(&expected, &other, sizeof expected);
    if (half_of(x).bits != expected) FAIL("half_of(" << x << ") is " << half_of(x).bits << ", expected " << expected);
  }
}
#endif

TEST_CASE("bfloat16 rounds to nearest even") {
  CHECK(bf16_of(1.0f) == 0x3F80);
  CHECK(bf16_of(bits_float(0x3F808000u)) == 0x3F80);  // tie, to even
  CHECK(bf16_of(bits_float(0x3F818000u)) == 0x3F82);  // tie, to even
  CHECK(bf16_of(bits_float(0x3F808001u)) == 0x3F81);
  CHECK(bf16_value(0xC000) == -2.0f);
}

TEST_CASE("inputs have mean 0 and variance 1") {
  double sum = 0, squares = 0;
  const int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double x = random_normal(5, static_cast<std::uint64_t>(i));
    sum += x;
    squares += x * x;
  }
  CHECK(std::abs(sum / n) < 0.01);  // four standard errors are 0.009
  CHECK(squares / n == Approx(1).epsilon(0.02));
}

TEST_CASE("permuted visits every index once") {
  for (const std::uint32_t n : {1u, 2u, 3u, 16u, 17u, 1000u}) {
    std::set<std::uint32_t> seen;
    for (std::uint32_t i = 0; i < n; ++i) seen.insert(permuted(7, i, n));
    CHECK(seen.size() == n);
    CHECK(*seen.rbegin() == n - 1);
  }
}

TEST_CASE("the reference attention agrees with the formula computed by hand") {
  // Logits 0 and ln 3 (q = 1, keys 0 and ln 3, scale 1): weights 1/4 and 3/4; values 4 and 8 give 7; lse = ln 4.
  const float q = 1, keys[] = {0, std::log(3.0f)}, values[] = {4, 8};
  const auto r = reference::attend(&q, keys, values, 2, 1, 1.0);
  CHECK(r.out[0] == Approx(7));
  CHECK(r.lse == Approx(std::log(4.0)));
  // Halves merged are the whole.
  const auto a = reference::attend(&q, keys, values, 1, 1, 1.0),
             b = reference::attend(&q, keys + 1, values + 1, 1, 1, 1.0);
  CHECK(reference::merge(a, b).out[0] == Approx(7));
  CHECK(reference::merge(a, b).lse == Approx(std::log(4.0)));
}

TEST_CASE("the reference top-k puts the lower index first among equals") {
  const float scores[] = {1, 3, 3, 2, 3};
  CHECK(reference::top_k(scores, 5, 2) == std::vector<std::uint32_t>{1, 2});
  CHECK(reference::top_k(scores, 5, 4) == std::vector<std::uint32_t>{1, 2, 4, 3});
}

TEST_CASE("the fast exponential is within 3e-7 near 0 and nearly 0 below its range") {
  double worst = 0;
  for (float x = -87; x < 88; x += 0.00173f) {
    worst = std::max(worst, std::abs(double{exp_fast(x)} / std::exp(double{x}) - 1));
  }
  // The rounding of x · log2(e) alone is up to 2^-24 · 127 · ln 2 = 5e-6 at the ends of the range.
  CHECK(worst < 6e-6);
  double near = 0;
  for (float x = -1; x <= 0; x += 0.0001f)
    near = std::max(near, std::abs(double{exp_fast(x)} / std::exp(double{x}) - 1));
  CHECK(near < 3e-7);
  CHECK(exp_fast(-1000) < 2e-38f);
  CHECK(exp_fast(0) == 1.0f);
}

TEST_CASE("a pool runs every part once") {
  Pool pool(3);
  std::vector<std::atomic<int>> touched(100);
  for (int round = 0; round < 20; ++round) {
    pool.split(100, [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) ++touched[i];
    });
  }
  for (const auto& t : touched) CHECK(t == 20);
}

TEST_CASE("a container's share of the CPUs is read from the text of its control group") {
  CHECK(granted_cpus("1600000 100000") == 16);
  CHECK(granted_cpus("150000 100000") == 1.5);
  CHECK(granted_cpus("max 100000") == 0);
  CHECK(granted_cpus("-1 100000") == 0);  // version 1 for no limit
  CHECK(granted_cpus(" ") == 0);
  CHECK(granted_cpus("100000") == 0);
}

TEST_CASE("a cold call is measured on the pool that its caches belong to") {
  Machine machine;
  machine.llc_bytes = 1 << 16;
  Limits limits;
  limits.min_samples = 3, limits.max_noise = 1e9;
  State state({}, Mode::kCold, false, limits, machine);
  Pool pool(2);
  int calls[2] = {0, 0};
  measure_host(
      state, [&] { pool.run([&](int t) { ++calls[t]; }); }, &pool);
  CHECK(calls[0] == 4);  // once to warm up, three samples
  CHECK(calls[1] == 4);
  CHECK(state.row().find("n")->number() == 3);
}

TEST_CASE("a cache that several cores share counts once per group of cores") {
  namespace fs = std::filesystem;
  const fs::path cpus = fs::temp_directory_path() / "kvcast-kernels-cpus";
  fs::remove_all(cpus);
  // Four cores, two to an L3 of 32 MiB; each has an L2 of 1 MiB.
  for (int cpu = 0; cpu < 4; ++cpu) {
    const fs::path caches = cpus / ("cpu" + std::to_string(cpu)) / "cache";
    fs::create_directories(caches / "index2");
    fs::create_directories(caches / "index3");
    std::ofstream(caches / "index2" / "size") << "1024K\n";
    std::ofstream(caches / "index2" / "shared_cpu_list") << cpu << "\n";
    std::ofstream(caches / "index3" / "size") << "32768K\n";
    std::ofstream(caches / "index3" / "shared_cpu_list") << (cpu < 2 ? "0-1" : "2-3") << "\n";
  }
  CHECK(all_caches(cpus, {0, 1, 2, 3}) == 64.0 * (1 << 20));
  CHECK(all_caches(cpus, {0, 1}) == 32.0 * (1 << 20));
  CHECK(all_caches(cpus, {1, 2}) == 64.0 * (1 << 20));
  CHECK(all_caches(cpus, {}) == 0);
  CHECK(all_caches(cpus / "none", {0}) == 0);
  const Machine here = host_machine();
  CHECK(here.llc_all_bytes >= here.llc_bytes);
}

TEST_CASE("division by a precomputed divisor agrees with the machine's division") {
  constexpr std::uint32_t kMost = 0x7FFFFFFFu;  // range of dividends and divisors
  std::vector<int> divisors = {1,         2, 3, 5, 7, 10, 80, 96, 255, 256, 257, 65535, 65536, 1 << 30, (1 << 30) + 1,
                               0x7FFFFFFF};
  for (std::uint64_t i = 0; i < 200; ++i)
    divisors.push_back(static_cast<int>(random_below(301, i, kMost >> (i % 31))) + 1);
  for (const int divisor : divisors) {
    const Divisor d(divisor);
    const auto by = static_cast<std::uint32_t>(divisor);
    const auto agrees = [&](std::uint32_t n) { return n > kMost || d.quotient(n) == n / by; };
    bool all = agrees(0) && agrees(kMost) && agrees(by) && agrees(by - 1) && agrees(kMost / by * by - 1);
    for (std::uint64_t i = 0; i < 1000; ++i) {
      // quotients go wrong next to multiples
      const std::uint32_t n = random_below(302, i, kMost), multiple = n / by * by;
      all = all && agrees(n) && agrees(multiple) && (multiple == 0 || agrees(multiple - 1));
    }
    INFO(divisor);
    REQUIRE(all);
  }
  CHECK(Divisor(0).quotient(5) == 5);  // divisors below one count as one
}

}  // namespace kvcast::tests

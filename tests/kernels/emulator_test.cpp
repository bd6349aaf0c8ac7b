// Checks that the emulator behaves like a GPU and detects the errors that it exists to detect.
#include "device/emulator.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "cuda/attention.cuh"
#include "cuda/convert.cuh"
#include "cuda/topk.cuh"
#include "device/async.hpp"
#include "device/device.hpp"
#include "device/runtime.hpp"

namespace kvcast::tests {

using namespace kernels;

namespace {
void on_block(unsigned threads, const std::function<void()>& body) { emulator::run({1, 1, 1}, threads, 4096, body); }
}  // namespace

TEST_CASE("a barrier makes one thread's writes visible to all") {
  std::vector<int> got(96);
  on_block(96, [&] {
    int* shared = reinterpret_cast<int*>(shared_memory());
    shared[thread_x()] = static_cast<int>(thread_x());
    block_sync();
    got[thread_x()] = shared[95 - thread_x()];
  });
  for (int i = 0; i < 96; ++i) CHECK(got[static_cast<std::size_t>(i)] == 95 - i);
}

TEST_CASE("a missing barrier is detected by both thread orders and by shared memory that starts as NaN") {
  // Without a barrier thread 0 reads what thread 31 writes: the first block (ascending) sees NaN, the second the value.
  std::vector<float> got;
  emulator::run({2, 1, 1}, 32, 128, [&] {
    float* shared = reinterpret_cast<float*>(shared_memory());
    if (thread_x() == 31) shared[0] = 5;
    if (thread_x() == 0) got.push_back(shared[0]);
  });
  REQUIRE(got.size() == 2);
  CHECK(std::isnan(got[0]));
  CHECK(got[1] == 5);
}

TEST_CASE("threads that wait at different barriers are reported, and exceptions are passed on") {
  CHECK_THROWS_WITH(on_block(64,
                             [] {
                               if (thread_x() < 32) {
                                 block_sync();
                                 block_sync();
                               } else {
                                 warp_from(1.0f, 0);
                                 if (thread_x() == 40) block_sync();
                                 if (thread_x() != 40) warp_from(1.0f, 0);
                               }
                             }),
                    Catch::Contains("different barriers"));
  CHECK_THROWS_WITH(on_block(32, [] { load16(shared_memory() + 8); }), Catch::Contains("not aligned"));
}

TEST_CASE("a ballot has all lanes that took part, even if some end before others read it") {
  std::vector<std::uint32_t> got(32);
  on_block(32, [&] { got[thread_x()] = warp_ballot(thread_x() != 3); });
  for (const std::uint32_t mask : got) CHECK(mask == 0xFFFFFFF7u);
}

TEST_CASE("an asynchronous copy arrives at its wait and not before") {
  alignas(16) const float from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<float> got;
  on_block(1, [&] {
    float* shared = reinterpret_cast<float*>(shared_memory());
    copy_async(shared, from, true);
    copy_commit();
    copy_async(shared + 4, from + 4, true);
    copy_commit();
    copy_wait<1>();
    got = {shared[0], shared[4]};
    copy_async(shared, from, false);
    copy_commit();
    copy_wait<0>();
    got.insert(got.end(), {shared[0], shared[4]});
  });
  CHECK(got[0] == 1);
  CHECK(std::isnan(got[1]));
  CHECK(got[2] == 0);  // not valid: zeros
  CHECK(got[3] == 5);
}

TEST_CASE("ldmatrix and mma agree with plain arithmetic") {
  // a [16][16] and b [8 columns][16] in shared memory; both fragments come by ldmatrix, b also transposed from [16][8].
  std::vector<float> c(16 * 8), ct(16 * 8), expected(16 * 8);
  const auto a = [](int r, int k) { return random_normal(1, static_cast<std::uint64_t>(r * 16 + k)); };
  const auto b = [](int k, int n) { return random_normal(2, static_cast<std::uint64_t>(k * 8 + n)); };
  const auto rounded = [](float x) { return value_of(half_of(x)); };
  on_block(32, [&] {
    Half* as = reinterpret_cast<Half*>(shared_memory());
    Half *bs = as + 256, *bt = bs + 256;  // bs: [n 16, upper half unused][k 16]; bt: [k 16][n 16]
    for (int i = static_cast<int>(lane_index()); i < 256; i += 32) {
      as[i] = half_of(a(i / 16, i % 16));
      bs[i] = half_of(i / 16 < 8 ? b(i % 16, i / 16) : 0);
      bt[i] = half_of(i % 16 < 8 ? b(i / 16, i % 16) : 0);
    }
    block_sync();
    const unsigned lane = lane_index();
    std::uint32_t fa[4], fb[4], fbt[4];
    load_matrices(fa, as + lane % 16 * 16 + lane / 16 * 8);
    load_matrices(fb, bs + (lane % 8 + lane / 16 * 8) * 16 + lane / 8 % 2 * 8);
    load_matrices_transposed(fbt, bt + lane % 16 * 16 + lane / 16 * 8);
    float x[4] = {0, 0, 0, 0}, y[4] = {0, 0, 0, 0};
    multiply_add(x, fa, fb[0], fb[1]);
    multiply_add(y, fa, fbt[0], fbt[1]);
    for (unsigned i = 0; i < 4; ++i) {
      const std::size_t at = (lane / 4 + 8 * (i / 2)) * 8 + lane % 4 * 2 + i % 2;
      c[at] = x[i];
      ct[at] = y[i];
    }
  });
  for (int r = 0; r < 16; ++r) {
    for (int n = 0; n < 8; ++n) {
      for (int k = 0; k < 16; ++k) expected[static_cast<std::size_t>(r * 8 + n)] += rounded(a(r, k)) * rounded(b(k, n));
    }
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(c[i] == Approx(expected[i]).margin(1e-5));
    CHECK(ct[i] == Approx(expected[i]).margin(1e-5));
  }
}

TEST_CASE("warp sums, maxima and ballots are right") {
  std::vector<float> sums(64), tops(64);
  std::vector<std::uint32_t> ballots(64);
  on_block(64, [&] {
    const unsigned t = thread_x();
    sums[t] = warp_sum(static_cast<float>(t));
    tops[t] = warp_max(t % 7 == 0 ? 100.0f + static_cast<float>(t) : 0.0f);
    ballots[t] = warp_ballot(t % 3 == 0);
  });
  CHECK(sums[5] == 496);          // 0 + .. + 31
  CHECK(sums[40] == 496 + 1024);  // and 32 more each
  CHECK(tops[0] == 128);
  CHECK(tops[63] == 163);
  CHECK(ballots[0] == 0x49249249u);
  CHECK(ballots[32] == 0x92492492u);  // 33, 36, ...: bits 1, 4, ...
}

TEST_CASE("splits cover each token once, in whole block steps") {
  for (int tokens = 1; tokens < 700; ++tokens) {
    for (const int splits : {1, 2, 3, 7, 16}) {
      REQUIRE(split_begin(tokens, splits, 0) == 0);
      REQUIRE(split_begin(tokens, splits, splits) == tokens);
      for (int i = 0; i < splits; ++i) {
        REQUIRE(split_begin(tokens, splits, i) <= split_begin(tokens, splits, i + 1));
        REQUIRE((split_begin(tokens, splits, i) % 64 == 0 || split_begin(tokens, splits, i) == tokens));
      }
    }
  }
}

TEST_CASE("swizzled chunks are a permutation of each row, and eight rows' equal chunks lie in different banks") {
  for (int c = 0; c < 16; ++c) {
    std::uint32_t banks = 0;
    for (int r = 0; r < 8; ++r) banks |= 1u << (swizzled(r, c) % 8);
    CHECK(banks == 0xFFu);  // a chunk is 4 of 32 banks
  }
  for (int r = 0; r < 16; ++r) {
    std::uint32_t seen = 0;
    for (int c = 0; c < 16; ++c) seen |= 1u << swizzled(r, c);
    CHECK(seen == 0xFFFFu);
  }
}

TEST_CASE("every row of both pools has its own location in the other page layout") {
  const PageShape s{3, 4, 2, 8};
  std::vector<int> seen(3 * 4 * 2 * 2, 0);
  for (std::size_t page = 0; page < 3; ++page) {
    for (std::size_t head = 0; head < 2; ++head) {
      for (std::size_t slot = 0; slot < 4; ++slot) {
        for (std::size_t which = 0; which < 2; ++which) ++seen[hnd_row(s, page, slot, head, which) / 8];
      }
    }
  }
  for (const int n : seen) CHECK(n == 1);
  // Page 1, slot 2, head 1 by hand: ((1 · 4 + 2) · 2 + 1) · 8 = 104; V: (((1 · 2 + 1) · 2 + 1) · 4 + 2) · 8 = 240.
  CHECK(nhd_row(s, 1, 2, 1) == 104);
  CHECK(hnd_row(s, 1, 2, 1, 1) == 240);
}

TEST_CASE("rows are split so that blocks fill whole rounds of the multiprocessors") {
  const auto splits = [](int tokens, int blocks) { return AttentionRun::splits_for(tokens, blocks, 132); };
  // Two blocks fit on each of 132: 264 in a round. Eight rows fill one with 33 parts each.
  CHECK(splits(131072, 8) == 33);
  // 180 rows fill 180 of 264 slots; four parts come to 720 blocks in three rounds, each a quarter as long: 0.75.
  CHECK(splits(131072, 180) == 4);
  // 300 rows take two rounds; two parts take three rounds half as long.
  CHECK(splits(131072, 300) == 2);
  // Parts keep four steps of 64 tokens.
  CHECK(splits(256, 8) == 1);
  CHECK(splits(1000, 8) == 4);
  CHECK(AttentionRun::splits_for(131072, 8, 132, 4) == 66);
}

TEST_CASE("rows too long for one block are cut into slices that leave few enough candidates") {
  CHECK(TopkRun::slices_for(16384, 2048) == 1);
  CHECK(TopkRun::slices_for(131072, 64) == 32);   // of 4096 scores
  CHECK(TopkRun::slices_for(131072, 2048) == 8);  // 8 times 2048 candidates are what a block holds
  CHECK(TopkRun::slices_for(131073, 2048) == 0);
  CHECK(TopkRun::slices_for(20000, 17000) == 0);
}

TEST_CASE("a recorded graph runs the queued work each time it is launched") {
  Stream stream;
  Graph graph;
  int from = 1, to = 0, runs = 0;
  const auto work = [&] {
    stream.copy(&to, &from, sizeof to);
    stream.queue()->push([&] { ++runs; });
  };
  graph.record(stream, work);
  stream.synchronize();
  CHECK(to == 0);
  CHECK(runs == 0);
  graph.launch(stream.queue());
  graph.launch(stream.queue());
  stream.synchronize();
  CHECK(to == 1);
  CHECK(runs == 2);
}

}  // namespace kvcast::tests

#include "metrics/attribution.hpp"

#include <catch2/catch.hpp>

#include "base/random.hpp"

namespace kvcast::tests {

using namespace metrics;
using graph::Kind;
using graph::Lane;

namespace {
constexpr Picoseconds kUs = 1'000'000;

BusySpan span(double start_us, double finish_us, Kind kind, Lane lane, Bound bound = Bound::kHbm) {
  return {static_cast<Picoseconds>(start_us * kUs),
          static_cast<Picoseconds>(finish_us * kUs),
          kind,
          lane,
          bound,
          0.1f,
          Origin::kDatasheet};
}
double us(double seconds) { return seconds * 1e6; }
double exposed(const Attribution& a, Kind kind) { return us(a.exposed[static_cast<std::size_t>(kind)]); }
double hidden(const Attribution& a, Kind kind) { return us(a.hidden[static_cast<std::size_t>(kind)]); }
}  // namespace

TEST_CASE("a transfer concurrent with a kernel is hidden while the kernel runs and exposed afterwards") {
  //  compute  |== gemm 0..10 ==|                |== attention 14..20 ==|
  //  copy A        |====== copy 4..14 ======|
  const Attribution a =
      attribute({span(0, 10, Kind::kGemm, Lane::kCompute), span(14, 20, Kind::kAttention, Lane::kCompute),
                 span(4, 14, Kind::kCopyIn, Lane::kCopyA, Bound::kLink)},
                0, 20 * kUs);
  CHECK(exposed(a, Kind::kGemm) == Approx(10));
  CHECK(exposed(a, Kind::kAttention) == Approx(6));
  CHECK(exposed(a, Kind::kCopyIn) == Approx(4));  // 10..14
  CHECK(hidden(a, Kind::kCopyIn) == Approx(6));   // 4..10
  // Back from the end: attention waited for the copy, and the copy began at 4, concurrently with the product.
  CHECK(us(a.bound[static_cast<std::size_t>(Bound::kLink)]) == Approx(10));
  CHECK(us(a.bound[static_cast<std::size_t>(Bound::kHbm)]) == Approx(6 + 4));
  CHECK(us(a.idle) == Approx(0).margin(1e-9));
  CHECK(us(a.total()) == Approx(20));
  CHECK(us(a.uncertain[static_cast<std::size_t>(Kind::kCopyIn)]) == Approx(0.1 * 4));  // only exposed time counts
  CHECK(us(a.uncertain_total()) == Approx(0.1 * 20));
}

TEST_CASE("an idle stream is charged to a transfer before the host, and an unexplained gap is idle") {
  // 0..2 launch, 2..6 gemm, 6..9 copy, concurrent with a launch, 9..10 nothing
  const Attribution a = attribute({span(0, 2, Kind::kLaunch, Lane::kHost), span(2, 6, Kind::kGemm, Lane::kCompute),
                                   span(6, 9, Kind::kCopyIn, Lane::kCopyB), span(5, 9, Kind::kLaunch, Lane::kHost)},
                                  0, 10 * kUs);
  CHECK(exposed(a, Kind::kLaunch) == Approx(2));
  CHECK(hidden(a, Kind::kLaunch) == Approx(4));  // 6 us covered, 2 charged
  CHECK(exposed(a, Kind::kCopyIn) == Approx(3));
  CHECK(us(a.idle) == Approx(1));
}

TEST_CASE("spans are clipped to the window and overlapping ones of a kind count once") {
  const Attribution a = attribute({span(-5, 5, Kind::kCopyIn, Lane::kCopyA), span(3, 30, Kind::kCopyIn, Lane::kCopyB),
                                   span(0, 10, Kind::kGemm, Lane::kCompute)},
                                  0, 10 * kUs);
  CHECK(exposed(a, Kind::kGemm) == Approx(10));
  CHECK(exposed(a, Kind::kCopyIn) == Approx(0).margin(1e-9));
  CHECK(hidden(a, Kind::kCopyIn) == Approx(10));
}

TEST_CASE("exposed times and idle add up to the window, whatever the spans") {
  const Stream random(7);
  for (std::uint64_t round = 0; round < 200; ++round) {
    const Stream s = random.child({round});
    std::vector<BusySpan> spans;
    for (std::uint64_t i = 0; i < 40; ++i) {
      const auto start = static_cast<Picoseconds>(s.below(3 * i, 1000));
      const auto length = static_cast<Picoseconds>(s.below(3 * i + 1, 200));
      spans.push_back({start, start + length, static_cast<Kind>(s.below(3 * i + 2, graph::kKindCount)),
                       static_cast<Lane>(s.below(1000 + i, graph::kLaneCount)), Bound::kHbm, 0, Origin::kExact});
    }
    const Attribution a = attribute(spans, 100, 900);
    CHECK(a.total() == Approx(to_seconds(800)).epsilon(1e-12));
  }
}

TEST_CASE("the order of spans does not matter") {
  // Work of two kinds on side streams, both 0..4, and a kernel that waited for them.
  const BusySpan score = span(0, 4, Kind::kScore, Lane::kSelect, Bound::kVector);
  const BusySpan topk = span(0, 4, Kind::kTopK, Lane::kSelect, Bound::kKernelLatency);
  const BusySpan kernel = span(4, 6, Kind::kGemm, Lane::kCompute);
  for (const Attribution& a :
       {attribute({score, topk, kernel}, 0, 6 * kUs), attribute({kernel, topk, score}, 0, 6 * kUs)}) {
    CHECK(exposed(a, Kind::kScore) == Approx(4));
    CHECK(hidden(a, Kind::kTopK) == Approx(4));
    CHECK(us(a.bound[static_cast<std::size_t>(Bound::kVector)]) == Approx(4));
    CHECK(us(a.bound[static_cast<std::size_t>(Bound::kHbm)]) == Approx(2));
  }
}

TEST_CASE("calls are the bottleneck if each kernel is shorter than the call for the next") {
  //  host     |== launch 0..5 ==|== launch 5..10 ==|== launch 10..15 ==|
  //  compute                    |= gemm 5..9 =|    |= gemm 10..14 =|   |= gemm 15..19 =|
  std::vector<BusySpan> spans;
  for (int i = 0; i < 3; ++i) {
    spans.push_back(span(5 * i, 5 * i + 5, Kind::kLaunch, Lane::kHost, Bound::kHostThread));
    spans.push_back(span(5 * i + 5, 5 * i + 9, Kind::kGemm, Lane::kCompute));
  }
  const Attribution slow_host = attribute(spans, 0, 19 * kUs);
  CHECK(exposed(slow_host, Kind::kGemm) == Approx(12));  // the stream executes them most of the time
  CHECK(us(slow_host.bound[static_cast<std::size_t>(Bound::kHostThread)]) == Approx(15));
  CHECK(us(slow_host.bound[static_cast<std::size_t>(Bound::kHbm)]) == Approx(4));  // the last kernel alone
  // Calls of 2 us run far ahead: the kernels follow each other without gaps after the first call.
  spans.clear();
  for (int i = 0; i < 3; ++i) {
    spans.push_back(span(2 * i, 2 * i + 2, Kind::kLaunch, Lane::kHost, Bound::kHostThread));
    spans.push_back(span(4 * i + 2, 4 * i + 6, Kind::kGemm, Lane::kCompute));
  }
  const Attribution fast_host = attribute(spans, 0, 14 * kUs);
  CHECK(us(fast_host.bound[static_cast<std::size_t>(Bound::kHostThread)]) == Approx(2));
  CHECK(us(fast_host.bound[static_cast<std::size_t>(Bound::kHbm)]) == Approx(12));
}

TEST_CASE("the critical path continues across gaps but not beyond the window") {
  // 0..3 copy, a gap, 5..8 gemm, a gap to 10
  const Attribution a = attribute(
      {span(-4, 3, Kind::kCopyIn, Lane::kCopyA, Bound::kLink), span(5, 8, Kind::kGemm, Lane::kCompute)}, 0, 10 * kUs);
  CHECK(us(a.bound[static_cast<std::size_t>(Bound::kLink)]) == Approx(3));
  CHECK(us(a.bound[static_cast<std::size_t>(Bound::kHbm)]) == Approx(3));
}

}  // namespace kvcast::tests

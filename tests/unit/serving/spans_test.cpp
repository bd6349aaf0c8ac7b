// Requests' time in spans, worked out by hand.
#include "serving/spans.hpp"

#include <catch2/catch.hpp>

#include "support/serving.hpp"

namespace kvcast::tests {

using namespace serving;

namespace {

using Kind = RequestSpan::Kind;

// Passes of 1000 ps.
Passes passes(Picoseconds start, std::int64_t count, const std::vector<PassPart>& parts) {
  Passes run;
  run.start = start, run.count = count;
  run.time = {1000, 0, count};
  run.parts = parts;
  return run;
}

bool same(const RequestSpan& a, const RequestSpan& b) {
  return a.kind == b.kind && a.request == b.request && a.row == b.row && a.from == b.from && a.to == b.to &&
         a.tokens == b.tokens;
}

void check_spans(const std::vector<RequestSpan>& got, const std::vector<RequestSpan>& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    INFO("span " << i << ": " << span_name(got[i].kind) << " of request " << got[i].request << " on row " << got[i].row
                 << ", " << got[i].from << " to " << got[i].to);
    CHECK(same(got[i], expected[i]));
  }
}

// Request 0 arrives at 0 and is read from 1000 on; request 1 arrives at 500 and is read from 5000 on. Request 0 loses
// its memory during that pass, and is read again after request 1 has ended.
void serve_two(SpanRecorder& recorder) {
  traffic::Request first = request(0, 10, 8), second = request(500, 8, 3);
  second.id = 1;
  recorder.ran(passes(1000, 1, {{&first, 10, true, true}}));
  recorder.ran(passes(2000, 3, {{&first, 1, false, true}}));
  recorder.ran(passes(5000, 1, {{&first, 1, false, true}, {&second, 8, true, true}}));
  recorder.preempted(first, 5500);
  recorder.ran(passes(6000, 2, {{&second, 1, false, true}}));
  recorder.ended({second, false, 5000, 6000, 8000});
  recorder.ran(passes(8000, 1, {{&first, 14, true, true}}));
  recorder.ended({first, false, 1000, 2000, 9000});
}

TEST_CASE("a request is queued, read, decoded, preempted and read again in the smallest free slot") {
  SpanRecorder recorder(100);
  serve_two(recorder);
  check_spans(recorder.spans(), {{Kind::kQueued, 0, 0, 0, 1000, 10},
                                 {Kind::kPrefill, 0, 0, 1000, 2000, 10},
                                 {Kind::kQueued, 1, 1, 500, 5000, 8},
                                 {Kind::kPrefill, 1, 1, 5000, 6000, 8},
                                 {Kind::kDecode, 0, 0, 2000, 6000, 4},
                                 {Kind::kDecode, 1, 1, 6000, 8000, 2},
                                 {Kind::kPreempted, 0, 0, 6000, 8000, 0},
                                 {Kind::kPrefill, 0, 0, 8000, 9000, 14}});
  CHECK(recorder.all() == 8);
}

TEST_CASE("the first spans are kept and all are counted") {
  SpanRecorder recorder(3);
  serve_two(recorder);
  CHECK(recorder.spans().size() == 3);
  CHECK(recorder.all() == 8);
}

TEST_CASE("a decode span ends where a pass goes by without the request") {
  SpanRecorder recorder(100);
  traffic::Request only = request(0, 4, 9), other = request(0, 4, 1);
  other.id = 1;
  recorder.ran(passes(0, 1, {{&only, 4, true, true}}));
  recorder.ran(passes(1000, 1, {{&only, 1, false, true}}));
  recorder.ran(passes(2000, 1, {{&other, 4, true, true}}));
  recorder.ended({other, false, 2000, 3000, 3000});
  recorder.ran(passes(3000, 5, {{&only, 1, false, true}}));
  recorder.ended({only, false, 0, 1000, 8000});
  check_spans(recorder.spans(), {{Kind::kPrefill, 0, 0, 0, 1000, 4},
                                 {Kind::kQueued, 1, 0, 0, 2000, 4},
                                 {Kind::kPrefill, 1, 1, 2000, 3000, 4},
                                 {Kind::kDecode, 0, 0, 1000, 2000, 1},
                                 {Kind::kDecode, 0, 0, 3000, 8000, 5}});
}

TEST_CASE("a request that loses its memory while a pass reads it waits from the end of that pass") {
  SpanRecorder recorder(100);
  traffic::Request only = request(0, 20, 1);
  recorder.ran(passes(0, 1, {{&only, 10, true, false}}));
  recorder.ran(passes(1000, 1, {{&only, 10, true, true}}));  // composed while the first is under way
  recorder.preempted(only, 1000);
  recorder.ran(passes(4000, 1, {{&only, 20, true, true}}));
  recorder.ended({only, false, 0, 5000, 5000});
  check_spans(recorder.spans(), {{Kind::kPrefill, 0, 0, 0, 1000, 10},
                                 {Kind::kPrefill, 0, 0, 1000, 2000, 10},
                                 {Kind::kPreempted, 0, 0, 2000, 4000, 0},
                                 {Kind::kPrefill, 0, 0, 4000, 5000, 20}});
}

TEST_CASE("a rejected request has no span") {
  SpanRecorder recorder(100);
  recorder.ended({request(0, 4, 1), true});
  CHECK(recorder.spans().empty());
}

}  // namespace
}  // namespace kvcast::tests

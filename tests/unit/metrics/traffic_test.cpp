#include "metrics/traffic.hpp"

#include <catch2/catch.hpp>

using namespace kvcast;
using namespace kvcast::metrics;

TEST_CASE("decode attention reads K and V once a KV head, queries in and outputs out") {
  graph::Op op;
  // 2 rows (KV heads), 4 query heads each, d = 128, 1000 pairs each, fp16
  op.work = graph::DecodeAttention{.rows = 2, .group = 4, .head_dim = 128, .tokens = 2000, .longest = 1000};
  const Traffic t = traffic_of(op);
  CHECK(t.kv_read == 2.0 * 2000 * 128 * 2);
  CHECK(t.hbm_read == t.kv_read + 2 * 4 * 128 * 2);
  CHECK(t.hbm_write == 2 * 4 * 128 * 2);
}

TEST_CASE("copies count by direction, not as device traffic") {
  graph::Op op;
  op.work = graph::Copy{.direction = graph::Direction::kHostToDevice, .runs = 3, .run_bytes = 16384};
  CHECK(traffic_of(op).h2d == 3 * 16384.0);
  CHECK(traffic_of(op).hbm_write == 0);
  op.work = graph::Copy{.direction = graph::Direction::kDeviceToHost, .runs = 2, .run_bytes = 100};
  CHECK(traffic_of(op).d2h == 200);
}

TEST_CASE("a projection reads its weights and rows and writes its outputs") {
  graph::Op op;
  op.work = graph::Gemm{.m = 4, .n = 6144, .k = 4096};
  CHECK(traffic_of(op).hbm_read == (4096.0 * 6144 + 4 * 4096) * 2);
  CHECK(traffic_of(op).hbm_write == 4.0 * 6144 * 2);
}

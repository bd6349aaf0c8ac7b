#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.hpp"
#include "support.hpp"

namespace kvcast::tests {

using namespace trace;

TEST_CASE("decode scores equal the dot products, whether computed on use or in advance, on any number of threads") {
  const RandomTrace trace(small_info());
  const auto lazy = trace.load(0, 1);
  const auto eager = trace.load(0, 1);
  eager->compute_scores(4);
  for (int h = 0; h < 4; ++h) {
    const MatrixView scores = lazy->decode_scores(h);
    const MatrixView same = eager->decode_scores(h);
    REQUIRE((scores.rows == 3 && scores.cols == 22));
    for (int t = 0; t < 3; ++t) {
      for (std::size_t i = 0; i < 22; ++i) {
        double expected = 0;
        for (std::size_t c = 0; c < 8; ++c) {
          expected += double(lazy->decode_query(h, t)[c]) * double(lazy->keys(h / 2).row(i)[c]);
        }
        CHECK(scores.row(static_cast<std::size_t>(t))[i] == Approx(expected).margin(1e-5));
        CHECK(same.row(static_cast<std::size_t>(t))[i] == scores.row(static_cast<std::size_t>(t))[i]);
      }
    }
  }
  const float kept = lazy->decode_scores(1).row(2)[5];
  lazy->drop_scores();
  CHECK(lazy->decode_scores(1).row(2)[5] == kept);
}

TEST_CASE("decode queries are the last rows, windows the rows before them") {
  const RandomTrace trace(small_info());
  const auto layer = trace.load(1, 1);
  CHECK(layer->id() == 2);
  CHECK(layer->decode_query(3, 0) == layer->queries(3).row(4));
  CHECK(layer->decode_query(3, 2) == layer->queries(3).row(6));
  const MatrixView window = layer->window_queries(1, 3);
  CHECK(window.rows == 3);
  CHECK(window.row(0) == layer->queries(1).row(1));  // position 16 of 15..18
  CHECK(layer->hidden().rows == 0);
}

TEST_CASE("a window that the trace does not contain is rejected") {
  TraceInfo info = small_info();
  info.query_positions = {3, 14, 16, 17, 18, 19, 20, 21};  // 16, 17, 18 without a gap
  CHECK(info.longest_window() == 3);
  const RandomTrace trace(info);
  const auto layer = trace.load(0, 1);
  CHECK(layer->window_queries(0, 3).row(0) == layer->queries(0).row(2));
  CHECK_THROWS_WITH(
      layer->window_queries(0, 4),
      Catch::Contains("the last 4 prompt queries are needed, but the trace captured only the last 3 of 19 ") &&
          Catch::Contains("a capture with more queries"));
  CHECK_THROWS_AS(layer->window_queries(0, 0), UserError);
  info.query_positions = {17, 19, 20, 21};  // the last prompt position itself is missing
  CHECK(info.longest_window() == 0);
}

TEST_CASE("values are computed once, by the first caller, and only where they were not written") {
  TraceInfo info;
  info.model = "made", info.source = "synthetic", info.layers = {0};
  info.n_layers = 1, info.n_q_heads = info.n_kv_heads = 3, info.head_dim = 2;
  info.prompt_tokens = 4, info.decode_steps = 1, info.query_positions = {4};
  Layer layer(info, 0);
  std::array<int, 3> made{};
  layer.make_values_by([&](int head, std::int64_t, std::int64_t n, float* out) {
    ++made[static_cast<std::size_t>(head)];
    std::fill_n(out, 2 * n, static_cast<float>(head));
  });
  CHECK(made == std::array<int, 3>{0, 0, 0});
  CHECK(layer.values(1).row(4)[1] == 1);
  layer.mutable_values(2)[0] = 7;
  layer.make_values(2);
  CHECK(made == std::array<int, 3>{1, 1, 1});
  CHECK(layer.values(2).row(0)[0] == 7);
  CHECK(layer.values(2).row(0)[1] == 2);
  CHECK(layer.values(0).row(0)[0] == 0);
}

TEST_CASE("of a long context, only the values that are asked for are kept") {
  // A row more than 3 x 2^25 floats, of which blocks of 64 rows are made.
  TraceInfo info;
  info.model = "made", info.source = "synthetic", info.layers = {0};
  info.n_layers = 1, info.n_q_heads = 2, info.n_kv_heads = 1, info.head_dim = 1 << 16;
  info.prompt_tokens = 1536, info.decode_steps = 1, info.query_positions = {1536};
  Layer layer(info, 0);
  std::mutex mutex;
  std::vector<std::pair<std::int64_t, std::int64_t>> made;
  layer.make_values_by([&](int, std::int64_t first, std::int64_t n, float* out) {
    const std::lock_guard lock(mutex);
    made.emplace_back(first, n);
    for (std::int64_t i = 0; i < n; ++i) out[i << 16] = static_cast<float>(first + i);
  });
  float last[2] = {};
  layer.visit_values(2, [&](int q_head, MatrixView values) { last[q_head] = values.row(1536)[0]; });
  CHECK(last[0] == 1536);
  CHECK(last[1] == 1536);
  made.clear();
  const std::vector<std::int32_t> asked = {0, 63, 130, 1536}, again = {64, 191};
  std::vector<const float*> rows;
  layer.value_rows(0, asked, rows);
  for (std::size_t i = 0; i < asked.size(); ++i) CHECK(rows[i][0] == static_cast<float>(asked[i]));
  layer.value_rows(0, again, rows);
  for (std::size_t i = 0; i < again.size(); ++i) CHECK(rows[i][0] == static_cast<float>(again[i]));
  using Made = std::vector<std::pair<std::int64_t, std::int64_t>>;
  CHECK(made == Made{{0, 64}, {128, 64}, {1536, 1}, {64, 64}});  // the block from 128 is there already
  CHECK(layer.values(0).row(700)[0] == 700);
  made.erase(made.begin(), made.begin() + 4);
  CHECK(made == Made{{0, 1024}, {1024, 513}});
  layer.value_rows(0, asked, rows);  // of the whole head, which is there now
  CHECK(rows[2] == layer.values(0).row(130));
  CHECK(made.size() == 2);
}

TEST_CASE("a layer takes the storage of one before it, whatever its size") {
  TraceInfo info = small_info();
  const auto first = RandomTrace(info).load(0, 1);
  const float* const keys = first->keys(0).data;
  LayerStorage storage = first->take_storage();
  Layer same(info, 0, {}, std::move(storage));
  CHECK(same.keys(0).data == keys);
  info.prompt_tokens *= 2;
  Layer larger(info, 0, {}, same.take_storage());
  std::fill_n(larger.mutable_keys(info.n_kv_heads - 1), info.positions() * info.head_dim, 1.0f);
  CHECK(larger.keys(info.n_kv_heads - 1).row(static_cast<std::size_t>(info.positions()) - 1)[0] == 1);
  // A storage that was moved from is empty.
  Layer anew(info, 0, {}, std::move(storage));
  std::fill_n(anew.mutable_keys(0), info.head_dim, 2.0f);
  CHECK(anew.keys(0).row(0)[0] == 2);
}

TEST_CASE("a layer remains valid without its trace") {
  const auto layer = RandomTrace(small_info()).load(0, 1);
  CHECK(layer->info().positions() == 22);
  CHECK(layer->keys(1).rows == 22);
}

}  // namespace kvcast::tests

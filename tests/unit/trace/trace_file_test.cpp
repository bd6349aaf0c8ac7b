#include "trace/trace_file.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "base/error.hpp"
#include "support.hpp"

namespace kvcast::tests {

using namespace trace;

namespace {

// Largest |a − b| / (|b| + 2^−14) over all numbers of two layers.
double largest_difference(const Layer& a, const Layer& b) {
  double worst = 0;
  const auto compare = [&](const MatrixView& x, const MatrixView& y) {
    REQUIRE((x.rows == y.rows && x.cols == y.cols));
    for (std::size_t i = 0; i < x.rows * x.cols; ++i) {
      worst =
          std::max(worst, std::fabs(double(x.data[i]) - double(y.data[i])) / (std::fabs(double(y.data[i])) + 0x1p-14));
    }
  };
  for (int h = 0; h < a.info().n_kv_heads; ++h) compare(a.keys(h), b.keys(h)), compare(a.values(h), b.values(h));
  for (int h = 0; h < a.info().n_q_heads; ++h) compare(a.queries(h), b.queries(h));
  compare(a.hidden(), b.hidden());
  return worst;
}

std::string trace_refusal(const std::string& path) {
  try {
    open_trace(path);
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

// The message of open_trace for a trace whose description was changed before writing.
std::string refusal_after(const std::function<void(TraceInfo&)>& change) {
  const TemporaryFolder folder;
  TraceInfo info = small_info();
  change(info);
  write_trace(folder / "t", RandomTrace(info), Dtype::kF32, 1);
  return trace_refusal(folder / "t");
}

// The small trace's file with one piece of its header text replaced (offsets stay right: the header is its own length).
std::string refusal_with(const std::string& from, const std::string& to) {
  const TemporaryFolder folder;
  write_trace(folder / "t", RandomTrace(small_info()), Dtype::kF16, 1);
  const std::string bytes = read_bytes(folder / "t");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  std::string header = bytes.substr(8, length);
  const std::size_t at = header.find(from);
  REQUIRE(at != std::string::npos);
  header.replace(at, from.size(), to);
  write_bytes(folder / "t", safetensors_bytes(header, bytes.substr(8 + length)));
  return trace_refusal(folder / "t");
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a trace is read back from its file in every dtype") {
  const TemporaryFolder folder;
  TraceInfo info = small_info();
  info.hidden = GENERATE(0, 5);
  const RandomTrace original(info);
  // The error of rounding to nearest with m mantissa bits is at most 2^−(m+1): F16 m = 10, BF16 m = 7, F32 exact.
  const auto [dtype, bound] =
      GENERATE(table<Dtype, double>({{Dtype::kF32, 0.0}, {Dtype::kF16, 0x1p-11}, {Dtype::kBF16, 0x1p-8}}));
  const std::string path = folder / "t.safetensors";
  write_trace(path, original, dtype, 2);
  const auto trace = open_trace(path);
  CHECK(trace->info().model == "tiny");
  CHECK(trace->info().source == "synthetic");
  CHECK(trace->info().layers == info.layers);
  CHECK(trace->info().n_layers == 4);
  CHECK(trace->info().rope_theta == 500000);
  CHECK(trace->info().prompt_tokens == 19);
  CHECK(trace->info().decode_steps == 3);
  CHECK(trace->info().query_positions == info.query_positions);
  CHECK(trace->info().optional == info.optional);
  CHECK(trace->info().hidden == info.hidden);
  for (std::size_t i = 0; i < 2; ++i) {
    const double difference = largest_difference(*trace->load(i, 2), *original.load(i, 1));
    CHECK(difference <= bound);
    CHECK((dtype == Dtype::kF32 || difference > bound / 4));  // it was rounded to this type, not a finer one
  }
  // Writing a trace that was read gives the same bytes: nothing is lost after the first rounding.
  write_trace(folder / "again", *trace, dtype, 1);
  CHECK(read_bytes(folder / "again") == read_bytes(path));
  CHECK(open_trace(folder / "again")->identity() == trace->identity());
}

TEST_CASE("the identity changes with any byte") {
  const TemporaryFolder folder;
  write_trace(folder / "t", RandomTrace(small_info()), Dtype::kF32, 1);
  std::string bytes = read_bytes(folder / "t");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_bytes(folder / "u", bytes);
  CHECK(open_trace(folder / "t")->identity() != open_trace(folder / "u")->identity());
}

TEST_CASE("each metadata key is required and checked") {
  for (const char* key : {"format", "model", "source", "layers", "n_layers", "n_q_heads", "n_kv_heads", "head_dim",
                          "rope_theta", "prompt_tokens", "decode_steps"}) {
    const std::string quoted = fmt::format("\"{}\"", key);
    CHECK(contains(refusal_with(quoted, "\"other\""), fmt::format("__metadata__: {} is missing", key)));
  }
  CHECK(contains(refusal_with("kvcast-trace/1", "kvcast-trace/2"),
                 "format is \"kvcast-trace/2\", not a format that is known; known: kvcast-trace/1"));
  CHECK(contains(refusal_with("\"synthetic\"", "\"dreamt\""), "source is \"dreamt\"; known: captured, synthetic"));
  CHECK(contains(refusal_with("\"layers\":\"0,2\"", "\"layers\":\"2,0\""), "layers are not ascending: 0 after 2"));
  CHECK(contains(refusal_with("\"layers\":\"0,2\"", "\"layers\":\"0,4\""), "layers name 4, outside of 0 .. 3"));
  CHECK(contains(refusal_with("\"layers\":\"0,2\"", "\"layers\":\"\""), "layers name \"\", not an integer"));
  CHECK(contains(refusal_with("\"layers\":\"0,2\"", "\"layers\":\"0,2,\""), "not an integer"));
  CHECK(refusal_with("\"layers\":\"0,2\"", "\"layers\":\"0, 2\"") == "accepted");
  CHECK(contains(refusal_with("\"n_q_heads\":\"4\"", "\"n_q_heads\":\"3\""),
                 "n_q_heads is 3, not a multiple of n_kv_heads = 2"));
  CHECK(contains(refusal_with("\"head_dim\":\"8\"", "\"head_dim\":\"8.0\""), "head_dim is \"8.0\", not an integer"));
  CHECK(contains(refusal_with("\"head_dim\":\"8\"", "\"head_dim\":\"0\""), "outside of 1"));
  CHECK(contains(refusal_with("\"head_dim\":\"8\"", "\"head_dim\":\"99999999999999999999\""), "outside of 1"));
  CHECK(contains(refusal_with("\"rope_theta\":\"500000\"", "\"rope_theta\":\"nan\""), "not a finite number above 0"));
  CHECK(contains(refusal_with("\"rope_theta\":\"500000\"", "\"rope_theta\":\"1e999\""), "not a finite number above 0"));
  CHECK(contains(refusal_with("\"rope_theta\":\"500000\"", "\"rope_theta\":\"-1\""), "not a finite number above 0"));
  CHECK(refusal_with("\"rope_theta\":\"500000\"", "\"rope_theta\":\"5e5\"") == "accepted");
  CHECK(contains(refusal_with("[[0],[],[3]]", "[[0],[],[3]"), "targets is not JSON"));
}

TEST_CASE("tensors must have the shapes that the metadata imply") {
  CHECK(contains(refusal_with("\"head_dim\":\"8\"", "\"head_dim\":\"4\""),
                 "tensor \"layers.0.keys\": shape [2, 22, 8], the metadata say [2, 22, 4]"));
  CHECK(contains(refusal_with("layers.2.values", "layers.1.values"), "tensor \"layers.2.values\": is missing"));
  CHECK(contains(refusal_with("\"query_positions\"", "\"positions\""), "tensor \"query_positions\": is missing"));
  CHECK(contains(refusal_with("\"n_q_heads\":\"4\"", "\"n_q_heads\":\"8\""),
                 "tensor \"layers.0.queries\": shape [4, 7, 8]"));
  CHECK(contains(refusal_with("{\"dtype\":\"F16\"", "{\"dtype\":\"I16\""),
                 "dtype I16 cannot be used; known: F16, BF16, F32"));
  CHECK(
      contains(refusal_with("{\"dtype\":\"I64\"", "{\"dtype\":\"F64\""), "dtype F64 cannot be used; known: I32, I64"));
}

TEST_CASE("query positions are ascending, in range, and include every decode position") {
  CHECK(refusal_after([](TraceInfo& i) { i.query_positions = {19, 20, 21}; }) == "accepted");
  CHECK(refusal_after([](TraceInfo& i) { i.query_positions = {0, 7, 19, 20, 21}; }) == "accepted");
  CHECK(contains(refusal_after([](TraceInfo& i) {
                   i.query_positions = {19, 21};
                 }),
                 "must contain every decode position, 19 .. 21"));
  CHECK(contains(refusal_after([](TraceInfo& i) {
                   i.query_positions = {18, 19, 20};
                 }),
                 "must contain every decode position"));
  CHECK(contains(refusal_after([](TraceInfo& i) {
                   i.query_positions = {18, 18, 19, 20, 21};
                 }),
                 "not ascending: 18 after 18"));
  CHECK(contains(refusal_after([](TraceInfo& i) {
                   i.query_positions = {19, 20, 21, 22};
                 }),
                 "entry 3 is 22, outside of 0 .. 21"));
  CHECK(contains(refusal_after([](TraceInfo& i) { i.query_positions = {-1, 19, 20, 21}; }), "entry 0 is -1"));
  CHECK(
      contains(refusal_after([](TraceInfo& i) { i.decode_steps = 0, i.query_positions = {18}; }), "decode_steps is 0"));
}

TEST_CASE("numbers that are not finite are rejected at load, with their location") {
  const TemporaryFolder folder;
  write_trace(folder / "t", RandomTrace(small_info()), Dtype::kF16, 1);
  std::string bytes = read_bytes(folder / "t");
  // The last tensor is layers.2.queries [4, 7, 8] in F16; its last element but 10 is head 3, row 5 (7·8 − 10 = 46 = 5·8
  // + 6).
  bytes[bytes.size() - 20] = 0;
  bytes[bytes.size() - 19] = 0x7C;  // +infinity
  write_bytes(folder / "t", bytes);
  const auto trace = open_trace(folder / "t");
  CHECK_NOTHROW(trace->load(0, 1));
  CHECK_THROWS_WITH(trace->load(1, 2), Catch::Contains("tensor \"layers.2.queries\": element [3, 5, 6] is inf"));
}

TEST_CASE("hidden states are in all captured layers or in none") {
  const TemporaryFolder folder;
  TraceInfo info = small_info();
  info.hidden = 6;
  write_trace(folder / "t", RandomTrace(info), Dtype::kF32, 1);
  std::string bytes = read_bytes(folder / "t");
  for (const char* layer : {"layers.0.hidden", "layers.2.hidden"}) {
    std::string changed = bytes;
    changed[changed.find(layer) + 9] = 'X';
    write_bytes(folder / "u", changed);
    CHECK(contains(trace_refusal(folder / "u"), "\"layers.2.hidden\": "));
  }
  CHECK(open_trace(folder / "t")->load(1, 1)->hidden().cols == 6);
}

}  // namespace kvcast::tests

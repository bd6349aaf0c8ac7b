// Models whose layers differ: attention to compressed entries, chunks, sliding layers with heads of their own, experts
// in every other layer, Mamba. Sizes by hand, and what is refused.
#include <catch2/catch.hpp>

#include "config/deployment.hpp"
#include "config/model.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {

using namespace config;

namespace {

using Catch::Matchers::Contains;
using Kind = Compressed::Kind;

Model shipped_model(const char* name) {
  return read_model(std::string(KVCAST_SOURCE_DIR) + "/configs/models/" + name + ".yaml");
}

// 4 layers of width 32 with 4 query heads over one key of 16, of which 4 dimensions have positions.
std::string entries_text(const std::string& layers, const std::string& more = "") {
  return "title: Entries\nlayers: 4\nhidden: 32\nn_q_heads: 4\nn_kv_heads: 1\nhead_dim: 16\nffn: 64\nvocab: 100\n"
         "max_context: 4096\nrope: {theta: 10000}\nsource: made up\n"
         "compressed: {layers: " +
         layers +
         ", window: 8, csa_tokens: 4, hca_tokens: 16, index_heads: 2, index_dim: 8, index_best: 3, query_rank: 10, "
         "rope_dim: 4, output_groups: 2, output_rank: 6}\n" +
         more;
}

Model entries(const std::string& layers, const std::string& more = "") {
  return read_model(parse_yaml(entries_text(layers, more), "entries.yaml"), "entries");
}
std::string entries_refusal(const std::string& layers, const std::string& more = "") {
  return error_of([&] { entries(layers, more); });
}

TEST_CASE("a layer's cache grows by its entries and their index, and has a window besides", "[compressed]") {
  const auto of = [](const char* layers) { return entries(layers).kv_bytes_per_token(); };
  CHECK(of("HHHH") == 4 * 16 * 2 / 16.0);             // an entry of 16 numbers of 2 bytes per 16 tokens
  CHECK(of("CCCC") == 4 * (16 * 2 + (8 + 4)) / 4.0);  // and an index key of 8 bytes and a scale of 4 per 4 tokens
  CHECK(of("WCHH") == (16 * 2 + 12) / 4.0 + 2 * 2);
  CHECK(entries("WCHH").index_bytes_per_token() == 3);
  CHECK(entries("HHHH").index_bytes_per_token() == 0);
  // Windows of 8 tokens; the compressor of C keeps 8 rows of values and gates of both halves, 2 · 2 · (16 + 8) numbers,
  // that of H 16 rows of 2 · 16, in single precision.
  CHECK(entries("WWWW").state_bytes() == 4 * 8 * 32);
  CHECK(entries("WCHW").state_bytes() == 4 * 8 * 32 + 8 * 96 * 4 + 16 * 32 * 4);
}

TEST_CASE("positions keep 16 bits in any cache", "[compressed]") {
  const Compressed c = *entries("WCHH").compressed;
  CHECK(c.entry_bytes(16, Precision::kBf16) == 32);
  CHECK(c.entry_bytes(16, Precision::kFp8) == 12 + 8 + 8);  // a scale for up to 64 numbers, padded to 8 bytes
  CHECK(c.entry_bytes(16, Precision::kNvfp4) == 12 * (0.5 + 1 / 16.0) + 8);
}

TEST_CASE("parameters of compressed attention are those of its matrices", "[compressed]") {
  // Embedding and head, final norm, norms and networks.
  const double others = 2 * 100 * 32 + 32 + 4 * (2 * 32 + 3 * 64 * 32);
  // Queries through 10 and the key, their norms, four sinks; two groups of 2 · 16 to 6 each, and back.
  const double plain = (10 + 16) * 32 + 64 * 10 + 10 + 16 + 4 + 2 * 6 * 32 + 32 * 12;
  CHECK(entries("WWWW").parameters() == others + 4 * plain);
  // Values and gates of 16, their positions in an entry, a norm.
  CHECK(entries("HHHH").parameters() == others + 4 * (plain + 32 * 32 + 16 * 16 + 16));
  // The same twice as wide, and of 8 for the index; queries and weights of the index.
  CHECK(entries("CCCC").parameters() ==
        others + 4 * (plain + (64 + 32) * 32 + 4 * (32 + 16) + 16 + 8 + 2 * 8 * 10 + 2 * 32));
  // Coefficients of 4 streams: to the block, from it, and among them; 2 blocks a layer; those of the head.
  CHECK(entries("WWWW", "streams: 4\n").parameters() ==
        others + 4 * plain + 8 * (24 * 4 * 32 + 24 + 3) + 4 * 4 * 32 + 4 + 1);
}

TEST_CASE("layers that are not known, and shapes that do not fit, are refused", "[compressed]") {
  CHECK_THAT(entries_refusal("WCX"), Contains("'X' at 2 is none of C, H and W"));
  CHECK_THAT(entries_refusal("WCH"), Contains("3 characters for 4 layers"));
  CHECK_THAT(entries_refusal("WCHH", "sliding: {window: 4, full_every: 2}\n"), Contains("not modelled together"));
  const std::string text = entries_text("WCHH");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    return error_of([&] { read_model(parse_yaml(other, "entries.yaml"), "entries"); });
  };
  CHECK_THAT(changed("n_kv_heads: 1", "n_kv_heads: 2"), Contains("needs n_kv_heads: 1"));
  CHECK_THAT(changed("output_groups: 2", "output_groups: 3"), Contains("output_groups that divide n_q_heads"));
  CHECK_THAT(changed("rope_dim: 4", "rope_dim: 18"), Contains("head_dim of at least rope_dim"));
}

TEST_CASE("DeepSeek-V4 keeps what is published", "[compressed]") {
  // 584 bytes an entry and 132 an index key (ROCm/ATOM, recipes/DeepSeek-V4.md): (21·(584 + 132)/4 + 20·584/128).
  Model flash = shipped_model("deepseek-v4-flash"), pro = shipped_model("deepseek-v4-pro");
  flash.cache = pro.cache = Precision::kFp8;
  CHECK(flash.compressed->entry_bytes(flash.head_dim, flash.cache) == 584);
  CHECK(flash.kv_bytes_per_token() == Approx(21 * 716 / 4.0 + 20 * 584 / 128.0));
  CHECK(pro.kv_bytes_per_token() == Approx(30 * 716 / 4.0 + 31 * 584 / 128.0));
  flash.compressed->index_fp4 = true;
  CHECK(flash.kv_bytes_per_token() == Approx(21 * 652 / 4.0 + 20 * 584 / 128.0));
  CHECK(flash.compressed->count(Kind::kSelecting, 43) == 21);
  CHECK(flash.compressed->count(Kind::kAll, 43) == 20);
  CHECK(pro.compressed->count(Kind::kWindow, 61) == 0);
}

TEST_CASE("GPUs share the heads of compressed attention and all have its entries", "[compressed]") {
  const Model rank = rank_of(shipped_model("deepseek-v4-flash"), 8, false);
  CHECK(rank.n_q_heads == 8);
  CHECK(rank.compressed->output_groups == 1);
  CHECK(rank.kv_bytes_per_token() == shipped_model("deepseek-v4-flash").kv_bytes_per_token());
  CHECK_THROWS_WITH(rank_of(shipped_model("deepseek-v4-flash"), 16, false),
                    Contains("groups of the output projection"));
}

TEST_CASE("chunks end where the next begins", "[model]") {
  const Model scout = shipped_model("llama-4-scout");
  CHECK(scout.in_window(1) == 1);
  CHECK(scout.in_window(8192) == 8192);
  CHECK(scout.in_window(8193) == 1);
  CHECK(scout.full_layers() == 12);
  CHECK(shipped_model("gemma-3-12b").in_window(8193) == 1024);
}

TEST_CASE("sliding layers may have heads of their own", "[model]") {
  const Model gemma = shipped_model("gemma-4-31b");
  const Model sliding = sliding_layers(gemma);
  CHECK(gemma.kv_bytes_per_token() == 10 * 2 * 4 * 512 * 2);
  CHECK(sliding.kv_bytes_per_token_layer() == 2 * 16 * 256 * 2);
  const Model rank = rank_of(gemma, 8, false);
  CHECK(rank.n_kv_heads == 1);
  CHECK(rank.sliding_kv_heads == 2);
}

TEST_CASE("experts may be in the last layer of each group", "[model]") {
  const Model maverick = shipped_model("llama-4-maverick");
  CHECK_FALSE(maverick.has_experts(0));
  CHECK(maverick.has_network(0));
  CHECK(maverick.has_experts(1));
  CHECK(maverick.has_experts(47));
}

TEST_CASE("Mamba keeps a state of each channel", "[model]") {
  const Model jamba = shipped_model("jamba-v0.1");
  CHECK(jamba.full_layers() == 4);
  CHECK(jamba.mixer(4) == Mixer::kFull);
  // 8192 channels of 16 numbers in single precision, and three inputs of the convolution.
  CHECK(jamba.state_bytes() == 28 * (8192 * 16 * 4 + 3 * 8192 * 2));
  const Model rank = rank_of(jamba, 8, false);
  CHECK(rank.recurrence->heads == 1024);
  CHECK(rank.recurrence->key_heads == 1);
}

}  // namespace
}  // namespace kvcast::tests

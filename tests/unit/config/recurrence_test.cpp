// Models whose layers have a recurrence in place of attention: their sizes by hand and published, and what is refused.
#include <catch2/catch.hpp>

#include "config/model.hpp"
#include "support/error_of.hpp"

namespace kvcast::tests {

using namespace config;

namespace {

using Catch::Matchers::Contains;

Model named_hybrid(const char* name) {
  return read_model(std::string(KVCAST_SOURCE_DIR) + "/configs/models/" + name + ".yaml");
}

// 6 layers of width 32, of which the third and the sixth attend: 2 query heads on 1 KV head of 8.
std::string hybrid_text(const std::string& recurrence, const std::string& more = "") {
  return "title: Hybrid\nlayers: 6\nhidden: 32\nn_q_heads: 2\nn_kv_heads: 1\nhead_dim: 8\nffn: 64\nvocab: 100\n"
         "max_context: 4096\nrope: {theta: 10000}\nsource: made up\nrecurrence: {" +
         recurrence + "}\n" + more;
}
const std::string kGatedDelta = "kind: gated_delta, heads: 4, key_heads: 2, key_dim: 8, value_dim: 16, taps: 4";

Model hybrid(const std::string& recurrence, const std::string& more = "") {
  return read_model(parse_yaml(hybrid_text(recurrence, more), "hybrid.yaml"), "hybrid");
}
std::string refusal_of_recurrence(const std::string& recurrence, const std::string& more = "") {
  return error_of([&] { hybrid(recurrence, more); });
}

TEST_CASE("layers with a recurrence keep a state of constant size, the others a cache") {
  const Model m = hybrid(kGatedDelta + ", attention_every: 3");
  CHECK(m.full_layers() == 2);
  CHECK(m.layers_with(Mixer::kRecurrence) == 4);
  CHECK(m.mixer(1) == Mixer::kRecurrence);
  CHECK(m.mixer(2) == Mixer::kFull);
  CHECK(m.attending_layer(1) == 5);
  CHECK(attending(m).layers == 2);
  CHECK_FALSE(attending(m).recurrence);
  CHECK(m.kv_bytes_per_token() == 2 * 2 * 8 * 2);  // layers, K and V, dimensions, bytes
  // 4 heads of 8 × 16 in single precision; three inputs of 2 · 2 · 8 + 4 · 16 channels in 16 bits.
  CHECK(m.state_bytes() == 4 * (4 * 8 * 16 * 4 + 3 * 96 * 2));
  CHECK(hybrid(kGatedDelta + ", attention_every: 3, state: bf16").state_bytes() == 4 * (4 * 8 * 16 * 2 + 3 * 96 * 2));
}

TEST_CASE("parameters of a layer with a recurrence are those of its matrices") {
  const double others = 2 * 100 * 32 + 32 + 6 * (2 * 32 + 3 * 64 * 32) + 2 * ((16 + 16) * 32 + 32 * 16);
  const auto layer = [&](const std::string& text) { return (hybrid(text).parameters() - others) / 4; };
  // Queries, keys, values, output gate and two gates a head; the convolution; decay, its bias and the norm of a head.
  CHECK(layer(kGatedDelta + ", attention_every: 3") ==
        (2 * 16 + 2 * 64 + 2 * 4) * 32 + 96 * 4 + (4 + 4 + 16) + 64 * 32);
  // Groups for keys: input and gate of 64, B and C of 16, a step a head; convolution with bias; A, D, bias of steps;
  // norm.
  CHECK(layer("kind: mamba2, heads: 4, key_heads: 2, key_dim: 8, value_dim: 16, taps: 4, attention_every: 3") ==
        (2 * 16 + 2 * 64 + 4) * 32 + 96 * 4 + (3 * 4 + 64 + 96) + 64 * 32);
  // Decay and output gate through 8 numbers each; decay a head, its bias a channel, norm.
  CHECK(layer("kind: kimi_delta, heads: 4, key_dim: 8, value_dim: 8, taps: 4, attention_every: 3") ==
        (3 * 32 + 4) * 32 + 2 * (8 * 32 + 32 * 8) + 96 * 4 + (4 + 32 + 8) + 32 * 32);
  // An output gate of full rank; it comes out of the first product.
  const std::string full = "kind: kimi_delta, heads: 4, key_dim: 8, value_dim: 8, taps: 4, full_gate: true";
  CHECK(layer(full + ", attention_every: 3") ==
        (4 * 32 + 4) * 32 + (8 * 32 + 32 * 8) + 96 * 4 + (4 + 32 + 8) + 32 * 32);
  CHECK(hybrid(full + ", attention_every: 3").recurrence->projected() == 4 * 32 + 4 + 8);
  CHECK(layer("kind: lightning, heads: 4, key_dim: 8, value_dim: 8, attention_every: 3") == 4 * 32 * 32 + 32 + 32 * 32);
}

TEST_CASE("parameter counts of models with a recurrence equal the published ones") {
  CHECK(named_hybrid("qwen3-next-80b-a3b").parameters() == Approx(79.67e9).epsilon(1e-3));
  CHECK(named_hybrid("kimi-linear-48b-a3b").parameters() == Approx(49.12e9).epsilon(2e-3));
  CHECK(named_hybrid("minimax-m1").parameters() == Approx(456.1e9).epsilon(2e-3));
  CHECK(named_hybrid("nemotron-3-nano-30b-a3b").parameters() == Approx(31.58e9).epsilon(2e-3));
  CHECK(named_hybrid("nemotron-3-super-120b-a12b").parameters() == 120668687360);
  CHECK(named_hybrid("nemotron-3-ultra-550b-a55b").parameters() == 549308968960);
  // States: 36 layers of 32 · 128 · 128 numbers and three inputs of 8192 channels.
  CHECK(named_hybrid("qwen3-next-80b-a3b").state_bytes() == 36 * (2097152 + 49152));
  CHECK(named_hybrid("nemotron-3-nano-30b-a3b").state_bytes() == 23 * (2097152 + 36864));
  CHECK(named_hybrid("kimi-linear-48b-a3b").full_layers() == 7);
}

TEST_CASE("Kimi-K3 has the published numbers of parameters, active ones and bytes") {
  Model m = named_hybrid("kimi-k3");
  // Its report counts 2.78 T with a vision tower of 0.4 B; layers 4, 8, ..., 92 and 93 attend.
  CHECK(m.parameters() + 0.40e9 == Approx(2779.9e9).epsilon(1e-4));
  CHECK(m.full_layers() == 24);
  // 4.25 bits a weight of routed experts, 16 of all others: a checkpoint of 1.5609 TB, 0.8 GB of which are the tower's.
  CHECK(m.weight_bytes() + 0.8e9 == Approx(1560.9e9).epsilon(2e-4));
  CHECK(m.routed_bytes() == 3.0 * 3584 * 3072 * 4.25 / 8);
  // 104.2 B are active: 16 of 896 experts of 92 layers, all routers, no embedding.
  const double routers = 92.0 * 7168;
  m.experts->count = 16;
  CHECK(m.parameters() + routers * (896 - 16) - 163840.0 * 7168 == Approx(104.2e9).epsilon(1e-3));
}

TEST_CASE("blocks of residuals are counted over the layers") {
  const config::WeighedResiduals r = hybrid(kGatedDelta + ", attention_every: 3", "residual_block: 2\n").residuals;
  CHECK(r.blocks == 3);
  // Mixers of six layers sum 0, 2, 2, 3, 3 and 4 inputs, networks 2, 2, 3, 3, 4 and 4.
  CHECK(r.inputs == Approx(32.0 / 12));
  CHECK(hybrid(kGatedDelta + ", attention_every: 3").residuals.inputs == 0);
}

TEST_CASE("a GPU holds its share of the heads of a recurrence") {
  const Model m = hybrid(kGatedDelta + ", attention_every: 3");
  const Model rank = rank_of(m, 2, false);
  CHECK(rank.recurrence->heads == 2);
  CHECK(rank.state_bytes() == m.state_bytes() / 2);
  CHECK_THROWS_WITH(
      rank_of(hybrid("kind: lightning, heads: 3, key_dim: 8, value_dim: 8, attention_every: 3"), 2, false),
      Contains("3 heads of the recurrence"));
}

TEST_CASE("a layer may be one block") {
  const std::string mamba = "kind: mamba2, heads: 4, key_heads: 2, key_dim: 8, value_dim: 16, taps: 4";
  const Model m = hybrid(mamba, "blocks: \"M-M*-M\"\n");
  CHECK(m.full_layers() == 1);
  CHECK(m.layers_with(Mixer::kRecurrence) == 3);
  CHECK(m.has_network(1));
  CHECK_FALSE(m.has_network(0));
  CHECK_THAT(refusal_of_recurrence(mamba, "blocks: \"M-M*\"\n"),
             Contains("hybrid.yaml:13:9") && Contains("4 characters for 6 layers"));
  CHECK_THAT(refusal_of_recurrence(mamba, "blocks: \"M-X*-M\"\n"), Contains("'X' at 2 is none of M, *, E and -"));
  CHECK_THAT(refusal_of_recurrence(mamba, "blocks: \"MEM*-M\"\n"), Contains("E `experts`"));
}

TEST_CASE("a recurrence that does not fit its model is refused where it stands") {
  CHECK_THAT(refusal_of_recurrence(kGatedDelta),
             Contains("hybrid.yaml:12:20") && Contains("attention_every or attention_layers"));
  CHECK_THAT(refusal_of_recurrence(kGatedDelta + ", attention_layers: [2, 9]"), Contains("attention_layers"));
  CHECK_THAT(refusal_of_recurrence(kGatedDelta + ", attention_layers: [4, 2]"), Contains("ascending"));
  CHECK_THAT(
      refusal_of_recurrence("kind: gated_delta, heads: 3, key_heads: 2, key_dim: 8, value_dim: 8, attention_every: 3"),
      Contains("2 does not divide 3 heads"));
  CHECK_THAT(refusal_of_recurrence("kind: rwkv"), Contains("gated_delta, kimi_delta, mamba2, lightning"));
  CHECK_THAT(refusal_of_recurrence(kGatedDelta + ", attention_every: 3", "sliding: {window: 8, full_every: 2}\n"),
             Contains("not modelled together"));
}

}  // namespace
}  // namespace kvcast::tests

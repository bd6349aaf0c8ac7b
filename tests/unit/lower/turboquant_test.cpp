// The work around TurboQuant's decode kernel, and its memory: layers at both ends keep 16 bits.
#include <catch2/catch.hpp>

#include <string_view>

#include "lower/decode.hpp"
#include "lower/prefill.hpp"
#include "policy/costs.hpp"

namespace kvcast::tests {

using namespace lower;

namespace {

// Attends to all tokens and keeps them.
class KeepsAll final : public policy::Policy {
 public:
  std::unique_ptr<policy::Selector> selector(const policy::LayerInput&, const policy::Lengths&) const override {
    return nullptr;
  }
  void decode_layer(const policy::DecodeLayer& shape, policy::LayerOps& ops) const override {
    ops.done(ops.attention(policy::attention_over(shape, 0), {ops.ready()}));
  }
  std::vector<policy::MemoryItem> memory(const policy::MemoryShape& shape) const override {
    return {policy::in_hbm(graph::Owner::kKvCache, policy::kv_bytes(shape, static_cast<double>(shape.tokens)))};
  }
};

// Three layers, of which the middle one is packed: two KV heads and four query heads of 16 numbers, three sequences of
// 100 tokens, whose prompts are read in chunks of 60.
struct Packed {
  config::Run run;
  KeepsAll policy;
  std::vector<policy::HeadCounts> counts = std::vector<policy::HeadCounts>(6, policy::HeadCounts{.attended = 101});
  DecodeSetting setting;
  explicit Packed(const char* format) {
    run.model.layers = 3, run.model.hidden = 64, run.model.n_q_heads = 4, run.model.n_kv_heads = 2;
    run.model.head_dim = 16, run.model.ffn = 128, run.model.vocab = 1000;
    run.model.cache = *config::cache_from_name(format), run.model.plain_ends = 1;
    run.workload = {100, 8, 3, 0};
    run.workload.prefill_chunk = 60;
    setting.rank = run.model;
    setting.run = &run, setting.policy = &policy;
    setting.lengths = {100, 8}, setting.counted_tokens = 101;
    setting.counts = [this](int, std::int64_t) { return std::span<const policy::HeadCounts>(counts); };
  }

  // The works of this kind and label of the first step, or of all chunks of the prompts.
  template <typename Work>
  std::vector<Work> works(graph::WorkSource& source, std::string_view label) const {
    std::vector<Work> found;
    for (std::vector<graph::Op> block; source.next_block(block);) {
      for (const graph::Op& op : block) {
        if (op.label == label) found.push_back(std::get<Work>(op.work));
      }
    }
    return found;
  }
  template <typename Work>
  std::vector<Work> in_step(std::string_view label) const {
    DecodeWindow window(setting, 101, 1);
    return works<Work>(window, label);
  }
  template <typename Work>
  std::vector<Work> in_prompts(std::string_view label) const {
    Prefill prefill(setting);
    return works<Work>(prefill, label);
  }
};

}  // namespace

TEST_CASE("a step rotates queries and the new key, packs the new pair, and unpacks the packed layer alone") {
  const Packed packed("turboquant_3bit_nc");
  // 12 query heads and 6 KV heads times a matrix of 16 × 16 in single precision.
  CHECK(packed.in_step<graph::Gemm>("rotate queries") == std::vector{graph::Gemm{12, 16, 16, 4}});
  CHECK(packed.in_step<graph::Gemm>("rotate keys") == std::vector{graph::Gemm{6, 16, 16, 4}});
  const auto packing = packed.in_step<graph::Kernel>("pack keys and values");
  REQUIRE(packing.size() == 1);
  CHECK(packing[0].read_bytes == 6 * 2 * 16 * 2);
  CHECK(packing[0].write_bytes == 6 * (6 + 2 + 6 + 4));
  const auto attention = packed.in_step<graph::DecodeAttention>("attention");
  REQUIRE(attention.size() == 3);
  CHECK(attention[0].element_bytes == 2);
  CHECK(attention[0].unpack_flops == 0);
  CHECK(attention[1].element_bytes == Approx(18 / 32.0));
  CHECK(attention[1].separate_heads);
  CHECK(attention[2].element_bytes == 2);
  // Keys in FP8 are not rotated.
  CHECK(Packed("turboquant_k8v4").in_step<graph::Gemm>("rotate queries").empty());
}

TEST_CASE("a chunk of a prompt unpacks what earlier ones left, and rotates keys back") {
  const Packed packed("turboquant_4bit_nc");
  // The second chunk, of the packed layer: 60 tokens of three sequences, two heads of 8 + 2 and 8 + 4 bytes.
  const auto flattened = packed.in_prompts<graph::Kernel>("flatten cache");
  REQUIRE(flattened.size() == 1);
  CHECK(flattened[0].read_bytes == 3 * 60 * 2 * 22);
  CHECK(flattened[0].write_bytes == 3 * 60 * 2 * 2 * 16 * 2);
  CHECK(packed.in_prompts<graph::Gemm>("rotate keys back") == std::vector{graph::Gemm{3 * 60 * 2, 16, 16, 4}});
}

TEST_CASE("the cache holds the layers at both ends in 16 bits, and a buffer unpacked pairs of one prompt") {
  const Packed packed("turboquant_k8v4");
  double cache = 0, buffer = 0;
  for (const policy::MemoryItem& item : decode_memory(packed.setting, 101)) {
    if (item.owner == graph::Owner::kKvCache) cache += item.bytes;
    if (item.owner == graph::Owner::kUnpackedLayer) buffer += item.bytes;
  }
  CHECK(cache == 3 * 101 * 2 * (2 * 2 * 16 * 2 + 16 + 8 + 4));
  CHECK(buffer == 108 * 2 * 2 * 16 * 2);
}

}  // namespace kvcast::tests

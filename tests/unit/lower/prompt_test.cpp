// Prompts that are read in blocks, or with sparse attention: work and memory of prefill, chunk by chunk.
#include <catch2/catch.hpp>

#include <algorithm>

#include "lower/prefill.hpp"
#include "policies/all.hpp"

namespace kvcast::tests {

using namespace lower;

namespace {

using graph::Kind;

// A prompt of 100 tokens, 3 sequences, 2 layers, 4 query heads on 2 KV heads of 16 dimensions.
config::Run tiny_run() {
  config::Run run;
  run.model.layers = 2, run.model.hidden = 64, run.model.ffn = 128, run.model.vocab = 1000;
  run.model.n_q_heads = 4, run.model.n_kv_heads = 2, run.model.head_dim = 16;
  run.workload = {100, 8, 3, 0};
  return run;
}

struct Seen {
  int chunks = 0, evictions = 0;
  double flops = 0, peak_kv = 0, last_kv = 0;
};

Seen prefill(const std::string& name, const std::string& parameters, std::int64_t chunk = 0, double density = 1) {
  config::Run run = tiny_run();
  run.workload.prefill_chunk = chunk;
  const policy::Lengths lengths{100, 8};
  const auto policy = policy::make_policy(policy::find_policy(name), config::parse_yaml("{" + parameters + "}", name));
  DecodeSetting setting;
  setting.rank = run.model;
  setting.run = &run, setting.policy = policy.get(), setting.lengths = lengths;
  setting.prompt_density = [density](int) { return density; };
  Prefill source(setting);
  Seen seen;
  for (std::vector<graph::Op> block; source.next_block(block);) {
    ++seen.chunks;
    for (const graph::Op& op : block) {
      if (op.kind == Kind::kAttention) seen.flops += std::get<graph::PrefillAttention>(op.work).flops;
      if (op.kind == Kind::kTopK) ++seen.evictions;
      for (const graph::MemoryDelta& m : op.memory) {
        if (graph::owner_name(m.owner) != "KV cache") continue;
        seen.last_kv += m.bytes;
        seen.peak_kv = std::max(seen.peak_kv, seen.last_kv);
      }
    }
  }
  return seen;
}

constexpr double kPair = 2.0 * 4 * 3 * 4 * 16;   // flops of a query-key pair: 2 layers, 3 sequences, 4 heads
constexpr double kToken = 3.0 * 2 * 2 * 16 * 2;  // bytes of a token in a layer

TEST_CASE("a prompt in blocks attends to the tokens kept so far") {
  // Blocks of 30, 30, 30, 10 with 20 tokens held from one to the next: 465 causal pairs and 30·0, 30·20, 30·20; then 55
  // and 10·20.
  const Seen seen = prefill("keydiff", "budget: 20, block: 30");
  CHECK(seen.chunks == 4);
  CHECK(seen.evictions == 2 * 4);
  CHECK(seen.flops == kPair * (3 * 465 + 2 * 30 * 20 + 55 + 10 * 20));
  // Layers hold 20 tokens each, and one of them its block in addition: 20 + 20 + 30.
  CHECK(seen.peak_kv == Approx(kToken * 70));
  // budget + 1 in both layers once the prompt has been read.
  CHECK(seen.last_kv == Approx(kToken * 2 * 21));
}

TEST_CASE("a block of the whole prompt and no blocks are equivalent") {
  const Seen one = prefill("keydiff", "budget: 20"), block = prefill("keydiff", "budget: 20, block: 100");
  CHECK(one.chunks == 1);
  CHECK(block.chunks == 1);
  CHECK(one.flops == kPair * 5050);
  CHECK(block.flops == one.flops);
  CHECK(block.peak_kv == one.peak_kv);
  // No memory is freed before the layer's prompt has been read.
  CHECK(one.peak_kv == Approx(kToken * (21 + 100)));
}

TEST_CASE("a chunk ends at the end of a block") {
  // Chunks of 20 in blocks of 30: 20, 10, 20, 10, 20, 10, 10; evictions after blocks only.
  const Seen seen = prefill("keydiff", "budget: 20, block: 30", 20);
  CHECK(seen.chunks == 7);
  CHECK(seen.evictions == 2 * 4);
  CHECK(seen.flops == kPair * (3 * 465 + 2 * 30 * 20 + 55 + 10 * 20));  // the same pairs
}

TEST_CASE("every policy that evicts can read its prompt in blocks") {
  for (const char* setting :
       {"h2o budget: 20", "tova budget: 20", "keydiff budget: 20", "keyl2norm budget: 20", "streaming_llm budget: 20",
        "snapkv budget: 20, window: 8", "pyramidkv budget: 20, window: 8", "adakv budget: 20, window: 8",
        "cake budget: 20, window: 8", "d2o budget: 20, layers: uniform",
        "cake budget: 20, window: 8, decode_eviction: true", "snapkv budget: 20, window: 8, decode_eviction: true",
        "keyl2norm budget: 20, decode_eviction: true"}) {
    CAPTURE(setting);
    const std::string text = setting, name = text.substr(0, text.find(' '));
    const Seen seen = prefill(name, text.substr(name.size()) + ", block: 30");
    CHECK(seen.chunks == 4);
    CHECK(seen.flops == kPair * (3 * 465 + 2 * 30 * 20 + 55 + 10 * 20));
    CHECK(seen.peak_kv < kToken * 100);
  }
}

TEST_CASE("nothing is evicted before prune_after") {
  // Blocks end at 30, 60, 90 and 100; the first eviction is at 90: 30 queries see 30, then 60, 10 see 20.
  const Seen seen = prefill("keyl2norm", "budget: 20, block: 30, prune_after: 70");
  CHECK(seen.flops == kPair * (3 * 465 + 30 * 30 + 30 * 60 + 55 + 10 * 20));
}

TEST_CASE("layers that stay dense keep their whole prompt") {
  // Layer 0 computes all 5050 pairs, layer 1 those of blocks: per layer half of kPair.
  const Seen seen = prefill("keydiff", "budget: 20, block: 30, first_dense_layers: 1");
  CHECK(seen.flops == kPair / 2 * (5050 + 3 * 465 + 2 * 30 * 20 + 55 + 10 * 20));
}

TEST_CASE("sparse attention computes its share of the pairs") {
  CHECK(prefill("minference", "pattern: a_shape", 0, 0.25).flops == kPair * 5050 * 0.25);
  // The estimate of XAttention is index work, and 1/stride of dense scores.
  CHECK(prefill("xattention", "", 0, 0.25).flops == kPair * 5050 * 0.25);
  CHECK(prefill("xattention", "density: 0.5", 0, 0.25).flops == kPair * 5050 * 0.5);
  CHECK(prefill("full", "", 0, 1).flops == kPair * 5050);
}

TEST_CASE("a prompt that is pruned before the model is read in part") {
  // 32 of 100 tokens in both layers; the draft, 16 layers of 32 heads of 64, reads all and decodes one token at 101.
  const Seen seen = prefill("specprefill", "budget: 32, look_ahead: 1");
  constexpr double kDraft = 16 * 3 * 32 * 4 * 64;
  CHECK(seen.flops == kPair * 32 * 33 / 2 + kDraft * (5050 + 101));
  CHECK(seen.peak_kv == Approx(kToken * 2 * 32));
  CHECK(prefill("specprefill", "budget: 100").flops == kPair * 5050);
  // Chunks of 50 tokens hold 16 of them each.
  CHECK(prefill("specprefill", "budget: 32, look_ahead: 1", 50).flops == seen.flops);
}

}  // namespace
}  // namespace kvcast::tests

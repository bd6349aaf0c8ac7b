// A tiny model and two made-up policies: every op of a step can be counted by hand.
#include <catch2/catch.hpp>

#include <map>
#include <set>

#include "graph/traffic.hpp"
#include "lower/decode.hpp"
#include "lower/dense.hpp"
#include "lower/eager.hpp"
#include "lower/prefill.hpp"
#include "unit/lower/lowered_step.hpp"

namespace kvcast::tests {

using namespace lower;
using graph::Kind;
using graph::Lane;

namespace {

std::map<Kind, int> count_kinds(const std::vector<graph::Op>& ops) {
  std::map<Kind, int> counts;
  for (const graph::Op& op : ops) ++counts[op.kind];
  return counts;
}

}  // namespace

TEST_CASE("a decode step consists of nine kernels per layer and a head") {
  LoweredStep f;
  DecodeWindow window(f.setting, 101, 1);
  const auto blocks = f.blocks(window);
  REQUIRE(blocks.size() == 1);
  const auto kinds = count_kinds(blocks[0]);
  // Per layer: qkv, output, gate-up, down; the head makes one more.
  CHECK(kinds.at(Kind::kGemm) == 4 * 2 + 1);
  CHECK(kinds.at(Kind::kAttention) == 2);
  // Per layer: two norms, RoPE with append, activation; at the end a norm and the sampling.
  CHECK(kinds.at(Kind::kSmall) == 4 * 2 + 2);
  CHECK(kinds.at(Kind::kCopyIn) == 2);
  CHECK(kinds.at(Kind::kSync) == 1);
  // One graph launch for the model's stream, one task a layer on the recall thread.
  CHECK(kinds.at(Kind::kLaunch) == 1 + 2);
  for (const graph::Op& op : blocks[0]) {
    const auto* host = std::get_if<graph::HostWork>(&op.work);
    if (host != nullptr && host->call == graph::HostCall::kGraphLaunch) CHECK(host->count == 9 * 2 + 3);
  }
}

TEST_CASE("launch modes differ in the host's work only") {
  LoweredStep f;
  const auto launches = [&f](config::Framework::Launch mode) {
    f.run.framework.launch = mode;
    DecodeWindow window(f.setting, 101, 1);
    return count_kinds(f.blocks(window)[0])[Kind::kLaunch];
  };
  // 9 kernels a layer and 3 at the end, plus a recall task a layer.
  CHECK(launches(config::Framework::Launch::kCompiled) == 9 * 2 + 3 + 2);
  // The overhead of two layers in addition.
  CHECK(launches(config::Framework::Launch::kEager) == 9 * 2 + 3 + 2 + 2);
}

TEST_CASE("a step waits for the recall of the step before, across blocks") {
  LoweredStep f;
  DecodeWindow window(f.setting, 101, 2);
  const auto blocks = f.blocks(window);
  std::vector<graph::OpId> recalls;
  for (std::size_t i = 0; i < blocks[0].size(); ++i) {
    if (blocks[0][i].kind == Kind::kCopyIn) recalls.push_back(static_cast<graph::OpId>(i));
  }
  REQUIRE(recalls.size() == 2);
  std::set<graph::OpId> waited;
  for (const graph::Op& op : blocks[1]) {
    if (op.kind == Kind::kAttention) waited.insert(op.after.begin(), op.after.end());
  }
  CHECK(waited.count(recalls[0]) == 1);
  CHECK(waited.count(recalls[1]) == 1);
}

TEST_CASE("every op of a later block waits for the gate, through deps or the order of its lane") {
  LoweredStep f;
  DecodeWindow window(f.setting, 101, 3);
  graph::OpId first = 0, gate = -1;
  for (const auto& block : f.blocks(window)) {
    std::vector<bool> waits(block.size());
    std::map<Lane, std::size_t> lane_last;
    for (std::size_t i = 0; i < block.size(); ++i) {
      const graph::Op& op = block[i];
      bool held = gate < 0;
      for (const graph::OpId id : op.after)
        held = held || id == gate || (id >= first && waits[static_cast<std::size_t>(id - first)]);
      const auto last = lane_last.find(op.lane);
      if (last != lane_last.end()) held = held || waits[last->second];
      waits[i] = held;
      lane_last[op.lane] = i;
      CHECK(held);
      for (const graph::OpId id : op.after) CHECK(id < first + static_cast<graph::OpId>(i));
    }
    first += static_cast<graph::OpId>(block.size());
    gate = first - 1;
  }
}

TEST_CASE("counts grow with the context as the policy states") {
  LoweredStep f;
  DecodeWindow window(f.setting, 105, 2);
  f.blocks(window);
  // 101 pairs were counted at 101 tokens; one more for each token since.
  CHECK(f.policy.seen_tokens == std::vector<std::int64_t>{105, 105, 106, 106});
  CHECK(f.policy.seen_attended == std::vector<std::int64_t>{105, 105, 106, 106});
}

TEST_CASE("queries and outputs have 16 bits for every cache precision") {
  // 2 KV heads of 4 query heads each and 16 numbers: 2 · 4 · 16 · 2 bytes either way; 100 pairs at half a byte.
  const graph::DecodeAttention packed{
      .rows = 2, .group = 4, .head_dim = 16, .tokens = 100, .longest = 50, .element_bytes = 0.5, .unpack_flops = 5000};
  const graph::ByteCounts moved = graph::traffic_of(packed);
  CHECK(moved.kv_read == 2 * 100 * 16 * 0.5);
  CHECK(moved.hbm_read == moved.kv_read + 256);
  CHECK(moved.hbm_write == 256);
  // Operators first unpack the pairs, 100 · 2 · 16 numbers, and then repeat them for four query heads.
  config::Framework framework;
  framework.eager_attention = true;
  Events events;
  std::vector<graph::Op> ops;
  LoweredBlock block(framework, 0, -1, events, ops);
  block.attention(packed, {});
  std::map<std::string, graph::Work> by_label;
  for (const graph::Op& op : ops) by_label[op.label] = op.work;
  const auto& unpacked = std::get<graph::Kernel>(by_label.at("unpack pairs"));
  CHECK(unpacked.read_bytes == 3200 * 0.5);
  CHECK(unpacked.write_bytes == 3200 * 2);
  CHECK(unpacked.flops == 5000);
  CHECK(std::get<graph::PrefillAttention>(by_label.at("scores")).read_bytes == 256 + 4 * 1600 * 2);
  CHECK(std::get<graph::PrefillAttention>(by_label.at("weighted values")).write_bytes == 256);
  CHECK(graph::traffic_of(by_label.at("scores")).kv_read == 4 * 1600 * 2);  // as repeated
}

TEST_CASE("attention by operators moves 34 bytes per score and the repeated heads") {
  // QKᵀ, scaling, mask, conversion, softmax, conversion, product with V. 7 more scores, all else equal:
  // 7 · (2 + 2·2 + 3·2 + 2 + 4 + 4 + 4 + 4 + 2 + 2) bytes for a prompt, 2 less for a step, whose mask all heads share.
  const auto bytes = [](double scores, double kv, double group, bool of_step = false) {
    config::Framework framework;
    Events events;
    std::vector<graph::Op> ops;
    LoweredBlock block(framework, 0, -1, events, ops);
    eager_attention(block, {scores, kv, 0, group, 16, of_step}, -1);
    double sum = 0;
    for (const graph::Op& op : ops) {
      const graph::ByteCounts t = graph::traffic_of(op.work);
      sum += t.hbm_read + t.hbm_write;
    }
    return sum;
  };
  CHECK(bytes(17, 0, 1) - bytes(10, 0, 1) == 7 * 34);
  CHECK(bytes(17, 0, 1, true) - bytes(10, 0, 1, true) == 7 * 32);
  // If a group has one head, keys and values are read in place; of four, each is read once, written and read four
  // times.
  CHECK(bytes(10, 100, 1) - bytes(10, 0, 1) == 100);
  CHECK(bytes(10, 100, 4) - bytes(10, 0, 4) == 100 * (1 + 4 + 4));
  CHECK(eager_score_bytes({3, 0, 0, 1, 16}) == 3 * 10);  // 2 masked, 4 converted, 4 after the softmax
}

TEST_CASE("a cache that is concatenated is read and written once more a step") {
  LoweredStep f;
  const auto bytes = [&f] {
    DecodeWindow window(f.setting, 101, 1);
    const auto blocks = f.blocks(window);
    double sum = 0;
    for (const graph::Op& op : blocks[0]) {
      const graph::ByteCounts t = graph::traffic_of(op.work);
      sum += t.hbm_read + t.hbm_write;
    }
    return sum;
  };
  const double without = bytes();
  f.run.framework.concatenate_cache = true;
  // 600 pairs a layer of 2 · 128 elements of 2 bytes, in two layers, read and written.
  CHECK(bytes() - without == Approx(2 * 2 * 600 * 2 * 128 * 2));
  f.run.framework.concatenate_cache = false;
  f.run.framework.reread_kv_heads = true;
  CHECK(bytes() - without == Approx(2 * 600 * 2 * 128 * 2 * (2 - 1)));  // groups of two
  f.run.framework.reread_kv_heads = false;
  f.run.framework.separate_query_heads = true;  // reads again from the L2
  CHECK(bytes() == without);
}

TEST_CASE("chunked prefill does the same attention work as one-shot prefill") {
  LoweredStep f;
  const auto flops = [&f](std::int64_t chunk) {
    f.run.workload.prefill_chunk = chunk;
    Prefill prefill(f.setting);
    double sum = 0;
    for (const auto& block : f.blocks(prefill)) {
      for (const graph::Op& op : block) {
        if (op.kind == Kind::kAttention) sum += std::get<graph::PrefillAttention>(op.work).flops;
      }
    }
    return sum;
  };
  // 2 layers, batch 3, 4 query heads of 16 dimensions: 4 · 3 · 4 · 16 · (100 · 101 / 2) a layer.
  CHECK(flops(0) == 2.0 * 4 * 3 * 4 * 16 * 5050);
  CHECK(flops(32) == Approx(flops(0)));
  CHECK(flops(100) == flops(0));
}

TEST_CASE("prefill releases its temporary memory and keeps the policy's storage") {
  LoweredStep f;
  for (const std::int64_t chunk : {0, 32}) {
    f.run.workload.prefill_chunk = chunk;
    Prefill prefill(f.setting);
    std::map<std::string, double> held;
    double peak_activations = 0;
    for (const auto& block : f.blocks(prefill)) {
      for (const graph::Op& op : block) {
        for (const graph::MemoryDelta& m : op.memory) {
          held[std::string(graph::owner_name(m.owner))] += m.bytes;
          peak_activations = std::max(peak_activations, held["activations"]);
        }
      }
    }
    CHECK(held["activations"] == 0);
    // 10 bytes a token at 100 tokens, as the policy states.
    CHECK(held["KV cache"] == Approx(1000));
    CHECK(held["weights"] == f.run.model.weight_bytes());
    const double rows = chunk == 0 ? 300 : 96;  // the largest chunk of 100 = 32 + 32 + 32 + 4
    // Three values of the network and four of the residual stream a row; at once, with the logits of three samples.
    CHECK(peak_activations == rows * (3 * 128 + 4 * 64) * 2 + (chunk == 0 ? 3 * 1000 * 4 : 0));
  }
}

TEST_CASE("a window of decode steps needs the memory of its last step, and at most that of the whole run") {
  LoweredStep f;
  const auto held = [&f](std::int64_t context, int steps) {
    DecodeWindow window(f.setting, context, steps);
    double bytes = 0;
    for (const auto& block : f.blocks(window)) {
      for (const graph::Op& op : block) {
        for (const graph::MemoryDelta& m : op.memory) bytes += graph::owner_name(m.owner) == "KV cache" ? m.bytes : 0;
      }
    }
    return bytes;
  };
  // 10 bytes a token. Of 101, 102 and 103 tokens the last step has 103; of 105 … 114 the run's 100 + 8 are the end.
  CHECK(held(101, 3) == 1030);
  CHECK(held(105, 10) == 1080);
}

TEST_CASE("a framework's mask has one byte for each pair of positions") {
  LoweredStep f;
  f.run.framework.quadratic_mask = true;
  DecodeWindow window(f.setting, 101, 1);
  const auto blocks = f.blocks(window);
  double bytes = 0;
  for (const graph::Op& op : blocks[0]) {
    for (const graph::MemoryDelta& m : op.memory) bytes += graph::owner_name(m.owner) == "causal mask" ? m.bytes : 0;
  }
  CHECK(bytes == 108 * 108);
}

TEST_CASE("a scheduler that reserves the full cache also allocates memory for tokens that a policy does not keep") {
  LoweredStep f;
  const auto held = [&](const std::string& owner) {
    DecodeWindow window(f.setting, 101, 1);
    const auto blocks = f.blocks(window);
    double bytes = 0;
    for (const graph::Op& op : blocks[0]) {
      for (const graph::MemoryDelta& m : op.memory) bytes += graph::owner_name(m.owner) == owner ? m.bytes : 0;
    }
    return bytes;
  };
  CHECK(held("reserved cache") == 0);
  f.run.framework.reserve_full_cache = true;
  // 3 sequences of 101 tokens; 2 layers of 2 KV heads with a key and a value of 16 numbers in 2 bytes. The policy
  // states 10 bytes a token.
  CHECK(held("KV cache") == 1010);
  CHECK(held("reserved cache") == 3 * 101 * 2 * 2 * 2 * 16 * 2 - 1010);
}

TEST_CASE("no head attends to more tokens than exist") {
  LoweredStep f;
  for (auto& c : f.counts) c.attended = 200;  // counted at 101 tokens
  DecodeWindow window(f.setting, 105, 1);
  f.blocks(window);
  CHECK(f.policy.seen_attended == std::vector<std::int64_t>{105, 105});
}

TEST_CASE("operators repeat a prompt's keys for the query heads of a group") {
  LoweredStep f;
  f.run.framework.eager_attention = true;
  Prefill prefill(f.setting);
  const auto blocks = f.blocks(prefill);
  int seen = 0;
  for (const graph::Op& op : blocks[0]) {
    if (std::string(op.label) != "repeat keys") continue;
    ++seen;
    // 3 · 100 tokens of 2 KV heads of 16 numbers, for 2 query heads each.
    CHECK(std::get<graph::Kernel>(op.work).read_bytes == 300 * 2 * 16 * 2);
    CHECK(std::get<graph::Kernel>(op.work).write_bytes == 300 * 4 * 16 * 2);
  }
  CHECK(seen == 2);  // layers
}

TEST_CASE("a sliced network allocates activations for one slice, everything else for all rows") {
  const config::Model model = tiny_run().model;  // hidden 64, network 128, vocabulary 1000
  CHECK(activation_bytes(model, 100, 1) == 100 * (3 * 128 + 4 * 64) * 2 + 1000 * 4);
  CHECK(activation_bytes(model, 100, 1, 10) == (10 * 3 * 128 + 100 * 4 * 64) * 2 + 1000 * 4);
  CHECK(activation_bytes(model, 100, 1, 1000) == activation_bytes(model, 100, 1));
}

TEST_CASE("activations of a one-shot 96K prefill of Llama-3.1-8B take 11.7 GB") {
  config::Model llama;
  llama.hidden = 4096;
  llama.ffn = 14336;
  llama.vocab = 128256;
  // 98304 · (3 · 14336 + 4 · 4096) · 2 bytes
  CHECK(activation_bytes(llama, 98304, 0) == 98304.0 * 59392 * 2);
  CHECK(activation_bytes(llama, 98304, 0) == Approx(11.68e9).epsilon(1e-3));
}

}  // namespace kvcast::tests

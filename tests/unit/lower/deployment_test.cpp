// The share of a model that one GPU computes: shapes, exchanges and bytes, each counted by hand.
#include <catch2/catch.hpp>

#include <cmath>
#include <map>
#include <string>

#include "lower/decode.hpp"
#include "lower/dense.hpp"
#include "lower/prefill.hpp"
#include "policies/all.hpp"
#include "policy/policy.hpp"

namespace kvcast::tests {

using namespace lower;
using graph::Kind;

namespace {

// Four layers of two KV heads and four query heads of 16 numbers; contexts of 100 tokens, 8 generated.
struct DeployedStep {
  config::Run run;
  std::unique_ptr<policy::Policy> policy;
  std::vector<policy::HeadCounts> counts;
  DecodeSetting setting;

  explicit DeployedStep(int batch = 3) {
    run.model.layers = 4, run.model.hidden = 64, run.model.n_q_heads = 4, run.model.n_kv_heads = 2;
    run.model.head_dim = 16, run.model.ffn = 128, run.model.vocab = 1000;
    run.workload = {100, 8, batch, 0};
    const policy::Lengths lengths{100, 8};
    policy = policy::make_policy(policy::find_policy("full"), config::Node::map({}, {}));
    setting.run = &run, setting.policy = policy.get();
    setting.lengths = lengths, setting.counted_tokens = 101;
    setting.counts = [this](int, std::int64_t) { return std::span<const policy::HeadCounts>(counts); };
  }
  std::vector<graph::Op> step() {
    setting.rank = config::rank_model(run.deployment, run.model);
    counts.assign(static_cast<std::size_t>(setting.step_batch() * setting.rank.n_kv_heads), {.attended = 101});
    DecodeWindow window(setting, 101, 1);
    std::vector<graph::Op> ops;
    window.next_block(ops);
    return ops;
  }
  double pool_bytes(graph::Pool pool, const std::string& owner) {
    setting.rank = config::rank_model(run.deployment, run.model);
    double bytes = 0;
    const auto items = decode_memory(setting, 101);
    for (const policy::MemoryItem& item : items)
      bytes += item.pool == pool && graph::owner_name(item.owner) == owner ? item.bytes : 0;
    return bytes;
  }
  double held(const std::string& owner, std::int64_t tokens = 101) {
    setting.rank = config::rank_model(run.deployment, run.model);
    double bytes = 0;
    for (const policy::MemoryItem& item : decode_memory(setting, tokens))
      bytes += graph::owner_name(item.owner) == owner ? item.bytes : 0;
    return bytes;
  }
};

std::map<std::string, int> labels(const std::vector<graph::Op>& ops) {
  std::map<std::string, int> count;
  for (const graph::Op& op : ops) ++count[op.label];
  return count;
}

template <class Work>
Work first(const std::vector<graph::Op>& ops, const std::string& label) {
  for (const graph::Op& op : ops) {
    if (op.label == label) return std::get<Work>(op.work);
  }
  FAIL("no op " + label);
  return {};
}

}  // namespace

TEST_CASE("two GPUs halve the products and sum their outputs twice a layer") {
  DeployedStep f;
  CHECK(labels(f.step()).count("all-reduce") == 0);
  f.run.deployment.tensor_parallel = 2;
  const auto ops = f.step();
  auto seen = labels(ops);
  CHECK(seen["all-reduce"] == 2 * 4 + 1);  // after attention and network, and of the embedding
  CHECK(seen["gather logits"] == 1);
  // Three rows of 64 numbers of 2 bytes; each GPU has the logits of 500 of 1000 tokens.
  CHECK(first<graph::Collective>(ops, "all-reduce") == graph::Collective{graph::Exchange::kAllReduce, 384, 2});
  CHECK(first<graph::Collective>(ops, "gather logits") == graph::Collective{graph::Exchange::kAllGather, 3000, 2});
  // Two query heads and one KV head: 2 · 16 + 2 · 16 outputs; half of 2 · 128 columns.
  CHECK(first<graph::Gemm>(ops, "qkv projection") == graph::Gemm{3, 64, 64, 2});
  CHECK(first<graph::Gemm>(ops, "gate and up") == graph::Gemm{3, 128, 64, 2});
  CHECK(first<graph::Gemm>(ops, "down projection") == graph::Gemm{3, 64, 64, 2});
  CHECK(first<graph::DecodeAttention>(ops, "attention").tokens == 3 * 101);
}

TEST_CASE("a GPU's memory contains its share of weights and cache") {
  DeployedStep f;
  // K and V of 2 heads of 16 numbers of 2 bytes in 4 layers: 512 bytes a token, 3 sequences of 101.
  CHECK(f.held("KV cache") == 512 * 303);
  const double weights = f.held("weights");
  f.run.deployment.tensor_parallel = 2;
  CHECK(f.held("KV cache") == 256 * 303);
  // Both GPUs have the norms: 4 · 2 · 64 + 64 numbers of 2 bytes.
  CHECK(f.held("weights") == (weights - 1152) / 2 + 1152);
  // Four GPUs for two KV heads: each head is on two GPUs.
  f.run.deployment.tensor_parallel = 4;
  CHECK(f.held("KV cache") == 256 * 303);
}

TEST_CASE("pipeline stages contain their layers and pass on micro-batches") {
  DeployedStep f(4);
  f.run.deployment.pipeline_parallel = 2;
  const auto ops = f.step();
  CHECK(f.setting.step_batch() == 2);
  CHECK(labels(ops)["to the next stage"] == 1);
  // Two rows of 64 numbers of 2 bytes.
  CHECK(first<graph::Collective>(ops, "to the next stage") == graph::Collective{graph::Exchange::kNext, 256, 2});
  CHECK(first<graph::Gemm>(ops, "qkv projection").m == 2);
  // All four sequences in two of four layers.
  CHECK(f.held("KV cache") == 256 * 4 * 101);
}

TEST_CASE("the caches of other micro-batches are there while a prompt is read") {
  DeployedStep f(5);
  f.run.deployment.pipeline_parallel = 2;
  f.setting.rank = config::rank_model(f.run.deployment, f.run.model);
  Prefill prefill(f.setting);
  double now = 0, peak = 0;
  for (std::vector<graph::Op> block; prefill.next_block(block);) {
    for (const graph::Op& op : block) {
      for (const graph::MemoryDelta& m : op.memory) {
        if (m.owner == graph::Owner::kKvCache) now += m.bytes;
        peak = std::max(peak, now);
      }
    }
  }
  // Two that have been read and three that are, 100 tokens each; 256 bytes a token in two of four layers.
  CHECK(peak == 256 * 5 * 100);
  CHECK(now == peak);
}

TEST_CASE("weights in other formats are read as stored and multiplied at the rate of their format") {
  DeployedStep f;
  f.run.model.weights = config::Precision::kFp8;
  const auto ops = f.step();
  const auto down = first<graph::Gemm>(ops, "down projection");
  // 64 × 128: one block of 128 × 128 and its scale of 4 bytes.
  CHECK(down.stored_bytes() == 64 * 128 + 4);
  CHECK(down.products == graph::Products::kFp8);
  CHECK(labels(ops)["quantise attention output"] == 4);
  CHECK(first<graph::Gemm>(ops, "head") == graph::Gemm{3, 1000, 64, 2});
  f.run.model.weights = config::Precision::kInt4;
  CHECK(first<graph::Gemm>(f.step(), "down projection").products == graph::Products::kHalf);
  CHECK(labels(f.step()).count("quantise attention output") == 0);
}

TEST_CASE(
    "a cache in eight bits is read at half the bytes, and its numbers are converted unless kernels multiply them") {
  DeployedStep f;
  CHECK(first<graph::DecodeAttention>(f.step(), "attention").converted == 0);
  f.run.model.cache = config::Precision::kFp8;
  auto attention = first<graph::DecodeAttention>(f.step(), "attention");
  CHECK(attention.element_bytes == 1);
  CHECK(attention.converted == 32 * 606);  // 2 · 16 numbers of 6 heads' 101 pairs
  CHECK(attention.fp8);
  CHECK(labels(f.step())["quantise queries"] == 4);
  CHECK(f.held("KV cache") == 256 * 303);

  f.run.framework.attention_kernels = config::Framework::AttentionKernels::kFlash2;
  attention = first<graph::DecodeAttention>(f.step(), "attention");
  CHECK(attention.converted == 32 * 606);
  CHECK_FALSE(attention.fp8);
  CHECK(labels(f.step()).count("quantise queries") == 0);

  f.run.framework.attention_kernels = config::Framework::AttentionKernels::kNative;
  f.run.model.cache = config::Precision::kInt8;
  CHECK(first<graph::DecodeAttention>(f.step(), "attention").converted == 32 * 606);
  CHECK_FALSE(first<graph::DecodeAttention>(f.step(), "attention").fp8);
}

TEST_CASE("experts are products with the rows routed to them") {
  DeployedStep f;
  f.run.model.experts = config::Experts{8, 2, 1, 32, 1};
  const auto ops = f.step();
  auto seen = labels(ops);
  CHECK(seen["gate and up"] == 1);  // the first layer is dense
  CHECK(seen["experts' gate and up"] == 3);
  CHECK(seen["shared down"] == 3);
  // Three tokens touch 8 · (1 − 0.75³) = 4.625 of 8 experts, with 6 / 4.625 rows each.
  const auto work = first<graph::Gemm>(ops, "experts' gate and up");
  CHECK(work.groups == Approx(4.625));
  CHECK(work.m == Approx(6 / 4.625));
  CHECK(work.n == 64);
  CHECK(work.stored_bytes() == Approx(4.625 * 64 * 64 * 2));
  CHECK_FALSE(seen.contains("sort tokens by experts"));
  f.run.framework.expert_sort.value = 1e-5;
  CHECK(labels(f.step())["sort tokens by experts"] == 3);
}

TEST_CASE("experts in host memory are computed there or fetched, and leave the GPU their room") {
  DeployedStep f;
  f.run.model.experts = config::Experts{8, 2, 1, 32, 1};
  const double before = f.held("weights");
  CHECK(f.pool_bytes(graph::Pool::kDram, "weights") == 0);
  // Two of the first three layers have experts: 2 layers · 8 experts · 3 matrices of 64 · 32 weights, 2 bytes each.
  f.run.model.experts->host_layers = 3;
  const double moved = 2 * 8 * 3 * 64 * 32 * 2;
  CHECK(f.pool_bytes(graph::Pool::kDram, "weights") == moved);
  CHECK(f.pool_bytes(graph::Pool::kHbm, "weights") == before - moved);
  auto ops = f.step();
  CHECK(labels(ops)["experts' gate and up"] == 1);
  CHECK(labels(ops)["experts' down on the CPU"] == 2);
  CHECK(labels(ops)["shared down"] == 3);
  // Three tokens activate 4.625 experts; 64 rows of the matrix of 64 · 64 are all of it, of 64 · 32 as well.
  const auto up = first<graph::CpuWork>(ops, "experts' gate and up on the CPU");
  CHECK(up.items * up.bytes_per_item == Approx(4.625 * 64 * 64 * 2));
  CHECK(up.items * up.product_flops_per_item == Approx(6 * 2 * 64 * 64));
  const auto down = first<graph::CpuWork>(ops, "experts' down on the CPU");
  CHECK(down.items * down.bytes_per_item == Approx(4.625 * 64 * 32 * 2));
  // Rows in 16 bits with the numbers and weights of two experts go there, sums of as many rows come back.
  CHECK(first<graph::Copy>(ops, "rows to the CPU").run_bytes == 3 * (64 * 2 + 2 * 8));
  CHECK(first<graph::Copy>(ops, "sums of experts from the CPU").run_bytes == 3 * 64 * 2);

  f.run.model.experts->fetch_rows = 4;  // more than a step has
  CHECK(labels(f.step())["experts' down on the CPU"] == 2);
  f.run.model.experts->fetch_rows = 3;
  ops = f.step();
  CHECK(labels(ops)["experts' down on the CPU"] == 0);
  CHECK(labels(ops)["experts' down"] == 3);
  const auto fetched = first<graph::Copy>(ops, "fetch experts");
  CHECK(fetched.runs == Approx(4.625));
  CHECK(fetched.run_bytes == 3 * 64 * 32 * 2);
  CHECK(f.pool_bytes(graph::Pool::kHbm, "weights") == before - moved + moved / 2);  // room for those of a layer
}

TEST_CASE("routed experts may work at a width of their own, between two projections") {
  DeployedStep f;
  f.run.model.experts = config::Experts{8, 2, 1, 32, 1};
  f.run.model.experts->hidden = 16;
  f.run.model.shared_weights = config::Precision::kFp8;
  auto ops = f.step();
  const auto down = first<graph::Gemm>(ops, "rows to experts' width");
  CHECK((down.m == 3 && down.n == 16 && down.k == 64));
  const auto work = first<graph::Gemm>(ops, "experts' gate and up");
  CHECK((work.n == 64 && work.k == 16));
  CHECK(first<graph::Gemm>(ops, "experts' down").n == 16);
  CHECK(first<graph::Kernel>(ops, "sum of experts").read_bytes == 3 * 2 * 16 * 2);
  const auto up = first<graph::Gemm>(ops, "experts' sums to the model's width");
  CHECK((up.m == 3 && up.n == 64 && up.k == 16));
  const auto shared = first<graph::Gemm>(ops, "shared down");
  CHECK(shared.n == 64);
  CHECK(shared.stored_bytes() == Approx(64 * 32).epsilon(0.1));  // 8 bits a weight and scales
  CHECK(labels(ops).count("norm of experts' sums") == 0);
  // A norm of the sums; of GPUs that share experts' columns it needs the sum over these first.
  f.run.model.experts->hidden_norm = true, f.run.deployment.tensor_parallel = 2;
  ops = f.step();
  CHECK(first<graph::Collective>(ops, "all-reduce of experts' sums").bytes == 3 * 16 * 2);
  CHECK(labels(ops)["norm of experts' sums"] == 3);
  // In host memory rows of this width travel.
  f.run.model.experts->host_layers = 3, f.run.deployment.tensor_parallel = 1;
  ops = f.step();
  CHECK(first<graph::Copy>(ops, "rows to the CPU").run_bytes == 3 * (16 * 2 + 2 * 8));
  CHECK(first<graph::Copy>(ops, "sums of experts from the CPU").run_bytes == 3 * 16 * 2);
  CHECK(f.pool_bytes(graph::Pool::kDram, "weights") == 2 * 8 * 3 * 16 * 32 * 2);
}

TEST_CASE("residuals weighed over blocks of layers are summed before each mixer and network") {
  DeployedStep f;
  const double parameters = f.run.model.parameters(), activations = activation_bytes(f.run.model, 3, 3);
  const std::size_t before = f.step().size();
  f.run.model.residuals = {2, 2, 2.125};  // 0 + 2, 2 + 2, 2 + 3, 3 + 3 inputs of four layers, over 8
  const auto ops = f.step();
  CHECK(labels(ops)["sum of blocks' outputs"] == 9);  // and before the head
  CHECK(first<graph::Kernel>(ops, "sum of blocks' outputs").read_bytes == 3 * 2.125 * 64 * 2);
  CHECK(ops.size() >= before + 9);
  CHECK(f.run.model.parameters() == parameters + 9 * 2 * 64);
  CHECK(activation_bytes(f.run.model, 3, 3) == activations + 3 * 2 * 64 * 2);
}

TEST_CASE("GPUs that share experts alone have a part of the sequences and exchange their rows") {
  DeployedStep f;
  f.run.model.experts = config::Experts{8, 2, 1, 32, 1};
  const auto shared = f.step();
  f.run.workload.batch = 6;  // three sequences a GPU, as before
  f.run.deployment.tensor_parallel = 2, f.run.deployment.expert_parallel = true;
  f.run.deployment.data_parallel_attention = true;
  const auto ops = f.step();
  CHECK(first<graph::DecodeAttention>(ops, "attention") == first<graph::DecodeAttention>(shared, "attention"));
  CHECK(first<graph::Gemm>(ops, "gate and up") == first<graph::Gemm>(shared, "gate and up"));
  CHECK(first<graph::Gemm>(ops, "shared down") == first<graph::Gemm>(shared, "shared down"));
  CHECK(first<graph::Gemm>(ops, "router") == first<graph::Gemm>(shared, "router"));
  // Six rows touch 4 · (1 − 0.75⁶) of the four experts here.
  const auto work = first<graph::Gemm>(ops, "experts' gate and up");
  CHECK(work.groups == Approx(4 * (1 - std::pow(0.75, 6))));
  CHECK(work.m * work.groups == Approx(6));
  const auto swapped = first<graph::Collective>(ops, "rows to experts");
  CHECK(swapped.ranks == 2);
  CHECK(swapped.bytes == 3 * 64 * 2);
  CHECK(labels(ops)["sums of experts"] == 3);
  CHECK(labels(ops).count("all-reduce") == 0);
  CHECK(f.held("KV cache") == 4 * 128 * 303);
}

TEST_CASE("sliding-window layers attend to and keep their window only") {
  DeployedStep f;
  f.run.model.sliding_window = 40, f.run.model.full_every = 2;
  const auto ops = f.step();
  std::vector<double> tokens;
  for (const graph::Op& op : ops) {
    if (const auto* a = std::get_if<graph::DecodeAttention>(&op.work)) tokens.push_back(a->tokens);
  }
  CHECK(tokens == std::vector<double>{6 * 40, 6 * 101, 6 * 40, 6 * 101});
  // 128 bytes a token and layer, two layers of each kind, 3 sequences.
  CHECK(f.held("KV cache") == 128 * 2 * 303);
  CHECK(f.held("sliding-window cache") == 128 * 2 * 3 * 40);
  CHECK(f.held("sliding-window cache", 20) == 128 * 2 * 3 * 20);
}

TEST_CASE("latent attention caches one vector and computes in its space") {
  DeployedStep f;
  f.run.model.latent = config::Latent{48, 24, 8, 16, 12};
  f.run.model.n_kv_heads = 1;
  const auto ops = f.step();
  // 24 + 8 numbers of 2 bytes read once a token; queries meet 32 of them, weights 24.
  const auto attention = first<graph::DecodeAttention>(ops, "attention");
  CHECK(2 * attention.head_dim * attention.element_bytes == 64);
  CHECK(attention.product_dims == 56);
  CHECK(attention.group == 4);
  CHECK(attention.tokens == 3 * 101);
  CHECK(f.held("KV cache") == 64 * 4 * 303);
  // Four heads' queries of 16 numbers go into 24, their values come out as 12.
  const auto in = first<graph::Gemm>(ops, "queries into latent space");
  CHECK(in == graph::Gemm{3, 24, 16, 2, 0, 4});
  CHECK(first<graph::Gemm>(ops, "values out of latent space") == graph::Gemm{3, 12, 24, 2, 0, 4});
  CHECK(first<graph::Gemm>(ops, "output projection") == graph::Gemm{3, 64, 48, 2});
  // A gate on the output is a product of its own.
  const double parameters = f.run.model.parameters();
  f.run.model.output_gate = true;
  CHECK(first<graph::Gemm>(f.step(), "output gate projection") == graph::Gemm{3, 48, 64, 2});
  CHECK(f.run.model.parameters() == parameters + 4 * 48 * 64);
  f.run.model.output_gate = false;
  f.step();
  // Reading a prompt expands the keys and values of all its tokens instead.
  Prefill prefill(f.setting);
  std::vector<graph::Op> block;
  prefill.next_block(block);
  CHECK(first<graph::Gemm>(block, "expand keys and values") == graph::Gemm{300, 112, 24, 2});
  // 2 · 3 sequences · 4 heads · (16 + 8 + 12) · 100 · 101 / 2 pairs.
  CHECK(first<graph::PrefillAttention>(block, "prefill attention").flops == 2.0 * 3 * 4 * 36 * 5050);
}

}  // namespace kvcast::tests

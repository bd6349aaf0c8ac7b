// Precisions and splits of a model over GPUs: sizes counted by hand, and rejected input.
#include <catch2/catch.hpp>

#include "config/deployment.hpp"
#include "config/find.hpp"
#include "config/run.hpp"

namespace kvcast::tests {

using namespace config;

namespace {

Model small() {
  Model m;
  m.name = m.title = std::string("small");
  m.layers = 2, m.hidden = 256, m.n_q_heads = 4, m.n_kv_heads = 2, m.head_dim = 64, m.ffn = 512, m.vocab = 1000;
  return m;
}

Model named(const char* name) { return read_model(find_config("models", name, {})); }

std::string refusal(const std::string& deployment, Model model = small()) {
  try {
    read_deployment(parse_yaml(deployment, "test"), model);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("a stored matrix consists of its elements and its scales") {
  // 300 × 256. FP8: 3 × 2 blocks of 128 × 128 with 4 bytes each. INT8: 2 bytes for each of 300 outputs. INT4: half a
  // byte an element, and 2.5 bytes for each of 300 · 2 groups of 128. MXFP4: 300 · 8 scales. NVFP4: 300 · 16.
  CHECK(weight_bytes(Precision::kBf16, 300, 256) == 153600);
  CHECK(weight_bytes(Precision::kFp8, 300, 256) == 76800 + 24);
  CHECK(weight_bytes(Precision::kInt8, 300, 256) == 76800 + 600);
  CHECK(weight_bytes(Precision::kInt4, 300, 256) == 38400 + 1500);
  CHECK(weight_bytes(Precision::kMxfp4, 300, 256) == 38400 + 2400);
  CHECK(weight_bytes(Precision::kNvfp4, 300, 256) == 38400 + 4800);
}

TEST_CASE("the size of a cached element includes its share of the scales") {
  // A head's key of 128 numbers: 256, 128, 128 + 4 and 64 + 4 bytes.
  CHECK(cache_element_bytes(Precision::kBf16, 128) == 2);
  CHECK(cache_element_bytes(Precision::kFp8, 128) == 1);
  CHECK(cache_element_bytes(Precision::kInt8, 128) == Approx(132.0 / 128));
  CHECK(cache_element_bytes(Precision::kInt4, 128) == Approx(68.0 / 128));
  // 64 bytes, and 8 scales of 16 numbers or 4 of 32.
  CHECK(cache_element_bytes(Precision::kNvfp4, 128) == Approx(72.0 / 128));
  CHECK(cache_element_bytes(Precision::kMxfp4, 128) == Approx(68.0 / 128));
  // 132 bytes for a key and 68 for a value.
  CHECK(cache_element_bytes({Precision::kInt8, Precision::kInt4}, 128) == Approx(100.0 / 128));
}

TEST_CASE("TurboQuant's slots are those of vLLM's configuration, and the first and last layers keep 16 bits") {
  // A head's key and value of 128 numbers: 128 + 64 + 4 bytes; 64 + 2 + 64 + 4; 48 + 2 + 64 + 4; 48 + 2 + 48 + 4.
  const std::pair<const char*, double> slots[] = {
      {"turboquant_k8v4", 196}, {"turboquant_4bit_nc", 134}, {"turboquant_k3v4_nc", 118}, {"turboquant_3bit_nc", 102}};
  for (const auto& [name, bytes] : slots) {
    const std::optional<CacheFormat> format = cache_from_name(name);
    REQUIRE(format);
    CHECK(cache_name(*format) == name);
    CHECK(format->turboquant);
    CHECK(2 * 128 * cache_element_bytes(*format, 128) == bytes);
  }
  CHECK(cache_from_name("fp8") == CacheFormat(Precision::kFp8));
  CHECK(!cache_from_name("codebook3"));
  CHECK(!precision_from_name("turboquant_k8v4"));
  // Qwen3-4B: 36 layers of 8 KV heads, 32 of them packed. 36 · 512 / (32 · 102 + 4 · 512) = 3.47.
  Model qwen = named("qwen3-4b");
  read_deployment(parse_yaml("{kv_cache: turboquant_3bit_nc}", "test"), qwen);
  CHECK(qwen.kv_bytes_per_token() == 8 * (32 * 102 + 4 * 512));
  CHECK(qwen.plain(1));
  CHECK(!qwen.plain(2));
  CHECK(!qwen.plain(33));
  CHECK(qwen.plain(34));
  // None in a model with recurrences.
  Model hybrid = named("qwen3.5-27b");
  read_deployment(parse_yaml("{kv_cache: turboquant_k8v4}", "test"), hybrid);
  CHECK(hybrid.kv_bytes_per_token() == 16.0 * 4 * (256 + 128 + 4));
}

TEST_CASE("TurboQuant needs heads of its own, of a power of two of numbers, and no windows") {
  const auto refusal_in = [](const char* model) { return refusal("{kv_cache: turboquant_4bit_nc}", named(model)); };
  CHECK(refusal_in("deepseek-v3.2").find("all heads share a latent vector") != std::string::npos);
  CHECK(refusal_in("gpt-oss-20b").find("sliding windows") != std::string::npos);
  CHECK(refusal_in("qwen3-8b") == "accepted");
}

TEST_CASE("8-bit weights do not change embedding, head and norms") {
  Model m = small();
  // Embedding and head 2 · 1000 · 256. A layer: QKV (256 + 2 · 128) × 256, output 256 × 256, gate and up 1024 × 256,
  // down 256 × 512, norms 2 · 256. The last norm 256.
  const double matrices = 512 * 256 + 256 * 256 + 1024 * 256 + 256 * 512;
  CHECK(m.parameters() == 512000 + 2 * (matrices + 512) + 256);
  CHECK(m.weight_bytes() == 2 * m.parameters());
  m.weights = Precision::kInt8;
  const double outputs = 512 + 256 + 1024 + 256;  // each with a scale of 2 bytes
  CHECK(m.weight_bytes() == 2 * (512000 + 2 * 512 + 256) + 2 * (matrices + 2 * outputs));
}

TEST_CASE("parameter counts of models with experts and latent attention equal the published ones") {
  CHECK(named("deepseek-v3").parameters() == Approx(671.03e9).epsilon(1e-4));
  CHECK(named("qwen3-235b-a22b").parameters() == Approx(235.09e9).epsilon(1e-4));
  CHECK(named("mixtral-8x7b").parameters() == Approx(46.703e9).epsilon(1e-4));
  CHECK(named("gpt-oss-120b").parameters() == Approx(116.83e9).epsilon(1e-3));
  CHECK(named("gpt-oss-20b").parameters() == Approx(20.91e9).epsilon(1e-3));
  CHECK(named("gemma-3-27b").parameters() == Approx(27.0e9).epsilon(2e-3));
  // Their indexers are left out, and of MiniMax-M3 what reads images.
  CHECK(named("glm-5").parameters() == Approx(744e9).epsilon(2e-3));
  CHECK(named("glm-5.2").parameters() == named("glm-5").parameters());
  CHECK(named("kimi-k2").parameters() == Approx(1.03e12).epsilon(5e-3));
  CHECK(named("minimax-m2.5").parameters() == Approx(229e9).epsilon(2e-3));
  CHECK(named("minimax-m3").parameters() == Approx(428e9).epsilon(6e-3));
  // Its checkpoint of 61 layers: 576 numbers of 2 bytes a token and layer.
  CHECK(named("deepseek-v3").kv_bytes_per_token() == 61 * 576 * 2);
  // gpt-oss-120b is released as 60.8 GiB.
  CHECK(named("gpt-oss-120b").weight_bytes() == Approx(60.8 * 1024 * 1024 * 1024).epsilon(0.01));
  // Every second of 36 layers keeps all tokens: 2 · 8 · 64 numbers of 2 bytes.
  CHECK(named("gpt-oss-120b").kv_bytes_per_token() == 18 * 2048);
  CHECK_FALSE(named("gpt-oss-120b").slides(1));
  CHECK(named("gpt-oss-120b").slides(2));
}

TEST_CASE("the number of experts that a batch uses follows from its rows") {
  const Experts e{.count = 8, .active = 2, .shared = 0, .ffn = 1, .dense_layers = 0};
  CHECK(e.touched(1) == Approx(2));
  CHECK(e.touched(2) == Approx(8 * (1 - 0.75 * 0.75)));
  CHECK(e.touched(1e6) == Approx(8));
}

TEST_CASE("a rank holds its share of heads, network and vocabulary") {
  const Model rank = rank_of(small(), 2, false);
  CHECK(rank.n_q_heads == 2);
  CHECK(rank.n_kv_heads == 1);
  CHECK(rank.ffn == 256);
  CHECK(rank.vocab == 500);
  CHECK(rank.hidden == 256);
  CHECK(rank.ranks == 2);
  // More ranks than KV heads: each holds a copy of one.
  CHECK(rank_of(small(), 4, false).n_kv_heads == 1);
  CHECK(rank_of(small(), 4, false).n_q_heads == 1);
  // Experts whole or in columns: 128 experts of 768 columns over 4 ranks; a token meets 8 / 4 experts of a rank.
  const Model whole = rank_of(named("qwen3-30b-a3b"), 4, true), columns = rank_of(named("qwen3-30b-a3b"), 4, false);
  CHECK(whole.experts->count == 32);
  CHECK(whole.experts->active == 2);
  CHECK(whole.experts->ffn == 768);
  CHECK(columns.experts->count == 128);
  CHECK(columns.experts->ffn == 192);
  CHECK(whole.weight_bytes() == Approx(columns.weight_bytes()).epsilon(0.01));
}

TEST_CASE("GPUs with sequences of their own share the experts alone") {
  const Model whole = named("deepseek-v3"), rank = rank_of_experts(whole, 8);
  CHECK(rank.n_q_heads == whole.n_q_heads);
  CHECK(rank.vocab == whole.vocab);
  CHECK(rank.experts->count == 32);
  CHECK(rank.experts->active == 1);
  CHECK(rank.expert_ranks == 8);
  CHECK(rank.ranks == 1);
  // 7/8 of the routed experts of 58 layers are elsewhere; a matrix of FP8 has a scale per 128 x 128.
  CHECK(whole.weight_bytes() - rank.weight_bytes() ==
        Approx(58 * 224 * (3 * 7168.0 * 2048 * (1 + 4 / 16384.0) + 7168 * 2)).epsilon(1e-6));
  Deployment deployment;
  deployment.tensor_parallel = 8, deployment.expert_parallel = true;
  CHECK(deployment.own_sequences(20) == 20);
  deployment.data_parallel_attention = true;
  CHECK(deployment.own_sequences(20) == 3);
  CHECK(deployment.head_ranks() == 1);
  CHECK(rank_model(deployment, whole).expert_ranks == 8);
  CHECK_THROWS_WITH(rank_of_experts(whole, 7), Catch::Contains("7 does not divide 256 experts"));
}

TEST_CASE("a split that the shape does not allow is rejected with the reason") {
  CHECK(refusal("{tensor_parallel: 3}") ==
        "test:1:19: tensor_parallel: small cannot be split over 3 GPUs: 3 does not divide 4 query heads");
  CHECK(refusal("{pipeline_parallel: 3}").find("pipeline_parallel: small has 2 layers") != std::string::npos);
  CHECK(refusal("{expert_parallel: true}").find("small has no experts") != std::string::npos);
  CHECK(refusal("{tensor_parallel: 2, data_parallel_attention: true}").find("small has no experts") !=
        std::string::npos);
  CHECK(refusal("{weights: fp6}").find("known: bf16, fp8, int8, int4, mxfp4, nvfp4") != std::string::npos);
  CHECK(refusal("{kv_cache: int2}").find("known: bf16, fp8, int8, int4, mxfp4, nvfp4, turboquant_k8v4") !=
        std::string::npos);
  CHECK(refusal("{weights: turboquant_k8v4}").find("known: bf16") != std::string::npos);
  CHECK(refusal("{kv_cache: {keys: int8, values: int4}}") == "accepted");
  CHECK(refusal("{kv_cache: {keys: int8, value: int4}}").find("value") != std::string::npos);
  CHECK(refusal("{gpus: 2}").find("gpus") != std::string::npos);
  CHECK(refusal("{tensor_parallel: 2, weights: int4, kv_cache: fp8}") == "accepted");
}

TEST_CASE("experts lie in host memory with one GPU, of models that have some") {
  Model m = small();
  m.experts = Experts{8, 2, 0, 32, 0};
  CHECK(refusal("{experts_on_host: {layers: 1}}").find("small has no experts") != std::string::npos);
  CHECK(refusal("{experts_on_host: {layers: 3}}", m) == "test:1:28: layers: small has 2 layers");
  CHECK(refusal("{tensor_parallel: 2, experts_on_host: {layers: 1}}", m).find("of one GPU") != std::string::npos);
  CHECK(refusal("{experts_on_host: {layer: 1}}", m).find("layer") != std::string::npos);
  CHECK(refusal("{experts_on_host: {layers: 2, fetch_rows: 32}}", m) == "accepted");
  const std::string before = canonical(m);
  read_deployment(parse_yaml("{experts_on_host: {layers: 1, fetch_rows: 32}}", "test"), m);
  CHECK(m.host_weight_bytes() == 8 * 3 * 256 * 32 * 2);
  CHECK(canonical(m) != before);
}

TEST_CASE("replicas serve traffic, and transfers are between replicas") {
  const auto refusal_of = [](const std::string& rest) {
    try {
      read_run(parse_yaml("model: llama-3.1-8b\nhardware: h100-sxm\npolicy: full\n" + rest + "\n", "test"));
    } catch (const UserError& refused) {
      return std::string(refused.what());
    }
    return std::string("accepted");
  };
  CHECK(refusal_of("deployment: {replicas: 2}") ==
        "test:4:14: replicas: serve `traffic:`, which the run does not have");
  CHECK(refusal_of("deployment: {replicas: 1, routing: round_robin, prefill_replicas: 0}") == "accepted");
  const std::string traffic = "traffic: {rate: 1}\ndeployment: ";
  CHECK(refusal_of(traffic + "{replicas: 2, routing: random}").find("known: round_robin, least_loaded, prefix") !=
        std::string::npos);
  CHECK(refusal_of(traffic + "{transfer: {rate: 1 GB/s}}").find("needs `prefill_replicas`") != std::string::npos);
  CHECK(refusal_of(traffic + "{prefill_replicas: 1, transfer: {rate: 5}}").find("rate") != std::string::npos);
  CHECK(refusal_of(traffic + "{prefill_replicas: 1, transfer: {overlap: whole}}").find("known: none, chunks, layers") !=
        std::string::npos);
  const Run run =
      read_run(parse_yaml("model: llama-3.1-8b\nhardware: h100-sxm\npolicy: full\n" + traffic +
                              "{tensor_parallel: 2, replicas: 3, prefill_replicas: 2, routing: prefix, "
                              "transfer: {rate: 20 GB/s, latency: 1 ms, overlap: layers, staging: 64 GB}}\n",
                          "test"));
  CHECK((run.deployment.gpus() == 2 && run.deployment.all_gpus() == 10));
  CHECK(run.deployment.routing == Routing::kPrefix);
  CHECK((run.deployment.transfer.rate == 20e9 && run.deployment.transfer.latency == 1e-3));
  CHECK(run.deployment.transfer.overlap == Transfer::Overlap::kLayers);
  CHECK(run.deployment.transfer.staging == 64e9);
  CHECK_FALSE(run.deployment.transfer.post);
}

TEST_CASE("answers grow as published, by policy and budget") {
  const auto factor = [](const std::string& policy, const std::string& asked) {
    return read_run(parse_yaml("model: llama-3.1-8b\nhardware: h100-sxm\ntraffic: {rate: 1, length_factor: " + asked +
                                   "}\npolicy: " + policy + "\n",
                               "test"))
        .traffic->length_factor;
  };
  CHECK(factor("{name: keydiff, budget: 2048}", "published") == Approx(7678.0 / 6869));
  CHECK(factor("{name: snapkv, budget: 8192}", "published") == Approx(7005.0 / 6869));
  // Half of an octave between two budgets is half of the way between their lengths.
  CHECK(factor("{name: keydiff, budget: 2896}", "published") == Approx((7678.0 + 7312) / 2 / 6869).epsilon(1e-4));
  CHECK(factor("full", "published") == 1);
  CHECK(factor("{name: quest, budget: 2048}", "1.25") == 1.25);
  CHECK_THROWS_AS(factor("{name: quest, budget: 2048}", "published"), UserError);
  CHECK_THROWS_AS(factor("{name: keydiff, budget: 512}", "published"), UserError);
  CHECK_THROWS_AS(factor("snapkv", "published"), UserError);
  CHECK_THROWS_AS(factor("full", "much"), UserError);
}

TEST_CASE("a price is a number or a map from machines to numbers") {
  const auto price = [](const std::string& text) {
    return read_run(parse_yaml("model: llama-3.1-8b\nhardware: h100-sxm\npolicy: full\nprice_per_hour: " + text + "\n",
                               "test"))
        .price_per_hour;
  };
  CHECK(price("2.5") == 2.5);
  CHECK(price("{l40s: 1, h100-sxm: 3}") == 3.0);
  CHECK(price("{h100: 4}") == 4.0);  // an alias
  CHECK_FALSE(price("{l40s: 1}").has_value());
  CHECK_THROWS_AS(price("-1"), UserError);
  CHECK_THROWS_WITH(price("{h100-smx: 3}"),
                    Catch::Contains("test:4:18: nothing named \"h100-smx\" under configs/hardware") &&
                        Catch::Contains("did you mean \"h100-sxm\""));
}

}  // namespace kvcast::tests

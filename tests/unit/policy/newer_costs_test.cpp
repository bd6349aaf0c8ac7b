// Work and storage of the methods of 2024 and 2025. Two sequences, 4 query heads on 2 KV heads of 8 numbers: 8 query
// heads and 4 KV heads in all, a key of 16 bytes, 4 bytes a score; prompts of 100 tokens, 3 layers.
#include <catch2/catch.hpp>

#include <set>

#include "config/model.hpp"
#include "unit/policy/two_sequences.hpp"

namespace kvcast::tests {
namespace {

const graph::TopK& top_k(const std::vector<graph::Op>& ops) { return std::get<graph::TopK>(only(ops, "top-k").work); }
const graph::Gemm& gemm(const std::vector<graph::Op>& ops, const std::string& label) {
  return std::get<graph::Gemm>(only(ops, label).work);
}
double attended(const std::vector<graph::Op>& ops) {
  return std::get<graph::DecodeAttention>(only(ops, "attention").work).tokens;
}

TEST_CASE("Expected Attention multiplies queries by queries, and keys by their covariance") {
  const auto prompt = after_prompt("expected_attention", "budget: 40");
  CHECK(gemm(prompt, "query covariance") == graph::Gemm{800, 8, 8});
  CHECK(gemm(prompt, "keys by covariance") == graph::Gemm{800, 8, 8});
  // Keys and values of 4 lists, 8 heads' products; two products of 8 numbers a head and token.
  check_kernel(prompt, "expected attention", (400 + 800 + 400) * 16, 400 * 4, 800 * 4 * 8);
  CHECK(top_k(prompt).columns == 100);
  check_kernel(prompt, "compact", 2 * 4 * 40 * 16, 2 * 4 * 40 * 16, 0);
  CHECK(gemm(after_prompt("expected_attention", "budget: 40, queries: 10"), "query covariance").m == 80);
  const auto plain = after_prompt("expected_attention", "budget: 40, covariance: false, value_norm: false");
  check_kernel(plain, "expected attention", 400 * 16, 400 * 4, 800 * 2 * 8);
  CHECK(after_prompt("expected_attention", "budget: 100").size() == 1);  // all tokens stay: only the starting op
  CHECK(held_by("expected_attention", "budget: 40", "KV cache") == 12 * 2 * (40 + 10) * 16);
}

TEST_CASE("KVzap predicts a score for each token with a small network") {
  const auto prompt = after_prompt("kvzap", "network_width: 16");
  const auto predicted = labelled(prompt, "predicted scores");
  REQUIRE(predicted.size() == 2);
  const auto product = [&](std::size_t i) {
    return std::get<graph::Gemm>(prompt[static_cast<std::size_t>(predicted[i])].work);
  };
  CHECK(product(0) == graph::Gemm{200, 16, static_cast<double>(small_model().hidden)});
  CHECK(product(1) == graph::Gemm{200, 2, 16});
  check_kernel(prompt, "compact", 2 * 400 * 16, 2 * 400 * 16, 0);
  CHECK(labelled(after_prompt("kvzap", "dropped: masked"), "compact").empty());
  // A step reads what stays; masked, it reads all 101 tokens of 4 lists.
  CHECK(attended(first_step("kvzap", "", {.attended = 30})) == 4 * 30);
  CHECK(attended(first_step("kvzap", "dropped: masked", {.attended = 30})) == 4 * 101);
  CHECK(labelled(first_step("kvzap", "", {.attended = 30}), "predicted scores").empty());
  CHECK(labelled(first_step("kvzap", "decoding: true, network: linear", {.attended = 30}), "predicted scores").size() ==
        1);
  // 30 of the prompt's tokens and 10 generated ones; with decoding 30 % of 110; 110.
  CHECK(held_by("kvzap", "", "KV cache", 30) == 12 * 2 * 40 * 16);
  CHECK(held_by("kvzap", "decoding: true", "KV cache", 30) == Approx(12 * 2 * 33 * 16));
  CHECK(held_by("kvzap", "dropped: masked", "KV cache", 30) == 12 * 2 * 110 * 16);
}

TEST_CASE("GSA reads a bit for each number of a key, and selects once for a layer or for each head") {
  const policy::HeadCounts head{.attended = 24, .scored = 101};
  const auto ops = first_step("gsa", "budget: 24, page: 4, sink: 0, recent: 1, dense_below: 0", head);
  CHECK(gemm(ops, "hash keys") == graph::Gemm{4, 8, 8});
  CHECK(gemm(ops, "hash queries") == graph::Gemm{4, 8, 8});
  // 404 keys of one byte; a distance for each of two sequences' tokens; three operations for 32 bits.
  check_kernel(ops, "distances of codes", 404, 2 * 101 * 4, 3 * 404 * 8 / 32.0);
  CHECK(top_k(ops) == graph::TopK{2, 26, 6, 4});
  CHECK(top_k(first_step("gsa", "budget: 24, page: 4, sink: 0, recent: 1, scope: head", head)).rows == 4);
  CHECK(gemm(after_prompt("gsa", ""), "hash keys") == graph::Gemm{400, 8, 8});
  CHECK(held_by("gsa", "", "index keys") == 12 * 110);
}

TEST_CASE("BLASST reads all keys, and the values of the tiles that it takes") {
  const auto ops = first_step("blasst", "", {.attended = 50, .scored = 101});
  const auto& work = std::get<graph::DecodeAttention>(only(ops, "attention").work);
  CHECK(work.tokens == 404);
  CHECK(work.element_bytes == Approx(2 * (101 + 50) / 202.0));
  CHECK(work.product_dims == Approx(8 * (101 + 50) / 101.0));
  // Half of the prompt's values are skipped: three quarters of its products remain.
  const config::Model model = small_model();
  const auto prompt = [&](const char* name) {
    policy::Recorder recorded;
    make(name, "", kHundred)->prefill_attention({&model, 0, 2, 0, 100, 0, 0.5}, recorded);
    return std::get<graph::PrefillAttention>(only(recorded.ops(), "prefill attention").work).flops;
  };
  CHECK(prompt("blasst") == Approx(1.5 * prompt("full")));
}

TEST_CASE("SpecPrefill's draft reads the prompt, decodes, and rates the prompt in all its layers") {
  // Llama-3.2-1B: 16 layers, hidden 2048, ffn 8192, 32 query heads of 64.
  const auto ops = after_prompt("specprefill", "budget: 33, look_ahead: 2");
  const auto down = labelled(ops, "draft: down");
  REQUIRE(down.size() == 16 * 3);
  const auto product = [&](std::size_t i) {
    return std::get<graph::Gemm>(ops[static_cast<std::size_t>(down[i])].work);
  };
  CHECK(product(0) == graph::Gemm{200, 2048, 8192});
  CHECK(product(47) == graph::Gemm{2, 2048, 8192});
  const double weights = 2.0 * 16 * 32 * 2 * 100;
  check_kernel(ops, "weights of look-ahead queries", 2 * 16 * 8 * 100 * 128, weights * 4, 2 * weights * 64);
  check_kernel(ops, "importance of tokens", 4 * weights * 4, 2 * 100 * 4, 8 * weights);
  CHECK(std::get<graph::TopK>(only(ops, "best chunks").work) == graph::TopK{2, 4, 2, 4});
  CHECK(after_prompt("specprefill", "budget: 100").size() == 1);  // all of the prompt is read without a draft
  CHECK(held_by("specprefill", "budget: 33", "KV cache") == 12 * 2 * (64 + 10) * 16);
  CHECK(held_by("specprefill", "budget: 33", "draft of speculation") ==
        config::model_named("llama-3.2-1b").weight_bytes());
  CHECK(held_by("specprefill", "budget: 100", "draft of speculation") == -1);
}

TEST_CASE("NSA attends to runs, blocks and a window, and adds them with gates") {
  // 101 tokens: runs of 8 every 4, (101 − 8) / 4 + 1 = 24; three blocks of 8 less half a block; a window of 16.
  const auto ops = first_step("nsa", "budget: 24, page: 8, sink: 0, recent: 0, kernel: 8, stride: 4, window: 16", {});
  const auto read = labelled(ops, "attention");
  REQUIRE(read.size() == 3);
  const auto tokens = [&](std::size_t i) {
    return std::get<graph::DecodeAttention>(ops[static_cast<std::size_t>(read[i])].work).tokens;
  };
  CHECK(tokens(0) == 4 * 24);
  CHECK(tokens(1) == 4 * 20);
  CHECK(tokens(2) == 4 * 16);
  // Half a run of each of four KV heads, keys and values; weights of two query heads a KV head, 13 blocks.
  CHECK(gemm(ops, "compress runs") == graph::Gemm{2 * 2 / 4.0 * 2, 8, 64});
  check_kernel(ops, "weights of blocks", 4 * 24 * 2 * 4, 4 * 13 * 4, 2 * 4 * 24 * 2);
  CHECK(top_k(ops) == graph::TopK{4, 13, 3, 4});
  CHECK(gemm(ops, "gates of branches") == graph::Gemm{2, 12, static_cast<double>(small_model().hidden)});
  // Keys and values of (110 − 32) / 16 + 1 = 5 runs.
  CHECK(held_by("nsa", "", "mean keys") == 12 * 2 * 5 * 16);
  CHECK(held_by("nsa", "", "KV cache") == 12 * 2 * 110 * 16);
  // Up to 10 tokens all pairs in two branches, and a fourth of them as runs.
  const config::Model model = small_model();
  policy::Recorder prompt;
  make("nsa", "budget: 16, page: 8, sink: 0, recent: 0, kernel: 4, stride: 4, window: 16", kHundred)
      ->prefill_attention({&model, 0, 2, 0, 10, 0, 1}, prompt);
  CHECK(std::get<graph::PrefillAttention>(only(prompt.ops(), "prefill attention").work).flops ==
        Approx(4 * 2 * 4 * 8 * (55 + 55 + 100 / 2 / 4.0)));
}

TEST_CASE("FlexPrefill looks at its last queries and at means of blocks") {
  const config::Model model = small_model();
  const auto prompt = [&](const std::string& setting, std::int64_t tokens) {
    policy::Recorder ops;
    make("flexprefill", setting, {tokens, 1})->prefill_attention({&model, 0, 2, 0, tokens, 0, 0.5}, ops);
    return ops.ops();
  };
  const auto ops = prompt("tile: 10, min_budget: 1", 100);
  // 8 heads' 10 last queries on 100 keys of 8 numbers.
  check_kernel(ops, "last queries' scores", (800 + 80) * 16, 8000 * 4, 2 * 8000 * 8);
  check_kernel(ops, "softmax, column and diagonal sums", 3 * 8000 * 4, 2 * 800 * 4, 6 * 8000);
  CHECK(std::get<graph::TopK>(only(ops, "sort lines").work) == graph::TopK{16, 100, 100, 4});
  check_kernel(ops, "means of blocks", (4 + 8) * 100 * 16, (4 + 8) * 10 * 16, 0);
  check_kernel(ops, "scores of blocks", (4 + 8) * 10 * 16, 800 * 4, 2 * 800 * 8);
  CHECK(std::get<graph::TopK>(only(ops, "sort blocks").work) == graph::TopK{8, 100, 100, 4});
  CHECK(std::get<graph::PrefillAttention>(only(ops, "sparse prefill attention").work).flops ==
        Approx(4 * 8 * 8 * 5050 / 2.0));
  CHECK(labelled(prompt("tile: 10, min_budget: 1, tau: 0", 100), "scores of blocks").empty());
  CHECK(labelled(prompt("tile: 10, min_budget: 1", 20), "last queries' scores").empty());
}

TEST_CASE("KVzip reads its prompt twice") {
  config::Model model = small_model();
  model.hidden = 32, model.ffn = 64;
  policy::Recorder recorded;
  make("kvzip", "budget: 40, chunk: 25", kHundred)
      ->prefill_layer({.model = &model,
                       .layer = 0,
                       .batch = 2,
                       .prompt_tokens = kHundred.prompt_tokens,
                       .decode_steps = kHundred.decode_steps},
                      recorded);
  const auto& ops = recorded.ops();
  CHECK(gemm(ops, "repeat: queries, keys and values") == graph::Gemm{200, 64, 32});
  CHECK(gemm(ops, "repeat: output") == graph::Gemm{200, 32, 32});
  CHECK(gemm(ops, "repeat: up and gate") == graph::Gemm{200, 128, 32});
  CHECK(gemm(ops, "repeat: down") == graph::Gemm{200, 32, 64});
  // Each repeated token attends to 100 cached ones and 13 of its piece on average, in both products.
  const auto& attention = std::get<graph::PrefillAttention>(only(ops, "repeat: attention").work);
  CHECK(attention.flops == 4.0 * 800 * 8 * 113);
  CHECK(gemm(ops, "scores of the repeated prompt") == graph::Gemm{800, 50, 8});
  check_kernel(ops, "largest weights", 800 * 50 * 4, 400 * 4, 5 * 800 * 50);
  // A row a sequence, of both heads together; a row a head if each keeps its own best.
  CHECK(top_k(ops) == graph::TopK{2, 200, 80, 4});
  CHECK(top_k(after_prompt("kvzip", "budget: 40, scope: head")) == graph::TopK{4, 100, 40, 4});
}

TEST_CASE("R-KV spreads a compression over the steps of its buffer") {
  // Four lists of 50 tokens every tenth step: 0.4 lists a step.
  const auto step = first_step("rkv", "budget: 40, buffer: 10, window: 4, pool_kernel: 1", {.attended = 45});
  CHECK(gemm(step, "cosines of keys") == graph::Gemm{0.4 * 50, 50, 8});
  check_kernel(step, "mean cosine", 2 * 0.4 * 2500 * 4, 0.4 * 50 * 4, 2 * 0.4 * 2500);
  // Two query heads' four queries a list.
  check_kernel(step, "window scores", 0.4 * (50 + 8) * 16, 0.4 * 50 * 4, 2 * 0.4 * 8 * 50 * 8);
  CHECK(top_k(step).rows == Approx(0.4));
  const auto prompt = after_prompt("rkv", "budget: 40, buffer: 10, window: 4");
  CHECK(gemm(prompt, "cosines of keys") == graph::Gemm{400, 100, 8});
  CHECK(top_k(prompt).columns == 100);
  CHECK(held_by("rkv", "budget: 40, buffer: 10, window: 4", "KV cache") == 12 * 2 * 50 * 16);
  CHECK(held_by("rkv", "budget: 40, buffer: 10, window: 4", "last queries") == 3 * 8 * 4 * 16);
}

TEST_CASE("Double Sparsity reads labels of half a byte per channel") {
  // 4 channels of 4 bits, a scale and a minimum: 6 bytes a token.
  const std::string setting = "budget: 20, channels: 4";
  const auto step = first_step("double_sparsity", setting + ", group: sum_scores", {.attended = 20, .scored = 101});
  check_kernel(step, "estimate", 4 * 101 * 6, 8 * 101 * 4, 2 * 8 * 101 * 4);
  check_kernel(step, "labels of query and key", 12 * 4 * 2, 12 * 6, 4 * 12 * 4);
  check_kernel(after_prompt("double_sparsity", setting), "labels of keys", 400 * 4 * 2, 400 * 6, 4 * 400 * 4);
  CHECK(held_by("double_sparsity", setting, "labels of keys") == 12 * 110 * 6);
  CHECK(held_by("double_sparsity", setting + ", label_bits: 16", "labels of keys") == 12 * 110 * 8);
}

TEST_CASE("InfLLM-V2 reads one mean key every stride") {
  const std::string setting = "budget: 40, page: 4, sink: 4, recent: 8, kernel: 8, stride: 4, dense_below: 0";
  // 101 tokens have (101 − 8) / 4 + 1 = 24 means; of ten blocks six are chosen: one is first, three are last.
  const auto step = first_step("infllm_v2", setting, {.attended = 40, .scored = 24});
  check_kernel(step, "estimate", 4 * 24 * 16, 8 * 24 * 4, 2 * 8 * 24 * 8);
  CHECK(top_k(step).k == 6);
  check_kernel(step, "mean keys", 8 * 16, 16, 8 * 8);  // four heads, a mean every fourth step
  CHECK(std::get<graph::DecodeAttention>(only(step, "attention").work).unit_bytes == 4 * 16);
  check_kernel(after_prompt("infllm_v2", setting), "mean keys", 4 * 24 * 8 * 16, 4 * 24 * 16, 4 * 24 * 8 * 8);
  CHECK(held_by("infllm_v2", setting, "mean keys") == 12 * 26 * 16);  // (110 − 8) / 4 + 1
}

TEST_CASE("SeerAttention's gate has its own matrices") {
  const std::string setting = "budget: 40, page: 4, gate_dim: 6";
  const auto step = first_step("seer_attention", setting, {.attended = 40, .scored = 26});
  // Two sequences; two KV heads' gates of 6 from two queries of 8.
  CHECK(gemm(step, "gate query") == graph::Gemm{2, 12, 16});
  CHECK(gemm(step, "gate keys") == graph::Gemm{0.5, 12, 24});
  check_kernel(step, "gate scores", 4 * 27 * 6 * 2, 4 * 26 * 4, 2 * 4 * 26 * 6);
  check_kernel(after_prompt("seer_attention", setting), "pool keys", 400 * 16, 3 * 100 * 16, 3 * 400 * 8);
  CHECK(held_by("seer_attention", setting, "gate keys") == 12 * 28 * 6 * 2);
  CHECK(held_by("seer_attention", setting, "gate weights") == 3 * 2 * 6 * 2 * (2 + 3) * 8);
}

TEST_CASE("Twilight reads the packed keys of the tokens that its selector chose") {
  const std::string setting = "selector: {name: exact_topk, budget: 30, group: sum_scores}";
  const auto step = first_step("twilight", setting, {.attended = 12, .scored = 101, .candidates = 30});
  // 8 numbers of 4 bits, a scale and a minimum: 8 bytes.
  check_kernel(step, "weights of packed keys", 4 * 30 * 8, 8 * 30 * 4, (2 * 8 * 30 + 4 * 4 * 30) * 8);
  check_kernel(step, "top-p", 8 * 30 * 4, 4 * 30 * 4, 16 * 8 * 30);
  check_kernel(step, "pack keys", 4 * 16, 4 * 8, 4 * 4 * 8);
  CHECK(attended(step) == 4 * 12);
  CHECK(held_by("twilight", setting, "packed keys") == 12 * 110 * 8);
}

TEST_CASE("OmniKV's filter layer scores the prompt, and the layer after it fetches") {
  // Filter layer 1 of three; 0 is dense, 2 takes over.
  const std::string filter = "budget: 30, first_filter: 1, filter_layers: 1, wait_layers: ", setting = filter + "0";
  const config::Model model = small_model();
  const std::vector<policy::HeadCounts> heads(4, {.attended = 7, .fetched = 30});
  const auto step = [&](int layer, const std::string& more) {
    policy::Recorder ops;
    make("omnikv", more == "waits" ? filter + "1" : setting + more, kHundred)
        ->decode_layer(policy::EqualBatch(model, layer, 2, {105, kHundred}, heads, false), ops);
    return ops;
  };
  CHECK(attended(step(0, "").ops()) == 4 * 105);
  const auto filters = step(1, "");
  CHECK(attended(filters.ops()) == 4 * 105);
  check_kernel(filters.ops(), "scores of the prompt", 400 * 16, 800 * 4, 2 * 800 * 8);
  check_kernel(filters.ops(), "largest over heads", 2 * 800 * 4, 200 * 4, 5 * 800);
  CHECK(top_k(filters.ops()) == graph::TopK{2, 100, 30, 4});
  CHECK(filters.traffic().d2h == 2 * 30 * 4);
  // 30 chosen and 5 generated tokens a head.
  const auto follows = step(2, "");
  CHECK(attended(follows.ops()) == 4 * 35);
  CHECK(follows.traffic().h2d == 4 * 30 * 2 * 16);
  CHECK(step(2, ", place: gpu").traffic().h2d == 0);
  // One of three layers leaves its 100 prompt tokens to the host: 110 − 100 / 3 a head on the GPU.
  CHECK(held_by("omnikv", setting, "KV cache") == Approx(4 * 2 * 16 * (110 + 110 + 10)));
  CHECK(held_by("omnikv", setting, "fetched pairs") == Approx(4 * 2 * 16 * 30));
  CHECK(held_by("omnikv", setting, "KV cache in host memory") == Approx(4 * 2 * 16 * 100));
  // A layer that waits reads and keeps everything.
  const auto waits = step(2, "waits");
  CHECK(attended(waits.ops()) == 4 * 105);
  CHECK(waits.traffic().h2d == 0);
  CHECK(held_by("omnikv", filter + "1", "KV cache") == Approx(4 * 2 * 16 * 330));
}

TEST_CASE("OmniKV's layout for Llama-3-8B has eight dense layers, one waiting after each of three filters") {
  config::Model model = small_model();
  model.layers = 32;
  const auto omni = make("omnikv", "budget: 30, first_filter: 2, filter_layers: 3", kHundred);
  CHECK(omni->recalling_share(model) == 24.0 / 32);
}

TEST_CASE("DSA has one FP8 index a layer, whatever the number of KV heads") {
  // Two sequences of two KV heads: 64 index heads of 128 numbers with 101 keys of 128 bytes and a scale.
  const auto step = first_step("dsa", "budget: 20", {.attended = 20, .scored = 101});
  const auto& index = std::get<graph::PrefillAttention>(only(step, "index scores").work);
  CHECK(index.flops == 2.0 * 2 * 101 * 64 * 128);
  CHECK(index.read_bytes == 2 * 101 * 132);
  CHECK(index.products == graph::Products::kFp8);
  CHECK(top_k(step) == graph::TopK{2, 101, 20, 4});
  CHECK(held_by("dsa", "budget: 20", "index keys") == 3 * 2 * 110 * 132);
}

TEST_CASE("layers of GLM-5.2 share the selection of one in four") {
  // 78 layers: 0, 1, 2, 6, ... 74 have an indexer, and keys for it.
  config::Model model = small_model();
  model.layers = 78;
  const auto glm = make("dsa", "budget: 20, index_heads: 32, index_share: 4, index_share_from: 2", kHundred);
  const auto labels = [&](int layer) {
    const std::vector<policy::HeadCounts> heads(4, {.attended = 20, .scored = 101});
    policy::Recorder ops;
    glm->decode_layer(policy::EqualBatch(model, layer, 2, {101, kHundred}, heads, false), ops);
    std::set<std::string> all;
    for (const graph::Op& op : ops.ops()) all.insert(op.label);
    return all;
  };
  int indexers = 0;
  for (int layer = 0; layer < 78; ++layer) indexers += static_cast<int>(labels(layer).count("index scores"));
  CHECK(indexers == 21);
  CHECK(labels(74).contains("top-k"));
  CHECK(labels(77) == std::set<std::string>{"ready", "attention"});
  const policy::MemoryShape shape{&model, 1, 1000, kHundred, 0};
  double index = 0;
  for (const policy::MemoryItem& item : glm->memory(shape))
    index += item.owner == graph::Owner::kIndexKeys ? item.bytes : 0;
  CHECK(index == 21 * 1000 * 132);
}

TEST_CASE("MSA reads a key for each token and ranks blocks for each KV head; QSA reads one for four tokens") {
  // Two sequences of two KV heads at 101 tokens; an index query of 128 numbers a KV head, keys of 256 bytes.
  const auto msa = first_step("msa", "budget: 32, block: 16", {.attended = 21, .scored = 101});
  const auto& scores = std::get<graph::PrefillAttention>(only(msa, "index scores").work);
  CHECK(scores.read_bytes == 2 * 101 * 256);
  CHECK(scores.flops == 2.0 * 2 * 101 * 2 * 128);
  CHECK(scores.write_bytes == Approx(2 * 101.0 / 16 * 2 * 4));
  CHECK(scores.products == graph::Products::kHalf);
  CHECK(top_k(msa).rows == 4);
  CHECK(top_k(msa).k == 2);
  CHECK(std::get<graph::Gemm>(only(msa, "index queries").work).n == 2 * 128);
  CHECK(std::get<graph::Gemm>(only(msa, "index keys").work).n == 128);
  CHECK(held_by("msa", "budget: 32, block: 16, index_format: fp8", "index keys") == 3 * 2 * 110 * 128);
  const auto qsa = first_step("qsa", "budget: 16", {.attended = 17, .scored = 25});
  CHECK(std::get<graph::PrefillAttention>(only(qsa, "index scores").work).read_bytes == 2 * 25 * 256);
  CHECK(std::get<graph::PrefillAttention>(only(qsa, "index scores").work).flops == 2.0 * 2 * 25 * 4 * 128);
  CHECK(top_k(qsa) == graph::TopK{2, 25, 4, 4});
  CHECK(held_by("qsa", "budget: 16", "index keys") == 3 * 2 * 110 / 4.0 * 256);
}

TEST_CASE("query heads that attend to everything share the pairs of their KV head") {
  // Two sequences of four query heads, two a KV head.
  for (const char* policy : {"exact_topk", "double_sparsity"}) {
    const config::Model model = small_model();
    const auto attention = [&](const char* budget, const policy::HeadCounts& head) {
      const std::vector<policy::HeadCounts> heads(8, head);
      policy::Recorder ops;
      make(policy, budget, kHundred)->decode_layer(policy::EqualBatch(model, 0, 2, {101, kHundred}, heads, true), ops);
      return std::get<graph::DecodeAttention>(only(ops.ops(), "attention").work);
    };
    const auto apart = attention("budget: 20", {.attended = 20, .scored = 101});
    CHECK(apart.rows == 8);
    CHECK(apart.tokens == 8 * 20);
    CHECK(apart.group == 1);
    const auto together = attention("budget: 200", {.attended = 101});
    CHECK(together.rows == 4);
    CHECK(together.tokens == 4 * 101);
    CHECK(together.group == 2);
  }
}

TEST_CASE("RetroInfer fetches missing clusters with a kernel and adds estimates from centroids") {
  const std::string setting =
      "sink: 4, recent: 16, segment: 40, cluster_tokens: 8, retrieved: 0.2, estimated: 0.3, iterations: 2";
  // 80 tokens in two segments of five clusters.
  const auto step = first_step("retroinfer", setting,
                               {.attended = 37, .scored = 10, .candidates = 3, .fetched = 8, .fetched_runs = 1});
  check_kernel(step, "estimate", 4 * 10 * 16, 8 * 10 * 4, 2 * 8 * 10 * 8);
  const graph::Copy& missing = copy(only(step, "missing clusters"));
  CHECK(missing.kind == graph::CopyKind::kZeroCopy);
  CHECK(missing.runs == 4);
  CHECK(missing.run_bytes == 8 * 2 * 16);
  check_kernel(step, "bring clusters together", 4 * 17 * 2 * 16, 4 * 17 * 2 * 16, 0);
  check_kernel(step, "estimated clusters", 4 * 3 * 2 * 16 + 8 * 16, 8 * 16, 4 * 8 * 3 * 8);
  const auto prompt = after_prompt("retroinfer", setting);
  int rounds = 0;
  for (const graph::Op& op : prompt) rounds += std::string(op.label) == "nearest centroid" ? 1 : 0;
  CHECK(rounds == 2);
  check_kernel(prompt, "mean values", 320 * (16 + 4), 40 * 16, 320 * 8);
  CHECK(held_by("retroinfer", setting, "centroids and mean values") == 12 * 10 * 2 * 16);
  CHECK(held_by("retroinfer", setting, "cache of clusters") == Approx(12 * 2 * 16 * 0.2 * 80));
  CHECK(held_by("retroinfer", setting, "KV cache") == 12 * 2 * 16 * 30);
  CHECK(held_by("retroinfer", setting, "KV cache in host memory") == 12 * 2 * 16 * 80);
}

}  // namespace
}  // namespace kvcast::tests

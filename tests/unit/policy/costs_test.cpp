// Work stated by policies: bytes, flops and order, for shapes small enough to count by hand.
#include <catch2/catch.hpp>

#include "policy/costs.hpp"
#include "policy/growth.hpp"
#include "support/ops.hpp"
#include "support/select.hpp"
#include "unit/policy/small_model.hpp"

namespace kvcast::tests {

using namespace policy;

namespace {

constexpr Lengths kLengths{100, 20};

// Decode of two sequences, all four heads equal.
Recorder decode(const Policy& policy, const HeadCounts& head, bool per_query_head = false, int steps = 1) {
  static const config::Model model = small_model();
  const std::vector<HeadCounts> heads(per_query_head ? 8 : 4, head);
  Recorder ops;
  for (int t = 0; t < steps; ++t) {
    if (t > 0) ops.next_step();
    policy.decode_layer(EqualBatch(model, 0, 2, {101 + t, kLengths}, heads, per_query_head), ops);
    REQUIRE(ops.done_op() >= 0);
  }
  return ops;
}

Recorder prefill(const Policy& policy) {
  static const config::Model model = small_model();
  Recorder ops;
  policy.prefill_layer({.model = &model,
                        .layer = 0,
                        .batch = 2,
                        .prompt_tokens = kLengths.prompt_tokens,
                        .decode_steps = kLengths.decode_steps},
                       ops);
  return ops;
}

double bytes_held(const Policy& policy, const std::string& owner, std::int64_t tokens = 110) {
  static const config::Model model = small_model();
  for (const MemoryItem& item : policy.memory({&model, 2, tokens, kLengths, 0})) {
    if (graph::owner_name(item.owner) == owner) return item.bytes;
  }
  return -1;
}

const graph::TopK& top_k(const graph::Op& op) { return std::get<graph::TopK>(op.work); }
const graph::DecodeAttention& attention(const Recorder& ops) {
  return std::get<graph::DecodeAttention>(only(ops.ops(), "attention").work);
}

TEST_CASE("full attention reads every pair of every KV head") {
  const auto policy = make("full", "", kLengths);
  const Recorder ops = decode(*policy, {.attended = 101});
  CHECK(attention(ops).rows == 4);  // 2 sequences × 2 KV heads
  CHECK(attention(ops).group == 2);
  CHECK(attention(ops).tokens == 404);  // 4 × 101
  CHECK(attention(ops).longest == 101);
  CHECK(ops.traffic().kv_read == 12928);  // 404 × 2 × 16
  // 2 sequences × 3 layers × 2 KV heads × 110 tokens × 2 × 16 bytes.
  CHECK(bytes_held(*policy, "KV cache") == 42240);
}

TEST_CASE("per-head selection reads, and SnapKV stores, once per query head") {
  const auto snap = make("snapkv", "budget: 40, window: 8, group: per_head", kLengths);
  const Recorder ops = decode(*snap, {.attended = 41}, true);
  CHECK(attention(ops).rows == 8);
  CHECK(attention(ops).group == 1);
  CHECK(ops.traffic().kv_read == 8 * 41 * 32);
  // 40 kept + 10 generated, for 4 query heads: 2 × 3 × 4 × 50 × 32.
  CHECK(bytes_held(*snap, "KV cache") == 38400);
  CHECK(bytes_held(*make("snapkv", "budget: 40, window: 8", kLengths), "KV cache") == 19200);
}

TEST_CASE("SnapKV scores the prompt after its attention, once") {
  const auto policy = make("snapkv", "budget: 40, window: 8, pool_kernel: 5", kLengths);
  const Recorder ops = prefill(*policy);
  // Rows: 2 sequences × 4 query heads × 8 queries = 64. Keys: 2 × 2 × 100 × 16 = 6400 bytes; queries 64 × 16 = 1024.
  const graph::Kernel& scores = kernel(only(ops.ops(), "window scores"));
  CHECK(scores.read_bytes == 7424);
  CHECK(scores.write_bytes == 25600);  // 64 × 100 scores × 4
  CHECK(scores.flops == 102400);       // 2 × 64 × 100 × 8
  CHECK(kernel(only(ops.ops(), "softmax and sum")).read_bytes == 51200);
  CHECK(top_k(only(ops.ops(), "top-k")).rows == 4);
  CHECK(top_k(only(ops.ops(), "top-k")).columns == 92);
  CHECK(top_k(only(ops.ops(), "top-k")).k == 32);
  CHECK(kernel(only(ops.ops(), "compact")).read_bytes == 5120);  // 2 × 2 × 40 × 32
  // A prompt that fits the budget is not changed.
  CHECK(prefill(*make("snapkv", "budget: 100", kLengths)).ops().size() == 1);
}

TEST_CASE("Quest updates a page, scores, reduces, ranks and attends in sequence") {
  const auto policy = make("quest", "budget: 40, page: 4", kLengths);
  // 101 tokens are 26 pages.
  const Recorder ops = decode(*policy, {.attended = 40, .scored = 26, .attended_runs = 8});
  CHECK(kernel(only(ops.ops(), "update page summary")).read_bytes == 128);  // 2 × 2 heads × 2 bounds × 16
  const graph::Kernel& estimate = kernel(only(ops.ops(), "estimate"));
  CHECK(estimate.read_bytes == 3328);  // 4 × 26 pages × 2 bounds × 16
  CHECK(estimate.write_bytes == 832);  // 4 × 26 × 2 query heads × 4
  CHECK(estimate.flops == 6656);       // 4 × (104 pages × 2 query heads) × 8
  CHECK(kernel(only(ops.ops(), "reduce over group")).write_bytes == 416);
  CHECK(top_k(only(ops.ops(), "top-k")).k == 10);
  CHECK(attention(ops).unit_bytes == 64);  // a page of 4 rows
  const std::vector<graph::Op>& list = ops.ops();
  const char* const chain[] = {"ready", "update page summary", "estimate", "reduce over group", "top-k", "attention"};
  for (std::size_t i = 1; i < std::size(chain); ++i) {
    CHECK(waits_for(list, labelled(list, chain[i])[0], labelled(list, chain[i - 1])[0]));
  }
  CHECK(ops.done_op() == labelled(list, "attention")[0]);
  // 110 tokens are 28 pages: 2 × 3 × 2 × 28 × 32.
  CHECK(bytes_held(*policy, "page summaries") == 10752);
}

TEST_CASE("page summaries of 8 bits have half the bytes of those of 16") {
  // The same 26 pages with 2 bounds of 8 numbers of one byte; attention and the cache do not change.
  const auto policy = make("quest", "budget: 40, page: 4, summary_format: fp8_e4m3", kLengths);
  const Recorder ops = decode(*policy, {.attended = 40, .scored = 26, .attended_runs = 8});
  CHECK(kernel(only(ops.ops(), "update page summary")).read_bytes == 64);
  CHECK(kernel(only(ops.ops(), "estimate")).read_bytes == 1664);
  CHECK(attention(ops).unit_bytes == 64);
  CHECK(bytes_held(*policy, "page summaries") == 5376);
  // HSA and RocketKV, with the numbers of the cases below.
  const auto hsa = make("hsa", "budget: 30, summary_format: fp8_e5m2", kLengths);
  CHECK(kernel(only(decode(*hsa, {.attended = 15, .scored = 51, .attended_runs = 15}).ops(), "estimate")).read_bytes ==
        816);
  CHECK(bytes_held(*hsa, "page summaries") == 11520);
  const auto prefilled = prefill(*hsa);
  CHECK(kernel(only(prefilled.ops(), "page summaries")).write_bytes == 2 * 2 * 50 * 2 * 8);  // 100 tokens
  const auto rocket =
      make("rocketkv", "budget: 30, window: 8, second_stage: quest, summary_format: fp8_e5m2", kLengths);
  const auto wide = make("rocketkv", "budget: 30, window: 8, second_stage: quest", kLengths);
  CHECK(bytes_held(*rocket, "page summaries") * 2 == bytes_held(*wide, "page summaries"));
  CHECK(bytes_held(*rocket, "KV cache") == bytes_held(*wide, "KV cache"));
}

TEST_CASE("a step that reads everything estimates nothing") {
  const auto policy = make("quest", "budget: 4000, page: 4", kLengths);
  const Recorder ops = decode(*policy, {.attended = 101});
  CHECK(labelled(ops.ops(), "estimate").empty());
  CHECK(labelled(ops.ops(), "top-k").empty());
  // Nothing is chosen while the budget covers the context: each token adds one to attend to, and none to score.
  const HeadCounts later = grown({.attended = 101}, policy->growth(kLengths), 101, 115);
  CHECK(later.attended == 115);
  CHECK(later.scored == 0);
}

TEST_CASE("the traffic convention reads one bound per element") {
  // p = ⌈120 / 40⌉ = 3; 101 tokens are 34 pages: 4 × 34 × 16 bytes.
  const auto policy = make("quest", "budget: 40, budget_convention: traffic", kLengths);
  CHECK(kernel(only(decode(*policy, {.attended = 18, .scored = 34}).ops(), "estimate")).read_bytes == 2176);
}

TEST_CASE("exact top-k scans all keys once per KV head, or finds the best at no cost") {
  const HeadCounts head{.attended = 16, .scored = 101, .attended_runs = 4};
  const Recorder scan = decode(*make("exact_topk", "budget: 16", kLengths), head, true);
  CHECK(kernel(only(scan.ops(), "estimate")).read_bytes == 6464);  // 2 sequences × 2 KV heads × 101 × 16
  CHECK(kernel(only(scan.ops(), "estimate")).flops == 12928);      // 2 × 2 sequences × 4 query heads × 101 × 8
  CHECK(attention(scan).unit_bytes == 64);                         // runs of 4 tokens on average
  const Recorder free = decode(*make("exact_topk", "budget: 16, identification: free", kLengths),
                               {.attended = 16, .attended_runs = 4}, true);
  CHECK(labelled(free.ops(), "estimate").empty());
  CHECK(free.traffic().kv_read == scan.traffic().kv_read);
}

TEST_CASE("HSA reads few dimensions of one bound") {
  // t = 30: c2 = 120 / 30 = 4, p = 2, k1 = 8·2 / 4 = 4. 101 tokens are 51 pages.
  const auto policy = make("hsa", "budget: 30", kLengths);
  const Recorder ops = decode(*policy, {.attended = 15, .scored = 51, .attended_runs = 15});
  const graph::Kernel& estimate = kernel(only(ops.ops(), "estimate"));
  CHECK(estimate.read_bytes == 1632);  // 4 × 51 × 4 elements × 2
  CHECK(estimate.blocks == 4);         // one for the 51 pages of each of 2 × 2 heads: a block scores 256
  CHECK(estimate.threads == 128);
  // A softmax over the pages of each query head: one block for a KV head, which reads the scores three times.
  const graph::Kernel& softmax = kernel(only(ops.ops(), "reduce over group"));
  CHECK(softmax.read_bytes == 1632);  // 4 × 51 × 2 query heads × 4
  CHECK(softmax.blocks == 4);
  CHECK(softmax.passes == 3);
  CHECK(top_k(only(ops.ops(), "top-k1 dimensions")).k == 4);
  CHECK(top_k(only(ops.ops(), "top-k")).k == 8);  // ⌈15 / 2⌉ pages
  // Room for all 120 tokens from the start: 2 × 3 × 2 × 60 × 32.
  CHECK(bytes_held(*policy, "page summaries") == 23040);
  CHECK(bytes_held(*make("hsa", "budget: 30, max_new_tokens: 0", kLengths), "page summaries") == 21120);
}

TEST_CASE("RocketKV stores the kept pairs, RocketKV-MT a copy of them in addition to the full cache") {
  // c = 120 / 30 = 4, r = 0.32, N = ⌊120 / 4^0.32⌋ = ⌊77.0⌋ = 77; at least 2·20. The prompt keeps 57; with 10
  // generated, 67.
  const auto rocket = make("rocketkv", "budget: 30, window: 8", kLengths);
  CHECK(bytes_held(*rocket, "KV cache") == 2 * 3 * 2 * 67 * 32);
  // c2 = 77 / 30 = 2.57, p = 2: 57 kept and room for 20 are 39 pages.
  CHECK(bytes_held(*rocket, "page summaries") == 2 * 3 * 2 * 39 * 32);
  const auto mt = make("rocketkv_mt", "budget: 30, window: 8", kLengths);
  CHECK(bytes_held(*mt, "KV cache") == 2 * 3 * 2 * 110 * 32);
  CHECK(bytes_held(*mt, "filtered copy of the KV cache") == 2 * 3 * 2 * 67 * 32);
  const Recorder ops = prefill(*rocket);
  CHECK(kernel(only(ops.ops(), "page summaries")).read_bytes == 2 * 2 * 57 * 16);
}

TEST_CASE("ArkVale waits for missing pages") {
  const auto policy = make("arkvale", "budget: 40, page: 4, topk: 6", kLengths);
  const HeadCounts head{.attended = 40, .scored = 25, .fetched = 8, .fetched_runs = 2, .evicted = 8};
  const Recorder ops = decode(*policy, head);
  const std::vector<graph::Op>& list = ops.ops();
  CHECK(waits_for(list, labelled(list, "attention")[0], labelled(list, "recall pages")[0]));
  CHECK(waits_for(list, labelled(list, "recall pages")[0], labelled(list, "wait for page numbers")[0]));
  CHECK(waits_for(list, labelled(list, "wait for page numbers")[0], labelled(list, "top-k")[0]));
  // 2 sequences × 2 pages, with separate keys and values for both heads: 8 copies of 4 tokens × 2 heads × 16 bytes.
  const graph::Copy& recall = copy(only(list, "recall pages"));
  CHECK(recall.runs == 8);
  CHECK(recall.run_bytes == 128);
  CHECK(ops.traffic().h2d == 4 * 8 * 32);  // tokens that the heads fetched
  CHECK(top_k(only(list, "top-k")).rows == 2);
  // Alone, each head's rows are pieces of 16 bytes: 4 heads × 2 pages × 2 × 4 tokens.
  const auto alone = make("arkvale", "budget: 40, page: 4, topk: 6, selection_heads: kv_head", kLengths);
  const Recorder apart = decode(*alone, head);
  CHECK(copy(only(apart.ops(), "recall pages")).runs == 64);
  CHECK(copy(only(apart.ops(), "recall pages")).run_bytes == 16);
  // The same pieces in one call, or by a kernel that needs no page numbers on the host.
  const auto batch = decode(*make("arkvale", "budget: 40, page: 4, topk: 6, recall: batched", kLengths), head);
  CHECK(copy(only(batch.ops(), "recall pages")).kind == graph::CopyKind::kBatched);
  CHECK(copy(only(batch.ops(), "recall pages")).runs == 8);
  const auto kernel = decode(*make("arkvale", "budget: 40, page: 4, topk: 6, recall: zero_copy", kLengths), head);
  CHECK(copy(only(kernel.ops(), "recall pages")).kind == graph::CopyKind::kZeroCopy);
  CHECK(only(kernel.ops(), "recall pages").lane == graph::Lane::kCompute);
  CHECK(labelled(kernel.ops(), "wait for page numbers").empty());
  CHECK(kernel.traffic().h2d == ops.traffic().h2d);
  // The backup of a step: 2 × 2 × 2 × 16 bytes, not waited for.
  CHECK(ops.traffic().d2h - 2 * 6 * 4 == 128);
  CHECK_FALSE(waits_for(list, ops.done_op(), labelled(list, "back up pages")[0]));
  CHECK(bytes_held(*policy, "KV cache") == 2 * 3 * 2 * 40 * 32);
  CHECK(bytes_held(*policy, "KV cache in host memory") == 42240);
}

constexpr const char* kFree = "budget: 40, page: 4";
constexpr HeadCounts kMoved{.attended = 40, .scored = 25, .fetched = 12, .fetched_runs = 3, .evicted = 12};

TEST_CASE("FreeKV recalls pages in the background, and the next step waits for them") {
  const auto policy = make("freekv", kFree, kLengths);
  const Recorder ops = decode(*policy, kMoved, false, 2);
  const std::vector<graph::Op>& list = ops.ops();
  const auto attentions = labelled(list, "attention"), recalls = labelled(list, "recall pages");
  const auto converts = labelled(list, "convert layout");
  REQUIRE(recalls.size() == 4);  // 2 steps × 2 KV heads, both sequences together
  CHECK(copy(list[static_cast<std::size_t>(recalls[0])]).runs == 6);
  CHECK(copy(list[static_cast<std::size_t>(recalls[0])]).run_bytes == 2 * 4 * 16);
  CHECK(ops.traffic().h2d == 2 * 4 * 12 * 32);
  CHECK(waits_for(list, recalls[0], attentions[0]));
  CHECK_FALSE(waits_for(list, attentions[0], recalls[0]));
  CHECK(waits_for(list, attentions[1], converts[0]));
  CHECK(waits_for(list, attentions[1], converts[1]));
  // Two buffers: the second head's copy does not wait for the first head's conversion.
  CHECK_FALSE(waits_for(list, recalls[1], converts[0]));
  CHECK(labelled(list, "cosine of queries").size() == 2);
}

TEST_CASE("FreeKV's recall by a kernel is one kernel behind the top-k") {
  const auto policy = make("freekv", std::string(kFree) + ", recall: zero_copy", kLengths);
  const Recorder ops = decode(*policy, kMoved, false, 2);
  const std::vector<graph::Op>& list = ops.ops();
  const auto attentions = labelled(list, "attention"), recalls = labelled(list, "recall pages");
  REQUIRE(recalls.size() == 2);  // one a step, for 2 KV heads of 2 sequences
  const graph::Copy& recall = copy(list[static_cast<std::size_t>(recalls[0])]);
  CHECK(recall.kind == graph::CopyKind::kZeroCopy);
  CHECK(recall.runs == 4 * 3);
  CHECK(recall.run_bytes == 2 * 4 * 16);
  CHECK(waits_for(list, recalls[0], labelled(list, "top-k")[0]));
  CHECK(waits_for(list, attentions[1], recalls[0]));
  CHECK_FALSE(waits_for(list, attentions[0], recalls[0]));
  for (const char* absent : {"wait for page numbers", "hand over recall", "convert layout", "chosen pages"}) {
    INFO(absent);
    CHECK(labelled(list, absent).empty());
  }
  CHECK(bytes_held(*policy, "staging buffers") == -1);
  // Corrected heads are recalled by a kernel of their own before attention, without a wait of the host for pages.
  const Recorder corrected =
      decode(*policy, {.attended = 40, .scored = 25, .fetched = 12, .fetched_runs = 3, .corrected = true});
  const graph::OpId before = labelled(corrected.ops(), "recall pages").at(0);
  CHECK(labelled(corrected.ops(), "recall pages").size() == 1);
  CHECK(waits_for(corrected.ops(), labelled(corrected.ops(), "attention")[0], before));
  CHECK(labelled(corrected.ops(), "wait for recall").empty());
}

TEST_CASE("FreeKV forgets a recall once it has waited for it") {
  const auto policy = make("freekv", kFree, kLengths);
  const config::Model model = small_model();
  const std::vector<HeadCounts> moved(4, kMoved), still(4, HeadCounts{.attended = 40, .scored = 25});
  Recorder ops;
  policy->decode_layer(EqualBatch(model, 0, 2, {101, kLengths}, moved, false), ops);
  CHECK(ops.noted("recalled a") == labelled(ops.ops(), "convert layout")[0]);
  CHECK(ops.noted("recalled b") == labelled(ops.ops(), "convert layout")[1]);
  ops.next_step();  // waits for both and recalls no page: later steps do not depend on them
  policy->decode_layer(EqualBatch(model, 0, 2, {102, kLengths}, still, false), ops);
  CHECK(ops.noted("recalled a") == -1);
  CHECK(ops.noted("recalled b") == -1);
}

TEST_CASE("attention waits only for the recalls of corrected heads") {
  const auto policy = make("freekv", kFree, kLengths);
  std::vector<HeadCounts> heads(4, kMoved);
  heads[2].corrected = true;  // the second sequence's first head
  const config::Model model = small_model();
  Recorder ops;
  policy->decode_layer(EqualBatch(model, 0, 2, {101, kLengths}, heads, false), ops);
  const std::vector<graph::Op>& list = ops.ops();
  const auto recalls = labelled(list, "recall pages");
  const graph::OpId attention = labelled(list, "attention")[0];
  REQUIRE(labelled(list, "estimate").size() == 1);  // all heads at once
  REQUIRE(recalls.size() == 3);
  CHECK(copy(list[static_cast<std::size_t>(recalls[0])]).runs == 3);  // the corrected head alone
  CHECK(waits_for(list, attention, recalls[0]));
  CHECK_FALSE(waits_for(list, attention, recalls[1]));
  CHECK(copy(list[static_cast<std::size_t>(recalls[1])]).runs == 3);  // head 0 of the first sequence
  CHECK(copy(list[static_cast<std::size_t>(recalls[2])]).runs == 6);  // head 1 of both
  CHECK(ops.traffic().h2d == 4 * 12 * 32);
}

TEST_CASE("FreeKV's comparison of pages selects before attention, and its selection may run beside attention") {
  const Recorder pages = decode(*make("freekv", std::string(kFree) + ", identify: pages", kLengths), kMoved);
  const graph::OpId attention = labelled(pages.ops(), "attention")[0];
  REQUIRE(labelled(pages.ops(), "estimate").size() == 1);
  CHECK(waits_for(pages.ops(), attention, labelled(pages.ops(), "comparison of pages").at(0)));
  CHECK(waits_for(pages.ops(), labelled(pages.ops(), "comparison of pages")[0], labelled(pages.ops(), "top-k").at(0)));
  CHECK(labelled(pages.ops(), "cosine of queries").empty());
  CHECK_FALSE(waits_for(pages.ops(), attention, labelled(pages.ops(), "recall pages").at(0)));

  const Recorder beside = decode(*make("freekv", std::string(kFree) + ", background: beside", kLengths), kMoved);
  const graph::OpId estimate = labelled(beside.ops(), "estimate").at(0);
  CHECK_FALSE(waits_for(beside.ops(), estimate, labelled(beside.ops(), "attention")[0]));
  CHECK(waits_for(beside.ops(), estimate, labelled(beside.ops(), "cosine of queries").at(0)));
}

TEST_CASE("FreeKV's three optimisations can be disabled separately") {
  const auto with = [](const char* more) { return make("freekv", std::string(kFree) + ", " + more, kLengths); };
  const Recorder blocking = decode(*with("speculation: false"), kMoved);
  CHECK(waits_for(blocking.ops(), blocking.done_op(), labelled(blocking.ops(), "recall pages").back()));
  CHECK(labelled(blocking.ops(), "cosine of queries").empty());

  const Recorder one_buffer = decode(*with("double_buffering: false"), kMoved);
  const auto recalls = labelled(one_buffer.ops(), "recall pages"),
             converts = labelled(one_buffer.ops(), "convert layout");
  // Two heads of two sequences: the buffer holds the pages of one of the four at a time.
  CHECK(recalls.size() == 4);
  for (std::size_t i = 1; i < recalls.size(); ++i) CHECK(waits_for(one_buffer.ops(), recalls[i], converts[i - 1]));
  CHECK(labelled(one_buffer.ops(), "wait for buffer").size() == 4);

  const Recorder rows = decode(*with("layout: nhd"), kMoved);
  CHECK(labelled(rows.ops(), "convert layout").empty());
  // 6 pages × 2 × 4 rows of 16 bytes a head.
  CHECK(copy(rows.ops()[static_cast<std::size_t>(labelled(rows.ops(), "recall pages")[0])]).runs == 48);
  CHECK(rows.traffic().h2d == blocking.traffic().h2d);

  const Recorder blind = decode(*with("correction: false"), kMoved);
  CHECK(labelled(blind.ops(), "cosine of queries").empty());
  // Staging: 2 buffers of 10 pages × 2 × 4 × 16 bytes, for all layers and sequences once.
  CHECK(bytes_held(*with("tau: 0.5"), "staging buffers") == 2560);
  CHECK(bytes_held(*with("double_buffering: false"), "staging buffers") == 1280);
  CHECK(bytes_held(*with("layout: nhd"), "staging buffers") == -1);
  CHECK(bytes_held(*with("tau: 0.5"), "last queries") == 2 * 3 * 4 * 16);
}

TEST_CASE("offloading the prompt moves every pair once, and a Python loop has a cost per page") {
  for (const char* name : {"arkvale", "freekv"}) {
    CAPTURE(name);
    const Recorder compiled = prefill(*make(name, "budget: 40, page: 4", kLengths));
    CHECK(compiled.traffic().d2h == 2 * 2 * 100 * 32);
    CHECK(labelled(compiled.ops(), "page loop").empty());
    const Recorder python = prefill(*make(name, "budget: 40, page: 4, runtime: python", kLengths));
    CHECK(std::get<graph::HostWork>(only(python.ops(), "page loop").work).count == 50);  // 2 sequences × 25 pages
    // It runs concurrently with the device; the copies wait for both.
    const std::vector<graph::Op>& list = python.ops();
    const graph::OpId loop = labelled(list, "page loop")[0];
    CHECK_FALSE(waits_for(list, loop, python.ready()));
    CHECK(waits_for(list, labelled(list, "back up pages")[0], loop));
    CHECK(waits_for(list, labelled(list, "back up pages")[0], python.ready()));
  }
}

TEST_CASE("dense layers have the cost and memory of full attention") {
  const auto policy = make("quest", "budget: 40, page: 4, first_dense_layers: 1", kLengths);
  CHECK(policy->dense_layers() == 1);
  const Recorder ops = decode(*policy, {.attended = 40, .scored = 26});  // counts of a compressed layer: not read
  CHECK(ops.traffic().kv_read == 12928);
  CHECK(labelled(ops.ops(), "estimate").empty());
  // One layer of 110 tokens; two others with their summaries.
  CHECK(bytes_held(*policy, "KV cache of uncompressed layers") == 14080);
  CHECK(bytes_held(*policy, "page summaries") == 7168);
}

}  // namespace
}  // namespace kvcast::tests

// Work stated by policies that evict. Two sequences, 4 query heads on 2 KV heads of 8 numbers: 4 lists, a key of 16
// bytes, 4 bytes a score; prompts of 100 tokens, 40 stay.
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <string_view>

#include "policy/forwarded_ops.hpp"
#include "policy_parts/head_split.hpp"
#include "support/temporary_directory.hpp"
#include "unit/policy/two_sequences.hpp"

namespace kvcast::tests {
namespace {

constexpr policy::HeadCounts kEvicts{.attended = 41, .evicted = 1};

const graph::TopK& top_k(const std::vector<graph::Op>& ops, const std::string& label) {
  return std::get<graph::TopK>(only(ops, label).work);
}

TEST_CASE("H2O sums the columns of the whole causal matrix after the prompt, then adds and ranks each step's weights") {
  // 100 · 101 / 2 pairs of 8 query heads: 40400. Queries 8 · 100 rows, keys 4 · 100; a sum a query head and column.
  const auto again = after_prompt("h2o", "budget: 40");
  const auto& sums = std::get<graph::PrefillAttention>(only(again, "column sums").work);
  CHECK(sums.flops == 2 * 40400 * 8);
  CHECK(sums.read_bytes == 1200 * 16);
  CHECK(sums.write_bytes == 800 * 4);
  check_kernel(after_prompt("h2o", "budget: 40, column_sums: materialise"), "write and sum weights", 40400 * 4,
               40400 * 4 + 800 * 4, 40400);
  CHECK(top_k(again, "top-k").rows == 4);
  CHECK(top_k(again, "top-k").columns == 100);
  check_kernel(again, "compact", 2 * 4 * 40 * 16, 2 * 4 * 40 * 16, 0);
  // 8 query heads' weights over 41 tokens are read and summed into 4 lists of totals, read and written.
  const auto step = first_step("h2o", "budget: 40", kEvicts);
  CHECK(std::get<graph::DecodeAttention>(only(step, "attention").work).score_bytes == 8 * 41 * 4);
  check_kernel(step, "add weights", 8 * 41 * 4 + 4 * 41 * 4, 4 * 41 * 4, 8 * 41);
  CHECK(top_k(step, "argmin").rows == 4);
  CHECK(top_k(step, "argmin").columns == 41);
  check_kernel(step, "free slot", 4 * 4, 4 * 4, 0);
  CHECK(held_by("h2o", "budget: 40", "KV cache") == 3 * 4 * 2 * 41 * 16);
  CHECK(held_by("h2o", "budget: 40", "attention totals") == 3 * 4 * 41 * 4);
}

TEST_CASE("TOVA scores by the last query alone and ranks once per layer or per group") {
  const auto prompt = after_prompt("tova", "budget: 40");
  check_kernel(prompt, "last query's weights", (4 * 100 + 8) * 16, 8 * 100 * 4, 2 * 8 * 100 * 8);
  check_kernel(prompt, "softmax and mean", 8 * 100 * 4, 2 * 100 * 4, 5 * 8 * 100);
  CHECK(top_k(prompt, "top-k").rows == 2);
  CHECK(top_k(after_prompt("tova", "budget: 40, scope: group"), "top-k").rows == 4);
  // Weights are read once; there are no totals to add them to.
  const auto step = first_step("tova", "budget: 40", kEvicts);
  check_kernel(step, "reduce weights", 8 * 41 * 4, 4 * 41 * 4, 8 * 41);
  CHECK(top_k(step, "argmin").rows == 2);
}

TEST_CASE("D2O compares evicted pairs with kept ones and merges them") {
  const std::string setting = "budget: 40, layers: uniform";
  // The first step evicts 61 of 101: cosines of each with each of 40, in 4 lists; pairs that leave are read, those that
  // stay are written.
  const auto prompt = after_prompt("d2o", setting);
  check_kernel(prompt, "similarity of evicted keys", 4 * 101 * 16, 4 * 61 * 4, 2.0 * 4 * 61 * 40 * 8);
  check_kernel(prompt, "merge", 2 * 4 * 61 * 16, 2 * 4 * 40 * 16, 0);
  CHECK(top_k(prompt, "top-k").columns == 101);
  // Later steps evict one per list: the pair and the one that it is merged into are read, the latter is written.
  const auto step = first_step("d2o", setting, kEvicts);
  check_kernel(step, "similarity of evicted keys", 4 * 41 * 16, 4 * 4, 2 * 4 * 41 * 8);
  check_kernel(step, "merge", 2 * 2 * 4 * 16, 2 * 4 * 16, 0);
}

TEST_CASE("KeyDiff reads keys twice after the prompt, and once per step with a running anchor") {
  const auto passes = [](const std::vector<graph::Op>& ops, double keys) {
    return kernel(only(ops, "key similarity")).read_bytes / (keys * 16);
  };
  CHECK(passes(after_prompt("keydiff", "budget: 40"), 4 * 100) == 2);
  CHECK(passes(first_step("keydiff", "budget: 40", kEvicts), 4 * 41) == 1);
  CHECK(passes(first_step("keydiff", "budget: 40, anchor: median", kEvicts), 4 * 41) == 2);
}

TEST_CASE("SnapKV and KeyL2Norm rank each step's tokens if they evict while decoding") {
  const std::string snap = "budget: 40, window: 8, decode_eviction: true";
  const auto step = first_step("snapkv", snap, kEvicts);
  CHECK(std::get<graph::DecodeAttention>(only(step, "attention").work).score_bytes == 8 * 41 * 4);
  check_kernel(step, "reduce weights", 8 * 41 * 4, 4 * 41 * 4, 8 * 41);
  CHECK(top_k(step, "argmin").rows == 4);
  CHECK(held_by("snapkv", snap, "KV cache") == 3 * 4 * 2 * 41 * 16);
  // Each query head has its own list.
  CHECK(held_by("snapkv", snap + ", group: per_head", "KV cache") == 3 * 8 * 2 * 41 * 16);
  // 4 lists of 41 keys are read, squared and summed.
  const std::string norm = "budget: 40, decode_eviction: true";
  const auto small = first_step("keyl2norm", norm, kEvicts);
  check_kernel(small, "key norms", 4 * 41 * 16, 4 * 41 * 4, 2 * 4 * 41 * 8);
  CHECK(top_k(small, "argmin").columns == 41);
  CHECK(held_by("keyl2norm", norm, "KV cache") == 3 * 4 * 2 * 41 * 16);
}

TEST_CASE("ChunkKV ranks chunks once a layer, LagKV reads values too, CriticalKV projects them") {
  // 20 chunks of 5 tokens, of which 8 stay in each of both sequences.
  const auto chunks = after_prompt("chunkkv", "budget: 40, window: 8, chunk: 5");
  check_kernel(chunks, "sums of chunks", 4 * 100 * 4, 2 * 20 * 4, 4 * 100);
  CHECK(top_k(chunks, "top-k").rows == 2);
  CHECK(top_k(chunks, "top-k").columns == 20);
  CHECK(top_k(chunks, "top-k").k == 8);
  CHECK(kernel(only(chunks, "compact")).read_bytes == 2 * 4 * 40 * 16);
  const auto lag = after_prompt("lagkv", "budget: 40, lag: 16");
  check_kernel(lag, "spread of channels", 2 * 4 * 100 * 16, 2 * 4 * 100 * 4, 6 * 2 * 4 * 100 * 8);
  CHECK(top_k(lag, "top-k").columns == 100);
  const auto critical = after_prompt("criticalkv", "budget: 40, window: 8");
  const auto& project = std::get<graph::Gemm>(only(critical, "values through the output projection").work);
  CHECK((project.m == 200 && project.n == small_model().hidden && project.k == 8 && project.groups == 4));
  CHECK(kernel(only(critical, "norms of projected values")).read_bytes == 200.0 * 4 * small_model().hidden * 2);
  CHECK(top_k(critical, "top-k of the first stage").k == 20);
}

TEST_CASE("SkipKV compares a few tokens of all heads together, at one step in as many as its buffer holds") {
  const std::string setting = "budget: 40, buffer: 10, sink: 4, recent: 8, compared: 16";
  const auto prompt = after_prompt("skipkv", setting);
  check_kernel(prompt, "last query's weights", (4 * 100 + 8) * 16, 8 * 100 * 4, 2 * 8 * 100 * 8);
  check_kernel(prompt, "softmax, maximum over heads", 8 * 100 * 4, 2 * 100 * 4, 5 * 8 * 100);
  const auto& cosines = std::get<graph::Gemm>(only(prompt, "cosines of keys").work);
  CHECK((cosines.m == 2 * 16 && cosines.n == 16 && cosines.k == 2 * 8));
  // Cosines in and out of the comparison, and the keys of passages.
  check_kernel(prompt, "redundancy", 2 * (2 * 16 * 16 * 4 + 16 * 2 * 16), 2 * 16 * 4, 2 * (2 * 16 * 16 + 16 * 2 * 8));
  CHECK(top_k(prompt, "top-k").rows == 2);
  CHECK(top_k(prompt, "top-k").columns == 100);
  CHECK(top_k(prompt, "top-k").k == 40);
  CHECK(kernel(only(prompt, "compact")).read_bytes == 2 * 4 * 40 * 16);
  // Two of ten steps' worth of 50 tokens.
  const auto step = first_step("skipkv", setting, {.attended = 41});
  CHECK(std::get<graph::DecodeAttention>(only(step, "attention").work).score_bytes == Approx(0.2 * 4 * 50 * 4));
  CHECK(top_k(step, "top-k").rows == Approx(0.2));
  CHECK(held_by("skipkv", setting, "KV cache") == 3 * 4 * 2 * 50 * 16);
}

TEST_CASE("RaaS marks pages by their bounds and writes each token into its page") {
  // 10 pages a list: bounds of 2 keys and a stamp each; 4 · 8 operations a query head.
  const auto step = first_step("raas", "budget: 40, page: 4", {.attended = 40, .scored = 10});
  check_kernel(step, "mark used pages", 40 * (2 * 16 + 4), 40 * 4, 4 * 40 * 2 * 8);
  check_kernel(step, "fill page", 2 * 4 * 16, 2 * 4 * 16, 0);
  // One page more than the budget while that page fills; bounds and stamps of ten pages.
  CHECK(held_by("raas", "budget: 40, page: 4", "KV cache") == 3 * 4 * 2 * 44 * 16);
  CHECK(held_by("raas", "budget: 40, page: 4", "page summaries") == 3 * 4 * 10 * (2 * 16 + 4));
}

TEST_CASE("streaming heads of unequal sequences have each its own window") {
  // The second of 2 KV heads streams with 4 + prompt / 10 tokens: 14 of 101, and 44 of 410.
  const auto policy = policy::split_heads([](const policy::Lengths& request) {
    policy::HeadSplit split;
    split.full = policy::FullHeads(3, {true, false});
    split.sink = 4, split.recent = request.prompt_tokens / 10;
    return split;
  });
  const config::Model model = small_model();
  const std::vector<policy::Sequence> sequences = {{101, {100, 20}}, {410, {400, 20}}};
  const std::vector<policy::HeadCounts> heads(4);
  policy::Recorder ops;
  policy->decode_layer(policy::DecodeLayer(model, 0, sequences, heads, false), ops);
  const auto& work = std::get<graph::DecodeAttention>(only(ops.ops(), "attention").work);
  CHECK(work.rows == 4);
  CHECK(work.tokens == 101 + 14 + 410 + 44);
  CHECK(work.longest == 410);
}

TEST_CASE("a pair evicted from a streaming head is added to its means") {
  // The second of 2 KV heads streams with 4 + 8 tokens. Both sequences evict a pair per step: the pair and the means of
  // keys and values are read, the means written, each number added once.
  policy::HeadSplit split;
  split.full = policy::FullHeads(3, {true, false});
  split.sink = 4, split.recent = 8, split.compensate = true;
  const auto policy = policy::split_heads([&](const policy::Lengths&) { return split; });
  const config::Model model = small_model();
  const std::vector<policy::HeadCounts> heads(4, policy::HeadCounts{.attended = 12});
  policy::Recorder ops;
  policy->decode_layer(policy::EqualBatch(model, 0, 2, {101, kHundred}, heads, false), ops);
  check_kernel(ops.ops(), "means of dropped pairs", 2 * (2 + 2) * 16, 2 * 2 * 16, 2 * 2 * 8);
  CHECK(std::get<graph::DecodeAttention>(only(ops.ops(), "attention").work).tokens == 2 * (101 + 12));
  // After the prompt 88 of 100 have left.
  policy::Recorder prompt;
  policy->prefill_layer({.model = &model,
                         .layer = 0,
                         .batch = 2,
                         .prompt_tokens = kHundred.prompt_tokens,
                         .decode_steps = kHundred.decode_steps},
                        prompt);
  check_kernel(prompt.ops(), "means of dropped pairs", 2 * 2 * 88 * 16, 2 * 2 * 16, 2 * 2 * 88 * 8);
}

TEST_CASE("CAKE reads the window's scores twice as often as SnapKV") {
  // 8 queries of 8 heads over 100 keys, 4 bytes a score.
  const double scores = 8 * 8 * 100 * 4;
  const std::string setting = "budget: 40, window: 8";
  CHECK(kernel(only(after_prompt("snapkv", setting), "softmax and sum")).read_bytes == 2 * scores);
  CHECK(kernel(only(after_prompt("cake", setting), "softmax and sum")).read_bytes == 4 * scores);
}

TEST_CASE("CompressKV scores with as many heads as rank, and only in layers whose own budget the prompt exceeds") {
  policy::Profile profile;
  profile.n_layers = 3, profile.n_q_heads = 4, profile.n_kv_heads = 2;
  for (int layer = 0; layer < 3; ++layer) profile.heads["semantic"][layer] = {4, 3, 2, 1};
  profile.layer_errors = {{0, 1}, {1, 2}, {2, 3}};
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/profile.yaml";
  std::ofstream(path) << policy::write_profile(profile);
  const auto flops = [&](const std::string& rest) {
    return kernel(only(after_prompt("compresskv", rest + ", window: 8, profile: " + path), "window scores")).flops;
  };
  // One head: 2 sequences · 8 queries · 100 keys · 8 numbers; a share of 1/40 of the scores is exceeded by all four.
  const double head = 2.0 * 2 * 8 * 100 * 8;
  CHECK(flops("budget: 40, layers: uniform, retrieval_heads: 1") == head);
  CHECK(flops("budget: 40, layers: uniform, retrieval_heads: 1, retrieval_share: 0.025") == 4 * head);
  // The mean budget covers the prompt of 100 tokens, but layer 0 keeps 8 + 276 / 6 = 54 of it.
  CHECK(flops("budget: 100, retrieval_heads: 1, least_layer_budget: 8") == head);
}

// A framework that launches the operators of a policy's Python code.
class Operators final : public policy::ForwardedOps {
 public:
  using ForwardedOps::ForwardedOps;
  bool unfused() const override { return true; }
};

TEST_CASE("Python code drops a token by copying all others, and H2O's waits for the sums of its mask") {
  const config::Model model = small_model();
  const auto step = [&](const char* name, const char* setting, const policy::HeadCounts& head) {
    const std::vector<policy::HeadCounts> heads(4, head);
    policy::Recorder recorded;
    Operators ops(recorded);
    make(name, setting, kHundred)->decode_layer(policy::EqualBatch(model, 0, 2, {101, kHundred}, heads, false), ops);
    return recorded.ops();
  };
  const auto count = [](const std::vector<graph::Op>& ops, std::string_view label) {
    return std::ranges::count_if(ops, [&](const graph::Op& op) { return op.label == label; });
  };
  // Four lists of 41 tokens with keys of 16 bytes.
  const auto h2o = step("h2o", "budget: 40", {.attended = 41, .evicted = 1});
  check_kernel(h2o, "kept keys", 4 * 41 * 16, 4 * 41 * 16, 0);
  check_kernel(h2o, "kept totals", 4 * 41 * 4, 4 * 41 * 4, 0);
  CHECK(count(h2o, "mask of kept tokens") == 6);
  CHECK(count(h2o, "sum of the mask") == 3);
  CHECK(count(h2o, "free slot") == 0);
  const auto tova = step("tova", "budget: 40", {.attended = 41, .evicted = 1});
  check_kernel(tova, "kept values", 4 * 41 * 16, 4 * 41 * 16, 0);
  CHECK(count(tova, "sum of the mask") == 0);

  // Keys and values are joined anew, and all keys rotated: five passes.
  const auto streaming = step("streaming_llm", "budget: 40, sink: 4", {.attended = 40, .evicted = 1});
  CHECK(count(streaming, "join sink and window") == 2);
  check_kernel(streaming, "sum of both", 2 * 4 * 40 * 16, 4 * 40 * 16, 0);
  CHECK(count(first_step("streaming_llm", "budget: 40, sink: 4", {.attended = 40, .evicted = 1}),
              "join sink and window") == 0);
}

}  // namespace
}  // namespace kvcast::tests

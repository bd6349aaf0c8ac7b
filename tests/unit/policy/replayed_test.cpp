// Selections recorded in a file, replayed as a policy.
#include <catch2/catch.hpp>

#include <fstream>

#include "support/error_of.hpp"
#include "support/memory_trace.hpp"
#include "support/ops.hpp"
#include "support/select.hpp"
#include "support/temporary_directory.hpp"
#include "unit/policy/small_model.hpp"

namespace kvcast::tests {

using namespace policy;

namespace {

class Recorded {
 public:
  explicit Recorded(const std::string& text) : path_(directory_.path() + "/record.jsonl") {
    std::ofstream(path_) << text;
  }
  std::string settings() const { return "selections: " + path_; }
  std::string refused(const Lengths& lengths) const {
    return error_of([&] { make("replayed", settings(), lengths); });
  }

 private:
  TemporaryDirectory directory_;
  std::string path_;
};

// Three prompt tokens and two steps of one layer with one head: token 1 leaves after the prompt, step 1 brings it back.
constexpr const char* kOneHead =
    R"({"layer":0,"step":-1,"kv_head":0,"attended":[0,2]}
{"layer":0,"step":0,"kv_head":0,"attended":[0,3],"evicted":[2]}
{"layer":0,"step":1,"kv_head":0,"attended":[1,3,4],"fetched":[1]}
)";

TEST_CASE("a record is replayed one list at a time") {
  const MemoryTrace trace = random_trace({.kv_heads = 1, .prompt = 3, .steps = 2}, 1);
  const auto layer = trace.load(0, 1);
  const Recorded record(kOneHead);
  const Selected got = select("replayed", record.settings(), *layer);
  using Attended = std::vector<std::int32_t>;
  CHECK(got.resident.heads.at(0).attended == Attended{0, 2});
  CHECK(got.steps.at(0).heads.at(0).attended == Attended{0, 3});
  CHECK(got.steps.at(0).heads.at(0).counts.evicted == 1);
  CHECK(got.steps.at(1).heads.at(0).attended == Attended{1, 3, 4});
  CHECK(got.steps.at(1).heads.at(0).counts.fetched == 1);
  CHECK(got.steps.at(1).heads.at(0).counts.fetched_runs == 1);
  CHECK(got.steps.at(1).heads.at(0).counts.attended_runs == 2);
  CHECK(got.steps.at(1).heads.at(0).counts.scored == 0);  // no index
  // Steps 0 and 1 see 4 and 5 tokens: 2 and 3 entries of 2 tokens.
  const Selected by_entries = select("replayed", record.settings() + ", index_bytes: 1, index_tokens: 2", *layer);
  CHECK(by_entries.steps.at(0).heads.at(0).counts.scored == 2);
  CHECK(by_entries.steps.at(1).heads.at(0).counts.scored == 3);
}

TEST_CASE("declared kernels read their bytes before attention, and bytes need a kernel") {
  const config::Model model = small_model();
  const Recorded record(kOneHead);
  const auto policy = make("replayed", record.settings() + ", kernels: 2, kernel_bytes: 5", {3, 2});
  const std::vector<HeadCounts> heads(4, HeadCounts{.attended = 40});
  Recorder ops;
  policy->decode_layer(EqualBatch(model, 0, 2, {100, {3, 2}}, heads, false), ops);
  const auto declared = labelled(ops.ops(), "declared kernel");
  REQUIRE(declared.size() == 2);
  // 100 tokens of four heads, half of 5 bytes a kernel.
  for (const OpId op : declared) CHECK(kernel(ops.ops().at(static_cast<std::size_t>(op))).read_bytes == 1000);
  CHECK(waits_for(ops.ops(), ops.done_op(), declared.back()));
  CHECK_THROWS_WITH(make("replayed", record.settings() + ", kernel_bytes: 5", {3, 2}),
                    Catch::Contains("kernel_bytes needs `kernels:`"));
}

TEST_CASE("fetched tokens are copied before attention, and the cache is in host memory") {
  const config::Model model = small_model();  // 2 KV heads, 8 dimensions of 2 bytes: a row has 16 bytes
  const Recorded record(kOneHead);
  const auto policy = make("replayed", record.settings() + ", index_bytes: 3, index_tokens: 16", {3, 2});
  // Two sequences: four heads of 5 fetched tokens in 2 runs each, chosen by 7 entries of 16 tokens.
  const std::vector<HeadCounts> heads(4, HeadCounts{.attended = 40, .scored = 7, .fetched = 5, .fetched_runs = 2});
  Recorder ops;
  policy->decode_layer(EqualBatch(model, 0, 2, {100, {3, 2}}, heads, false), ops);
  CHECK(copy(only(ops.ops(), "fetch tokens")).runs == 4 * 2 * 2);
  CHECK(ops.traffic().h2d == 4 * 5 * 2 * 16);
  // The new token of 4 heads is copied to host memory, and the numbers of the 20 fetched tokens.
  CHECK(ops.traffic().d2h == 4 * 2 * 16 + 4 * 5 * 4);
  // The index of 100 tokens and 4 heads, and keys and values of 40 tokens a head.
  CHECK(ops.traffic().kv_read == 4 * 40 * 2 * 16);
  CHECK(kernel(only(ops.ops(), "estimate")).read_bytes == 100 * 4 * 3);
  // 40 of 100 tokens are in 3 of 7 entries.
  const auto& best = std::get<graph::TopK>(only(ops.ops(), "top-k").work);
  CHECK(best.rows == 4);
  CHECK(best.columns == 7);
  CHECK(best.k == 3);
  CHECK(policy->growth({3, 2}).scored == 1.0 / 16);
  CHECK(waits_for(ops.ops(), ops.done_op(), labelled(ops.ops(), "fetch tokens").at(0)));
  for (const MemoryItem& item : policy->memory({&model, 2, 100, {3, 2}, 40})) {
    INFO(graph::owner_name(item.owner));
    const double token = model.layers * 2 * 2.0 * 2 * 16;  // keys and values of both sequences and KV heads
    if (graph::owner_name(item.owner) == "KV cache") CHECK(item.bytes == 40 * token);
    if (item.pool == graph::Pool::kDram) CHECK(item.bytes == 100 * token);
    if (graph::owner_name(item.owner) == "index") CHECK(item.bytes == model.layers * 2 * 100 * 2 * 3);
  }
}

TEST_CASE("a record that drops nothing keeps the whole cache, and grows as it attends") {
  const Recorded record(R"({"layer":0,"step":0,"kv_head":0,"attended":[0,1,2,3]}
{"layer":0,"step":1,"kv_head":0,"attended":[0,1,2,3,4]})");
  const config::Model model = small_model();
  const auto policy = make("replayed", record.settings(), {3, 2});
  CHECK(policy->growth({3, 2}).attended == 1);
  const auto items = policy->memory({&model, 1, 100, {3, 2}, 5});
  REQUIRE(items.size() == 1);
  CHECK(items[0].bytes == model.layers * 2.0 * 100 * 2 * 16);
}

// Returns a line of a record of one layer. The prompt of the cases below has 6 tokens.
std::string recorded_line(int step, const std::string& lists, int head = 0) {
  return R"({"layer":0,"step":)" + std::to_string(step) + R"(,"kv_head":)" + std::to_string(head) + R"(,"attended":)" +
         lists + "}\n";
}

// Returns the tokens resident for a head at a context of 108 tokens if the replay attended to `attended` tokens, mean
// over heads.
double tokens_held(const Policy& policy, double attended) {
  const config::Model model = small_model();
  const auto items = policy.memory({&model, 1, 108, {6, 102}, attended});
  REQUIRE(graph::owner_name(items.front().owner) == "KV cache");
  return items.front().bytes / (model.layers * 2 * 2 * 16);  // keys and values of 2 KV heads
}

TEST_CASE("the memory of an evicted prompt grows with the tokens that a step reads") {
  // Three of the prompt's tokens stay; the steps attend to 4 and 5 tokens, 4.5 in the mean.
  const Recorded record(recorded_line(-1, "[0,2,5]") + recorded_line(0, "[0,2,5,6]") + recorded_line(1, "[0,2,5,6,7]"));
  const auto policy = make("replayed", record.settings(), {6, 102});
  CHECK(policy->growth({6, 102}).attended == 1);
  // 102 tokens have been generated, of which the replay saw 2: 5 + 100. Growth from the mean, 4.5 + 102 − 1.5, agrees.
  CHECK(tokens_held(*policy, 4.5) == Approx(105));
  const auto fixed = make("replayed", record.settings() + ", growth: 0", {6, 102});
  CHECK(fixed->growth({6, 102}).attended == 0);
  CHECK(tokens_held(*fixed, 4.5) == Approx(105));  // the tokens stay, although steps read no more of them
}

TEST_CASE("a head keeps the tokens that are resident after the prompt, however few of them a step reads") {
  // A selection of 2 among 5 resident tokens: the second stage of RocketKV.
  const Recorded record(recorded_line(-1, "[0,1,2,4,5]") + recorded_line(0, "[0,6]") + recorded_line(1, "[2,7]"));
  const auto policy = make("replayed", record.settings(), {6, 102});
  CHECK(policy->growth({6, 102}).attended == 0);
  CHECK(tokens_held(*policy, 2) == Approx(5 + 102));
  // A window: each new token evicts one, so that 4 tokens are resident at any context, 5 during the step that attends
  // to 5.
  const Recorded window(recorded_line(-1, "[0,3,4,5]") + recorded_line(0, R"([0,3,4,5,6],"evicted":[3])") +
                        recorded_line(1, R"([0,4,5,6,7],"evicted":[4])"));
  const auto slides = make("replayed", window.settings(), {6, 102});
  CHECK(slides->growth({6, 102}).attended == 0);
  CHECK(tokens_held(*slides, 5) == Approx(5));
  // Evicted tokens leave: 6 are resident after the prompt, 3 after the last step.
  const Recorded shrinks(recorded_line(-1, "[0,1,2,3,4,5]") + recorded_line(0, R"([0,6],"evicted":[1,2,3,4])") +
                         recorded_line(1, R"([0,7],"evicted":[5])"));
  CHECK(tokens_held(*make("replayed", shrinks.settings(), {6, 102}), 2) == Approx(6));
}

TEST_CASE("fetching a resident token again is a copy but does not add to the resident tokens") {
  const MemoryTrace trace = random_trace({.kv_heads = 1, .prompt = 6, .steps = 2}, 1);
  const auto layer = trace.load(0, 1);
  // Step 1 reloads the page of tokens 0 to 3, of which it reads one; tokens 0 and 1 are resident since step 0.
  const Recorded record(recorded_line(-1, "[4,5]") + recorded_line(0, R"([0,1,6],"fetched":[0,1])") +
                        recorded_line(1, R"([0,6,7],"fetched":[0,1,2,3])"));
  const Selected got = select("replayed", record.settings(), *layer);
  CHECK(got.steps.at(1).heads.at(0).counts.fetched == 4);
  CHECK(got.steps.at(1).heads.at(0).counts.fetched_runs == 1);
  // Tokens 0 to 7 are resident after the last step.
  CHECK(tokens_held(*make("replayed", record.settings(), {6, 2}), 3) == Approx(8));
}

TEST_CASE("a page that fills up does not count as growth") {
  const auto growth_of = [](const std::string& text) {
    const Recorded record(text);
    return make("replayed", record.settings(), {6, 102})->growth({6, 102}).attended;
  };
  // Pages of 4 tokens in an intact cache: the page of positions 4 to 7 fills.
  const std::string whole = recorded_line(-1, "[0,1,2,3,4,5]");
  CHECK(growth_of(whole + recorded_line(0, "[0,1,4,5,6]") + recorded_line(1, "[0,1,4,5,6,7]")) == 0);
  // The same with a cache that fetched its page from the host.
  const std::string fetched = recorded_line(-1, "[4,5]") + recorded_line(0, R"([0,1,4,5,6],"fetched":[0,1])");
  CHECK(growth_of(fetched + recorded_line(1, "[0,1,4,5,6,7]")) == 0);
  CHECK(growth_of(fetched + recorded_line(1, R"([2,3,4,5,6,7],"fetched":[2,3],"evicted":[0,1])")) == 0);
  // The selection changes, and the number of its tokens rises by 1.
  CHECK(growth_of(recorded_line(0, "[0,1,6]") + recorded_line(1, "[2,3,6,7]")) == 0);
  // One step shows no growth.
  CHECK(growth_of(whole + recorded_line(0, "[0,1,2,3,4,5,6]")) == 0);
}

TEST_CASE("the share of heads that only append grows") {
  // Head 0 keeps everything, head 1 a sink and a window of 2 tokens.
  const Recorded record(recorded_line(-1, "[0,1,2,3,4,5]", 0) + recorded_line(-1, "[0,4,5]", 1) +
                        recorded_line(0, "[0,1,2,3,4,5,6]", 0) + recorded_line(0, R"([0,5,6],"evicted":[4])", 1) +
                        recorded_line(1, "[0,1,2,3,4,5,6,7]", 0) + recorded_line(1, R"([0,6,7],"evicted":[5])", 1));
  const auto policy = make("replayed", record.settings(), {6, 102});
  CHECK(policy->growth({6, 102}).attended == 0.5);
  // 108 tokens of head 0 and 3 of head 1; the steps attend to 7 + 3 and 8 + 3 tokens, 5.25 in the mean.
  CHECK(tokens_held(*policy, 5.25) == Approx((108 + 3) / 2.0));
  CHECK(make("replayed", record.settings() + ", growth: 0.25", {6, 102})->growth({6, 102}).attended == 0.25);
}

TEST_CASE("a record with fetches but without the prompt's lists keeps the tokens that it attends to") {
  const Recorded record(recorded_line(0, R"([0,1,6],"fetched":[0,1])") +
                        recorded_line(1, R"([2,3,7],"fetched":[2,3])"));
  CHECK(tokens_held(*make("replayed", record.settings(), {6, 102}), 3) == Approx(3));
}

TEST_CASE("a record is rejected if one of its steps cannot see or read a token") {
  const auto refused = [](const std::string& text) { return Recorded(text).refused({6, 2}); };
  // Step 0 sees positions 0 to 6.
  const std::string unseen = "record.jsonl:2: the recorded selections do not fit the trace: step 0 ";
  const std::string start = recorded_line(-1, "[0,1]");
  CHECK(refused(start + recorded_line(0, "[0,7]")).find(unseen + "attends to position 7, but sees only 0 to 6") !=
        std::string::npos);
  CHECK(refused(start + recorded_line(0, R"([0,6],"fetched":[4,99999])"))
            .find(unseen + "fetches position 99999, but sees only 0 to 6") != std::string::npos);
  CHECK(refused(start + recorded_line(0, R"([0,6],"evicted":[7])"))
            .find(unseen + "evicts position 7, but sees only 0 to 6") != std::string::npos);
  // Token 2 is never resident; token 1 is resident until step 0 evicts it. Line 3 is wrong.
  const std::string fetches = start + recorded_line(0, R"([0,1,3,6],"fetched":[3],"evicted":[1])");
  CHECK(refused(fetches + recorded_line(1, "[0,2,7]"))
            .find("record.jsonl:3: step 1 attends to position 2, which is neither") != std::string::npos);
  CHECK(refused(fetches + recorded_line(1, "[0,1,7]"))
            .find("record.jsonl:3: step 1 attends to position 1, which is neither") != std::string::npos);
  CHECK_FALSE(refused(fetches + recorded_line(1, R"([0,1,3,7],"fetched":[1])")).find("step") != std::string::npos);
  // Layers differ in their steps.
  CHECK(refused(start + recorded_line(0, "[0]") + R"({"layer":1,"step":0,"kv_head":0,"attended":[0]}
{"layer":1,"step":1,"kv_head":0,"attended":[0]})")
            .find("only some layers have lines with step -1: layer 1") != std::string::npos);
}

TEST_CASE("a record without fetches may attend to tokens in host memory, where the CPU reads them") {
  const Recorded record(recorded_line(-1, "[0,1]") + recorded_line(0, R"([0,3,6],"evicted":[6])") +
                        recorded_line(1, "[0,4,6,7]"));
  const auto policy = make("replayed", record.settings(), {6, 102});
  // 2 tokens and the last one stay, and 3 and 4 tokens are attended to.
  CHECK(tokens_held(*policy, 3.5) == Approx(3.5));
}

TEST_CASE("query heads that keep the same tokens share them") {
  // Four query heads on two KV heads, which keep one token of the prompt and every later one: 1 + 102 at 108 tokens.
  const auto of = [](const char* token_of_last_head) {
    std::string text;
    for (int step = -1; step < 2; ++step) {
      for (int head = 0; head < 4; ++head) {
        text += R"({"layer":0,"step":)" + std::to_string(step) + R"(,"q_head":)" + std::to_string(head) +
                R"(,"attended":[)" + (head == 3 ? token_of_last_head : "0") + "]}\n";
      }
    }
    const Recorded record(text);
    return tokens_held(*make("replayed", record.settings(), {6, 102}), 1);
  };
  CHECK(of("0") == Approx(103));      // a copy for each of the 2 KV heads
  CHECK(of("1") == Approx(2 * 103));  // a copy for each query head
}

TEST_CASE("an invalid record is rejected with its line") {
  const auto refused = [](const std::string& text) { return Recorded(text).refused({3, 2}); };
  const std::string good = R"({"layer":0,"step":0,"kv_head":0,"attended":[0]})";
  CHECK(refused(good + "\n{oops").find("record.jsonl:2: expected a JSON object per line") != std::string::npos);
  CHECK(refused(R"({"layer":0,"step":0,"kv_head":0,"attended":[2,1]})").find("ascending") != std::string::npos);
  CHECK(refused(R"({"layer":0,"step":0,"kv_head":0,"attended":[0],"budget":1})").find("unknown key \"budget\"") !=
        std::string::npos);
  CHECK(refused(R"({"layer":0,"step":0,"kv_head":1,"attended":[0]})")
            .find("record.jsonl:1: layer 0, step 0: found KV head 1, "
                  "expected KV head 0") != std::string::npos);
  CHECK(refused(R"({"layer":0,"step":1,"kv_head":0,"attended":[0]})").find("no step 0") != std::string::npos);
  const std::string of = R"({"trace":"file a","layer":0,"step":0,"kv_head":0,"attended":[0]})";
  CHECK(refused(of + "\n" + R"({"trace":"file b","layer":1,"step":0,"kv_head":0,"attended":[0]})")
            .find("record.jsonl:2: the lines before are of another trace") != std::string::npos);
  CHECK(refused(R"({"trace":1,"layer":0,"step":0,"kv_head":0,"attended":[0]})").find("\"trace\" must be a text") !=
        std::string::npos);
  CHECK(refused("").find("no selections") != std::string::npos);
  CHECK(error_of([] { make("replayed", "", {3, 2}); }).find("selections: FILE.jsonl") != std::string::npos);
}

TEST_CASE("a record of another trace is rejected") {
  const Recorded record(kOneHead);
  const auto refused = [&](const TraceShape& shape) {
    const MemoryTrace trace = random_trace(shape, 1);
    const auto layer = trace.load(0, 1);
    return error_of([&] { select("replayed", record.settings(), *layer); });
  };
  CHECK(refused({.kv_heads = 2, .prompt = 3, .steps = 2}).find("1 heads, the trace has 2") != std::string::npos);
  CHECK(refused({.kv_heads = 1, .prompt = 3, .steps = 3}).find("2 decode steps, the trace has 3") != std::string::npos);
  CHECK(refused({.kv_heads = 1, .prompt = 1, .steps = 2}).find("step -1 attends to position 2, but sees only 0") !=
        std::string::npos);
  CHECK(refused({.kv_heads = 1, .prompt = 3, .steps = 2, .layers = {1}}).find("layer 1") != std::string::npos);
}

}  // namespace
}  // namespace kvcast::tests

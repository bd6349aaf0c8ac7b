// Selections recorded in a file, replayed as a policy.
#include <catch2/catch.hpp>

#include <fstream>

#include "support/error_of.hpp"
#include "support/memory_trace.hpp"
#include "support/ops.hpp"
#include "support/select.hpp"
#include "support/temporary_directory.hpp"
#include "unit/policy/small_model.hpp"

namespace kvcast::policy {
namespace {

using tests::copy;
using tests::only;
using tests::small_model;

class Recorded {
 public:
  explicit Recorded(const std::string& text) : path_(directory_.path() + "/record.jsonl") {
    std::ofstream(path_) << text;
  }
  std::string settings() const { return "selections: " + path_; }
  std::string refused(const Lengths& lengths) const {
    return error_of([&] { tests::make("replayed", settings(), lengths); });
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
  const tests::MemoryTrace trace = tests::random_trace({.kv_heads = 1, .prompt = 3, .steps = 2}, 1);
  const auto layer = trace.load(0, 1);
  const Recorded record(kOneHead);
  const tests::Selected got = tests::select("replayed", record.settings(), *layer);
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
  const tests::Selected by_entries =
      tests::select("replayed", record.settings() + ", index_bytes: 1, index_tokens: 2", *layer);
  CHECK(by_entries.steps.at(0).heads.at(0).counts.scored == 2);
  CHECK(by_entries.steps.at(1).heads.at(0).counts.scored == 3);
}

TEST_CASE("fetched tokens are copied before attention, and the cache is in host memory") {
  const config::Model model = small_model();  // 2 KV heads, 8 dimensions of 2 bytes: a row has 16 bytes
  const Recorded record(kOneHead);
  const auto policy = tests::make("replayed", record.settings() + ", index_bytes: 3, index_tokens: 16", {3, 2});
  // Two sequences: four heads of 5 fetched tokens in 2 runs each, chosen by 7 entries of 16 tokens.
  const std::vector<HeadCounts> heads(4, HeadCounts{.attended = 40, .scored = 7, .fetched = 5, .fetched_runs = 2});
  Recorder ops;
  policy->decode_layer({&model, 0, 2, 100, heads, false}, ops);
  CHECK(copy(only(ops.ops(), "fetch tokens")).runs == 4 * 2 * 2);
  CHECK(ops.traffic().h2d == 4 * 5 * 2 * 16);
  // The index of 100 tokens and 4 heads, and keys and values of 40 tokens a head.
  CHECK(ops.traffic().kv_read == 4 * 40 * 2 * 16);
  CHECK(tests::kernel(only(ops.ops(), "estimate")).read_bytes == 100 * 4 * 3);
  // 40 of 100 tokens are in 3 of 7 entries.
  const auto& best = std::get<graph::TopK>(only(ops.ops(), "top-k").work);
  CHECK(best.rows == 4);
  CHECK(best.columns == 7);
  CHECK(best.k == 3);
  CHECK(policy->growth().scored == 1.0 / 16);
  CHECK(tests::waits_for(ops.ops(), ops.done_op(), tests::labelled(ops.ops(), "fetch tokens").at(0)));
  for (const MemoryItem& item : policy->memory({&model, 2, 100, {3, 2}, 40})) {
    INFO(item.owner);
    const double token = model.layers * 2 * 2.0 * 2 * 16;  // keys and values of both sequences and KV heads
    if (item.owner == "KV cache") CHECK(item.bytes == 40 * token);
    if (item.pool == graph::Pool::kDram) CHECK(item.bytes == 100 * token);
    if (item.owner == "index") CHECK(item.bytes == model.layers * 2 * 100 * 2 * 3);
  }
}

TEST_CASE("a record that drops nothing keeps the whole cache, and grows as it attends") {
  const Recorded record(R"({"layer":0,"step":0,"kv_head":0,"attended":[0,1,2,3]}
{"layer":0,"step":1,"kv_head":0,"attended":[0,1,2,3,4]})");
  const config::Model model = small_model();
  const auto policy = tests::make("replayed", record.settings(), {3, 2});
  CHECK(policy->growth().attended == 1);
  const auto items = policy->memory({&model, 1, 100, {3, 2}, 5});
  REQUIRE(items.size() == 1);
  CHECK(items[0].bytes == model.layers * 2.0 * 100 * 2 * 16);
}

TEST_CASE("an invalid record is rejected with its line") {
  const auto refused = [](const std::string& text) { return Recorded(text).refused({3, 2}); };
  const std::string good = R"({"layer":0,"step":0,"kv_head":0,"attended":[0]})";
  CHECK(refused(good + "\n{oops").find("record.jsonl:2: expected a JSON object per line") != std::string::npos);
  CHECK(refused(R"({"layer":0,"step":0,"kv_head":0,"attended":[2,1]})").find("ascending") != std::string::npos);
  CHECK(refused(R"({"layer":0,"step":0,"kv_head":0,"attended":[0],"budget":1})").find("unknown key \"budget\"") !=
        std::string::npos);
  CHECK(refused(R"({"layer":0,"step":0,"kv_head":1,"attended":[0]})").find("head 1 follows head -1") !=
        std::string::npos);
  CHECK(refused(R"({"layer":0,"step":1,"kv_head":0,"attended":[0]})").find("no step 0") != std::string::npos);
  CHECK(refused("").find("no selections") != std::string::npos);
  CHECK(error_of([] { tests::make("replayed", "", {3, 2}); }).find("selections: FILE.jsonl") != std::string::npos);
}

TEST_CASE("a record of another trace is rejected") {
  const Recorded record(kOneHead);
  const auto refused = [&](const tests::TraceShape& shape) {
    const tests::MemoryTrace trace = tests::random_trace(shape, 1);
    const auto layer = trace.load(0, 1);
    return error_of([&] { tests::select("replayed", record.settings(), *layer); });
  };
  CHECK(refused({.kv_heads = 2, .prompt = 3, .steps = 2}).find("1 heads, the trace has 2") != std::string::npos);
  CHECK(refused({.kv_heads = 1, .prompt = 3, .steps = 3}).find("2 decode steps, the trace has 3") != std::string::npos);
  CHECK(refused({.kv_heads = 1, .prompt = 1, .steps = 2}).find("step -1 attends to position 2, 1 tokens") !=
        std::string::npos);
  CHECK(refused({.kv_heads = 1, .prompt = 3, .steps = 2, .layers = {1}}).find("layer 1") != std::string::npos);
}

}  // namespace
}  // namespace kvcast::policy

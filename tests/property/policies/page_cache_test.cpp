// A cache of recalled pages changes the copied tokens, not the attended ones, and keeps those used last.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "base/error.hpp"
#include "policies/all.hpp"
#include "settings.hpp"
#include "support/ops.hpp"
#include "support/select.hpp"
#include "unit/policy/small_model.hpp"

namespace kvcast::tests {
namespace {

using policy::HeadSelection;
using Tokens = std::vector<std::int32_t>;

// Stack distances from the selections of the policy without a cache: a token evicted at one step is still in the cache
// when it is recalled at a later one, unless at some step in between the tokens evicted after it, without those
// recalled since, had filled the cache.
class StackDistance {
 public:
  explicit StackDistance(std::int64_t room) : room_(room) {}

  // Returns the tokens that must be copied, then records the step.
  Tokens step(const HeadSelection& head) {
    Tokens missing;
    for (const std::int32_t token : head.fetched) {
      const auto found = given_up_.find(token);
      if (found == given_up_.end() || found->second.deepest >= room_) missing.push_back(token);
      if (found != given_up_.end()) given_up_.erase(found);
    }
    ++now_;
    for (const std::int32_t token : head.evicted) given_up_[token] = {now_, 0};
    for (auto& [token, entry] : given_up_) {
      const std::pair<int, std::int32_t> own{entry.step, token};
      const auto later = std::count_if(given_up_.begin(), given_up_.end(), [&](const auto& other) {
        return std::pair(other.second.step, other.first) > own;
      });
      entry.deepest = std::max<std::int64_t>(entry.deepest, later);
    }
    return missing;
  }

 private:
  struct Entry {
    int step = 0;
    std::int64_t deepest = 0;
  };
  std::int64_t room_;
  int now_ = 0;
  std::map<std::int32_t, Entry> given_up_;
};

std::int64_t page_of(const std::string& name, const std::string& setting) {
  const policy::Descriptor& d = policy::find_policy(name);
  return d.recall_page(policy::ParameterValues(d.parameters, config::parse_yaml("{" + setting + "}", "test")));
}

TEST_CASE("a cache of recalled pages copies the tokens that stack distances predict, and attends to the same tokens") {
  const TraceShape shape{
      .kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 131, .steps = 24, .window = 999, .layers = {3}};
  const MemoryTrace trace = random_trace(shape, 7);
  const auto layer = trace.load(0, 1);
  const Profiles profiles;
  int policies = 0;
  for (const policy::Descriptor& d : policy::all_policies()) {
    if (!d.recall_page) continue;
    ++policies;
    const std::string setting = small_settings(d, 24, profiles.of(shape));
    const Selected plain = select(d.name, setting, *layer);
    const std::int64_t page = page_of(d.name, setting);
    std::int64_t saved = 0;
    for (const std::int64_t tokens : {13, 40, 100000}) {
      CAPTURE(d.name, tokens);
      const Selected cached = select(d.name, with(setting, "page_cache", std::to_string(tokens)), *layer);
      std::vector<StackDistance> heads(plain.resident.heads.size(), StackDistance(tokens / page * page));
      for (std::size_t t = 0; t < plain.steps.size(); ++t) {
        for (std::size_t h = 0; h < heads.size(); ++h) {
          const HeadSelection &without = plain.steps[t].heads[h], &with_cache = cached.steps[t].heads[h];
          CHECK(with_cache.attended == without.attended);
          const Tokens missing = heads[h].step(without);
          CHECK(with_cache.fetched == missing);
          CHECK(with_cache.counts.fetched_runs == (static_cast<std::int64_t>(missing.size()) + page - 1) / page);
          saved += static_cast<std::int64_t>(without.fetched.size() - missing.size());
        }
      }
    }
    CHECK(saved > 0);
  }
  CHECK(policies == 5);  // arkvale, freekv, infinigen, omnikv, shadowkv
}

TEST_CASE("the cache takes the memory of whole pages, and looks up the chosen ones in its table") {
  const config::Model model = small_model();
  const policy::Lengths lengths{100, 20};
  const auto held = [&](const std::string& tokens) {
    const auto policy = make("freekv", "budget: 24, page: 4, page_cache: " + tokens, lengths);
    double bytes = 0;
    for (const policy::MemoryItem& item : policy->memory({&model, 2, 110, lengths, 24})) {
      if (graph::owner_name(item.owner) == "recalled pages kept") bytes += item.bytes;
    }
    return bytes;
  };
  // Two sequences, 3 layers, 2 KV heads, keys and values of 8 numbers of 2 bytes.
  const double token = 2 * 3 * 2 * 2 * 8 * 2;
  CHECK(held("0") == 0);
  CHECK(held("10") == 8 * token);
  CHECK(held("5000") == 110 * token);

  const std::vector<policy::HeadCounts> heads(4, {.attended = 24, .scored = 25, .fetched = 4, .fetched_runs = 1});
  policy::Recorder ops;
  make("freekv", "budget: 24, page: 4, page_cache: 8", lengths)
      ->decode_layer(policy::EqualBatch(model, 0, 2, {101, lengths}, heads, false), ops);
  // Four heads with 6 pages each, a slot and a time of 4 bytes, read and written.
  const graph::Kernel& table = kernel(only(ops.ops(), "page table"));
  CHECK(table.read_bytes == 4 * 6 * 8);
  CHECK(table.write_bytes == 4 * 6 * 8);
}

TEST_CASE("a cache too small for a page, or of a policy that recalls nothing, is rejected") {
  const auto refusal = [](const std::string& name, const std::string& setting) {
    try {
      make(name, setting, {100, 20});
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK_THAT(refusal("freekv", "budget: 64, page: 32, page_cache: 31"),
             Catch::Contains("page_cache (31 tokens) is smaller than one page (32 tokens)"));
  CHECK_THAT(refusal("omnikv", "budget: 64, place: gpu, page_cache: 31"),
             Catch::Contains("page_cache: nothing is in host memory"));
  CHECK_THAT(refusal("quest", "budget: 64, page_cache: 31"), Catch::Contains("page_cache"));
}

}  // namespace
}  // namespace kvcast::tests

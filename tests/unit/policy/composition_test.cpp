// Policies composed by configuration alone.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "policies/all.hpp"
#include "support/error_of.hpp"
#include "support/memory_trace.hpp"
#include "support/ops.hpp"
#include "support/select.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace policy;

namespace {

const TraceShape kShape{.kv_heads = 2, .group = 2, .head_dim = 8, .prompt = 90, .steps = 6, .window = 90};

std::unique_ptr<trace::Layer> layer() { return random_trace(kShape, 3).load(0, 1); }

std::vector<std::vector<std::int32_t>> lists(const Selected& got) {
  std::vector<std::vector<std::int32_t>> out;
  for (const HeadSelection& head : got.resident.heads) out.push_back(head.attended);
  for (const LayerSelection& step : got.steps) {
    for (const HeadSelection& head : step.heads) out.push_back(head.attended);
  }
  return out;
}

bool alike(const std::string& name, const std::string& a, const std::string& b) {
  const auto one = layer();
  return lists(select(name, a, *one)) == lists(select(name, b, *one));
}

TEST_CASE("RocketKV's stages configured separately equal RocketKV") {
  const std::string base = "budget: 20, window: 4, pool_kernel: 5, max_new_tokens: 3";
  const std::string first = ", first_stage: {name: snapkv, window: 4, pool_kernel: 5}";
  CHECK(alike("rocketkv", base, base + first));
  CHECK(alike("rocketkv", base, base + ", second_stage: {name: hsa}"));
  CHECK(alike("rocketkv", base, base + first + ", second_stage: {name: hsa, max_new_tokens: 3}"));
  CHECK(alike("rocketkv", base + ", second_stage: quest, group: sum_scores",
              base + ", second_stage: {name: quest, group: sum_scores}"));
  CHECK_FALSE(alike("rocketkv", base, base + ", first_stage: {name: keyl2norm}"));
}

TEST_CASE("any first stage can be combined with any second one") {
  const auto one = layer();
  for (const char* first : {"snapkv", "{name: snapkv, window: 8, pool: avg}", "{name: adakv, window: 8}",
                            "{name: pyramidkv, window: 8, beta: 4}", "{name: cake, window: 8}", "keyl2norm"}) {
    for (const char* second : {"hsa", "quest", "{name: sparq, mean_value: false}", "sparq", "exact_topk", "loki"}) {
      CAPTURE(first, second);
      const Selected got = select("rocketkv",
                                  fmt::format("budget: 16, window: 8, max_new_tokens: 6, first_stage: {}, "
                                              "second_stage: {}",
                                              first, second),
                                  *one);
      for (const LayerSelection& step : got.steps) {
        std::size_t all = 0;
        for (const HeadSelection& head : step.heads) all += head.attended.size();
        CHECK(all <= step.heads.size() * 17);  // 16 tokens, and the current one of SparQ
        CHECK(all > 0);
      }
      // Every token that a step reads was kept by the first stage or generated.
      for (std::size_t h = 0; h < got.resident.heads.size(); ++h) {
        const auto& kept = got.resident.heads[h].attended;
        CHECK(kept.size() < 90);
        const std::size_t each = got.steps[0].heads.size() / got.resident.heads.size();
        for (const std::int32_t i : got.steps[0].heads[h * each].attended) {
          CHECK((i >= 90 || std::binary_search(kept.begin(), kept.end(), i)));
        }
      }
    }
  }
}

TEST_CASE("SparQ within RocketKV spends half of the traffic on each part") {
  // Prompt 90 + 6, budget 16: c = 6, r = 0.3551, N = ⌊96 / 6^0.3551⌋ = 50: r_SparQ = round(8·16/50) = 3 dimensions, 8
  // tokens and the current one.
  const Selected got = select("rocketkv", "budget: 16, window: 4, second_stage: sparq", *layer());
  CHECK(got.resident.heads[0].attended.size() == 44);  // N − T_max
  CHECK(got.steps[0].heads[0].attended.size() == 9);
  CHECK(got.steps[0].heads[0].counts.scored == 45);
  config::Model model;
  model.layers = 4, model.n_q_heads = 4, model.n_kv_heads = 2, model.head_dim = 8;
  const auto policy = make("rocketkv", "budget: 16, window: 4, second_stage: sparq", {90, 6});
  const std::vector<HeadCounts> heads(2, got.steps[0].heads[0].counts);
  Recorder ops;
  policy->decode_layer(EqualBatch(model, 0, 1, {91, {90, 6}}, heads, false), ops);
  // 2 heads · 45 tokens · 3 dimensions · 2 bytes.
  CHECK(std::get<graph::Kernel>(only(ops.ops(), "estimate").work).read_bytes == 540);
}

TEST_CASE("KIVI's attention unpacks packed pairs for the selector that reads them") {
  config::Model model;
  model.layers = 4, model.n_q_heads = 4, model.n_kv_heads = 2, model.head_dim = 8;
  const auto unpacked = [&model](const std::string& parameters, const HeadCounts& head) {
    const auto policy = make("kivi", "residual: 8, quant_group: 8" + parameters, {90, 6});
    Recorder ops;
    policy->decode_layer(EqualBatch(model, 0, 1, {91, {90, 6}}, std::vector<HeadCounts>(2, head), false), ops);
    return std::get<graph::DecodeAttention>(only(ops.ops(), "attention").work).unpack_flops;
  };
  // The keys of 88 of the 91 tokens and the values of 82 are packed, 8 numbers each; two heads, 4 operations a number.
  HeadCounts all;
  all.attended = 91;
  CHECK(unpacked("", all) == 4 * 2 * (88 + 82) * 8);
  // A selector's 24 tokens count as if there were no others: 16 keys, 15 values.
  HeadCounts some{.attended = 24, .scored = 23, .candidates = 6};
  CHECK(unpacked(", selector: {name: quest, budget: 24, page: 4}", some) == Approx(4 * 2 * (16 + 15) * 8));
  // Nothing is packed as long as the residual is not full.
  all.attended = 8;
  CHECK(unpacked("", all) == 0);
}

TEST_CASE("KIVI below a selector reads the selected pairs in fewer bits") {
  const auto one = layer();
  const std::string selector = "{name: quest, budget: 24, page: 4}";
  CHECK(lists(select("kivi", "selector: " + selector, *one)) == lists(select("quest", "budget: 24, page: 4", *one)));
  CHECK(alike("kivi", "residual: 8, quant_group: 8", "residual: 8, quant_group: 8, selector: {name: full}"));
  // Outputs equal those of KIVI alone if everything is selected.
  const LayerInput input(*one);
  const auto outputs = [&](const std::string& parameters) {
    const auto policy = make("kivi", "residual: 8, quant_group: 8" + parameters, {90, 6});
    const auto selector_of = policy->selector(input);
    LayerSelection step;
    selector_of->prefill(step);
    std::vector<float> out;
    for (int t = 0; t < 6; ++t) {
      selector_of->step(t, step);
      for (int q = 0; q < 4; ++q) {
        const auto row = selector_of->output(q);
        out.insert(out.end(), row.begin(), row.end());
      }
    }
    return out;
  };
  const std::vector<float> alone = outputs(""), selected = outputs(", selector: {name: exact_topk, budget: 1000}");
  REQUIRE(alone.size() == 6 * 4 * 8);
  REQUIRE(selected.size() == alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) CHECK(selected[i] == Approx(alone[i]).margin(1e-5));
  // Storage: page summaries come on top of the packed pairs.
  config::Model model;
  model.layers = 1, model.n_q_heads = 4, model.n_kv_heads = 2, model.head_dim = 8;
  const auto items = make("kivi", "selector: " + selector, {90, 6})->memory({&model, 1, 96, {90, 6}, 0});
  REQUIRE(items.size() == 2);
  CHECK(items[0].bytes == make("kivi", "", {90, 6})->memory({&model, 1, 96, {90, 6}, 0})[0].bytes);
  CHECK(graph::owner_name(items[1].owner) == "page summaries");
}

TEST_CASE("sparse prefill can precede any policy") {
  CHECK(alike("minference", "then: {name: quest, budget: 24, page: 4}",
              "then: {name: quest, budget: 24, page: 4}, slash: 200"));
  const auto one = layer();
  for (const char* name : {"minference", "xattention"}) {
    for (const char* then : {"{name: ctkvr, budget: 8, centroids: 16, sink: 2, recent: 4}",
                             "{name: snapkv, budget: 40}", "{name: kivi, selector: {name: quest, budget: 16}}"}) {
      CAPTURE(name, then);
      const config::Node inner = config::parse_yaml(then, "then");
      const std::string own = inner.find("name")->text();
      const Descriptor& d = find_policy(own);
      const auto alone = make_policy(d, inner.without({"name"}));
      CHECK(lists(select(name, std::string("then: ") + then, *one)) == lists(select(*alone, *one)));
    }
  }
}

TEST_CASE("an unsuitable nested policy is rejected") {
  const Lengths lengths{90, 6};
  const auto error = [&](const std::string& name, const std::string& parameters) {
    return error_of([&] { make(name, parameters, lengths); });
  };
  CHECK(error("minference", "then: nothing").find("unknown policy \"nothing\"") != std::string::npos);
  CHECK(error("minference", "then: {name: quest, pages: 3}").find("unknown policy parameter \"pages\"") !=
        std::string::npos);
  CHECK(error("minference", "then: {name: keydiff, budget: 20, block: 8}").find("blocks") != std::string::npos);
  CHECK(error("rocketkv", "budget: 16, first_stage: {name: snapkv, budget: 20}").find("must not set budget") !=
        std::string::npos);
  CHECK(error("rocketkv", "budget: 16, first_stage: full").find("has no budget") != std::string::npos);
  CHECK(error("rocketkv", "budget: 16, first_stage: freekv").find("does not consist of two stages") !=
        std::string::npos);
  CHECK(error("rocketkv", "budget: 16, first_stage: {name: snapkv, group: per_head, window: 4}").find("per_head") !=
        std::string::npos);
  // A first stage that evicts nothing and a second one that selects nothing would ignore the budget.
  CHECK(error("rocketkv", "budget: 16, first_stage: quest").find("quest evicts nothing") != std::string::npos);
  CHECK(error("rocketkv", "budget: 16, second_stage: {name: snapkv, window: 4}").find("selects none") !=
        std::string::npos);
  CHECK(error("kivi", "selector: {name: quest, budget: 16, first_dense_layers: 1}").find("first_dense_layers") !=
        std::string::npos);
  CHECK(error("kivi", "selector: {name: snapkv, budget: 40, group: per_head}").find("per_head") != std::string::npos);
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/self.yaml";
  std::ofstream(path) << "name: minference\nthen: {file: " << path << "}\n";
  CHECK(error("minference", "then: {file: " + path + "}").find("8 deep") != std::string::npos);
}

}  // namespace
}  // namespace kvcast::tests

#include "synth/synthetic.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "trace/targets.hpp"

namespace kvcast::tests {

using namespace trace;

namespace {

SynthShape small_shape() {
  SynthShape shape;
  shape.model = "small";
  shape.n_layers = 6;
  shape.captured_layers = 2;
  shape.n_q_heads = 6;
  shape.n_kv_heads = 3;
  shape.head_dim = 32;
  shape.rope.theta = 500000;
  shape.prompt_tokens = 3000;
  shape.decode_steps = 9;
  shape.window = 40;
  return shape;
}

std::string fingerprint(const Layer& layer) {
  std::string all;
  const auto add = [&](const MatrixView& m) {
    all += content_hash({reinterpret_cast<const char*>(m.data), m.rows * m.cols * sizeof(float)});
  };
  for (int h = 0; h < layer.info().n_kv_heads; ++h) add(layer.keys(h)), add(layer.values(h));
  for (int h = 0; h < layer.info().n_q_heads; ++h) add(layer.queries(h));
  return all;
}

// Changes the n-th number of a recipe and returns its name.
class Perturber final : public ParameterVisitor {
 public:
  explicit Perturber(int n) : n_(n) {}
  void section(const char* name) override { section_ = name; }
  void number(const char* key, double& value, double low, double high) override {
    if (!mine(key)) return;
    const double more = value == 0 ? 0.3 : value * 1.6;
    value = more <= high ? more : std::max(low, value * 0.5);
  }
  void integer(const char* key, int& value, int, int) override {
    if (mine(key)) value += 1;
  }
  std::string changed;

 private:
  bool mine(const char* key) {
    const bool it_is = count_++ == n_;
    if (it_is) changed = section_ + "." + key;
    return it_is;
  }
  int n_, count_ = 0;
  std::string section_;
};

// A recipe in which every part has an effect.
Recipe rich_recipe(bool repeated) {
  Recipe r;
  r.name = "rich";
  r.heads = {0.4, 0.3, 0.3, 0.5};
  r.task.needles = 2;
  r.task.distractors = 2;
  r.task.distractor_density = 1;
  r.task.value_tokens = 3;
  r.task.shared_key = 0.5;
  r.task.pause_steps = 1;
  r.question.key_queries = 3;
  r.task.haystack = repeated ? "repeated" : "text";
  return r;
}

}  // namespace

TEST_CASE("a layer is the same on any number of threads, at any time, and whatever else is captured") {
  const Recipe recipe = rich_recipe(false);
  SynthShape shape = small_shape();  // layers 1 and 4 of 6
  const auto trace = synthesize(recipe, shape);
  CHECK(trace->info().layers == std::vector<int>{1, 4});
  const std::string first = fingerprint(*trace->load(0, 1));
  const std::string second = fingerprint(*trace->load(1, 3));
  CHECK(first != second);
  CHECK(fingerprint(*trace->load(0, 4)) == first);
  CHECK(fingerprint(*synthesize(recipe, shape)->load(1, 1)) == second);
  shape.captured_layers = 6;
  CHECK(fingerprint(*synthesize(recipe, shape)->load(4, 2)) == second);
}

TEST_CASE("the identity names the inputs of the layers, and nothing else") {
  const Recipe recipe = rich_recipe(false);
  const SynthShape shape = small_shape();
  const std::string id = synthesize(recipe, shape)->identity();
  CHECK(synthesize(recipe, shape)->identity() == id);
  std::vector<SynthShape> others(9, shape);
  others[0].seed = 2;
  others[1].prompt_tokens = 3001;
  others[2].decode_steps = 10;
  others[3].rope.theta = 10000;
  others[4].n_q_heads = 3;
  others[5].head_dim = 64;
  others[6].window = 41;
  others[7].captured_layers = 3;
  others[8].rope.scaling = config::Rope::Scaling::kLinear;
  for (const SynthShape& other : others) CHECK(synthesize(recipe, other)->identity() != id);
}

// The parts of tasks; every number of a recipe affects one of them.
enum class Kind { kText, kRepeated, kWords, kEvidence, kSections };

Recipe recipe_of(Kind kind) {
  Recipe recipe = rich_recipe(kind == Kind::kRepeated);
  if (kind == Kind::kWords) {
    recipe.task.key_tokens = recipe.task.gap_tokens = 0;
    recipe.task.value_tokens = 1;
    recipe.task.copy_density = 5;
    recipe.task.copy_decay = 0.5;
  }
  if (kind == Kind::kEvidence || kind == Kind::kSections) {
    recipe.task.needles = recipe.task.distractors = 0;
    recipe.task.distractor_density = 0;
    recipe.task.spots = 4;
    recipe.task.spots_a_step = 1;
    recipe.question.key_queries = 2;
  }
  if (kind == Kind::kSections) {
    recipe.task.spot_radius = recipe.task.spot_steps = 1;
    recipe.task.section_steps = 6;
    recipe.task.back_steps = recipe.task.back_reach = 1;
  }
  return recipe;
}

TEST_CASE("every number of a recipe changes the trace and its identity") {
  // Fast and slow pairs: either share or turn binds the content pairs.
  std::vector<std::pair<Kind, double>> settings;
  for (const Kind kind : {Kind::kText, Kind::kRepeated, Kind::kWords, Kind::kEvidence, Kind::kSections}) {
    for (const double theta : {1e4, 5e6}) settings.emplace_back(kind, theta);
  }
  std::map<std::pair<Kind, double>, std::pair<std::string, std::string>> originals;
  int n = 0;
  for (std::size_t last = 0;; ++n) {
    bool content_changed = false;
    std::string name;
    // Neighbouring numbers mostly change the same kind of trace.
    for (std::size_t i = 0; i < settings.size() && !content_changed; ++i) {
      const std::size_t at = (last + i) % settings.size();
      const auto [kind, theta] = settings[at];
      SynthShape shape = small_shape();
      shape.captured_layers = 1;
      shape.n_layers = 1;
      shape.rope.theta = theta;
      shape.head_dim = 64;
      shape.n_kv_heads = 5;  // two of the heads retrieve
      shape.n_q_heads = 20;
      shape.seed = 2;  // some of their query heads are idle
      if (kind == Kind::kSections) shape.decode_steps = 60;
      Recipe recipe = recipe_of(kind);
      auto& original = originals[settings[at]];
      if (original.first.empty()) {
        const auto trace = synthesize(recipe, shape);
        original = {fingerprint(*trace->load(0, 2)), trace->identity()};
      }
      Perturber perturber(n);
      visit_parameters(recipe, perturber);
      name = perturber.changed;
      if (name.empty()) break;
      const auto trace = synthesize(recipe, shape);
      CHECK(trace->identity() != original.second);
      content_changed = fingerprint(*trace->load(0, 2)) != original.first;
      if (content_changed) last = at;
    }
    if (name.empty()) break;
    INFO(name);
    CHECK(content_changed);
  }
  CHECK(n > 60);
}

TEST_CASE("a synthetic trace has the positions, targets and metadata of its recipe") {
  const Recipe recipe = rich_recipe(false);
  const auto trace = synthesize(recipe, small_shape());
  const TraceInfo& info = trace->info();
  CHECK(info.source == "synthetic");
  CHECK(info.query_positions.size() == 49);
  CHECK(info.query_positions.front() == 2960);
  CHECK(info.query_positions.back() == 3008);
  CHECK(info.longest_window() == 40);
  const Targets targets = read_targets(info);
  // 3 value tokens, a pause, 3 value tokens, a pause, free.
  for (std::size_t t = 0; t < 9; ++t) CHECK(targets[t].size() == (t < 8 && t % 4 != 3 ? 1u : 0u));
  CHECK(info.optional.at("provenance").find("recipe rich") != std::string::npos);

  SynthShape brief = small_shape();
  brief.prompt_tokens = 150;
  brief.window = 0;
  CHECK(synthesize(recipe, brief)->info().longest_window() == 128);  // the recipe's
  brief.window = 1000;
  CHECK(synthesize(recipe, brief)->info().longest_window() == 150);  // all prompt queries
}

TEST_CASE("heads are assigned by their shares, however few layers there are") {
  const HeadMix mix{0.25, 0.5, 0.25, 0.5};
  for (const int layer : {0, 7, 31}) {
    int count[3] = {};
    for (const HeadKind kind : head_kinds(mix, layer, 8, 3)) ++count[static_cast<int>(kind)];
    CHECK(count[0] == 2);
    CHECK(count[1] == 4);
    CHECK(count[2] == 2);
  }
  // Two KV heads per layer, a quarter of which retrieve: one in two layers.
  int retrieving = 0;
  for (int layer = 0; layer < 28; ++layer) {
    for (const HeadKind kind : head_kinds(mix, layer, 2, 3)) retrieving += kind == HeadKind::kRetrieval;
  }
  CHECK(retrieving == 14);
  CHECK(spread_layers(32, 2) == std::vector<int>{8, 24});
  CHECK(spread_layers(5, 5) == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(spread_layers(80, 1) == std::vector<int>{40});
}

TEST_CASE("impossible shapes are rejected") {
  const Recipe recipe;
  const auto refused = [&](auto change, const char* why) {
    SynthShape shape = small_shape();
    change(shape);
    CHECK_THROWS_WITH(synthesize(recipe, shape), Catch::Contains(why));
  };
  refused([](SynthShape& s) { s.head_dim = 33; }, "head_dim is 33");
  refused([](SynthShape& s) { s.head_dim = 4; }, "head_dim is 4");
  refused([](SynthShape& s) { s.n_q_heads = 4; }, "4 query heads do not share 3 KV heads evenly");
  refused([](SynthShape& s) { s.captured_layers = 7; }, "7 layers cannot be captured of 6");
  refused([](SynthShape& s) { s.prompt_tokens = 0; }, "prompt_tokens is 0");
  refused([](SynthShape& s) { s.decode_steps = 0; }, "decode_steps is 0");
  refused([](SynthShape& s) { s.prompt_tokens = 60; }, "too short for the task");
}

TEST_CASE("the smallest head and odd lengths work") {
  Recipe recipe = rich_recipe(GENERATE(false, true));
  SynthShape shape = small_shape();
  shape.head_dim = GENERATE(8, 10, 16);
  shape.prompt_tokens = GENERATE(101, 1023, 1025);
  const auto layer = synthesize(recipe, shape)->load(0, 2);
  double square = 0;
  for (int h = 0; h < 3; ++h) {
    const MatrixView keys = layer->keys(h);
    for (std::size_t i = 0; i < keys.rows * keys.cols; ++i) square += double(keys.data[i]) * double(keys.data[i]);
  }
  CHECK(std::isfinite(square));
  CHECK(square > 0);
}

TEST_CASE("making a layer stops on request, and so do its values, which are made later") {
  const auto trace = synthesize(rich_recipe(false), small_shape());
  std::stop_source stop;
  const auto layer = trace->load(0, 2, stop.get_token());
  CHECK_NOTHROW(layer->values(0));
  stop.request_stop();
  CHECK_THROWS_AS(trace->load(0, 2, stop.get_token()), kvcast::Cancelled);
  CHECK_THROWS_AS(layer->values(1), kvcast::Cancelled);  // not made yet
  CHECK_THROWS_AS(layer->values(0), kvcast::Cancelled);  // the rows of a layer belong to the work that was stopped
  CHECK_THROWS_AS(layer->keys(0), kvcast::Cancelled);
  CHECK_THROWS_AS(layer->queries(0), kvcast::Cancelled);
  CHECK_THROWS_AS(layer->decode_scores(0), kvcast::Cancelled);
}

}  // namespace kvcast::tests

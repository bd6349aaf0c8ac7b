// The committed tiny traces equal the output of their recipe, bit for bit.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <set>

#include "base/error.hpp"
#include "synth/recipe.hpp"
#include "synth/synthetic.hpp"
#include "trace/inspect.hpp"
#include "trace/trace_file.hpp"
#include "unit/trace/support.hpp"

namespace kvcast::tests {

using namespace trace;

namespace {

const std::string kFolder = KVCAST_SOURCE_DIR "/traces/tiny/";

struct Tiny {
  std::string file;
  SynthShape shape;
  Dtype dtype;
};

SynthShape shape(int layers, int captured, int n_q, int n_kv, int d, std::int64_t prompt, int steps, int window) {
  SynthShape s;
  s.model = "tiny";
  s.n_layers = layers;
  s.captured_layers = captured;
  s.n_q_heads = n_q;
  s.n_kv_heads = n_kv;
  s.head_dim = d;
  s.rope.theta = 500000;
  s.prompt_tokens = prompt;
  s.decode_steps = steps;
  s.window = window;
  return s;
}

std::vector<Tiny> tiny_traces() {
  return {{"mha_d16_f16.safetensors", shape(4, 2, 4, 4, 16, 93, 5, 16), Dtype::kF16},
          {"gqa4_d32_bf16.safetensors", shape(2, 1, 8, 2, 32, 157, 6, 32), Dtype::kBF16},
          {"gqa2_d8_f32.safetensors", shape(3, 3, 4, 2, 8, 61, 3, 16), Dtype::kF32}};
}

Recipe tiny_recipe() { return read_recipe(kFolder + "recipe.yaml"); }

// Prints all numbers of a recipe as YAML.
class YamlPrinter final : public ParameterVisitor {
 public:
  void section(const char* name) override { text += fmt::format("{}:\n", name); }
  void number(const char* key, double& value, double, double) override {
    text += fmt::format("  {}: {}\n", key, value);
  }
  void integer(const char* key, int& value, int, int) override { text += fmt::format("  {}: {}\n", key, value); }
  std::string text;
};

std::map<std::string, std::string> without_provenance(std::map<std::string, std::string> metadata) {
  metadata.erase("provenance");
  return metadata;
}

}  // namespace

TEST_CASE("tiny traces equal the output of their recipe", "[tiny]") {
  const TemporaryFolder folder;
  for (const Tiny& tiny : tiny_traces()) {
    INFO(tiny.file);
    write_trace(folder / tiny.file, *synthesize(tiny_recipe(), tiny.shape), tiny.dtype, 2);
    const auto made = SafetensorsFile::open(folder / tiny.file);
    const auto committed = SafetensorsFile::open(kFolder + tiny.file);
    CHECK(without_provenance(made.metadata()) == without_provenance(committed.metadata()));
    REQUIRE(made.tensors().size() == committed.tensors().size());
    for (const auto& [name, tensor] : made.tensors()) {
      INFO(name);
      const Tensor* const other = committed.find(name);
      REQUIRE(other != nullptr);
      CHECK(other->dtype == tensor.dtype);
      CHECK(other->shape == tensor.shape);
      CHECK(std::equal(other->data.begin(), other->data.end(), tensor.data.begin(), tensor.data.end()));
    }
  }
}

TEST_CASE("the tiny recipe writes out every parameter", "[tiny]") {
  Recipe recipe = tiny_recipe();
  YamlPrinter printer;
  visit_parameters(recipe, printer);
  const std::string text = read_bytes(kFolder + "recipe.yaml");
  std::size_t at = 0;
  std::string line;
  for (const char c : printer.text) {
    if (c != '\n') {
      line += c;
      continue;
    }
    INFO(line);
    at = text.find("\n" + line, at);  // in the order of the sections
    REQUIRE(at != std::string::npos);
    line.clear();
  }
}

TEST_CASE("tiny traces are valid and small", "[tiny]") {
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) bytes += entry.file_size();
  CHECK(bytes < 300'000);
  for (const Tiny& tiny : tiny_traces()) CHECK_FALSE(has_errors(check_trace_file(kFolder + tiny.file, 1)));
}

TEST_CASE("rewrite the tiny traces", "[.][make-tiny]") {
  // A pattern that excludes other cases would also select this one, which must run only on request.
  if (std::getenv("KVCAST_MAKE_TINY") == nullptr) return;
  for (const Tiny& tiny : tiny_traces()) {
    write_trace(kFolder + tiny.file, *synthesize(tiny_recipe(), tiny.shape), tiny.dtype, 1);
  }
}

}  // namespace kvcast::tests

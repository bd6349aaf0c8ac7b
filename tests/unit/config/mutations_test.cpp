// The project's own YAML files, broken at random: each must be read or rejected with a UserError. A crash, another
// exception or an endless loop fails the suite; a file that is read must have a canonical text that reads back the
// same.
#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "config/card.hpp"
#include "config/card_table.hpp"
#include "config/run.hpp"
#include "config/yaml.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace config;
namespace fs = std::filesystem;

namespace {

std::vector<fs::path> files_under(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(KVCAST_SOURCE_DIR) / "configs" / folder)) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string content_of(const fs::path& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

const std::vector<std::string>& snippets() {
  static const std::vector<std::string> list = {"&a ",
                                                "*a",
                                                "&a *a",
                                                "<<: *a",
                                                "!!str ",
                                                "!!map {",
                                                "! ",
                                                "!",
                                                "!<x",
                                                "---",
                                                "\n---\n",
                                                "\n...\n",
                                                "%YAML 1.2\n",
                                                "%TAG ! x\n",
                                                "[",
                                                "]",
                                                "{",
                                                "}",
                                                "[[[[[[[[",
                                                "{{{{{{{{",
                                                "? ",
                                                ": ",
                                                "- ",
                                                "- - - ",
                                                "\"",
                                                "'",
                                                "\\",
                                                "\"\\x\"",
                                                "|\n",
                                                ">\n",
                                                "|9\n",
                                                "#",
                                                " #",
                                                ",",
                                                ",,",
                                                "~",
                                                "null",
                                                "true",
                                                ".nan",
                                                ".inf",
                                                "010",
                                                "0x1F",
                                                "1e999",
                                                "99999999999999999999999999",
                                                "-",
                                                "-1",
                                                "0",
                                                "\t",
                                                "\r",
                                                "\n",
                                                "\n\n",
                                                " ",
                                                "        ",
                                                std::string(1, '\0'),
                                                "\x7F",
                                                "\xFF",
                                                "\xC3\xA9",
                                                "\xEF\xBB\xBF",
                                                "\xE2\x80\xA8",
                                                "@",
                                                "`",
                                                "a: ",
                                                "a: 1\na: 2\n",
                                                "layers: 1\n",
                                                "40 GB",
                                                "x2",
                                                "x0",
                                                "x-1",
                                                "x1e999",
                                                "like: h200\n",
                                                "{value: x2, origin: measured}",
                                                "{points: [[1 B, 1 s]]}",
                                                "%"};
  return list;
}

// One to four random edits: a byte replaced, a piece removed, a snippet inserted, the end truncated, a piece repeated.
std::string mutated(std::string text, const Stream& stream) {
  const std::uint64_t edits = 1 + stream.below(0, 4);
  for (std::uint64_t e = 0; e < edits; ++e) {
    const Stream edit = stream.child({e});
    const std::size_t at = edit.below(0, text.size() + 1);
    const std::size_t length = 1 + edit.below(1, 20);
    switch (edit.below(2, 5)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(edit.below(3, 256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, snippets()[edit.below(3, snippets().size())]);
        break;
      case 3:
        text.resize(at);
        break;
      default:
        text.insert(at, text.substr(at, length));
        break;
    }
  }
  return text;
}

struct Outcome {
  int read = 0;
  int refused = 0;
};

// Calls read(text) on mutations of a file; anything but success and UserError escapes and fails the case.
template <typename Read>
void mutate(const fs::path& path, std::uint64_t rounds, Outcome& outcome, const Read& read) {
  const std::string original = content_of(path);
  const Stream stream = Stream(2024).child({original.size()});
  for (std::uint64_t i = 0; i < rounds; ++i) {
    const std::string text = mutated(original, stream.child({i}));
    INFO(path.string() << " mutation " << i << ":\n" << text);
    try {
      read(text);
      ++outcome.read;
    } catch (const UserError& error) {
      ++outcome.refused;
      REQUIRE(std::string(error.what()).size() < 2000);
    }
  }
}

void parse_back(const std::string& text) {
  const Node node = parse_yaml(text, "mutated.yaml");
  const std::string canonical = node.canonical();
  REQUIRE(parse_yaml(canonical, "canonical").canonical() == canonical);
}

// Fewer mutations of files above 4 KiB, so that each file takes about as long.
void mutate_all(std::uint64_t rounds) {
  Outcome outcome;
  for (const fs::path& path : files_under("")) {
    const std::uint64_t pieces = fs::file_size(path) / 4096 + 1;
    mutate(path, std::max<std::uint64_t>(rounds / pieces, 4), outcome, parse_back);
  }
  // Both sides of the property are exercised.
  CHECK(outcome.read > 100);
  CHECK(outcome.refused > 100);
}

}  // namespace

TEST_CASE("mutated YAML is read or rejected", "[yaml][mutation]") { mutate_all(20); }

TEST_CASE("mutated YAML is read or rejected, long run", "[.long][yaml][mutation]") { mutate_all(20'000); }

TEST_CASE("mutated models are read or rejected", "[model][mutation]") {
  const TemporaryDirectory directory;
  const std::string copy = directory.path() + "/model.yaml";
  Outcome outcome;
  for (const fs::path& path : files_under("models")) {
    mutate(path, 30, outcome, [&](const std::string& text) {
      std::ofstream(copy, std::ios::binary) << text;
      const Model model = read_model(copy);
      REQUIRE(model.parameters() > 0);
      REQUIRE(model.n_q_heads % model.n_kv_heads == 0);
    });
  }
  CHECK(outcome.read > 100);
  CHECK(outcome.refused > 100);
}

TEST_CASE("mutated cards of models are read or rejected", "[card][mutation]") {
  const TemporaryDirectory directory;
  const std::string lines = content_of(fs::path(KVCAST_TESTS_DIR) / "unit/config/cards.json");
  Outcome outcome;
  for (std::size_t start = lines.find('\n') + 1; lines[start] == '"';) {
    const std::size_t end = lines.find('\n', start), value = lines.find(": {", start) + 2;
    const std::string path = directory.path() + "/card.json";
    std::ofstream(path) << lines.substr(value, lines.rfind('}', end) + 1 - value);
    mutate(path, 20, outcome, [&](const std::string& text) {
      std::ofstream(directory.path() + "/mutated.json", std::ios::binary) << text;
      const Card card = read_card(directory.path() + "/mutated.json");
      const Model model = read_model(card.model, "mutated");
      REQUIRE(model.parameters() > 0);
    });
    start = end + 1;
  }
  CHECK(outcome.read > 100);
  CHECK(outcome.refused > 100);
}

TEST_CASE("mutated tables of architectures are read or rejected", "[card][mutation]") {
  const TemporaryDirectory directory;
  const std::string copy = directory.path() + "/table.yaml";
  Outcome outcome;
  mutate(fs::path(KVCAST_SOURCE_DIR) / "configs/cards/architectures.yaml", 200, outcome, [&](const std::string& text) {
    std::ofstream(copy, std::ios::binary) << text;
    const CardTable table = read_card_table(copy);
    REQUIRE_FALSE(table.modelled().empty());
  });
  CHECK(outcome.read > 10);
  CHECK(outcome.refused > 10);
}

TEST_CASE("mutated runs and sweeps are read or rejected", "[run][sweep][mutation]") {
  Outcome outcome;
  for (const char* folder : {"runs", "sweeps"}) {
    for (const fs::path& path : files_under(folder)) {
      mutate(path, 60, outcome, [&](const std::string& text) {
        const std::vector<SweepPoint> points = expand_sweep(parse_yaml(text, "mutated.yaml"));
        const Run run = read_run(points.back().config);
        REQUIRE(run.workload.prompt_tokens + run.workload.decode_tokens <= run.model.max_context);
      });
    }
  }
  CHECK(outcome.read > 10);
  CHECK(outcome.refused > 100);
}

TEST_CASE("mutated machines of runs are read or rejected", "[run][hardware][mutation]") {
  const TemporaryDirectory directory;
  const fs::path path = directory.path() + "/machine.yaml";
  std::ofstream(path) << R"(model: llama-3.1-8b
policy: full
hardware:
  like: {name: h200-trtllm, uncertainty: 15 %}
  gpu:
    hbm_bandwidth: x2
    clock: {value: 2 GHz, origin: measured, uncertainty: 1 %, source: here}
    attention_mha: {l2_bandwidth: 12 TB/s}
    gather_efficiency: {points: [[32 B, 0.4], [16 KiB, 1]]}
    range: {attention_rows: [1, 512]}
  link: {pcie: {generation: 6, lanes: 8}, copy_latency: 2 us}
  host: {like: xeon-8570, cores: 64, core_bandwidth: x0.5}
sweep:
  hardware.gpu.hbm_capacity: [x1, 282 GB, {value: x3, uncertainty: 5 %}]
  hardware.host.dram_bandwidth: [x1, x0.5]
)";
  Outcome outcome;
  mutate(path, 1000, outcome, [&](const std::string& text) {
    for (const SweepPoint& point : expand_sweep(parse_yaml(text, "mutated.yaml"))) {
      const Run run = read_run(point.config);
      REQUIRE(run.hardware.name.starts_with("h200-trtllm"));
      for (const ConstKnob& knob : knobs(std::as_const(run.hardware))) {
        for (const double y : knob.value != nullptr ? std::vector{knob.value->value} : knob.curve->y) {
          REQUIRE(std::isfinite(y));
        }
      }
    }
  });
  CHECK(outcome.read > 10);
  CHECK(outcome.refused > 100);
}

}  // namespace kvcast::tests

// The reader of hardware profiles: accepted input, and the location of every error.
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/random.hpp"
#include "config/hardware.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using Catch::Matchers::Contains, Catch::Matchers::EndsWith, Catch::Matchers::StartsWith;

namespace {

std::string number(const std::string& text) {
  return "{value: " + text + ", origin: assumed, uncertainty: 10 %, source: made up}\n";
}

// A whole machine in one file, one key a line, so that tests can replace or drop one.
class Profile {
 public:
  Profile() {
    lines_ = {"title: Round\n", "gpu:\n"};
    const auto add = [this](const std::string& key, const std::string& value) {
      lines_.push_back("  " + key + ": " + value);
    };
    const auto curve = [&](const std::string& key, const std::string& points) {
      add(key, "{points: " + points + ", origin: assumed, uncertainty: 10 %, source: made up}\n");
    };
    for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{{"hbm_capacity", "40 GB"},
                                                                                     {"hbm_reserved", "1 GB"},
                                                                                     {"hbm_bandwidth", "1 TB/s"},
                                                                                     {"tensor_flops", "100 TFLOP/s"},
                                                                                     {"vector_flops", "10 TFLOP/s"},
                                                                                     {"sm_count", "100"},
                                                                                     {"clock", "1 GHz"},
                                                                                     {"floor_clock", "1 GHz"},
                                                                                     {"floor_gemm", "2 us"},
                                                                                     {"floor_attention", "10 us"},
                                                                                     {"floor_score", "3 us"},
                                                                                     {"floor_topk", "4 us"},
                                                                                     {"floor_small", "1 us"},
                                                                                     {"attention_merge", "5 us"},
                                                                                     {"gap_stream", "2 us"},
                                                                                     {"gap_graph", "1 us"},
                                                                                     {"stream_efficiency", "80 %"},
                                                                                     {"convert_efficiency", "50 %"},
                                                                                     {"vector_efficiency", "50 %"},
                                                                                     {"attention_efficiency", "80 %"},
                                                                                     {"attention_tile", "100"},
                                                                                     {"attention_padding", "50 %"},
                                                                                     {"attention_part", "100"},
                                                                                     {"attention_parts", "4"},
                                                                                     {"attention_tile_time", "1 us"},
                                                                                     {"attention_overlap", "2"},
                                                                                     {"l2_capacity", "20 MB"},
                                                                                     {"l2_bandwidth", "4 TB/s"},
                                                                                     {"gemm_overlap", "3"},
                                                                                     {"gemm_row_loss", "5 %"},
                                                                                     {"prefill_efficiency", "50 %"},
                                                                                     {"flash2_efficiency", "40 %"},
                                                                                     {"gemm_tile", "100"},
                                                                                     {"topk_pick", "1 ns"}}) {
      add(key, number(value));
    }
    curve("attention_row", "[[1, 1 us], [8, 2 us]]");
    curve("gemm_memory_efficiency", "[[0 B, 0.5], [100 MB, 1]]");
    curve("gemm_compute_efficiency", "[[0, 0.1], [1, 0.5]]");
    curve("gather_efficiency", "[[32 B, 0.5], [1 KiB, 1]]");
    curve("topk_row", "[[1, 1 us], [1000, 2 us]]");
    curve("factorise_rate", "[[256, 30 GFLOP/s], [1024, 100 GFLOP/s]]");
    lines_.push_back("link:\n");
    for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{{"theory_bandwidth", "12 GB/s"},
                                                                                     {"h2d_bandwidth", "10 GB/s"},
                                                                                     {"d2h_bandwidth", "8 GB/s"},
                                                                                     {"both_bandwidth", "16 GB/s"},
                                                                                     {"pageable_bandwidth", "4 GB/s"},
                                                                                     {"copy_latency", "1 us"},
                                                                                     {"issue_row", "100 ns"},
                                                                                     {"load_latency", "2 us"},
                                                                                     {"engine_row", "50 ns"}}) {
      add(key, number(value));
    }
    curve("issue_call", "[[1 B, 4 us], [1 GB, 4 us]]");
    curve("issue_batched", "[[1 B, 500 ns], [1 GB, 600 ns]]");
    curve("engine_piece", "[[1 B, 1 us], [1 GB, 1 us]]");
    curve("zero_copy_efficiency", "[[32 B, 0.1], [1 KiB, 0.6]]");
    lines_.push_back("host: generic\n");
  }

  // The line of `key:` becomes `key: value`; an empty value drops it.
  Profile& set(const std::string& key, const std::string& value) {
    for (std::string& line : lines_) {
      const std::size_t at = line.find_first_not_of(' ');
      if (line.compare(at, key.size() + 1, key + ":") != 0) continue;
      line = value.empty() ? "" : line.substr(0, at) + key + ": " + value + "\n";
      return *this;
    }
    FAIL("no key " << key);
    return *this;
  }
  Profile& append(const std::string& text) {
    lines_.push_back(text);
    return *this;
  }
  // 1-based line of a key as written.
  int line_of(const std::string& key) const {
    int line = 0;
    for (const std::string& text : lines_) {
      line += text.empty() ? 0 : 1;
      if (text.compare(text.find_first_not_of(' '), key.size() + 1, key + ":") == 0) return line;
    }
    return 0;
  }
  std::string write(const TemporaryDirectory& folder, const std::string& name = "round.yaml") const {
    const std::string path = folder.path() + "/" + name;
    std::ofstream out(path);
    for (const std::string& line : lines_) out << line;
    return path;
  }
  std::string error() const {
    const TemporaryDirectory folder;
    const std::string path = write(folder);
    const std::string message = error_of([&] { config::read_hardware(path); });
    // The location is the file's; the folder's name is random.
    return message.starts_with(folder.path()) ? message.substr(folder.path().size() + 1) : message;
  }

 private:
  std::vector<std::string> lines_;
};

}  // namespace

TEST_CASE("a profile in one file reads as written") {
  const TemporaryDirectory folder;
  const config::Hardware machine = config::read_hardware(Profile().write(folder));
  CHECK(machine.name == "round");
  CHECK(machine.title == "Round");
  CHECK(machine.gpu.hbm_bandwidth == 1e12);
  CHECK(machine.gpu.stream_efficiency == 0.8);
  CHECK(machine.gpu.floor_gemm == 2e-6);
  CHECK(machine.gpu.floor_gemm.origin == Origin::kAssumed);
  CHECK(machine.gpu.floor_gemm.uncertainty == Approx(0.1));
  CHECK(machine.gpu.floor_gemm.source == "made up");
  CHECK(machine.gpu.gemm_memory_efficiency.x == std::vector<double>{0, 100e6});
  CHECK(machine.gpu.gemm_memory_efficiency.y == std::vector<double>{0.5, 1});
  CHECK(machine.link.load_latency == 2e-6);
  CHECK(machine.link.issue_batched.y == std::vector<double>{0.5e-6, 0.6e-6});
  CHECK(machine.host.name == "generic");
  CHECK(machine.host.cores == 32);
}

TEST_CASE("invalid numbers are reported with their location") {
  Profile p;
  const int line = p.line_of("h2d_bandwidth");
  CHECK_THAT(p.set("h2d_bandwidth", number("fast")).error(),
             StartsWith("round.yaml:" + std::to_string(line) + ":26: value: expected bytes/s"));
  CHECK_THAT(Profile().set("sm_count", number("0")).error(), Contains("value: 0 is out of range"));
  CHECK_THAT(Profile().set("clock", number("1410")).error(), Contains("hertz with a unit"));
  CHECK_THAT(Profile().set("clock", "{value: 1 GHz, origin: rumour, source: x}").error(), Contains("origin"));
  CHECK_THAT(Profile().set("clock", "{value: 1 GHz, source: x}").error(), Contains("\"origin\" is missing"));
  CHECK_THAT(Profile().set("clock", "{value: 1 GHz, origin: assumed, uncertainty: 1 %}").error(),
             Contains("\"source\" is missing"));
}

TEST_CASE("a second attention kernel must be complete") {
  Profile p;
  p.set("attention_row",
        "{points: [[1, 1 us]], origin: assumed, uncertainty: 10 %, source: made up}\n  attention_mha: "
        "{floor_attention: " +
            number("20 us") + "}");
  CHECK_THAT(p.error(), Contains("attention_mha: 10 required keys are missing: attention_merge, l2_bandwidth"));
  CHECK_FALSE(config::read_hardware(Profile().write(TemporaryDirectory())).gpu.attention_mha);
}

TEST_CASE("unknown and missing keys are rejected") {
  CHECK_THAT(Profile().set("clock", "").error(), Contains("gpu: the required key \"clock\" is missing"));
  CHECK_THAT(Profile().set("host", "").error(), Contains("the required key \"host\" is missing"));
  CHECK_THAT(Profile().append("overclock: 2\n").error(), Contains("unknown key \"overclock\""));
  Profile misspelt;
  misspelt.set("title", "Round\ngpus: {}");
  CHECK_THAT(misspelt.error(), Contains("unknown key \"gpus\""));
  CHECK_THAT(Profile().set("host", "no-such-host").error(), Contains("no-such-host"));
}

TEST_CASE("curves are ascending pairs") {
  const auto with = [](const std::string& points) {
    return Profile()
        .set("gather_efficiency", "{points: " + points + ", origin: assumed, uncertainty: 10 %, source: made up}")
        .error();
  };
  CHECK_THAT(with("[[1 KiB, 0.5], [32 B, 1]]"), Contains("points must ascend in x"));
  CHECK_THAT(with("[[32 B, 0.5], [32 B, 1]]"), Contains("points must ascend in x"));
  CHECK_THAT(with("[]"), Contains("points must be a list"));
  CHECK_THAT(with("[[32 B]]"), Contains("a point is a pair"));
  CHECK_THAT(with("[[32, 0.5]]"), Contains("bytes with a unit"));
  CHECK_THAT(with("[[32 B, 1.5]]"), Contains("out of range"));  // more than the peak
  CHECK_THAT(Profile().set("gather_efficiency", "{points: [[32 B, 1]], origin: assumed, source: x}").error(),
             Contains("\"uncertainty\" is missing"));
}

TEST_CASE("impossible numbers are rejected with their line") {
  const auto refused = [](const std::string& key, const std::string& value, const std::string& why) {
    Profile p;
    INFO(key << " " << value);
    const int line = p.line_of(key);
    const std::string message = p.set(key, number(value)).error();
    CHECK_THAT(message, StartsWith("round.yaml:" + std::to_string(line) + ":"));
    CHECK_THAT(message, Contains(why));
  };
  refused("stream_efficiency", "1.2", "out of range");
  refused("h2d_bandwidth", "13 GB/s", "h2d_bandwidth: 13 GB/s is more than theory_bandwidth (12 GB/s)");
  refused("d2h_bandwidth", "13 GB/s", "d2h_bandwidth: 13 GB/s is more than theory_bandwidth (12 GB/s)");
  refused("both_bandwidth", "19 GB/s", "both_bandwidth: 19 GB/s is more than h2d_bandwidth and d2h_bandwidth together");
  refused("both_bandwidth", "9 GB/s", "both_bandwidth: 9 GB/s is less than one direction alone (10 GB/s)");
  refused("pageable_bandwidth", "11 GB/s", "more than pinned copies reach (10 GB/s)");
  refused("hbm_reserved", "40 GB", "hbm_reserved: leaves no device memory");
  refused("gap_graph", "3 us", "gap_graph: kernels in a CUDA graph cannot be further apart");
  refused("hbm_capacity", "0 GB", "out of range");
}

TEST_CASE("included files supply missing keys and never override") {
  const TemporaryDirectory folder;
  std::ofstream(folder.path() + "/first.yaml")
      << "gpu:\n  clock: " << number("3 GHz") << "  gap_graph: " << number("7 ns");
  std::ofstream(folder.path() + "/second.yaml")
      << "gpu:\n  clock: " << number("5 GHz") << "  gap_graph: " << number("9 ns");
  const std::string list = "include: [" + folder.path() + "/first.yaml, " + folder.path() + "/second.yaml]\n";
  // The profile states 1 GHz itself and leaves the gap to the files, of which the first has precedence.
  const config::Hardware machine = config::read_hardware(Profile().set("gap_graph", "").append(list).write(folder));
  CHECK(machine.gpu.clock == 1e9);
  CHECK(machine.gpu.gap_graph == 7e-9);
}

TEST_CASE("errors in included files are located there") {
  const TemporaryDirectory folder;
  const std::string part = folder.path() + "/part.yaml";
  const auto error_with = [&](const std::string& text) {
    std::ofstream(part) << text;
    const std::string path = Profile().set("gap_graph", "").append("include: [" + part + "]\n").write(folder);
    return error_of([&] { config::read_hardware(path); });
  };
  CHECK_THAT(error_with("gpu:\n  gap_graph: " + number("1")), StartsWith(part + ":2:"));
  CHECK_THAT(error_with("gpu:\n  gap_graph: " + number("1 us") + "  warp: 32\n"),
             StartsWith(part + ":3:3: gpu: unknown key"));
  CHECK_THAT(error_with("include: [kernels]\n"), Contains("may not include others"));
  CHECK_THAT(error_with("[1, 2]\n"), Contains("must contain a map"));
  CHECK_THAT(Profile().append("include: kernels\n").error(), Contains("expected a list of names"));
  CHECK_THAT(Profile().append("include: [no-such-part]\n").error(), Contains("no-such-part"));
}

TEST_CASE("a host may be part of the profile") {
  const TemporaryDirectory folder;
  Profile p;
  p.set("host", "\n  title: Mine\n  include: [cuda-calls, cores]\n  cores: " + number("4") + "  dram_capacity: " +
                    number("64 GB") + "  dram_bandwidth: " + number("40 GB/s") + "  all_core_derate: " + number("0.9"));
  const config::Hardware machine = config::read_hardware(p.write(folder));
  CHECK(machine.host.name == "inline");
  CHECK(machine.host.title == "Mine");
  CHECK(machine.host.cores == 4);
  CHECK(machine.host.launch == Approx(5e-6));
  // One core reads up to 12 GB/s (cores.yaml).
  Profile slow;
  slow.set("host", "\n  title: Mine\n  include: [cuda-calls, cores]\n  cores: " + number("4") +
                       "  dram_capacity: " + number("64 GB") + "  dram_bandwidth: " + number("10 GB/s") +
                       "  all_core_derate: " + number("0.9"));
  CHECK_THAT(slow.error(), Contains("one core cannot read faster than dram_bandwidth"));
}

TEST_CASE("a damaged profile is read or rejected") {
  const TemporaryDirectory folder;
  const std::string whole = [&] {
    std::ifstream in(Profile().write(folder));
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  const std::vector<std::string> snippets = {"{",     "}",  "[",      "]",  ": ",
                                             "&a ",   "*a", "!!map ", "\n", "- ",
                                             "1e999", "-1", "nan",    "\"", "include: [kernels]\n",
                                             "[[[[",  "\t", "#",      "%"};
  const std::string path = folder.path() + "/damaged.yaml";
  const Stream stream(21);
  int refused = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const Stream s = stream.child({i});
    std::string text = whole;
    for (std::uint64_t edit = 0; edit <= s.below(0, 3); ++edit) {
      const std::size_t at = s.below(10 + 3 * edit, text.size());
      const std::string& snippet = snippets[s.below(11 + 3 * edit, snippets.size())];
      text.replace(at, s.below(12 + 3 * edit, 4), snippet);
    }
    if (i % 10 == 0) text.resize(s.below(1, text.size()));
    std::ofstream(path) << text;
    INFO("damage " << i);
    try {
      config::read_hardware(path);
    } catch (const UserError& error) {
      ++refused;
      REQUIRE_THAT(error.what(), Contains(".yaml"));  // names a file
    }
  }
  CHECK(refused > 200);
}

TEST_CASE("the canonical text depends on every number and on nothing else") {
  const TemporaryDirectory folder;
  config::Hardware machine = config::read_hardware(Profile().write(folder));
  const std::string text = config::canonical(machine);
  // The same numbers from a file of another name, with comments and other spellings of quantities.
  Profile same;
  same.set("clock", number("1000 MHz")).append("# nothing\n");
  CHECK(config::canonical(config::read_hardware(same.write(folder, "other.yaml"))) == text);
  for (const config::Knob& knob : config::knobs(machine)) {
    INFO(knob.key);
    double& turned = knob.value != nullptr ? knob.value->value : knob.curve->y.back();
    const double kept = turned;
    turned = kept == 0 ? 1e-12 : kept * (1.0 + 1e-12);
    CHECK(config::canonical(machine) != text);
    turned = kept;
  }
  CHECK(config::canonical(machine) == text);
}

namespace {

// A hypothetical GPU: an H200 with a different memory speed.
config::Hardware like_h200(const TemporaryDirectory& folder, const std::string& like, const std::string& gpu) {
  std::ofstream(folder.path() + "/next.yaml") << "title: Next\nlike: " << like << "\ngpu:\n" << gpu;
  return config::read_hardware(folder.path() + "/next.yaml");
}

}  // namespace

TEST_CASE("a profile with `like` inherits the other's numbers as assumed and less certain, except those it states") {
  const TemporaryDirectory folder;
  config::Hardware next =
      like_h200(folder, "{name: h200, uncertainty: 15 %}", "  hbm_bandwidth: " + number("4.85 TB/s"));
  config::Hardware h200 = config::read_hardware(KVCAST_SOURCE_DIR "/configs/hardware/h200.yaml");
  CHECK(next.title == "Next");
  CHECK(next.aliases.empty());       // these numbers remain those of h200
  CHECK(next.calibrations.empty());  // nothing was fitted to this GPU
  CHECK(next.gpu.hbm_bandwidth == 4.85e12);
  CHECK(next.gpu.hbm_bandwidth.uncertainty == 0.1);
  CHECK(next.gpu.hbm_bandwidth.source == "made up");
  CHECK(next.host.name == h200.host.name);
  const auto there = config::knobs(h200), here = config::knobs(next);
  REQUIRE(there.size() == here.size());
  for (std::size_t i = 0; i < here.size(); ++i) {
    INFO(here[i].key);
    if (here[i].key == "gpu.hbm_bandwidth") continue;
    const auto compare = [&](const auto& before, const auto& now) {
      const bool taken = !here[i].key.starts_with("host.") && before.origin != Origin::kExact;
      CHECK(now.origin == (taken ? worse(before.origin, Origin::kAssumed) : before.origin));
      CHECK(now.uncertainty == (taken ? std::max(before.uncertainty, 0.15) : before.uncertainty));
      CHECK(now.source == (taken ? "as h200: " + before.source : before.source));
    };
    if (here[i].value != nullptr) compare(*there[i].value, *here[i].value);
    if (here[i].value != nullptr) CHECK(*there[i].value == *here[i].value);
    if (here[i].curve != nullptr) compare(*there[i].curve, *here[i].curve);
    if (here[i].curve != nullptr) CHECK(there[i].curve->y == here[i].curve->y);
  }
}

TEST_CASE("a variation requires an uncertainty and a base that is not a variation") {
  const TemporaryDirectory folder;
  const std::string faster = "  hbm_bandwidth: " + number("4.85 TB/s");
  const auto message = [&](const std::string& like, const std::string& gpu) {
    return error_of([&] { like_h200(folder, like, gpu); });
  };
  CHECK_THAT(message("h200", faster),
             Contains("next.yaml:2:7: like: a profile takes a map such as {name: h100-sxm, uncertainty: 15 %}, found"));
  CHECK_THAT(message("{name: h200}", faster), Contains("like: the required key \"uncertainty\" is missing"));
  CHECK_THAT(message("{name: h2000, uncertainty: 5 %}", faster), Contains("did you mean \"h200\""));
  CHECK_THAT(message("{name: h200, uncertainty: 5 %}", "  hbm_bandwith: " + number("4.85 TB/s")),
             Contains("unknown key \"hbm_bandwith\" (did you mean \"hbm_bandwidth\"?)"));
  CHECK_THAT(message("{name: h200, uncertainty: 5 %}", "  hbm_bandwidth: " + number("900 TB/s")),
             Contains("l2_bandwidth: ") && Contains("is less than hbm_bandwidth (900 TB/s)"));
  like_h200(folder, "{name: h200, uncertainty: 5 %}", faster);
  std::ofstream(folder.path() + "/after.yaml")
      << "title: After\nlike: {name: " + folder.path() + "/next.yaml, uncertainty: 5 %}\n";
  CHECK_THAT(error_of([&] { config::read_hardware(folder.path() + "/after.yaml"); }),
             Contains("is like another profile itself"));
}

TEST_CASE("an unknown key is reported at its own location, and the known keys include those that merge files") {
  const TemporaryDirectory folder;
  const auto message = [&](const std::string& like, const std::string& gpu) {
    return error_of([&] { like_h200(folder, like, gpu); });
  };
  CHECK_THAT(message("{name: h200, uncertainty: 5 %}", "  hbm_bandwith: " + number("4.85 TB/s")),
             Contains("next.yaml:4:3: gpu: unknown key"));
  CHECK_THAT(message("{name: h200, uncertainty: 5 %}", "  sm_count: " + number("99") + "foo: 1\n"),
             Contains("next.yaml:5:1: hardware profile: unknown key \"foo\"; known: like, include, title"));
}

}  // namespace kvcast::tests

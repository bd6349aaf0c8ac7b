// Machines altered by a run: changed numbers and the numbers derived from them, worked out by hand.
#include <catch2/catch.hpp>

#include <fstream>
#include <map>

#include "config/hardware.hpp"
#include "config/pcie.hpp"
#include "config/yaml.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace config;
using Catch::Contains;
using Catch::StartsWith;

namespace {

// A machine with round numbers. Its links reach 10 of 20 GB/s in each direction and 16 GB/s in both; a core of its
// host copies up to 12 GB/s (hosts/common/cores.yaml).
class RoundMachine {
 public:
  RoundMachine() : path_(folder_.path() + "/round.yaml") {
    const auto line = [](const std::string& key, const std::string& value) {
      return "  " + key + ": {value: " + value + ", origin: datasheet, uncertainty: 10 %, source: of " + key + "}\n";
    };
    std::ofstream(path_) << "title: Round\nlike: {name: h200-trtllm, uncertainty: 10 %}\nhost: xeon-8480c\ngpu:\n"
                         << line("hbm_capacity", "40 GB") << line("hbm_reserved", "1 GB")
                         << line("hbm_bandwidth", "1 TB/s") << line("l2_bandwidth", "4 TB/s")
                         << line("tensor_flops", "100 TFLOP/s") << line("vector_flops", "10 TFLOP/s")
                         << line("sm_count", "100") << line("clock", "1 GHz") << line("gap_stream", "2 us")
                         << line("gap_graph", "1 us") << line("stream_efficiency", "80 %") << "link:\n"
                         << line("theory_bandwidth", "20 GB/s") << line("h2d_bandwidth", "10 GB/s")
                         << line("d2h_bandwidth", "10 GB/s") << line("both_bandwidth", "16 GB/s")
                         << line("pageable_bandwidth", "5 GB/s");
  }

  using Settings = std::vector<std::string>;
  Hardware with(const Settings& settings) const {
    Node run = parse_yaml("hardware: " + path_ + "\n", "run.yaml");
    for (const std::string& setting : settings) {
      const auto [key, value] = parse_setting("hardware." + setting);
      run = run.with(key, value);
    }
    return read_hardware(*run.find("hardware"));
  }
  std::string error(const Settings& settings) const {
    return error_of([&] { with(settings); });
  }
  const std::string& path() const { return path_; }

 private:
  TemporaryDirectory folder_;
  std::string path_;
};

std::map<std::string, std::vector<double>> numbers(const Hardware& machine) {
  std::map<std::string, std::vector<double>> all;
  for (const ConstKnob& knob : knobs(machine)) {
    all[knob.key] = knob.value != nullptr ? std::vector{knob.value->value} : knob.curve->y;
  }
  return all;
}

// The numbers that differ from those of the unaltered machine; for a curve, its last value.
std::map<std::string, double> differing(const RoundMachine& base, const std::vector<std::string>& settings) {
  const auto before = numbers(base.with({})), after = numbers(base.with(settings));
  std::map<std::string, double> found;
  for (const auto& [key, values] : after) {
    if (before.at(key) != values) found[key] = values.back();
  }
  return found;
}

std::map<std::string, std::string> followed(const Hardware& machine) {
  std::map<std::string, std::string> found;
  for (const MachineChange& change : machine.changes) found[change.key] = change.follows;
  return found;
}

}  // namespace

TEST_CASE("a changed number also changes the numbers derived from it, and no others", "[hardware]") {
  const RoundMachine base;
  const double mha = base.with({}).gpu.attention_mha->l2_bandwidth;  // h200-trtllm's 7.21 TB/s
  struct Case {
    std::vector<std::string> settings;
    std::map<std::string, double> expected;
  };
  const std::vector<Case> cases = {
      {{"gpu.hbm_capacity=80 GB"}, {{"gpu.hbm_capacity", 80e9}}},
      {{"gpu.hbm_bandwidth=x2"}, {{"gpu.hbm_bandwidth", 2e12}}},
      // 5 TB/s is more than the 4 TB/s of the L2, and less than the 7.21 TB/s of the other kernel.
      {{"gpu.hbm_bandwidth=5 TB/s"}, {{"gpu.hbm_bandwidth", 5e12}, {"gpu.l2_bandwidth", 5e12}}},
      {{"gpu.clock=x2"},
       {{"gpu.clock", 2e9},
        {"gpu.tensor_flops", 200e12},
        {"gpu.vector_flops", 20e12},
        {"gpu.l2_bandwidth", 8e12},
        {"gpu.attention_mha.l2_bandwidth", 2 * mha}}},
      // 1.5 times the clock and 2 times the SMs.
      {{"gpu.clock=1500 MHz", "gpu.sm_count=200", "gpu.attention_mha.l2_bandwidth=x1"},
       {{"gpu.clock", 1.5e9},
        {"gpu.sm_count", 200},
        {"gpu.tensor_flops", 300e12},
        {"gpu.vector_flops", 30e12},
        {"gpu.l2_bandwidth", 12e12}}},
      // Numbers that the run sets itself stay, even if it sets the old value.
      {{"gpu.sm_count=x2", "gpu.tensor_flops=150 TFLOP/s", "gpu.vector_flops=x1", "gpu.l2_bandwidth=4 TB/s",
        "gpu.attention_mha.l2_bandwidth=x2"},
       {{"gpu.sm_count", 200}, {"gpu.tensor_flops", 150e12}, {"gpu.attention_mha.l2_bandwidth", 2 * mha}}},
      // Half of 4 TB/s would be less than the memory's 3 TB/s; half of 7.21 TB/s is not.
      {{"gpu.hbm_bandwidth=3 TB/s", "gpu.clock=x0.5", "gpu.tensor_flops=x1", "gpu.vector_flops=x1"},
       {{"gpu.hbm_bandwidth", 3e12},
        {"gpu.clock", 5e8},
        {"gpu.l2_bandwidth", 3e12},
        {"gpu.attention_mha.l2_bandwidth", mha / 2}}},
      {{"gpu.gap_stream=500 ns"}, {{"gpu.gap_stream", 5e-7}, {"gpu.gap_graph", 5e-7}}},
      {{"gpu.stream_efficiency=x1.1"}, {{"gpu.stream_efficiency", 0.88}}},
      // Below the theory of 20 GB/s; both directions keep 0.8 of the sum: 0.8 x 28.
      {{"link.h2d_bandwidth=18 GB/s"}, {{"link.h2d_bandwidth", 18e9}, {"link.both_bandwidth", 22.4e9}}},
      // Above: the theory keeps its ratio of 2; 0.8 x 40.
      {{"link.h2d_bandwidth=x3"},
       {{"link.h2d_bandwidth", 30e9}, {"link.theory_bandwidth", 60e9}, {"link.both_bandwidth", 32e9}}},
      // 0.8 x 110 would be less than one direction alone.
      {{"link.h2d_bandwidth=x10"},
       {{"link.h2d_bandwidth", 100e9}, {"link.theory_bandwidth", 200e9}, {"link.both_bandwidth", 100e9}}},
      // Staged copies are no faster than pinned ones; 0.8 x 8.
      {{"link.h2d_bandwidth=4 GB/s", "link.d2h_bandwidth=4 GB/s"},
       {{"link.h2d_bandwidth", 4e9},
        {"link.d2h_bandwidth", 4e9},
        {"link.both_bandwidth", 6.4e9},
        {"link.pageable_bandwidth", 4e9}}},
      {{"link.theory_bandwidth=x2"},
       {{"link.theory_bandwidth", 40e9},
        {"link.h2d_bandwidth", 20e9},
        {"link.d2h_bandwidth", 20e9},
        {"link.both_bandwidth", 32e9},
        {"link.pageable_bandwidth", 10e9}}},
      // Four times 5 GB/s is more than a core can copy; 0.8 x 70.
      {{"link.theory_bandwidth=x4", "link.h2d_bandwidth=30 GB/s"},
       {{"link.theory_bandwidth", 80e9},
        {"link.h2d_bandwidth", 30e9},
        {"link.d2h_bandwidth", 40e9},
        {"link.both_bandwidth", 56e9},
        {"link.pageable_bandwidth", 12e9}}},
      // 16 lanes of 64 GT/s, 242 of 256 bytes: 121 GB/s, 6.05 times 20.
      {{"link.pcie={generation: 6, lanes: 16}"},
       {{"link.theory_bandwidth", 121e9},
        {"link.h2d_bandwidth", 60.5e9},
        {"link.d2h_bandwidth", 60.5e9},
        {"link.both_bandwidth", 96.8e9},
        {"link.pageable_bandwidth", 12e9}}},
      {{"host.cores=64"}, {{"host.cores", 64}}},
      {{"host.dram_bandwidth=5 GB/s"}, {{"host.dram_bandwidth", 5e9}, {"host.core_bandwidth", 5e9}}},
      {{"host.core_bandwidth=x0.5"}, {{"host.core_bandwidth", 6e9}}},
      {{"host.core_bandwidth={points: [[64 B, 1 GB/s], [1 MB, 3 GB/s]]}"}, {{"host.core_bandwidth", 3e9}}},
  };
  for (const Case& one : cases) {
    INFO(one.settings.front());
    const std::map<std::string, double> found = differing(base, one.settings);
    CHECK(found.size() == one.expected.size());
    for (const auto& [key, value] : one.expected) {
      INFO(key);
      REQUIRE(found.count(key) == 1);
      CHECK(found.at(key) == Approx(value).epsilon(1e-12));
    }
    // All changed numbers are listed, and in addition one key that is not a number.
    std::map<std::string, std::string> listed = followed(base.with(one.settings));
    listed.erase("link.pcie");
    CHECK(listed.size() == found.size());
    for (const auto& [key, value] : found) CHECK(listed.count(key) == 1);
  }
}

TEST_CASE("a limit applies if the run sets neither of its sides", "[hardware]") {
  // The L2 is as fast as the memory: fewer SMs do not change it, and no change of it is listed.
  const Node run = parse_yaml("{like: h200-trtllm, gpu: {sm_count: x0.5}}", "run.yaml");
  const Hardware base = read_hardware(parse_yaml("h200-trtllm", "run.yaml")), machine = read_hardware(run);
  REQUIRE(base.gpu.attention.l2_bandwidth == base.gpu.hbm_bandwidth);
  CHECK(machine.gpu.attention.l2_bandwidth == base.gpu.hbm_bandwidth);
  CHECK(machine.gpu.attention.l2_bandwidth.origin == base.gpu.attention.l2_bandwidth.origin);
  CHECK(followed(machine).count("gpu.l2_bandwidth") == 0);
  CHECK(followed(machine)["gpu.tensor_flops"] == "gpu.sm_count");
}

TEST_CASE("each change states the replaced value, the number that it follows and the reason", "[hardware]") {
  const RoundMachine base;
  const Hardware machine = base.with({"link.h2d_bandwidth=30 GB/s"});
  REQUIRE(machine.changes.size() == 3);
  CHECK(machine.changes[0].key == "link.h2d_bandwidth");
  CHECK(machine.changes[0].value == "30 GB/s");
  CHECK(machine.changes[0].base == "10 GB/s");
  CHECK(machine.changes[0].follows.empty());
  CHECK(machine.changes[0].rule.empty());
  CHECK(machine.changes[1].key == "link.theory_bandwidth");
  CHECK(machine.changes[1].value == "60 GB/s");
  CHECK(machine.changes[1].base == "20 GB/s");
  CHECK(machine.changes[1].follows == "link.h2d_bandwidth");
  CHECK_THAT(machine.changes[1].rule, Contains("theory"));
  CHECK(followed(base.with({"gpu.clock=x2", "gpu.sm_count=x2"}))["gpu.tensor_flops"] == "gpu.clock, gpu.sm_count");
  CHECK(followed(base.with({"link.pcie.generation=3"}))["link.theory_bandwidth"] == "link.pcie");
}

TEST_CASE("an altered machine has its own name, an unaltered one has the base's", "[hardware]") {
  const RoundMachine base;
  const std::vector<std::pair<RoundMachine::Settings, std::string>> names = {
      {{}, "round"},
      {{"gpu.hbm_bandwidth=x1"}, "round"},
      {{"gpu.hbm_bandwidth=1 TB/s"}, "round"},
      {{"gpu.hbm_bandwidth=1000 GB/s", "host=xeon-8480c", "host.cores=56", "host.core_bandwidth=x1"}, "round"},
      {{"gpu.hbm_capacity=80 GB"}, "round (gpu.hbm_capacity 80 GB)"},
      {{"gpu.hbm_capacity=x2"}, "round (gpu.hbm_capacity 80 GB)"},
      {{"gpu.hbm_capacity=80.12 GB"}, "round (gpu.hbm_capacity 80.12 GB)"},
      // The order does not depend on how the machine is written; derived changes are not part of the name.
      {{"host.cores=64", "gpu.clock=x2"}, "round (gpu.clock 2 GHz, host.cores 64)"},
      {{"link.pcie={generation: 4, lanes: 8}"}, "round (link.pcie 4.0 x8)"},
      {{"host=xeon-8570"}, "round (host xeon-8570)"},
      {{"host.core_bandwidth=x2"}, "round (host.core_bandwidth x2)"},
      {{"gpu.clock.uncertainty=1 %"}, "round (gpu.clock ± 1 %)"},
      {{"gpu.clock={value: 2 GHz, origin: measured, uncertainty: 1 %}"}, "round (gpu.clock 2 GHz ± 1 % measured)"},
      {{"like.uncertainty=20 %"}, "round (like.uncertainty 20 %)"},
  };
  for (const auto& [settings, name] : names) CHECK(base.with(settings).name == name);
  CHECK(base.with({"gpu.clock=x2"}).title == "Round (gpu.clock 2 GHz)");
  CHECK(base.with({"host.cores=64"}).host.name == "xeon-8480c (cores 64)");
  CHECK(base.with({"gpu.clock=x2"}).host.name == "xeon-8480c");

  // The text by which results are found differs if, and only if, the name differs.
  for (const auto& [left, left_name] : names) {
    for (const auto& [right, right_name] : names) {
      CHECK((canonical(base.with(left)) == canonical(base.with(right))) == (left_name == right_name));
    }
  }
  const std::string one = "host.core_bandwidth={points: [[64 B, 1 GB/s]]}";
  const std::string other = "host.core_bandwidth={points: [[64 B, 2 GB/s]]}";
  CHECK(base.with({one}).name != base.with({other}).name);
}

TEST_CASE("a changed number is assumed and no more certain than the one it replaces", "[hardware]") {
  const RoundMachine base;
  const auto bandwidth = [&](const RoundMachine::Settings& settings) { return base.with(settings).gpu.hbm_bandwidth; };
  const Value plain = bandwidth({"gpu.hbm_bandwidth=x2"});
  CHECK(plain.origin == Origin::kAssumed);
  CHECK(plain.uncertainty == 0.1);
  CHECK_THAT(plain.source, Contains("gpu.hbm_bandwidth"));  // its own error is independent
  const Value like = bandwidth({"gpu.hbm_bandwidth=x2", "like.uncertainty=3 %"});
  CHECK(like.uncertainty == 0.03);  // listed as differences from the base
  const Value stated =
      bandwidth({"gpu.hbm_bandwidth={value: 2 TB/s, origin: measured, uncertainty: 1 %, source: my bench}"});
  CHECK(stated.origin == Origin::kMeasured);
  CHECK(stated.uncertainty == 0.01);
  CHECK(stated.source == "my bench");
  const Value surer = bandwidth({"gpu.hbm_bandwidth={uncertainty: 1 %}"});
  CHECK(surer.value == 1e12);
  CHECK(surer.origin == Origin::kDatasheet);
  CHECK(surer.uncertainty == 0.01);
  const Value same = bandwidth({"gpu.hbm_bandwidth=x1"});
  CHECK(same.origin == Origin::kDatasheet);
  CHECK(same.source == "of hbm_bandwidth");

  // Twice as much moves 5 % further: sqrt(0.1² + 0.05²). Half as much likewise.
  for (const char* factor : {"x2", "x0.5"}) {
    const Hardware moved = base.with({std::string("gpu.clock=") + factor});
    CHECK(moved.gpu.tensor_flops.origin == Origin::kExtrapolated);
    CHECK(moved.gpu.tensor_flops.uncertainty == Approx(0.111803398875));
    CHECK(moved.gpu.tensor_flops.source == "moved with gpu.clock: of tensor_flops");
  }
  const Value theory = base.with({"link.pcie.generation=6"}).link.theory_bandwidth;
  CHECK(theory.origin == Origin::kExact);
  CHECK(theory.uncertainty == 0);
}

TEST_CASE("`like` with an uncertainty makes all inherited numbers assumed, except for the host's", "[hardware]") {
  const RoundMachine base;
  const Hardware before = base.with({}), after = base.with({"like.uncertainty=12 %", "gpu.clock=x2"});
  CHECK(after.gpu.hbm_bandwidth.origin == Origin::kAssumed);
  CHECK(after.gpu.hbm_bandwidth.uncertainty == 0.12);
  CHECK(after.gpu.hbm_bandwidth.value == 1e12);
  CHECK(after.link.h2d_bandwidth.uncertainty == 0.12);
  CHECK(after.gpu.clock.uncertainty == 0.12);
  CHECK(after.host.cores.origin == before.host.cores.origin);
  CHECK(after.host.cores.uncertainty == before.host.cores.uncertainty);
  CHECK(after.aliases.empty());
  CHECK(after.calibrations.empty());
}

TEST_CASE("curves and lists are replaced as a whole", "[hardware]") {
  const RoundMachine base;
  const Hardware narrow = base.with({"gpu.range={attention_rows: [2, 8]}"});
  CHECK(narrow.gpu.range.attention_rows.low == 2);
  CHECK(narrow.gpu.range.attention_rows.high == 8);
  REQUIRE(narrow.changes.size() == 1);
  CHECK(narrow.changes[0].key == "gpu.range");
  CHECK(canonical(narrow) != canonical(base.with({})));
  const Hardware corrected =
      base.with({"gpu.attention_correction={rows: [1], tokens: [1], groups: [1], percent: [[[25]]], repeated: false, "
                 "source: x}"});
  REQUIRE(corrected.gpu.attention_correction);
  CHECK(corrected.gpu.attention_correction->excess == std::vector<double>{0.25});
  CHECK(corrected.changes[0].key == "gpu.attention_correction");
}

TEST_CASE("errors in a run's machine are reported at their location in the run", "[hardware]") {
  const RoundMachine base;
  const std::vector<std::pair<RoundMachine::Settings, std::vector<std::string>>> cases = {
      {{"gpu.nonsense=1"}, {"--set hardware.gpu.nonsense=1: hardware.gpu: unknown key \"nonsense\"; known: ", "clock"}},
      {{"gpu.hbm_bandwith=x2"}, {"hardware.gpu: unknown key", "did you mean \"hbm_bandwidth\"?"}},
      {{"gpu.attention_mha.hbm_bandwidth=x2"}, {"hardware.gpu.attention_mha: unknown key \"hbm_bandwidth\""}},
      {{"disk.size=1"}, {"hardware: unknown key \"disk\"", "known: like, gpu, link, host"}},
      {{"gpu.clock=1000"},
       {"hardware.gpu.clock: expected hertz such as 1410 MHz, or a factor such as x2, found \"1000\""}},
      {{"gpu.clock=x"}, {"expected hertz such as"}},
      {{"gpu.clock=x-2"}, {"a factor of at least x0"}},
      {{"gpu.clock=x010"}, {"expected hertz such as"}},
      {{"gpu.clock=[1 GHz]"}, {"expected hertz such as"}},
      {{"gpu.clock=x0"}, {"--set hardware.gpu.clock=x0: hardware.gpu.clock: x0 of 1 GHz is 0 Hz, out of range"}},
      {{"gpu.clock=1 Hz"}, {"hardware.gpu.clock: 1 Hz is out of range, must be between 1 MHz and"}},
      {{"gpu.clock={speed: 1 GHz}"}, {"unknown key \"speed\"; known: value, origin, uncertainty, source"}},
      {{"gpu.stream_efficiency=x2"}, {"x2 of 80 % is 160 %, out of range, must be between 0.1 % and 100 %"}},
      {{"gpu.l2_bandwidth=500 GB/s"},
       {"--set hardware.gpu.l2_bandwidth=500 GB/s: hardware.gpu.l2_bandwidth: 500 GB/s is less than hbm_bandwidth "
        "(1 TB/s); set hardware.gpu.hbm_bandwidth as well"}},
      {{"gpu.hbm_capacity=500 MB"}, {"--set hardware.gpu.hbm_capacity=500 MB: hardware.gpu.hbm_reserved: leaves no"}},
      {{"link.both_bandwidth=x2"}, {"32 GB/s is more than h2d_bandwidth and d2h_bandwidth together (20 GB/s)"}},
      {{"link.pageable_bandwidth=x3"},
       {"--set hardware.link.pageable_bandwidth=x3: ", "pinned copies reach (10 GB/s)"}},
      {{"link.theory_bandwidth=10 GB/s", "link.h2d_bandwidth=11 GB/s"},
       {"--set hardware.link.h2d_bandwidth=11 GB/s: hardware.link.h2d_bandwidth: 11 GB/s is more than "
        "theory_bandwidth (10 GB/s)"}},
      {{"link.pcie.lanes=16"}, {"hardware.link.pcie: the required key \"generation\" is missing"}},
      {{"link.pcie={generation: 2}"}, {"generation: 2 is out of range, must be between 3 and 7"}},
      {{"link.pcie={generation: 5, lanes: 12}"}, {"lanes: 12 lanes; links have 1, 2, 4, 8 or 16"}},
      {{"link.pcie={generation: 5}", "link.theory_bandwidth=x2"}, {"pcie and theory_bandwidth set the same number"}},
      {{"host=no-such-host"}, {"--set hardware.host=no-such-host: nothing named \"no-such-host\" under configs/hosts"}},
      {{"host.core_bandwidth=2 GB/s"}, {"a curve: expected a factor such as x2, or {points: "}},
      {{"host.core_bandwidth=x100"}, {"one core cannot read faster than dram_bandwidth"}},
      {{"host.core_bandwidth={points: [[64 B, 1 GB/s]], value: x2}"}, {"give either a factor or points"}},
      {{"host.core_bandwidth={points: [[64 B, 1 GB/s], [1 B, 1 GB/s]]}"}, {"points must ascend in x"}},
      {{"like=h2000"}, {"nothing named \"h2000\" under configs/hardware"}},
      {{"gpu=x2"}, {"hardware.gpu: expected a map of keys to values"}},
  };
  for (const auto& [settings, parts] : cases) {
    const std::string message = base.error(settings);
    CHECK_THAT(message, StartsWith("--set hardware."));
    for (const std::string& part : parts) CHECK_THAT(message, Contains(part));
  }
  const auto of_text = [](const std::string& text) {
    return error_of([&] { read_hardware(parse_yaml(text, "run.yaml")); });
  };
  CHECK(of_text("{gpu: {clock: x2}}") == "run.yaml:1:1: hardware: the required key \"like\" is missing");
  CHECK(of_text("[h200]") == "run.yaml:1:1: hardware: expected a name, or a map with `like`, found a list");
  CHECK_THAT(of_text("{like: h200, gpu: {attention_mha: {l2_bandwidth: x2}}}"),
             StartsWith("run.yaml:1:35: hardware.gpu.attention_mha: h200 has no separate kernel"));
}

TEST_CASE("the bandwidth of PCIe follows from its generation and lanes", "[hardware]") {
  // GT/s x coding / 8 bits, a lane: 2.5 x 8/10, 5 x 8/10, 8 x 128/130 ..., 64 x 242/256, 128 x 242/256.
  CHECK(pcie_bandwidth(1, 1) == Approx(0.25e9));
  CHECK(pcie_bandwidth(2, 4) == Approx(2e9));
  CHECK(pcie_bandwidth(3, 16) == Approx(15.753846154e9));
  CHECK(pcie_bandwidth(4, 16) == Approx(31.507692308e9));
  CHECK(pcie_bandwidth(5, 8) == Approx(31.507692308e9));
  CHECK(pcie_bandwidth(6, 16) == Approx(121e9));
  CHECK(pcie_bandwidth(7, 1) == Approx(15.125e9));
  // The profile's own generation does not count as a change; profiles give four digits.
  for (const auto& [name, generation] : {std::pair("v100-32gb", 3), {"a100-40gb-pcie4", 4}, {"h200", 5}}) {
    const Hardware machine = read_hardware(
        parse_yaml(fmt::format("{{like: {}, link: {{pcie: {{generation: {}}}}}}}", name, generation), "run.yaml"));
    CHECK(machine.name == name);
    CHECK(machine.changes.empty());
  }
}

TEST_CASE("a profile is read again once one of its files has changed", "[hardware]") {
  const TemporaryDirectory folder;
  const std::string part = folder.path() + "/part.yaml", whole = folder.path() + "/whole.yaml";
  const auto write_clock = [&](const std::string& clock) {
    std::ofstream(part) << "gpu:\n  clock: {value: " << clock << ", origin: assumed, uncertainty: 1 %, source: x}\n";
  };
  write_clock("1 GHz");
  std::ofstream(whole) << "title: Whole\ninclude: [" << part << "]\nlike: {name: h200, uncertainty: 1 %}\n";
  for (const double clock : {1e9, 2e9, 3e9}) {  // texts of the same length, written within a moment
    write_clock(fmt::format("{:.0f} GHz", clock / 1e9));
    CHECK(read_hardware(whole).gpu.clock == clock);
    CHECK(read_hardware(whole).gpu.clock == clock);
  }
  std::ofstream(part) << "gpu: [";
  CHECK_THAT(error_of([&] { read_hardware(whole); }), StartsWith(part));
  std::ofstream(whole) << "title: Whole\nlike: h200\n";
  CHECK_THAT(error_of([&] { read_hardware(whole); }), StartsWith(whole + ":2:7: like: a profile takes a map such as"));
}

}  // namespace kvcast::tests

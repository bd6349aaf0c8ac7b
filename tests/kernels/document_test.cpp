// JSON, the results file and what it rejects, rows and the plausibility gate, and whole runs of a benchmark.
#include "harness/document.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "harness/input.hpp"
#include "harness/run.hpp"

namespace kvcast::tests {

using namespace kernels;
namespace fs = std::filesystem;

namespace {

fs::path fresh_file(const char* name) {
  const fs::path path = fs::temp_directory_path() / name;
  fs::remove(path);
  return path;
}

std::string content(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("JSON that was written is read back bit for bit") {
  Json j = Json::object();
  j["whole"] = std::int64_t{-9007199254740993};
  j["real"] = 0.1;
  j["tiny"] = 5e-324;
  j["text"] = "a\"b\\c\n\x01 \xC3\xA4";
  j["list"] = Json::array();
  j["list"].push(true);
  j["list"].push(Json());
  j["not finite"] = 1.0 / 0.0;
  for (const int indent : {-1, 2}) {
    const Json back = Json::parse(j.dump(indent), "here");
    CHECK(back.dump() == j.dump());
    CHECK(back.find("real")->number() == 0.1);
    CHECK(back.find("tiny")->number() == 5e-324);
    CHECK(back.find("text")->text() == j["text"].text());
    CHECK(back.find("not finite")->is_null());
  }
  CHECK(j.find("none") == nullptr);
}

TEST_CASE("text that is not JSON is refused with its line") {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "{\"a\":1,\"a\":2}", "[1] x", "nul", "\"\\q\"", "\"\\u12\"",
                           "1.2.3", "\"no end", "{1:2}", "[1 2]", "\"a\nb\""}) {
    INFO(text);
    CHECK_THROWS_AS(Json::parse(text, "file"), std::runtime_error);
  }
  CHECK_THROWS_WITH(Json::parse("{\n\n\"a\": ?}", "file"), Catch::Contains("file:3:"));
}

TEST_CASE("no mutation of a document crashes the reader") {
  const std::string good =
      R"({"schema":"kvcast-kernels/1","rows":[{"bench":"x","n":[1,2.5e3,null,true],"t":"\u0041"}]})";
  int refused = 0;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    std::string bad = good;
    bad[random_below(1, 2 * i, static_cast<std::uint32_t>(good.size()))] = static_cast<char>(random_below(2, i, 128));
    if (i % 3 == 0) bad.resize(random_below(3, i, static_cast<std::uint32_t>(good.size())));
    try {
      Json::parse(bad, "m");
    } catch (const std::runtime_error&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
}

namespace {

void count_calls(State& state) {
  const float n = static_cast<float>(state.integer("n"));
  if (state.checking()) return state.compare("twice n", {2 * n}, {n + n}, 0);
  if (state.integer("n") == 3) return state.skip("three is out");
  state.moves(100 * double{n}, Resource::kHbm);
  Sampler sampler(Limits{});
  for (int i = 0; i < 4; ++i) sampler.add(1e-6);
  sampler.done(100);
  state.record(sampler);
}

void wrong_result(State& state) {
  if (state.checking()) return state.compare("sum", {1.0f, 2.0f}, {1.0f, 2.5f}, 0.01);
  FAIL("a benchmark that fails its check was timed");
}

Program program_of(void (*run)(State&)) {
  Program program;
  program.name = "prog";
  program.environment = Json::object();
  program.environment["program"] = "prog";
  program.environment["host_cpu"] = "this one";
  program.benches = {{"bench", "", {numbers("n", {1, 2, 3})}, {numbers("n", {4})}, {Mode::kCold}, run}};
  return program;
}

}  // namespace

TEST_CASE("a run writes rows with rates, reasons and repro commands, and does not measure twice") {
  const fs::path path = fresh_file("kvcast-kernels-rows.json"), csv = fresh_file("kvcast-kernels-rows.csv");
  Options options = parse_options({"--quiet", "--json", path.string(), "--csv", csv.string(), "--axis", "n=1,3"});
  Program program = program_of(count_calls);
  REQUIRE(run_program(program, options) == 0);
  options.axes = {parse_axis("n=1,2")};
  REQUIRE(run_program(program, options) == 0);

  const Json j = Json::parse(content(path), "rows");
  CHECK(j.find("schema")->text() == kSchema);
  const auto& rows = j.find("rows")->elements();
  REQUIRE(rows.size() == 3);  // 1, 3, 2: the second run adds one
  CHECK(rows[0].find("repro")->text() == "prog --bench bench --axis n=1 --mode cold");
  CHECK(rows[0].find("n")->number() == 4);
  CHECK(rows[0].find("gbps")->number() == Approx(0.1));  // 100 bytes in 1 us
  CHECK(rows[0].find("stop_reason")->text() == "timeout");
  CHECK(rows[0].find("skip_reason")->is_null());
  CHECK(rows[1].find("skip_reason")->text() == "three is out");
  CHECK(rows[1].find("time_s")->is_null());
  CHECK(rows[2].find("axes")->find("n")->number() == 2);
  CHECK(content(csv).find("bench,cold,n=2,hbm,200") != std::string::npos);
}

TEST_CASE("another pass measures the same cases once more") {
  const fs::path path = fresh_file("kvcast-kernels-passes.json");
  const auto run = [&](const char* pass) {
    const Options options = parse_options({"--quiet", "--json", path.string(), "--axis", "n=1,2", "--pass", pass});
    REQUIRE(run_program(program_of(count_calls), options) == 0);
    return Json::parse(content(path), "rows").find("rows")->elements().size();
  };
  CHECK(run("1") == 2);
  CHECK(run("2") == 4);
  CHECK(run("2") == 4);
  const Json j = Json::parse(content(path), "rows");
  CHECK(j.find("rows")->elements()[1].find("pass")->number() == 1);
  CHECK(j.find("rows")->elements()[2].find("pass")->number() == 2);
  CHECK_THROWS_WITH(parse_options({"--pass", "0"}), Catch::Contains("--pass: expected a positive number"));
}

TEST_CASE("rows of another machine and files of another schema are refused") {
  const fs::path path = fresh_file("kvcast-kernels-other.json");
  const Options options = parse_options({"--quiet", "--json", path.string()});
  Program program = program_of(count_calls);
  REQUIRE(run_program(program, options) == 0);
  program.environment["host_cpu"] = "another";
  CHECK_THROWS_WITH(run_program(program, options), Catch::Contains("host_cpu 'this one', this is 'another'"));
  std::ofstream(path) << "{\"schema\": \"other\"}";
  CHECK_THROWS_WITH(run_program(program, options), Catch::Contains("not a document of schema"));
  std::ofstream(path) << "[1,";
  CHECK_THROWS_AS(run_program(program, options), UsageError);
}

TEST_CASE("a wrong kernel yields no number") {
  const fs::path path = fresh_file("kvcast-kernels-wrong.json");
  const Options options = parse_options({"--quiet", "--json", path.string()});
  CHECK(run_program(program_of(wrong_result), options) == 1);
  CHECK(Json::parse(content(path), "rows").find("rows")->elements().empty());
  CHECK(run_program(program_of(wrong_result), parse_options({"--quiet", "--refcheck"})) == 1);
  CHECK(run_program(program_of(count_calls), parse_options({"--quiet", "--refcheck"})) == 0);
}

TEST_CASE("a kernel that is wrong at a measured size yields no number there, and the run fails") {
  const auto wrong_at_two = [](State& state) {
    if (!state.checking()) state.require(state.integer("n") != 2, "every row at its place");
    count_calls(state);
  };
  const fs::path path = fresh_file("kvcast-kernels-wrong-at-size.json");
  const Options options = parse_options({"--quiet", "--json", path.string(), "--axis", "n=1,2"});
  CHECK(run_program(program_of(wrong_at_two), options) == 1);
  const Json j = Json::parse(content(path), "rows");
  REQUIRE(j.find("rows")->elements().size() == 1);
  CHECK(j.find("rows")->elements()[0].find("axes")->find("n")->number() == 1);
  CHECK(run_program(program_of(count_calls), options) == 0);  // the wrong case was not recorded as done
  CHECK(Json::parse(content(path), "rows").find("rows")->elements().size() == 2);
}

TEST_CASE("a check that compares nothing is a failed check") {
  const auto idle = [](State&) {};
  CHECK(run_program(program_of(idle), parse_options({"--quiet", "--refcheck"})) == 1);
}

namespace {

int attempts = 0;

// Cases 1 and 2 throw, and case 2 breaks the device permanently; the check itself throws at n = 5.
void throws(State& state) {
  ++attempts;
  const std::int64_t n = state.integer("n");
  if (n == 5) throw std::runtime_error("an illegal memory access");
  if (state.checking()) return state.require(true, "nothing");
  if (n == 1) throw std::runtime_error("out of memory");
  if (n == 2) throw std::logic_error("sticky");
  count_calls(state);
}

Program breaking_program() {
  Program program = program_of(throws);
  program.benches[0].axes = {numbers("n", {1, 2, 4})};
  program.broken = [] { return attempts == 3 ? std::string("gone") : std::string(); };
  attempts = 0;
  return program;
}

std::string reasons(const fs::path& path) {
  std::string out;
  const Json document = Json::parse(content(path), "rows");
  for (const Json& row : document.find("rows")->elements()) out += row.find("skip_reason")->text() + "|";
  return out;
}

}  // namespace

TEST_CASE("a case that throws gives a row without a number, and another process continues after a broken device") {
  const fs::path path = fresh_file("kvcast-kernels-throws.json");
  const Options options = parse_options({"--quiet", "--json", path.string()});
  // Attempts: the check (n = 4), 1 (out of memory), 2 (the third: the device is gone).
  CHECK(run_program(breaking_program(), options) == 4);
  CHECK(reasons(path) == "failed: out of memory|failed: sticky|");
  CHECK(run_program(breaking_program(), options) == 0);
  CHECK(reasons(path) == "failed: out of memory|failed: sticky||");
}

TEST_CASE("a check that throws is a failed check, and excludes its benchmark if it broke the device") {
  const fs::path path = fresh_file("kvcast-kernels-throwing-check.json");
  Options options = parse_options({"--quiet", "--json", path.string()});
  Program program = breaking_program();
  program.benches[0].check_axes = {numbers("n", {5})};
  CHECK(run_program(program, parse_options({"--quiet", "--refcheck"})) == 1);
  CHECK(run_program(program, options) == 1);  // three cases, none with a row
  CHECK(reasons(path).empty());
  attempts = 2;  // now the check is the third attempt
  CHECK(run_program(program, options) == 4);
  const std::string one = "the reference check broke the device: [n=5] failed: an illegal memory access|";
  CHECK(reasons(path) == one + one + one);
  CHECK(run_program(program, options) == 0);  // nothing is left to try
  attempts = 2;
  CHECK(run_program(program, parse_options({"--quiet", "--refcheck"})) == 4);
}

namespace {
void hangs(State& state) {
  const bool here = state.integer("n") == 2 || state.integer("n") == 5;
  while (here) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  count_calls(state);
}

// Runs the program in a process of its own; returns the exit code.
int run_apart(const Program& program, const Options& options) {
  const pid_t child = fork();
  if (child == 0) std::_Exit(run_program(program, options));
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
}  // namespace

TEST_CASE("a case or a check that hangs ends the process, and the next process skips it") {
  const fs::path path = fresh_file("kvcast-kernels-hangs.json");
  const Options options = parse_options({"--quiet", "--json", path.string(), "--patience", "0.25"});
  Program program = program_of(hangs);
  program.case_seconds = 4;
  CHECK(run_apart(program, options) == 4);
  CHECK(reasons(path) == "|it hangs|");  // 1, 2
  CHECK(run_apart(program, options) == 0);
  CHECK(reasons(path) == "|it hangs|three is out|");
  program.benches[0].check_axes = {numbers("n", {5})};
  CHECK(run_apart(program, parse_options({"--quiet", "--refcheck", "--patience", "0.25"})) == 4);
  fs::remove(path);
  CHECK(run_apart(program, options) == 4);
  CHECK(reasons(path) == "its reference check hangs|its reference check hangs|its reference check hangs|");
  CHECK(run_apart(program, options) == 0);
}

TEST_CASE("cases that do not begin in time are skipped and reported") {
  Options options = parse_options({"--quiet", "--stop-after", "1e-9"});
  CHECK(run_program(program_of(count_calls), options) == 3);
}

namespace {
State measured(Mode mode, double bytes, double flops, Resource resource, const Machine& machine) {
  State state({}, mode, false, {}, machine);
  state.moves(bytes, resource);
  state.work("flops", flops);
  Sampler sampler(Limits{});
  sampler.add(1.0);
  state.record(sampler);
  return state;
}
}  // namespace

TEST_CASE("a rate above 1.02 of a peak is implausible if the bytes must cross that resource") {
  Machine m;
  m.hbm_peak = 1000;
  m.link_peak = 100;
  m.tensor_peak = 5000;
  CHECK(implausible(measured(Mode::kCold, 1019, 0, Resource::kHbm, m)).empty());
  CHECK(implausible(measured(Mode::kCold, 1021, 0, Resource::kHbm, m)) == "implausible: 1.02e-06 GB/s, peak 1e-06");
  // A batch may be served by the L2 cache; a link's peak may be stated wrongly.
  CHECK(implausible(measured(Mode::kBatch, 5000, 0, Resource::kHbm, m)).empty());
  CHECK(implausible(measured(Mode::kBatch, 150, 0, Resource::kH2d, m)).empty());
  CHECK(above_stated_link(measured(Mode::kBatch, 150, 0, Resource::kH2d, m)) == Approx(1.5));
  CHECK(above_stated_link(measured(Mode::kBatch, 203, 0, Resource::kBoth, m)) == 0);
  CHECK(above_stated_link(measured(Mode::kBatch, 250, 0, Resource::kBoth, m)) == Approx(1.25));
  CHECK_FALSE(implausible(measured(Mode::kBatch, 0, 5101, Resource::kNone, m)).empty());
  CHECK(implausible(measured(Mode::kCold, 1e12, 1e12, Resource::kHbm, Machine{})).empty());
}

TEST_CASE("repeated reads count as work, but need not cross the memory twice") {
  Machine m;
  m.hbm_peak = 1000;
  State state = measured(Mode::kCold, 0, 0, Resource::kHbm, m);
  state.moves(1500, Resource::kHbm, 1000);
  CHECK(implausible(state).empty());
  CHECK(state.row().find("gbps")->number() == Approx(1.5e-6));
  CHECK(state.row().find("work")->find("distinct_bytes")->number() == 1000);
  state.moves(1500, Resource::kHbm, 1030);
  CHECK_FALSE(implausible(state).empty());
}

TEST_CASE("a comparison detects errors, wrong sizes and numbers that are not finite") {
  const auto verdict = [](std::vector<float> got, std::vector<float> expected) {
    State state({}, Mode::kCold, true, {}, {});
    state.compare("x", got, expected, 0.01);
    return state.failures().size();
  };
  CHECK(verdict({3, 4.04f}, {3, 4}) == 0);  // 0.04 / 5 = 0.008
  CHECK(verdict({3, 4.06f}, {3, 4}) == 1);  // 0.012
  CHECK(verdict({3}, {3, 4}) == 1);
  CHECK(verdict({3, std::nanf("")}, {3, 4}) == 1);
  CHECK(verdict({}, {}) == 1);
  // One of a thousand: 0.2 / √1000 = 0.006 is a small error of the whole, but 0.2 is a large error of the element.
  std::vector<float> ones(1000, 1.0f), off = ones;
  off[700] = 1.09f;
  CHECK(verdict(off, ones) == 0);
  off[700] = 1.2f;
  CHECK(verdict(off, ones) == 1);
  off[700] = 0, ones[700] = 0, off[3] = 0.2f, ones[3] = 0;  // zeros may deviate by the tolerance of the usual size
  CHECK(verdict(off, ones) == 1);
}

}  // namespace kvcast::tests

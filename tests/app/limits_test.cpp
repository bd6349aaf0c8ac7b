// Requests that the system does not grant: memory, files that are none, a folder that is deleted meanwhile. Each is an
// error with a name. An alarm ends a program that waits for ever.
#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "app/process.hpp"

namespace kvcast::tests {

using Catch::Contains;

namespace {

constexpr unsigned kAlarm = 120;  // seconds

constexpr const char* kLimitedRun =
    "model: llama-3.2-1b\nhardware: h100-sxm\nscore: none\nworkload: {prompt_tokens: 512, decode_tokens: 8}\n";

std::string with(const std::string& more) { return kLimitedRun + more; }

Output bounded(const std::vector<std::string>& arguments, const std::function<void()>& prepare = {}) {
  return kvcast(arguments, [&] {
    alarm(kAlarm);
    if (prepare) prepare();
  });
}

}  // namespace

TEST_CASE("wherever a file may be named, a pipe or a device is refused at once") {
  const Scratch scratch;
  const std::string pipe = scratch / "pipe.yaml";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const std::string trace = "trace: {recipe: needle, layers: 1, steps: 4}\n";
  for (const std::string& file : {pipe, std::string("/dev/zero"), std::string("/dev/urandom")}) {
    for (const std::string& text :
         {with(trace + "policy: {file: " + file + "}\n"), with(trace + "policy: {name: loki, basis: " + file + "}\n"),
          with(trace + "policy: {name: replayed, selections: " + file + "}\n"),
          with(trace + "policy: {name: duo_attention, profile: " + file + "}\n"),
          with("policy: full\ntrace: {file: " + file + "}\n"), with("policy: full\ntrace: {recipe: " + file + "}\n"),
          with(trace + "policy: full\nframework: " + file + "\n"),
          "model: " + file + "\nhardware: h100-sxm\npolicy: full\n",
          "model: llama-3.2-1b\nhardware: " + file + "\npolicy: full\n",
          "model: llama-3.2-1b\nhardware: {like: h100-sxm, host: " + file + "}\npolicy: full\n",
          "model: llama-3.2-1b\nhardware: h100-sxm\npolicy: full\nworkload: {prompt_tokens: 512}\nscore: " + file +
              "\n"}) {
      INFO(text);
      const Output o = bounded({"run", scratch.write("run.yaml", text)});
      INFO(o.err);
      CHECK(o.code == 2);
    }
    const Output replay = bounded({"replay", "--policy", file, "--trace", file});
    CHECK(replay.code == 2);
  }
  // Files that the program finds by itself.
  std::filesystem::create_directory(scratch / "store");
  REQUIRE(mkfifo((scratch / "store/results.sqlite").c_str(), 0600) == 0);
  CHECK(bounded({"report", scratch / "store"}).code == 2);
  CHECK(bounded({"sweep", "configs/runs/quickstart.yaml", "-o", scratch / "store"}).code == 2);
}

// The address sanitizer needs more address space than the test leaves.
TEST_CASE("with little memory a run ends, with its result or an error that says so", "[minutes]") {
  const Scratch scratch;
  const std::string run = scratch.write(
      "run.yaml", with("policy: {name: quest, budget: 128}\ntrace: {recipe: needle, layers: 2, steps: 4}\n"));
  for (const rlim_t megabytes : {120, 180, 250, 400, 1000}) {
    const Output o = bounded({"run", run}, [megabytes] {
      const rlimit limit{megabytes << 20, megabytes << 20};
      setrlimit(RLIMIT_AS, &limit);
    });
    INFO(megabytes << " MiB: " << o.code << " " << o.err);
    CHECK((o.code == 0 || (o.code == 2 && o.err.find("too little memory") != std::string::npos)));
    if (megabytes == 1000) CHECK(o.code == 0);
  }
}

TEST_CASE("a sweep whose folder is deleted meanwhile fails, and names it") {
  const Scratch scratch;
  const std::string config = scratch.write(
      "sweep.yaml", with("trace: {recipe: needle, layers: 1, steps: 4}\nsweep:\n  workload.prompt_tokens: [4096, 5000, "
                         "6000, 7000]\n  policy: [full, {name: quest, budget: 64}]\n"));
  const pid_t child =
      start({"sweep", config, "-o", scratch / "s", "-j", "1"}, scratch / "out", scratch / "err", [] { alarm(kAlarm); });
  for (int turn = 0; slurp(scratch / "err").find("in the store already") == std::string::npos; ++turn) {
    REQUIRE(turn < 60'000);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  std::filesystem::remove_all(scratch / "s");
  CHECK(wait_for(child) == 3);
  CHECK_THAT(slurp(scratch / "err"), Contains("results.sqlite: was deleted or replaced"));
  CHECK_THAT(slurp(scratch / "out"), !Contains("A page of these results"));
}

}  // namespace kvcast::tests

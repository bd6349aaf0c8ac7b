// Stores that survive kills, full disks, outside changes and many machines; signals; inputs that are not files.
#include <fmt/format.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <linux/capability.h>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <thread>

#include "app/process.hpp"
#include "app/stored_results.hpp"
#include "store/sqlite.hpp"
#include "store/store.hpp"

namespace kvcast::tests {

using Catch::Contains;
using kvcast::store::Database;
using kvcast::store::Store;

namespace {

const std::string kSmallSweep =
    "name: durable\n"
    "score: none\n" +
    kContextsAndGpus +
    "  policy: [full, {name: quest, budget: 64}, {name: snapkv, budget: 64}, {name: exact_topk, budget: 64}]\n";
constexpr std::size_t kSmallPoints = 2 * 2 * 4;

Store existing(const std::string& dir) { return Store::open(dir, Store::Open::kExisting); }

void sweep(const std::string& config, const std::string& dir, const std::string& shard = "1/1") {
  REQUIRE(kvcast({"sweep", config, "-o", dir, "--shard", shard}).code == 0);
}

// Waits until the program has printed this on stderr.
void wait_for_text(const std::string& file, const std::string& text) {
  for (int turn = 0; slurp(file).find(text) == std::string::npos; ++turn) {
    REQUIRE(turn < 30'000);  // a minute: the program has ended otherwise
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace

TEST_CASE("shards that are killed at any moment, resumed and merged give the results of one process", "[minutes]") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSmallSweep);
  sweep(config, scratch / "whole");
  const auto whole = stored_results(scratch / "whole");
  REQUIRE(whole.size() == kSmallPoints);

  int partial = 0;
  for (const std::string name : {"1", "2", "3"}) {
    partial += resume_after_kills({"sweep", config, "-o", scratch / name, "--shard", name + "/3", "-j", "1"},
                                  scratch / name, kSmallPoints / 3, 5);
  }
  CHECK(partial > 0);
  const Output once = kvcast({"merge", scratch / "1", scratch / "2", scratch / "3", "-o", scratch / "a"});
  REQUIRE(once.code == 0);
  CHECK_THAT(once.err, Contains("16 rows in 3 stores, 16 of them new"));
  CHECK(stored_results(scratch / "a") == whole);
  CHECK(existing(scratch / "a").keys() == existing(scratch / "whole").keys());  // in the order of the sweep
  CHECK(existing(scratch / "a").findings().size() == existing(scratch / "whole").findings().size());

  SECTION("in any order, and again, and with a store that has some of the rows already") {
    const Output other =
        kvcast({"merge", scratch / "3", scratch / "whole", scratch / "1", scratch / "2", "-o", scratch / "b"});
    CHECK_THAT(other.err, Contains("32 rows in 4 stores, 16 of them new"));
    CHECK(stored_results(scratch / "b") == whole);
    const Output again = kvcast({"merge", scratch / "2", scratch / "1", "-o", scratch / "a"});
    CHECK_THAT(again.err, Contains(" 0 of them new"));
    CHECK(stored_results(scratch / "a") == whole);
  }
  SECTION("a sweep goes on from the merged store") {
    const Output on = kvcast({"sweep", config, "-o", scratch / "a"});
    CHECK_THAT(on.err, Contains("16 experiments, 16 of them in the store already"));
  }
}

TEST_CASE("stores that do not belong together are not merged, and nothing is written", "[minutes]") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSmallSweep);
  sweep(config, scratch / "a", "1/4");
  const auto refused = [&](const std::string& part) {
    const Output o = kvcast({"merge", scratch / "a", scratch / "b", "-o", scratch / "out"});
    CHECK(o.code == 2);
    CHECK_THAT(o.err, Contains(scratch / "b/results.sqlite") && Contains(part));
    CHECK_FALSE(std::filesystem::exists(scratch / "out"));
  };
  SECTION("of another sweep") {
    REQUIRE(
        kvcast({"sweep", config, "-o", scratch / "b", "--shard", "1/4", "--set", "workload.decode_tokens=8"}).code ==
        0);
    refused("another sweep than " + (scratch / "a/results.sqlite"));
  }
  SECTION("another result under one key") {
    std::filesystem::copy(scratch / "a", scratch / "b");
    {
      Store store = existing(scratch / "b");
      auto row = *store.get(store.keys().front());
      row.result.experiment.ttft_s *= 2;
      Database(store.path(), false, 1000).execute("DELETE FROM experiments WHERE key = '" + row.result.key + "'");
      REQUIRE(store.put(row));
    }
    refused("another result than in " + (scratch / "a/results.sqlite"));
  }
  SECTION("an older schema") {
    std::filesystem::copy(scratch / "a", scratch / "b");
    Database(scratch / "b/results.sqlite", false, 1000).execute("PRAGMA user_version = 5");
    refused("schema version 5, but this kvcast reads version 7");
  }
  SECTION("a damaged row") {
    std::filesystem::copy(scratch / "a", scratch / "b");
    Database(scratch / "b/results.sqlite", false, 1000).execute("UPDATE experiments SET \"prefill.ttft_s\" = 1");
    refused("is damaged");
  }
}

TEST_CASE("a sweep warns that its folder has results of another sweep") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSmallSweep);
  sweep(config, scratch / "s", "1/4");
  const auto there = existing(scratch / "s").keys().size();
  const Output other =
      kvcast({"sweep", config, "-o", scratch / "s", "--shard", "1/4", "--set", "workload.decode_tokens=8"});
  CHECK(other.code == 0);
  CHECK_THAT(other.err, Contains("s/results.sqlite has " + std::to_string(there) +
                                 " results of another sweep (name \"durable\")"));
}

TEST_CASE("a sweep warns that its folder has results of an unnamed sweep") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSmallSweep.substr(std::strlen("name: durable\n")));
  sweep(config, scratch / "s", "1/16");
  const Output other =
      kvcast({"sweep", config, "-o", scratch / "s", "--shard", "1/16", "--set", "workload.decode_tokens=8"});
  CHECK(other.code == 0);
  CHECK_THAT(other.err, Contains(" results of another sweep or of another version of kvcast"));
}

TEST_CASE("the report names a row that was changed, and the sweep computes it again", "[minutes]") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSmallSweep);
  sweep(config, scratch / "s");
  const auto whole = stored_results(scratch / "s");
  const std::string path = scratch / "s/results.sqlite", key = existing(scratch / "s").keys().at(3);
  const std::string change =
      GENERATE("\"decode.tokens_per_s\" = \"decode.tokens_per_s\" * 1.0000001", "model = 'llama-3.2-1c'",
               "batch = 'two'", "ordinal = ordinal + 1", "parts = json_set(parts, '$.hbm_owners[0].bytes', 1)");
  INFO(change);
  Database(path, false, 1000).execute("UPDATE experiments SET " + change + " WHERE key = '" + key + "'");
  const Output report = kvcast({"report", scratch / "s"});
  CHECK(report.code == 2);
  CHECK_THAT(report.err, Contains(path + ": row " + key + " is damaged"));
  const Output again = kvcast({"sweep", config, "-o", scratch / "s"});
  CHECK(again.code == 0);
  CHECK_THAT(again.err, Contains(path + ": row " + key + " is damaged") &&
                            Contains("16 experiments, 15 of them in the store already"));
  CHECK(stored_results(scratch / "s") == whole);
  CHECK(kvcast({"report", scratch / "s"}).code == 0);
}

TEST_CASE("opening a store detects an overwritten page of its file") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSmallSweep);
  sweep(config, scratch / "s");
  const std::string path = scratch / "s/results.sqlite";
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    for (const int page : {2, 3, 4, 5})
      file.seekp(4096 * page) << std::string(64, '\xff');  // the headers of b-tree pages
  }
  for (const char* command : {"report", "sweep"}) {
    std::vector<std::string> words = {command};
    if (words[0] == "sweep") words.insert(words.end(), {config, "-o"});
    words.push_back(scratch / "s");
    const Output o = kvcast(words);
    CHECK(o.code == 2);
    CHECK_THAT(o.err, Contains(path + ": "));
    CHECK_THAT(o.err, Contains("damaged") || Contains("not a readable store"));
  }
}

TEST_CASE("report reads a store in a folder that it cannot write to") {
  const Scratch scratch;
  sweep(scratch.write("sweep.yaml", kSmallSweep), scratch / "s", "1/4");
  std::filesystem::permissions(scratch / "s", std::filesystem::perms(0555));
  // Root can write everywhere unless it gives up that right.
  const Output report =
      kvcast({"report", scratch / "s", "-o", scratch / "page"}, [] { prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE); });
  INFO(report.err);
  CHECK(report.code == 0);
  CHECK(std::filesystem::exists(scratch / "page/index.html"));
  CHECK(std::distance(std::filesystem::directory_iterator(scratch / "s"), {}) == 1);  // no log was made
  std::filesystem::permissions(scratch / "s", std::filesystem::perms(0755));
}

TEST_CASE("a full disk ends a sweep without marking a policy as failed, and the sweep resumes once there is room",
          "[minutes]") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSmallSweep);
  sweep(config, scratch / "whole");
  const auto limited = [](const std::vector<std::string>& arguments, rlim_t limit) {
    return kvcast(arguments, [limit] {
      const rlimit size{limit, limit};
      setrlimit(RLIMIT_FSIZE, &size);
      std::signal(SIGXFSZ, SIG_IGN);
    });
  };
  for (const rlim_t limit : {rlim_t{200'000}, rlim_t{400'000}}) {
    const Output full = limited({"sweep", config, "-o", scratch / "s"}, limit);
    INFO(full.err);
    CHECK((full.code == 2 || full.code == 3));
    CHECK_THAT(full.err, Contains("s/results.sqlite: the store cannot be used"));
    CHECK(existing(scratch / "s").count(kvcast::result::Status::kFailed) == 0);
  }
  sweep(config, scratch / "s");
  CHECK(stored_results(scratch / "s") == stored_results(scratch / "whole"));
  // So does a merge.
  const Output merged = limited({"merge", scratch / "s", "-o", scratch / "m"}, 400'000);
  INFO(merged.err);
  CHECK(merged.code == 3);
  CHECK_THAT(merged.err,
             Contains("m/results.sqlite: the store cannot be used") && Contains("the same command resumes"));
  REQUIRE(kvcast({"merge", scratch / "s", "-o", scratch / "m"}).code == 0);
  CHECK(stored_results(scratch / "m") == stored_results(scratch / "whole"));
}

TEST_CASE("a sweep stopped by a signal explains how to resume it, and resumes") {
  const Scratch scratch;
  std::string text = kSmallSweep;
  text.replace(text.find("[300, 600]"), 10, "[300, 600, 5000, 9000]");
  const std::string config = scratch.write("sweep.yaml", text);
  const int signal = GENERATE(SIGINT, SIGTERM);
  const pid_t child = start({"sweep", config, "-o", scratch / "s", "-j", "1"}, scratch / "out", scratch / "err");
  wait_for_text(scratch / "err", "in the store already");
  kill(child, signal);
  CHECK(wait_for(child) == 128 + signal);
  CHECK_THAT(slurp(scratch / "err"),
             Contains("The same command resumes; finished experiments are in " + (scratch / "s")));
  CHECK_FALSE(std::filesystem::exists(scratch / "s/results.sqlite-wal"));  // the store was closed
  sweep(config, scratch / "s");
  CHECK(existing(scratch / "s").count(kvcast::result::Status::kOk) == 2 * kSmallPoints);
}

TEST_CASE("a signal leaves no temporary file behind") {
  const Scratch scratch;
  const pid_t child = start(
      {"trace", "synth", "needle", "-o", scratch / "t.safetensors", "--set", "prompt_tokens=64K", "--set", "layers=8"},
      scratch / "out", scratch / "err");
  const auto files = [&] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(scratch / ".")) {
      count += entry.path().filename().string().starts_with("t.safetensors") ? 1 : 0;
    }
    return count;
  };
  for (int turn = 0; files() == 0; ++turn) {
    REQUIRE(turn < 30'000);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  kill(child, SIGTERM);
  CHECK(wait_for(child) == 128 + SIGTERM);
  CHECK(files() == 0);
}

TEST_CASE("a command whose output cannot be written fails", "[minutes]") {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"policies"}, {"metrics", "--json"}, {"--help"}, {"--version"}, {"run", "configs/runs/quickstart.yaml"}}) {
    const Scratch scratch;
    INFO(words[0]);
    CHECK(wait_for(start(words, "/dev/full", scratch / "err")) == 3);
    CHECK_THAT(slurp(scratch / "err"), Contains("written") || Contains("write"));
  }
}

TEST_CASE("an unwritable standard error stops no command, and no file reuses the descriptor of a closed stream",
          "[minutes]") {
  const Scratch scratch;
  const std::string config = scratch.write("sweep.yaml", kSmallSweep), trace = scratch / "t.safetensors";
  for (const char* error : {"/dev/full", ""}) {
    const auto prepare = [error] {
      *error == '\0' ? close(STDERR_FILENO) : dup2(open(error, O_WRONLY), STDERR_FILENO);
    };
    const std::string out = scratch / (*error == '\0' ? "closed" : "full");
    CHECK(kvcast({"sweep", config, "-o", out}, prepare).code == 0);
    CHECK(stored_results(out).size() == kSmallPoints);
    CHECK(kvcast({"run", "none.yaml"}, prepare).code == 2);
  }
  const Output o = kvcast({"trace", "synth", "needle", "-o", trace, "--set", "model=llama-3.2-1b", "--set",
                           "prompt_tokens=300", "--set", "decode_steps=2", "--set", "layers=1"},
                          [] { close(STDIN_FILENO), close(STDOUT_FILENO), close(STDERR_FILENO); });
  CHECK(o.code == 3);  // it could not report that it is done
  CHECK(kvcast({"trace", "check", trace}).code == 0);
}

TEST_CASE("a file size limit is an error like a full disk and leaves no partial file") {
  const Scratch scratch;
  const std::string out = scratch / "trace.safetensors";
  const std::string command = fmt::format(
      "ulimit -f 8; exec {} trace synth needle -o {} --set prompt_tokens=2000 --set layers=1 --set model=qwen2.5-0.5b "
      "2> {}",
      KVCAST_BINARY, out, scratch / "err");
  const int status = std::system(("bash -c '" + command + "'").c_str());
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 3);
  CHECK_THAT(slurp(scratch / "err"), Contains(out) && Contains("too large"));
  CHECK(std::distance(std::filesystem::directory_iterator(scratch / ""), std::filesystem::directory_iterator()) ==
        1);  // the errors
}

TEST_CASE("folders, pipes and devices are refused as inputs, and devices are not replaced") {
  const Scratch scratch;
  const std::string pipe = scratch / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {std::string("/dev/zero"), pipe, std::string("/")}) {
    for (const std::vector<std::string>& words :
         std::vector<std::vector<std::string>>{{"run", path},
                                               {"sweep", path, "-o", scratch / "s"},
                                               {"plan", path},
                                               {"simulate", path},
                                               {"trace", "info", path},
                                               {"trace", "check", path},
                                               {"replay", "--policy", "full", "--trace", path},
                                               {"validate", "kernels", "--points", path},
                                               {"validate", "accuracy", "--published", path}}) {
      INFO(words[0] << " " << path);
      const Output o = kvcast(words);
      CHECK(o.code == 2);
      CHECK_THAT(o.err, Contains(path));
    }
  }
  const Output synth = kvcast({"trace", "synth", "needle", "-o", pipe, "--set", "prompt_tokens=64"});
  CHECK(synth.code == 2);
  CHECK(std::filesystem::is_fifo(pipe));
}

TEST_CASE("no message is longer than 2,000 bytes, whatever the input") {
  const Scratch scratch;
  const std::string mighty(100'000, 'x');
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"run", "configs/runs/quickstart.yaml", "--set", "policy=" + mighty},
                                             {"run", "configs/runs/quickstart.yaml", "--set", mighty + "=1"},
                                             {mighty},
                                             {"run", scratch.write("m.yaml", mighty)},
                                             {"simulate", scratch.write("g.json", "{\"" + mighty + "\": 1}")}}) {
    const Output o = kvcast(words);
    CHECK(o.code == 2);
    CHECK(!o.err.empty());
    CHECK(o.err.size() < 2000);
  }
}

}  // namespace kvcast::tests

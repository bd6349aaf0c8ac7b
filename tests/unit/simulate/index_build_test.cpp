// The time to build an index alone, computed by hand on a machine with round numbers.
#include "simulate/index_build.hpp"

#include <catch2/catch.hpp>

#include "support/select.hpp"
#include "unit/hardware/round_machine.hpp"

namespace kvcast::tests {

namespace {

config::Run indexed_run() {
  config::Run run;
  run.hardware = round_machine();
  run.model.layers = 4, run.model.hidden = 64, run.model.n_q_heads = 8, run.model.n_kv_heads = 4;
  run.model.head_dim = 100, run.model.ffn = 128, run.model.vocab = 1000;
  run.workload.prompt_tokens = 1040, run.workload.decode_tokens = 10, run.workload.batch = 1;
  return run;
}

double seconds(const std::string& name, const std::string& setting, int heads) {
  const config::Run run = indexed_run();
  const auto policy = make(name, setting, {1040, 10});
  return simulate::build_index(run, *policy, heads).seconds;
}

}  // namespace

TEST_CASE("a policy without an index takes only the time of the wait") {
  CHECK(seconds("full", "", 1) == Approx(6e-6));  // a stream's synchronisation
}

TEST_CASE("rounds of k-means add up, and heads share the cores") {
  const std::string setting = "budget: 10, sink: 8, recent: 8, index: ivf, lists: 500, rounds: ";
  // 1024 keys are 16 pieces of 64, two rounds of 8 cores at 0.65. A piece reads 64 · 400 B in one run of 25.6 kB, at
  // 12 GB/s (the end of the curve), and computes 2 · 64 · 100 FLOP at 10 GFLOP/s and 2 · 64 · 500 · 100 FLOP of
  // products at 50 GFLOP/s.
  const double piece = 64 * 400 / 12e9 + 2.0 * 64 * 100 / 10e9 + 2.0 * 64 * 500 * 100 / 50e9;
  const double round = 20e-6 + 2 * piece / 0.65;
  CHECK(seconds("retrieval_attention", setting + "3", 1) - seconds("retrieval_attention", setting + "1", 1) ==
        Approx(2 * round));
  // Four heads have 64 pieces, eight rounds of the cores.
  CHECK(seconds("retrieval_attention", setting + "3", 4) - seconds("retrieval_attention", setting + "1", 4) ==
        Approx(2 * (20e-6 + 8 * piece / 0.65)));
}

TEST_CASE("an index build does not wait for concurrent copies to host memory") {
  // CTkvr offloads the prompt's keys and values, which takes longer than building its index.
  const double built = seconds("ctkvr", "budget: 10, centroids: 2, sink: 8, recent: 8", 4);
  const double sent = 2 * 4 * 1024 * 200 / 8e9;  // keys and values of four heads at 8 GB/s
  CHECK(built < sent);
  CHECK(built > 6e-6);
}

TEST_CASE("the build of an index has a time, its parts and their origin") {
  const config::Run run = indexed_run();
  const auto policy = make("ctkvr", "budget: 10, centroids: 2, sink: 8, recent: 8", {1040, 10});
  const result::IndexBuild build = simulate::build_index(run, *policy, 2);
  CHECK(build.seconds > 0);
  CHECK(build.time.total() == Approx(build.seconds));
  CHECK(build.effects.empty());
}

}  // namespace kvcast::tests

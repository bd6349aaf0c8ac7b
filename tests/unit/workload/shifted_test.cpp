// An experiment again with costs that are off: what it says equals what a machine with such costs gives.
#include "workload/shifted.hpp"

#include <catch2/catch.hpp>

#include "support/select.hpp"
#include "unit/hardware/round_machine.hpp"
#include "workload/index_build.hpp"

using namespace kvcast;
using nlohmann::json;

namespace {

// Operators one by one, whose calls on the host are off by half.
config::Run eager_run(double call) {
  config::Run run;
  run.hardware = test::round_machine();
  run.hardware.host.eager_op = {call, Origin::kAssumed, 0.5, "calls"};
  run.framework.launch = config::Framework::Launch::kEager;
  run.model.layers = 4, run.model.hidden = 64, run.model.n_q_heads = 8, run.model.n_kv_heads = 4;
  run.model.head_dim = 100, run.model.ffn = 128, run.model.vocab = 1000;
  run.workload.prompt_tokens = 1040, run.workload.decode_tokens = 10, run.workload.batch = 1;
  return run;
}

double build_seconds(const config::Run& run) {
  const auto policy = tests::make("ctkvr", "budget: 10, centroids: 2, sink: 8, recent: 8", {1040, 10});
  return workload::build_index(run, *policy, 4).seconds;
}

json shifted(const config::Run& run) {
  const auto policy = tests::make("ctkvr", "budget: 10, centroids: 2, sink: 8, recent: 8", {1040, 10});
  return workload::shifted_build(run, *policy, 4);
}

const json* entry_of(const json& list, const std::string& source) {
  for (const json& entry : list) {
    if (entry["source"] == source) return &entry;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("costs that are off give the time of a machine with such costs") {
  for (const double call : {3e-6, 10e-6, 40e-6}) {  // hidden behind the kernels, about as long, the pace
    INFO(call);
    const json list = shifted(eager_run(call));
    const json* calls = entry_of(list, "calls");
    REQUIRE(calls != nullptr);
    CHECK((*calls)["longer"]["build"]["seconds"].get<double>() == Approx(build_seconds(eager_run(1.5 * call))));
    CHECK((*calls)["shorter"]["build"]["seconds"].get<double>() == Approx(build_seconds(eager_run(0.5 * call))));
  }
}

TEST_CASE("a source that cannot move the time is left out") {
  // A few operators of 1 ns: what they may be off is far below a per cent of microseconds.
  const json list = shifted(eager_run(1e-9));
  CHECK(entry_of(list, "calls") == nullptr);
  CHECK(entry_of(list, "made up") != nullptr);
}

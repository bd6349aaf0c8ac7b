// No number of a profile is fitted to these kernels, but for the softmax over pages: the work that the policies
// themselves state (policy_works.hpp) is priced by class, bytes, operations and blocks, so the errors show how accurate
// a policy's time is if its kernel was not measured.
#include "validate/policy_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "calibrate/fit_stages.hpp"
#include "calibrate/machine.hpp"
#include "calibrate/stage.hpp"
#include "config/find.hpp"
#include "engine/engine.hpp"
#include "hardware/cost_model.hpp"
#include "simulate/timed.hpp"
#include "validate/attention_works.hpp"
#include "validate/policy_works.hpp"
#include "validate/transfer.hpp"

namespace kvcast::validate {
namespace {

using calibrate::MeasuredRow;
using graph::Kernel;
using graph::KernelClass;

constexpr const char* kKernelsProgram = "kvcast-kernels";
constexpr const char* kHostProgram = "kvcast-kernels-cpu";
constexpr const char* kHost = "host, ";  // how groups of its work begin
// Wider by 2 and 5 since kernels count that engines run around attention, whose library rows are predicted too short.
constexpr double kKernelMedian = 12, kKernelP90 = 40;

Case measured(const MeasuredRow& row, const std::string& quantity, double seconds) {
  Case c;
  c.id = row.id(), c.group = row.bench;
  c.quantity = quantity, c.unit = "us";
  c.expected = 1e6 * seconds;
  c.tolerance = kKernelP90 / 100;
  c.size = c.expected;
  return c;
}

Case case_of(const MeasuredRow& row, const PolicyWork& work, const hardware::CostModel& model, double between_events) {
  Case c = measured(row, "kernel time", std::max(0.1 * row.seconds, row.seconds - between_events));
  c.depends_on = fmt::format("the class, bytes, operations and blocks of the work that {} states", work.used_by);
  double seconds = 0, spread = 0;
  for (const graph::Work& part : work.works) {
    const hardware::Cost cost = model.cost(part, graph::Lane::kCompute);
    seconds += cost.alone, spread += cost.alone * static_cast<double>(cost.uncertainty);
    c.origin = std::max(c.origin.value_or(cost.origin), cost.origin);
  }
  c.predicted = 1e6 * seconds;
  c.low = 1e6 * std::max(0.0, seconds - spread), c.high = 1e6 * (seconds + spread);
  return c;
}

void add_op(engine::OpBlock& block, const hardware::Cost& cost, graph::Lane lane) {
  // The program holds the streams until all calls are queued, so that no copy waits for its own.
  block.add_work(static_cast<double>(cost.latency), cost.weight);
  for (const hardware::Demand& demand : cost.demands) {
    block.add_demand(static_cast<std::uint16_t>(demand.resource), demand.amount);
  }
  block.add_op(static_cast<std::uint16_t>(lane), static_cast<engine::WorkId>(block.works.size() - 1));
}

// Predicts the row by running the ops of the block together.
Case run_together(const MeasuredRow& row, const char* quantity, engine::OpBlock block, const hardware::CostModel& model,
                  std::initializer_list<const hardware::Cost*> costs) {
  Case c = measured(row, quantity, row.seconds);
  engine::OneBlock source(std::move(block));
  const double seconds = to_seconds(engine::run(simulate::make_system(model), source, nullptr).makespan);
  c.predicted = 1e6 * seconds;
  double spread = 0;
  for (const hardware::Cost* cost : costs) {
    spread = std::max(spread, static_cast<double>(cost->uncertainty));
    c.origin = c.origin ? std::max(*c.origin, cost->origin) : cost->origin;
  }
  set_interval(c, spread, 0);
  return c;
}

// A copy that runs during kernels that stream through device memory, which the engine shares between them.
Case copy_beside_stream(const MeasuredRow& row, const hardware::CostModel& model) {
  graph::Copy copy;
  copy.runs = 1, copy.run_bytes = row.number("copied");
  if (row.word("direction") == "d2h") copy.direction = graph::Direction::kDeviceToHost;
  const hardware::Cost copied = model.cost(copy, graph::Lane::kCopyA);
  const hardware::Cost read = model.cost(Kernel{KernelClass::kElementwise, row.number("bytes")}, graph::Lane::kCompute);
  engine::OpBlock block;
  add_op(block, copied, graph::Lane::kCopyA);
  for (int i = 0; i < static_cast<int>(row.number("kernels")); ++i) add_op(block, read, graph::Lane::kCompute);
  Case c = run_together(row, "time of a copy and kernels together", std::move(block), model, {&copied, &read});
  c.depends_on = "the link, the memory's streaming rate, and their fair sharing";
  c.verdict = verdict_of(c, false);
  return c;
}

// The axis `reads`; in rows from before it, kernels read the group itself.
const std::string& reads_of(const MeasuredRow& row) {
  static const std::string kGroup = "group";
  static const std::vector<std::string> kKnown = {kGroup, "other", "nothing", "apart"};
  const auto at = row.words.find("reads");
  if (at == row.words.end()) return kGroup;
  if (std::ranges::find(kKnown, at->second) != kKnown.end()) return at->second;
  throw UserError({row.file}, fmt::format("{}: unknown reads \"{}\"", row.id(), at->second), kKnown);
}

// Groups of copies that alternate between streams; a kernel may follow each group on its stream, or run apart.
Case copy_turns(const MeasuredRow& row, const hardware::CostModel& model) {
  const double groups = row.number("groups"), streams = row.number("streams"), bytes = row.number("bytes");
  const std::string& reads = reads_of(row);
  const bool kernels = row.flag("kernel"), follows = kernels && reads != "apart";
  graph::Copy copy;
  copy.runs = row.number("pieces"), copy.run_bytes = bytes;
  Kernel read{KernelClass::kElementwise, reads == "nothing" ? 0 : copy.runs * bytes};
  read.blocks = std::min(16.0, std::ceil(copy.runs * bytes / 4096)), read.threads = 256;
  if (!follows) copy.runs *= groups / streams;  // nothing separates the groups of a stream
  copy.in_turn = follows && streams > 1;
  const std::array<graph::Lane, 2> lanes = {graph::Lane::kCopyA, graph::Lane::kCopyB};
  const hardware::Cost copied = model.cost(copy, lanes[0]), kernel = model.cost(read, lanes[0]);
  engine::OpBlock block;
  for (int g = 0; g < static_cast<int>(follows ? groups : streams); ++g) {
    const graph::Lane lane = lanes.at(static_cast<std::size_t>(g) % static_cast<std::size_t>(streams));
    add_op(block, copied, lane);
    if (follows) add_op(block, kernel, lane);
  }
  for (int g = 0; kernels && !follows && g < static_cast<int>(groups); ++g) {
    add_op(block, kernel, graph::Lane::kCompute);
  }
  Case c = run_together(row, "time of groups of copies", std::move(block), model, {&copied, &kernel});
  c.depends_on = "the copy engine, and the latency of a copy and of a kernel for each group";
  c.verdict = verdict_of(c, false);
  return c;
}

// Seconds that decodes add to a chunk in one kernel, over those of the decodes alone: the charge of serving.
void add_share(const calibrate::Results& results, const MeasuredRow& pass, const hardware::CostModel& model,
               double between_events, const std::string& source, Suite& suite) {
  const MeasuredRow* chunk = part_of_pass(results, pass, "chunk");
  const MeasuredRow* decodes = part_of_pass(results, pass, "decodes");
  if (chunk == nullptr || decodes == nullptr || pass.seconds <= chunk->seconds) return;
  const auto of = [&](const MeasuredRow& row) { return case_of(row, *attention_work(row), model, between_events); };
  const Case all = of(pass), one = of(*chunk), other = of(*decodes);
  Case c = measured(pass, "decodes beside a chunk over decodes alone", 0);
  c.id += " share", c.group = "mixed_attention, share", c.unit = "x", c.origin = all.origin;
  c.depends_on = "gpu.mixed_pass_rereads", c.source = source;
  c.expected = (*all.expected - *one.expected) / *other.expected;
  c.predicted = (*all.predicted - *one.predicted) / *other.predicted;
  c.low = c.high = c.predicted, c.size = all.size;
  judge(c, false);
  suite.cases.push_back(std::move(c));
}

// Work of the host over tables larger than those of the fits.
void add_host(const calibrate::Results& results, const config::Hardware& machine, Suite& suite) {
  const std::vector<calibrate::MeasuredOp> ops = calibrate::host_cases(results);
  const std::vector<double> seconds = calibrate::predict(machine, ops);
  for (std::size_t i = 0; i < ops.size(); ++i) {
    Case& c = suite.cases.emplace_back();
    c.id = ops[i].id, c.group = kHost + ops[i].bench;
    c.quantity = "time of all threads", c.unit = "us";
    c.expected = 1e6 * ops[i].seconds, c.predicted = 1e6 * seconds[i];
    c.tolerance = kKernelP90 / 100, c.size = c.expected;
    c.depends_on = "rates of a core fitted to tables of at most 2 GB";
    c.source = fmt::format("{} on {}", kHostProgram, calibrate::text_of(results, "host_cpu", "an unnamed processor"));
    c.verdict = verdict_of(c, false);
  }
}

void add(const Measured& from, Suite& suite) {
  const calibrate::Results results = calibrate::read_results(from.results);
  const config::Hardware machine = config::read_hardware(config::find_config("hardware", from.profile, {}));
  if (calibrate::text_of(results, "program", kKernelsProgram) == kHostProgram) return add_host(results, machine, suite);
  const hardware::CostModel model = calibrate::stream_model(machine);
  const hardware::CostModel flash_2 = flash_2_model(machine);
  const double between_events = calibrate::time_between_events(results);
  const std::string source =
      fmt::format("{} on {}", kKernelsProgram, calibrate::text_of(results, "device", "an unnamed device"));
  const std::size_t before = suite.cases.size();
  for (const MeasuredRow& row : results.rows) {
    if (row.bench == "copy_beside_stream" || row.bench == "copy_turns") {
      suite.cases.push_back(row.bench == "copy_turns" ? copy_turns(row, model) : copy_beside_stream(row, model));
      suite.cases.back().source = source;
      continue;
    }
    const bool fitted = row.bench == "page_score" && row.word("reduce") == "group_max";
    // Small kernels are only measured back to back.
    if (fitted || (row.mode != "cold" && row.bench != "query_similarity")) continue;
    auto work = attention_work(row);
    if (!work) work = policy_work(row);
    if (!work) continue;
    const hardware::CostModel& priced = is_flash_2(row) ? flash_2 : model;
    if (row.bench == "mixed_attention" && row.word("what") == "fused") {
      add_share(results, row, priced, between_events, source, suite);
    }
    Case& c = suite.cases.emplace_back(case_of(row, *work, priced, between_events));
    c.source = source;
    // gpu.block_bandwidth was chosen from the H200's rows of the softmax over pages.
    judge(c, from.in_view && row.bench == "page_score");
  }
  if (suite.cases.size() > before) return;
  const std::string program = calibrate::text_of(results, "program", kKernelsProgram);
  throw UserError({from.results, 0, 0},
                  program == kKernelsProgram
                      ? "no row of a policy's kernel"
                      : fmt::format("results of {}; this suite compares those of {}", program, kKernelsProgram));
}

}  // namespace

Suite policy_kernels(const Measured& input) {
  Suite suite;
  suite.name = "policy_kernels";
  suite.question = "How accurately are kernels that only policies run predicted by numbers fitted to other kernels?";
  suite.size_unit = "us";
  for (const char* const file :
       {"kernels.json", "turns.json", "attention.json", "attention_library.json", "host_tables.json"}) {
    for (const Measured& source : given_or_committed(suite.name, input, file)) add(source, suite);
    if (!input.results.empty()) break;
  }
  if (suite.cases.empty()) {
    suite.status =
        "unmeasured: no GPU has run these kernels, and they are in no average. kernels/measure.sh measures them; then "
        "kvcast validate policy_kernels --from gpu.json --profile PROFILE.yaml";
    return suite;
  }
  std::vector<double> errors, of_host;
  for (const Case& c : suite.cases) {
    if (c.unit == "us") (c.group.starts_with(kHost) ? of_host : errors).push_back(*relative_error(c));
  }
  const auto add_budgets = [&suite](const std::string& what, std::vector<double> of) {
    if (of.empty()) return;
    const metrics::ErrorSummary s = metrics::summarise_errors(std::move(of));
    suite.budgets.push_back({what + ", median error of all cases", "%", kKernelMedian, 100 * s.median});
    suite.budgets.push_back({what + ", p90 error of all cases", "%", kKernelP90, 100 * s.p90});
  };
  add_budgets("kernel time", std::move(errors)), add_budgets("host time", std::move(of_host));
  return suite;
}

}  // namespace kvcast::validate

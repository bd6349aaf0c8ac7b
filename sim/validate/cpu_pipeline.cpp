// Prediction: while both workers are busy they slow each other down through a shared resource of rate 1, of which an op
// needs 1 / (2 s) per second of work, s being the share of its speed that a pair retains: two ops oversubscribe the
// resource, one does not. No pipeline is used for a row's rates, so all pipelines are held out.
#include "validate/cpu_pipeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.hpp"
#include "calibrate/results.hpp"
#include "engine/engine.hpp"

namespace kvcast::validate {
namespace {

using graph::OpId;

constexpr double kStepBudget = 10, kExposedBudget = 15;  // per cent
// The exposed time is the difference of two step times: if each has an error within 3 %, the difference has an error
// within 15 % only if it is at least a fifth of the step.
constexpr double kLeastExposed = 0.2;
constexpr std::uint16_t kShared = 2;  // resource after those of the workers
constexpr int kSteps = 24;            // a slow second worker delays the first only after some

class Ops {
 public:
  explicit Ops(const Workers& workers) : w_(workers) {}

  OpId add(std::uint16_t worker, double bytes, std::vector<OpId> after) {
    const Workers::Rate& rate = worker == 0 ? w_.first : w_.second;
    const double seconds = rate.start + bytes / rate.bytes_per_s;
    block_.add_op(worker, static_cast<engine::WorkId>(block_.works.size()));
    block_.add_work(0);
    block_.add_demand(worker, seconds);
    block_.add_demand(kShared, seconds / (2 * std::clamp(w_.moved > 0 ? w_.together : 1, 0.5, 1.0)));
    for (const auto id : after) {
      block_.add_after(id);
      if (workers_[static_cast<std::size_t>(id)] != worker) {
        block_.works.back().latency = w_.hand_over * kPicosPerSecond;
      }
    }
    workers_.push_back(worker);
    return static_cast<OpId>(workers_.size() - 1);
  }
  engine::OpBlock take() { return std::move(block_); }

 private:
  const Workers& w_;
  engine::OpBlock block_;
  std::vector<std::uint16_t> workers_;  // by op
};

// Adds the step's layers; `recalled` contains each layer's last op of the second worker, −1 at first.
OpId add_step(Ops& ops, const Workers& w, std::vector<OpId>& recalled) {
  const bool moves = w.moved > 0;
  OpId last = -1;
  for (auto& moved : recalled) {
    const auto before = ops.add(0, w.before, {});
    std::vector<OpId> needed, joined;
    if (moves && w.scheme == Scheme::kBlocking) needed = {ops.add(1, w.moved, {before})};
    if (moved >= 0) needed = {moved};
    if (moves && w.scheme == Scheme::kCpu) joined = {ops.add(1, w.moved, {before})};
    const auto attended = ops.add(0, w.attention, needed);
    if (moves && w.scheme == Scheme::kSpeculative) moved = ops.add(1, w.moved, {attended});
    last = ops.add(0, w.after, joined);
  }
  return last;
}

struct Ends final : engine::Observer {
  std::vector<Picoseconds> finish;  // by op
  void finished(const engine::Record& record) override {
    finish.resize(std::max(finish.size(), static_cast<std::size_t>(record.id) + 1));
    finish[static_cast<std::size_t>(record.id)] = record.finish;
  }
};

Workers workers_of(const calibrate::MeasuredRow& row) {
  const std::string& scheme = row.word("scheme");
  Workers w;
  w.scheme = scheme == "cpu" ? Scheme::kCpu : scheme == "blocking" ? Scheme::kBlocking : Scheme::kSpeculative;
  w.layers = static_cast<int>(row.number("layers"));
  w.moved = row.flag("moved") ? row.number("moved") : 0;
  w.before = row.of_work("before_bytes"), w.attention = row.of_work("attention_bytes");
  w.after = row.of_work("after_bytes");
  w.first = {row.of_work("first_start_s"), row.of_work("first_bytes_per_s")};
  w.second = {row.of_work("second_start_s"), row.of_work("second_bytes_per_s")};
  w.together = row.of_work("together"), w.hand_over = row.of_work("hand_over_s");
  return w;
}

void add_case(Suite& suite, const calibrate::MeasuredRow& row, const char* what, double measured, double predicted) {
  Case c;
  c.group = what;
  c.quantity = fmt::format("{}, {} layers, {:g} MiB a layer", row.word("scheme"), row.number("layers"),
                           (row.flag("moved") ? row.number("moved") : 0) / (1 << 20));
  c.id = fmt::format("{}: {}", what, c.quantity);
  c.unit = "ms";
  c.expected = 1e3 * measured, c.predicted = 1e3 * predicted;
  c.tolerance = (c.group == "step time" ? kStepBudget : kExposedBudget) / 100;
  if (row.flag("moved")) c.size = row.number("moved");
  c.origin = Origin::kMeasured;
  c.depends_on = "rates of single operations, measured in the same rounds";
  c.note = fmt::format("steps differ by {:.0f} % (standard deviation)", 100 * row.noise);
  c.source = row.file;
  c.verdict = verdict_of(c, false);
  suite.cases.push_back(std::move(c));
}

SuiteLimit worst(const Suite& suite, const std::string& group, double limit) {
  SuiteLimit budget{group + ", largest error", "%", limit, {}, false};
  for (const Case& c : suite.cases) {
    if (c.group != group || !relative_error(c)) continue;
    budget.value = std::max(budget.value.value_or(0), 100 * std::abs(*relative_error(c)));
  }
  return budget;
}

}  // namespace

double predict_step(const Workers& workers) {
  engine::System system;
  system.lanes = {"first", "second"};
  system.resources = {{"first core", 1, engine::Sharing::kFair},
                      {"second core", 1, engine::Sharing::kFair},
                      {"shared", 1, engine::Sharing::kFair}};
  Ops ops(workers);
  std::vector<OpId> recalled(static_cast<std::size_t>(workers.layers), -1), step_ends;
  for (int s = 0; s < kSteps; ++s) step_ends.push_back(add_step(ops, workers, recalled));
  engine::OneBlock source(ops.take());
  Ends ends;
  engine::run(system, source, &ends);
  const auto end = [&](int step) {
    return ends.finish[static_cast<std::size_t>(step_ends[static_cast<std::size_t>(step)])];
  };
  return to_seconds(end(kSteps - 1) - end(kSteps - 2));
}

Suite cpu_pipeline(const std::string& results) {
  Suite suite;
  suite.name = "cpu_pipeline";
  suite.question = "How accurately is the overlap of two workers of a machine predicted?";
  suite.size_unit = "bytes moved a layer";
  if (results.empty()) {
    suite.status =
        "unmeasured: kvcast-kernels-cpu --bench cpu_overlap --json FILE measures on an idle machine; then kvcast "
        "validate cpu_pipeline --from FILE";
    return suite;
  }
  const calibrate::Results read = calibrate::read_results(results);
  for (const calibrate::MeasuredRow& row : read.rows) {
    if (row.bench != "cpu_overlap") continue;
    Workers workers = workers_of(row);
    const double step = predict_step(workers), moved = std::exchange(workers.moved, 0), alone = row.of_work("alone_s");
    add_case(suite, row, "step time", row.seconds, step);
    if (moved == 0 || row.seconds - alone < kLeastExposed * row.seconds) continue;
    add_case(suite, row, "exposed transfer", row.seconds - alone, step - predict_step(workers));
  }
  if (suite.cases.empty()) {
    suite.status = fmt::format(
        "not judged: {} has no usable row of cpu_overlap; other programs may have taken the cores away, so repeat it "
        "on an idle machine",
        results);
    return suite;
  }
  suite.budgets = {worst(suite, "step time", kStepBudget), worst(suite, "exposed transfer", kExposedBudget)};
  return suite;
}

}  // namespace kvcast::validate

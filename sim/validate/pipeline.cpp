// Prediction: an op takes its start plus its bytes over the rate of its kind alone. While both workers are busy they
// slow each other down through a shared resource of rate 1, of which an op needs 1 / (2 s) per second of work, s being
// the share of its speed that a pair retains: two ops oversubscribe the resource, one does not.
#include "validate/pipeline.hpp"

#include <algorithm>

#include "base/units.hpp"
#include "engine/engine.hpp"

namespace kvcast::validate {
namespace {

constexpr std::uint16_t kShared = kWorkers;  // resource after those of the workers

// Adds the step's layers; `recalled` contains each layer's last op of the second worker, −1 at first.
int add_step(Pipeline& out, Scheme scheme, const LayerBytes& bytes, std::vector<int>& recalled) {
  int last = -1;
  for (int& moved : recalled) {
    const int before = append_op(out, 0, WorkKind::kDense, bytes.before, {});
    std::vector<int> needed;
    if (scheme == Scheme::kBlocking) needed = {append_op(out, 1, WorkKind::kMove, bytes.moved, {before})};
    if (scheme == Scheme::kSpeculative && moved >= 0) needed = {moved};
    std::vector<int> joined;
    if (scheme == Scheme::kBeside) joined = {append_op(out, 1, WorkKind::kRows, bytes.moved, {before})};
    const int attended = append_op(out, 0, WorkKind::kDense, bytes.attention, needed);
    if (scheme == Scheme::kSpeculative) moved = append_op(out, 1, WorkKind::kMove, bytes.moved, {attended});
    last = append_op(out, 0, WorkKind::kDense, bytes.after, joined);
  }
  return last;
}

class StepEnds final : public engine::Observer {
 public:
  explicit StepEnds(const Pipeline& pipeline) : pipeline_(pipeline) {}
  void finished(const engine::Record& record) override {
    const auto& ends = pipeline_.step_ends;
    if (seconds_.size() < ends.size() && record.id == ends[seconds_.size()]) {
      seconds_.push_back(to_seconds(record.finish));
    }
  }
  std::vector<double> steps() const {
    std::vector<double> out = seconds_;
    for (std::size_t i = out.size(); i-- > 1;) out[i] -= out[i - 1];
    return out;
  }

 private:
  const Pipeline& pipeline_;
  std::vector<double> seconds_;
};

}  // namespace

int append_op(Pipeline& out, int worker, WorkKind kind, double bytes, std::vector<int> after) {
  out.ops.push_back({worker, kind, bytes, std::move(after)});
  return static_cast<int>(out.ops.size()) - 1;
}

Pipeline make_pipeline(Scheme scheme, const LayerBytes& bytes, int layers, int steps) {
  Pipeline out;
  std::vector<int> recalled(static_cast<std::size_t>(layers), -1);
  for (int s = 0; s < steps; ++s) out.step_ends.push_back(add_step(out, scheme, bytes, recalled));
  return out;
}

std::vector<double> predict_steps(const Pipeline& pipeline, const PipelineRates& rates) {
  engine::System system;
  system.lanes = {"first", "second"};
  system.resources = {{"first core", 1, engine::Sharing::kFair},
                      {"second core", 1, engine::Sharing::kFair},
                      {"shared", 1, engine::Sharing::kFair}};
  // The kind of work that runs together with dense work determines how much the two slow each other down.
  double together = 1;
  for (const PipelineOp& op : pipeline.ops) {
    if (op.worker == 1) together = rates.together[static_cast<std::size_t>(op.kind)];
  }
  engine::Block ops;
  for (const PipelineOp& op : pipeline.ops) {
    const auto lane = static_cast<std::uint16_t>(op.worker);
    const double seconds = rates.seconds(op.kind, op.bytes);
    ops.add_op(lane, static_cast<engine::WorkId>(ops.works.size()));
    ops.add_work(0);
    ops.add_demand(lane, seconds);
    ops.add_demand(kShared, seconds / (2 * std::clamp(together, 0.5, 1.0)));
    for (const int id : op.after) {
      ops.add_after(id);
      if (pipeline.ops[static_cast<std::size_t>(id)].worker != op.worker)
        ops.works.back().latency = rates.hand_over * kPicosPerSecond;
    }
  }
  engine::OneBlock source(std::move(ops));
  StepEnds ends(pipeline);
  engine::run(system, source, &ends);
  return ends.steps();
}

}  // namespace kvcast::validate

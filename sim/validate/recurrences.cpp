#include "validate/recurrences.hpp"

#include <cmath>
#include <filesystem>

#include "base/csv.hpp"
#include "config/find.hpp"
#include "config/framework.hpp"
#include "hardware/cost_model.hpp"
#include "lower/dense.hpp"

namespace kvcast::validate {
namespace {

namespace fs = std::filesystem;
using config::Recurrence;

constexpr double kScanTolerance = 0.25;

// A row of a table. Sizes are positive whole numbers.
class TableRow : public CsvCells {
 public:
  explicit TableRow(CsvCells cells) : CsvCells(std::move(cells)) {}
  template <typename Number>
  Number positive(const std::string& name) const {
    constexpr bool whole = std::is_integral_v<Number>;
    const double value = number(name, whole ? 1 : 1e-9, 1e9);
    if (!whole || value == std::floor(value)) return static_cast<Number>(value);
    throw UserError(where(name), fmt::format("{}: \"{}\" is no whole number", name, text(name)));
  }
  // One of two words; true for the second.
  bool either(const std::string& name, const std::string& first, const std::string& second) const {
    if (text(name) != first && text(name) != second)
      throw UserError(where(name), fmt::format("{}: \"{}\" is neither {} nor {}", name, text(name), first, second));
    return text(name) == second;
  }
};

config::Model layer_of(const TableRow& row) {
  config::Model model;
  model.layers = 1, model.hidden = 1024;
  Recurrence& r = model.recurrence.emplace();
  const auto kind = std::ranges::find(Recurrence::kKinds, row.text("kind"), config::recurrence_name);
  if (kind == std::end(Recurrence::kKinds))
    throw UserError(row.where("kind"), fmt::format("kind: unknown recurrence \"{}\"", row.text("kind")));
  r.kind = *kind;
  r.heads = row.positive<int>("heads"), r.key_heads = row.positive<int>("key_heads");
  r.key_dim = row.positive<int>("key_dim"), r.value_dim = row.positive<int>("value_dim");
  return model;
}

// Kernels of the recurrence itself, without projections and norms.
hardware::Cost cost_of(const config::Model& model, const config::Framework& framework, const hardware::CostModel& costs,
                       double steps, const std::vector<std::int64_t>& prompts) {
  std::vector<graph::Op> ops;
  lower::Events events;
  lower::LoweredBlock block(framework, 0, -1, events, ops);
  lower::recurrence(block, model, steps, prompts, block.join(graph::Lane::kCompute, {}));
  hardware::Cost sum;
  double relative = 0;
  for (const graph::Op& op : ops) {
    if (op.kind != graph::Kind::kAttention) continue;
    const hardware::Cost cost = costs.cost(op);
    sum.alone += cost.alone, relative += cost.alone * cost.uncertainty;
  }
  sum.uncertainty = static_cast<float>(relative / sum.alone);
  return sum;
}

Case case_of(const TableRow& row, const std::string& machine, const config::Hardware& hardware) {
  const std::string& name = row.text("framework");
  const config::Model layer = layer_of(row);
  const config::Framework framework =
      config::read_framework(config::Node::scalar(name, row.where("framework")), layer, hardware);
  const bool step = row.either("phase", "prompt", "step");
  const auto sequences = row.positive<int>("sequences");
  const auto tokens = row.positive<std::int64_t>("tokens");
  const std::vector<std::int64_t> prompts(step ? 0 : static_cast<std::size_t>(sequences), tokens);
  const hardware::Cost cost =
      cost_of(layer, framework, hardware::CostModel(hardware, framework), step ? sequences : 0, prompts);
  Case c;
  c.group = fmt::format("{}, {} of {}", name, row.text("phase"), row.text("kind"));
  c.id = fmt::format("{} {} {} x {} heads, {} x {} tokens, {}", machine, row.text("kind"), row.text("phase"),
                     row.text("heads"), sequences, tokens, row.text("kernel"));
  c.quantity = "time of the kernel in one layer", c.unit = "us";
  c.expected = row.positive<double>("us"), c.predicted = 1e6 * cost.alone;
  c.low = *c.predicted / (1 + cost.uncertainty), c.high = *c.predicted * (1 + cost.uncertainty);
  c.tolerance = kScanTolerance, c.size = static_cast<double>(sequences * tokens);
  c.origin = cost.origin, c.depends_on = step ? "gpu.stream_efficiency" : "framework.scan_chunk, framework.scan_share";
  c.source = row.text("kernel");
  judge(c, row.either("fitted", "no", "yes"));
  return c;
}

}  // namespace

Suite recurrences_suite(const std::string& folder) {
  Suite suite;
  suite.name = "recurrences";
  suite.question = "Are the kernels of layers with a recurrence predicted?";
  suite.size_unit = "tokens";
  std::vector<fs::path> files;
  std::error_code failure;
  for (const auto& file : fs::directory_iterator(folder, failure)) {
    if (file.path().extension() == ".csv") files.push_back(file.path());
  }
  if (files.empty()) throw UserError({folder}, "no table of measured recurrences (MACHINE.csv)");
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    const std::string machine = file.stem().string();
    const config::Hardware hardware = config::read_hardware(config::find_config("hardware", machine, {file.string()}));
    for (CsvCells& row : read_table(file.string(), "measured recurrences",
                                    {"framework", "kind", "heads", "key_heads", "key_dim", "value_dim", "phase",
                                     "sequences", "tokens", "us", "fitted", "kernel"})) {
      suite.cases.push_back(case_of(TableRow(std::move(row)), machine, hardware));
    }
  }
  for (const auto& group : summarise(suite)) {
    if (!group.group.empty()) continue;
    suite.budgets = {{"kernel time, median error", "%", 20, 100 * group.errors.median},
                     {"kernel time, p90 error", "%", 60, 100 * group.errors.p90}};
  }
  return suite;
}

}  // namespace kvcast::validate

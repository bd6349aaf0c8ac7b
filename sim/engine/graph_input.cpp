// Each check reports the location of the wrong value, which is why the text's rows are kept until all checks have
// passed.
#include "engine/graph_input.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "engine/graph_text.hpp"

namespace kvcast::engine {

namespace {

constexpr std::size_t kMostNames = 65535;
// The range of the engine's clock.
constexpr double kLongestSeconds = 4.6e6;

class Builder {
 public:
  Builder(std::string_view text, const std::string& file_name)
      : text_(text), file_name_(file_name), graph_(parse_graph_text(text, file_name)) {}

  GraphInput build();

 private:
  using Indices = std::unordered_map<std::uint32_t, std::uint16_t>;  // of names

  [[noreturn]] void fail(TextOffset at, const std::string& what, const std::vector<std::string>& known = {}) const {
    throw UserError(locate(text_, file_name_, at), what, known);
  }
  Indices index(const std::vector<NamedRow>& rows, std::string_view what) const;
  std::uint16_t look_up(const Indices& indices, std::uint32_t name, TextOffset at, std::string_view what,
                        const std::vector<NamedRow>& rows) const;
  void index_ids();
  void read_lanes_and_waits();
  void add_work(std::size_t row, OpBlock& out) const;
  Demand make_demand(const DemandRow& row) const;
  [[noreturn]] void report_cycle(const std::vector<std::uint32_t>& cycle) const;

  std::string_view text_;
  const std::string& file_name_;
  GraphText graph_;
  Indices resources_, lanes_;
  std::unordered_map<std::int64_t, std::uint32_t> row_of_id_;
  std::vector<std::uint16_t> lane_of_row_;
  Predecessors waits_;
};

Builder::Indices Builder::index(const std::vector<NamedRow>& rows, std::string_view what) const {
  if (rows.size() > kMostNames) fail(rows[kMostNames].at, fmt::format("more than {} {}s", kMostNames, what));
  Indices indices;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (!indices.emplace(rows[i].name, static_cast<std::uint16_t>(i)).second) {
      fail(rows[i].at, fmt::format("duplicate {} \"{}\"", what, graph_.names.text(rows[i].name)));
    }
  }
  return indices;
}

std::uint16_t Builder::look_up(const Indices& indices, std::uint32_t name, TextOffset at, std::string_view what,
                               const std::vector<NamedRow>& rows) const {
  const auto found = indices.find(name);
  if (found != indices.end()) return found->second;
  constexpr std::size_t kShown = 50;
  std::vector<std::string> known;
  for (std::size_t i = 0; i < std::min(rows.size(), kShown); ++i) known.push_back(graph_.names.text(rows[i].name));
  if (rows.size() > kShown) known.push_back(fmt::format("... ({} in all)", rows.size()));
  fail(at, fmt::format("unknown {} \"{}\"", what, graph_.names.text(name)), known);
}

void Builder::index_ids() {
  row_of_id_.reserve(graph_.ops.size());
  for (std::size_t row = 0; row < graph_.ops.size(); ++row) {
    const OpRow& op = graph_.ops[row];
    if (!row_of_id_.emplace(op.id, static_cast<std::uint32_t>(row)).second) {
      fail(op.at, fmt::format("duplicate op id {}", op.id));
    }
  }
}

void Builder::read_lanes_and_waits() {
  const std::size_t rows = graph_.ops.size();
  std::vector<std::int64_t> last_on_lane(graph_.lanes.size(), -1);
  waits_.after.resize(rows);
  for (std::size_t row = 0; row < rows; ++row) {
    const OpRow& op = graph_.ops[row];
    const std::uint16_t lane = look_up(lanes_, op.lane, op.lane_at, "lane", graph_.lanes);
    lane_of_row_.push_back(lane);
    waits_.lane_before.push_back(last_on_lane[lane]);
    last_on_lane[lane] = row;
    for (std::size_t a = op.first_after; a < graph_.end_after(row); ++a) {
      const auto found = row_of_id_.find(graph_.after[a].id);
      if (found == row_of_id_.end()) {
        fail(graph_.after[a].at, fmt::format("op {} waits for op {}, which does not exist", op.id, graph_.after[a].id));
      }
      waits_.after[row].push_back(found->second);
    }
  }
}

Demand Builder::make_demand(const DemandRow& row) const {
  const std::uint16_t resource = look_up(resources_, row.resource, row.at, "resource", graph_.resources);
  const double rate = graph_.resources[resource].rate;
  const std::string& name = graph_.names.text(row.resource);
  if (row.amount > 0 && rate == 0) fail(row.at, fmt::format("demand on \"{}\", whose rate is 0", name));
  if (row.amount > 0 && !(row.amount / rate <= kLongestSeconds)) {
    fail(row.at, fmt::format("the demand on \"{}\" takes more than {:g} s", name, kLongestSeconds));
  }
  return {resource, row.amount};
}

void Builder::add_work(std::size_t row, OpBlock& out) const {
  const OpRow& text = graph_.ops[row];
  if (text.latency_s > kLongestSeconds)
    fail(text.at, fmt::format("\"latency_s\" is more than {:g} s", kLongestSeconds));
  out.add_work(text.latency_s * kPicosPerSecond);
  for (std::size_t d = text.first_demand; d < graph_.end_demand(row); ++d) {
    const Demand demand = make_demand(graph_.demands[d]);
    out.add_demand(demand.resource, demand.amount);
  }
}

void Builder::report_cycle(const std::vector<std::uint32_t>& cycle) const {
  constexpr std::size_t kShown = 12;
  std::string what = fmt::format("cycle: op {}", graph_.ops[cycle.front()].id);
  for (std::size_t i = 0; i < std::min(cycle.size(), kShown); ++i) {
    const std::uint32_t row = cycle[i], next = cycle[(i + 1) % cycle.size()];
    const auto& after = waits_.after[row];
    const bool by_lane = std::find(after.begin(), after.end(), next) == after.end();
    what += fmt::format(" waits for op {}", graph_.ops[next].id);
    if (by_lane) what += fmt::format(" (before it on lane \"{}\")", graph_.names.text(graph_.ops[row].lane));
    if (i + 1 < cycle.size()) what += ", which";
  }
  if (cycle.size() > kShown) what += fmt::format(" ... ({} ops in all)", cycle.size());
  fail(graph_.ops[cycle.front()].at, what);
}

GraphInput Builder::build() {
  resources_ = index(graph_.resources, "resource");
  lanes_ = index(graph_.lanes, "lane");
  index_ids();
  read_lanes_and_waits();
  GraphInput input;
  for (const NamedRow& r : graph_.resources) {
    input.system.resources.push_back({graph_.names.text(r.name), r.rate, r.sharing});
  }
  for (const NamedRow& lane : graph_.lanes) input.system.lanes.push_back(graph_.names.text(lane.name));
  for (const OpRow& op : graph_.ops) input.ids.push_back(op.id);

  const std::size_t rows = graph_.ops.size();
  for (std::size_t row = 0; row < rows; ++row) add_work(row, input.ops);
  const Ordering ordering = order_rows(waits_);
  if (!ordering.cycle.empty()) report_cycle(ordering.cycle);
  std::vector<OpId> id_of_row(rows);
  for (std::size_t i = 0; i < ordering.order.size(); ++i) id_of_row[ordering.order[i]] = static_cast<OpId>(i);
  input.ops.ops.reserve(rows);
  for (const std::uint32_t row : ordering.order) {
    Op& op = input.ops.add_op(lane_of_row_[row], row);
    op.tag = row;
    op.rank = graph_.ops[row].id;
    for (const std::uint32_t earlier : waits_.after[row]) input.ops.add_after(id_of_row[earlier]);
  }
  return input;
}

}  // namespace

GraphInput read_graph(std::string_view text, const std::string& file_name) { return Builder(text, file_name).build(); }

}  // namespace kvcast::engine

#include "validate/load_points.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/build.hpp"
#include "config/section.hpp"
#include "validate/laid_over.hpp"

namespace kvcast::validate {
namespace {

using config::Node;
using config::Section;

constexpr double kLargestNumber = 1e12;
constexpr double kWidestSpread = 0.9;
const std::vector<std::string> kPairKinds = {"cache", "tier", "balancer", "apart", "split"};

// The keys of a group that apply to all its points.
struct LoadGroup {
  LoadPoint base;
  std::vector<std::string> set, measured;
  double spread = 0;
  std::int64_t requests_per_client = 0, skip_requests = 0;
  bool skip_first_wave = false;
};

const Node* text_of_traffic(const Node& config, const char* key) {
  return config::find_below(config, std::string("traffic.") + key);
}

// The number of tokens that all requests have; empty for drawn lengths.
std::optional<std::int64_t> fixed_length(const Node& config, const char* key) {
  const Node* const node = text_of_traffic(config, key);
  if (!is_scalar(node)) return {};
  return config::read_integer(*node, key, 1, 100'000'000);
}

// Mean of a length as the run writes it; empty for a trace.
std::optional<double> mean_length(const Node& config, const char* key) {
  if (const auto fixed = fixed_length(config, key)) return static_cast<double>(*fixed);
  const Node* const mean = text_of_traffic(config, (std::string(key) + ".mean").c_str());
  if (!is_scalar(mean)) return {};
  return config::read_number(*mean, key, 0, kLargestNumber);
}

// An equal number of tokens N, drawn evenly from (1 − spread) N to (1 + spread) N instead.
Node spread_lengths(Node config, double spread) {
  for (const char* const key : {"prompt_tokens", "output_tokens"}) {
    const auto fixed = fixed_length(config, key);
    if (!fixed) continue;
    const SourceLocation where = text_of_traffic(config, key)->where();
    const auto end = [&](double factor) {
      const auto tokens = std::max<std::int64_t>(1, std::llround(factor * static_cast<double>(*fixed)));
      return Node::scalar(std::to_string(tokens), where);
    };
    const Node range = Node::map({{"low", end(1 - spread)}, {"high", end(1 + spread)}}, where);
    const Node traffic = config.find("traffic")->without({key}).with(key, range);
    config = config.without({"traffic"}).with("traffic", traffic);
  }
  return config;
}

// Paths of traces are those of the working directory, otherwise of the source tree.
Node with_trace_found(const Node& config) {
  const Node* const file = text_of_traffic(config, "file");
  if (!is_scalar(file) || std::filesystem::exists(file->text())) return config;
  return config.with("traffic.file", Node::scalar(data_dir() + "/" + file->text(), file->where()));
}

// One replica has nothing to route between.
Node without_lone_replica(const Node& config) {
  const Node* const deployment = config.find("deployment");
  const Node* const replicas = config::find_below(config, "deployment.replicas");
  if (!is_scalar(replicas) || replicas->text() != "1" || deployment->find("prefill_replicas") != nullptr) return config;
  const Node rest = deployment->without({"replicas", "routing"});
  const Node all = config.without({"deployment"});
  return rest.entries().empty() ? all : all.with("deployment", rest);
}

void add_requests(LoadPoint& point, const LoadGroup& group, const SourceLocation& where) {
  const Node* const clients = text_of_traffic(point.config, "concurrency");
  if (is_scalar(clients)) point.clients = config::read_integer(*clients, "concurrency", 1, 10'000'000);
  if (point.clients == 0 && (group.requests_per_client > 0 || group.skip_first_wave)) {
    throw UserError(where, fmt::format("{}: no traffic.concurrency, of which a first wave and requests per client are "
                                       "multiples",
                                       point.id));
  }
  if (group.requests_per_client > 0) {
    const std::string all = std::to_string(group.requests_per_client * point.clients);
    point.config = point.config.with("traffic.requests", Node::scalar(all, where));
  }
  point.skipped = group.skip_requests + (group.skip_first_wave ? point.clients : 0);
}

LoadPoint read_point(const LoadGroup& group, const Node& row) {
  const std::size_t given = group.set.size(), width = 1 + given + group.measured.size();
  if (row.kind() != Node::Kind::kList || row.items().size() != width) {
    throw UserError(row.where(), fmt::format("{}: a point has an id and {} numbers: {} that are set and {} measured",
                                             group.base.group, width - 1, given, group.measured.size()));
  }
  const std::vector<Node>& items = row.items();
  LoadPoint point = group.base;
  point.id = config::read_text(items[0], "id");
  for (std::size_t i = 0; i < given; ++i) point.config = point.config.with(group.set[i], items[1 + i]);
  std::map<std::string, double>& numbers = point.measured;
  for (std::size_t i = 0; i < group.measured.size(); ++i) {
    const Node& item = items[1 + given + i];
    if (item.kind() == Node::Kind::kNull) continue;
    const double value = config::read_number(item, group.measured[i], 0, kLargestNumber);
    if (value <= 0) throw UserError(item.where(), fmt::format("{}: expected a number above 0", group.measured[i]));
    numbers[group.measured[i]] = value;
  }
  std::erase_if(point.compared, [&](const std::string& name) { return !numbers.contains(name); });
  const bool sessions = text_of_traffic(point.config, "sessions") != nullptr;
  if (!sessions) {
    point.prompt_tokens = mean_length(point.config, "prompt_tokens");
    point.output_tokens = mean_length(point.config, "output_tokens");
  }
  add_requests(point, group, row.where());
  if (group.spread > 0) point.config = spread_lengths(point.config, group.spread);
  point.config = without_lone_replica(with_trace_found(point.config));
  return point;
}

void check_numbers(const Section& section, const std::string& key, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (kind_of_number(name).empty()) {
      throw UserError(section.where(key),
                      fmt::format("{}: \"{}\" is no measured number (the README lists them)", key, name));
    }
  }
}

// Readings other than the first are kept for whoever reads the file: predictions are of the first.
void check_others(Section& section) {
  const auto others = section.optional_node("others");
  if (!others) return;
  for (const Node& item : others->items()) {
    Section other(item, "reading");
    other.text("reading");
    other.node("config");
    other.finish();
  }
}

class LoadFile {
 public:
  explicit LoadFile(const std::string& path) : file_(config::load_yaml(path)), section_(file_, "campaign") {
    campaign_ = section_.text("campaign");
    source_ = section_.text("source");
    section_.text("about", "");
    section_.texts("readings", {});
    defaults_ = section_.optional_node("defaults").value_or(Node::map({}, file_.where()));
  }

  std::vector<LoadPoint> read() {
    for (const Node& node : section_.node("groups").items()) read_group(node);
    if (const auto list = section_.optional_node("pairs")) {
      for (const Node& item : list->items()) read_pairs(item);
    }
    std::erase_if(points_, [](const LoadPoint& p) { return p.compared.empty() && p.pairs.empty() && !p.paired; });
    if (const auto list = section_.optional_node("left_out")) {
      for (const Node& item : list->items()) {
        Section rows(item, "rows that are left out");
        left_out_ += static_cast<std::int64_t>(rows.texts("ids").size());
        rows.text("reason");
        rows.finish();
      }
    }
    check_counts();
    section_.finish();
    return std::move(points_);
  }

 private:
  void read_group(const Node& node) {
    Section section(node, "group");
    LoadGroup group;
    LoadPoint& base = group.base;
    base.campaign = campaign_, base.group = section.text("name");
    const std::string place = section.text("file", "");
    base.source = source_ + (place.empty() ? "" : ", " + place);
    const bool left_out = !section.text("left_out", "").empty();
    section.text("note", "");
    base.chosen_knowing = section.flag("chosen_knowing");
    base.config = laid_over(defaults_, section.node("config"));
    group.set = section.texts("set", {});
    for (const std::string& path : group.set) config::check_dotted_path(path, section.where("set"));
    group.measured = section.texts("measured");
    base.compared = section.texts("compare", {});
    check_numbers(section, "measured", group.measured);
    for (const std::string& name : base.compared) {
      if (std::ranges::find(group.measured, name) != group.measured.end()) continue;
      throw UserError(section.where("compare"), fmt::format("compare: \"{}\" is not measured", name), group.measured);
    }
    if (left_out != base.compared.empty()) {
      throw UserError(node.where(), fmt::format("{}: give either compare or left_out, a reason", base.group));
    }
    if (const auto stated = section.optional_node("stated")) {
      Section numbers(*stated, "stated");
      base.kv_capacity_tokens = numbers.number("kv_capacity_tokens", 1, kLargestNumber);
      numbers.finish();
    }
    check_others(section);
    group.spread = section.number("spread", 0, kWidestSpread, 0);
    group.requests_per_client = section.integer("requests_per_client", 1, 1'000'000, 0);
    group.skip_first_wave = section.flag("skip_first_wave", false);
    group.skip_requests = section.integer("skip_requests", 1, 100'000'000, 0);
    const Node rows = section.node("points");
    section.finish();
    for (const Node& row : rows.items()) points_.push_back(read_point(group, row));
    const auto count = static_cast<std::int64_t>(rows.items().size());
    (left_out ? left_out_ : compared_) += count;
  }

  LoadPoint& point_of(const Node& id, const std::string& number) {
    const std::string name = config::read_text(id, "ids");
    const auto found = std::ranges::find(points_, name, &LoadPoint::id);
    if (found == points_.end()) throw UserError(id.where(), fmt::format("pairs: no point {} here", name));
    if (!found->measured.contains(number)) {
      throw UserError(id.where(), fmt::format("pairs: {} of {} was not measured", number, name));
    }
    return *found;
  }

  void read_pairs(const Node& node) {
    Section section(node, "pairs");
    const std::string kind = section.choice("kind", {kPairKinds.begin(), kPairKinds.end()});
    const std::string number = section.text("number");
    check_numbers(section, "number", {number});
    section.text("note", "");
    const Node ids = section.node("ids");
    section.finish();
    for (const Node& pair : ids.items()) {
      if (pair.kind() != Node::Kind::kList || pair.items().size() != 2) {
        throw UserError(pair.where(), "ids: a pair has two ids, of the point without and of the one with");
      }
      LoadPoint& without = point_of(pair.items()[0], number);
      LoadPoint& with = point_of(pair.items()[1], number);
      if (&without == &with) throw UserError(pair.where(), "ids: a point is no pair with itself");
      without.paired = true;
      with.pairs.push_back({kind, number, without.id});
    }
  }

  void check_counts() {
    const auto count = [&](const char* key) { return section_.integer(key, 0, 100'000'000); };
    const std::int64_t all = count("rows"), compared = count("point_count"), left_out = count("left_out_count");
    const auto check = [&](const char* key, std::int64_t stated, std::int64_t counted) {
      if (stated == counted) return;
      throw UserError(section_.where(key), fmt::format("{}: {} stated, {} counted", key, stated, counted));
    };
    check("point_count", compared, compared_);
    check("left_out_count", left_out, left_out_);
    check("rows", all, compared_ + left_out_);
  }

  Node file_;
  Section section_;
  std::string campaign_, source_;
  Node defaults_;
  std::vector<LoadPoint> points_;
  std::int64_t left_out_ = 0, compared_ = 0;
};

}  // namespace

std::string kind_of_number(const std::string& name) {
  const std::size_t dot = name.find('.');
  const std::string time = name.substr(0, dot), statistic = dot == std::string::npos ? "" : name.substr(dot + 1);
  if (statistic.empty()) {
    static const std::set<std::string> kRates = {"requests_per_s", "input_tokens_per_s", "output_tokens_per_s",
                                                 "total_tokens_per_s", "duration_s"};
    return kRates.contains(name) ? "throughput" : "";
  }
  if (name == "e2e_per_token_ms.mean") return "TPOT";
  static const std::set<std::string> kStatistics = {"mean", "p50", "p90", "p99"};
  static const std::map<std::string, std::string> kTimes = {
      {"ttft_ms", "TTFT"}, {"tpot_ms", "TPOT"}, {"itl_ms", "TPOT"}, {"e2e_ms", "E2E"}};
  const auto found = kTimes.find(time);
  return found != kTimes.end() && kStatistics.contains(statistic) ? found->second : "";
}

std::vector<LoadPoint> read_load_points(const std::string& path) { return LoadFile(path).read(); }

std::vector<LoadPoint> read_all_load_points(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path().string());
  }
  if (paths.empty()) throw UserError({folder, 0, 0}, "no load points here (*.yaml)");
  std::ranges::sort(paths);
  std::vector<LoadPoint> points;
  std::set<std::string> ids;
  for (const std::string& path : paths) {
    for (LoadPoint& point : read_load_points(path)) {
      if (!ids.insert(point.id).second) {
        throw UserError({path, 0, 0}, fmt::format("point {} appears twice", point.id));
      }
      points.push_back(std::move(point));
    }
  }
  return points;
}

}  // namespace kvcast::validate

#include "engine/graph_text.hpp"

#include <fmt/format.h>

#include <iterator>
#include <limits>

#include "base/strict_json.hpp"

namespace kvcast::engine {

std::uint32_t Names::id(const std::string& name) {
  const auto [id, is_new] = ids_.try_emplace(name, static_cast<std::uint32_t>(texts_.size()));
  if (is_new) texts_.push_back(name);
  return id->second;
}

namespace {

enum Part : JsonPart {
  kGraph,
  kResources,
  kResource,
  kResourceName,
  kRate,
  kSharing,
  kLanes,
  kLaneName,
  kOps,
  kOp,
  kId,
  kOpLane,
  kLatency,
  kDemand,
  kAmount,
  kAfter,
  kAfterId
};

constexpr JsonKey kGraphKeys[] = {{"resources", kResources, true}, {"lanes", kLanes, true}, {"ops", kOps, true}};
constexpr JsonKey kResourceKeys[] = {{"name", kResourceName, true}, {"rate", kRate, true}, {"sharing", kSharing, true}};
constexpr JsonKey kOpKeys[] = {{"id", kId, true},
                               {"lane", kOpLane, true},
                               {"latency_s", kLatency, false},
                               {"demand", kDemand, false},
                               {"after", kAfter, false}};
constexpr JsonPartSpec kGrammar[] = {
    {"the graph", JsonType::kObject, kGraphKeys},
    {"\"resources\"", JsonType::kList, {}, kResource},
    {"a resource", JsonType::kObject, kResourceKeys},
    {"the name of a resource", JsonType::kString},
    {"\"rate\"", JsonType::kNumber},
    {"\"sharing\"", JsonType::kString},
    {"\"lanes\"", JsonType::kList, {}, kLaneName},
    {"the name of a lane", JsonType::kString},
    {"\"ops\"", JsonType::kList, {}, kOp},
    {"an op", JsonType::kObject, kOpKeys},
    {"the id of an op", JsonType::kWholeNumber},
    {"the lane of an op", JsonType::kString},
    {"\"latency_s\"", JsonType::kNumber},
    {"\"demand\"", JsonType::kObject, {}, kAmount},  // its keys are names of resources
    {"the amount of a demand", JsonType::kNumber},
    {"\"after\"", JsonType::kList, {}, kAfterId},
    {"an id in \"after\"", JsonType::kWholeNumber},
};
static_assert(std::size(kGrammar) == kAfterId + 1);

class GraphTaker final : public JsonTaker {
 public:
  GraphTaker(std::string_view text, const std::string& file_name) : text_(text), file_name_(file_name) {}
  GraphText take() { return std::move(graph_); }

  void begin(JsonPart part, TextOffset at) override {
    if (part == kResource) graph_.resources.push_back({.at = at});
    if (part == kOp) {
      graph_.ops.push_back({.at = at, .first_demand = graph_.demands.size(), .first_after = graph_.after.size()});
    }
  }
  void end(JsonPart, TextOffset) override {}
  bool free_key(JsonPart, const std::string& name, TextOffset at) override {  // of a demand
    const std::uint32_t resource = graph_.names.id(name);
    for (std::size_t d = graph_.ops.back().first_demand; d < graph_.demands.size(); ++d) {
      if (graph_.demands[d].resource == resource) return false;
    }
    graph_.demands.push_back({.resource = resource, .at = at});
    return true;
  }
  void string(JsonPart part, const std::string& value, TextOffset at) override;
  void number(JsonPart part, const JsonNumber& value, TextOffset at) override;
  [[noreturn]] void fail(TextOffset at, const std::string& what, const std::vector<std::string>& known) override {
    throw UserError(locate(text_, file_name_, at), what, known);
  }

 private:
  std::string_view text_;
  const std::string& file_name_;
  GraphText graph_;
};

void GraphTaker::string(JsonPart part, const std::string& value, TextOffset at) {
  switch (part) {
    case kResourceName:
      graph_.resources.back().name = graph_.names.id(value);
      break;
    case kLaneName:
      graph_.lanes.push_back({.name = graph_.names.id(value), .at = at});
      break;
    case kOpLane:
      graph_.ops.back().lane = graph_.names.id(value);
      graph_.ops.back().lane_at = at;
      break;
    default:  // kSharing
      if (value != "fair" && value != "fifo") fail(at, fmt::format("unknown sharing \"{}\"", value), {"fair", "fifo"});
      graph_.resources.back().sharing = value == "fifo" ? Sharing::kFifo : Sharing::kFair;
  }
}

void GraphTaker::number(JsonPart part, const JsonNumber& number, TextOffset at) {
  switch (part) {
    case kRate:
      graph_.resources.back().rate = number.value;
      return;
    case kLatency:
      graph_.ops.back().latency_s = number.value;
      return;
    case kAmount:
      graph_.demands.back().amount = number.value;
      return;
    default:
      break;
  }
  if (*number.whole > (std::numeric_limits<std::int64_t>::max())) {
    fail(at, fmt::format("{} must be a whole number below 2^63, found {}", kGrammar[part].name, *number.whole), {});
  }
  const auto id = static_cast<std::int64_t>(*number.whole);
  if (part == kId) {
    graph_.ops.back().id = id;
  } else {
    graph_.after.push_back({id, at});
  }
}

}  // namespace

GraphText parse_graph_text(std::string_view text, const std::string& file_name) {
  GraphTaker taker(text, file_name);
  read_strict_json(text, kGrammar, taker);
  return taker.take();
}

}  // namespace kvcast::engine

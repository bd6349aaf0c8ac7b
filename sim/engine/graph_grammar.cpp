// The grammar as tables.
#include "engine/graph_grammar.hpp"

#include <iterator>

namespace kvcast::engine {

namespace {
constexpr PartSpec kParts[] = {
    {"the graph", JsonType::kObject},
    {"\"resources\"", JsonType::kArray, Part::kResource},
    {"a resource", JsonType::kObject},
    {"the name of a resource", JsonType::kString},
    {"\"rate\"", JsonType::kNumber},
    {"\"sharing\"", JsonType::kString},
    {"\"lanes\"", JsonType::kArray, Part::kLaneName},
    {"the name of a lane", JsonType::kString},
    {"\"ops\"", JsonType::kArray, Part::kOp},
    {"an op", JsonType::kObject},
    {"the id of an op", JsonType::kWholeNumber},
    {"the lane of an op", JsonType::kString},
    {"\"latency_s\"", JsonType::kNumber},
    {"\"demand\"", JsonType::kObject},
    {"the amount of a demand", JsonType::kNumber},
    {"\"after\"", JsonType::kArray, Part::kAfterId},
    {"an id in \"after\"", JsonType::kWholeNumber},
};
static_assert(std::size(kParts) == static_cast<std::size_t>(Part::kAfterId) + 1);

constexpr KeySpec kGraphKeys[] = {
    {"resources", Part::kResources, true}, {"lanes", Part::kLanes, true}, {"ops", Part::kOps, true}};
constexpr KeySpec kResourceKeys[] = {
    {"name", Part::kResourceName, true}, {"rate", Part::kRate, true}, {"sharing", Part::kSharing, true}};
constexpr KeySpec kOpKeys[] = {{"id", Part::kId, true},
                               {"lane", Part::kOpLane, true},
                               {"latency_s", Part::kLatency, false},
                               {"demand", Part::kDemand, false},
                               {"after", Part::kAfter, false}};
}  // namespace

std::string_view json_type_name(JsonType type) {
  switch (type) {
    case JsonType::kObject:
      return "an object";
    case JsonType::kArray:
      return "a list";
    case JsonType::kString:
      return "a string";
    case JsonType::kNumber:
      return "a number";
    case JsonType::kWholeNumber:
      return "a whole number";
  }
  return "";
}

const PartSpec& spec(Part part) { return kParts[static_cast<std::size_t>(part)]; }

std::span<const KeySpec> keys_of(Part object) {
  switch (object) {
    case Part::kGraph:
      return kGraphKeys;
    case Part::kResource:
      return kResourceKeys;
    case Part::kOp:
      return kOpKeys;
    default:
      return {};
  }
}

}  // namespace kvcast::engine

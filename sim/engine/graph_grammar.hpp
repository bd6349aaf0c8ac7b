// The grammar of an operation graph in JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace kvcast::engine {

enum class JsonType : std::uint8_t { kObject, kArray, kString, kNumber, kWholeNumber };
std::string_view json_type_name(JsonType type);

// The part of the graph that a value is.
enum class Part : std::uint8_t {
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

struct PartSpec {
  std::string_view name;  // for messages
  JsonType type;
  Part element = Part::kGraph;  // part that the elements of a list are
};
const PartSpec& spec(Part part);

struct KeySpec {
  std::string_view name;
  Part part;
  bool required;
};
// The keys of an object; empty for kDemand, whose keys are names of resources.
std::span<const KeySpec> keys_of(Part object);

}  // namespace kvcast::engine

#include "graph/op.hpp"

#include <array>

namespace kvcast::graph {
namespace {
constexpr std::array<std::string_view, kLaneCount> kLanes = {"host thread",    "recall thread", "backup thread",
                                                             "compute stream", "select stream", "copy stream A",
                                                             "copy stream B",  "backup stream", "CPU workers"};
constexpr std::array<std::string_view, kKindCount> kKinds = {"gemm",  "attention", "small",      "score",   "topk",
                                                             "index", "copy_in",   "copy_out",   "convert", "launch",
                                                             "sync",  "cpu",       "collective", "marker"};
}  // namespace

std::string_view lane_name(Lane lane) { return kLanes[static_cast<std::size_t>(lane)]; }
std::string_view kind_name(Kind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

}  // namespace kvcast::graph

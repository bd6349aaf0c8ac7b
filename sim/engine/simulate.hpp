// The engine alone, on an operation graph given as JSON:
//
//   {"resources": [{"name": "hbm", "rate": 3.35e12, "sharing": "fair"},
//                  {"name": "h2d", "rate": 2.5e10, "sharing": "fifo"}],
//    "lanes": ["compute", "copy"],
//    "ops": [{"id": 0, "lane": "compute", "latency_s": 2e-6, "demand": {"hbm": 1e9}, "after": []}]}
//
// Ids are whole numbers from 0, in any order, gaps allowed; `after` may name ops that come later in the file. A lane
// runs its ops in the order of the file. latency_s, demand and after may be left out. Ties for a fifo go to the lower
// id.
#pragma once

#include <string>
#include <string_view>

namespace kvcast::engine {

// Runs the graph: {"makespan_s": .., "ops": [{"id": 0, "start_s": .., "finish_s": ..}, ..]}, ops by id. Throws
// UserError with file:line:col for anything malformed, unknown or duplicate, for cycles (through lane order, too),
// negative or overlarge numbers and demands on a resource of rate 0.
std::string simulate_json(std::string_view text, const std::string& file_name);

}  // namespace kvcast::engine

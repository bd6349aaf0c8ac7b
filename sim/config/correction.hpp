// Measured deviations of decode attention from its model, on a lattice of shapes.
#pragma once

#include <string>
#include <vector>

namespace kvcast::config {

class Section;

// Measured over modelled time, smoothed over the points of a table. All axes ascend and are greater than 0.
struct AttentionCorrection {
  std::vector<double> rows;    // (sequence, KV head) pairs
  std::vector<double> tokens;  // KV tokens per row
  std::vector<double> groups;  // query heads per KV head
  // measured / modelled - 1 > -1, for all nodes; tokens vary fastest, then rows, then groups
  std::vector<double> excess;
  // Measured with the KV pairs that fit left in the L2 by the previous call: for those it says nothing about reads from
  // memory.
  bool repeated = false;
  std::string source;

  double at(std::size_t group, std::size_t row, std::size_t token) const {
    return excess[(group * rows.size() + row) * tokens.size() + token];
  }
};

// Reads a map of `rows`, `tokens`, `groups`, `percent` (the excess: a list per group, of a list per row), `repeated`
// and `source`. Throws UserError for axes that do not ascend and for lists whose length differs from that of their
// axis.
AttentionCorrection read_attention_correction(Section& section);

// Text that changes with every number, for config::canonical.
std::string canonical(const AttentionCorrection& correction);

}  // namespace kvcast::config

// Layers with attention to compressed entries (config/compressed.hpp).
#pragma once

#include <span>
#include <vector>

#include "config/model.hpp"
#include "lower/block.hpp"
#include "policy/layer_ops.hpp"

namespace kvcast::lower {

// Adds the work from normalised rows to queries, keys in the window, finished entries and the queries of the index.
graph::OpId compressed_projections(LoweredBlock& block, const config::Model& model, int layer, double rows,
                                   graph::OpId after);

// The sequences that decode in a pass, with `queries` rows each; packed: the rows of a sequence share one read.
struct CompressedSteps {
  std::span<const policy::Sequence> sequences;
  int queries = 1;
  bool packed = true;
};
// Adds their scores of the index, the choice of entries, and attention.
graph::OpId compressed_steps(LoweredBlock& block, const config::Model& model, int layer, const CompressedSteps& steps,
                             graph::OpId after);
// The same for a part of prompts.
graph::OpId compressed_prompt(LoweredBlock& block, const config::Model& model, const policy::PrefillChunk& chunk,
                              graph::OpId after);

// Adds the compression of the groups of the output, after `op`. Returns their width.
double compressed_output(LoweredBlock& block, const config::Model& model, double rows, graph::OpId& op);

}  // namespace kvcast::lower

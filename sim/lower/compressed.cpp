#include "lower/compressed.hpp"

#include <algorithm>
#include <cmath>

#include "lower/ops.hpp"
#include "lower/verification.hpp"
#include "policy/block_indexer.hpp"
#include "policy/costs.hpp"

namespace kvcast::lower {

using config::Compressed;
using graph::Kind;
using graph::OpId;

namespace {

// The indexer, whose blocks are the entries. Its queries are the same on all GPUs that share the layer.
policy::BlockIndexer indexer_of(const Compressed& c) {
  policy::BlockIndexer indexer;
  indexer.block = indexer.stride = c.csa_tokens;
  indexer.budget = static_cast<std::int64_t>(c.index_best) * c.csa_tokens;
  indexer.heads = c.index_heads, indexer.dim = c.index_dim;
  indexer.entry_bytes = c.index_bytes();
  return indexer;
}

// Most entries that a query of this layer attends to.
double most_entries(const Compressed& c, Compressed::Kind kind) {
  return kind == Compressed::Kind::kSelecting ? c.index_best : kind == Compressed::Kind::kAll ? 1e18 : 0;
}

// Entries that are whole at a context of so many tokens.
double whole_entries(const Compressed& c, Compressed::Kind kind, double tokens) {
  return kind == Compressed::Kind::kWindow ? 0 : std::floor(tokens / c.tokens(kind));
}

// The sum over contexts of 1 … n tokens of their whole entries of `tokens` each, but at most `most` for each context.
double entries_up_to(double n, double tokens, double most) {
  const double full = std::min(std::floor(n / tokens), most);
  return tokens * full * (full - 1) / 2 + (n - tokens * full + 1) * full;
}

// Pairs of a query and an entry or a token of the window, over the queries at contexts of 1 … n tokens.
double pairs_up_to(const Compressed& c, Compressed::Kind kind, double n) {
  const double entries =
      kind == Compressed::Kind::kWindow ? 0 : entries_up_to(n, c.tokens(kind), most_entries(c, kind));
  return policy::capped_pairs(n, c.window) + entries;
}

// The index has more entries than a query attends to.
bool chooses(const Compressed& c, Compressed::Kind kind, double tokens) {
  return kind == Compressed::Kind::kSelecting && whole_entries(c, kind, tokens) > c.index_best;
}

}  // namespace

OpId compressed_projections(LoweredBlock& block, const config::Model& model, int layer, double rows, OpId op) {
  constexpr double kSingleValues = kSingleBytes / kHalfBytes;
  const Compressed& c = *model.compressed;
  const Compressed::Kind kind = c.kind(layer);
  const double d = model.head_dim, queries = model.n_q_heads * d;
  const auto project = [&](const char* label, config::Precision precision, double n, double k) {
    op = gemm(block, label, product(precision, rows, n, k), op);
  };
  // One kernel computes the compressed queries and the key from the same rows.
  project("compress queries and keys", model.weights, c.query_rank + d, model.hidden);
  if (const double width = c.compressor_width(kind, model.head_dim); width > 0) {
    project("values and gates of entries", config::Precision::kBf16, width, model.hidden);
    // Each row is stored, and read when its window is whole: once for each window that it belongs to.
    const double stored = rows * width * kSingleValues;
    op = small(block, "make entries", (1.0 + Compressed::halves(kind)) * stored, stored, op);
  }
  if (kind == Compressed::Kind::kSelecting) {
    project("index queries", model.weights, static_cast<double>(c.index_heads) * c.index_dim, c.query_rank);
    project("index weights", config::Precision::kBf16, c.index_heads, model.hidden);
  }
  project("expand queries", model.weights, queries, c.query_rank);
  return small(block, "rope and append", rows * (queries + d), rows * (queries + d), op);
}

OpId compressed_steps(LoweredBlock& block, const config::Model& model, int layer, const CompressedSteps& steps,
                      OpId op) {
  const Compressed& c = *model.compressed;
  const Compressed::Kind kind = c.kind(layer);
  const double d = model.head_dim, entry = c.entry_bytes(model.head_dim, model.cache);
  graph::DecodeAttention work;
  double scored = 0;  // tokens of the sequences that choose
  double choosing = 0;
  for (const policy::Sequence& s : steps.sequences) {
    const auto tokens = static_cast<double>(s.tokens);
    const double attended =
        std::min<double>(tokens, c.window) + std::min(whole_entries(c, kind, tokens), most_entries(c, kind));
    work.tokens += attended, work.longest = std::max(work.longest, attended);
    if (chooses(c, kind, tokens)) scored += tokens, ++choosing;
  }
  if (choosing > 0) {
    const policy::BlockIndexer indexer = indexer_of(c);
    const double queries = steps.queries;
    op = policy::index_scores(indexer, 1, scored * queries, scored * (steps.packed ? 1 : queries), block, op);
    op = policy::best_blocks(indexer, choosing * queries, scored / choosing, block, op);
  }
  work.rows = static_cast<double>(steps.sequences.size()), work.group = model.n_q_heads;
  work.unequal = work.longest * work.rows > 1.1 * work.tokens;
  // A row is key and value at once: half of it represents either.
  work.head_dim = d / 2, work.element_bytes = entry / d, work.product_dims = 2 * d;
  if (choosing > 0) work.unit_bytes = entry / 2;
  if (model.cache != config::Precision::kBf16) work.converted = (d - c.rope_dim) * work.tokens;
  work.fp8 = model.cache == config::Precision::kFp8;
  // The queries of a sequence choose for themselves.
  Verification ops(block, steps.queries, false, steps.packed && choosing == 0);
  return ops.attention(work, {op});
}

OpId compressed_prompt(LoweredBlock& block, const config::Model& model, const policy::PrefillChunk& chunk, OpId op) {
  const Compressed& c = *model.compressed;
  const Compressed::Kind kind = c.kind(chunk.layer);
  const auto start = static_cast<double>(chunk.start), end = static_cast<double>(chunk.end);
  const double sequences = chunk.batch, rows = sequences * chunk.length(), d = model.head_dim;
  if (chooses(c, kind, end)) {
    const policy::BlockIndexer indexer = indexer_of(c);
    const double pairs = (end * (end + 1) - start * (start + 1)) / 2;
    op = policy::index_scores(indexer, 1, sequences * pairs, sequences * end, block, op);
    op = policy::best_blocks(indexer, rows, pairs / chunk.length(), block, op);
  }
  const double entry = c.entry_bytes(model.head_dim, model.cache), queries = rows * model.n_q_heads * d * kBytes;
  const double read = std::min(start, static_cast<double>(c.window)) + chunk.length() + whole_entries(c, kind, end);
  graph::PrefillAttention work;
  work.flops = 4 * sequences * model.n_q_heads * d * (pairs_up_to(c, kind, end) - pairs_up_to(c, kind, start));
  work.read_bytes = queries + sequences * read * entry, work.write_bytes = queries;
  return block.compute(Kind::kAttention, "prefill attention", work, {op});
}

double compressed_output(LoweredBlock& block, const config::Model& model, double rows, OpId& op) {
  const Compressed& c = *model.compressed;
  const double outputs = static_cast<double>(model.n_q_heads) * model.head_dim, groups = c.output_groups;
  op = small(block, "positions out of outputs", rows * outputs, rows * outputs, op);
  graph::Gemm work = product(model.weights, rows, c.output_rank, outputs / groups);
  work.groups = groups;
  op = gemm(block, "compress outputs", work, op);
  return groups * c.output_rank;
}

}  // namespace kvcast::lower

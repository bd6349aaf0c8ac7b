#include "lower/ops.hpp"

#include "lower/operators.hpp"

namespace kvcast::lower {

using graph::Kind;
using graph::OpId;

graph::Kernel streaming(double read_values, double write_values) {
  return {graph::KernelClass::kElementwise, read_values * kBytes, write_values * kBytes, 0, 0};
}

OpId small(LoweredBlock& block, const char* label, double read_values, double write_values, OpId after) {
  return block.compute(Kind::kSmall, label, streaming(read_values, write_values), {after});
}

namespace {

// Hyper-connections: coefficients from all streams of a row, made doubly stochastic between streams, and the streams'
// sum before the block; the block's output comes back to all streams with the next mixing.
OpId mix_streams(LoweredBlock& block, const config::Model& model, double rows, OpId after) {
  const double streams = model.streams, all = rows * streams * model.hidden;
  const graph::Gemm coefficients{rows, streams * (streams + 2), streams * model.hidden, kBytes};
  OpId op = small(block, "stream update", all + rows * model.hidden, all, after);
  op = gemm(block, "stream coefficients", coefficients, op);
  return small(block, "stream sum", all, rows * model.hidden, op);
}

}  // namespace

OpId norm(LoweredBlock& block, const config::Model& model, double rows, OpId after) {
  if (model.streams > 1) after = mix_streams(block, model, rows, after);
  // One kernel scores the outputs of blocks, each with a norm, and sums them by their softmax.
  if (const double inputs = model.residuals.inputs; inputs > 0)
    after = small(block, "sum of blocks' outputs", rows * inputs * model.hidden, rows * model.hidden, after);
  if (block.unfused()) return unfused_norm(block, rows * model.hidden, after);
  // The norm is fused with the residual addition: it reads the branch and the residual, and writes the residual and the
  // normalised rows.
  return small(block, "norm", 2 * rows * model.hidden, 2 * rows * model.hidden, after);
}

graph::Products products_of(config::Precision precision) {
  switch (precision) {
    case config::Precision::kFp8:
      return graph::Products::kFp8;
    case config::Precision::kInt8:
      return graph::Products::kInt8;
    case config::Precision::kMxfp4:
      return graph::Products::kMxfp4;
    case config::Precision::kNvfp4:
      return graph::Products::kFp4;
    case config::Precision::kBf16:
    case config::Precision::kInt4:  // only weights are quantised: products of 16-bit numbers
    case config::Precision::kInt3:  // of caches
    case config::Precision::kCodebook4:
    case config::Precision::kCodebook3:
      break;
  }
  return graph::Products::kHalf;
}

graph::Gemm product(config::Precision precision, double rows, double n, double k) {
  graph::Gemm work{rows, n, k, kBytes};
  if (precision == config::Precision::kBf16) return work;
  work.weight_bytes = config::weight_bytes(precision, n, k) / (n * k);
  work.products = products_of(precision);
  return work;
}

OpId gemm(LoweredBlock& block, const char* label, const graph::Gemm& work, OpId after) {
  return block.compute(Kind::kGemm, label, work, {after});
}

OpId exchange(LoweredBlock& block, const char* label, const graph::Collective& work, OpId after) {
  if (work.ranks <= 1) return after;
  return block.compute(Kind::kCollective, label, work, {after});
}

OpId all_reduce(LoweredBlock& block, const config::Model& model, double rows, OpId after) {
  const double ranks = model.ranks;
  return exchange(block, "all-reduce", {graph::Exchange::kAllReduce, rows * model.hidden * kBytes, ranks}, after);
}

}  // namespace kvcast::lower

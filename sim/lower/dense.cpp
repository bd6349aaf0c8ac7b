#include "lower/dense.hpp"

#include <algorithm>

#include "lower/operators.hpp"

namespace kvcast::lower {
namespace {

using graph::Kind;
using graph::Lane;
using graph::OpId;

constexpr double kBytes = config::Model::kElementBytes;

graph::Kernel streaming(double read_values, double write_values) {
  return {graph::KernelClass::kElementwise, read_values * kBytes, write_values * kBytes, 0, 0};
}

OpId norm(Block& block, const config::Model& model, double rows, OpId after) {
  if (block.unfused()) return unfused_norm(block, rows * model.hidden, after);
  // Fused with the residual addition: reads the branch and the residual, writes the residual and the normed rows.
  return block.kernel(Lane::kCompute, Kind::kSmall, "norm", streaming(2 * rows * model.hidden, 2 * rows * model.hidden),
                      {after});
}

OpId gemm(Block& block, const char* label, double rows, double n, double k, OpId after) {
  return block.kernel(Lane::kCompute, Kind::kGemm, label, graph::Gemm{rows, n, k, kBytes}, {after});
}

}  // namespace

OpId enter_layers(Block& block, const config::Model& model, double rows, OpId after) {
  if (!block.unfused()) return after;
  block.enter_layer(-1);
  return unfused_inputs(block, rows, model.hidden, after);
}

OpId before_attention(Block& block, const config::Model& model, double rows, OpId after) {
  const double q = static_cast<double>(model.n_q_heads) * model.head_dim;
  const double kv = 2.0 * model.n_kv_heads * model.head_dim;
  OpId op = norm(block, model, rows, after);
  if (block.unfused()) {
    op = gemm(block, "q projection", rows, q, model.hidden, op);
    op = gemm(block, "k projection", rows, kv / 2, model.hidden, op);
    op = gemm(block, "v projection", rows, kv / 2, model.hidden, op);
    return unfused_rope(block, rows * q, rows * kv / 2, op);
  }
  op = gemm(block, "qkv projection", rows, q + kv, model.hidden, op);
  // RoPE on queries and keys, QK norm where the model has one, and the append of keys and values: one fused kernel.
  return block.kernel(Lane::kCompute, Kind::kSmall, "rope and append", streaming(rows * (q + kv), rows * (q + kv)),
                      {op});
}

OpId after_attention(Block& block, const config::Model& model, double rows, OpId after) {
  const double q = static_cast<double>(model.n_q_heads) * model.head_dim;
  OpId op = gemm(block, "output projection", rows, model.hidden, q, after);
  op = norm(block, model, rows, op);
  if (block.unfused()) {
    op = gemm(block, "gate projection", rows, model.ffn, model.hidden, op);
    op = gemm(block, "up projection", rows, model.ffn, model.hidden, op);
    op = unfused_activation(block, rows * model.ffn, op);
  } else {
    op = gemm(block, "gate and up", rows, 2.0 * model.ffn, model.hidden, op);
    op = block.kernel(Lane::kCompute, Kind::kSmall, "activation", streaming(2 * rows * model.ffn, rows * model.ffn),
                      {op});
  }
  return gemm(block, "down projection", rows, model.hidden, model.ffn, op);
}

OpId head_and_sample(Block& block, const config::Model& model, double rows, OpId after) {
  block.enter_layer(-1);
  OpId op = norm(block, model, rows, after);
  op = gemm(block, "head", rows, model.vocab, model.hidden, op);
  op = block.kernel(Lane::kCompute, Kind::kSmall, "sample", streaming(rows * model.vocab, rows), {op});
  if (block.unfused()) op = unfused_choice(block, rows, rows * model.vocab, op);
  return block.host(Lane::kHost, Kind::kSync, "token to host", graph::HostCall::kItemSync, 1, {op});
}

double activation_bytes(const config::Model& model, double rows, double sampled, double in_network) {
  const double wide = in_network > 0 ? std::min(in_network, rows) : rows;
  return (wide * 3.0 * model.ffn + rows * 4.0 * model.hidden) * kBytes + sampled * model.vocab * 4.0;
}

}  // namespace kvcast::lower

// The ops that all policies share, by hand: 3 rows of a model of 64 hidden numbers, 4 query heads on 2 KV heads of 16,
// a network of 128 and 1000 words; two bytes a number.
#include <catch2/catch.hpp>

#include "graph/traffic.hpp"
#include "lower/dense.hpp"
#include "lower/operators.hpp"
#include "support/ops.hpp"
#include "support/tiny_model.hpp"

namespace kvcast::tests {

using namespace lower;
using graph::Kind;
using graph::Lane;

namespace {

template <typename Add>
std::vector<graph::Op> made(const Add& add) {
  static const config::Framework framework;
  Events events;
  std::vector<graph::Op> ops;
  LoweredBlock block(framework, 0, -1, events, ops);
  add(block);
  return ops;
}

void check_product(const std::vector<graph::Op>& ops, const std::string& label, double n, double k) {
  INFO(label);
  const auto& gemm = std::get<graph::Gemm>(only(ops, label).work);
  CHECK(gemm.m == 3);
  CHECK(gemm.n == n);
  CHECK(gemm.k == k);
}

void check_pass(const graph::Op& op, double read, double written) {
  INFO(op.label);
  CHECK(std::get<graph::Kernel>(op.work).read_bytes == read);
  CHECK(std::get<graph::Kernel>(op.work).write_bytes == written);
}

}  // namespace

TEST_CASE("a layer consists of its matrix products and the kernels between them") {
  const config::Model model = tiny_model();
  const auto before = made([&](LoweredBlock& block) { before_attention(block, model, 0, 3, -1); });
  // Branch and residual in, residual and normed rows out.
  check_pass(only(before, "norm"), 2 * 3 * 64 * 2, 2 * 3 * 64 * 2);
  check_product(before, "qkv projection", 4 * 16 + 2 * 2 * 16, 64);
  check_pass(only(before, "rope and append"), 3 * 128 * 2, 3 * 128 * 2);
  const auto after = made([&](LoweredBlock& block) { after_attention(block, model, 0, 3, -1); });
  check_product(after, "output projection", 64, 4 * 16);
  check_product(after, "gate and up", 2 * 128, 64);
  check_pass(only(after, "activation"), 2 * 3 * 128 * 2, 3 * 128 * 2);
  check_product(after, "down projection", 64, 128);
  const auto head = made([&](LoweredBlock& block) { head_and_sample(block, model, 3, -1); });
  check_product(head, "head", 1000, 64);
  check_pass(only(head, "sample"), 3 * 1000 * 2, 3 * 2);
}

TEST_CASE("rotary embedding by operators moves ten times the rotated data") {
  const auto ops = made([](LoweredBlock& block) { unfused_rope(block, 64, 32, -1); });
  graph::ByteCounts moved;
  for (const graph::Op& op : ops) moved += graph::traffic_of(op.work);
  // Queries and keys have 96 numbers: products with cosine and sine 1 in and 1 out each, half negated ½ and ½, halves
  // joined 1 and 1, sum 2 and 1. Then keys and values, 32 numbers each, into the cache.
  CHECK(moved.hbm_read == 96 * 2 * 5.5 + 2 * 32 * 2);
  CHECK(moved.hbm_write == 96 * 2 * 4.5 + 2 * 32 * 2);
}

TEST_CASE("a CUDA graph ends where the host waits for the device") {
  const auto ops = made([](LoweredBlock& block) {
    const graph::Kernel work{graph::KernelClass::kElementwise, 8, 8};
    block.kernel(Lane::kCompute, Kind::kSmall, "one", work, {});
    const graph::OpId two = block.kernel(Lane::kCompute, Kind::kSmall, "two", work, {});
    const graph::OpId known = block.host(Lane::kHost, Kind::kSync, "flag", graph::HostCall::kItemSync, 1, {two});
    block.kernel(Lane::kCompute, Kind::kSmall, "three", work, {known});
  });
  const auto launches = labelled(ops, "graph launch");
  REQUIRE(launches.size() == 2);
  CHECK(std::get<graph::HostWork>(ops[static_cast<std::size_t>(launches[0])].work).count == 2);
  CHECK(std::get<graph::HostWork>(ops[static_cast<std::size_t>(launches[1])].work).count == 1);
  CHECK(waits_for(ops, launches[1], labelled(ops, "flag")[0]));
  CHECK(waits_for(ops, labelled(ops, "three")[0], launches[1]));
}

}  // namespace kvcast::tests

#include "validate/attention_works.hpp"

#include <algorithm>
#include <cmath>

#include "calibrate/machine.hpp"
#include "lower/torch_topk.hpp"

namespace kvcast::validate {
namespace {

using calibrate::MeasuredRow;
using graph::Kernel;
using graph::KernelClass;

constexpr double kHalf = 2;  // bytes of a number

graph::DecodeAttention decodes(const MeasuredRow& row, double rows, double tokens, double longest) {
  graph::DecodeAttention work;
  work.rows = rows, work.tokens = tokens, work.longest = longest;
  work.group = row.number("group"), work.head_dim = row.number("dim");
  return work;
}

PolicyWork ragged_attention(const MeasuredRow& row) {
  graph::DecodeAttention work =
      decodes(row, row.number("batch") * row.number("kv_heads"), row.of_work("sum"), row.of_work("longest"));
  work.unit_bytes = row.number("page") * work.head_dim * kHalf;
  work.unequal = row.word("profile") != "equal";
  return {"a budget for each head", {work}};
}

// A chunk whose last token sees `seen` tokens.
graph::PrefillAttention chunk_of(const MeasuredRow& row) {
  const double chunk = row.number("chunk"), seen = row.number("seen"), dim = row.number("dim");
  const double kv_heads = row.number("kv_heads"), q_heads = kv_heads * row.number("group");
  const double pairs = chunk * (seen - chunk) + chunk * (chunk + 1) / 2;
  graph::PrefillAttention work;
  work.flops = 4 * q_heads * dim * pairs;
  work.write_bytes = chunk * q_heads * dim * kHalf;
  work.read_bytes = work.write_bytes + 2 * seen * kv_heads * dim * kHalf;
  return work;
}

PolicyWork mixed_attention(const MeasuredRow& row) {
  const std::string& what = row.word("what");
  PolicyWork pass{"a pass of a serving engine", {}};
  if (what != "decodes") pass.works.emplace_back(chunk_of(row));
  if (what == "chunk") return pass;
  const double rows = row.number("batch") * row.number("kv_heads"), context = row.number("context");
  graph::DecodeAttention work = decodes(row, rows, rows * context, context);
  work.beside_prompts = what == "fused";
  pass.works.emplace_back(work);
  return pass;
}

// Products of all index heads, ReLU, and their weighted sum, each an operator of PyTorch, sequence by sequence.
PolicyWork scaled_products(const MeasuredRow& row) {
  const double sequences = row.flag("shared") ? 1 : row.number("rows"), rows = row.number("rows") / sequences;
  const double heads = row.number("heads"), tokens = row.number("context"), scores = rows * tokens;
  graph::Gemm products{rows * heads, tokens, row.number("dim")};
  products.weight_bytes = 1, products.products = graph::Products::kFp8;
  graph::Gemm sum{1, tokens, heads};
  sum.groups = rows;
  PolicyWork all{"an indexer without a kernel of its own", {}};
  for (int i = 0; i < static_cast<int>(sequences); ++i) {
    all.works.emplace_back(products);
    all.works.emplace_back(Kernel{KernelClass::kElementwise, kHalf * scores * heads, kHalf * scores * heads});
    all.works.emplace_back(sum);
    all.works.emplace_back(Kernel{KernelClass::kElementwise, kHalf * scores + 4 * tokens, 4 * scores});
    all.works.emplace_back(Kernel{KernelClass::kElementwise, 4 * scores, 4 * scores});
  }
  return all;
}

// Selections and gathers of tokens, as the fits have them.
std::optional<PolicyWork> of_token(const MeasuredRow& row) {
  calibrate::Results one;
  one.rows = {row};
  const std::vector<calibrate::MeasuredOp> cases = calibrate::gpu_cases(one);
  if (cases.empty()) return {};
  if (row.bench != "topk" || !row.words.contains("by")) return PolicyWork{"DSA, HiSparse", {cases.front().op.work}};
  const lower::TopKKernels kernels = lower::torch_topk(std::get<graph::TopK>(cases.front().op.work));
  return PolicyWork{"DSA in PyTorch", {kernels.begin(), kernels.end()}};
}

bool is_power_of_two(double number) { return std::exp2(std::round(std::log2(number))) == number; }

}  // namespace

std::optional<PolicyWork> attention_work(const MeasuredRow& row) {
  constexpr double kOfNoFit = 32768;  // the grid of the fits has no rows of so many scores
  if (row.bench == "ragged_attention") return ragged_attention(row);
  if (row.bench == "mixed_attention") return mixed_attention(row);
  const bool library = row.words.contains("by");
  if (row.bench == "index_scores" && library && row.word("by").starts_with("PyTorch")) return scaled_products(row);
  if (row.bench == "topk") return library || row.number("n") == kOfNoFit ? of_token(row) : std::nullopt;
  const char* const size = row.bench == "hbm_gather"         ? "row_bytes"
                           : row.bench == "zero_copy_gather" ? "piece"
                                                             : nullptr;
  if (size == nullptr || is_power_of_two(row.number(size))) return {};
  return of_token(row);
}

bool is_flash_2(const MeasuredRow& row) {
  const auto by = row.words.find("by");
  return by != row.words.end() && by->second.find("FlashAttention-2") != std::string::npos;
}

hardware::CostModel flash_2_model(const config::Hardware& machine) {
  config::Framework framework;
  framework.launch = config::Framework::Launch::kCompiled;
  framework.attention_kernels = config::Framework::AttentionKernels::kFlash2;
  return {machine, framework};
}

const MeasuredRow* part_of_pass(const calibrate::Results& results, const MeasuredRow& pass, const char* part) {
  const auto same = [&](const MeasuredRow& row) {
    if (row.bench != pass.bench || row.word("what") != part) return false;
    const auto by = pass.words.find("by"), its = row.words.find("by");
    if ((by == pass.words.end()) != (its == row.words.end())) return false;
    if (by != pass.words.end() && by->second != its->second) return false;
    return std::ranges::all_of(row.numbers, [&](const auto& axis) {
      const auto at = pass.numbers.find(axis.first);
      return at != pass.numbers.end() && at->second == axis.second;
    });
  };
  const auto found = std::ranges::find_if(results.rows, same);
  return found == results.rows.end() ? nullptr : &*found;
}

}  // namespace kvcast::validate

// Work stated by policies that search for tokens. Two sequences, 4 query heads on 2 KV heads of 8 numbers: 8 query
// heads and 4 KV heads in all, a key of 16 bytes, 4 bytes a score; prompts of 100 tokens.
#include <catch2/catch.hpp>

#include "unit/policy/two_sequences.hpp"

namespace kvcast::tests {
namespace {

TEST_CASE("SparQ keeps a second copy and a mean, and reads the logits once more for its share") {
  const std::string setting = "budget: 20, dims: 4";
  const auto step = first_step("sparq", setting, {.attended = 21, .scored = 101});
  // A key is read and written; the mean and a value are read, the mean is written.
  check_kernel(step, "append to key copy and mean value", 4 * 16 + 2 * 4 * 16, 4 * 16 + 4 * 16, 0);
  check_kernel(step, "estimate", 4 * 101 * 4 * 2, 8 * 101 * 4, 2 * 8 * 101 * 4);
  check_kernel(step, "mass of selected tokens", 8 * 101 * 4, 8 * 4, 2 * 8 * 101);
  check_kernel(step, "add mean value", (8 + 4) * 16, 8 * 16, 3 * 8 * 8);
  CHECK(held_by("sparq", setting, "second copy of keys") == 3 * 4 * 110 * 16);
  CHECK(held_by("sparq", setting, "mean values") == 3 * 4 * 16);
}

TEST_CASE("Loki rotates queries and the key by one matrix per KV head") {
  // 12 vectors times 8 × 8 matrices; both sequences use the same two.
  const auto step = first_step("loki", "budget: 20", {.attended = 20, .scored = 101});
  check_kernel(step, "rotate query and key", 12 * 16 + 2 * 8 * 16, 12 * 16, 2 * 12 * 8 * 8);
  check_kernel(after_prompt("loki", "budget: 20"), "rotate keys", 400 * 16 + 2 * 8 * 16, 400 * 16, 2 * 400 * 8 * 8);
  CHECK(held_by("loki", "budget: 20", "principal components") == 3 * 2 * 8 * 16);
}

TEST_CASE("squeezed attention reads its centroids twice, and one label per key") {
  const auto step = first_step("squeezed_attention", "", {.attended = 50, .scored = 5, .candidates = 95});
  for (const char* label : {"sum over centroids", "scores of centroids"}) {
    check_kernel(step, label, 4 * 5 * 16, 8 * 5 * 4, 2 * 8 * 5 * 8);
  }
  check_kernel(step, "list keys above threshold", 8 * 5 * 4 + 4 * 95 * 4, 4 * 50 * 4, 4 * 95);
}

TEST_CASE("KIVI packs one pair per list and step: minimum, maximum, scale and rounding") {
  // 2 bits and 4 bytes of scale and minimum a group of 8: 0.75 bytes a number.
  const std::string setting = "quant_group: 8, residual: 8";
  check_kernel(first_step("kivi", setting, {.attended = 101}), "quantise", 4 * 2 * 16, 4 * 2 * 8 * 0.75, 4 * 4 * 2 * 8);
  check_kernel(after_prompt("kivi", setting), "quantise", 400 * 2 * 16, 400 * 2 * 8 * 0.75, 4 * 400 * 2 * 8);
}

TEST_CASE("MagicPIG sends the query and one code per table and query head to the host") {
  // 3 bits in 5 tables: 15 planes.
  const std::string setting = "sink: 4, recent: 4, hash_bits: 3, hash_tables: 5";
  const auto step = first_step("magicpig", setting, {.attended = 8, .cpu_attended = 10, .candidates = 20});
  check_kernel(step, "hash queries", (15 + 8) * 16, 8 * 5 * 4, 0);
  CHECK(kernel(only(step, "hash queries")).blocks == 1);
  CHECK(copy(only(step, "codes and queries")).run_bytes == 8 * (5 * 4 + 16));
}

TEST_CASE("CPU outputs return with their log-sum-exp, and the merge reads both parts") {
  const auto step = first_step("ctkvr", "budget: 20, centroids: 8, sink: 8, recent: 8",
                               {.attended = 16, .cpu_attended = 20, .scored = 8, .candidates = 70});
  CHECK(copy(only(step, "recalled positions and queries")).run_bytes == 4 * 70 * 4 + 8 * 16);
  CHECK(copy(only(step, "outputs of the CPU")).run_bytes == 8 * (16 + 4));
  check_kernel(step, "merge", 2 * 8 * (16 + 4), 8 * 16, 4 * 8 * 8);
}

TEST_CASE("InfiniGen gathers pairs on the CPU and stores those of two layers") {
  const auto step = first_step("infinigen", "", {.attended = 12, .scored = 101, .fetched = 12});
  const auto& gather = std::get<graph::CpuWork>(only(step, "gather pairs").work);
  CHECK(gather.items == 4 * 12);
  CHECK(gather.bytes_per_item == 2 * 2 * 16);  // key and value, read and written
  CHECK(copy(only(step, "fetch pairs")).run_bytes == 4 * 12 * 2 * 16);
  CHECK(held_by("infinigen", "", "fetched pairs", 30) == 2 * 4 * 30 * 2 * 16);
}

TEST_CASE("ShadowKV stores factors, landmarks with their positions and the uncompressed pairs") {
  // 21 chunks of 4 of the 100 tokens precede the local 16; 2 are outliers, 8 are chosen. 12 heads of 3 layers.
  const std::string setting = "budget: 32, page: 4, recent: 16, outliers: 2, rank: 6";
  CHECK(held_by("shadowkv", setting, "landmarks") == 12 * 19 * (16 + 4));
  // 84 rows of 6 numbers a layer and sequence, and a key of each head for each of the 6.
  CHECK(held_by("shadowkv", setting, "low-rank keys") == 6 * 84 * 6 * 2 + 12 * 6 * 16);
  // Chosen, outliers and local part, and ten generated tokens.
  CHECK(held_by("shadowkv", setting, "KV cache") == 12 * 2 * (32 + 8 + 16 + 10) * 16);
  CHECK(held_by("shadowkv", setting, "values in host memory") == 12 * 100 * 16);
}

TEST_CASE("a page backup has separate keys and values in token-major layout, one piece in head-major layout") {
  // 25 pages of 4 tokens in each of two sequences; 2 · 2 · 4 · 16 bytes each.
  const graph::Copy nhd = copy(only(after_prompt("arkvale", "budget: 40, page: 4"), "back up pages"));
  CHECK(nhd.runs == 100);
  CHECK(nhd.run_bytes == 128);
  const graph::Copy hnd = copy(only(after_prompt("freekv", "budget: 40, page: 4"), "back up pages"));
  CHECK(hnd.runs == 50);
  CHECK(hnd.run_bytes == 256);
}

}  // namespace
}  // namespace kvcast::tests

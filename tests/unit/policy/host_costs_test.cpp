// Work stated by policies that search or gather on the host, for shapes small enough to count by hand.
#include <catch2/catch.hpp>

#include <cmath>

#include "policy_parts/vector_index.hpp"
#include "support/ops.hpp"
#include "support/select.hpp"
#include "unit/policy/small_model.hpp"

namespace kvcast::tests {

using namespace policy;

namespace {

constexpr Lengths kHostLengths{400, 20};

Recorder host_decode(const Policy& policy, const HeadCounts& head) {
  static const config::Model model = small_model();
  const std::vector<HeadCounts> heads(4, head);  // two sequences
  Recorder ops;
  policy.decode_layer(EqualBatch(model, 0, 2, {401, kHostLengths}, heads, false), ops);
  REQUIRE(ops.done_op() >= 0);
  return ops;
}

Recorder host_prefill(const Policy& policy, int layer = 0) {
  static const config::Model model = small_model();
  Recorder ops;
  policy.prefill_layer({.model = &model,
                        .layer = layer,
                        .batch = 2,
                        .prompt_tokens = kHostLengths.prompt_tokens,
                        .decode_steps = kHostLengths.decode_steps},
                       ops);
  return ops;
}

const graph::CpuWork& cpu(const graph::Op& op) { return std::get<graph::CpuWork>(op.work); }

TEST_CASE("full attention on the CPU reads the whole cache there and stores none of it on the GPU") {
  // Two sequences of 401 tokens, 2 KV heads, 8 dimensions of 2 bytes; rows of up to 512 tokens are one part each.
  const auto full = make("full", "attention: cpu", kHostLengths);
  const Recorder ops = host_decode(*full, {.cpu_attended = 401});
  const config::Model model = small_model();
  const double group = model.group(), q_heads = model.n_q_heads;
  const graph::CpuWork& work = cpu(only(ops.ops(), "attention on the CPU"));
  CHECK(work.items == 2 * 2);
  CHECK(work.bytes_per_item == 401 * 2 * 16);
  CHECK(work.flops_per_item == 4 * group * 401 * 8);
  CHECK(ops.traffic().d2h == 2 * (q_heads + 2 * 2) * 16);
  CHECK(ops.traffic().h2d == 2 * q_heads * 16);
  CHECK(waits_for(ops.ops(), ops.done_op(), labelled(ops.ops(), "attention on the CPU")[0]));
  CHECK(host_prefill(*full).traffic().d2h == 2 * 2 * 400 * 2 * 16);
  for (const MemoryItem& item : full->memory({&model, 2, 401, kHostLengths, 401})) {
    CHECK(item.bytes == (item.pool == graph::Pool::kDram ? model.layers * 2.0 * 2 * 401 * 2 * 16 : 0));
  }
}

// 8 chunks of 4 tokens chosen, 3 of which are missing.
constexpr HeadCounts kChosen{.attended = 60, .scored = 90, .candidates = 32, .fetched = 12, .fetched_runs = 3};
constexpr const char* kShadow = "budget: 32, page: 4, recent: 16, outliers: 2, rank: 6";

TEST_CASE("ShadowKV's kernels fetch only missing chunks; its operators fetch all selected ones through the CPU") {
  const Recorder kernels = host_decode(*make("shadowkv", kShadow, kHostLengths), kChosen);
  CHECK(kernels.traffic().h2d == 4 * 12 * 16);
  CHECK(copy(only(kernels.ops(), "fetch values")).kind == graph::CopyKind::kZeroCopy);
  CHECK(copy(only(kernels.ops(), "fetch values")).run_bytes == 4 * 16);

  const auto operators = make("shadowkv", std::string(kShadow) + ", runtime: operators", kHostLengths);
  HeadCounts all = kChosen;
  all.fetched = 32, all.fetched_runs = 8;
  const Recorder ops = host_decode(*operators, all);
  const std::vector<graph::Op>& list = ops.ops();
  CHECK(ops.traffic().h2d == 4 * 32 * 16);
  CHECK(copy(only(list, "values")).kind == graph::CopyKind::kPageable);
  // Four heads gather 32 rows of 16 bytes each, in pieces of 4 rows, and write them.
  CHECK(cpu(only(list, "gather values")).items == 4);
  CHECK(cpu(only(list, "gather values")).bytes_per_item == 2 * 32 * 16);
  CHECK(cpu(only(list, "gather values")).unit_bytes == 64);
  CHECK(cpu(only(list, "gather values")).places_per_item == 8);  // of 401 rows
  CHECK(cpu(only(list, "gather values")).region_bytes == 401 * 16);
  // In sequence: positions, values, keys, attention; the model's thread waits for the values.
  CHECK(waits_for(list, labelled(list, "gather values")[0], labelled(list, "token positions")[0]));
  CHECK(waits_for(list, labelled(list, "values")[0], labelled(list, "gather values")[0]));
  CHECK(waits_for(list, labelled(list, "rebuild keys")[0], labelled(list, "wait for the values")[0]));
  CHECK(waits_for(list, ops.done_op(), labelled(list, "rebuild keys")[0]));
  CHECK(std::get<graph::Gemm>(only(list, "rebuild keys").work).m == 4 * 32);
}

TEST_CASE("a library's factorisation is a QR of all rows and a square decomposition per sequence") {
  const auto library = make("shadowkv", std::string(kShadow) + ", factorisation: library", kHostLengths);
  const Recorder ops = host_prefill(*library);
  // 2 sequences of 400 rows, 2·8 columns: 6·m·n² and 20·n³.
  CHECK(kernel(only(ops.ops(), "QR of keys")).flops == 6.0 * 800 * 16 * 16);
  const graph::Kernel& square = kernel(only(ops.ops(), "SVD of the triangle"));
  CHECK(square.flops == 20.0 * 2 * 16 * 16 * 16);
  CHECK(square.cls == graph::KernelClass::kFactorise);
  CHECK(square.unit_bytes == 16 * 4);  // single precision
  CHECK(labelled(host_prefill(*make("shadowkv", kShadow, kHostLengths)).ops(), "SVD of the triangle").empty());
}

TEST_CASE("an index in host memory is copied there, and is on the GPU only after the prompts") {
  const auto staged = make("shadowkv", std::string(kShadow) + ", prompt_index: host", kHostLengths);
  const Recorder ops = host_prefill(*staged);
  // Two sequences: 400 rows of 6 numbers; a head 6 rows of 16 bytes, and 94 of 96 chunks' means with their positions.
  const graph::Copy& index = copy(only(ops.ops(), "factors and landmarks to host"));
  CHECK(index.kind == graph::CopyKind::kPageable);
  CHECK(index.runs * index.run_bytes == 2 * (400 * 12 + 2 * (6 * 16 + 94 * 20)));
  const config::Model model = small_model();
  const auto on_gpu = make("shadowkv", kShadow, kHostLengths);
  for (const std::int64_t tokens : {400, 401}) {
    const auto held = staged->memory({&model, 2, tokens, kHostLengths, 0});
    const auto all = on_gpu->memory({&model, 2, tokens, kHostLengths, 0});
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool staged_item =
          graph::owner_name(all[i].owner) == "low-rank keys" || graph::owner_name(all[i].owner) == "landmarks";
      CHECK(all[i].bytes > 0);
      CHECK(held[i].bytes == (staged_item && tokens == 400 ? 0 : all[i].bytes));
    }
  }
}

TEST_CASE("periodic factorisation costs its share per step") {
  const auto again =
      make("shadowkv", std::string(kShadow) + ", factorisation: library, refactorised_every: 10", kHostLengths);
  const Recorder ops = host_decode(*again, kChosen);
  // A tenth of both sequences' 401 rows.
  CHECK(kernel(only(ops.ops(), "QR of keys")).flops == Approx(0.1 * 6 * 802 * 16 * 16));
  CHECK(kernel(only(ops.ops(), "SVD of the triangle")).flops == Approx(0.1 * 20 * 2 * 16 * 16 * 16));
  CHECK(ops.traffic().d2h == Approx(2 * 2 * 16));  // a token's values a step
  // Generated tokens leave the buffer in whole rounds: of 15, ten.
  const config::Model model = small_model();
  const auto held = [&](const char* more) {
    const auto policy = make("shadowkv", std::string(kShadow) + more, kHostLengths);
    return policy->memory({&model, 1, 415, kHostLengths, 0}).front().bytes;
  };
  CHECK(held("") - held(", refactorised_every: 10") == 3 * 2 * 10 * 32);
}

TEST_CASE("CTkvr's index copies the last queries at once, normalises them and scores all keys by each") {
  const Recorder ops = host_prefill(*make("ctkvr", "budget: 20, centroids: 5, sink: 8, recent: 8", kHostLengths));
  const std::vector<graph::Op>& list = ops.ops();
  // 2 sequences of 4 query heads, 5 centroids each: 40 rows of 8 numbers.
  for (const char* label : {"take centroids", "normalise centroids"}) {
    CHECK(kernel(only(list, label)).read_bytes == 40 * 16);
    CHECK(kernel(only(list, label)).write_bytes == 40 * 16);
  }
  const graph::Kernel& weights = kernel(only(list, "softmax, max over group"));
  CHECK(weights.read_bytes == 40 * 400 * 2);
  CHECK(weights.blocks == 40);
  CHECK(waits_for(list, labelled(list, "centroid scores")[0], labelled(list, "take centroids")[0]));
}

TEST_CASE("CTkvr compares lists pairwise in one block per head, or marks them") {
  const HeadCounts found{.attended = 50, .cpu_attended = 20, .scored = 8, .candidates = 70};
  const std::string setting = "budget: 20, centroids: 8, retrieved_centroids: 4, sink: 8, recent: 8, dedup: ";
  const Recorder marked = host_decode(*make("ctkvr", setting + "hashed", kHostLengths), found);
  CHECK(kernel(only(marked.ops(), "unite lists")).flops == 0);
  const Recorder compared = host_decode(*make("ctkvr", setting + "pairwise", kHostLengths), found);
  // Lists of 50: 4 heads × 6 pairs × 50² comparisons of two operations.
  CHECK(kernel(only(compared.ops(), "unite lists")).flops == 4.0 * 6 * 2500 * 2);
  CHECK(kernel(only(compared.ops(), "unite lists")).blocks == 4);
}

TEST_CASE("CPU attention and gathers state their number of pieces and the size of the table") {
  const HeadCounts found{.attended = 50, .cpu_attended = 20, .scored = 8, .candidates = 70, .fetched = 12};
  const auto check = [](const graph::CpuWork& work, double places, double region) {
    CHECK(work.places_per_item == places);
    CHECK(work.region_bytes == Approx(region));
  };
  // 401 rows of 16 bytes. Keys alone; keys and values.
  const std::string setting = "budget: 20, sink: 8, recent: 8";
  const Recorder ctkvr = host_decode(*make("ctkvr", setting + ", centroids: 8", kHostLengths), found);
  check(cpu(only(ctkvr.ops(), "rerank")), 70, 401 * 16);
  check(cpu(only(ctkvr.ops(), "attention to recalled tokens")), 2 * 20, 2 * 401 * 16);
  check(cpu(only(ctkvr.ops(), "top-k on the CPU")), 0, 0);  // scores are contiguous
  const Recorder magic = host_decode(*make("magicpig", "sink: 8, recent: 8, hash_tables: 5", kHostLengths), found);
  check(cpu(only(magic.ops(), "CPU attention")), 2 * 20, 2 * 401 * 16);
  check(cpu(only(magic.ops(), "look up")), 5,
        5 * 385 * 4 / 2.0);  // ids of 4 bytes of all tokens but 16; two query heads share tables
  // A pair is an item; the 12 of a head share its keys and values.
  const Recorder infinigen = host_decode(*make("infinigen", "", kHostLengths), found);
  check(cpu(only(infinigen.ops(), "gather pairs")), 2, 2 * 401 * 16 / 12.0);
  // An index holds single precision. Edges lead to arbitrary keys; the keys of a list are contiguous.
  const Recorder graph = host_decode(*make("retrieval_attention", setting, kHostLengths), found);
  check(cpu(only(graph.ops(), "search index")), 70, 401 * 32);
  check(cpu(only(graph.ops(), "CPU attention")), 20, 401 * 16);
  const Recorder file = host_decode(*make("retrieval_attention", setting + ", index: ivf", kHostLengths), found);
  check(cpu(only(file.ops(), "search index")), 0, 0);
}

TEST_CASE("RetrievalAttention's graph is built by all cores, and the prompt ends when the last one finishes") {
  const auto policy =
      make("retrieval_attention", "budget: 10, sink: 8, recent: 8, build_scored: 5, degree: 3", kHostLengths);
  const Recorder first = host_prefill(*policy), last = host_prefill(*policy, 2);
  // 384 keys of 4 heads in pieces of 64; 5 vectors of 32 bytes and 3 edges of 4 a key.
  const graph::CpuWork& built = cpu(only(first.ops(), "build graph"));
  CHECK(built.items == 4 * 6);
  CHECK(built.bytes_per_item == 64 * (5 * 32 + 3 * 4));
  CHECK(built.flops_per_item == 2.0 * 64 * 5 * 8);
  CHECK(built.places_per_item == 64 * 5);
  CHECK(built.region_bytes == 384 * 32 / 6);  // six pieces pass over a head's keys
  CHECK(first.ops().back().kind == graph::Kind::kCpuWork);
  CHECK(last.ops().back().kind == graph::Kind::kMarker);
  CHECK(last.ops().back().lane == graph::Lane::kCompute);
}

TEST_CASE("RetrievalAttention's graph follows the neighbours of the configured number of queries") {
  const std::string setting = "budget: 10, sink: 8, recent: 8, degree: 3";
  const Recorder all = host_prefill(*make("retrieval_attention", setting, kHostLengths));
  const Recorder tenth = host_prefill(*make("retrieval_attention", setting + ", build_queries: 0.1", kHostLengths));
  const auto rows = [](const Recorder& ops) {
    return std::get<graph::Gemm>(only(ops.ops(), "nearest keys of the prompt's queries").work).m;
  };
  CHECK(rows(all) == 8 * 400);
  CHECK(rows(tenth) == 8 * 40);
}

TEST_CASE("libraries' indices have the costs of their algorithms") {
  // HNSW over 384 keys, M = 4, beam 10: a beam of 40 keys, a walk down log_4 384 layers of 4, 10·4/2 comparisons to
  // choose, 4² on the way back.
  const double scored = 40 + 4 * std::log(384) / std::log(4) + 20 + 16;
  CHECK(hnsw_scored(384, 4, 10) == Approx(scored));
  CHECK(hnsw_scored(30, 4, 10) == Approx(30 + 4 * std::log(30) / std::log(4) + 20 + 16));  // no more than there are
  // RoarGraph: half of 10·4 edges lead to new keys, and half of 4 chosen ones are compared with each of 10.
  CHECK(roargraph_scored(384, 4, 10) == 20 + 20);
  CHECK(roargraph_scored(15, 4, 10) == 15 + 20);
  const std::string setting = "budget: 10, sink: 8, recent: 8, ";
  const Recorder by_beam =
      host_prefill(*make("retrieval_attention", setting + "degree: 4, build_beam: 10", kHostLengths));
  CHECK(cpu(only(by_beam.ops(), "build graph")).flops_per_item == 2.0 * 64 * 40 * 8);
  const Recorder graph =
      host_prefill(*make("retrieval_attention", setting + "index: hnsw, degree: 4, build_beam: 10", kHostLengths));
  const graph::CpuWork& built = cpu(only(graph.ops(), "build graph"));
  CHECK(built.items == 4 * 6);
  CHECK(built.bytes_per_item == Approx(64 * (scored * 32 + 8 * 4)));
  CHECK(built.flops_per_item == Approx(2 * 64 * scored * 8));

  // An inverted file of 5 lists: three rounds over all 384 keys (fewer than 256 a list), then every key to its list.
  const Recorder file =
      host_prefill(*make("retrieval_attention", setting + "index: ivf, lists: 5, rounds: 3", kHostLengths));
  int rounds = 0;
  for (const graph::Op& op : file.ops()) {
    if (std::string(op.label) != "k-means round") continue;
    ++rounds;
    CHECK(cpu(op).items == 4 * 6);
    CHECK(cpu(op).product_flops_per_item == 2.0 * 64 * 5 * 8);
    CHECK(cpu(op).bytes_per_item == 64 * 32);
  }
  CHECK(rounds == 3);
  CHECK(cpu(only(file.ops(), "keys to their lists")).product_flops_per_item == 2.0 * 64 * 5 * 8);
  // One list trains on 256 of 384 keys: four pieces.
  const Recorder one =
      host_prefill(*make("retrieval_attention", setting + "index: ivf, lists: 1, rounds: 1", kHostLengths));
  CHECK(cpu(only(one.ops(), "k-means round")).items == 4 * 4);
  CHECK(cpu(only(one.ops(), "keys to their lists")).items == 4 * 6);
}

}  // namespace
}  // namespace kvcast::tests

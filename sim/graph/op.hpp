// The operation graph: WORK (bytes, flops, launches, copies, order), never seconds. Policies and lowering write it;
// only hardware/ turns it into time.
#pragma once

#include <boost/container/small_vector.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/owner.hpp"

namespace kvcast::graph {

// Number of an op in its stream of ops, from 0, in the order of creation. An op depends only on earlier ones.
using OpId = std::int64_t;

// A lane runs one op after another: CUDA streams, host threads, the pool of CPU workers.
enum class Lane : std::uint8_t {
  kHost,          // the thread that runs the model
  kRecallThread,  // host thread that issues recalls
  kBackupThread,  // host thread that issues page backups
  kCompute,       // CUDA stream of the model
  kSelect,        // CUDA stream of speculative selection
  kCopyA,         // CUDA copy streams; two, for double buffering
  kCopyB,
  kBackup,  // CUDA stream of device-to-host backups
  kCpu,     // CPU attention workers, used together
};
inline constexpr int kLaneCount = 9;
std::string_view lane_name(Lane lane);

// The purpose of an op: the rows of a step's breakdown.
enum class Kind : std::uint8_t {
  kGemm,        // dense projections and the language-model head
  kAttention,   // attention over the KV pairs that are read
  kSmall,       // norms, RoPE, append, activation, sampling
  kScore,       // estimating which tokens matter
  kTopK,        // selecting them
  kIndex,       // building or updating summaries, centroids, hashes; eviction and compaction
  kCopyIn,      // host to device
  kCopyOut,     // device to host
  kConvert,     // layout conversion of recalled pages
  kLaunch,      // host side of kernel launches, framework overhead
  kSync,        // host waits for the device
  kCpuWork,     // attention, reranking, look-ups on the CPU
  kCollective,  // exchange with the other GPUs that share a layer or follow in the pipeline
  kMarker,      // no work: joins and step boundaries
};
inline constexpr int kKindCount = 14;
std::string_view kind_name(Kind kind);

// Formats of products: 16-bit products run everywhere, the others at the GPU's own rate if it supports them. kFp4: both
// factors have four bits (NVFP4); kMxfp4: weights alone, with FP8 activations.
enum class Products : std::uint8_t { kHalf, kFp8, kInt8, kFp4, kMxfp4 };

// C[m×n] = A[m×k] · B[k×n]; B are weights, read once. element_bytes: of A and C, and of B unless weight_bytes says
// otherwise (a mean, scales included). groups: number of products of this shape in one kernel, each with its own B
// (experts, heads); m is a mean over them.
struct Gemm {
  double m = 0, n = 0, k = 0;
  double element_bytes = 2;
  double weight_bytes = 0;
  double groups = 1;
  Products products = Products::kHalf;
  // bytes of B
  double stored_bytes() const { return groups * n * k * (weight_bytes > 0 ? weight_bytes : element_bytes); }
  bool operator==(const Gemm&) const = default;
};

// Decode attention of `rows` (sequence, KV head) pairs, `group` query heads each. tokens: Σ over rows of KV pairs read;
// longest: the longest row. unit_bytes: contiguous bytes of K (or V) behind one gathered index, 0 = contiguous rows.
// kv_reads multiplies the KV traffic for kernels that read a KV head once per query head or expand it first.
struct DecodeAttention {
  double rows = 0, group = 1, head_dim = 128;
  double tokens = 0, longest = 0;
  double element_bytes = 2;
  double unit_bytes = 0;
  double kv_reads = 1;
  double score_bytes = 0;   // bytes of attention scores written out, 0 = none
  double unpack_flops = 0;  // on the vector units, before the products: unpacks packed pairs
  double converted = 0;     // cached numbers of 8 bits or fewer that are made 16-bit ones before the products
  bool fp8 = false;         // they are FP8 numbers, which a GPU that can multiplies as they are
  double product_dims =
      0;  // multiply-adds per query head and pair; 0: 2 · head_dim, queries with keys and weights with values
  bool warm = false;  // the same KV pairs were just read: those that fit are in the L2
  // A kernel for one query head at a time: the other heads of a group find their KV pairs in the L2.
  bool separate_heads = false;
  // Tiles that a warp of such a kernel takes one after another, and the instructions on each of them; 0: other kernels.
  double serial_tiles = 0, tile_instructions = 0;
  bool unequal = false;         // rows of sequences of different contexts
  bool beside_prompts = false;  // of a pass that also reads prompts
  bool operator==(const DecodeAttention&) const = default;
};

// Attention of a prefill chunk: flops count both products with the causal mask applied.
struct PrefillAttention {
  double flops = 0;
  double read_bytes = 0, write_bytes = 0;
  double kv_bytes = 0;  // part of read_bytes: KV pairs, if this is a product of a decode step
  Products products = Products::kHalf;
  bool operator==(const PrefillAttention&) const = default;
};

// A kernel that streams or gathers, described by its bytes and flops alone. unit_bytes as above. kFactorise: a
// library's decomposition of square matrices, whose steps wait for each other; unit_bytes: bytes of one of their rows,
// in single precision. kConcatenate: appends what it reads to a new tensor, as torch.cat does. kSort: sorts tokens by
// their experts. kScan: a recurrence over prompts, each block of which takes `passes` chunks one after another.
enum class KernelClass : std::uint8_t {
  kElementwise,
  kScore,
  kReduce,
  kGather,
  kConvert,
  kFactorise,
  kConcatenate,
  kSort,
  kScan
};
struct Kernel {
  KernelClass cls = KernelClass::kElementwise;
  double read_bytes = 0, write_bytes = 0;
  double flops = 0;  // on the vector units
  double unit_bytes = 0;
  double blocks = 0;   // thread blocks that its work is split into; 0: enough that the memory alone limits it
  double threads = 0;  // of a block; 0: 512
  double per_sm = 0;   // blocks that an SM holds at the same time; 0: as many as its threads allow
  double passes = 1;   // of a block over what it reads, which comes from a cache after the first
  bool operator==(const Kernel&) const = default;
};

// Selects the k largest of `columns` scores in each of `rows`. passes: additional passes over a row compared with a
// selection that examines eight bits of a score at a time.
struct TopK {
  double rows = 0, columns = 0, k = 0;
  double score_bytes = 4;
  double passes = 1;
  bool operator==(const TopK&) const = default;
};

// An exchange between `ranks` GPUs, this one included, of `bytes` on each: an all-reduce leaves the sum on all of them,
// an all-gather the parts of all, kNext sends them to the next GPU of the pipeline.
enum class Exchange : std::uint8_t { kAllReduce, kAllGather, kNext };
struct Collective {
  Exchange exchange = Exchange::kAllReduce;
  double bytes = 0;
  double ranks = 1;
  bool operator==(const Collective&) const = default;
};

enum class Direction : std::uint8_t { kHostToDevice, kDeviceToHost };
enum class CopyKind : std::uint8_t {
  kMemcpyAsync,  // one call per run, pinned memory
  kMemcpy2D,     // one call per run, each of `rows` short rows
  kBatched,      // one call for all runs
  kZeroCopy,     // a kernel reads pinned host memory
  kPageable,     // one call per run, pageable memory: staged by the driver
};
// `runs` pieces of run_bytes each, contiguous or (2D) of `rows` short rows, issued by the host thread `issuer`.
// in_turn: another stream has copies of this direction at the same time, and the engine serves the two in turn.
struct Copy {
  Direction direction = Direction::kHostToDevice;
  CopyKind kind = CopyKind::kMemcpyAsync;
  double runs = 0, run_bytes = 0;
  double rows = 1;  // rows of one 2D copy
  Lane issuer = Lane::kHost;
  bool in_turn = false;
  bool operator==(const Copy&) const = default;
};

enum class HostCall : std::uint8_t {
  kLaunch,          // one kernel launch from compiled code
  kGraphLaunch,     // one CUDA graph of `count` kernels
  kEagerOp,         // one operator of an eager Python framework
  kEagerLayer,      // Python overhead of one layer
  kStreamSync,      // wait for a stream that has finished
  kItemSync,        // read one scalar from the device
  kPythonPage,      // one page in a Python recall loop
  kPythonHead,      // one head in a Python recall loop
  kTask,            // hand a task to another host thread
  kEngineStep,      // work of a serving engine between two steps
  kEngineSequence,  // the same, for each of `count` sequences
  kPolicyStep,      // the same for a policy
  kEngineLayer,     // Python time of a framework per layer, in addition to kEagerLayer
  kPlanAttention,   // prepare the attention kernel for a number of tokens that no step before had
};
struct HostWork {
  HostCall call = HostCall::kLaunch;
  double count = 1;
  bool operator==(const HostWork&) const = default;
};

// `items` independent pieces of work spread over the CPU workers; each reads bytes from DRAM (in runs of unit_bytes)
// and computes flops, then selects the `kept` largest of `ranked` scores and counts the `looked_up` entries of hash
// `buckets`. places: number of runs or buckets at arbitrary addresses in region_bytes of memory, so that the core has
// to translate their addresses first; the item's own share of a region that several items read from. 0: the data read
// are contiguous. product_flops: of a library's matrix products, whose operands stay in the caches. threads: the
// workers that an operator of a framework wakes; 0: all, for custom code.
struct CpuWork {
  double items = 0, bytes_per_item = 0, flops_per_item = 0;
  double unit_bytes = 256;
  double ranked_per_item = 0, looked_up_per_item = 0, buckets_per_item = 0;
  double product_flops_per_item = 0;
  double threads = 0;
  double kept_per_item = 0;
  double places_per_item = 0, region_bytes = 0;
  bool operator==(const CpuWork&) const = default;
};

struct Marker {
  bool operator==(const Marker&) const = default;
};

using Work =
    std::variant<Marker, Gemm, DecodeAttention, PrefillAttention, Kernel, TopK, Copy, HostWork, CpuWork, Collective>;

// Bytes that an op allocates from a pool when it starts (> 0) or frees when it finishes (< 0).
enum class Pool : std::uint8_t { kHbm, kDram };
struct MemoryDelta {
  Pool pool = Pool::kHbm;
  Owner owner = Owner::kWeights;
  double bytes = 0;
  bool operator==(const MemoryDelta&) const = default;
};

struct Op {
  Kind kind = Kind::kMarker;
  Lane lane = Lane::kCompute;
  std::int16_t layer = -1;  // -1: no layer
  Work work;
  boost::container::small_vector<OpId, 3> after;
  boost::container::small_vector<MemoryDelta, 1> memory;
  const char* label = "";  // static text, for timelines
};

}  // namespace kvcast::graph

// A machine: one GPU, its link and its host, every number with its origin, uncertainty and source.
//
// Read from configs/hardware/NAME.yaml (gpu and link) and configs/hosts/NAME.yaml; configs/README.md explains the keys.
// Numbers that several machines share are kept in configs/{hardware,hosts}/common and read through `include`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/origin.hpp"
#include "base/units.hpp"
#include "config/calibration.hpp"
#include "config/correction.hpp"
#include "config/yaml.hpp"

namespace kvcast::config {

// y over x, ascending x, interpolated linearly in between; outside [first x, last x] the end value applies and the
// result is marked extrapolated (hardware/number.hpp).
struct Curve {
  std::vector<double> x, y;
  Origin origin = Origin::kAssumed;
  double uncertainty = 0;
  std::string source;
};

// Parameters of a decode-attention kernel; hardware/kernels.cpp derives its time from these.
struct AttentionKernel {
  Value floor;         // seconds; see Gpu
  Value merge;         // additional seconds if rows are split: their partial results are merged
  Value l2_bandwidth;  // B/s for data in the L2
  Value efficiency;    // fraction of hbm_bandwidth on long contexts
  Value tile;          // KV tokens processed together
  Value padding;       // share of a row's incomplete last tile that is read as well
  Value part;          // KV tokens: rows are split into parts of at least this many ...
  Value parts;         // ... until there are this many parts per SM
  Value tile_time;     // seconds per tile as seen by one SM that nothing else limits
  Value overlap;  // exponent p: work of t1 and t2 seconds takes (t1^p + t2^p)^(1/p); 1: no overlap, large: full overlap
  Curve row;      // minimum seconds that part of a row occupies an SM, over query heads per KV head
};

// A floor is the minimum time of a kernel of a class, excluding that of an empty kernel; the gap is the time from one
// empty kernel to the next. A kernel takes gap + floor + its work.
struct Gpu {
  Value hbm_capacity;   // bytes
  Value hbm_reserved;   // bytes that CUDA context, kernels and framework take before any tensor
  Value hbm_bandwidth;  // B/s, as stated by the manufacturer
  Value tensor_flops;   // FLOP/s, fp16 dense with fp32 accumulation
  Value vector_flops;   // FLOP/s, fp32
  Value fp8_rate, int8_rate,
      fp4_rate;  // rates relative to tensor_flops; at most 1: weights are unpacked to 16 bits
  Value sm_count;
  Value clock;        // Hz, under load
  Value floor_clock;  // Hz at which floors and topk_row were established: they scale with floor_clock / clock
  Value floor_gemm, floor_score, floor_topk, floor_small;  // seconds
  Value gap_stream, gap_graph;                             // seconds, in a stream and in a CUDA graph
  Value stream_efficiency;                                 // fraction of hbm_bandwidth that streaming kernels reach
  Value mixed_efficiency;    // share of that rate of a kernel that writes as many bytes as it reads
  Value memory_ramp;         // seconds that a large transfer loses while it reaches its rate and while it drains
  Value convert_efficiency;  // fraction of the streaming rate that layout conversions reach
  Value score_efficiency{1, Origin::kAssumed, 0, ""};  // the same of kernels that score keys or pages
  Value vector_efficiency;                             // fraction of vector_flops
  Value block_bandwidth;                               // B/s that a thread block of 512 threads moves
  // Cached numbers of 8 bits or fewer that attention makes 16-bit ones, per clock and SM.
  Value convert_rate{8, Origin::kAssumed, 0, ""};
  Value l2_capacity;         // bytes
  Value prefill_efficiency;  // fraction of tensor_flops in attention
  Value flash2_efficiency;   // the same for FlashAttention-2, whose products are mma.sync
  // Share of tensor_flops that remains over prompts of four seconds and more (hardware/sustained.hpp).
  Value sustained_rate{1, Origin::kAssumed, 0, ""};
  // Factor on decode attention whose sequences have different contexts, for the same sum.
  Value unequal_contexts{1, Origin::kAssumed, 0, ""};
  // Share of a group's query heads, beyond the first, that read the keys and values again in a pass which also reads
  // prompts: FlashAttention-2's kernel for unequal lengths packs no heads; Hopper's does.
  Value mixed_pass_rereads{0, Origin::kAssumed, 0, ""};
  Value gemm_overlap;  // exponent p of the overlap of a GEMM's memory traffic and products
  // share of gemm_memory_efficiency lost at 64 rows and more; fewer rows lose in proportion to their logarithm
  Value gemm_row_loss;
  // Rows that a matrix product instruction takes at least; fewer take as long.
  Value gemm_rows{16, Origin::kLiterature, 0, "PTX ISA, mma.sync: 16 rows (m16n8k16)"};
  Value gemm_tile;                // rows and columns of the output that one SM computes at a time
  Value topk_pick;                // seconds for each selected entry of a row
  Curve gemm_memory_efficiency;   // fraction of hbm_bandwidth, over bytes of weights
  Curve gemm_compute_efficiency;  // fraction of tensor_flops, over output tiles per SM
  Curve gather_efficiency;        // fraction of the rate of contiguous reads, over contiguous bytes of a piece
  Curve topk_row;                 // seconds over columns: one row on one SM, without the picking of its entries
  Curve factorise_rate;  // FLOP/s over columns: singular value decomposition of a square matrix, at floor_clock
  AttentionKernel attention;
  // The kernel for query heads that each have their own KV head (MHA), if a framework runs another kernel there.
  std::optional<AttentionKernel> attention_mha;
  std::optional<AttentionCorrection> attention_correction;  // applied to the modelled time of either kernel
  KernelRange range;

  const AttentionKernel& attention_of(double group) const {  // query heads per KV head
    return group == 1 && attention_mha ? *attention_mha : attention;
  }
};

struct Link {
  Value theory_bandwidth;              // B/s of one direction: lanes · rate · coding; an upper limit for all others
  Value h2d_bandwidth, d2h_bandwidth;  // B/s, pinned, large copies, one direction busy
  Value both_bandwidth;                // B/s in total with both directions busy
  // Share of both_bandwidth that goes to the device; 0: each direction keeps the same share of its own rate.
  Value both_h2d_share;
  Value pageable_bandwidth;  // B/s at which the driver stages pageable memory
  // B/s that a GPU receives from others over their own link while all of them exchange; 0: they have none.
  Value peer_bandwidth;
  Value peer_share;            // fraction of h2d_bandwidth that it receives over the host link while all exchange
  Value peer_latency;          // minimum seconds of a round of an exchange between GPUs, in addition to a kernel's
  Value copy_latency;          // seconds from the start of the first of several copies to its first byte
  Value load_latency;          // seconds from a kernel's first load of host memory to its data
  Value issue_2d;              // additional seconds of host time of a 2D copy's call
  Value issue_row;             // additional seconds of host time for each row of a 2D copy
  Value engine_d2h_ratio;      // engine_piece of copies to the host over that of copies to the device
  Value engine_row;            // least seconds of the copy engine for each row of a 2D copy
  Value engine_batched;        // least seconds of the copy engine for each piece of a batched call
  Value engine_turn;           // additional seconds of the engine for each copy while it serves two streams in turn
  Curve issue_call;            // seconds of host time of one asynchronous copy call, over its bytes
  Curve issue_batched;         // seconds of host time for each piece of a batched call, over its bytes
  Curve engine_piece;          // seconds in which the copy engine starts a copy to the device, over its bytes
  Curve zero_copy_efficiency;  // fraction of the direction's bandwidth, over contiguous bytes of a piece
};

struct Host {
  std::string name;  // name of the file; "inline" if there is none
  std::string title;
  Value cores;
  Value dram_capacity, pinned_fraction;  // bytes; share that may be pinned
  Value dram_bandwidth;                  // B/s that cores and DMA together reach
  Value core_flops;                      // FLOP/s of one core alone, dot products
  Value core_products;                   // FLOP/s of one core alone, matrix products of a library
  Value all_core_derate;                 // rate of a core with all cores busy relative to one alone
  Value dispatch;                        // seconds to fork and join all workers
  Curve core_bandwidth;                  // B/s of one core alone, over contiguous bytes of a gathered piece
  Value core_translation;                // seconds per line of page tables that a core's gathers fetch
  Value core_rank;                       // seconds per score among which one core selects the largest ...
  Value core_rank_again;                 // ... and per score that it passes over once more (entropy of kept or not)
  Value core_lookup;                     // seconds per entry of a hash bucket that one core counts
  Value core_bucket;                     // seconds until one core has reached a bucket
  // Seconds per call; see graph::HostCall.
  Value launch, graph_launch, graph_node, eager_op, eager_layer, stream_sync, item_sync, python_page, python_head, task;
  std::vector<Calibration> calibrations;
};

// A number of a machine that differs from the profile of its name.
struct MachineChange {
  std::string key;          // "gpu.hbm_capacity"; also "host", "link.pcie" and "like.uncertainty"
  std::string value, base;  // as text: "282 GB" instead of "141 GB"; a factor of a curve: "x2" instead of ""
  std::string follows;      // the key that it moved with; empty where the run sets it
  std::string rule;         // why it moved, in one sentence; empty where the run sets it
};

// Provenance of a GPU's kernel times.
enum class TimesOrigin : unsigned char {
  kFitted,   // its profile, or that of the same chip, was fitted to measured kernels
  kDerived,  // taken over from a fitted GPU of the same architecture, scaled by its physical quantities
  kNone,     // from a GPU of another architecture, or from single published numbers
};

struct Hardware {
  std::string name;                  // name of the file, with any changes: "h200 (gpu.hbm_capacity 282 GB)"
  std::string title;                 // as commonly written
  std::vector<std::string> aliases;  // other names, and "device/framework" under which measurements were published
  Gpu gpu;
  Link link;
  Host host;
  std::vector<Calibration> calibrations;  // those of the GPU
  TimesOrigin fit = TimesOrigin::kFitted;
  std::string derived_from;  // profile that the numbers are taken over from; empty if there is none
  // changes by a run: those that it sets in the order of knobs(), then what moved with them
  std::vector<MachineChange> changes = {};
};

// "fitted", "no fit: derived from h200" or "no fit: published numbers alone".
std::string fit_text(const Hardware& hardware);

// Every number of a machine by its dotted key ("gpu.hbm_bandwidth"); exactly one of value and curve is set.
template <typename AValue, typename ACurve>
struct BasicKnob {
  std::string key;
  AValue* value = nullptr;
  ACurve* curve = nullptr;
  Dimension x = Dimension::kNone, y = Dimension::kNone;  // units; x of a curve only
  double low = 0, high = 0;                              // range of the value, or of the curve's y
};
using Knob = BasicKnob<Value, Curve>;
using ConstKnob = BasicKnob<const Value, const Curve>;
std::vector<Knob> knobs(Hardware& hardware);
std::vector<ConstKnob> knobs(const Hardware& hardware);
Knob knob_of(Hardware& hardware, std::string_view key);  // aborts if no number has this key

// All inputs of a prediction, as text: equal machines give equal text whatever files they were read from. The key of
// results.
std::string canonical(const Hardware& hardware);

// Throws UserError for missing or unknown keys, values out of range, curves that do not ascend in x, and rates beyond
// physical limits: efficiencies above 1, copies above the link's theoretical bandwidth, both directions together slower
// than one or faster than their sum. Files that have not changed since the last call are not read again.
Hardware read_hardware(const std::string& path);

// Reads `hardware:` of a run: a name or path, or a machine that is like a named one except for some numbers:
//
//   hardware:
//     like: h200                            # or {name: h200, uncertainty: 15 %}, as in a profile
//     gpu: {hbm_capacity: 282 GB}           # a quantity,
//     link: {h2d_bandwidth: x2}             # a factor of the profile's value,
//     host: {like: xeon-8570, cores: 64}    # another host; or {cores: 64} of the same one, or a name
//
// A number may also be {value: 282 GB, origin: .., uncertainty: .., source: ..} and a curve {points: [[x, y], ..], ..},
// both with any of these keys; `link.pcie: {generation: 6, lanes: 16}` sets the theoretical bandwidth. Numbers that are
// tied to a changed one and are not set themselves move with it (ties.hpp); `changes` lists all of this. Without
// an origin of its own a number is assumed; without an uncertainty it has that of `like`, if stated, otherwise that of
// the number that it replaces. Throws UserError, at the text that sets the number, as for files.
Hardware read_hardware(const Node& choice);

// Reads the host of a machine by itself, a file like those of configs/hosts. Throws UserError as read_hardware does.
Host read_host(const std::string& path);

// Returns the name of the machine in such a choice, which read_hardware accepts, before any number of it is changed.
const Node& machine_name(const Node& choice);

}  // namespace kvcast::config

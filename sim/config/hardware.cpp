// A table a struct says how each key is read; the same tables list the knobs. A profile is laid over the files that it
// includes, key by key, before anything is read, so that every number keeps the place where it is written.

#include "config/hardware.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <span>

#include "config/host.hpp"
#include "config/include.hpp"
#include "config/run.hpp"
#include "config/section.hpp"

namespace kvcast::config {
namespace {

constexpr double kHuge = 1e18;

template <typename Owner>
struct ValueField {
  const char* key;
  Value Owner::*member;
  Dimension dimension;
  double low, high;
};

template <typename Owner>
struct CurveField {
  const char* key;
  Curve Owner::*member;
  Dimension x, y;
  double low, high;  // of y
};

using enum Dimension;

constexpr ValueField<Gpu> kGpuValues[] = {
    {"hbm_capacity", &Gpu::hbm_capacity, kBytes, 1e6, kHuge},
    {"hbm_reserved", &Gpu::hbm_reserved, kBytes, 0, kHuge},
    {"hbm_bandwidth", &Gpu::hbm_bandwidth, kBytesPerSecond, 1e9, kHuge},
    {"tensor_flops", &Gpu::tensor_flops, kFlopPerSecond, 1e9, kHuge},
    {"vector_flops", &Gpu::vector_flops, kFlopPerSecond, 1e9, kHuge},
    {"sm_count", &Gpu::sm_count, kNone, 1, 1e5},
    {"clock", &Gpu::clock, kHertz, 1e6, 1e11},
    {"floor_clock", &Gpu::floor_clock, kHertz, 1e6, 1e11},
    {"floor_gemm", &Gpu::floor_gemm, kSeconds, 0, 1},
    {"floor_score", &Gpu::floor_score, kSeconds, 0, 1},
    {"floor_topk", &Gpu::floor_topk, kSeconds, 0, 1},
    {"floor_small", &Gpu::floor_small, kSeconds, 0, 1},
    {"gap_stream", &Gpu::gap_stream, kSeconds, 0, 1},
    {"gap_graph", &Gpu::gap_graph, kSeconds, 0, 1},
    {"stream_efficiency", &Gpu::stream_efficiency, kFraction, 1e-3, 1},
    {"convert_efficiency", &Gpu::convert_efficiency, kFraction, 1e-3, 1},
    {"vector_efficiency", &Gpu::vector_efficiency, kFraction, 1e-3, 1},
    {"l2_capacity", &Gpu::l2_capacity, kBytes, 1e5, kHuge},
    {"prefill_efficiency", &Gpu::prefill_efficiency, kFraction, 1e-3, 1},
    {"gemm_overlap", &Gpu::gemm_overlap, kNone, 1, 100},
    {"gemm_row_loss", &Gpu::gemm_row_loss, kFraction, 0, 0.9},
    {"gemm_tile", &Gpu::gemm_tile, kNone, 1, 1e5},
    {"topk_pick", &Gpu::topk_pick, kSeconds, 0, 1},
};
constexpr CurveField<Gpu> kGpuCurves[] = {
    {"gemm_memory_efficiency", &Gpu::gemm_memory_efficiency, kBytes, kFraction, 1e-3, 1},
    {"gemm_compute_efficiency", &Gpu::gemm_compute_efficiency, kNone, kFraction, 1e-3, 1},
    {"gather_efficiency", &Gpu::gather_efficiency, kBytes, kFraction, 1e-3, 1},
    {"topk_row", &Gpu::topk_row, kNone, kSeconds, 0, 10},
    {"factorise_rate", &Gpu::factorise_rate, kNone, kFlopPerSecond, 1e6, kHuge},
};
constexpr ValueField<AttentionKernel> kAttentionValues[] = {
    {"floor_attention", &AttentionKernel::floor, kSeconds, 0, 1},
    {"attention_merge", &AttentionKernel::merge, kSeconds, 0, 1},
    {"l2_bandwidth", &AttentionKernel::l2_bandwidth, kBytesPerSecond, 1e9, kHuge},
    {"attention_efficiency", &AttentionKernel::efficiency, kFraction, 1e-3, 1},
    {"attention_tile", &AttentionKernel::tile, kNone, 1, 1e5},
    {"attention_padding", &AttentionKernel::padding, kFraction, 0, 1},
    {"attention_part", &AttentionKernel::part, kNone, 1, 1e6},
    {"attention_parts", &AttentionKernel::parts, kNone, 0.01, 1e3},
    {"attention_tile_time", &AttentionKernel::tile_time, kSeconds, 0, 1},
    {"attention_overlap", &AttentionKernel::overlap, kNone, 1, 100},
};
constexpr CurveField<AttentionKernel> kAttentionCurves[] = {
    {"attention_row", &AttentionKernel::row, kNone, kSeconds, 0, 1},
};
constexpr ValueField<Link> kLinkValues[] = {
    {"theory_bandwidth", &Link::theory_bandwidth, kBytesPerSecond, 1e6, kHuge},
    {"h2d_bandwidth", &Link::h2d_bandwidth, kBytesPerSecond, 1e6, kHuge},
    {"d2h_bandwidth", &Link::d2h_bandwidth, kBytesPerSecond, 1e6, kHuge},
    {"both_bandwidth", &Link::both_bandwidth, kBytesPerSecond, 1e6, kHuge},
    {"pageable_bandwidth", &Link::pageable_bandwidth, kBytesPerSecond, 1e6, kHuge},
    {"copy_latency", &Link::copy_latency, kSeconds, 0, 1},
    {"issue_row", &Link::issue_row, kSeconds, 0, 1},
    {"issue_batched", &Link::issue_batched, kSeconds, 0, 1},
    {"engine_row", &Link::engine_row, kSeconds, 0, 1},
};
constexpr CurveField<Link> kLinkCurves[] = {
    {"issue_call", &Link::issue_call, kBytes, kSeconds, 0, 1},
    {"engine_piece", &Link::engine_piece, kBytes, kSeconds, 0, 10},
    {"zero_copy_efficiency", &Link::zero_copy_efficiency, kBytes, kFraction, 1e-3, 1},
};
constexpr ValueField<Host> kHostValues[] = {
    {"cores", &Host::cores, kNone, 1, 1e5},
    {"dram_capacity", &Host::dram_capacity, kBytes, 1e6, kHuge},
    {"pinned_fraction", &Host::pinned_fraction, kFraction, 0, 1},
    {"dram_bandwidth", &Host::dram_bandwidth, kBytesPerSecond, 1e8, kHuge},
    {"core_flops", &Host::core_flops, kFlopPerSecond, 1e6, kHuge},
    {"core_products", &Host::core_products, kFlopPerSecond, 1e6, kHuge},
    {"core_translation", &Host::core_translation, kSeconds, 0, 1},
    {"core_rank", &Host::core_rank, kSeconds, 0, 1},
    {"core_rank_again", &Host::core_rank_again, kSeconds, 0, 1},
    {"core_lookup", &Host::core_lookup, kSeconds, 0, 1},
    {"core_bucket", &Host::core_bucket, kSeconds, 0, 1},
    {"all_core_derate", &Host::all_core_derate, kFraction, 1e-3, 1},
    {"dispatch", &Host::dispatch, kSeconds, 0, 1},
    {"launch", &Host::launch, kSeconds, 0, 1},
    {"graph_launch", &Host::graph_launch, kSeconds, 0, 1},
    {"graph_node", &Host::graph_node, kSeconds, 0, 1},
    {"eager_op", &Host::eager_op, kSeconds, 0, 1},
    {"eager_layer", &Host::eager_layer, kSeconds, 0, 1},
    {"stream_sync", &Host::stream_sync, kSeconds, 0, 1},
    {"item_sync", &Host::item_sync, kSeconds, 0, 1},
    {"python_page", &Host::python_page, kSeconds, 0, 1},
    {"python_head", &Host::python_head, kSeconds, 0, 1},
    {"task", &Host::task, kSeconds, 0, 1},
};
constexpr CurveField<Host> kHostCurves[] = {
    {"core_bandwidth", &Host::core_bandwidth, kBytes, kBytesPerSecond, 1e6, kHuge},
};

// {points: [[x, y], ...], origin: literature, uncertainty: 20 %, source: "..."}, x ascending.
template <typename Owner>
Curve read_curve(Section& section, const CurveField<Owner>& field) {
  Section entry = section.section(field.key, field.key);
  Curve curve;
  const Node points = entry.node("points");
  if (points.kind() != Node::Kind::kList || points.items().empty()) {
    throw UserError(points.where(), fmt::format("{}: points must be a list of [x, y] pairs", field.key));
  }
  for (const Node& point : points.items()) {
    if (point.kind() != Node::Kind::kList || point.items().size() != 2) {
      throw UserError(point.where(), fmt::format("{}: a point is a pair [x, y]", field.key));
    }
    const double x = read_quantity(point.items()[0], field.key, field.x, 0, kHuge);
    if (!curve.x.empty() && x <= curve.x.back()) {
      throw UserError(point.where(), fmt::format("{}: points must ascend in x", field.key));
    }
    curve.x.push_back(x);
    curve.y.push_back(read_quantity(point.items()[1], field.key, field.y, field.low, field.high));
  }
  curve.origin =
      origin_from_name(entry.choice("origin", {"exact", "measured", "fitted", "literature", "datasheet", "assumed"}));
  curve.uncertainty = entry.quantity("uncertainty", kFraction, 0, 10);
  curve.source = entry.text("source");
  entry.finish();
  return curve;
}

template <typename Owner>
void add_keys(std::vector<std::string_view>& keys, std::span<const ValueField<Owner>> values,
              std::span<const CurveField<Owner>> curves) {
  for (const auto& field : values) keys.emplace_back(field.key);
  for (const auto& field : curves) keys.emplace_back(field.key);
}

template <typename Owner>
void read_fields(Section& section, Owner& owner, std::span<const ValueField<Owner>> values,
                 std::span<const CurveField<Owner>> curves) {
  std::vector<std::string_view> keys;
  add_keys(keys, values, curves);
  section.require(keys);
  for (const auto& field : values) {
    owner.*field.member = section.value(field.key, field.dimension, field.low, field.high);
  }
  for (const auto& field : curves) owner.*field.member = read_curve(section, field);
}

template <typename Owner>
void list_knobs(std::vector<Knob>& knobs, const std::string& prefix, Owner& owner,
                std::span<const ValueField<Owner>> values, std::span<const CurveField<Owner>> curves) {
  for (const auto& field : values) {
    knobs.push_back({prefix + field.key, &(owner.*field.member), nullptr, Dimension::kNone, field.dimension});
  }
  for (const auto& field : curves) {
    knobs.push_back({prefix + field.key, nullptr, &(owner.*field.member), field.x, field.y});
  }
}

[[noreturn]] void unphysical(const Section& section, std::string_view key, const std::string& why) {
  throw UserError(section.where(key), fmt::format("{}: {}", key, why));
}

void guard(const Section& section, const Gpu& gpu) {
  if (gpu.hbm_reserved >= gpu.hbm_capacity) unphysical(section, "hbm_reserved", "leaves no device memory");
  if (gpu.gap_graph > gpu.gap_stream) {
    unphysical(section, "gap_graph", "kernels in a CUDA graph cannot be further apart than in a stream");
  }
}

void guard(const Section& section, const Gpu& gpu, const AttentionKernel& kernel) {
  const auto rate = [](double value) { return format_quantity(value, kBytesPerSecond); };
  if (kernel.l2_bandwidth < gpu.hbm_bandwidth) {
    unphysical(section, "l2_bandwidth",
               fmt::format("{} is less than hbm_bandwidth ({})", rate(kernel.l2_bandwidth), rate(gpu.hbm_bandwidth)));
  }
}

void guard(const Section& section, const Link& link) {
  const auto rate = [](double value) { return format_quantity(value, kBytesPerSecond); };
  const auto below = [&](std::string_view key, double value, double limit, std::string_view what) {
    if (value > limit) unphysical(section, key, fmt::format("{} is more than {} ({})", rate(value), what, rate(limit)));
  };
  below("h2d_bandwidth", link.h2d_bandwidth, link.theory_bandwidth, "theory_bandwidth");
  below("d2h_bandwidth", link.d2h_bandwidth, link.theory_bandwidth, "theory_bandwidth");
  below("pageable_bandwidth", link.pageable_bandwidth, std::max<double>(link.h2d_bandwidth, link.d2h_bandwidth),
        "pinned copies reach");
  below("both_bandwidth", link.both_bandwidth, link.h2d_bandwidth + link.d2h_bandwidth,
        "h2d_bandwidth and d2h_bandwidth together");
  if (link.both_bandwidth < std::max<double>(link.h2d_bandwidth, link.d2h_bandwidth)) {
    unphysical(section, "both_bandwidth",
               fmt::format("{} is less than one direction alone ({})", rate(link.both_bandwidth),
                           rate(std::max<double>(link.h2d_bandwidth, link.d2h_bandwidth))));
  }
}

void guard(const Section& section, const Host& host) {
  const double fastest = *std::max_element(host.core_bandwidth.y.begin(), host.core_bandwidth.y.end());
  if (fastest > host.dram_bandwidth) {
    unphysical(section, "core_bandwidth", "one core cannot read faster than dram_bandwidth");
  }
}

void read_attention(Section& section, const Gpu& gpu, AttentionKernel& kernel) {
  read_fields<AttentionKernel>(section, kernel, kAttentionValues, kAttentionCurves);
  guard(section, gpu, kernel);
}

void read_gpu(Section& section, Gpu& gpu) {
  std::vector<std::string_view> keys;
  add_keys<Gpu>(keys, kGpuValues, kGpuCurves);
  add_keys<AttentionKernel>(keys, kAttentionValues, kAttentionCurves);
  section.require(keys);
  read_fields<Gpu>(section, gpu, kGpuValues, kGpuCurves);
  read_attention(section, gpu, gpu.attention);
  if (section.has("attention_mha")) {
    Section mha = section.section("attention_mha", "attention_mha");
    read_attention(mha, gpu, gpu.attention_mha.emplace());
    mha.finish();
  }
  if (section.has("attention_correction")) {
    Section correction = section.section("attention_correction", "attention_correction");
    gpu.attention_correction = read_attention_correction(correction);
  }
  gpu.range = read_range(section);
  section.finish();
  guard(section, gpu);
}

Host read_host(const Node& map, std::string name) {
  Section section(with_includes(map, "hosts/common", {}), "host");
  Host host;
  host.name = std::move(name);
  host.title = section.text("title");
  read_fields<Host>(section, host, kHostValues, kHostCurves);
  host.calibrations = read_calibrations(section);
  section.finish();
  guard(section, host);
  return host;
}

// Is the knob of that key ("gpu.attention_mha.attention_row") written in this map?
bool writes(const Node& map, std::string_view key) {
  const std::size_t dot = key.find('.');
  const Node* below = map.find(key.substr(0, dot));
  if (below == nullptr || dot == std::string_view::npos) return below != nullptr;
  return writes(*below, key.substr(dot + 1));
}

// What a machine takes over from the one that it is like was established there, and is assumed of this one. Its host is
// a machine that exists.
void assume_rest(Hardware& hardware, const Likeness& like) {
  const auto assume = [&like](auto& number) {
    if (number.origin == Origin::kExact) return;
    number.source = fmt::format("as {}: {}", like.name, number.source);
    number.origin = worse(number.origin, Origin::kAssumed);
    number.uncertainty = std::max(number.uncertainty, like.uncertainty);
  };
  for (Knob& knob : knobs(hardware)) {
    if (knob.key.starts_with("host.") || writes(like.own, knob.key)) continue;
    if (knob.value != nullptr) assume(*knob.value);
    if (knob.curve != nullptr) assume(*knob.curve);
  }
}

// `host: NAME` is a file under configs/hosts, `host: {...}` the host itself.
Host host_of(Section& section) {
  const Node node = section.node("host");
  if (node.kind() == Node::Kind::kMap) return read_host(node, "inline");
  return config::read_host(find_config("hosts", read_text(node, "host"), node.where()));
}

}  // namespace

std::vector<Knob> knobs(Hardware& hardware) {
  std::vector<Knob> all;
  Gpu& gpu = hardware.gpu;
  list_knobs<Gpu>(all, "gpu.", gpu, kGpuValues, kGpuCurves);
  list_knobs<AttentionKernel>(all, "gpu.", gpu.attention, kAttentionValues, kAttentionCurves);
  if (gpu.attention_mha) {
    list_knobs<AttentionKernel>(all, "gpu.attention_mha.", *gpu.attention_mha, kAttentionValues, kAttentionCurves);
  }
  list_knobs<Link>(all, "link.", hardware.link, kLinkValues, kLinkCurves);
  list_knobs<Host>(all, "host.", hardware.host, kHostValues, kHostCurves);
  return all;
}

std::string canonical(const Hardware& hardware) {
  Hardware copy = hardware;  // knobs are for turning; nothing is turned here
  std::string text = fmt::format("{}\n{}\n{}", copy.title, copy.host.title, canonical(copy.gpu.range));
  if (copy.gpu.attention_correction) text += canonical(*copy.gpu.attention_correction);
  for (const Knob& knob : knobs(copy)) {
    text += knob.key;
    const auto rests_on = [&](Origin origin, double uncertainty, const std::string& source) {
      text += fmt::format(" {} {} {}\n", origin_name(origin), uncertainty, source);
    };
    if (knob.value != nullptr) {
      text += fmt::format(" {}", knob.value->value);
      rests_on(knob.value->origin, knob.value->uncertainty, knob.value->source);
    } else {
      for (std::size_t i = 0; i < knob.curve->x.size(); ++i) {
        text += fmt::format(" {}:{}", knob.curve->x[i], knob.curve->y[i]);
      }
      rests_on(knob.curve->origin, knob.curve->uncertainty, knob.curve->source);
    }
  }
  return text;
}

Host read_host(const std::string& path) {
  return read_host(load_yaml(path), std::filesystem::path(path).stem().string());
}

Hardware read_hardware(const std::string& path) {
  const Node file = with_includes(load_yaml(path), "hardware/common", {"gpu", "link"});
  const std::optional<Likeness> like = likeness(file);
  Section section(like ? like->whole : file, "hardware profile");
  Hardware hardware;
  hardware.name = std::filesystem::path(path).stem().string();
  hardware.title = section.text("title");
  hardware.aliases = section.texts("aliases", {});
  Section gpu = section.section("gpu", "gpu");
  read_gpu(gpu, hardware.gpu);
  Section link = section.section("link", "link");
  read_fields<Link>(link, hardware.link, kLinkValues, kLinkCurves);
  link.finish();
  guard(link, hardware.link);
  hardware.host = host_of(section);
  hardware.calibrations = read_calibrations(section);
  section.finish();
  if (like) assume_rest(hardware, *like);
  return hardware;
}

}  // namespace kvcast::config

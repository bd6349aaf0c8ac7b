#include "config/physics.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace kvcast::config {
namespace {

std::string rate(double value) { return format_quantity(value, Dimension::kBytesPerSecond); }

std::optional<Contradiction> slower_than_memory(const Gpu& gpu, const AttentionKernel& kernel, const char* key) {
  if (kernel.l2_bandwidth >= gpu.hbm_bandwidth) return {};
  return Contradiction{
      key, "gpu.hbm_bandwidth",
      fmt::format("{} is less than hbm_bandwidth ({})", rate(kernel.l2_bandwidth), rate(gpu.hbm_bandwidth))};
}

}  // namespace

std::optional<Contradiction> contradiction(const Gpu& gpu) {
  if (auto found = slower_than_memory(gpu, gpu.attention, "gpu.l2_bandwidth")) return found;
  if (gpu.attention_mha) {
    if (auto found = slower_than_memory(gpu, *gpu.attention_mha, "gpu.attention_mha.l2_bandwidth")) return found;
  }
  if (gpu.hbm_reserved >= gpu.hbm_capacity) {
    return Contradiction{"gpu.hbm_reserved", "gpu.hbm_capacity", "leaves no device memory"};
  }
  if (gpu.gap_graph > gpu.gap_stream) {
    return Contradiction{"gpu.gap_graph", "gpu.gap_stream",
                         "kernels in a CUDA graph cannot be further apart than in a stream"};
  }
  return {};
}

std::optional<Contradiction> contradiction(const Link& link) {
  constexpr double kLeastPeer = 1e6;  // B/s, as of any other link
  if (link.peer_bandwidth > 0 && link.peer_bandwidth < kLeastPeer) {
    return Contradiction{"link.peer_bandwidth", "link.peer_bandwidth",
                         fmt::format("{} is less than {}; 0 if the GPUs have no link of their own",
                                     rate(link.peer_bandwidth), rate(kLeastPeer))};
  }
  const double h2d = link.h2d_bandwidth, d2h = link.d2h_bandwidth, both = link.both_bandwidth;
  const auto above = [](const char* key, double value, const char* bound, double limit, std::string_view what) {
    if (value <= limit) return std::optional<Contradiction>();
    return std::optional(
        Contradiction{key, bound, fmt::format("{} is more than {} ({})", rate(value), what, rate(limit))});
  };
  const char* const theory = "link.theory_bandwidth";
  if (auto found = above("link.h2d_bandwidth", h2d, theory, link.theory_bandwidth, "theory_bandwidth")) return found;
  if (auto found = above("link.d2h_bandwidth", d2h, theory, link.theory_bandwidth, "theory_bandwidth")) return found;
  const char* const faster = h2d >= d2h ? "link.h2d_bandwidth" : "link.d2h_bandwidth";
  if (auto found = above("link.pageable_bandwidth", link.pageable_bandwidth, faster, std::max(h2d, d2h),
                         "pinned copies reach")) {
    return found;
  }
  if (auto found = above("link.both_bandwidth", both, faster, h2d + d2h, "h2d_bandwidth and d2h_bandwidth together")) {
    return found;
  }
  if (both >= std::max(h2d, d2h)) return {};
  return Contradiction{"link.both_bandwidth", faster,
                       fmt::format("{} is less than one direction alone ({})", rate(both), rate(std::max(h2d, d2h)))};
}

std::optional<Contradiction> contradiction(const Host& host) {
  const double fastest = *std::ranges::max_element(host.core_bandwidth.y);
  if (fastest <= host.dram_bandwidth) return {};
  return Contradiction{"host.core_bandwidth", "host.dram_bandwidth", "one core cannot read faster than dram_bandwidth"};
}

}  // namespace kvcast::config

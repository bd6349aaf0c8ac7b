// Page layouts: NHD, [slot][KV head][dim] with keys and values in separate pools, as attention kernels read them, and
// HND, [KV head][K, V][slot][dim], in which a head's page is contiguous in host memory (FreeKV, arXiv 2505.13109). Rows
// of dim halves stay whole, so that both sides move 16 bytes at a time; only the order of rows changes.
#include "cuda/all.hpp"
#include "cuda/convert.cuh"

namespace kvcast::kernels {

namespace {

void run(State& state) {
  const std::string& direction = state.word("direction");
  if (direction != "to_hnd" && direction != "to_nhd")
    throw UsageError("direction: '" + direction + "' is not to_hnd or to_nhd");
  const PageShape s{as_int(state, "pages"), as_int(state, "page"), as_int(state, "kv_heads"), as_int(state, "dim")};
  if (s.dim % 8 != 0) return state.skip("rows are whole 16-byte pieces");
  const std::size_t each = as_size(s.pages) * as_size(s.page) * as_size(s.kv_heads) * as_size(s.dim);
  if (too_many_pieces(state, each / 4)) return;
  if (too_large(state, 8.0 * static_cast<double>(each))) return;
  const bool to_hnd = direction == "to_hnd";
  const DeviceArray<Half> a = half_normals(73, to_hnd ? each : 2 * each), b = half_normals(74, each);
  const DeviceArray<Half> out(to_hnd ? 2 * each : each), out_values(each);
  const auto call = [&](Queue queue) {
    const Grid grid{std::min(filling_blocks(state), blocks_for(each / 4, 256))};
    if (to_hnd) {
      launch(grid, 256, 0, queue, nhd_to_hnd, s, a.data(), b.data(), out.data());
    } else {
      launch(grid, 256, 0, queue, hnd_to_nhd, s, a.data(), out.data(), out_values.data());
    }
  };
  state.moves(8.0 * static_cast<double>(each), Resource::kHbm);
  state.work("launches", 1);
  run_and_wait(call);
  if (!state.checking()) return measure_device(state, call, {.written = 0.5});
  check_conversion(state, s, to_hnd ? a : out, to_hnd ? b : out_values, to_hnd ? out : a);
}

}  // namespace

Bench convert(const Machine&) {
  return {"convert",
          "pages between NHD and HND layouts; bytes read plus bytes written, keys and values",
          {words("direction", {"to_hnd", "to_nhd"}), numbers("pages", {8, 64, 512, 4096}), numbers("page", {16, 32}),
           numbers("kv_heads", {8}), numbers("dim", {128})},
          {numbers("pages", {1, 3}), numbers("page", {1, 32}), numbers("kv_heads", {1, 3}), numbers("dim", {8, 128})},
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels

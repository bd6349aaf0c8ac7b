// Dense decode attention: every sequence attends to all its tokens through a page table in random order.
#include "cuda/all.hpp"
#include "cuda/attention_case.hpp"

namespace kvcast::kernels {

namespace {

void run(State& state) {
  const int batch = as_int(state, "batch"), context = as_int(state, "context");
  const int kv_heads = as_int(state, "kv_heads"), group = as_int(state, "group");
  const int page = as_int(state, "page"), dim = as_int(state, "dim");
  if (dim != 64 && dim != 128) return state.skip("the kernel supports head dimensions 64 and 128");
  if (group < 1 || group > 16) return state.skip("a tensor-core tile has 16 rows: groups of 1 to 16");
  if (context < 1 || page < 1) return state.skip("pages and contexts have one token or more");
  const int pages = (context + page - 1) / page;
  if (!state.checking() && kv_heads != 8 && page == 1) return state.skip("single tokens are measured at eight heads");
  const double bytes = 4.0 * batch * context * kv_heads * dim;
  if (bytes > 0.8 * state.machine().device_bytes && !state.checking())
    return state.skip("the cache does not fit in device memory");
  AttentionShape s{batch, kv_heads, group, 1, context, page, pages, 1, 1, 1.0f / std::sqrt(static_cast<float>(dim))};
  s.splits = AttentionRun::splits_for(context, batch * kv_heads, state.machine().sm_count);
  const std::size_t pool = as_size(batch) * as_size(pages);
  std::vector<std::uint32_t> lists(pool);
  for (std::size_t i = 0; i < pool; ++i)
    lists[i] = permuted(6, static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(pool));
  const AttentionInputs x = make_attention_inputs(s, dim, pool, std::move(lists));
  const AttentionRun attention(s, dim);
  const auto call = [&](Queue queue) {
    attention(queue, x.query.data(), x.keys.data(), x.values.data(), x.lists.data());
  };
  state.moves(bytes + 4.0 * batch * kv_heads * group * dim, Resource::kHbm);
  state.work("flops", 4.0 * batch * context * kv_heads * group * dim);
  state.work("launches", attention.launches());
  state.note("splits", s.splits);
  run_and_wait(call);
  compare_attention(state, s, x, attention, state.checking() ? 1000 : 3);
  if (!state.checking()) measure_device(state, call, {.launches = attention.launches()});
}

}  // namespace

Bench decode_attention(const Machine&) {
  return {
      "decode_attention",
      "split-KV attention of one token over a paged fp16 cache (pages in random order), with its merge; each K and "
      "V once",
      {numbers("batch", {1, 4, 16, 64}), numbers("context", {128, 512, 2048, 8192, 32768, 131072}),
       numbers("kv_heads", {2, 8, 32}), numbers("group", {1, 4, 8}), numbers("page", {1, 32}), numbers("dim", {128})},
      {numbers("batch", {1, 2}), numbers("context", {1, 17, 900}), numbers("kv_heads", {1, 2}),
       numbers("group", {1, 4, 16}), numbers("page", {1, 3, 32}), numbers("dim", {64, 128})},
      {Mode::kCold},
      run,
      3};
}

}  // namespace kvcast::kernels

// Attention over selected pages (page 1: tokens) of a long cache. consistent: the query heads of a group share their
// selection; otherwise each selects for itself, and keys are read once for each query head.
#include "cuda/all.hpp"
#include "cuda/attention_case.hpp"

namespace kvcast::kernels {

namespace {

void run(State& state) {
  const int batch = as_int(state, "batch"), context = as_int(state, "context");
  const int kv_heads = as_int(state, "kv_heads"), group = as_int(state, "group");
  const int page = as_int(state, "page"), tokens = as_int(state, "tokens");
  const int dim = as_int(state, "dim");
  const bool shared = state.integer("consistent") != 0;
  if (dim != 64 && dim != 128) return state.skip("the kernel supports head dimensions 64 and 128");
  if (group < 1 || group > 16) return state.skip("a tensor-core tile has 16 rows: groups of 1 to 16");
  if (page < 1) return state.skip("pages have one token or more");
  if (group == 1 && !shared) return state.skip("a group of one head agrees with itself");
  const int pages = (tokens + page - 1) / page, pool_each = (context + page - 1) / page;
  if (tokens < 1 || pages > pool_each) return state.skip("more tokens selected than there are");
  const double cache = 4.0 * batch * context * kv_heads * dim;
  if (cache > 0.8 * state.machine().device_bytes && !state.checking())
    return state.skip("the cache does not fit in device memory");
  const int groups = shared ? kv_heads : kv_heads * group;
  AttentionShape s{batch,
                   groups,
                   shared ? group : 1,
                   shared ? 1 : group,
                   tokens,
                   page,
                   pages,
                   groups,
                   1,
                   1.0f / std::sqrt(static_cast<float>(dim))};
  s.splits = AttentionRun::splits_for(tokens, batch * groups, state.machine().sm_count);
  std::vector<std::uint32_t> lists;
  for (int b = 0; b < batch; ++b) {
    for (int g = 0; g < groups; ++g) {
      // Ascending, as selections that keep positions in order are.
      std::vector<std::uint32_t> chosen;
      for (int i = 0; i < pages; ++i) {
        chosen.push_back(permuted(as_size(7 + b * groups + g), static_cast<std::uint32_t>(i),
                                  static_cast<std::uint32_t>(pool_each)));
      }
      std::sort(chosen.begin(), chosen.end());
      for (const std::uint32_t c : chosen) lists.push_back(static_cast<std::uint32_t>(b * pool_each) + c);
    }
  }
  const AttentionInputs x = make_attention_inputs(s, dim, as_size(batch * pool_each), std::move(lists));
  const AttentionRun attention(s, dim);
  const auto call = [&](Queue queue) {
    attention(queue, x.query.data(), x.keys.data(), x.values.data(), x.lists.data());
  };
  // Heads of a group that select for themselves name some tokens together.
  std::vector<std::uint64_t> distinct;
  for (std::size_t i = 0; !shared && i < x.lists_host.size(); ++i)
    distinct.push_back(i / as_size(pages) / as_size(group) % as_size(kv_heads) << 32 | x.lists_host[i]);
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  state.moves(4.0 * batch * groups * tokens * dim + 4.0 * batch * groups * pages, Resource::kHbm,
              4.0 * static_cast<double>(distinct.size()) * page * dim);
  state.work("flops", 4.0 * batch * tokens * kv_heads * group * dim);
  state.work("launches", attention.launches());
  state.note("splits", s.splits);
  run_and_wait(call);
  compare_attention(state, s, x, attention, state.checking() ? 1000 : 3);
  if (!state.checking()) measure_device(state, call, {.launches = attention.launches()});
}

}  // namespace

Bench sparse_attention(const Machine&) {
  return {"sparse_attention",
          "attention over selected pages of an fp16 cache; bytes of all selections, counting shared pages of separate "
          "ones again",
          {numbers("batch", {1, 8}), numbers("context", {32768, 131072}), numbers("kv_heads", {8}),
           numbers("group", {4}), numbers("page", {1, 8, 32}), numbers("tokens", {256, 1024, 2048, 8192}),
           numbers("consistent", {1, 0}), numbers("dim", {128})},
          {numbers("batch", {2}), numbers("context", {320}), numbers("kv_heads", {2}), numbers("group", {1, 4}),
           numbers("page", {1, 8}), numbers("tokens", {1, 70, 320}), numbers("dim", {64, 128})},
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels

// Attention of a group of query heads over gathered keys and values of one KV head; one item for each sequence and KV
// head, items divided among the threads.
#include <algorithm>
#include <cmath>

#include "cpu/all.hpp"
#include "cpu/attend.hpp"
#include "cpu/data.hpp"
#include "harness/host.hpp"
#include "harness/pool.hpp"
#include "reference/attention.hpp"

namespace kvcast::kernels {

namespace {

struct Shape {
  std::size_t items, context, tokens, group, dim;
};

struct Tensors {
  Rows small;                          // memory of a check's keys and values
  const std::uint16_t *keys, *values;  // [items][context][dim]
  std::vector<float> queries;          // [items][group][dim]
  std::vector<std::uint32_t> ids;      // [items][calls][tokens]
  std::vector<float> out;              // [items][group][dim]
};

Tensors make_tensors(const Shape& s, std::size_t calls, bool small, Pool& pool) {
  const std::size_t n = s.items * s.context * s.dim;
  Tensors x;
  if (small) x.small = bf16_normals(11, 2 * n);
  x.queries = normals(13, s.items * s.group * s.dim);
  x.out.assign(x.queries.size(), -1.0f);
  x.keys = small ? x.small.data() : noise_table(3, 2 * n, pool).data();
  x.values = x.keys + n;
  for (std::size_t i = 0; i < s.items; ++i) {
    const auto ids =
        random_runs(100 + i, static_cast<std::uint32_t>(s.context), static_cast<std::uint32_t>(calls * s.tokens), 1);
    x.ids.insert(x.ids.end(), ids.begin(), ids.end());
  }
  return x;
}

void check(State& state, const Shape& s, const Tensors& x) {
  const std::vector<float> keys = values_of(x.small);
  const float* const all_values = keys.data() + keys.size() / 2;
  std::vector<float> expected;
  for (std::size_t i = 0; i < s.items; ++i) {
    std::vector<float> k, v;
    for (std::size_t t = 0; t < s.tokens; ++t) {
      const std::size_t row = (i * s.context + x.ids[i * s.tokens + t]) * s.dim;
      k.insert(k.end(), &keys[row], &keys[row] + s.dim);
      v.insert(v.end(), &all_values[row], &all_values[row] + s.dim);
    }
    for (std::size_t g = 0; g < s.group; ++g) {
      const auto one = reference::attend(&x.queries[(i * s.group + g) * s.dim], k.data(), v.data(), s.tokens, s.dim,
                                         1.0 / std::sqrt(static_cast<double>(s.dim)));
      expected.insert(expected.end(), one.out.begin(), one.out.end());
    }
  }
  state.compare("attention", x.out, expected, 1e-5);
}

void run(State& state) {
  const std::int64_t threads = state.integer("threads");
  if (too_many_threads(state.machine(), threads)) return state.skip("more threads than cores");
  const auto size = [&](const char* axis) { return static_cast<std::size_t>(state.integer(axis)); };
  const Shape s{size("items"), size("context"), size("tokens"), size("group"), size("dim")};
  if (s.items < static_cast<std::size_t>(threads)) return state.skip("threads without an item would only wait");
  if (s.tokens == 0 || s.tokens > s.context) return state.skip("more tokens attended to than there are");
  if (too_large(state.machine(), 4.0 * static_cast<double>(s.items * s.context * s.dim)))
    return state.skip("the keys and values do not fit in memory");
  const std::size_t calls = fresh_calls(state, s.context, s.tokens);
  Pool pool(static_cast<int>(threads));
  Tensors x = make_tensors(s, calls, state.checking(), pool);
  std::vector<std::vector<float>> logits(static_cast<std::size_t>(threads), std::vector<float>(s.group * s.tokens));
  std::size_t turn = 0;
  const auto call = [&] {
    turn = (turn + 1) % calls;
    pool.run([&](int t) {
      // Items go round robin: if their number is a multiple of the threads, all threads have equally many.
      for (std::size_t i = static_cast<std::size_t>(t); i < s.items; i += static_cast<std::size_t>(threads)) {
        const std::size_t kv = i * s.context * s.dim, q = i * s.group * s.dim;
        attend_item({s.tokens, s.group, s.dim}, x.keys + kv, x.values + kv, &x.queries[q],
                    &x.ids[(i * calls + turn) * s.tokens], logits[static_cast<std::size_t>(t)].data(), &x.out[q]);
      }
    });
  };
  const double elements = static_cast<double>(s.items * s.tokens * s.dim);
  state.moves(4 * elements, Resource::kDram);
  state.work("flops", 4 * elements * static_cast<double>(s.group));
  state.work("rows", static_cast<double>(2 * s.items * s.tokens));
  state.work("exps", static_cast<double>(s.items * s.tokens * s.group));
  if (!state.checking()) return measure_host(state, call, &pool);
  call();
  check(state, s, x);
}

}  // namespace

Bench cpu_sparse_attention(const Machine& machine) {
  return {"cpu_sparse_attention",
          "attention of query groups over gathered bfloat16 keys and values; items are (sequence, KV head) pairs",
          {numbers("items", {2, std::max(8, machine.cores)}), numbers("context", {16384, 65536}),
           numbers("tokens", {128, 512, 2048}), numbers("group", {1, 4, 8}), numbers("dim", {128}),
           numbers("threads", doubling(machine.cores))},
          {numbers("items", {1, 5}), numbers("context", {300}), numbers("tokens", {1, 7, 299}),
           numbers("group", {1, 4, 7, 8}), numbers("dim", {40, 64, 128}), numbers("threads", {1, 2})},
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels

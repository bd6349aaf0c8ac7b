// Shared by benchmarks of attention: inputs, page lists and the comparison with the reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "cuda/attention.cuh"
#include "cuda/case.hpp"
#include "reference/attention.hpp"

namespace kvcast::kernels {

struct AttentionInputs {
  std::size_t kv_heads, dim;
  DeviceArray<Half> query, keys, values;  // keys, values: [pool rows][KV heads][dim], pages of rows side by side
  std::vector<std::uint32_t> lists_host;
  DeviceArray<std::uint32_t> lists;
};

inline AttentionInputs make_attention_inputs(const AttentionShape& s, int dim, std::size_t pool_pages,
                                             std::vector<std::uint32_t> lists) {
  const std::size_t kv = as_size(s.groups / s.groups_per_kv), d = as_size(dim), rows = pool_pages * as_size(s.page);
  const std::size_t queries = as_size(s.sequences * s.groups * s.heads_per_group) * d;
  DeviceArray<std::uint32_t> device_lists(lists);
  return {kv,
          d,
          half_normals(51, queries),
          half_normals(52, rows * kv * d),
          half_normals(53, rows * kv * d),
          std::move(lists),
          std::move(device_lists)};
}

// The reference for some of the rows: all in a check; a few at measured sizes, one of the longest among them, because
// the device is idle meanwhile. lengths: tokens of each (sequence, group); empty: s.tokens for all.
template <typename Run>
void compare_attention(State& state, const AttentionShape& s, const AttentionInputs& x, const Run& run,
                       std::size_t most_rows, const std::vector<int>& lengths = {}) {
  const std::vector<float> out = floats_of(run.out()), lse = run.lse().host(), query = floats_of(x.query);
  const std::size_t rows = out.size() / x.dim,
                    step = std::max<std::size_t>(
                        1, rows / std::max<std::size_t>(1, std::min(most_rows, 150000 / as_size(s.tokens))));
  std::vector<float> got, expected, got_lse, expected_lse;
  for (std::size_t row = step - 1; row < rows; row += step) {
    const std::size_t group = row / as_size(s.heads_per_group) % as_size(s.groups);
    const std::size_t sequence = row / as_size(s.heads_per_group * s.groups);
    const std::uint32_t* list = &x.lists_host[list_at(s, static_cast<int>(sequence), static_cast<int>(group))];
    const std::size_t tokens = as_size(lengths.empty() ? s.tokens : lengths[sequence * as_size(s.groups) + group]);
    std::vector<float> k, v;
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::size_t place = std::size_t{list[t / as_size(s.page)]} * as_size(s.page) + t % as_size(s.page);
      const std::size_t at = (place * x.kv_heads + group / as_size(s.groups_per_kv)) * x.dim;
      const auto key = half_normals_host(52, at, x.dim), value = half_normals_host(53, at, x.dim);
      k.insert(k.end(), key.begin(), key.end());
      v.insert(v.end(), value.begin(), value.end());
    }
    const auto one = reference::attend(&query[row * x.dim], k.data(), v.data(), tokens, x.dim, double{s.scale});
    expected.insert(expected.end(), one.out.begin(), one.out.end());
    got.insert(got.end(), &out[row * x.dim], &out[row * x.dim] + x.dim);
    expected_lse.push_back(one.lse);
    got_lse.push_back(lse[row]);
  }
  // Weights and outputs are rounded to halves: 2^-11 each.
  state.compare("attention", got, expected, 2e-3);
  state.compare("log-sum-exp", got_lse, expected_lse, 1e-4);
}

}  // namespace kvcast::kernels

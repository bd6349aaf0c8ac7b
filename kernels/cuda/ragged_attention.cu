// Decode attention over rows of unequal lengths that have the same sum, as policies with a budget for each head leave
// them, or as sequences of different lengths do.
#include "cuda/all.hpp"
#include "cuda/attention_case.hpp"
#include "cuda/ragged_attention.cuh"

namespace kvcast::kernels {

namespace {

// Share of row (sequence, head), up to a factor: all the same; half of the heads whole and half a sixteenth
// (DuoAttention: retrieval and streaming heads); from 0.2 to 1.8 of the mean (AdaKV); each head shorter than the one
// before, down to 1/32 (Twilight); the last sequence as long as all others together.
double share(const std::string& profile, int sequence, int sequences, int head, int heads) {
  const double at = heads > 1 ? static_cast<double>(head) / (heads - 1) : 0.5;
  if (profile == "duo") return head < heads / 2 ? 1.0 / 16 : 1;
  if (profile == "linear") return 0.2 + 1.6 * at;
  if (profile == "geometric") return std::exp2(5 * (at - 1));
  if (profile == "sequence") return sequence + 1 == sequences ? sequences - 1 : 1;
  return 1;
}

// Lengths of all rows with exactly `mean` tokens in the mean; what rounding leaves is the longest row's, the last one.
std::vector<int> lengths_of(const std::string& profile, int sequences, int heads, int mean) {
  std::vector<double> shares;
  double sum = 0;
  for (int i = 0; i < sequences * heads; ++i) {
    shares.push_back(share(profile, i / heads, sequences, i % heads, heads));
    sum += shares.back();
  }
  std::vector<int> lengths;
  long long left = static_cast<long long>(mean) * sequences * heads;
  for (const double one : shares) {
    lengths.push_back(std::max(1, static_cast<int>(one / sum * mean * sequences * heads)));
    left -= lengths.back();
  }
  lengths.back() += static_cast<int>(left);
  return lengths;
}

void run(State& state) {
  const int batch = as_int(state, "batch"), mean = as_int(state, "tokens"), page = as_int(state, "page");
  const int kv_heads = as_int(state, "kv_heads"), group = as_int(state, "group"), dim = as_int(state, "dim");
  const std::string profile = state.word("profile");
  const bool by_length = state.word("parts") == "by_length";
  if (dim != 64 && dim != 128) return state.skip("the kernel supports head dimensions 64 and 128");
  if (group < 1 || group > 16) return state.skip("a tensor-core tile has 16 rows: groups of 1 to 16");
  if (mean < 64 || page < 1) return state.skip("rows have 64 tokens or more in the mean, and pages one or more");
  if (profile == "sequence" && batch == 1) return state.skip("one sequence has no other to differ from");
  const std::vector<int> lengths = lengths_of(profile, batch, kv_heads, mean);
  const int longest = *std::max_element(lengths.begin(), lengths.end()), most_pages = (longest + page - 1) / page;
  std::size_t pool = 0;
  for (const int length : lengths) pool += as_size((length + page - 1) / page);
  const double bytes = 4.0 * batch * kv_heads * mean * dim;
  if (too_large(state, bytes)) return;
  // Each row has pages of its own, all in one pool of pages of one head.
  AttentionShape s{batch, kv_heads,   group,    kv_heads, longest,
                   page,  most_pages, kv_heads, 1,        1 / std::sqrt(static_cast<float>(dim))};
  std::vector<std::uint32_t> lists(lengths.size() * as_size(most_pages));
  std::uint32_t next = 0;
  for (std::size_t row = 0; row < lengths.size(); ++row) {
    for (std::size_t i = 0; i < as_size((lengths[row] + page - 1) / page); ++i)
      lists[row * as_size(most_pages) + i] = permuted(6, next++, static_cast<std::uint32_t>(pool));
  }
  const AttentionInputs x = make_attention_inputs(s, dim, pool, std::move(lists));
  const RaggedRun attention(s, dim, lengths, by_length, state.machine().sm_count);
  const auto call = [&](Queue queue) {
    attention(queue, x.query.data(), x.keys.data(), x.values.data(), x.lists.data());
  };
  state.moves(bytes + 4.0 * batch * kv_heads * group * dim, Resource::kHbm);
  state.work("flops", 4.0 * batch * kv_heads * mean * group * dim);
  state.work("sum", static_cast<double>(batch) * kv_heads * mean);
  state.work("longest", longest);
  state.work("launches", attention.launches());
  state.note("parts", static_cast<double>(attention.parts()));
  run_and_wait(call);
  compare_attention(state, s, x, attention, state.checking() ? 1000 : 3, lengths);
  if (!state.checking()) measure_device(state, call, {.launches = attention.launches()});
}

}  // namespace

Bench ragged_attention(const Machine&) {
  const Axis profile = words("profile", {"equal", "duo", "linear", "geometric", "sequence"});
  const Axis parts = words("parts", {"by_length", "equal"});
  return {
      "ragged_attention",
      "split-KV attention of one token over rows (sequence, KV head) of unequal lengths with the same sum; each row "
      "is cut into parts by its length, or all into equally many",
      {numbers("batch", {1, 8}), numbers("tokens", {2048, 8192, 32768}), numbers("kv_heads", {8}),
       numbers("group", {4}), numbers("page", {32}), numbers("dim", {128}), profile, parts},
      {numbers("batch", {1, 3}), numbers("tokens", {64, 900}), numbers("kv_heads", {4}), numbers("group", {4}),
       numbers("page", {3, 32}), numbers("dim", {128}), profile, parts},
      {Mode::kCold},
      run,
      2};
}

}  // namespace kvcast::kernels

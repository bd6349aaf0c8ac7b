// Look-up of locality-sensitive hash tables (MagicPIG, arXiv 2410.16179): a token is sampled where its hash meets the
// query's in at least two tables. Each table holds token ids sorted by code and where each code begins; counting goes
// through a byte for each token of the context, which is cleared for every query.
#include <algorithm>
#include <cstring>

#include "cpu/all.hpp"
#include "cpu/data.hpp"
#include "harness/host.hpp"
#include "harness/pool.hpp"

namespace kvcast::kernels {

namespace {

struct Shape {
  std::size_t queries, context, tables, codes;  // codes: 2^bits
};

std::uint32_t code_of(const Shape& s, std::size_t table, std::size_t token) {
  return random_below(31, table * s.context + token, static_cast<std::uint32_t>(s.codes));
}
// Up to `codes` queries have distinct codes: consecutive calls read buckets that none before them read.
std::uint32_t query_code(const Shape& s, std::size_t query, std::size_t table) {
  return permuted(32 + table, static_cast<std::uint32_t>(query % s.codes), static_cast<std::uint32_t>(s.codes));
}

struct Tables {
  using Ids = std::vector<std::uint32_t, SmallPages<std::uint32_t>>;
  Ids begins;  // [tables][codes + 1]
  Ids ids;     // [tables][context], sorted by code
};

// Counting sort of each table.
Tables make_tables(const Shape& s) {
  Tables t{Tables::Ids(s.tables * (s.codes + 1), 0), Tables::Ids(s.tables * s.context)};
  for (std::size_t table = 0; table < s.tables; ++table) {
    std::uint32_t* begin = &t.begins[table * (s.codes + 1)];
    for (std::size_t i = 0; i < s.context; ++i) ++begin[code_of(s, table, i) + 1];
    for (std::size_t c = 0; c < s.codes; ++c) begin[c + 1] += begin[c];
    std::vector<std::uint32_t> next(begin, begin + s.codes);
    for (std::size_t i = 0; i < s.context; ++i) {
      t.ids[table * s.context + next[code_of(s, table, i)]++] = static_cast<std::uint32_t>(i);
    }
  }
  return t;
}

// Prefetches buckets some tables ahead, and their bounds before that: all codes are known.
class Ahead {
 public:
  Ahead(const Shape& s, const Tables& t, const std::uint32_t* codes) : s_(s), t_(t), codes_(codes) {
    for (std::size_t table = 0; table < std::min(2 * kTables, s.tables); ++table) ask_where(table);
    for (std::size_t table = 0; table < std::min(kTables, s.tables); ++table) ask_for(table);
  }
  // Index of the first entry of a table's bucket, and of the one after its last.
  const std::uint32_t* bounds(std::size_t table) const { return &t_.begins[table * (s_.codes + 1)] + codes_[table]; }
  void at(std::size_t table) const {
    if (table + 2 * kTables < s_.tables) ask_where(table + 2 * kTables);
    if (table + kTables < s_.tables) ask_for(table + kTables);
  }

 private:
  static constexpr std::size_t kTables = 4;
  void ask_where(std::size_t table) const { __builtin_prefetch(bounds(table)); }
  void ask_for(std::size_t table) const {
    constexpr std::uint32_t kLine = 64 / sizeof(std::uint32_t);
    const std::uint32_t* const bucket = bounds(table);
    for (std::uint32_t i = bucket[0]; i < bucket[1]; i += kLine) __builtin_prefetch(&t_.ids[table * s_.context + i]);
  }

  const Shape& s_;
  const Tables& t_;
  const std::uint32_t* codes_;
};

// counts: one byte for each token. Returns how many tokens were written to out.
std::size_t look_up(const Shape& s, const Tables& t, const std::uint32_t* codes, std::uint8_t* counts,
                    std::uint32_t* out) {
  std::memset(counts, 0, s.context);
  const Ahead ahead(s, t, codes);
  std::size_t found = 0;
  for (std::size_t table = 0; table < s.tables; ++table) {
    ahead.at(table);
    const std::uint32_t* begin = ahead.bounds(table);
    for (std::uint32_t i = begin[0]; i < begin[1]; ++i) {
      const std::uint32_t id = t.ids[table * s.context + i];
      // Always written, but counted only at the second match: no branch that random bits would mispredict.
      out[found] = id;
      found += counts[id] == 1;
      counts[id] = static_cast<std::uint8_t>(std::min(counts[id] + 1, 2));
    }
  }
  return found;
}

void check(State& state, const Shape& s, const std::vector<std::vector<std::uint32_t>>& found) {
  for (std::size_t q = 0; q < s.queries; ++q) {
    std::vector<std::uint32_t> expected;
    for (std::size_t i = 0; i < s.context; ++i) {
      int meetings = 0;
      for (std::size_t table = 0; table < s.tables; ++table)
        meetings += code_of(s, table, i) == query_code(s, q, table);
      if (meetings >= 2) expected.push_back(static_cast<std::uint32_t>(i));
    }
    std::vector<std::uint32_t> got = found[q];
    std::sort(got.begin(), got.end());
    state.require(got == expected, "tokens that meet query " + std::to_string(q) + " twice");
  }
}

void run(State& state) {
  const std::int64_t threads = state.integer("threads");
  if (too_many_threads(state.machine(), threads)) return state.skip("more threads than cores");
  const auto size = [&](const char* axis) { return static_cast<std::size_t>(state.integer(axis)); };
  const std::int64_t bits = state.integer("bits");
  if (bits > 20) throw UsageError("bits: at most 20");
  const Shape s{size("queries"), size("context"), size("tables"), std::size_t{1} << bits};
  if (8.0 * static_cast<double>(s.tables * s.context) > 0.5 * state.machine().dram_bytes) {
    return state.skip("the tables do not fit in memory");
  }
  const Tables tables = make_tables(s);
  const std::size_t calls = fresh_calls(state, s.codes, s.queries);
  std::vector<std::uint32_t> codes(calls * s.queries * s.tables);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = query_code(s, i / s.tables, i % s.tables);
  double ids = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::uint32_t* begin = &tables.begins[i % s.tables * (s.codes + 1)] + codes[i];
    ids += begin[1] - begin[0];
  }
  ids /= static_cast<double>(calls);
  // One element more than tokens: the last candidate is written before it is known to count.
  std::vector<std::vector<std::uint32_t>> found(s.queries, std::vector<std::uint32_t>(s.context + 1));
  std::vector<std::size_t> sizes(s.queries);
  std::vector<std::vector<std::uint8_t>> counts(static_cast<std::size_t>(threads),
                                                std::vector<std::uint8_t>(s.context));
  Pool pool(static_cast<int>(threads));
  std::size_t turn = 0;
  const auto call = [&] {
    turn = (turn + 1) % calls;
    pool.run([&](int t) {
      for (std::size_t q = static_cast<std::size_t>(t); q < s.queries; q += static_cast<std::size_t>(threads)) {
        sizes[q] = look_up(s, tables, &codes[(turn * s.queries + q) * s.tables],
                           counts[static_cast<std::size_t>(t)].data(), found[q].data());
      }
    });
  };
  const double lookups = static_cast<double>(s.queries * s.tables);
  state.moves(4 * ids + 8 * lookups + static_cast<double>(s.queries * s.context), Resource::kDram);
  state.work("ids", ids);
  state.work("buckets", lookups);
  if (!state.checking()) return measure_host(state, call, &pool);
  call();
  for (std::size_t q = 0; q < s.queries; ++q) found[q].resize(sizes[q]);
  check(state, s, found);
}

}  // namespace

Bench cpu_lsh_lookup(const Machine& machine) {
  return {"cpu_lsh_lookup",
          "tokens that share a bucket with the query in two or more hash tables; ids are all bucket entries visited",
          {numbers("queries", {8, 32}), numbers("context", {16384, 98304}), numbers("tables", {75, 150}),
           numbers("bits", {8, 10}), numbers("threads", doubling(machine.cores))},
          {numbers("queries", {1, 5}), numbers("context", {1, 700}), numbers("tables", {2, 20}),
           numbers("bits", {0, 4, 10}), numbers("threads", {1, 2})},
          {Mode::kCold},
          run};
}

}  // namespace kvcast::kernels

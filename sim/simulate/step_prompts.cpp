// Rows, chunks of prompts and their ends in the table of passes.
#include <algorithm>
#include <cmath>

#include "simulate/step_grid.hpp"
#include "simulate/step_table.hpp"

namespace kvcast::simulate {
namespace {

using serving::Chunk;

constexpr double kEndsPerOctave = 4;
constexpr std::int64_t kEndRows = 64, kEndFactor = 3;  // chunks with which ends are measured
constexpr std::int64_t kFurtherChunk = 64;

}  // namespace

double StepTable::prompt(const Chunk& chunk, bool without_pairs, bool reads_all) {
  count_simulated();
  return passes_.pass({{}, std::span(&chunk, 1), without_pairs, reads_all});
}

// The tokens of a chunk that enter the model. Rows and attention are those of a chunk of these alone.
Chunk StepTable::entering(const Chunk& chunk) const {
  const double read = leaves_out_ ? passes_.read(chunk.known) : 1;
  if (read == 1) return chunk;
  const auto share = [read](std::int64_t tokens) { return std::llround(read * static_cast<double>(tokens)); };
  const std::int64_t cached = share(chunk.cached), added = std::max(1LL, share(chunk.cached + chunk.added) - cached);
  return {cached, added, chunk.known};
}

double StepTable::bare(int n) {
  return between(n, [&](std::int64_t at) {
    return remembered(bare_, at, [&] {
      begin_change();
      return passes_.bare(static_cast<int>(at));
    });
  });
}

double StepTable::rows(std::int64_t rows) {
  return between(rows, [&](std::int64_t r) {
    return remembered(rows_, r, [&] { return prompt({0, r, r + 1}, true); });
  });
}

double StepTable::attention_at(std::int64_t added, std::int64_t cached) {
  return remembered(attention_, std::pair{added, cached}, [&] {
    const std::int64_t end = added + cached;
    return prompt({cached, added, end + 1}, false) - rows(added);
  });
}

// Per token of the chunk it is nearly linear in the chunk and in the tokens before it. Policies may select for the
// tokens of a prompt too, once their mean context exceeds the budget: points are on the chunk's own side of that.
double StepTable::attention(const Chunk& chunk) {
  const auto held = [&](std::int64_t added) { return fill_ > 0 ? fill_ - (added + 2) / 2 : -1; };
  const bool selects = fill_ > 0 && chunk.cached > held(chunk.added);
  const double per_token = between(chunk.added, [&](std::int64_t added) {
    const auto at = [&](std::int64_t cached) { return attention_at(added, cached) / static_cast<double>(added); };
    const std::int64_t most = held(added);
    if (selects) {
      const std::int64_t cached = std::max({chunk.cached, most + 1, std::int64_t{1}});
      const std::int64_t low = std::max(grid_below(cached), most + 1), high = std::max(grid_above(cached), low);
      return line(at(low), at(high), share_of(cached, low, high));
    }
    if (fill_ > 0 && chunk.cached > 0) {
      const std::int64_t cached = std::max<std::int64_t>(1, std::min(chunk.cached, most));
      const std::int64_t low = grid_below(cached), high = std::max(low, std::min(grid_above(cached), most));
      return line(at(low), at(high), share_of(cached, low, high));
    }
    return chunk.cached == 0 ? at(0) : between(chunk.cached, at);
  });
  return per_token * static_cast<double>(chunk.added);
}

// Some of the work at an end is done while the pass goes on, so that a long chunk hides more of it.
double StepTable::end_of(const Chunk& chunk) {
  const auto at = [&](std::int64_t all, std::int64_t rows) {
    const std::int64_t added = std::min(all, rows), cached = all - added;
    return remembered(ends_, std::pair{all, added}, [&] {
      return prompt({cached, added, all}, false, false) - prompt({cached, added, all + 1}, false, false);
    });
  };
  // Policies rank and cluster whole prompts, so that times grow faster than lines: four points an octave.
  const std::int64_t known = chunk.known;
  const double octaves = std::floor(kEndsPerOctave * std::log2(static_cast<double>(known))) / kEndsPerOctave;
  const auto point = [](double o) { return static_cast<std::int64_t>(std::floor(std::exp2(o))); };
  const bool covered = known <= covered_;
  const std::int64_t low = covered ? point(octaves) : std::max(covered_ + 1, point(octaves));
  const std::int64_t next = std::max(low, point(octaves + 1.0 / kEndsPerOctave));
  const std::int64_t high = covered ? std::min(covered_, next) : next;
  const auto of_rows = [&](std::int64_t rows) {
    return line(at(low, rows), at(high, rows), share_of(known, low, high));
  };
  std::int64_t rows = kEndRows;
  while (rows * kEndFactor < chunk.added && rows < ranges_.pass_tokens) rows *= kEndFactor;
  const std::int64_t more = std::min(rows * kEndFactor, ranges_.pass_tokens);
  if (rows >= more) return of_rows(more);
  return line(of_rows(rows), of_rows(more), std::clamp(share_of(chunk.added, rows, more), 0.0, 1.0));
}

double StepTable::head(int rows) {
  return between(rows, [&](std::int64_t r) {
    return remembered(heads_, r, [&] {
      begin_change();
      return passes_.head(static_cast<int>(r));
    });
  });
}

// Kernels of policies that read each chunk separately. In small passes the host waits for their launches.
double StepTable::further_chunk(std::int64_t all) {
  const auto at = [&](std::int64_t half) {
    return remembered(further_, half, [&] {
      // Unequal, since equal chunks are one kernel's; their sum has its own point, because rows come in tiles.
      const std::vector<Chunk> two = {{0, half - 1, half}, {0, half + 1, half + 2}};
      count_simulated();
      return passes_.pass({.decodes = {}, .chunks = two, .reads_all = true}) - rows(2 * half) - attention(two[0]) -
             attention(two[1]);
    });
  };
  const std::int64_t most = std::max(kFurtherChunk, std::min(8 * kFurtherChunk, ranges_.pass_tokens / 2));
  return line(at(kFurtherChunk), at(most), std::clamp(share_of(all, 2 * kFurtherChunk, 2 * most), 0.0, 1.0));
}

// Rows, attention of the chunks, the head, and what the policy does at the ends of prompts.
double StepTable::with_chunks(int sequences, std::span<const Chunk> chunks) {
  const int decodes = sequences * passes_.queries();
  std::int64_t added = decodes;
  int ends = 0;
  double seconds = 0;
  for (const Chunk& chunk : chunks) {
    const Chunk enters = entering(chunk);
    added += enters.added;
    seconds += attention(enters);
    if (!chunk.last()) continue;
    ++ends;
    seconds += end_of(chunk) - head(1);
  }
  if (decodes + ends > 0) seconds += head(decodes + ends);
  if (chunks.size() > 1) seconds += static_cast<double>(chunks.size() - 1) * further_chunk(added);
  return seconds + rows(added);
}

}  // namespace kvcast::simulate

#include "simulate/step_table.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.hpp"

namespace kvcast::simulate {
namespace {

using serving::Chunk;
using serving::Decoding;
using serving::StepTime;

// A cell is divided while its line misses the engine by more than this share of a pass, so many times at most.
constexpr double kMissed = 0.004;
constexpr int kDivisions = 6;
constexpr int kReferenceSequences = 16;  // of the passes by which cells are divided
constexpr std::int64_t kSmallChunk = 64;
constexpr double kEndsPerOctave = 4;
constexpr double kFirstOfSpread = 0.5;  // place of the first of the spread lengths between the points of a ladder

// Numbers between which times are nearly linear: 1, 2, 3, 4, 6, 8, 12, 16, 24, …
std::int64_t grid_below(std::int64_t n) {
  std::int64_t power = 1;
  while (power * 2 <= n) power *= 2;
  return power >= 2 && power * 3 / 2 <= n ? power * 3 / 2 : power;
}
std::int64_t grid_above(std::int64_t n) {
  const std::int64_t below = grid_below(n);
  if (below == n) return n;
  std::int64_t power = 1;
  while (power * 2 <= n) power *= 2;
  return below == power && power >= 2 ? power * 3 / 2 : power * 2;
}

double line(double a, double b, double share) { return a + share * (b - a); }
double share_of(std::int64_t x, std::int64_t low, std::int64_t high) {
  return low == high ? 0 : static_cast<double>(x - low) / static_cast<double>(high - low);
}

// Value at x of a function that is simulated at grid numbers.
double between(std::int64_t x, const std::function<double(std::int64_t)>& at) {
  const std::int64_t low = grid_below(x), high = grid_above(x);
  return low == high ? at(low) : line(at(low), at(high), share_of(x, low, high));
}

template <typename Key, typename Make>
double remembered(std::map<Key, double>& memo, const Key& key, const Make& make) {
  const auto found = memo.find(key);
  return found != memo.end() ? found->second : memo.emplace(key, make()).first->second;
}

// Index of the cell of an ascending grid that x is in; the outer ones reach beyond it.
std::size_t cell_of(const std::vector<std::int64_t>& grid, std::int64_t x) {
  const auto above = std::upper_bound(grid.begin(), grid.end(), x);
  const auto cells = static_cast<std::ptrdiff_t>(grid.size()) - 1;
  return static_cast<std::size_t>(
      std::clamp<std::ptrdiff_t>(above - grid.begin() - 1, 0, std::max<std::ptrdiff_t>(0, cells - 1)));
}

// Adds points to a grid where the line between two of them misses `at` by more than a share of it.
void divide(std::vector<std::int64_t>& grid, std::int64_t low, std::int64_t high, int divisions,
            const std::function<double(std::int64_t)>& at) {
  const auto middle =
      static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(low) * static_cast<double>(high))));
  if (divisions == 0 || middle <= low || middle >= high) return;
  const double there = at(middle), expected = line(at(low), at(high), share_of(middle, low, high));
  if (std::abs(there - expected) <= kMissed * there) return;
  grid.push_back(middle);
  divide(grid, low, middle, divisions - 1, at);
  divide(grid, middle, high, divisions - 1, at);
}

}  // namespace

StepTable::StepTable(const PassTimes& passes, const StepRanges& ranges) : passes_(passes), ranges_(ranges) {
  KVCAST_CHECK(ranges.shortest >= 1 && ranges.longest >= ranges.shortest && ranges.generated >= 1);
  std::int64_t above = ranges.longest + 1;
  covered_ = ranges.shortest - 1;
  while (above - covered_ > 1) {
    const std::int64_t middle = covered_ + (above - covered_) / 2;
    (passes.covers(middle) ? covered_ : above) = middle;
  }
  if (covered_ >= ranges.shortest) classes_.push_back({ranges.shortest, covered_, {}});
  if (covered_ < ranges.longest) classes_.push_back({covered_ + 1, ranges.longest, {}});
  by_class_.resize(classes_.size());
  generated_ = {1};
  if (ranges_.generated > 1) generated_.push_back(ranges_.generated);
  for (std::size_t c = 0; c < classes_.size(); ++c) refine_known(c);
  refine_generated();
}

void StepTable::refine_known(std::size_t of) {
  Class& c = classes_[of];
  c.known = {c.shortest};
  if (c.longest == c.shortest) return;
  c.known.push_back(c.longest);
  std::map<std::int64_t, double> memo;
  const auto at = [&](std::int64_t known) {
    return remembered(memo, known, [&] {
      return bare(kReferenceSequences) + engine({kReferenceSequences, Company::kUnequal, of}, known, 1);
    });
  };
  divide(c.known, c.shortest, c.longest, kDivisions, at);
  std::ranges::sort(c.known);
}

void StepTable::refine_generated() {
  for (std::size_t of = 0; of < classes_.size(); ++of) {
    for (const std::int64_t known : {classes_[of].shortest, classes_[of].longest}) {
      std::map<std::int64_t, double> memo;
      const auto at = [&](std::int64_t generated) {
        return remembered(memo, generated, [&] {
          return bare(kReferenceSequences) + engine({kReferenceSequences, Company::kUnequal, of}, known, generated);
        });
      };
      divide(generated_, 1, ranges_.generated, kDivisions - 1, at);
    }
  }
  std::ranges::sort(generated_);
  generated_.erase(std::unique(generated_.begin(), generated_.end()), generated_.end());
}

std::int64_t StepTable::chunk_of(Company company, int n) const {
  if (company == Company::kSmallChunk) return kSmallChunk;
  return std::max<std::int64_t>(2 * kSmallChunk, ranges_.pass_tokens - n);
}

// The part of a pass's time that is attention of the sequences that decode and the policy's work for them.
double StepTable::pass(const std::vector<Decoding>& decodes, Company company) {
  ++simulated_;
  const auto n = static_cast<int>(decodes.size());
  if (company == Company::kEqual || company == Company::kUnequal) return passes_.pass({decodes, {}}) - bare(n);
  const std::int64_t added = chunk_of(company, n);
  const Chunk chunk{0, added, added + 1};
  return passes_.pass({decodes, std::span(&chunk, 1), true}) - rows(added + n) - head(n);
}

double StepTable::engine(const Key& key, std::int64_t known, std::int64_t generated) {
  std::vector<Decoding> decodes(static_cast<std::size_t>(key.n), {known, known + generated});
  if (key.company != Company::kEqual) {
    for (std::size_t i = 1; i < decodes.size(); i += 2) ++decodes[i].tokens;
  }
  return pass(decodes, key.company);
}

// Share that a ladder of lengths adds to the mean over its sequences, per unit of longest / mean - 1.
double StepTable::spread(const Key& key, const Grid& of) {
  const Class& c = classes_[key.of];
  if (key.n < 2 || key.company == Company::kEqual || c.known.size() < 2) return 0;
  std::vector<Decoding> decodes;
  double mean = 0, expected = 0;
  const double ratio = static_cast<double>(c.longest) / static_cast<double>(c.shortest);
  for (int i = 0; i < key.n; ++i) {
    const double place = (i + kFirstOfSpread) / key.n;
    const auto known =
        static_cast<std::int64_t>(std::llround(static_cast<double>(c.shortest) * std::pow(ratio, place)));
    decodes.push_back({known, known + 1});
    mean += static_cast<double>(known) / key.n;
    const std::size_t k = cell_of(c.known, known);
    const auto point = [&](std::size_t at) { return of.seconds[at * generated_.size()]; };
    expected += line(point(k), point(k + 1), share_of(known, c.known[k], c.known[k + 1])) / key.n;
  }
  const double longest = static_cast<double>(decodes.back().known) / mean - 1;
  return expected > 0 && longest > 0 ? std::max(0.0, pass(decodes, key.company) / expected - 1) / longest : 0;
}

double StepTable::prompt(const Chunk& chunk, bool without_pairs) {
  ++simulated_;
  return passes_.pass({{}, std::span(&chunk, 1), without_pairs});
}

const StepTable::Grid& StepTable::grid(const Key& key) {
  const auto found = grids_.find(key);
  if (found != grids_.end()) return found->second;
  Grid made;
  for (const std::int64_t known : classes_[key.of].known) {
    for (const std::int64_t generated : generated_) made.seconds.push_back(engine(key, known, generated));
  }
  made.spread = spread(key, made);
  return grids_.emplace(key, std::move(made)).first->second;
}

StepTable::Grid StepTable::at(const Key& key) {
  Key low = key, high = key;
  low.n = static_cast<int>(grid_below(key.n)), high.n = static_cast<int>(grid_above(key.n));
  Grid out = grid(low);
  if (low.n == high.n) return out;
  const Grid& above = grid(high);
  const double share = share_of(key.n, low.n, high.n);
  for (std::size_t i = 0; i < out.seconds.size(); ++i) out.seconds[i] = line(out.seconds[i], above.seconds[i], share);
  out.spread = line(out.spread, above.spread, share);
  return out;
}

const StepTable::Row& StepTable::row(const Key& key) {
  const auto found = rows_of_.find(key);
  if (found != rows_of_.end()) return found->second;
  const Grid of = at(key);
  const bool alone = key.company == Company::kEqual || key.company == Company::kUnequal;
  const double each = (alone ? decodes_factor_ : chunks_factor_) / key.n;
  Row made{{}, of.spread};
  const std::size_t cells = std::max<std::size_t>(1, generated_.size() - 1);
  for (std::size_t k = 0; k < classes_[key.of].known.size(); ++k) {
    std::vector<Cell>& out = made.cells.emplace_back();
    for (std::size_t g = 0; g < cells; ++g) {
      const double* const point = &of.seconds[k * generated_.size() + g];
      const bool slopes = g + 1 < generated_.size();
      const double slope = slopes ? (point[1] - point[0]) / static_cast<double>(generated_[g + 1] - generated_[g]) : 0;
      out.push_back({to_picos(each * point[0]), to_picos(each * slope)});
    }
  }
  return rows_of_.emplace(key, std::move(made)).first->second;
}

void StepTable::scale(double decodes, double chunks) {
  decodes_factor_ = decodes, chunks_factor_ = chunks;
  rows_of_.clear();
}

StepTime StepTable::decoding(const Key& key, std::span<const Decoding> decodes) {
  const Row& of = row(key);
  const std::vector<std::int64_t>& known = classes_[key.of].known;
  StepTime out{0, 0, std::int64_t{1} << 40};
  double longest = 0, sum = 0;
  for (const Decoding& d : decodes) {
    longest = std::max(longest, static_cast<double>(d.known)), sum += static_cast<double>(d.known);
    const std::int64_t generated = d.tokens - d.known;
    const std::size_t k = cell_of(known, d.known), g = cell_of(generated_, generated);
    if (g + 2 < generated_.size()) out.steps = std::min(out.steps, generated_[g + 1] - generated);
    Cell cell = of.cells[k][g];
    if (k + 1 < known.size() && d.known != known[k]) {
      const Cell& high = of.cells[k + 1][g];
      const double share = share_of(d.known, known[k], known[k + 1]);
      const auto mix = [share](Picoseconds a, Picoseconds b) {
        return a + static_cast<Picoseconds>(std::llround(share * static_cast<double>(b - a)));
      };
      cell = {mix(cell.start, high.start), mix(cell.slope, high.slope)};
    }
    out.first += cell.start + cell.slope * (generated - generated_[g]);
    out.growth += cell.slope;
  }
  // Constant while the same sequences decode, so that passes stay exactly linear: a share of the passes' first tokens.
  const double more = of.spread * (longest * static_cast<double>(decodes.size()) / sum - 1);
  if (more > 0) {
    const auto longer = [more](Picoseconds t) {
      return t + static_cast<Picoseconds>(std::llround(more * static_cast<double>(t)));
    };
    Picoseconds start = 0;
    for (const Decoding& d : decodes) {
      const std::size_t k = cell_of(known, d.known);
      start += of.cells[k].front().start;
    }
    out.first += longer(start) - start;
  }
  return out;
}

double StepTable::bare(int n) {
  return between(
      n, [&](std::int64_t at) { return remembered(bare_, at, [&] { return passes_.bare(static_cast<int>(at)); }); });
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

// Per token of the chunk it is nearly linear in the chunk and in the tokens before it.
double StepTable::attention(const Chunk& chunk) {
  const double per_token = between(chunk.added, [&](std::int64_t added) {
    const auto at = [&](std::int64_t cached) { return attention_at(added, cached) / static_cast<double>(added); };
    return chunk.cached == 0 ? at(0) : between(chunk.cached, at);
  });
  return per_token * static_cast<double>(chunk.added);
}

double StepTable::end_of(std::int64_t known) {
  const auto at = [&](std::int64_t all) {
    return remembered(ends_, all, [&] {
      const std::int64_t added = std::min(all, ranges_.pass_tokens), cached = all - added;
      return prompt({cached, added, all}, false) - prompt({cached, added, all + 1}, false);
    });
  };
  // Policies rank and cluster whole prompts, so that times grow faster than lines: four points an octave.
  const double octaves = std::floor(kEndsPerOctave * std::log2(static_cast<double>(known))) / kEndsPerOctave;
  const auto point = [](double o) { return static_cast<std::int64_t>(std::floor(std::exp2(o))); };
  const bool covered = known <= covered_;
  const std::int64_t low = covered ? point(octaves) : std::max(covered_ + 1, point(octaves));
  const std::int64_t next = std::max(low, point(octaves + 1.0 / kEndsPerOctave));
  const std::int64_t high = covered ? std::min(covered_, next) : next;
  return line(at(low), at(high), share_of(known, low, high));
}

double StepTable::head(int rows) {
  return between(
      rows, [&](std::int64_t r) { return remembered(heads_, r, [&] { return passes_.head(static_cast<int>(r)); }); });
}

// Kernels of policies that read each chunk separately.
double StepTable::further_chunk() {
  return remembered(rows_, std::int64_t{0}, [&] {
    const std::int64_t a = kSmallChunk, b = kSmallChunk + 1;
    const std::vector<Chunk> two = {{0, a, a + 1}, {0, b, b + 1}};
    ++simulated_;
    return passes_.pass({{}, two}) - rows(a + b) - attention(two[0]) - attention(two[1]);
  });
}

// Rows, attention of the chunks, the head, and what the policy does at the ends of prompts.
double StepTable::with_chunks(int decodes, std::span<const Chunk> chunks) {
  std::int64_t added = decodes;
  int ends = 0;
  double seconds = chunks.size() < 2 ? 0 : static_cast<double>(chunks.size() - 1) * further_chunk();
  for (const Chunk& chunk : chunks) {
    added += chunk.added;
    seconds += attention(chunk);
    if (!chunk.last()) continue;
    ++ends;
    seconds += end_of(chunk.known) - head(1);
  }
  if (decodes + ends > 0) seconds += head(decodes + ends);
  return seconds + rows(added);
}

StepTime StepTable::decodings(Company company) {
  StepTime out{0, 0, std::int64_t{1} << 40};
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    if (by_class_[c].empty()) continue;
    const StepTime of = decoding({static_cast<int>(by_class_[c].size()), company, c}, by_class_[c]);
    out.first += of.first, out.growth += of.growth, out.steps = std::min(out.steps, of.steps);
  }
  return out;
}

StepTime StepTable::time(std::span<const Decoding> decodes, std::span<const Chunk> chunks) {
  KVCAST_CHECK(!decodes.empty() || !chunks.empty());
  const auto n = static_cast<int>(decodes.size());
  for (std::vector<Decoding>& of : by_class_) of.clear();
  for (const Decoding& d : decodes) by_class_[class_of(d.known)].push_back(d);
  if (chunks.empty()) {
    const auto other = [&](const Decoding& d) { return d.tokens != decodes.front().tokens; };
    StepTime out = decodings(std::ranges::any_of(decodes, other) ? Company::kUnequal : Company::kEqual);
    out.first += to_picos(decodes_factor_ * bare(n));
    return out;
  }
  StepTime out{to_picos(chunks_factor_ * with_chunks(n, chunks)), 0, 1};
  if (n == 0) return out;
  std::int64_t added = 0;
  for (const Chunk& chunk : chunks) added += chunk.added;
  const double share = std::clamp(share_of(added, kSmallChunk, chunk_of(Company::kLargeChunk, n)), 0.0, 1.0);
  const auto small = static_cast<double>(decodings(Company::kSmallChunk).first);
  const auto large = static_cast<double>(decodings(Company::kLargeChunk).first);
  out.first += static_cast<Picoseconds>(std::llround(line(small, large, share)));
  return out;
}

}  // namespace kvcast::simulate

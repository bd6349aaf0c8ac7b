// Passes that the engine simulates for the sequences that decode.
#include <algorithm>
#include <cmath>
#include <set>

#include "simulate/step_grid.hpp"
#include "simulate/step_table.hpp"

namespace kvcast::simulate {
namespace {

using serving::Chunk;
using serving::Decoding;

// A cell is divided while its line misses the engine by more than this share of a pass, so many times at most.
constexpr double kMissed = 0.004;
constexpr int kDivisions = 6;
constexpr int kReferenceSequences = 16;  // of the passes by which cells are divided
constexpr double kFirstOfLadder = 0.5;   // place of the first of the spread lengths between the points of a ladder
constexpr int kMostStepped = 96;         // more sequences fill whatever they share
constexpr std::int64_t kChunks[] = {32, 160, 640};

// Adds points to a grid where the line between two of them misses `at` by more than a share of it.
void divide(std::set<std::int64_t>& grid, std::int64_t low, std::int64_t high, int divisions,
            const std::function<double(std::int64_t)>& at) {
  const auto middle =
      static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(low) * static_cast<double>(high))));
  if (divisions == 0 || middle <= low || middle >= high) return;
  const double there = at(middle), drawn = line(at(low), at(high), share_of(middle, low, high));
  if (std::abs(there - drawn) <= kMissed * there) return;
  grid.insert(middle);
  divide(grid, low, middle, divisions - 1, at);
  divide(grid, middle, high, divisions - 1, at);
}

}  // namespace

void StepTable::refine(std::size_t of) {
  Class& c = classes_[of];
  const Key key{kReferenceSequences, kUnequal, of};
  std::map<std::pair<std::int64_t, std::int64_t>, double> memo;
  const auto at = [&](std::int64_t known, std::int64_t generated) {
    return remembered(memo, std::pair{known, generated},
                      [&] { return bare(kReferenceSequences) + engine(key, known, generated); });
  };
  std::set<std::int64_t> known = {c.shortest}, generated = {1};
  if (!c.by_tokens && c.longest > c.shortest) {
    known.insert(c.longest);
    divide(known, c.shortest, c.longest, kDivisions, [&](std::int64_t k) { return at(k, 1); });
  }
  const std::int64_t most = c.by_tokens ? c.longest - c.shortest : ranges_.generated;
  if (most > 1) {
    generated.insert(most);
    for (const std::int64_t k : std::set{*known.begin(), *known.rbegin()}) {
      // Lengths are evenly divided by their logarithm, which generated tokens alone are not.
      const std::int64_t before = c.by_tokens ? k : 0;
      std::set<std::int64_t> tokens;
      divide(tokens, before + 1, before + most, kDivisions - (c.by_tokens ? 0 : 1),
             [&](std::int64_t t) { return at(k, t - before); });
      for (const std::int64_t t : tokens) generated.insert(t - before);
    }
  }
  c.known.assign(known.begin(), known.end());
  c.generated.assign(generated.begin(), generated.end());
}

std::int64_t StepTable::chunk_of(Company company, int n) const {
  const std::int64_t largest = std::max(kChunks[0], ranges_.pass_tokens - n);
  return company + 1 == kCompanies ? largest : std::min(kChunks[company - kFirstChunk], largest);
}

// The part of a pass's time that is attention of the sequences that decode and the policy's work for them.
double StepTable::pass(const Decodes& decodes, Company company) {
  count_simulated();
  const auto n = static_cast<int>(decodes.size());
  if (company < kFirstChunk) return passes_.pass({decodes, {}}) - bare(n);
  const std::int64_t added = chunk_of(company, n);
  const Chunk chunk{0, added, added + 1};
  const int decoded = n * passes_.queries();
  return passes_.pass({decodes, std::span(&chunk, 1), true, true}) - rows(added + decoded) - head(decoded);
}

double StepTable::engine(const Key& key, std::int64_t known, std::int64_t generated) {
  Decodes decodes(key.n, {known, known + generated});
  if (key.company != kEqual) {
    for (std::size_t i = 1; i < decodes.size(); i += 2) ++decodes[i].tokens;
  }
  return pass(decodes, key.company);
}

// Sequences whose lengths are spread evenly over the logarithms of those of the class, or over those of one half.
StepTable::Decodes StepTable::ladder(std::size_t of, int n, Part part) const {
  const Class& c = classes_[of];
  Decodes out;
  const double ratio = static_cast<double>(c.longest) / static_cast<double>(c.shortest);
  for (int i = 0; i < n; ++i) {
    const double even = (i + kFirstOfLadder) / n;
    const double place = part == Part::kAll ? even : part == Part::kShorter ? even / 2 : (1 + even) / 2;
    auto known = static_cast<std::int64_t>(std::llround(static_cast<double>(c.shortest) * std::pow(ratio, place)));
    const std::int64_t tokens = known + 1;
    if (of == kCovered) known = std::min(known, covered_);
    out.push_back({known, tokens});
  }
  return out;
}

double StepTable::value(const Grid& grid, std::size_t of, const Decoding& sequence) const {
  const Class& c = classes_[of];
  const Decoding d = placed(of, sequence);
  const std::int64_t generated = d.tokens - d.known;
  const std::size_t k = cell_of(c.known, d.known), g = cell_of(c.generated, generated);
  const auto at = [&](std::size_t k_at) {
    const double* const point = &grid.seconds[k_at * c.generated.size() + g];
    if (g + 1 >= c.generated.size()) return *point;
    return line(point[0], point[1], share_of(generated, c.generated[g], c.generated[g + 1]));
  };
  return k + 1 < c.known.size() ? line(at(k), at(k + 1), share_of(d.known, c.known[k], c.known[k + 1])) : at(k);
}

// Share that a ladder of lengths adds to the mean over its sequences, per unit of longest / mean - 1.
double StepTable::spread(const Key& key, const Grid& of) {
  const Class& c = classes_[key.of];
  if (key.n < 2 || key.company == kEqual || c.points() < 2) return 0;
  const Decodes decodes = ladder(key.of, key.n, Part::kAll);
  double mean = 0, drawn = 0;
  for (const Decoding& d : decodes) {
    mean += static_cast<double>(d.known) / key.n;
    drawn += value(of, key.of, d) / key.n;
  }
  const double longest = static_cast<double>(decodes.back().known) / mean - 1;
  return drawn > 0 && longest > 0 ? (pass(decodes, key.company) / drawn - 1) / longest : 0;
}

void StepTable::measure(const Key& key, Grid& grid) {
  for (const std::int64_t known : classes_[key.of].known) {
    for (const std::int64_t generated : classes_[key.of].generated) {
      grid.seconds.push_back(engine(key, known, generated));
    }
  }
}

// A chunk takes bandwidth from attention, and hides what waits for the host or a link: measured at a few lengths, as a
// factor on passes without chunks.
void StepTable::measure_with_chunk(const Key& key, Grid& made) {
  const Class& c = classes_[key.of];
  const Grid& alone = grid({key.n, kUnequal, key.of});
  const std::vector<std::int64_t>& axis = c.by_tokens ? c.generated : c.known;
  std::vector<std::int64_t> lengths;
  std::vector<double> factors;
  for (const std::size_t i : std::set<std::size_t>{0, axis.size() / 2, axis.size() - 1}) {
    const std::int64_t known = c.by_tokens ? c.shortest : axis[i], generated = c.by_tokens ? axis[i] : 1;
    lengths.push_back(axis[i]);
    factors.push_back(engine(key, known, generated) / value(alone, key.of, {known, known + generated}));
  }
  for (std::size_t k = 0; k < c.known.size(); ++k) {
    for (std::size_t g = 0; g < c.generated.size(); ++g) {
      const std::int64_t x = c.by_tokens ? c.generated[g] : c.known[k];
      const std::size_t i = cell_of(lengths, x);
      const bool last = i + 1 >= lengths.size();
      const double factor =
          last ? factors[i] : line(factors[i], factors[i + 1], share_of(x, lengths[i], lengths[i + 1]));
      made.seconds.push_back(factor * alone.seconds[k * c.generated.size() + g]);
    }
  }
}

const StepTable::Grid& StepTable::grid(const Key& key) {
  const auto found = grids_.find(key);
  if (found != grids_.end()) return found->second;
  Grid made;
  if (key.company < kFirstChunk) {
    measure(key, made);
  } else {
    measure_with_chunk(key, made);
  }
  made.spread = spread(key, made);
  return grids_.emplace(key, std::move(made)).first->second;
}

// Times grow with the number of sequences by steps where rows share threads or blocks: between the numbers of the grid
// one pass of n sequences says by how much.
double StepTable::stepped(const Key& key, const Grid& drawn) {
  if (key.n > kMostStepped) return 1;
  const Class& c = classes_[key.of];
  return remembered(stepped_, std::pair{key.n, key.of}, [&] {
    const std::int64_t known = c.known[c.known.size() / 2],
                       generated = c.generated[c.by_tokens ? c.generated.size() / 2 : 0];
    return engine(key, known, generated) / value(drawn, key.of, {known, known + generated});
  });
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
  double factor = 1;
  if (key.company == kUnequal) {
    factor = stepped(key, out);
  } else {
    at({key.n, kUnequal, key.of});
    const auto found = stepped_.find({key.n, key.of});
    if (found != stepped_.end()) factor = found->second;
  }
  for (double& seconds : out.seconds) seconds *= factor;
  return out;
}

// Seconds by which a pass of n sequences, the first of one class, the others with selection, exceeds what they take
// by class, or, where the two share kernels, the mean over them.
double StepTable::mixed_at(ClassId of, int n, int first, Company company, Part part) {
  return remembered(mixed_, std::array{static_cast<int>(of), n, first, company, static_cast<int>(part)}, [&] {
    double drawn = 0;
    Decodes decodes;
    for (const ClassId c : {of, kSelecting}) {
      const Decodes some = c == of ? ladder(c, first, Part::kAll) : ladder(c, n - first, part);
      const int among = of == kFilling ? n : static_cast<int>(some.size());
      const Grid points = at({among, company, c});
      double sum = 0, longest = 0, known = 0;
      for (const Decoding& d : some) {
        sum += value(points, c, d) / among;
        longest = std::max(longest, static_cast<double>(d.known)), known += static_cast<double>(d.known);
      }
      const double further = longest * static_cast<double>(some.size()) / known - 1;
      drawn += of == kFilling ? sum : sum * (1 + points.spread * further);
      decodes.insert(decodes.end(), some.begin(), some.end());
    }
    return pass(decodes, company) - drawn;
  });
}

double StepTable::mixed(ClassId of, int n, int first, Company company) {
  double known = 0;
  for (const Decoding& d : by_class_[kSelecting]) known += static_cast<double>(placed(kSelecting, d).known);
  known /= static_cast<double>(by_class_[kSelecting].size());
  const auto mean_of = [&](const Decodes& ladder) {
    double sum = 0;
    for (const Decoding& d : ladder) sum += static_cast<double>(d.known);
    return sum / static_cast<double>(ladder.size());
  };
  return between(n, [&](std::int64_t grid_n) {
    const auto all = static_cast<int>(grid_n);
    const double among = std::clamp(static_cast<double>(first) / n * all, 1.0, all - 1.0);
    const double half = std::max(1, all / 2);
    const bool upper = among > half;
    const double low = upper ? half : 1, high = upper ? all - 1 : half;
    const auto point = [&](double m) {
      const auto some = static_cast<int>(m);
      const double shorter = mean_of(ladder(kSelecting, all - some, Part::kShorter));
      const double longer = mean_of(ladder(kSelecting, all - some, Part::kLonger));
      const double a = mixed_at(of, all, some, company, Part::kShorter);
      if (longer <= shorter) return a;
      return line(a, mixed_at(of, all, some, company, Part::kLonger),
                  std::clamp((known - shorter) / (longer - shorter), -0.5, 1.5));
    };
    return low == high ? point(low) : line(point(low), point(high), (among - low) / (high - low));
  });
}

}  // namespace kvcast::simulate

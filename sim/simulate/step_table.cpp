#include "simulate/step_table.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/error.hpp"
#include "simulate/step_grid.hpp"

namespace kvcast::simulate {
namespace {

using serving::Chunk;
using serving::Decoding;
using serving::StepTime;

constexpr std::int64_t kForever = std::int64_t{1} << 40;

Picoseconds to_nearest(double picos) { return static_cast<Picoseconds>(std::llround(picos)); }

void add(StepTime& to, const StepTime& of) {
  to.first += of.first, to.growth += of.growth, to.steps = std::min(to.steps, of.steps);
}

}  // namespace

thread_local std::array<StepTable::Decodes, StepTable::kClasses> StepTable::by_class_;

StepTable::StepTable(const PassTimes& passes, const StepRanges& ranges) : passes_(passes), ranges_(ranges) {
  KVCAST_CHECK(ranges.shortest >= 1 && ranges.longest >= ranges.shortest && ranges.generated >= 1);
  leaves_out_ = passes.read(ranges.longest) < 1;
  std::int64_t above = ranges.longest + 1;
  covered_ = ranges.shortest - 1;
  while (above - covered_ > 1) {
    const std::int64_t middle = covered_ + (above - covered_) / 2;
    (passes.covers(middle) ? covered_ : above) = middle;
  }
  make_classes();
  for (std::size_t of = 0; of < kClasses; ++of) {
    if (classes_[of].any) refine(of);
  }
  exclusive_ = false;
}

void StepTable::make_classes() {
  const std::int64_t most = ranges_.longest + ranges_.generated;
  fill_ = covered_ < ranges_.longest ? passes_.fill(ranges_.longest) : 0;
  classes_[kCovered] = {covered_ >= ranges_.shortest, true, ranges_.shortest, covered_ + ranges_.generated, {}, {}};
  // Passes of unequal lengths differ by a token, which must not end the filling.
  classes_[kFilling] = {fill_ > covered_ + 2, true, covered_ + 1, std::min(fill_ - 1, most), {}, {}};
  Class& selecting = classes_[kSelecting];
  selecting.any = covered_ < ranges_.longest && most > fill_;
  selecting.by_tokens = passes_.policy().uncompressed();
  selecting.shortest = std::max(covered_ + 1, fill_);
  selecting.longest = selecting.by_tokens ? most : std::max(selecting.shortest, ranges_.longest);
}

std::size_t StepTable::class_of(const Decoding& d) const {
  const bool covered = d.known <= covered_, fills = classes_[kFilling].any && d.tokens <= fill_;
  const std::size_t of = covered ? kCovered : fills ? kFilling : kSelecting;
  if (classes_[of].any) return of;
  // A length beyond the ranges has no class of its own.
  if (fills) return kFilling;
  return classes_[kSelecting].any ? kSelecting : classes_[kCovered].any ? kCovered : kFilling;
}

// The sequence of the class's grid that takes the same time.
Decoding StepTable::placed(std::size_t of, const Decoding& d) const {
  if (classes_[of].by_tokens) return {classes_[of].shortest, d.tokens};
  return {std::max(d.known, classes_[of].shortest), d.tokens};
}

const StepTable::Row& StepTable::row(const Key& key) {
  const auto found = rows_of_.find(key);
  if (found != rows_of_.end()) return found->second;
  begin_change();
  const Grid of = at(key);
  const std::vector<std::int64_t>& generated = classes_[key.of].generated;
  const double each = (key.company < kFirstChunk ? decodes_factor_ : chunks_factor_) / key.n;
  Row made{{}, of.spread};
  const std::size_t cells = std::max<std::size_t>(1, generated.size() - 1);
  for (std::size_t k = 0; k < classes_[key.of].known.size(); ++k) {
    std::vector<Cell>& out = made.cells.emplace_back();
    for (std::size_t g = 0; g < cells; ++g) {
      const double* const point = &of.seconds[k * generated.size() + g];
      const bool slopes = g + 1 < generated.size();
      const double slope = slopes ? (point[1] - point[0]) / static_cast<double>(generated[g + 1] - generated[g]) : 0;
      out.push_back({to_picos(each * point[0]), to_picos(each * slope)});
    }
  }
  return rows_of_.emplace(key, std::move(made)).first->second;
}

void StepTable::scale(double decodes, double chunks) {
  decodes_factor_ = decodes, chunks_factor_ = chunks;
  rows_of_.clear();
}

StepTime StepTable::decoding(const Key& key, bool spreads) {
  const Row& of = row(key);
  const Class& c = classes_[key.of];
  StepTime out{0, 0, kForever};
  double longest = 0, sum = 0;
  Picoseconds start = 0;  // of the sequences' first tokens
  for (const Decoding& sequence : by_class_[key.of]) {
    longest = std::max(longest, static_cast<double>(sequence.known)), sum += static_cast<double>(sequence.known);
    const Decoding d = placed(key.of, sequence);
    const std::size_t k = cell_of(c.known, d.known);
    const double share = k + 1 < c.known.size() ? share_of(d.known, c.known[k], c.known[k + 1]) : 0;
    const auto cell_at = [&](std::size_t g) {
      const Cell low = of.cells[k][g];
      if (share == 0) return low;
      const Cell high = of.cells[k + 1][g];
      const auto mix = [share](Picoseconds a, Picoseconds b) {
        return a + to_nearest(share * static_cast<double>(b - a));
      };
      return Cell{mix(low.start, high.start), mix(low.slope, high.slope)};
    };
    const std::int64_t generated = d.tokens - d.known;
    const std::size_t g = cell_of(c.generated, generated);
    if (g + 2 < c.generated.size()) out.steps = std::min(out.steps, c.generated[g + 1] - generated);
    if (key.of == kFilling) out.steps = std::min(out.steps, std::max<std::int64_t>(1, fill_ + 1 - d.tokens));
    const Cell cell = cell_at(g);
    out.first += cell.start + cell.slope * (generated - c.generated[g]);
    out.growth += cell.slope;
    if (!spreads) continue;
    // Constant while the same sequences decode, so that passes stay exactly linear.
    const std::int64_t first = placed(key.of, {sequence.known, sequence.known + 1}).known;
    const std::int64_t from = c.by_tokens ? sequence.known + 1 - first : 1;
    const std::size_t at = cell_of(c.generated, from);
    const Cell begun = cell_at(at);
    start += begun.start + begun.slope * (from - c.generated[at]);
  }
  if (spreads) {
    const double more = of.spread * (longest * static_cast<double>(by_class_[key.of].size()) / sum - 1);
    out.first += to_nearest(more * static_cast<double>(start));
  }
  return out;
}

StepTime StepTable::decodings(Company company) {
  StepTime out{0, 0, kForever};
  const auto size = [&](ClassId of) { return static_cast<int>(by_class_[of].size()); };
  const int covered = size(kCovered), filling = size(kFilling), selecting = size(kSelecting);
  if (covered > 0) add(out, decoding({covered, company, kCovered}, true));
  const bool both = filling > 0 && selecting > 0;
  for (const ClassId of : {kFilling, kSelecting}) {
    if (size(of) > 0) add(out, decoding({filling + selecting, company, of}, !both));
  }
  const double factor = company < kFirstChunk ? decodes_factor_ : chunks_factor_;
  if (both) out.first += to_picos(factor * mixed(kFilling, filling + selecting, filling, company));
  // One class waits for the link or the CPU while the other computes.
  if (covered > 0 && selecting > 0)
    out.first += to_picos(factor * mixed(kCovered, covered + selecting, covered, company));
  return out;
}

StepTime StepTable::time(std::span<const Decoding> decodes, std::span<const Chunk> chunks) {
  KVCAST_CHECK(!decodes.empty() || !chunks.empty());
  try {
    const std::shared_lock reads(mutex_);
    return timed(decodes, chunks);
  } catch (const Missing&) {
  }
  const std::unique_lock changes(mutex_);
  struct Exclusive {
    bool& on;
    explicit Exclusive(bool& flag) : on(flag) { on = true; }
    ~Exclusive() { on = false; }
  } const exclusive(exclusive_);
  return timed(decodes, chunks);
}

// Queues see tokens one by one, each with its share of a pass. One that also reads prompts takes the prompts' time and
// the share of one token.
StepTime StepTable::timed(std::span<const Decoding> decodes, std::span<const Chunk> chunks) {
  const double each = 1 / passes_.tokens_per_pass();
  if (each == 1 || decodes.empty()) return pass_of(decodes, chunks);
  const auto share = [](double of, Picoseconds time) { return to_nearest(of * static_cast<double>(time)); };
  StepTime alone = pass_of(decodes, {});
  if (!chunks.empty()) {
    const StepTime both = pass_of(decodes, chunks);
    return {std::max(share(each, alone.first), both.first - share(1 - each, alone.first)), 0, both.steps};
  }
  alone.first = share(each, alone.first), alone.growth = share(each, alone.growth);
  return alone;
}

StepTime StepTable::pass_of(std::span<const Decoding> decodes, std::span<const Chunk> chunks) {
  const auto n = static_cast<int>(decodes.size());
  for (Decodes& of : by_class_) of.clear();
  for (const Decoding& d : decodes) by_class_[class_of(d)].push_back(d);
  if (chunks.empty()) {
    const auto other = [&](const Decoding& d) { return d.tokens != decodes.front().tokens; };
    StepTime out = decodings(std::ranges::any_of(decodes, other) ? kUnequal : kEqual);
    out.first += to_picos(decodes_factor_ * bare(n));
    return out;
  }
  StepTime out{to_picos(chunks_factor_ * with_chunks(n, chunks)), 0, 1};
  if (n == 0) return out;
  std::int64_t added = 0;
  for (const Chunk& chunk : chunks) added += entering(chunk).added;
  Company high = kFirstChunk + 1;
  while (high + 1 < kCompanies && chunk_of(high, n) < added) ++high;
  const double share = std::clamp(share_of(added, chunk_of(high - 1, n), chunk_of(high, n)), 0.0, 1.0);
  const auto smaller = static_cast<double>(decodings(high - 1).first);
  const auto larger = static_cast<double>(decodings(high).first);
  out.first += to_nearest(line(smaller, larger, share));
  return out;
}

}  // namespace kvcast::simulate

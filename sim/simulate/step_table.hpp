// Times of any pass of a service, interpolated between passes that the engine has simulated.
//
// A pass takes the time of its rows (products, small kernels, collectives, the host), of attention and the policy's
// work for the sequences that decode, of attention over each chunk, and of what ends with a prompt: the head's rows,
// and the policy's work.
//   decodes alone   N(n) + sum over the classes of A(sequences of the class)
//   with chunks     B(rows) + head + sum over the classes of D(sequences of the class) + sum of P(chunk) + ends
// Sequences whose tokens the budget covers are a class of their own, with kernels of their own. A and D are means over
// the sequences of a table over their number, the tokens that were read before decoding, and those generated since;
// they have more points where a line between two misses the engine. Kernels wait for the longest sequence, which adds a
// share that is measured on sequences of spread lengths. B is a table over rows, P one over a chunk and the tokens
// before it. Points are simulated when they are first needed.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "serving/step_times.hpp"
#include "simulate/pass_times.hpp"

namespace kvcast::simulate {

// Sequences that a table is made for. Times of others lie on the line through the last two points.
struct StepRanges {
  std::int64_t shortest = 1, longest = 1;  // tokens that are read before a sequence decodes
  std::int64_t generated = 1;              // largest number of tokens after them
  std::int64_t pass_tokens = 8192;         // largest number of tokens that a pass reads
};

class StepTable final : public serving::StepTimes {
 public:
  // `passes` must outlive the table.
  StepTable(const PassTimes& passes, const StepRanges& ranges);

  serving::StepTime time(std::span<const serving::Decoding> decodes, std::span<const serving::Chunk> chunks) override;

  // Factors on all further times of passes without and with chunks, for the ends of their intervals.
  void scale(double decodes, double with_chunks);

  std::int64_t simulated() const { return simulated_; }  // passes so far

 private:
  // Sequences of a pass are of equal lengths, differ by a token (kernels of unequal lengths), or share the pass with a
  // small or a large chunk.
  enum class Company { kEqual, kUnequal, kSmallChunk, kLargeChunk };
  // Sequences that the budget covers, and others: their grid of lengths.
  struct Class {
    std::int64_t shortest = 1, longest = 1;
    std::vector<std::int64_t> known;
  };
  // Seconds of all sequences by [known × generated], and the share that spread lengths add.
  struct Grid {
    std::vector<double> seconds;
    double spread = 0;
  };
  // Picoseconds of one of n sequences; linear in the generated tokens of a cell.
  struct Cell {
    Picoseconds start = 0, slope = 0;
  };
  struct Row {
    std::vector<std::vector<Cell>> cells;  // [known][cell of generated]
    double spread = 0;
  };
  struct Key {
    int n = 0;
    Company company = Company::kEqual;
    std::size_t of = 0;  // class
    auto operator<=>(const Key&) const = default;
  };

  double pass(const std::vector<serving::Decoding>& decodes, Company company);
  double engine(const Key& key, std::int64_t known, std::int64_t generated);
  double spread(const Key& key, const Grid& grid);
  double prompt(const serving::Chunk& chunk, bool without_pairs);
  const Grid& grid(const Key& key);
  Grid at(const Key& key);
  const Row& row(const Key& key);
  std::int64_t chunk_of(Company company, int n) const;

  double bare(int n);                             // N
  double rows(std::int64_t rows);                 // B
  double attention(const serving::Chunk& chunk);  // P
  double attention_at(std::int64_t added, std::int64_t cached);
  double further_chunk();
  double end_of(std::int64_t known);  // a prompt's end by itself: the head's first row, and the policy's work
  double head(int rows);
  double with_chunks(int decodes, std::span<const serving::Chunk> chunks);

  // All sequences of a class.
  serving::StepTime decoding(const Key& key, std::span<const serving::Decoding> decodes);
  serving::StepTime decodings(Company company);
  std::size_t class_of(std::int64_t known) const { return known <= covered_ ? 0 : classes_.size() - 1; }
  void refine_known(std::size_t of);
  void refine_generated();

  const PassTimes& passes_;
  StepRanges ranges_;
  std::int64_t covered_ = 0;  // the budget covers sequences of up to so many tokens
  std::vector<Class> classes_;
  std::vector<std::int64_t> generated_;
  std::vector<std::vector<serving::Decoding>> by_class_;  // of the pass that is being timed
  std::map<Key, Grid> grids_;
  std::map<Key, Row> rows_of_;
  std::map<std::int64_t, double> bare_, rows_, ends_, heads_;
  std::map<std::pair<std::int64_t, std::int64_t>, double> attention_;
  double decodes_factor_ = 1, chunks_factor_ = 1;
  std::int64_t simulated_ = 0;
};

}  // namespace kvcast::simulate

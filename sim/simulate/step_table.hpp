// Times of any pass of a service, interpolated between passes that the engine has simulated.
//
// A pass takes the time of its rows (products, small kernels, collectives, the host), of attention and the policy's
// work for the sequences that decode, of attention over each chunk, and of what ends with a prompt: the head's rows,
// and the policy's work.
//   decodes alone   N(n) + A(covered) + A(others)
//   with chunks     B(rows) + head + D(covered) + D(others) + sum of P(chunk) + ends
// Sequences are of three classes: those that the budget covers have kernels of their own and take the time of their
// tokens; those that still fill a budget take it too, but share kernels with those for which the policy selects. A is
// the mean over n sequences of tables for n equal ones, each over the tokens that were read before decoding and those
// generated since, with more points where a line between two misses the engine. Between the numbers of sequences that
// have such tables, one pass of n says how far time grows by steps (`stepped`). Two measured terms are added: kernels
// wait for their longest sequence (`spread`), and two classes in one pass share what is fixed, or wait while the other
// computes (`mixed`). D is A times a factor for the chunks' size. B is a table over rows, P one over a chunk and the
// tokens before it. Points are simulated when they are first needed.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <shared_mutex>
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

  // May be called from several threads.
  serving::StepTime time(std::span<const serving::Decoding> decodes, std::span<const serving::Chunk> chunks) override;

  // Factors, not while another thread reads times, on all further times of passes without and with chunks, for the
  // ends of their intervals.
  void scale(double decodes, double with_chunks);

  std::int64_t simulated() const { return simulated_; }  // passes so far

 private:
  // Sequences of a pass are of equal lengths, differ by a token (kernels of unequal lengths), or share the pass with a
  // chunk of one of a few sizes.
  using Company = int;
  static constexpr Company kEqual = 0, kUnequal = 1, kFirstChunk = 2, kCompanies = 6;
  enum ClassId : std::size_t { kCovered, kFilling, kSelecting, kClasses };
  // Sequences of one kind, and the grid of their lengths.
  struct Class {
    bool any = false;
    bool by_tokens = false;  // times follow from all tokens: `known` has one point
    std::int64_t shortest = 1, longest = 1;
    std::vector<std::int64_t> known, generated;
    std::size_t points() const { return known.size() * generated.size(); }
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
    Company company = kEqual;
    std::size_t of = 0;  // class
    auto operator<=>(const Key&) const = default;
  };
  using Decodes = std::vector<serving::Decoding>;
  enum class Part { kAll, kShorter, kLonger };  // of the lengths of a class

  // Thrown where a pass must be simulated while other threads may read the table.
  struct Missing {};
  void begin_change() const {
    if (!exclusive_) throw Missing();
  }
  void count_simulated() {
    begin_change();
    ++simulated_;
  }

  serving::StepTime timed(std::span<const serving::Decoding> decodes, std::span<const serving::Chunk> chunks);
  serving::StepTime pass_of(std::span<const serving::Decoding> decodes, std::span<const serving::Chunk> chunks);
  void make_classes();
  std::size_t class_of(const serving::Decoding& d) const;
  serving::Decoding placed(std::size_t of, const serving::Decoding& d) const;
  void refine(std::size_t of);

  double pass(const Decodes& decodes, Company company);
  double engine(const Key& key, std::int64_t known, std::int64_t generated);
  Decodes ladder(std::size_t of, int n, Part part) const;
  double value(const Grid& grid, std::size_t of, const serving::Decoding& d) const;
  double spread(const Key& key, const Grid& grid);
  void measure(const Key& key, Grid& grid);
  void measure_with_chunk(const Key& key, Grid& grid);
  const Grid& grid(const Key& key);
  Grid at(const Key& key);
  double stepped(const Key& key, const Grid& drawn);
  const Row& row(const Key& key);
  double mixed(ClassId of, int n, int first, Company company);
  double mixed_at(ClassId of, int n, int first, Company company, Part part);
  std::int64_t chunk_of(Company company, int n) const;

  double bare(int n);                             // N
  double rows(std::int64_t rows);                 // B
  double attention(const serving::Chunk& chunk);  // P
  double attention_at(std::int64_t added, std::int64_t cached);
  // reads_all: all of the chunk's tokens enter the model, whatever the policy leaves out.
  double prompt(const serving::Chunk& chunk, bool without_pairs, bool reads_all = true);
  serving::Chunk entering(const serving::Chunk& chunk) const;
  double further_chunk(std::int64_t all);
  double end_of(const serving::Chunk& chunk);  // a prompt's end by itself: the head's first row, the policy's work
  double head(int rows);
  double with_chunks(int sequences, std::span<const serving::Chunk> chunks);

  // Sequences of a class among n that share kernels; spreads: they are all of the n.
  serving::StepTime decoding(const Key& key, bool spreads);
  serving::StepTime decodings(Company company);

  const PassTimes& passes_;
  StepRanges ranges_;
  std::int64_t covered_ = 0;  // the budget covers sequences of up to so many tokens
  std::int64_t fill_ = 0;     // others attend to all tokens while they have no more than these
  bool leaves_out_ = false;   // some tokens of a prompt do not enter the model
  std::array<Class, kClasses> classes_;
  static thread_local std::array<Decodes, kClasses> by_class_;  // of the pass that is being timed
  std::map<Key, Grid> grids_;
  std::map<Key, Row> rows_of_;
  std::map<std::array<int, 5>, double> mixed_;
  std::map<std::pair<int, std::size_t>, double> stepped_;
  std::map<std::int64_t, double> bare_, rows_, heads_, further_;
  std::map<std::pair<std::int64_t, std::int64_t>, double> attention_, ends_;
  double decodes_factor_ = 1, chunks_factor_ = 1;
  std::int64_t simulated_ = 0;
  std::shared_mutex mutex_;  // shared while times are read, exclusive while passes are simulated
  bool exclusive_ = true;    // the constructor's, and while the second
};

}  // namespace kvcast::simulate

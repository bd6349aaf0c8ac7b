// Content as vectors of one KV head: what tokens carry and queries seek. Every code has the length √n of n channels.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "base/random.hpp"
#include "trace/document.hpp"
#include "trace/recipe.hpp"

namespace kvcast::trace {

using Code = std::vector<float>;

class CodeBook {
 public:
  CodeBook(const Recipe& recipe, std::size_t channels, const Stream& stream);

  Code identity(int item, bool asked) const;           // of a needle
  Code shared_key() const;                             // what the keys of those asked for have in common
  Code phrase(int item, int index, bool asked) const;  // a token of its key phrase
  Code value(int item, int index, bool asked) const;   // a token of its value
  Code odd(int item, int kind) const;                  // a number or name of running text
  Code type() const;                                   // what all needles have in common
  Code spot(int item) const;                           // what a spot of evidence is about
  Code evidence(int item, int index) const;            // a token of it
  Code spots(int first, int count) const;              // what several of them are about, together
  Code free(int query) const;                          // what a free prompt query seeks
  Code with_common(const Code& own) const;             // what any free query of the head seeks, and its own part
  Code decoy(int query) const { return free(query); }

 private:
  Code of_kind(std::uint64_t kind, const Code& own) const;
  Code draw(std::initializer_list<std::uint64_t> name) const;
  Code mix(double share, const Code& a, const Code& b) const;

  const CodeModel& model_;
  double evidence_share_;
  double shared_key_, common_share_;
  std::size_t channels_;
  Stream stream_;
};

// sqrt(Σ x²)
double length(const std::vector<float>& x);

}  // namespace kvcast::trace

// Needles stand in equal stretches of the prompt, one each, anywhere inside; which of them are asked for, and in what
// order, is drawn. Decoys stand anywhere between.
#include "trace/document.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace kvcast::trace {
namespace {

enum Draw : std::uint64_t { kPlace, kAsked, kAsking, kDecoyPlace, kDecoyQuery };

constexpr std::int64_t kFirstToken = 4;  // before it: the sink and the tokens that often share its role

// A permutation of 0 .. n − 1 (Fisher and Yates).
std::vector<int> shuffled(int n, const Stream& stream) {
  std::vector<int> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[stream.below(i, i)]);
  return order;
}

class Author {
 public:
  Author(const Recipe& recipe, std::int64_t prompt_tokens, const Stream& stream)
      : r_(recipe), prompt_(prompt_tokens), stream_(stream), end_(prompt_tokens - recipe.question.tokens) {}

  Document write(int decode_steps, int window) {
    place_needles();
    ask(window);
    place_decoys();
    answer(decode_steps);
    const auto before = [](const SpecialToken& a, const SpecialToken& b) { return a.position < b.position; };
    std::sort(document_.tokens.begin(), document_.tokens.end(), before);
    return std::move(document_);
  }

 private:
  void place_needles() {
    const int asked = r_.task.needles;
    if (asked == 0 && r_.task.distractors == 0 && r_.task.distractor_density <= 0) return;
    const auto dense = static_cast<int>(r_.task.distractor_density * static_cast<double>(prompt_) / 1000);
    const std::int64_t items = asked + r_.task.distractors + dense;
    const std::int64_t length = r_.task.key_tokens + r_.task.gap_tokens + r_.task.value_tokens;
    const auto haystack = static_cast<double>(std::max<std::int64_t>(0, end_ - kFirstToken));
    const std::int64_t begin = kFirstToken + std::llround(r_.task.earliest * haystack);
    const std::int64_t room = kFirstToken + std::llround(r_.task.latest * haystack) - begin;
    const std::int64_t stretch = items == 0 ? length : room / items;
    if (stretch < length) {
      throw UserError(
          fmt::format("the prompt of {} tokens is too short for the task: {} needles of {} tokens each, {} tokens of "
                      "haystack for them",
                      prompt_, items, length, std::max<std::int64_t>(0, room)));
    }
    const std::vector<int> place = shuffled(static_cast<int>(items), stream_.child({kAsked}));
    const Stream offsets = stream_.child({kPlace});
    for (int item = 0; item < items; ++item) {  // items below `asked` are asked for, in this order
      const std::int64_t offset = static_cast<std::int64_t>(
          offsets.below(static_cast<std::uint64_t>(item), static_cast<std::uint64_t>(stretch - length + 1)));
      place_needle(item, begin + place[static_cast<std::size_t>(item)] * stretch + offset, item < asked);
    }
  }

  void place_needle(int item, std::int64_t first, bool asked) {
    for (int i = 0; i < r_.task.key_tokens; ++i) add({first + i, SpecialToken::Kind::kPhrase, asked, item, i});
    first += r_.task.key_tokens + r_.task.gap_tokens;
    if (asked) values_.push_back(first);
    for (int i = 0; i < r_.task.value_tokens; ++i) add({first + i, SpecialToken::Kind::kValue, asked, item, i});
  }

  void add(const SpecialToken& token) {
    document_.tokens.push_back(token);
    if (taken_.empty()) taken_.resize(static_cast<std::size_t>(prompt_));
    taken_[static_cast<std::size_t>(token.position)] = true;
  }

  // Of the question's tokens some ask for the needles; the captured queries before and the rest of them are free.
  void ask(int window) {
    const int question = std::min(r_.question.tokens, window);
    auto& out = document_.window;
    for (int i = 0; i < window; ++i) out.push_back({Sought::Kind::kFree, 0, i - (window - question)});
    if (r_.task.needles > 0) {
      const std::vector<int> order = shuffled(question, stream_.child({kAsking}));
      std::size_t next = 0;
      const auto place = [&](Sought::Kind kind, int item) {
        if (next < order.size()) out[static_cast<std::size_t>(window - question + order[next++])] = {kind, item, 0};
      };
      for (int i = 0; i < r_.question.value_queries; ++i) place(Sought::Kind::kValue, i % r_.task.needles);
      for (int i = 0; i < r_.question.key_queries; ++i) {
        for (int item = 0; item < r_.task.needles; ++item) place(Sought::Kind::kPhrase, item);
      }
    }
    for (const Sought& s : out) {
      if (s.kind == Sought::Kind::kFree && s.index >= 0) free_.push_back(s.index);
    }
  }

  void place_decoys() {
    const double grown = r_.decoys.count * std::pow(static_cast<double>(prompt_) / 16384, r_.decoys.growth);
    const std::size_t matched = std::min(free_.size(), static_cast<std::size_t>(r_.decoys.queries));
    if (matched == 0 || end_ <= kFirstToken) return;
    // At most one token in 32: on short prompts decoys must not become the haystack.
    const auto count = std::min(static_cast<std::int64_t>(std::lround(grown)), (end_ - kFirstToken) / 32);
    const Stream places = stream_.child({kDecoyPlace});
    const Stream queries = stream_.child({kDecoyQuery});
    for (std::int64_t i = 0; i < count; ++i) {
      const auto n = static_cast<std::uint64_t>(i);
      const auto position =
          kFirstToken + static_cast<std::int64_t>(places.below(n, static_cast<std::uint64_t>(end_ - kFirstToken)));
      if (!taken_.empty() && taken_[static_cast<std::size_t>(position)])
        continue;  // a needle or another decoy is there
      add({position, SpecialToken::Kind::kDecoy, false, static_cast<int>(i), free_[queries.below(n, matched)]});
    }
  }

  void answer(int decode_steps) {
    const int cycle = r_.task.value_tokens + r_.task.pause_steps;
    for (int t = 0; t < decode_steps; ++t) {
      const int item = t / cycle, index = t % cycle;
      const bool seeks = item < r_.task.needles && index < r_.task.value_tokens;
      document_.steps.push_back(seeks ? Sought{Sought::Kind::kValue, item, index} : Sought{});
      document_.targets.push_back({});
      if (seeks) document_.targets.back().push_back(values_[static_cast<std::size_t>(item)] + index);
    }
  }

  const Recipe& r_;
  const std::int64_t prompt_;
  const Stream stream_;
  const std::int64_t end_;  // of the haystack; the question follows
  Document document_;
  std::vector<bool> taken_;
  std::vector<std::int64_t> values_;  // first value token of each needle asked for
  std::vector<int> free_;             // numbers of the question's free queries
};

}  // namespace

Document make_document(const Recipe& recipe, std::int64_t prompt_tokens, int decode_steps, int window,
                       const Stream& stream) {
  return Author(recipe, prompt_tokens, stream).write(decode_steps, window);
}

}  // namespace kvcast::trace

// Needles and spots of evidence are placed in equal stretches of the prompt, one in each, anywhere inside; the
// selection and the order of those asked for are drawn. Words with many occurrences, and decoys, are placed anywhere in
// between.
#include "synth/document.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace kvcast::trace {
namespace {

enum DocumentDraw : std::uint64_t {
  kPlace,
  kAsked,
  kAsking,
  kDecoyPlace,
  kDecoyQuery,
  kCopyPlace,
  kBack,
  kOddPlace,
  kOddKind
};

constexpr std::int64_t kFirstToken = 4;  // earlier positions are the sink and the tokens that often share its role

// Returns a random permutation of 0 .. n − 1 (Fisher–Yates).
std::vector<int> shuffled(int n, const Stream& stream) {
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[stream.below(i, i)]);
  return order;
}

class Author {
 public:
  Author(const Recipe& recipe, std::int64_t prompt_tokens, const Stream& stream, std::optional<double> depth)
      : r_(recipe),
        prompt_(prompt_tokens),
        stream_(stream),
        depth_(depth),
        end_(prompt_tokens - recipe.question.turns * recipe.question.tokens) {}

  Document write(int decode_steps, int window) {
    place_needles();
    place_evidence();
    ask(window);
    begin_turns();
    place_decoys();
    place_odd_tokens();
    place_beginnings(decode_steps);
    answer(decode_steps);
    const auto before = [](const SpecialToken& a, const SpecialToken& b) { return a.position < b.position; };
    std::sort(document_.tokens.begin(), document_.tokens.end(), before);
    read_on();
    return std::move(document_);
  }

 private:
  // Returns the start positions of items of `length` tokens, one in each of `items` equal stretches. At a depth, the
  // first item has that share of the haystack before it.
  std::vector<std::int64_t> places(std::int64_t items, std::int64_t length) const {
    const auto haystack = static_cast<double>(std::max<std::int64_t>(0, end_ - kFirstToken));
    const std::int64_t begin = kFirstToken + (depth_ ? 0 : std::llround(r_.task.earliest * haystack));
    const std::int64_t room = kFirstToken + std::llround((depth_ ? 1 : r_.task.latest) * haystack) - begin;
    const std::int64_t stretch = items == 0 ? length : room / items;
    if (stretch < length) {
      throw UserError(
          fmt::format("recipe {}: the prompt of {} tokens is too short for the task: {} of {} tokens{}, and {} tokens "
                      "of haystack remain",
                      r_.name, prompt_, items == 1 ? "1 needle" : fmt::format("{} needles", items), length,
                      items == 1 ? "" : " each", std::max<std::int64_t>(0, room)));
    }
    std::vector<int> order = shuffled(static_cast<int>(items), stream_.child({kAsked}));
    const double at = depth_.value_or(0) * static_cast<double>(items);
    const int chosen = std::clamp(static_cast<int>(at), 0, static_cast<int>(std::max<std::int64_t>(items, 1)) - 1);
    if (depth_) std::iter_swap(order.begin(), std::ranges::find(order, chosen));
    const Stream offsets = stream_.child({kPlace});
    std::vector<std::int64_t> first;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::uint64_t offset =
          depth_ && i == 0
              ? static_cast<std::uint64_t>(std::llround((at - chosen) * static_cast<double>(stretch - length)))
              : offsets.below(i, static_cast<std::uint64_t>(stretch - length + 1));
      first.push_back(begin + order[i] * stretch + static_cast<std::int64_t>(offset));
    }
    return first;
  }

  void place_needles() {
    if (r_.task.spots > 0) return;
    if (r_.task.copies > 1 || r_.task.copy_density > 0) return place_words();
    const int asked = r_.task.needles;
    if (asked == 0 && r_.task.distractors == 0 && r_.task.distractor_density <= 0) return;
    const auto dense = static_cast<int>(r_.task.distractor_density * static_cast<double>(prompt_) / 1000);
    // Needles that an earlier turn asked for are distractors now.
    const int of_turns = r_.question.earlier + (r_.question.turns - 1) * asked;
    const int others = std::max(r_.task.distractors + dense, of_turns);
    const int items = asked + others;
    const std::int64_t length = r_.task.key_tokens + r_.task.gap_tokens + r_.task.value_tokens;
    const std::vector<std::int64_t> first = places(items, length);  // items below `asked` are asked for, in this order
    for (int item = 0; item < items; ++item) place_needle(item, first[item], item < asked);
  }

  // Places needles that are words with many occurrences, in descending order of frequency.
  void place_words() {
    const Stream stream = stream_.child({kCopyPlace});
    std::uint64_t drawn = 0;
    for (int item = 0; item < r_.task.needles; ++item) {
      const double dense = r_.task.copy_density * static_cast<double>(prompt_) / 1000;
      const auto copies =
          std::lround(std::max<double>(r_.task.copies, dense * std::pow(item + 1, -r_.task.copy_decay)));
      std::vector<std::int64_t> found;
      for (long copy = 0; copy < copies && end_ > kFirstToken; ++copy) {
        const std::int64_t position = kFirstToken + stream.below(drawn++, end_ - kFirstToken);
        if (is_taken(position)) continue;
        add({position, SpecialToken::Kind::kValue, true, item, 0});
        found.push_back(position);
      }
      std::sort(found.begin(), found.end());
      values_.push_back(std::move(found));
    }
  }

  void place_evidence() {
    if (r_.task.spots == 0) return;
    const int radius = r_.task.spot_radius;
    const std::vector<std::int64_t> first = places(r_.task.spots + r_.task.distractors, 2 * radius + 1);
    for (int spot = 0; spot < static_cast<int>(first.size()); ++spot) {
      const std::int64_t middle = first[spot] + radius;
      const bool asked = spot < r_.task.spots;
      // Passages that are not asked for have negative numbers, distinct from those of generated evidence.
      const int item = asked ? spot : -spot;
      for (int i = -radius; i <= radius; ++i) add({middle + i, SpecialToken::Kind::kEvidence, asked, item, i});
      if (asked) spots_.push_back(middle);
    }
  }

  // Places the beginning of each generated section, which later sections refer to: evidence numbered after that of the
  // prompt.
  void place_beginnings(int decode_steps) {
    if (r_.task.back_steps == 0) return;
    const int radius = r_.task.spot_radius;
    for (int first = 0; first + 2 * radius < decode_steps; first += r_.task.section_steps) {
      const int item = static_cast<int>(spots_.size());
      const std::int64_t middle = prompt_ + first + radius;
      for (int i = -radius; i <= radius; ++i) {
        document_.tokens.push_back({middle + i, SpecialToken::Kind::kEvidence, true, item, i});
      }
      spots_.push_back(middle);
    }
  }

  void place_needle(int item, std::int64_t first, bool asked) {
    for (int i = 0; i < r_.task.key_tokens; ++i) add({first + i, SpecialToken::Kind::kPhrase, asked, item, i});
    first += r_.task.key_tokens + r_.task.gap_tokens;
    if (asked) values_.push_back({first});
    for (int i = 0; i < r_.task.value_tokens; ++i) add({first + i, SpecialToken::Kind::kValue, asked, item, i});
  }

  bool is_taken(std::int64_t position) const { return !taken_.empty() && taken_[position]; }

  void add(const SpecialToken& token) {
    document_.tokens.push_back(token);
    if (taken_.empty()) taken_.resize(prompt_);
    taken_[token.position] = true;
  }

  // Some of a question's queries seek its needles; its other queries, and the captured ones before it, are free.
  void ask(int window) {
    const int question = std::min(r_.question.tokens, window);
    auto& out = document_.window;
    for (int i = 0; i < window; ++i) out.push_back({Sought::Kind::kFree, 0, i - (window - question)});
    ask_at(window - question, question, r_.question.earlier, stream_.child({kAsking}));
    // Needles of earlier turns are numbered after those that are asked for last.
    for (int turn = 1; turn < r_.question.turns; ++turn) {
      const int first = window - (turn + 1) * question;
      if (first < 0) break;  // not captured
      ask_at(first, question, turn * r_.task.needles, stream_.child({kAsking, static_cast<std::uint64_t>(turn)}));
    }
    for (const Sought& s : out) {
      if (s.kind == Sought::Kind::kFree && s.index >= 0) free_.push_back(s.index);
    }
  }

  void ask_at(int first, int question, int earlier, const Stream& stream) {
    auto& out = document_.window;
    if (r_.task.needles + r_.task.spots > 0) {
      const std::vector<int> order = shuffled(question, stream);
      std::size_t next = 0;
      const auto place = [&](Sought::Kind kind, int item) {
        if (next >= order.size()) return;
        out[first + order[next++]] = {kind, item, kind == Sought::Kind::kSpots ? 1 : 0};
      };
      const int needles = r_.task.needles, spots = r_.task.spots;
      for (int i = 0; needles > 0 && i < r_.question.value_queries; ++i) {
        place(Sought::Kind::kValue, earlier + i % needles);
      }
      for (int i = 0; i < r_.question.key_queries; ++i) {
        if (r_.task.shared_key > 0 && needles > 0) {
          place(Sought::Kind::kPhrase, Sought::kSharedKey);
        } else {
          for (int item = 0; item < needles; ++item) place(Sought::Kind::kPhrase, earlier + item);
        }
        for (int spot = 0; spot < spots; ++spot) place(Sought::Kind::kSpots, spot);
      }
      for (int i = 0; i < r_.question.type_queries; ++i) place(Sought::Kind::kType, 0);
    }
  }

  void begin_turns() {
    if (r_.question.turns == 1) return;
    document_.turns.push_back(0);
    for (int turn = r_.question.turns - 1; turn > 0; --turn) {
      document_.turns.push_back(prompt_ - turn * r_.question.tokens);
    }
  }

  void place_decoys() {
    const double grown = r_.decoys.count * std::pow(static_cast<double>(prompt_) / 16384, r_.decoys.growth);
    const std::size_t matched = std::min(free_.size(), static_cast<std::size_t>(r_.decoys.queries));
    if (matched == 0 || end_ <= kFirstToken) return;
    // At most one token in 32 is a decoy: on short prompts decoys must not become the haystack.
    const auto count = std::min(static_cast<std::int64_t>(std::lround(grown)), (end_ - kFirstToken) / 32);
    const Stream places = stream_.child({kDecoyPlace});
    const Stream queries = stream_.child({kDecoyQuery});
    for (std::int64_t i = 0; i < count; ++i) {
      const auto n = static_cast<std::uint64_t>(i);
      const auto position =
          kFirstToken + static_cast<std::int64_t>(places.below(n, static_cast<std::uint64_t>(end_ - kFirstToken)));
      if (is_taken(position)) continue;  // occupied by a needle or another decoy
      add({position, SpecialToken::Kind::kDecoy, false, static_cast<int>(i), free_[queries.below(n, matched)]});
    }
  }

  // Places numbers and names of running text.
  void place_odd_tokens() {
    if (r_.task.haystack != "text") return;
    const Stream places = stream_.child({kOddPlace}), kinds = stream_.child({kOddKind});
    int number = 0;
    for (std::int64_t position = kFirstToken; position < end_; ++position) {
      const auto n = position;
      if (places.uniform(n) >= r_.codes.odd || is_taken(position)) continue;
      const auto kind = kinds.below(n, r_.codes.token_kinds);
      add({position, SpecialToken::Kind::kOdd, false, number++, static_cast<int>(kind)});
    }
  }

  // A query before the question seeks the successors of earlier occurrences of the token that it reads, as decode
  // queries do in a needle. The tokens are sorted by now.
  void read_on() {
    const std::int64_t window = std::ssize(document_.window);
    std::size_t next = 0;
    for (std::int64_t i = 0; i < window; ++i) {
      Sought& what = document_.window[i];
      if (what.kind != Sought::Kind::kFree || what.index >= 0) continue;
      const std::int64_t position = prompt_ - window + i + 1;
      while (next < document_.tokens.size() && document_.tokens[next].position < position) ++next;
      if (next == document_.tokens.size()) return;
      if (document_.tokens[next].position == position) what = {Sought::Kind::kNext, static_cast<int>(next), 0};
    }
  }

  void answer(int decode_steps) {
    const int cycle = r_.task.value_tokens + r_.task.pause_steps;
    for (int t = 0; t < decode_steps; ++t) {
      document_.steps.push_back({});
      document_.targets.push_back({});
      if (r_.task.spots > 0) {
        answer_from_spots(t);
        continue;
      }
      const int item = t / cycle, index = t % cycle;
      if (item >= r_.task.needles || index >= r_.task.value_tokens) continue;
      document_.steps.back() = {Sought::Kind::kValue, item, index};
      for (const std::int64_t first : values_[item]) {
        document_.targets.back().push_back(first + index);
      }
    }
  }

  // Step t needs the next few spots, or all of them each time. Each section continues where the previous one stopped.
  void answer_from_spots(int t) {
    const int section = r_.task.section_steps == 0 ? 0 : t / r_.task.section_steps;
    const int step = t - section * r_.task.section_steps;
    if (step < r_.task.spot_steps) {
      const int spots = r_.task.spots;
      const int at_once = r_.task.spots_a_step == 0 ? spots : std::min(spots, r_.task.spots_a_step);
      need_spots(at_once * ((section * r_.task.spot_steps + step) % (spots / at_once)), at_once);
    } else if (section > 0 && step < r_.task.spot_steps + r_.task.back_steps) {
      need_spots(r_.task.spots + section - distance_back(section), 1);
    }
  }

  // Returns the number of sections between this one and the earlier one that it refers to.
  int distance_back(int section) const {
    const int reach = std::min(section, r_.task.back_reach);
    double all = 0, below = 0;
    for (int k = 1; k <= reach; ++k) all += 1.0 / k;
    const double drawn = stream_.child({kBack}).uniform(section) * all;
    for (int k = 1; k < reach; ++k) {
      below += 1.0 / k;
      if (drawn < below) return k;
    }
    return reach;
  }

  void need_spots(int first, int count) {
    const int radius = r_.task.spot_radius;
    document_.steps.back() = {Sought::Kind::kSpots, first, count};
    std::vector<std::int64_t>& targets = document_.targets.back();
    for (int spot = first; spot < first + count; ++spot) {
      for (int i = -radius; i <= radius; ++i) targets.push_back(spots_[spot] + i);
    }
    std::sort(targets.begin(), targets.end());
  }

  const Recipe& r_;
  const std::int64_t prompt_;
  const Stream stream_;
  const std::optional<double> depth_;
  const std::int64_t end_;  // end of the haystack; the question follows
  Document document_;
  std::vector<bool> taken_;
  std::vector<std::vector<std::int64_t>> values_;  // position of the first value token of each needle asked for
  std::vector<std::int64_t> spots_;                // middle of each spot of evidence
  std::vector<int> free_;                          // numbers of the question's free queries
};

}  // namespace

Document make_document(const Recipe& recipe, std::int64_t prompt_tokens, int decode_steps, int window,
                       const Stream& stream, std::optional<double> depth) {
  const RecipeTask& task = recipe.task;
  const bool one = task.needles == 1 && task.copies == 1 && task.copy_density <= 0 && recipe.question.turns == 1;
  if (depth && !one) {
    throw UserError(fmt::format("recipe {}: only one needle in one place can be given a depth", recipe.name));
  }
  return Author(recipe, prompt_tokens, stream, depth).write(decode_steps, window);
}

}  // namespace kvcast::trace

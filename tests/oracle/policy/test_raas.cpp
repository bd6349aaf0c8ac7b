// RaaS page by page from its definition.
#include <algorithm>
#include <catch2/catch.hpp>

#include "naive_parts.hpp"
#include "support/memory_trace.hpp"
#include "support/select.hpp"

namespace kvcast::tests {
namespace {

using naive::at;
using naive::Matrix;
using naive::Positions;
using naive::Vector;

struct Raas {
  std::int64_t budget = 0, page = 1, sink = 0, recent = 0;
  double alpha = 0;
  std::string group = "mean_weights";
};

struct Page {
  Positions tokens;
  std::int64_t used = 0;
};

// One KV head's cache.
class Head {
 public:
  Head(const trace::Layer& layer, int head, const Raas& s) : layer_(layer), head_(head), s_(s) {
    const std::int64_t prompt = layer.info().prompt_tokens;
    const std::int64_t whole = std::max<std::int64_t>(0, (prompt - s.sink - s.recent) / s.page) * s.page;
    next_ = s.sink + whole;
    Positions middle = naive::range(s.sink, next_);
    if (whole > most() * s.page) {
      Vector mean(at(layer.info().head_dim), 0), scores;
      for (const Vector& q : naive::queries(layer, head, -1)) {
        for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += q[j] / layer.info().group();
      }
      for (const auto i : middle) scores.push_back(naive::product(mean, naive::key(layer, head, i)));
      Positions kept;
      for (const auto i : naive::best(scores, most() * s.page)) kept.push_back(middle[at(i)]);
      middle = kept;
    }
    for (const Positions& tokens : naive::paged(middle, s.page)) pages_.push_back({tokens, prompt});
  }

  Positions attended(std::int64_t tokens) const {
    Positions out = naive::range(0, std::min(s_.sink, tokens)), middle;
    for (const Page& page : pages_) naive::add(middle, page.tokens);
    std::sort(middle.begin(), middle.end());
    naive::add(out, middle);
    naive::add(out, naive::range(std::min(next_, tokens), tokens));
    return out;
  }

  void step(int t) {
    const std::int64_t tokens = layer_.info().prompt_tokens + t + 1;
    if (tokens - next_ >= s_.recent + s_.page) {
      const Page fresh{naive::range(next_, next_ + s_.page), tokens};
      next_ += s_.page;
      if (static_cast<std::int64_t>(pages_.size()) < most()) {
        pages_.push_back(fresh);
      } else {
        *std::min_element(pages_.begin(), pages_.end(), [](const Page& a, const Page& b) { return a.used < b.used; }) =
            fresh;
      }
    }
    if (pages_.empty() || tokens < s_.sink + s_.recent + s_.budget) return;
    // Pages of one token are compared with all attended tokens, larger pages with each other.
    const bool whole = s_.page == 1;
    std::vector<Positions> lists;
    for (const Page& page : pages_) lists.push_back(page.tokens);
    if (whole) lists = naive::paged(attended(tokens), 1);
    const Vector weights =
        naive::agree(naive::queries(layer_, head_, t), s_.group, whole ? naive::root(layer_) : 1,
                     [&](const Vector& q) { return naive::score_pages(layer_, head_, lists, q, false); });
    for (Page& page : pages_) {
      const auto i = std::find(lists.begin(), lists.end(), page.tokens) - lists.begin();
      if (weights[at(i)] > s_.alpha) page.used = tokens;
    }
  }

 private:
  std::int64_t most() const { return s_.budget / s_.page; }
  const trace::Layer& layer_;
  int head_;
  Raas s_;
  std::int64_t next_ = 0;
  std::vector<Page> pages_;
};

TEST_CASE("raas replaces the page whose last use is oldest, whatever came before") {
  for (const TraceShape& shape : {TraceShape{.kv_heads = 3, .group = 1, .head_dim = 8, .prompt = 61, .steps = 40},
                                  TraceShape{.kv_heads = 2, .group = 4, .head_dim = 8, .prompt = 90, .steps = 30},
                                  TraceShape{.kv_heads = 1, .group = 8, .head_dim = 16, .prompt = 12, .steps = 60}}) {
    for (const Raas& s : {Raas{24, 4, 2, 6, 0.2}, Raas{21, 7, 0, 0, 0.3}, Raas{20, 4, 3, 5, 0.05, "max_weights"},
                          Raas{10, 1, 1, 3, 0.1}, Raas{16, 8, 4, 9, 0.4}}) {
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        CAPTURE(shape.prompt, s.budget, s.page, seed);
        const MemoryTrace trace = random_trace(shape, seed);
        const auto layer = trace.load(0, 1);
        const Selected got = select("raas",
                                    fmt::format("budget: {}, page: {}, sink: {}, recent: {}, alpha: {}, group: {}",
                                                s.budget, s.page, s.sink, s.recent, s.alpha, s.group),
                                    *layer);
        for (int h = 0; h < shape.kv_heads; ++h) {
          Head head(*layer, h, s);
          CHECK(got.resident.heads[at(h)].attended == head.attended(shape.prompt));
          for (int t = 0; t < shape.steps; ++t) {
            CAPTURE(h, t);
            head.step(t);
            CHECK(got.steps[at(t)].heads[at(h)].attended == head.attended(shape.prompt + t + 1));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvcast::tests

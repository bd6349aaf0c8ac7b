#include "synth/synthetic.hpp"

#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "base/build.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/parallel.hpp"

namespace kvcast::trace {
namespace {

enum SyntheticDraw : std::uint64_t { kDocument, kKinds, kHead, kTopicOffset };

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 30;
constexpr std::int64_t kChunk = 16 * HeadModel::kBlock;  // number of positions that one thread makes at a time

void check(const SynthShape& s) {
  const auto require = [](bool holds, const std::string& what) {
    if (!holds) throw UserError("synthetic trace: " + what);
  };
  require(s.head_dim >= 8 && s.head_dim % 2 == 0 && s.head_dim <= 65536,
          fmt::format("head_dim is {}, it must be even and at least 8", s.head_dim));
  require(s.n_kv_heads >= 1 && s.n_q_heads >= 1 && s.n_q_heads % s.n_kv_heads == 0,
          fmt::format("{} query heads do not share {} KV heads evenly", s.n_q_heads, s.n_kv_heads));
  require(s.n_layers >= 1 && s.captured_layers >= 1 && s.captured_layers <= s.n_layers,
          fmt::format("{} layers cannot be captured of {}", s.captured_layers, s.n_layers));
  require(s.prompt_tokens >= 1 && s.prompt_tokens <= kMaxTokens,
          fmt::format("prompt_tokens is {}, outside of 1 .. {}", s.prompt_tokens, kMaxTokens));
  require(s.decode_steps >= 1 && s.decode_steps <= kMaxTokens,
          fmt::format("decode_steps is {}, outside of 1 .. {}", s.decode_steps, kMaxTokens));
  require(s.window >= 0, fmt::format("window is {}", s.window));
}

std::string rope_text(const config::Rope& rope) {
  switch (rope.scaling) {
    case config::Rope::Scaling::kNone:
      return fmt::format("theta {}", rope.theta);
    case config::Rope::Scaling::kLinear:
      return fmt::format("theta {}, linear factor {}", rope.theta, rope.factor);
    case config::Rope::Scaling::kYarn:
      return fmt::format("theta {}, yarn factor {}, original context {}", rope.theta, rope.factor,
                         rope.original_context);
    case config::Rope::Scaling::kLlama3:
      break;
  }
  return fmt::format("theta {}, llama3 factor {}, low {}, high {}, original context {}", rope.theta, rope.factor,
                     rope.low_freq_factor, rope.high_freq_factor, rope.original_context);
}

class SyntheticTrace final : public Trace {
 public:
  SyntheticTrace(const Recipe& recipe, const SynthShape& shape) : shape_(shape), root_(Stream(shape.seed)) {
    check(shape);
    const int wanted = shape.window > 0 ? shape.window : recipe.window;
    const auto window = static_cast<int>(std::min<std::int64_t>(wanted, shape.prompt_tokens));
    describe(recipe, window);
    sequence_.recipe = recipe;
    // In recipes with sections, heads also retrieve from generated text and are made for the whole sequence; otherwise
    // for the prompt.
    sequence_.prompt_tokens = recipe.task.section_steps > 0 ? info_.positions() : shape.prompt_tokens;
    sequence_.roles = pair_roles(recipe.channels, shape.rope, shape.head_dim, sequence_.prompt_tokens);
    sequence_.document =
        make_document(recipe, shape.prompt_tokens, shape.decode_steps, window, root_.child({kDocument}), shape.depth);
    sequence_.positions = info_.positions();
    sequence_.query_positions = info_.query_positions;
    sequence_.group = info_.group();
    // Topic boundaries must not coincide with page boundaries.
    sequence_.topic_offset = static_cast<std::int64_t>(
        root_.child({kTopicOffset}).below(0, static_cast<std::uint64_t>(recipe.keys.topic_tokens)));
    info_.optional["task"] = recipe.task.name;
    info_.optional["targets"] = targets_json(sequence_.document.targets);
    if (const auto& turns = sequence_.document.turns; !turns.empty()) {
      info_.optional["turns"] = fmt::format("[{}]", fmt::join(turns, ","));
    }
    info_.identity = [text = identity()] { return text; };
    info_.optional["provenance"] = fmt::format("kvcast {}, {}", version(), info_.identity());
  }

  std::unique_ptr<Layer> make_layer(std::size_t layer_index, int threads, const Cancel& cancel,
                                    LayerStorage storage) const override {
    KVCAST_CHECK(layer_index < info_.layers.size());
    auto layer = std::make_unique<Layer>(info_, info_.layers[layer_index], cancel, std::move(storage));
    const auto models = std::make_shared<const Heads>(make_heads(layer->id(), threads, cancel));
    const Heads& heads = *models;
    const auto chunks = static_cast<std::size_t>((info_.positions() + kChunk - 1) / kChunk);
    parallel_for(heads.size() * chunks, threads, [&](std::size_t i) {
      cancel.check();
      const auto head = static_cast<int>(i / chunks);
      const std::int64_t first = static_cast<std::int64_t>(i % chunks) * kChunk;
      const std::int64_t n = std::min(kChunk, info_.positions() - first);
      const std::size_t offset = static_cast<std::size_t>(first) * static_cast<std::size_t>(info_.head_dim);
      heads[static_cast<std::size_t>(head)]->keys(first, n, layer->mutable_keys(head) + offset);
    });
    static_assert(Layer::kValueBlock % HeadModel::kBlock == 0);
    layer->make_values_by(
        [models, sequence = shared_sequence_, cancel](int head, std::int64_t first, std::int64_t n, float* out) {
          cancel.check();
          (*models)[static_cast<std::size_t>(head)]->values(first, n, out);
        });
    parallel_for(static_cast<std::size_t>(info_.n_q_heads), threads, [&](std::size_t q) {
      const auto head = static_cast<int>(q);
      heads[q / static_cast<std::size_t>(info_.group())]->queries(head % info_.group(), layer->mutable_queries(head),
                                                                  cancel);
    });
    return layer;
  }

  std::string identity() const override {
    return fmt::format(
        "synthetic v{} recipe {} ({}) model {} rope {} heads {}/{}x{} layers {} of {} tokens {}+{} window {} seed {}{}",
        kGeneratorVersion, sequence_.recipe.name, content_hash(canonical(sequence_.recipe)), info_.model,
        rope_text(shape_.rope), info_.n_q_heads, info_.n_kv_heads, info_.head_dim, fmt::join(info_.layers, ","),
        info_.n_layers, info_.prompt_tokens, info_.decode_steps, info_.prompt_queries(), shape_.seed,
        shape_.depth ? fmt::format(" depth {}", *shape_.depth) : "");
  }

 private:
  void describe(const Recipe& recipe, int window) {
    sequence_.recipe = recipe;
    info_.model = shape_.model;
    info_.source = "synthetic";
    info_.layers = spread_layers(shape_.n_layers, shape_.captured_layers);
    info_.n_layers = shape_.n_layers;
    info_.n_q_heads = shape_.n_q_heads;
    info_.n_kv_heads = shape_.n_kv_heads;
    info_.head_dim = shape_.head_dim;
    info_.rope_theta = shape_.rope.theta;
    info_.prompt_tokens = shape_.prompt_tokens;
    info_.decode_steps = shape_.decode_steps;
    info_.query_positions.resize(window + shape_.decode_steps);
    std::iota(info_.query_positions.begin(), info_.query_positions.end(), shape_.prompt_tokens - window);
  }

  using Heads = std::vector<std::unique_ptr<const HeadModel>>;
  Heads make_heads(int layer, int threads, const Cancel& cancel) const {
    const std::vector<HeadKind> kinds = head_kinds(sequence_.recipe.heads, layer, info_.n_kv_heads, shape_.seed);
    Heads heads(kinds.size());
    parallel_for(heads.size(), threads, [&](std::size_t h) {
      cancel.check();
      const Stream stream = root_.child({kHead, static_cast<std::uint64_t>(layer), h});
      heads[h] = std::make_unique<HeadModel>(sequence_, kinds[h], stream);
    });
    return heads;
  }

  SynthShape shape_;
  Stream root_;
  // Shared with the layers until their values are made.
  const std::shared_ptr<SequenceState> shared_sequence_ = std::make_shared<SequenceState>();
  SequenceState& sequence_ = *shared_sequence_;
};

}  // namespace

SynthShape synth_shape(const config::Model& model, std::int64_t prompt_tokens, int decode_steps, int captured_layers,
                       std::uint64_t seed) {
  SynthShape shape;
  shape.model = model.name;
  shape.n_layers = model.layers;
  shape.captured_layers = captured_layers;
  shape.n_q_heads = model.n_q_heads;
  shape.n_kv_heads = model.n_kv_heads;
  shape.head_dim = model.head_dim;
  shape.rope = model.rope;
  shape.prompt_tokens = prompt_tokens;
  shape.decode_steps = decode_steps;
  shape.seed = seed;
  return shape;
}

std::vector<int> spread_layers(int n_layers, int count) {
  std::vector<int> layers;
  for (std::int64_t i = 0; i < count; ++i) layers.push_back(static_cast<int>((2 * i + 1) * n_layers / (2 * count)));
  return layers;
}

// Assigns the heads of the whole model one after the other, each to the kind that is furthest below its share; the
// order within a layer is shuffled.
std::vector<HeadKind> head_kinds(const HeadMix& mix, int layer, int n_kv_heads, std::uint64_t seed) {
  const double shares[] = {mix.retrieval, mix.local, mix.streaming};
  std::int64_t given[] = {0, 0, 0};
  std::vector<HeadKind> kinds;
  const std::int64_t first = static_cast<std::int64_t>(layer) * n_kv_heads;
  for (std::int64_t i = 0; i < first + n_kv_heads; ++i) {
    std::size_t behind = 0;
    const auto lag = [&](std::size_t k) {
      return shares[k] * static_cast<double>(i + 1) - static_cast<double>(given[k]);
    };
    for (const std::size_t k : {std::size_t{1}, std::size_t{2}}) {
      if (lag(k) > lag(behind)) behind = k;
    }
    ++given[behind];
    if (i >= first) kinds.push_back(static_cast<HeadKind>(behind));
  }
  const Stream stream = Stream(seed).child({kKinds, static_cast<std::uint64_t>(layer)});
  for (std::size_t i = kinds.size(); i > 1; --i) std::swap(kinds[i - 1], kinds[stream.below(i, i)]);
  return kinds;
}

namespace {

// Checks that one layer's keys and values fit in memory at once, as 32-bit floats. They are checked beforehand, because
// the system may grant more memory than it has.
void check_memory(const SynthShape& shape) {
  const double positions = static_cast<double>(shape.prompt_tokens) + shape.decode_steps;
  const double needed = positions * shape.n_kv_heads * shape.head_dim * 2 * sizeof(float);
  const double there = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (needed <= there) return;
  throw UserError(
      fmt::format("prompt_tokens: a layer of a trace of {} tokens takes {:.1f} GB, this machine has {:.1f} GB",
                  shape.prompt_tokens, needed / 1e9, there / 1e9));
}

}  // namespace

std::unique_ptr<Trace> synthesize(const Recipe& recipe, const SynthShape& shape) {
  check_memory(shape);
  return std::make_unique<SyntheticTrace>(recipe, shape);
}

}  // namespace kvcast::trace

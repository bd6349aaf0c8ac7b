// Keys are mean + scale · content per channel, with content shared with the topic or drawn for the token. Needles,
// decoys and the sink replace the content of their tokens. RoPE is applied last. The statistics are in recipe.hpp.
#include "synth/head_model.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.hpp"
#include "synth/head_draws.hpp"
#include "trace/rope.hpp"

namespace kvcast::trace {
namespace {

static_assert(HeadModel::kBlock % RotationTable::kBlock == 0);

// The amplitude of needles is stated for this many content channels; matches grow with √channels.
constexpr double kReferenceChannels = 48;
constexpr double kReferencePrompt = 16384;  // tokens; the amplitude is also stated for this prompt length

std::vector<bool> draw_retrieving(const HeadMix& mix, int group, const Stream& stream) {
  const int least = std::clamp(static_cast<int>(std::ceil(mix.least_share * group - 1e-9)), 1, group);
  const int most = std::clamp(static_cast<int>(std::floor(mix.most_share * group + 1e-9)), least, group);
  const int count = least + static_cast<int>(stream.below(0, static_cast<std::uint64_t>(most - least + 1)));
  std::vector<bool> retrieves(group);
  std::fill_n(retrieves.begin(), count, true);
  for (std::size_t i = retrieves.size(); i > 1; --i) {
    const std::size_t j = stream.below(i, i);
    const bool kept = retrieves[i - 1];
    retrieves[i - 1] = retrieves[j];
    retrieves[j] = kept;
  }
  return retrieves;
}

}  // namespace

HeadModel::HeadModel(const SequenceState& sequence, HeadKind kind, const Stream& stream)
    : sequence_(sequence),
      kind_(kind),
      stream_(stream),
      d_(sequence.roles.head_dim),
      channels_(head_channels(sequence.roles, sequence.recipe.channels, stream.child({kChannels}))),
      codes_(sequence.recipe, channels_.content.size(), stream.child({kCodes})),
      q_retrieves_(draw_retrieving(sequence.recipe.heads, sequence.group, stream.child({kRetrieving}))) {
  const NeedleModel& needles = sequence.recipe.needles;
  // Keys and queries share the adjustment to the number of channels, the prompt length and RoPE.
  trained_gain_ = trained_gain();
  const double by_channels = std::sqrt(kReferenceChannels / static_cast<double>(channels_.content.size()));
  needle_amplitude_ = needles.amplitude *
                      std::exp(needles.amplitude_spread * stream.child({kNeedleAmplitude}).normal(0)) * trained_gain_ *
                      std::pow(by_channels, 1 - needles.trained / 2);
  trained_gain_ *= std::pow(by_channels, needles.trained / 2);
  make_channels();
  make_topics();
}

// Factor on keys and on queries. The target's logit is strength · amplitude · √channels · overlap of code and query. It
// grows with the logarithm of the prompt length, and with the inverse of the mean cosine that RoPE leaves over all
// distances in the prompt.
double HeadModel::trained_gain() const {
  const Recipe& r = sequence_.recipe;
  const double logit =
      r.queries.strength * r.needles.amplitude * std::sqrt(kReferenceChannels) * r.needles.content * r.queries.target;
  if (logit <= 0) return 1;
  const double grown =
      std::max(0.1, 1 + std::log(static_cast<double>(sequence_.prompt_tokens) / kReferencePrompt) / logit);
  double left = 0;
  const std::size_t half = d_ / 2;
  for (const int c : channels_.content) {
    const double turn =
        sequence_.roles.frequencies[static_cast<std::size_t>(c) % half] * static_cast<double>(sequence_.prompt_tokens);
    left += (turn < 1e-6 ? 1 : std::sin(turn) / turn) / static_cast<double>(channels_.content.size());
  }
  return std::pow(grown / std::max(0.3, left), r.needles.trained / 2);
}

void HeadModel::make_channels() {
  const KeyModel& keys = sequence_.recipe.keys;
  mean_.resize(d_);
  scale_.resize(d_);
  recency_.resize(d_);
  const Stream means = stream_.child({kKeyMean}), scales = stream_.child({kKeyScale}), phases = stream_.child({kPhase});
  for (std::size_t c = 0; c < d_; ++c) {
    mean_[c] = static_cast<float>(keys.mean * means.normal(c));
    scale_[c] = static_cast<float>(std::exp(keys.scale_spread * scales.normal(c)));
  }
  for (const int pair : sequence_.roles.recency) {
    const auto p = static_cast<std::size_t>(pair);
    const double phase = 2 * std::numbers::pi * phases.uniform(p);
    recency_[p] = static_cast<float>(std::cos(phase));
    recency_[p + d_ / 2] = static_cast<float>(std::sin(phase));
    for (const std::size_t c : {p, p + d_ / 2}) {
      mean_[c] += static_cast<float>(recency_mean()) * recency_[c];
      scale_[c] *= static_cast<float>(keys.recency_scale);
    }
  }
  for (std::size_t i = 0; i < channels_.outliers.size(); ++i) {
    const auto c = static_cast<std::size_t>(channels_.outliers[i]);
    mean_[c] = -channels_.outlier_sign[i] * static_cast<float>(keys.outlier_mean);
    scale_[c] = static_cast<float>(keys.outlier_scale);
  }
}

// Makes correlated consecutive topics; a repeated haystack has one "topic" for each token of its period.
void HeadModel::make_topics() {
  const std::int64_t last = sequence_.positions - 1 + sequence_.topic_offset;
  const std::int64_t count =
      repeated() ? sequence_.recipe.task.repeat_tokens : last / sequence_.recipe.keys.topic_tokens + 1;
  topics_.resize(count * d_);
  const auto memory = static_cast<float>(repeated() ? 0 : sequence_.recipe.keys.topic_memory);
  const float fresh = std::sqrt(1 - memory * memory);
  const double share = repeated() ? sequence_.recipe.task.repeat_share : sequence_.recipe.keys.topic_share;
  const auto part = static_cast<float>(std::sqrt(share));
  own_part_ = std::sqrt(static_cast<float>(1 - share));
  std::vector<float> state(d_), noise(d_);
  for (std::size_t t = 0; t < static_cast<std::size_t>(count); ++t) {
    stream_.child({kTopic, t}).normals(0, d_, noise.data());
    for (std::size_t c = 0; c < d_; ++c) {
      state[c] = t == 0 ? noise[c] : memory * state[c] + fresh * noise[c];
      topics_[t * d_ + c] = part * state[c];
    }
  }
}

double HeadModel::recency_mean() const {
  const KeyModel& keys = sequence_.recipe.keys;
  return kind_ == HeadKind::kRetrieval ? keys.recency_mean : keys.other_recency_mean;
}

double HeadModel::outlier_length() const {
  const auto count = static_cast<double>(channels_.outliers.size());
  const QueryModel& queries = sequence_.recipe.queries;
  const double length = kind_ == HeadKind::kRetrieval ? queries.outlier : queries.other_outlier;
  return length * std::sqrt(4.0 * static_cast<double>(d_) / (128 * count));
}

void HeadModel::write_sink(const float* noise, float* key) const {
  const SinkModel& sink = sequence_.recipe.sink;
  for (std::size_t c = 0; c < d_; ++c) key[c] = static_cast<float>(sink.key_noise) * noise[c];
  const double gap = kind_ == HeadKind::kRetrieval ? sink.retrieval
                     : kind_ == HeadKind::kLocal   ? sink.local
                                                   : sink.streaming;
  // Queries have length q on each of n outlier channels, and the mean key has −m, so the gap is n · q · (k + m) / √d.
  const double along =
      gap * std::sqrt(static_cast<double>(d_)) / (static_cast<double>(channels_.outliers.size()) * outlier_length()) -
      sequence_.recipe.keys.outlier_mean;
  for (std::size_t i = 0; i < channels_.outliers.size(); ++i) {
    key[channels_.outliers[i]] = channels_.outlier_sign[i] * static_cast<float>(along);
  }
}

Code HeadModel::code_of(const SpecialToken& token) const {
  switch (token.kind) {
    case SpecialToken::Kind::kDecoy:
      return codes_.decoy(token.index);
    case SpecialToken::Kind::kEvidence:
      return codes_.evidence(token.item, token.index);
    case SpecialToken::Kind::kOdd:
      return codes_.odd(token.item, token.index);
    case SpecialToken::Kind::kPhrase:
      return codes_.phrase(token.item, token.index, token.asked);
    case SpecialToken::Kind::kValue:
      break;
  }
  return codes_.value(token.item, token.index, token.asked);
}

void HeadModel::write_content(const SpecialToken& token, const float* noise, float* key) const {
  const Recipe& r = sequence_.recipe;
  const Code code = code_of(token);
  double amplitude = needle_amplitude_;
  if (token.kind == SpecialToken::Kind::kDecoy) {
    const double spread =
        r.decoys.amplitude_spread * stream_.child({kDecoyAmplitude}).normal(static_cast<std::uint64_t>(token.item));
    amplitude *= r.decoys.amplitude * std::exp(spread);
  } else if (token.kind == SpecialToken::Kind::kEvidence) {
    amplitude *= r.evidence.amplitude * (token.index == 0 ? r.evidence.middle : 1);
  } else if (token.kind == SpecialToken::Kind::kOdd) {
    amplitude = 1;  // same as the surrounding text
  }
  const bool competes = token.kind != SpecialToken::Kind::kDecoy && token.kind != SpecialToken::Kind::kOdd;
  if (competes && !token.asked) amplitude *= r.needles.distractor;
  const auto of_code = static_cast<float>(amplitude * r.needles.content);
  const auto of_noise = static_cast<float>(amplitude * r.needles.noise);
  for (std::size_t i = 0; i < code.size(); ++i) {
    const auto c = static_cast<std::size_t>(channels_.content[i]);
    key[c] = mean_[c] + scale_[c] * (of_code * code[i] + of_noise * noise[c]);
  }
}

void HeadModel::write_background(std::int64_t position, const float* noise, float amplitude, float* key) const {
  const Recipe& r = sequence_.recipe;
  const std::int64_t topic =
      repeated() ? position % r.task.repeat_tokens : (position + sequence_.topic_offset) / r.keys.topic_tokens;
  const float* const shared = topics_.data() + topic * d_;
  const auto spread = static_cast<float>(r.keys.amplitude_spread);
  // Log-normal with mean square 1: exp(σN − σ²).
  const float length = std::exp(spread * amplitude - spread * spread);
  for (std::size_t c = 0; c < d_; ++c) key[c] = mean_[c] + scale_[c] * length * (shared[c] + own_part_ * noise[c]);
}

void HeadModel::keys(std::int64_t first, std::int64_t n, float* out) const {
  KVCAST_CHECK(first % kBlock == 0 && first + n <= sequence_.positions);
  std::vector<float> noise(kBlock * d_), amplitude(kBlock);
  RotationTable rotation(sequence_.roles.frequencies);
  const std::vector<SpecialToken>& tokens = sequence_.document.tokens;
  auto special = std::lower_bound(tokens.begin(), tokens.end(), first,
                                  [](const SpecialToken& t, std::int64_t p) { return t.position < p; });
  for (std::int64_t block = first; block < first + n; block += kBlock) {
    const auto rows = static_cast<std::size_t>(std::min(kBlock, first + n - block));
    stream_.child({kKeyNoise}).normals(static_cast<std::uint64_t>(block) * d_, rows * d_, noise.data());
    stream_.child({kAmplitude}).normals(static_cast<std::uint64_t>(block), rows, amplitude.data());
    rotation.fill(block, static_cast<int>(rows));
    for (std::size_t i = 0; i < rows; ++i) {
      const std::int64_t position = block + static_cast<std::int64_t>(i);
      const float* const drawn = noise.data() + i * d_;
      float* const key = out + static_cast<std::size_t>(position - first) * d_;
      write_background(position, drawn, amplitude[i], key);
      if (position == 0) write_sink(drawn, key);
      if (special != tokens.end() && special->position == position) write_content(*special++, drawn, key);
      rotation.rotate(static_cast<int>(i), key);
    }
  }
}

void HeadModel::values(std::int64_t first, std::int64_t n, float* out) const {
  KVCAST_CHECK(first % kBlock == 0);
  stream_.child({kValueNoise}).normals(first * d_, n * d_, out);
  if (first != 0) return;
  for (std::size_t c = 0; c < d_; ++c) out[c] *= static_cast<float>(sequence_.recipe.sink.value_scale);
}

}  // namespace kvcast::trace

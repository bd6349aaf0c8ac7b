// A query is the head's mean, opposite to that of the keys, plus the weighted code of its target. The recency pairs
// encode position, and RoPE is applied last.
#include <cmath>

#include "synth/head_draws.hpp"
#include "synth/head_model.hpp"
#include "trace/rope.hpp"

namespace kvcast::trace {
namespace {

enum QueryDraw : std::uint64_t {
  kMean,
  kJitter,
  kWeight,
  kStrength,
  kOutlier,
  kRecency,
  kDrift,
  kAskNoise,
  kAskStrength
};

}  // namespace

struct HeadModel::QueryHead {
  Stream stream{0};
  bool retrieves = false;
  std::vector<float> mean;     // by channel; includes recency and outliers
  std::vector<float> weights;  // by content channel; includes the head's strength
};

// The recency pairs of keys some tokens before the query.
std::vector<float> HeadModel::recency_sought() const {
  std::vector<float> sought = recency_;
  if (kind_ == HeadKind::kRetrieval) return sought;
  for (const int pair : sequence_.roles.recency) {
    const auto p = static_cast<std::size_t>(pair);
    const double turn = -sequence_.roles.frequencies[p] * sequence_.recipe.recency.back;
    const double x = recency_[p], y = recency_[p + d_ / 2];
    sought[p] = static_cast<float>(x * std::cos(turn) - y * std::sin(turn));
    sought[p + d_ / 2] = static_cast<float>(x * std::sin(turn) + y * std::cos(turn));
  }
  return sought;
}

HeadModel::QueryHead HeadModel::query_head(int q) const {
  const Recipe& r = sequence_.recipe;
  QueryHead head;
  head.stream = stream_.child({kQuery, static_cast<std::uint64_t>(q)});
  head.retrieves = retrieves(q);
  const bool idle = kind_ == HeadKind::kRetrieval && !head.retrieves;

  double recency = idle ? r.recency.idle : r.recency.retrieval;
  if (kind_ == HeadKind::kStreaming) recency = r.recency.streaming;
  if (kind_ == HeadKind::kLocal)
    recency = r.recency.local * std::exp(r.recency.spread * head.stream.child({kRecency}).normal(0));
  const double pairs = std::max<double>(1, static_cast<double>(sequence_.roles.recency.size()));
  const double root_d = std::sqrt(static_cast<double>(d_));
  const double recency_length = recency * root_d / (pairs * recency_mean());
  head.mean.resize(d_);
  head.stream.child({kMean}).normals(0, d_, head.mean.data());
  const std::vector<float> sought = recency_sought();
  for (std::size_t c = 0; c < d_; ++c) {
    head.mean[c] = static_cast<float>(r.queries.mean) * head.mean[c] + static_cast<float>(recency_length) * sought[c];
  }
  for (std::size_t i = 0; i < channels_.outliers.size(); ++i) {
    const double spread = std::exp(r.queries.outlier_spread * head.stream.child({kOutlier}).normal(i));
    const double along = outlier_length() * spread * (idle ? r.sink.idle_factor : 1);
    head.mean[channels_.outliers[i]] = channels_.outlier_sign[i] * static_cast<float>(along);
  }

  const double not_retrieving = idle ? r.queries.idle_strength : r.queries.other_strength;
  double strength = r.queries.strength * (head.retrieves ? trained_gain_ : not_retrieving);
  if (head.retrieves) strength *= std::exp(r.queries.strength_spread * head.stream.child({kStrength}).normal(0));
  double square = 0;  // variance of the logit over tokens of unit content, before scaling
  for (std::size_t i = 0; i < channels_.content.size(); ++i) {
    const double weight = std::exp(r.queries.weight_spread * head.stream.child({kWeight}).normal(i));
    const double reached = weight * scale_[static_cast<std::size_t>(channels_.content[i])];
    square += reached * reached;
    head.weights.push_back(static_cast<float>(weight));
  }
  for (float& w : head.weights) w *= static_cast<float>(strength * root_d / std::sqrt(square));
  return head;
}

Code HeadModel::asked(std::size_t i, const Stream& stream) const {
  const QuestionModel& question = sequence_.recipe.question;
  const Sought& what = sequence_.document.window[i];
  Code code;
  if (what.kind == Sought::Kind::kFree) {
    code = codes_.free(what.index);
  } else if (what.kind == Sought::Kind::kNext) {
    code = code_of(sequence_.document.tokens[what.item]);
  } else if (what.kind == Sought::Kind::kValue) {
    code = codes_.value(what.item, what.index, true);
  } else if (what.kind == Sought::Kind::kType) {
    code = codes_.type();
  } else {
    if (what.kind == Sought::Kind::kSpots) {
      code = codes_.spots(what.item, what.index);
    } else {
      code = what.item == Sought::kSharedKey ? codes_.shared_key() : codes_.identity(what.item, true);
    }
    Code noise(code.size());
    stream.child({kAskNoise, i}).normals(0, noise.size(), noise.data());
    for (std::size_t c = 0; c < code.size(); ++c) {
      code[c] = static_cast<float>(question.key_share) * code[c] + static_cast<float>(question.key_noise) * noise[c];
    }
  }
  const double strength =
      question.strength * std::exp(question.strength_spread * stream.child({kAskStrength}).normal(i));
  for (float& v : code) v *= static_cast<float>(strength);
  return code;
}

Code HeadModel::recalled(const Sought& what, const Code& drift) const {
  if (what.kind == Sought::Kind::kFree) return codes_.with_common(drift);
  const QueryModel& model = sequence_.recipe.queries;
  Code code = what.kind == Sought::Kind::kSpots ? codes_.spots(what.item, what.index)
                                                : codes_.value(what.item, what.index, true);
  for (std::size_t c = 0; c < code.size(); ++c) {
    code[c] = static_cast<float>(model.target) * code[c] + static_cast<float>(model.drift) * drift[c];
  }
  return code;
}

void HeadModel::queries(int q, float* out, const Cancel& cancel) const {
  const QueryModel& model = sequence_.recipe.queries;
  const QueryHead head = query_head(q);
  const std::size_t window = sequence_.document.window.size();
  const std::size_t n = channels_.content.size();
  const auto memory = static_cast<float>(model.drift_memory);
  const float fresh = std::sqrt(1 - memory * memory);
  Code drift(n), noise(n), jitter(d_);
  RotationTable rotation(sequence_.roles.frequencies);
  for (std::size_t i = 0; i < sequence_.query_positions.size(); ++i) {
    cancel.check();
    head.stream.child({kDrift, i}).normals(0, n, noise.data());
    for (std::size_t c = 0; c < n; ++c) drift[c] = i == 0 ? noise[c] : memory * drift[c] + fresh * noise[c];
    const Code code = i < window ? asked(i, head.stream) : recalled(sequence_.document.steps[i - window], drift);
    float* const query = out + i * d_;
    head.stream.child({kJitter, i}).normals(0, d_, jitter.data());
    for (std::size_t c = 0; c < d_; ++c) query[c] = head.mean[c] + static_cast<float>(model.jitter) * jitter[c];
    for (std::size_t c = 0; c < n; ++c) query[channels_.content[c]] += head.weights[c] * code[c];
    rotation.fill(sequence_.query_positions[i], 1);
    rotation.rotate(0, query);
  }
}

}  // namespace kvcast::trace

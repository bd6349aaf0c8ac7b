// Generates keys, values and queries of one KV head and its group of query heads.
#pragma once

#include <cstdint>
#include <vector>

#include "base/cancel.hpp"
#include "base/random.hpp"
#include "synth/channels.hpp"
#include "synth/codes.hpp"
#include "synth/document.hpp"
#include "synth/recipe.hpp"

namespace kvcast::trace {

enum class HeadKind { kRetrieval, kLocal, kStreaming };

// State shared by all heads of a sequence.
struct SequenceState {
  Recipe recipe;
  PairRoles roles;
  Document document;
  std::int64_t prompt_tokens = 0;
  std::int64_t positions = 0;
  std::vector<std::int64_t> query_positions;
  int group = 1;
  std::int64_t topic_offset = 0;  // tokens of the first topic that precede the sequence
};

// Model of one KV head: immutable, so that its parts can be made on several threads and in any order. The sequence must
// outlive it.
class HeadModel {
 public:
  HeadModel(const SequenceState& sequence, HeadKind kind, const Stream& stream);

  // Keys after RoPE and values of positions first .. first + n − 1, [n × head_dim]; first is a multiple of kBlock.
  void keys(std::int64_t first, std::int64_t n, float* out) const;
  void values(std::int64_t first, std::int64_t n, float* out) const;
  // All captured queries after RoPE of one query head of the group, [n_queries × head_dim]. Throws Cancelled.
  void queries(int q, float* out, const Cancel& cancel = {}) const;

  HeadKind kind() const { return kind_; }
  bool retrieves(int q) const { return kind_ == HeadKind::kRetrieval && q_retrieves_[static_cast<std::size_t>(q)]; }

  static constexpr std::int64_t kBlock = 64;

 private:
  struct QueryHead;  // constants of one query head
  QueryHead query_head(int q) const;
  void make_channels();
  void make_topics();
  bool repeated() const { return sequence_.recipe.task.haystack == "repeated"; }
  void write_background(std::int64_t position, const float* noise, float amplitude, float* key) const;
  void write_content(const SpecialToken& token, const float* noise, float* key) const;
  void write_sink(const float* noise, float* key) const;
  Code code_of(const SpecialToken& token) const;
  // Targets of the i-th captured query of the prompt and of a decode step's query.
  Code asked(std::size_t i, const Stream& stream) const;
  Code recalled(const Sought& what, const Code& drift) const;
  std::vector<float> recency_sought() const;
  double recency_mean() const;
  double outlier_length() const;
  double trained_gain() const;

  const SequenceState& sequence_;
  const HeadKind kind_;
  const Stream stream_;
  const std::size_t d_;
  const HeadChannels channels_;
  const CodeBook codes_;
  double needle_amplitude_ = 0;
  double trained_gain_ = 1;          // factor on queries
  std::vector<float> mean_, scale_;  // mean and scale of keys, by channel
  std::vector<float> recency_;       // unit vectors of the recency pairs; zero elsewhere
  std::vector<float> topics_;        // [topic or haystack token × d], scaled by the topic's part of the content
  float own_part_ = 1;               // factor on the token's own content
  std::vector<bool> q_retrieves_;
};

}  // namespace kvcast::trace

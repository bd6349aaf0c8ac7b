// Names of the random streams of one KV head. A change of their order requires a new kGeneratorVersion.
#pragma once

#include <cstdint>

namespace kvcast::trace {

enum HeadDraw : std::uint64_t {
  kChannels,
  kCodes,
  kRetrieving,
  kNeedleAmplitude,
  kDecoyAmplitude,
  kKeyMean,
  kKeyScale,
  kPhase,
  kTopic,
  kKeyNoise,
  kAmplitude,
  kValueNoise,
  kQuery,
};

}  // namespace kvcast::trace

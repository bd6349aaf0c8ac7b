// The content hash: pinned, since stored results are found by it.
#include <catch2/catch.hpp>

#include <set>
#include <string>

#include "base/hash.hpp"

namespace kvcast::tests {

TEST_CASE("the hash is XXH3 with 128 bits", "[hash]") {
  // xxHash's own sanity check for the empty input, seed 0: low 0x6001C324468D497F, high 0x99AA06D3014798D8.
  CHECK(content_hash("") == "99aa06d3014798d86001c324468d497f");
}

TEST_CASE("hashes in every length class of XXH3 have their pinned values", "[hash]") {
  // Lengths of up to 16, 128 and 240 bytes, and above.
  CHECK(content_hash("kvcast") == "37bb18f64e6263a12e867b08ac1f0644");
  CHECK(content_hash(std::string(100, 'k')) == "f64de93ee85ed4ff7fae4c773237d291");
  CHECK(content_hash(std::string(200, 'k')) == "9b9525cfb3f61b1963eaf41968a41de2");
  CHECK(content_hash(std::string(5000, 'k')) == "19b58fa718eef04b24717a6ebd965f26");
}

TEST_CASE("a change of one bit anywhere changes the hash", "[hash]") {
  const std::string text = "model: llama-3.1-8b, hardware: a100-40gb-pcie4, NUL byte included";
  std::set<std::string> hashes{content_hash(text)};
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      hashes.insert(content_hash(changed));
    }
  }
  CHECK(hashes.size() == 8 * text.size() + 1);
}

}  // namespace kvcast::tests

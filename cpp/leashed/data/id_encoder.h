// What a field of text becomes, where it is an id.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace leashed {

// FNV-1a over the bytes, from the seed, and MurmurHash3's finaliser.
inline std::uint64_t hash_of(std::string_view bytes, std::uint64_t seed) {
  std::uint64_t hash = 0xcbf29ce484222325 ^ seed;
  const auto add = [&hash](char c) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  };
  if (bytes.size() == 8) {  // as Criteo's: no loop whose end is to be foreseen
    for (std::size_t i = 0; i < 8; ++i) add(bytes[i]);
  } else {
    for (const char c : bytes) add(c);
  }
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
  return hash ^ hash >> 33;
}

class Vocabulary {
 public:
  explicit Vocabulary(std::vector<std::string> words);
  Vocabulary(const Vocabulary&) = delete;

  // The word's place, of 07 and 7.0 that of 7, of 1 that of True where it is none; words.size() for
  // every other.
  std::uint64_t find(std::string_view word) const;

 private:
  const std::vector<std::string> words_;
  std::unordered_map<std::string_view, std::uint64_t> places_;  // of those
};

struct IdEncoder {
  enum class Kind { decimal, hexadecimal, hash, vocabulary };
  Kind kind = Kind::hash;
  std::size_t digits = 0;                     // hexadecimal: exactly so many; 0: up to 16
  std::uint64_t offset = 0;                   // decimal, hexadecimal: is added
  std::uint64_t seed = 0;                     // hash
  std::uint64_t buckets = 0;                  // hash: the id is below; 0: any
  std::optional<std::uint64_t> missing = {};  // of an empty field; else that is an error, but of
                                              // hashes and vocabularies, where it is a word
  std::shared_ptr<const Vocabulary> vocabulary = {};

  // Of that kind, whatever the text.
  std::uint64_t hash(std::string_view text) const {
    const std::uint64_t hash = hash_of(text, seed);
    return buckets > 0 ? hash % buckets : hash;
  }
  // Nothing where the text is none. 8 bytes behind the text may be read.
  std::optional<std::uint64_t> operator()(std::string_view text) const;
  // What it was to be: "8 hexadecimal digits".
  std::string expected() const;
};

}  // namespace leashed

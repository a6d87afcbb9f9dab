// Frames of trainers and embedding servers, and what is in them.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "leashed/cluster/row_messages.h"

namespace leashed {

using Bytes = std::vector<std::byte>;
using Ids = std::vector<std::vector<std::uint64_t>>;  // by table

template <class T>
void put(Bytes& bytes, const T& what) {
  const auto all = std::as_bytes(std::span(&what, 1));
  bytes.insert(bytes.end(), all.begin(), all.end());
}
template <class T>
void put(Bytes& bytes, const std::vector<T>& what) {
  for (const T& each : what) put(bytes, each);
}
template <class T>
T got(const Bytes& bytes) {
  REQUIRE(bytes.size() == sizeof(T));
  T what;
  std::memcpy(&what, bytes.data(), sizeof what);
  return what;
}

inline Bytes hello_of(std::uint64_t client, std::uint64_t life, std::uint64_t digest) {
  Bytes bytes;
  put(bytes, RowHello{client, life, digest});
  return bytes;
}
inline Bytes lookup_of(const Ids& ids, std::uint32_t trains) {  // as LookupHead has it
  Bytes bytes;
  put(bytes, LookupHead{trains, static_cast<std::uint32_t>(ids.size())});
  for (const auto& of : ids) put(bytes, static_cast<std::uint32_t>(of.size()));
  if (ids.size() % 2 != 0) put(bytes, std::uint32_t{0});
  for (const auto& of : ids) put(bytes, of);
  return bytes;
}
// One of a lookup's pools: of each example how many entries, and of each of these its id's place.
struct AskedPools {
  PoolHead head;
  std::vector<std::uint32_t> counts, places;
  std::vector<float> weights;
};
// wanted: of each table the first ids, whose values are to come.
inline Bytes lookup_of(const Ids& ids, const std::vector<std::uint32_t>& wanted,
                       const std::vector<AskedPools>& pools, bool trains) {
  Bytes bytes;
  put(bytes, LookupHead{trains ? 1u : 0u, static_cast<std::uint32_t>(ids.size()),
                        static_cast<std::uint32_t>(pools.size()), 1});
  for (const auto& of : ids) put(bytes, static_cast<std::uint32_t>(of.size()));
  put(bytes, wanted);
  for (const auto& of : ids) put(bytes, of);
  for (const AskedPools& pool : pools) {
    put(bytes, pool.head);
    for (const auto* numbers : {&pool.counts, &pool.places}) {
      for (const std::uint32_t number : *numbers) {
        if (pool.head.width == 4) put(bytes, number);
        if (pool.head.width == 2) put(bytes, static_cast<std::uint16_t>(number));
      }
    }
    bytes.resize((bytes.size() + 3) / 4 * 4);
    put(bytes, pool.weights);
    bytes.resize((bytes.size() + 7) / 8 * 8);
  }
  return bytes;
}
// How many a push is said to be of.
inline std::uint64_t examples_of(std::uint64_t number) { return 1 + number % 7; }
inline Bytes push_of(std::uint64_t number, const std::vector<float>& gradients) {
  Bytes bytes;
  put(bytes, PushHead{number, examples_of(number)});
  put(bytes, gradients);
  return bytes;
}
inline Bytes drop() {
  Bytes bytes;
  put(bytes, RowDrop{});
  return bytes;
}

}  // namespace leashed

#include "leashed/net/feedback.h"

#include <algorithm>
#include <array>

namespace leashed {
namespace {

using Block = std::array<float, kCodecBlock>;

std::size_t blocks_of(std::size_t count) { return (count + kCodecBlock - 1) / kCodecBlock; }

std::span<float> block_of(std::span<float> values, std::size_t block) {
  const std::size_t at = block * kCodecBlock;
  return values.subspan(at, std::min(kCodecBlock, values.size() - at));
}

std::size_t byte_of(Codec codec, std::size_t block) {
  return encoded_size(codec, block * kCodecBlock);
}

}  // namespace

void tell(Codec codec, std::span<const float> values, std::span<float> estimate, std::byte* to) {
  Block memory;
  for (std::size_t block = 0; block < blocks_of(values.size()); ++block) {
    const std::span<float> known = block_of(estimate, block);
    const std::span<float> difference = std::span(memory).first(known.size());
    const float* const now = values.data() + block * kCodecBlock;
    for (std::size_t i = 0; i < known.size(); ++i) difference[i] = now[i] - known[i];
    std::byte* const bytes = to + byte_of(codec, block);
    encode(codec, difference, bytes);
    decode_and_add(codec, bytes, known);
  }
}

void encode_with_error(Codec codec, std::span<const float> values, std::span<float> error,
                       std::byte* to) {
  Block wanted_memory, sent_memory;
  for (std::size_t block = 0; block < blocks_of(values.size()); ++block) {
    const std::span<float> missing = block_of(error, block);
    const std::span<float> wanted = std::span(wanted_memory).first(missing.size());
    const std::span<float> sent = std::span(sent_memory).first(missing.size());
    const float* const now = values.data() + block * kCodecBlock;
    for (std::size_t i = 0; i < missing.size(); ++i) wanted[i] = now[i] + missing[i];
    std::byte* const bytes = to + byte_of(codec, block);
    encode(codec, wanted, bytes);
    decode(codec, bytes, sent);
    for (std::size_t i = 0; i < missing.size(); ++i) missing[i] = wanted[i] - sent[i];
  }
}

void decode_and_add(Codec codec, const std::byte* from, std::span<float> sum) {
  Block memory;
  for (std::size_t block = 0; block < blocks_of(sum.size()); ++block) {
    const std::span<float> values = block_of(sum, block);
    const std::span<float> come = std::span(memory).first(values.size());
    decode(codec, from + byte_of(codec, block), come);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += come[i];
  }
}

// From the back: a block's bytes end before its values do, and begin no later.
void decode_in_place(Codec codec, std::span<float> values) {
  Block memory;
  for (std::size_t block = blocks_of(values.size()); block-- > 0;) {
    const std::span<float> to = block_of(values, block);
    const std::span<float> come = std::span(memory).first(to.size());
    decode(codec, std::as_bytes(values).data() + byte_of(codec, block), come);
    std::copy(come.begin(), come.end(), to.begin());
  }
}

}  // namespace leashed

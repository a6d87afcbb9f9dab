#include "leashed/data/click_lines.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <vector>

#include "leashed/base/team.h"

namespace leashed {
namespace {

constexpr std::size_t kChunk = 1024;  // rows that one thread makes at once

// Of one chunk, used again for the next.
struct Chunk {
  explicit Chunk(std::size_t features)
      : x(kChunk * ClickGenerator::kNumbers),
        ids(kChunk * features),
        labels(kChunk),
        hidden(kChunk),
        counts(kChunk * ClickGenerator::kNumbers) {}

  std::vector<float> x;
  std::vector<std::uint64_t> ids;
  std::vector<std::int32_t> labels;
  std::vector<float> hidden;
  std::vector<std::int32_t> counts;
};

// Of a line: the label, counts of up to 8 digits, categories of 8, and what stands between.
constexpr std::size_t longest(std::size_t features) {
  return 2 + 9 * (ClickGenerator::kNumbers + features);
}

void put_count(std::int32_t count, std::string& out) {
  if (count < 0) return;
  char digits[12];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, count).ptr);
}

void put_category(std::uint64_t id, std::string& out) {
  for (int shift = 28; shift >= 0; shift -= 4) out += "0123456789abcdef"[id >> shift & 15];
}

void put_row(const Chunk& rows, std::size_t row, std::size_t features, std::string& out) {
  out += rows.labels[row] ? '1' : '0';
  for (std::size_t j = 0; j < ClickGenerator::kNumbers; ++j) {
    out += '\t';
    put_count(rows.counts[row * ClickGenerator::kNumbers + j], out);
  }
  for (std::size_t f = 0; f < features; ++f) {
    out += '\t';
    put_category(rows.ids[row * features + f], out);
  }
  out += '\n';
}

}  // namespace

std::string click_lines(const ClickGenerator& clicks, ClickGenerator::Stream stream,
                        std::uint64_t first, std::size_t count, std::size_t threads) {
  const std::size_t chunks = (count + kChunk - 1) / kChunk, features = clicks.features();
  if (chunks == 0) return {};
  const std::size_t workers = std::min(threads, chunks);
  // All memory before any thread begins: what threads do must not throw.
  std::vector<Chunk> seats(workers, Chunk(features));
  std::vector<std::string> parts(chunks);
  for (std::string& part : parts) part.reserve(kChunk * longest(features));
  // Relaxed: distinct numbers are all that is asked; the parts are seen after Team::run.
  std::atomic<std::size_t> seat{0}, next{0};
  const auto work = [&] {
    Chunk& rows = seats[seat.fetch_add(1, std::memory_order_relaxed)];
    const ClickGenerator::Rows out{rows.x.data(), rows.ids.data(), rows.labels.data(),
                                   rows.hidden.data(), rows.counts.data()};
    for (std::size_t c; (c = next.fetch_add(1, std::memory_order_relaxed)) < chunks;) {
      const std::size_t begin = c * kChunk, size = std::min(kChunk, count - begin);
      clicks.fill(stream, first + begin, size, out, 1);
      for (std::size_t row = 0; row < size; ++row) put_row(rows, row, features, parts[c]);
    }
  };
  Team team;
  team.run(workers - 1, work);
  std::size_t size = 0;
  for (const std::string& part : parts) size += part.size();
  std::string lines;
  lines.reserve(size);
  for (const std::string& part : parts) lines += part;
  return lines;
}

}  // namespace leashed

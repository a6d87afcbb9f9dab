// What is handed over by the Arrow C stream interface is released once, however reading ends.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "leashed/data/arrow_stream.h"
#include "leashed/data/row_stream.h"

using namespace leashed;

namespace {

constexpr std::int64_t kRows = 20'000;  // of a batch, which is several parts

// Batches of y = 0 and a = 0, 1, 2, …; every other batch is empty, and values lie behind an offset.
struct Producer {
  int batches = 5;
  int failing = -1;  // batch that is an error
  bool no_schema = false;
  bool without_name = false;
  const char* type_of_a = "g";

  // Handed over, and not released.
  std::atomic<int> streams{0}, schemas{0}, arrays{0};
};

struct OwnedSchema {
  Producer* producer;
  std::array<ArrowSchema, 3> children;
  std::array<ArrowSchema*, 3> pointers;
};

struct OwnedArray {
  Producer* producer;
  std::vector<std::int32_t> y;
  std::vector<double> a;
  std::array<const void*, 2> y_buffers, a_buffers;
  std::array<const void*, 1> buffers;
  std::array<ArrowArray, 3> children;
  std::array<ArrowArray*, 3> pointers;
};

struct OwnedStream {
  Producer* producer;
  int at;
  std::string error;
};

int get_schema(ArrowArrayStream* stream, ArrowSchema* out) {
  Producer& producer = *static_cast<OwnedStream*>(stream->private_data)->producer;
  if (producer.no_schema) return EINVAL;
  auto* const own = new OwnedSchema{&producer, {}, {}};
  const char* const names[] = {producer.without_name ? nullptr : "z", "y", "a"};
  const char* const formats[] = {"g", "i", producer.type_of_a};
  for (std::size_t i = 0; i < 3; ++i) {
    own->children[i] = {formats[i], names[i], nullptr, 0, 0, nullptr, nullptr, nullptr, nullptr};
    own->pointers[i] = &own->children[i];
  }
  const auto release = [](ArrowSchema* schema) {
    auto* const owned = static_cast<OwnedSchema*>(schema->private_data);
    owned->producer->schemas.fetch_sub(1);
    delete owned;
    schema->release = nullptr;
  };
  *out = {"+s", "", nullptr, 0, 3, own->pointers.data(), nullptr, release, own};
  producer.schemas.fetch_add(1);
  return 0;
}

int get_next(ArrowArrayStream* stream, ArrowArray* out) {
  OwnedStream& from = *static_cast<OwnedStream*>(stream->private_data);
  Producer& producer = *from.producer;
  if (from.at == producer.failing) {
    from.error = "the disk is gone";
    return EIO;
  }
  if (from.at == producer.batches) {
    out->release = nullptr;
    return 0;
  }
  constexpr std::int64_t kBefore = 3;
  const std::int64_t rows = from.at % 2 == 0 ? kRows : 0;
  auto* const own = new OwnedArray{&producer, {}, {}, {}, {}, {}, {}, {}};
  own->y.resize(static_cast<std::size_t>(rows + kBefore));
  own->a.assign(static_cast<std::size_t>(kBefore), -1);
  for (std::int64_t i = 0; i < rows; ++i) {
    own->a.push_back(static_cast<double>(from.at / 2 * kRows + i));
  }
  own->y_buffers = {nullptr, own->y.data()};
  own->a_buffers = {nullptr, own->a.data()};
  // Of z nothing may be read.
  own->children[0] = {rows, 0, kBefore, 2, 0, nullptr, nullptr, nullptr, nullptr, nullptr};
  own->children[1] = {rows,    0,       kBefore, 2,      0, own->y_buffers.data(),
                      nullptr, nullptr, nullptr, nullptr};
  own->children[2] = {rows,    0,       kBefore, 2,      0, own->a_buffers.data(),
                      nullptr, nullptr, nullptr, nullptr};
  for (std::size_t i = 0; i < 3; ++i) own->pointers[i] = &own->children[i];
  const auto release = [](ArrowArray* array) {
    auto* const owned = static_cast<OwnedArray*>(array->private_data);
    owned->producer->arrays.fetch_sub(1);
    delete owned;
    array->release = nullptr;
  };
  *out = {rows, 0, 0, 1, 3, own->buffers.data(), own->pointers.data(), nullptr, release, own};
  producer.arrays.fetch_add(1);
  ++from.at;
  return 0;
}

const char* get_last_error(ArrowArrayStream* stream) {
  const std::string& error = static_cast<OwnedStream*>(stream->private_data)->error;
  return error.empty() ? nullptr : error.c_str();
}

Released<ArrowArrayStream> opened(Producer& producer) {
  const auto release = [](ArrowArrayStream* stream) {
    auto* const owned = static_cast<OwnedStream*>(stream->private_data);
    owned->producer->streams.fetch_sub(1);
    delete owned;
    stream->release = nullptr;
  };
  producer.streams.fetch_add(1);
  return Released<ArrowArrayStream>(
      {get_schema, get_next, get_last_error, release, new OwnedStream{&producer, 0, ""}});
}

DelimitedSettings settings(const char* number = "a") {
  using Kind = DelimitedColumn::Kind;
  return {{{"y", Kind::label}, {number, Kind::number}}, "", DelimitedSettings::Header::none, {}};
}

std::unique_ptr<ArrowOrigin> origin(Producer& producer, bool again = false,
                                    const char* number = "a") {
  return std::make_unique<ArrowOrigin>(
      "rows", [&producer] { return opened(producer); }, settings(number), again);
}

void check_released(const Producer& producer) {
  CHECK(producer.streams.load() == 0);
  CHECK(producer.schemas.load() == 0);
  CHECK(producer.arrays.load() == 0);
}

// Rows that come before an error or the end.
std::size_t read(RowStream& stream, std::size_t rows, std::string& error) {
  constexpr std::size_t kTaken = 1000;
  std::size_t at = 0;
  try {
    while (at < rows) {
      RowBlock block(stream.layout());
      double waited = 0;
      const std::size_t taken = stream.take(at, kTaken, block, waited);
      for (std::size_t i = 0; i < taken; ++i) {
        if (block.x[i] != static_cast<float>((at + i) % (3 * kRows))) return 0;
      }
      at += taken;
      if (taken < kTaken) break;
    }
  } catch (const std::exception& what) {
    error = what.what();
  }
  return at;
}

}  // namespace

TEST_CASE("all that was handed over is released once, at the end and when it is left early") {
  for (const std::size_t threads : {1, 4}) {
    for (const std::size_t passes : {1, 2}) {
      for (const std::size_t rows : {std::size_t{0}, std::size_t{5000}, std::size_t{1} << 40}) {
        Producer producer;
        {
          RowStream stream(origin(producer, passes > 1), layout_of(settings()),
                           {.threads = threads, .passes = passes});
          stream.start();
          std::string error;
          const std::size_t all = passes * 3 * static_cast<std::size_t>(kRows);
          CHECK(read(stream, rows, error) == std::min(rows, all));
          CHECK(error == "");
        }
        check_released(producer);
      }
    }
  }
}

TEST_CASE("where a batch is an error, the rows before it come and all is released") {
  for (const std::size_t threads : {1, 4}) {
    Producer producer{.failing = 2};
    {
      RowStream stream(origin(producer), layout_of(settings()), {.threads = threads});
      stream.start();
      std::string error;
      CHECK(read(stream, std::size_t{1} << 40, error) == kRows);
      CHECK(error == "rows: the disk is gone");
    }
    check_released(producer);
  }
}

TEST_CASE("where columns are not what is asked for, all is released") {
  Producer bare{.no_schema = true};
  CHECK_THROWS_WITH(origin(bare), "rows: it has no schema");
  check_released(bare);
  Producer text{.type_of_a = "u"};
  CHECK_THROWS(origin(text));
  check_released(text);
  Producer nameless{.without_name = true};
  CHECK_THROWS_WITH(origin(nameless, false, "b"), "rows: it has no column b");
  check_released(nameless);
  CHECK_NOTHROW(origin(nameless));
  check_released(nameless);
}

TEST_CASE("nothing is read from where a dictionary or a list ends") {
  // y; item, a dictionary's places; seen, lists of such.
  const std::vector<std::int32_t> y = {0, 1, 0, 1}, list_offsets = {0, 1, 2, 2, 4};
  const std::vector<std::int8_t> places = {1, 2, -1, 0};
  const std::vector<std::int64_t> words = {70, 80};
  const std::array<const void*, 2> of_y = {nullptr, y.data()}, of_places = {nullptr, places.data()},
                                   of_words = {nullptr, words.data()},
                                   of_lists = {nullptr, list_offsets.data()};
  const std::array<const void*, 1> of_rows = {nullptr};
  const auto array = [](std::int64_t n, const void* const* buffers, std::int64_t count) {
    return ArrowArray{n,       0,       0,       count,  0, const_cast<const void**>(buffers),
                      nullptr, nullptr, nullptr, nullptr};
  };
  ArrowArray dictionary = array(2, of_words.data(), 2);
  std::array<ArrowArray, 3> columns = {array(4, of_y.data(), 2), array(4, of_places.data(), 2),
                                       array(4, of_lists.data(), 2)};
  ArrowArray values = array(3, of_places.data(), 2);
  columns[1].dictionary = values.dictionary = &dictionary;
  ArrowArray* of_list[] = {&values};
  columns[2].n_children = 1;
  columns[2].children = of_list;
  std::array<ArrowArray*, 3> pointers = {&columns[0], &columns[1], &columns[2]};
  ArrowArray rows = array(4, of_rows.data(), 1);
  rows.n_children = 3;
  rows.children = pointers.data();

  const auto type = [](const char* format, const char* name) {
    return ArrowSchema{format, name, nullptr, 0, 0, nullptr, nullptr, nullptr, nullptr};
  };
  ArrowSchema word = type("l", ""), item = type("c", "item"), list = type("+l", "seen"),
              label = type("i", "y"), all = type("+s", "");
  item.dictionary = &word;
  ArrowSchema of_a_list = item;
  ArrowSchema* lists[] = {&of_a_list};
  list.n_children = 1;
  list.children = lists;
  ArrowSchema* schemas[] = {&label, &item, &list};
  all.n_children = 3;
  all.children = schemas;

  struct Once {
    ArrowSchema schema;
    ArrowArray* rows;
  } once{all, &rows};
  once.schema.release = [](ArrowSchema* schema) { schema->release = nullptr; };
  rows.release = [](ArrowArray* given) { given->release = nullptr; };
  const ArrowArrayStream stream{[](ArrowArrayStream* from, ArrowSchema* out) {
                                  *out = static_cast<Once*>(from->private_data)->schema;
                                  return 0;
                                },
                                [](ArrowArrayStream* from, ArrowArray* out) {
                                  Once& given = *static_cast<Once*>(from->private_data);
                                  if (given.rows) *out = *std::exchange(given.rows, nullptr);
                                  return 0;
                                },
                                [](ArrowArrayStream*) -> const char* { return nullptr; },
                                [](ArrowArrayStream* from) { from->release = nullptr; }, &once};
  using Kind = DelimitedColumn::Kind;
  const IdEncoder whole{IdEncoder::Kind::decimal};
  const DelimitedSettings read{{{"y", Kind::label},
                                {"item", Kind::id, false, {}, whole},
                                {"seen", Kind::ids, false, {}, whole}},
                               "",
                               DelimitedSettings::Header::none,
                               {}};
  ArrowOrigin origin(
      "rows", [&stream] { return Released<ArrowArrayStream>(stream); }, read, false);
  const std::atomic<bool> stop{false};
  const auto part = origin.next(stop);
  REQUIRE(part);
  const ParsedRows parsed = part->parse();
  CHECK(parsed.block.ids == std::vector<std::uint64_t>{80});
  CHECK(parsed.block.bags[0].ids == std::vector<std::uint64_t>{80});
  std::vector<std::string> reasons;
  for (const BadRow& bad : parsed.first_bad) reasons.push_back(bad.reason);
  CHECK(reasons ==
        std::vector<std::string>{"item is at place 2 of its dictionary, which does not have it",
                                 "item is at place -1 of its dictionary, which does not have it",
                                 "seen is a list outside of its values"});
  CHECK_FALSE(origin.next(stop));
}

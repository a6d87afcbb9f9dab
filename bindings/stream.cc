#include "stream.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "assembly.h"
#include "data.h"
#include "gradient.h"
#include "leashed/base/error.h"
#include "leashed/data/arrow_stream.h"
#include "leashed/data/delimited.h"
#include "leashed/data/repeated_rows.h"
#include "leashed/data/svmlight_lines.h"
#include "leashed/model/standardised_source.h"
#include "parts.h"

namespace leashed {
namespace {

// An object of Python's that threads without the GIL may drop.
std::shared_ptr<py::object> held(py::object object) {
  return {new py::object(std::move(object)), [](py::object* p) {
            const py::gil_scoped_acquire acquire;
            delete p;
          }};
}

// Memory that Python writes to, and no longer: a traceback may keep the view.
struct Lent {
  Lent(char* to, py::ssize_t size)
      : view(py::memoryview::from_memory(static_cast<void*>(to), size)) {}
  Lent(const Lent&) = delete;
  ~Lent() {  // where an exception has come between
    PyObject* const done = PyObject_CallMethod(view.ptr(), "release", nullptr);
    done ? Py_DECREF(done) : PyErr_Clear();
  }
  const py::memoryview view;
};

// What has readinto(buffer) → bytes, and close().
class PythonBytes final : public ByteSource {
 public:
  explicit PythonBytes(py::object file) : file_(held(std::move(file))) {}
  PythonBytes(const PythonBytes&) = delete;
  ~PythonBytes() override {
    const py::gil_scoped_acquire acquire;
    try {
      file_->attr("close")();
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("closing a stream");
    }
  }
  std::size_t read(char* to, std::size_t most, const std::atomic<bool>&) override {
    const py::gil_scoped_acquire acquire;
    const auto size = static_cast<py::ssize_t>(most);
    const Lent memory(to, size);
    const auto bytes = py::cast<py::ssize_t>(file_->attr("readinto")(memory.view));
    memory.view.attr("release")();
    if (bytes < 0 || bytes > size)
      throw py::value_error("readinto() wrote more than there is room");
    return static_cast<std::size_t>(bytes);
  }

 private:
  const std::shared_ptr<py::object> file_;
};

using PyEncoder = std::tuple<std::string, std::size_t, std::uint64_t, std::uint64_t, std::uint64_t,
                             std::optional<std::uint64_t>, std::vector<std::string>>;
using PyStreamColumn = std::tuple<std::string, std::string, bool, std::optional<float>,
                                  std::optional<PyEncoder>, std::string>;

IdEncoder to_encoder(const PyEncoder& given) {
  const auto& [kind, digits, offset, seed, buckets, missing, words] = given;
  IdEncoder encoder{IdEncoder::Kind::hash, digits, offset, seed, buckets, missing};
  if (kind == "decimal") encoder.kind = IdEncoder::Kind::decimal;
  if (kind == "hexadecimal") encoder.kind = IdEncoder::Kind::hexadecimal;
  if (kind == "vocabulary") {
    encoder.kind = IdEncoder::Kind::vocabulary;
    encoder.vocabulary = std::make_shared<const Vocabulary>(words);
  }
  return encoder;
}

DelimitedColumn to_column(const PyStreamColumn& given) {
  using Kind = DelimitedColumn::Kind;
  const auto& [name, kind, log, missing, encoder, between] = given;
  DelimitedColumn column{name, Kind::number, log, missing};
  for (const auto& [word, meant] : {std::pair{"label", Kind::label},
                                    {"head", Kind::head},
                                    {"target", Kind::target},
                                    {"weight", Kind::weight},
                                    {"id", Kind::id},
                                    {"ids", Kind::ids}}) {
    if (kind == word) column.kind = meant;
  }
  if (encoder) column.encoder = to_encoder(*encoder);
  if (!between.empty()) column.between = between.front();
  return column;
}

TextOrigin::Open opener(py::function open) {
  return [open = held(std::move(open))](
             std::size_t n, const std::atomic<bool>& stop) -> std::unique_ptr<ByteSource> {
    const py::gil_scoped_acquire acquire;
    // Relaxed: a hint to end soon. Python asks for it while it reads, which ends before the stream.
    const py::cpp_function stopped([&stop] { return stop.load(std::memory_order_relaxed); });
    py::object file = (*open)(n, stopped);
    if (py::isinstance<py::bytes>(file)) {
      return std::make_unique<FileSource>(py::cast<std::string>(file));
    }
    return std::make_unique<PythonBytes>(std::move(file));
  };
}

template <class Format>
std::shared_ptr<PyRowStream> of_text(std::unique_ptr<const Format> format,
                                     std::vector<std::string> files, py::function open, bool again,
                                     std::size_t part_bytes, const RowStream::Settings& settings) {
  const RowLayout layout = format->layout();
  auto origin = std::make_unique<TextOrigin>(std::move(files), opener(std::move(open)),
                                             std::move(format), part_bytes, again);
  return std::make_shared<PyRowStream>(
      std::make_unique<RowStream>(std::move(origin), layout, settings));
}

std::shared_ptr<PyRowStream> open_delimited(
    const std::vector<PyStreamColumn>& columns, const std::string& separators,
    const std::string& header, std::vector<std::string> names, bool quotes, std::int32_t classes,
    std::vector<std::string> files, py::function open, bool again, std::size_t part_bytes,
    std::size_t threads, std::size_t places, std::uint64_t passes, bool skip_bad,
    std::uint64_t window, std::uint64_t seed, std::string target) {
  using Header = DelimitedSettings::Header;
  DelimitedSettings settings{{},
                             separators,
                             header == "none"      ? Header::none
                             : header == "present" ? Header::present
                                                   : Header::detected,
                             std::move(names),
                             quotes,
                             classes,
                             std::move(target)};
  for (const PyStreamColumn& column : columns) settings.columns.push_back(to_column(column));
  return of_text(std::make_unique<const Delimited>(std::move(settings)), std::move(files),
                 std::move(open), again, part_bytes,
                 {threads, places, passes, skip_bad, window, seed});
}

// open() → a capsule of the Arrow C stream interface.
std::shared_ptr<PyRowStream> open_arrow(const std::vector<PyStreamColumn>& columns,
                                        std::int32_t classes, std::string name, py::function open,
                                        bool again, std::size_t threads, std::size_t places,
                                        std::uint64_t passes, bool skip_bad, std::uint64_t window,
                                        std::uint64_t seed) {
  DelimitedSettings settings{};
  settings.classes = classes;
  for (const PyStreamColumn& column : columns) settings.columns.push_back(to_column(column));
  const auto opener = [open = held(std::move(open))] {
    const py::gil_scoped_acquire acquire;
    const py::object capsule = (*open)();
    void* const stream = PyCapsule_GetPointer(capsule.ptr(), "arrow_array_stream");
    if (!stream) throw py::error_already_set();
    auto& given = *static_cast<ArrowArrayStream*>(stream);
    if (!given.release) throw Error("the Arrow stream has been read already");
    Released<ArrowArrayStream> taken(given);
    given.release = nullptr;
    return taken;
  };
  auto origin = std::make_unique<ArrowOrigin>(std::move(name), opener, settings, again);
  return std::make_shared<PyRowStream>(std::make_unique<RowStream>(
      std::move(origin), layout_of(settings),
      RowStream::Settings{threads, places, passes, skip_bad, window, seed}));
}

// Batches that an iterator of Python's gives, each (x [n, numbers], ids [n, features], y [n]).
class GivenRows final : public RowOrigin {
 public:
  GivenRows(std::string name, py::function open, const RowLayout& layout, std::int32_t classes,
            bool again)
      : names_{std::move(name)},
        open_(held(std::move(open))),
        layout_(layout),
        classes_(classes),
        again_(again) {}

  std::unique_ptr<Part> next(const std::atomic<bool>&) override {
    const py::gil_scoped_acquire acquire;
    if (!batches_) batches_ = held(py::iter((*open_)()));
    const auto batch = py::reinterpret_steal<py::object>(PyIter_Next(batches_->ptr()));
    if (PyErr_Occurred()) throw py::error_already_set();
    if (!batch) return nullptr;
    auto part = std::make_unique<Given>(block_of(batch));
    part->begins_file = std::exchange(begins_, false);
    return part;
  }
  bool rewind() override {
    batches_.reset();
    begins_ = true;
    return again_;
  }
  const std::vector<std::string>& names() const override { return names_; }
  const char* unit() const override { return "row"; }

 private:
  struct Given final : Part {
    explicit Given(RowBlock rows) : block(std::move(rows)) {}
    ParsedRows parse() const override { return {block, block.rows()}; }
    const RowBlock block;
  };

  template <class T>
  py::array_t<T, py::array::c_style> array_of(const py::object& part, const char* name) const {
    auto found = py::array_t<T, py::array::c_style>::ensure(part);
    if (found) return found;
    throw py::type_error(names_.front() + ": a batch's " + name + " must be an array of dtype " +
                         type_name<T>() + ", got " + told(part) + "; np.asarray(" + name + ", np." +
                         type_name<T>() + ") makes one");
  }
  static std::string told(const py::object& part) {
    if (!py::isinstance<py::array>(part)) return described(part);
    return py::str(part.attr("dtype"));
  }

  RowBlock block_of(const py::object& batch) const {
    if (!py::isinstance<py::sequence>(batch) || py::len(batch) != 3) {
      throw py::type_error(names_.front() +
                           ": a batch must be a tuple (x, ids, y) of arrays, got " +
                           described(batch));
    }
    const py::sequence parts(batch);
    const auto x = array_of<float>(py::object(parts[0]), "x");
    const auto ids = array_of<std::uint64_t>(py::object(parts[1]), "ids");
    const auto y = classes_ == 0 ? py::array(array_of<float>(py::object(parts[2]), "y"))
                                 : py::array(array_of<std::int32_t>(py::object(parts[2]), "y"));
    RowBlock block(layout_);
    const auto rows = static_cast<std::size_t>(y.size());
    if (y.ndim() != 1 || static_cast<std::size_t>(x.size()) != rows * layout_.numbers ||
        static_cast<std::size_t>(ids.size()) != rows * layout_.single_ids()) {
      throw Error(names_.front() + ": a batch must be x [n, " + std::to_string(layout_.numbers) +
                  "], ids [n, " + std::to_string(layout_.single_ids()) + "] and y [n]");
    }
    block.resize(rows);
    std::copy_n(x.data(), x.size(), block.x.data());
    std::copy_n(ids.data(), ids.size(), block.ids.data());
    if (classes_ == 0) {
      std::copy_n(py::cast<FloatArray>(y).data(), rows, block.values.data());
      return block;
    }
    std::copy_n(py::cast<LabelArray>(y).data(), rows, block.labels.data());
    for (const std::int32_t label : block.labels) {
      if (label >= 0 && label < classes_) continue;
      throw Error(names_.front() + ": labels must be from 0 to " + std::to_string(classes_ - 1) +
                  ", got " + std::to_string(label));
    }
    return block;
  }

  const std::vector<std::string> names_;
  const std::shared_ptr<py::object> open_;
  const RowLayout layout_;
  const std::int32_t classes_;
  const bool again_;
  std::shared_ptr<py::object> batches_;
  bool begins_ = true;
};

std::shared_ptr<PyRowStream> open_rows(std::size_t numbers, std::size_t features,
                                       std::int32_t classes, std::string name, py::function open,
                                       bool again, std::size_t places, std::uint64_t passes,
                                       std::uint64_t window, std::uint64_t seed) {
  const RowLayout layout{
      .numbers = numbers, .bags = std::vector<bool>(features, false), .classes = classes > 0};
  return std::make_shared<PyRowStream>(std::make_unique<RowStream>(
      std::make_unique<GivenRows>(std::move(name), std::move(open), layout, classes, again), layout,
      RowStream::Settings{.places = places, .passes = passes, .window = window, .seed = seed}));
}

std::shared_ptr<PyRowStream> open_svmlight(std::int32_t first, std::size_t features,
                                           const std::optional<LabelArray>& fields,
                                           std::int32_t classes, std::vector<std::string> files,
                                           py::function open, bool again, std::size_t part_bytes,
                                           std::size_t threads, std::size_t places,
                                           std::uint64_t passes, bool skip_bad,
                                           std::uint64_t window, std::uint64_t seed,
                                           bool distinct_columns, bool tells_fields) {
  SvmlightSettings settings{.first = first, .features = features, .classes = classes};
  settings.distinct_columns = distinct_columns;
  if (fields) {
    if (fields->size() > 0) require_length(*fields, features, "fields");
    settings.format = RowFormat::libffm;
    settings.fields.assign(fields->data(), fields->data() + fields->size());
    settings.tells_fields = tells_fields;
  }
  return of_text(std::make_unique<const SvmlightLines>(std::move(settings)), std::move(files),
                 std::move(open), again, part_bytes,
                 {threads, places, passes, skip_bad, window, seed});
}

void look_at_signals() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// Whoever asks is told what reading has thrown, and all are told the same exception: pybind11
// raises one once, so each gets one of his own that holds it.
[[noreturn]] void raise_again(const py::error_already_set& error) {
  const py::object& value = error.value();
  PyException_SetTraceback(value.ptr(), error.trace() ? error.trace().ptr() : Py_None);
  PyErr_SetObject(error.type().ptr(), value.ptr());
  throw py::error_already_set();
}

// Asks again and again, without the GIL, and looks at signals in between.
template <class Asked>
void ask(const Asked& asked) {
  without_gil([&] {
    while (!asked()) {
      const py::gil_scoped_acquire acquire;
      look_at_signals();
    }
  });
}

constexpr double kLook = 0.02;  // seconds

// A stream of copies of the first rows, as many as there are of so many, without end; nothing:
// there is none.
std::optional<std::shared_ptr<PyRowStream>> head_of(const PyRowStream& stream, std::size_t count) {
  RowBlock block((*stream).layout());
  ask([&] { return (*stream).look(count, block, kLook); });
  if (block.rows() == 0) return std::nullopt;
  return std::make_shared<PyRowStream>(std::make_unique<RowStream>(
      std::make_unique<RepeatedRows>(std::move(block)), (*stream).layout(),
      RowStream::Settings{.places = 2, .passes = 0}));
}

// (x [n, numbers], of each feature ids [n] or (ids, offsets), with weights of ids behind these, y
// [n], weights [n] or None).
py::tuple arrays_of(const RowLayout& layout, RowBlock& block) {
  const std::size_t rows = block.rows();
  const auto table = [rows](auto values, std::size_t columns) {
    return to_array(std::move(values)).reshape({rows, columns});
  };
  py::list bags;
  for (RowBlock::Bag& bag : block.bags) {
    py::object ids = to_array(std::move(bag.ids)), offsets = to_array(std::move(bag.offsets));
    py::tuple own = py::make_tuple(ids, offsets);
    if (layout.id_weights) own = py::make_tuple(ids, offsets, to_array(std::move(bag.weights)));
    bags.append(own);
  }
  py::object y = layout.classes      ? py::object(to_array(std::move(block.labels)))
                 : layout.values > 1 ? table(std::move(block.values), layout.values)
                                     : py::object(to_array(std::move(block.values)));
  py::object weights = py::none();
  if (layout.weights) weights = to_array(std::move(block.weights));
  return py::make_tuple(table(std::move(block.x), layout.numbers),
                        table(std::move(block.ids), layout.single_ids()), bags, y, weights);
}

std::optional<std::uint64_t> rows_known(const PyRowStream& stream, std::uint64_t most,
                                        double seconds) {
  try {
    const py::gil_scoped_release release;
    return (*stream).rows(most, seconds);
  } catch (const py::error_already_set& error) {
    raise_again(error);
  }
}

// The next rows, fewer than asked for at the end.
py::tuple take_rows(const PyRowStream& stream, std::size_t count) {
  // Loaded before rows are taken: Python does that, and looks at signals meanwhile.
  py::detail::npy_api::get();
  RowBlock block((*stream).layout());
  ask([&] {
    try {
      return (*stream).take_next(count, block, kLook);
    } catch (const py::error_already_set& error) {
      const py::gil_scoped_acquire acquire;
      raise_again(error);
    }
  });
  return arrays_of((*stream).layout(), block);
}

// What `made` makes of such rows, which are one at least.
py::object next_rows(PyRowStream& stream, std::size_t count, const py::function& made) {
  py::object rows = stream.kept();
  if (!rows) {
    rows = take_rows(stream, count);
    if (py::len(rows[py::int_(3)]) == 0) throw py::stop_iteration();
  }
  try {
    py::object result = made(rows);
    look_at_signals();  // else one that has come meanwhile is looked at where this is lost
    return result;
  } catch (...) {
    stream.keep(std::move(rows));
    throw;
  }
}

using PyMoments = std::tuple<std::uint64_t, std::vector<double>, std::vector<double>>;

NumberMoments to_moments(const PyMoments& given, std::size_t columns) {
  auto [rows, mean, squares] = given;
  for (const auto* const part : {&mean, &squares}) {
    if (rows > 0 && part->size() != columns) {
      throw py::value_error("begun must have a mean and a sum of squares of each of " +
                            std::to_string(columns) + " columns");
    }
  }
  return {rows, std::move(mean), std::move(squares)};
}

PyMoments from_moments(NumberMoments moments) {
  return {moments.rows, std::move(moments.mean), std::move(moments.squares)};
}

void standardise(const PyRowStream& stream, const std::vector<bool>& which,
                 const PyMoments& begun) {
  if (which.size() != (*stream).layout().numbers) {
    throw py::value_error("which must tell of each of the stream's numbers");
  }
  (*stream).standardise(which, to_moments(begun, which.size()));
}

PyMoments moments_at(const PyRowStream& stream, std::optional<std::uint64_t> row) {
  const StandardNumbers* const standard = (*stream).standard();
  if (!standard) throw py::value_error("the stream's numbers are not standardised");
  return from_moments(standard->moments(row.value_or(standard->reached())));
}

PyMoments number_moments(const FloatArray& x, const PyMoments& begun) {
  if (x.ndim() != 2) throw py::value_error("x must be [n, columns]");
  const auto rows = static_cast<std::size_t>(x.shape(0));
  const auto columns = static_cast<std::size_t>(x.shape(1));
  StandardNumbers all(std::vector<bool>(columns, true), to_moments(begun, columns));
  const py::gil_scoped_release release;
  all.add(x.data(), rows);
  all.finish();
  return from_moments(all.moments(rows));
}

std::unique_ptr<StandardisedSource> standardised(const GradientSource& source,
                                                 const PyStreamedRows& rows) {
  const StandardNumbers* const standard = rows.data.stream->standard();
  if (!standard) throw py::value_error("the rows are not standardised");
  return std::make_unique<StandardisedSource>(source, *standard);
}

py::dict counts_of(const PyRowStream& stream) {
  using namespace pybind11::literals;
  const ReadCounts counts = (*stream).counts();
  py::list bad;
  for (const ReadCounts::Bad& one : counts.first_bad) {
    const py::object reason = py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
        one.reason.data(), static_cast<py::ssize_t>(one.reason.size()), "replace"));
    bad.append(py::make_tuple(one.file, one.number, reason));
  }
  return py::dict("rows"_a = counts.rows, "lines"_a = counts.lines, "bad"_a = counts.bad,
                  "bytes"_a = counts.bytes, "first_bad"_a = bad);
}

using PyFeatures = std::vector<std::pair<std::size_t, std::optional<std::size_t>>>;

PyStreamedRows as_read(std::shared_ptr<void> owner, NumberedRows& stream,
                       const PyFeatures& features, std::optional<std::size_t> users) {
  PyStreamedRows rows{std::move(owner), {}};
  rows.data.stream = &stream;
  const std::vector<bool>& bags = stream.layout().bags;
  const std::size_t all = bags.size();
  if (users && (*users >= all || bags[*users])) {
    throw py::value_error("users must be a feature below " + std::to_string(all) +
                          " that has one id a row, got " + std::to_string(*users));
  }
  rows.data.users = users;
  for (const auto& [number, most] : features) {
    if (number >= all) {
      throw py::value_error("features must be below " + std::to_string(all) + ", got " +
                            std::to_string(number));
    }
    rows.data.features.push_back({number, most.value_or(std::numeric_limits<std::size_t>::max())});
  }
  return rows;
}

// (x, single ids, bags, y, weights), as take_rows gives them, of so many rows.
RowBlock block_of(const SentRows& sent, std::uint64_t count, const py::tuple& arrays,
                  std::int32_t classes) {
  const RowLayout& layout = sent.layout();
  RowBlock block(layout);
  block.resize(count);
  const auto copy = [](const py::handle& from, auto& to, const char* name) {
    using T = typename std::decay_t<decltype(to)>::value_type;
    const auto array = py::cast<py::array_t<T, py::array::c_style>>(from);
    if (static_cast<std::size_t>(array.size()) != to.size()) {
      throw Error(std::string("rows have come with other ") + name + " than were asked for");
    }
    std::copy_n(array.data(), array.size(), to.data());
  };
  if (arrays.size() != 5) throw Error("rows have come without some of their columns");
  copy(arrays[0], block.x, "numbers");
  copy(arrays[1], block.ids, "ids");
  const py::sequence bags = arrays[2];
  if (bags.size() != block.bags.size()) throw Error("rows have come with other features");
  for (std::size_t b = 0; b < block.bags.size(); ++b) {
    const py::sequence own = bags[b];
    if (own.size() != 2U + layout.id_weights) throw Error("rows have come with other features");
    RowBlock::Bag& bag = block.bags[b];
    bag.offsets.resize(count + 1);
    copy(own[1], bag.offsets, "offsets");
    bag.ids.resize(static_cast<std::size_t>(py::len(own[0])));
    copy(own[0], bag.ids, "ids");
    if (bag.offsets.front() != 0 || !std::is_sorted(bag.offsets.begin(), bag.offsets.end()) ||
        static_cast<std::size_t>(bag.offsets.back()) != bag.ids.size()) {
      throw Error("rows have come whose ids are not those of rows");
    }
    if (layout.id_weights) {
      bag.weights.resize(bag.ids.size());
      copy(own[2], bag.weights, "weights of ids");
    }
    const auto beyond = [&](std::uint64_t column) { return column >= layout.columns; };
    if (layout.columns > 0 && std::any_of(bag.ids.begin(), bag.ids.end(), beyond)) {
      throw Error("rows have come with columns that there are not");
    }
  }
  layout.classes ? copy(arrays[3], block.labels, "labels")
                 : copy(arrays[3], block.values, "targets");
  for (const std::int32_t label : block.labels) {
    if (label < 0 || label >= classes) throw Error("rows have come with labels that none may have");
  }
  if (layout.weights) copy(arrays[4], block.weights, "weights");
  return block;
}

using PySpan = std::pair<std::uint64_t, std::uint64_t>;

void bind_sent(py::module_& m) {
  py::class_<SentRows, std::shared_ptr<SentRows>>(
      m, "SentRows", "Rows that others read and send: what is asked of them, and what has come.")
      .def(py::init([](std::size_t numbers, std::vector<bool> bags, bool classes,
                       std::size_t values, bool weights, std::size_t columns, bool distinct_columns,
                       std::uint64_t rows, std::uint64_t passes, std::size_t at_once,
                       std::uint64_t room, std::uint64_t stripe, std::size_t readers) {
             for (const auto& [size, name] :
                  {std::pair<std::size_t, const char*>(at_once, "at_once"),
                   {stripe, "stripe"},
                   {readers, "readers"}}) {
               require_some(size, name);
             }
             if (rows == 0 && passes != 1) {
               throw py::value_error("rows must be known where there are several passes");
             }
             const RowLayout layout{.numbers = numbers,
                                    .bags = std::move(bags),
                                    .classes = classes,
                                    .values = values,
                                    .weights = weights,
                                    .id_weights = columns > 0,
                                    .columns = columns,
                                    .distinct_columns = distinct_columns};
             return std::make_shared<SentRows>(
                 layout, SentRows::Settings{rows, passes, at_once, room, stripe, readers});
           }),
           py::kw_only(), py::arg("numbers"), py::arg("bags"), py::arg("classes"),
           py::arg("values"), py::arg("weights"), py::arg("columns"), py::arg("distinct_columns"),
           py::arg("rows"), py::arg("passes"), py::arg("at_once"), py::arg("room"),
           py::arg("stripe"), py::arg("readers"))
      .def(
          "wanted",
          [](SentRows& self, const std::vector<bool>& readers, double seconds) {
            const py::gil_scoped_release release;
            const auto found = self.wanted(readers, seconds);
            return found ? std::optional(PySpan(found->first, found->count)) : std::nullopt;
          },
          py::arg("readers"), py::arg("seconds"),
          "(first, count) of what is to be asked of those readers, which is asked for then; waits "
          "so many seconds. None: there is nothing.")
      .def("expect", &SentRows::expect, py::arg("first"), py::arg("count"),
           "Positions are going to be taken.")
      .def("forget", &SentRows::forget, "None is any more, but by who waits.")
      .def(
          "give",
          [](SentRows& self, const PySpan& span, const py::tuple& arrays, std::int32_t classes) {
            self.give({span.first, span.second}, block_of(self, span.second, arrays, classes));
          },
          py::arg("span"), py::arg("arrays"), py::arg("classes"),
          "A span has come: (x, single ids, bags, y, weights) as of RowStream.take, labels below "
          "`classes`.")
      .def(
          "lost",
          [](SentRows& self, const PySpan& s) {
            return self.lost({s.first, s.second});
          },
          py::arg("span"),
          "A span does not come, and is asked for again; whether somebody waits for it.")
      .def("fail", &SentRows::fail, py::arg("why"), "No more comes; whoever waits is told.")
      .def("know", &SentRows::know, py::arg("rows"),
           "There are so many rows, which was not known (rows=0).")
      .def("row", &SentRows::row, py::arg("position"), "The row of a position.")
      .def_property_readonly("held", &SentRows::held, "Rows that are there or asked for.")
      .def_property_readonly("stopped", &SentRows::stopped)
      .def(
          "take",
          [](SentRows& self, std::uint64_t first, std::size_t count) {
            RowBlock block(self.layout());
            double waited = 0;
            {
              const py::gil_scoped_release release;
              self.take(first, count, block, waited);
            }
            return arrays_of(self.layout(), block);
          },
          py::arg("first"), py::arg("count"),
          "Those rows, as RowStream.take gives them; waits for them.")
      .def(
          "start", [](SentRows&, std::uint64_t) {}, py::arg("first") = 0)
      .def(
          "head", [](SentRows&, std::size_t) { return py::none(); }, py::arg("count"))
      .def(
          "end", [](SentRows& self) { self.end(); }, "There are no more rows.");
}

}  // namespace

py::object PyRowStream::kept() {
  const std::lock_guard lock(keeping_);
  if (kept_.empty()) return {};
  py::object rows = std::move(kept_.back());
  kept_.pop_back();
  return rows;
}

void PyRowStream::keep(py::object rows) {
  const std::lock_guard lock(keeping_);
  kept_.push_back(std::move(rows));
}

RowStream& PyRowStream::operator*() const {
  if (forked()) {
    throw Error(
        "the stream is being read by the process that this one was forked from; open it here");
  }
  return *stream_;
}

void bind_stream(py::module_& m) {
  bind_sent(m);
  py::class_<PyRowStream, std::shared_ptr<PyRowStream>>(m, "RowStream",
                                                        "Rows that are read while they are used.")
      .def(
          "start",
          [](const PyRowStream& self, std::uint64_t first) {
            const py::gil_scoped_release release;  // threads may want it, of which one cannot start
            (*self).start(first);
          },
          py::arg("first") = 0, "Before rows are asked for; another call changes nothing.")
      .def(
          "read_here",
          [](const PyRowStream& self) {
            const py::gil_scoped_release release;  // files of Python's want it
            (*self).read_here();
          },
          "In place of start: reads all rows, of a stream of one pass, by this thread alone.")
      .def("head", head_of, py::arg("count"),
           "A stream of copies of the first rows, so many at most, again and again; these stay "
           "where they are. None: there are none.")
      .def(
          "known",
          [](const PyRowStream& self, std::uint64_t most, double seconds) {
            return rows_known(self, most, seconds);
          },
          py::arg("most"), py::arg("seconds"),
          "How many rows there are, or `most` where these are fewer; waits so many seconds until "
          "that is known. None: it is not.")
      .def("take", take_rows, py::arg("count"),
           "The next rows, each once, whichever thread asks: x, single ids [n, features], bags as "
           "(ids, offsets), y, weights. An error is raised whenever rows behind it are asked for.")
      .def("next", next_rows, py::arg("count"), py::arg("made"),
           "made(the next rows), which are one at least; where it, or a signal's handler, raises, "
           "the next call has them. StopIteration: there are no more.")
      .def("standardise", standardise, py::arg("which"), py::arg("begun"),
           "Numbers, of the columns that `which` says, by their running means and variances, begun "
           "with (rows, means, sums of squares). Before start.")
      .def("moments", moments_at, py::arg("row") = py::none(),
           "(rows, means, sums of squares) by which that row is standardised; by default the one "
           "behind those that were taken.")
      .def("counts", counts_of, "What was read so far.")
      .def("end", &PyRowStream::end, "Stops reading. There are no more rows then.");
  py::class_<PyStreamedRows>(m, "StreamedRows", "A stream as a model reads it.")
      .def(py::init([](std::shared_ptr<PyRowStream> stream, const PyFeatures& features,
                       std::optional<std::size_t> users) {
             NumberedRows& rows = **stream;
             return as_read(std::move(stream), rows, features, users);
           }),
           py::arg("stream"), py::arg("features"), py::arg("users") = py::none())
      .def(py::init([](std::shared_ptr<SentRows> sent, const PyFeatures& features,
                       std::optional<std::size_t> users) {
             NumberedRows& rows = *sent;
             return as_read(std::move(sent), rows, features, users);
           }),
           py::arg("stream"), py::arg("features"), py::arg("users") = py::none());
  py::class_<StandardisedSource, GradientSource>(m, "StandardisedSource")
      .def(py::init(&standardised), py::arg("source"), py::arg("rows"), py::keep_alive<1, 2>(),
           py::keep_alive<1, 3>());
  m.def("number_moments", number_moments, py::arg("x").noconvert(), py::arg("begun"),
        "(rows, means, sums of squares) of x [n, columns] and what rows before came to.");
  m.def("open_delimited", open_delimited, py::kw_only(), py::arg("columns"), py::arg("separators"),
        py::arg("header"), py::arg("names"), py::arg("quotes"), py::arg("classes"),
        py::arg("files"), py::arg("open"), py::arg("again"), py::arg("part_bytes"),
        py::arg("threads"), py::arg("places"), py::arg("passes"), py::arg("skip_bad"),
        py::arg("window"), py::arg("seed"), py::arg("target") = "",
        "Rows of text files; `target`: without what they are to give, which is called so.");
  m.def(
      "open_svmlight", open_svmlight, py::kw_only(), py::arg("first"), py::arg("features"),
      py::arg("fields"), py::arg("classes"), py::arg("files"), py::arg("open"), py::arg("again"),
      py::arg("part_bytes"), py::arg("threads"), py::arg("places"), py::arg("passes"),
      py::arg("skip_bad"), py::arg("window"), py::arg("seed"), py::arg("distinct_columns"),
      py::arg("tells_fields"),
      "Rows of svmlight files; of libffm's where there are fields, of each column, or [] for any. "
      "distinct_columns: a column that comes again in a row is added to where it came first. "
      "tells_fields: ids of libffm's are field << 32 | column.");
  m.def("open_arrow", open_arrow, py::kw_only(), py::arg("columns"), py::arg("classes"),
        py::arg("name"), py::arg("open"), py::arg("again"), py::arg("threads"), py::arg("places"),
        py::arg("passes"), py::arg("skip_bad"), py::arg("window"), py::arg("seed"),
        "Rows of columns that come by the Arrow C stream interface.");
  m.def(
      "open_rows", open_rows, py::arg("numbers"), py::arg("features"), py::arg("classes"),
      py::arg("name"), py::arg("open"), py::arg("again"), py::arg("places"), py::arg("passes"),
      py::arg("window"), py::arg("seed"),
      "Rows of the batches that open() iterates over, each x [n, numbers], ids [n, features] and y "
      "[n]: labels below `classes`, or of 0 classes numbers.");
}

}  // namespace leashed

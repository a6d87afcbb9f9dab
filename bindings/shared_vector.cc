// SharedVector for Python: reads are zero-copy arrays that keep their vector pinned for as long as
// anyone refers to them.
#include "leashed/vector/shared_vector.h"

#include <mutex>
#include <optional>

#include "arrays.h"
#include "choice.h"
#include "leashed/discipline/leashed.h"
#include "leashed/discipline/shared.h"
#include "leashed/staleness/registry.h"
#include "leashed/update/kernels.h"
#include "leashed/update/registry.h"
#include "parts.h"

namespace leashed {
namespace {

// What a process has of the vector: its mapping, and one participant in it.
struct Attachment {
  Attachment(SharedVector attached, std::size_t dimension, const PyChoice& rule_choice,
             const PyChoice& staleness_choice, double persistence)
      : dimension(dimension),
        vector(std::move(attached)),
        rule(make_rule(to_choice(rule_choice), vector.participants())),
        staleness(make_staleness(to_choice(staleness_choice))),
        trainer(vector, dimension, *rule, *staleness, persistence_bound(persistence)) {}

  const std::size_t dimension;
  SharedVector vector;
  const std::unique_ptr<Rule> rule;
  const std::unique_ptr<const StalenessPolicy> staleness;
  std::mutex mutex;  // threads of this process take turns as its participant
  SharedTrainer trainer;
};

struct PinnedBase {
  std::shared_ptr<Attachment> attachment;
  SharedVector::Participant::Pin pin;
  ~PinnedBase() {
    if (!attachment->vector.is_mine()) return;  // a forked child's copy; its mutex may never open
    const std::lock_guard one_at_a_time(attachment->mutex);
    pin.release();
  }
};

class PySharedVector {
 public:
  explicit PySharedVector(std::shared_ptr<Attachment> attachment)
      : attachment_(std::move(attachment)) {}

  // A view of the latest theta, and its version.
  std::pair<py::array, std::uint64_t> read() const {
    const auto base_of = [&] {
      const py::gil_scoped_release release;
      auto base = std::make_unique<PinnedBase>();
      base->attachment = attached();
      const std::lock_guard one_at_a_time(attachment_->mutex);
      attachment_->vector.require_mine();
      if (!attachment_->vector.in_place()) base->pin = attachment_->trainer.participant().view();
      return base;
    };
    auto base = base_of();
    const bool pinned = static_cast<bool>(base->pin);
    const std::uint64_t t = pinned ? base->pin.t() : attachment_->vector.t();
    const float* data = pinned ? base->pin.data() : attachment_->trainer.participant().data();
    const py::capsule owner(base.release(), [](void* p) {
      const py::gil_scoped_release release;
      delete static_cast<PinnedBase*>(p);
    });
    py::array_t<float> view(static_cast<py::ssize_t>(attachment_->dimension), data, owner);
    view.attr("setflags")(py::arg("write") = false);
    return {view, t};
  }

  // Copies of theta and of the rule's states, of one version (in place: while it changes).
  std::pair<py::array_t<float>, std::uint64_t> state() const {
    const auto attachment = attached();
    const Layout& layout = attachment->trainer.updater().layout();
    py::array_t<float> vectors({1 + layout.states, layout.dimension});
    const std::lock_guard one_at_a_time(attachment->mutex);
    attachment->vector.require_mine();
    SharedVector::Participant& participant = attachment->trainer.participant();
    SharedVector::Participant::Pin pin;
    std::uint64_t t = attachment->vector.t();
    if (!attachment->vector.in_place()) {
      pin = participant.pin();
      t = pin.t();
    }
    const float* buffer = pin ? pin.data() : participant.data();
    for (std::size_t k = 0; k <= layout.states; ++k) {
      update_kernels().copy_racy(vectors.mutable_data(static_cast<py::ssize_t>(k), 0),
                                 buffer + k * layout.stride(), layout.dimension);
    }
    return {vectors, t};
  }

  // (published, staleness, failed attempts, excluded)
  py::tuple push(const FloatArray& gradient, std::uint64_t t_read) const {
    const auto attachment = attached();
    require_length(gradient, attachment->dimension, "gradient");
    const float* g = gradient.data();
    Publication result;
    {
      const py::gil_scoped_release release;
      const std::lock_guard one_at_a_time(attachment->mutex);
      result = attachment->trainer.push(g, t_read);
    }
    return py::make_tuple(result.published, result.staleness_compute + result.staleness_schedule,
                          result.tries);
  }

  std::uint64_t t() const { return attached()->vector.t(); }
  std::size_t live() const { return attached()->vector.live(); }
  std::size_t participants() const { return attached()->vector.participants(); }
  std::size_t length() const { return attached()->dimension; }
  std::vector<pid_t> pids() const { return attached()->vector.pids(); }
  void reap() const { attached()->vector.reap(); }
  // The memory itself goes with the last view of it.
  void close() { attachment_.reset(); }
  bool closed() const { return !attachment_; }

 private:
  std::shared_ptr<Attachment> attached() const {
    if (!attachment_) throw py::value_error("this SharedVector is closed; attach again");
    return attachment_;
  }
  std::shared_ptr<Attachment> attachment_;
};

}  // namespace

void bind_shared_vector(py::module_& m) {
  py::class_<PySharedVector>(m, "SharedVector")
      .def_static(
          "create",
          [](const std::string& name, const FloatArray& theta, std::size_t participants,
             bool in_place, const std::string& description, const PyChoice& rule,
             const PyChoice& staleness, double persistence) {
            const auto dimension = static_cast<std::size_t>(theta.size());
            const auto made_rule = make_rule(to_choice(rule), participants);
            const auto policy = make_staleness(to_choice(staleness));
            const DisciplineContext context{theta.data(), dimension, participants, 0,
                                            *made_rule,   *policy};
            const Updater updater(context);
            const AlignedArray<float> initial = updater.initial(context);
            return PySharedVector(std::make_shared<Attachment>(
                SharedVector::create(name, initial.data(), updater.layout().length(), participants,
                                     in_place, description),
                dimension, rule, staleness, persistence));
          },
          py::arg("name"), py::arg("theta").noconvert(), py::arg("participants"),
          py::arg("in_place"), py::arg("description"), py::arg("rule"), py::arg("staleness"),
          py::arg("persistence"))
      .def_static(
          "attach",
          // `choices` turns the description into (dimension, rule, staleness, persistence).
          [](const std::string& name, const py::function& choices) {
            SharedVector vector = SharedVector::attach(name);
            const auto [dimension, rule, staleness, persistence] =
                py::cast<std::tuple<std::size_t, PyChoice, PyChoice, double>>(
                    choices(std::string(vector.description())));
            return PySharedVector(std::make_shared<Attachment>(std::move(vector), dimension, rule,
                                                               staleness, persistence));
          },
          py::arg("name"), py::arg("choices"))
      .def_static("path", &SharedMemory::path, py::arg("name"),
                  "The file of that name; raises Error where it is no name.")
      .def_static("clean", &SharedMemory::clean, py::arg("name"),
                  "Removes what nobody uses any more; false where there is nothing of the kind.")
      .def("read", &PySharedVector::read)
      .def("state", &PySharedVector::state)
      .def("push", &PySharedVector::push, py::arg("gradient").noconvert(), py::arg("t_read"))
      .def("reap", &PySharedVector::reap)
      .def("close", &PySharedVector::close)
      .def_property_readonly("t", &PySharedVector::t)
      .def_property_readonly("live", &PySharedVector::live)
      .def_property_readonly("participants", &PySharedVector::participants)
      .def_property_readonly("length", &PySharedVector::length)
      .def_property_readonly("pids", &PySharedVector::pids)
      .def_property_readonly("closed", &PySharedVector::closed);
}

}  // namespace leashed

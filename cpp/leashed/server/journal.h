// What the server of a mode hears, in files: each line is written down before it is acted upon, so
// that whoever is started in its place, killed at any moment, has heard all that anybody knows of.
// (Written, not on the disk: sync() is for power cuts.)
//
// Lines are those of an event log (event_log.h), a block each. A file has the lines from one cut()
// to the next, and its name the number of its first one, so that who has kept all before a line
// forgets whole files. What cannot be written is no journal: its files are removed, since who would
// go on from some of the lines would not know what others have done by the rest.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "leashed/base/descriptor.h"
#include "leashed/server/event_log.h"

namespace leashed {

class Journal {
 public:
  // path: what the names of its files begin with. again: goes on behind the lines that are there;
  // else there must be none, and it begins. Throws Error where files cannot be read or made; where
  // there are none to go on from; and where lines are missing between them.
  Journal(const std::string& path, bool again);

  std::uint64_t first() const { return starts_.front(); }  // line that is there
  std::uint64_t next() const { return log_.next(); }       // line's number
  // f(number, line) of each line that is there, in their order. Throws as the constructor does.
  void read(const std::function<void(std::uint64_t, const LogLine&)>& f) const;
  void append(const modes::Event& event, Time at);
  // The next line begins a file.
  void cut();
  // Nobody asks for lines before this one any more.
  void forget(std::uint64_t before);
  // Descriptors of what may not be on the disk yet, for whoever brings it there while more is
  // written, and closes them: files, and the folder where one of them was made. One that cannot be
  // had gives the journal up.
  std::vector<int> unsynced();
  // It cannot be written, or brought to the disk, as errno has it: its files are removed.
  void give_up(int error);
  // Why it was given up; empty: it was not.
  const std::string& failure() const { return failure_; }

 private:
  std::string named(std::uint64_t first) const { return path_ + '.' + std::to_string(first); }
  int begin_file();  // 0, or why there is none, as errno has it

  const std::string path_;
  std::vector<std::uint64_t> starts_;  // of its files, the first lines
  EventLog log_;                       // of a line, until it is written
  std::optional<Descriptor> file_;
  std::deque<Descriptor> before_;  // files, since the last unsynced()
  bool made_ = false;              // a file was, since then
  std::string failure_;
};

}  // namespace leashed

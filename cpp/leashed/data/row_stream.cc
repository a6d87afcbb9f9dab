#include "leashed/data/row_stream.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <limits>
#include <system_error>
#include <utility>

#include "leashed/base/clock.h"
#include "leashed/base/error.h"
#include "leashed/base/team.h"
#include "leashed/data/sampler.h"

namespace leashed {

RowStream::RowStream(std::unique_ptr<RowOrigin> origin, const RowLayout& layout,
                     const Settings& settings)
    : origin_(std::move(origin)), layout_(layout), settings_(settings) {
  assert(settings.threads > 0 && settings.places > 0);
}

RowStream::~RowStream() { end(); }

void RowStream::end() {
  stop();
  const std::lock_guard ending(ending_);
  threads_.clear();  // which joins them
}

void RowStream::standardise(std::vector<bool> which, NumberMoments begun) {
  assert(!started_ && which.size() == layout_.numbers);
  numbers_ = std::make_unique<StandardNumbers>(std::move(which), std::move(begun));
}

void RowStream::start(std::uint64_t first) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(started_, true)) {
      assert(first == first_);
      return;
    }
    first_ = next_ = first;
    if (numbers_) numbers_->reach(first);
    begun_ = settings_.window == 0 || first % settings_.window == 0;
  }
  threads_.reserve(settings_.threads);
  try {
    while (threads_.size() < settings_.threads) {
      threads_.push_back(start_thread([this] { read(); }));
    }
  } catch (const std::system_error& error) {
    if (!threads_.empty()) return;  // those that there are read it all
    throw Error(std::string("the system lets no thread start to read rows (") + error.what() + ")");
  } catch (...) {
    end();
    throw;
  }
}

void RowStream::read_here() {
  {
    const std::lock_guard lock(mutex_);
    if (started_ || settings_.passes != 1) {
      throw Error("read_here is once, in place of start(), for a stream of one pass");
    }
    started_ = true;
    wanted_ = std::numeric_limits<std::uint64_t>::max();  // so that there is room for all
  }
  read();
}

void RowStream::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stop_.store(true, std::memory_order_relaxed);
  more_.notify_all();
  room_.notify_all();
  settled_.notify_all();
}

void RowStream::fail(std::exception_ptr error) {
  if (!failure_) failure_ = std::move(error);
  stop_.store(true, std::memory_order_relaxed);
  more_.notify_all();
  room_.notify_all();
  settled_.notify_all();
}

ReadCounts RowStream::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void RowStream::read() {
  try {
    while (read_part()) {
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    fail(std::current_exception());
  }
}

bool RowStream::has_room() const {
  if (ring_.size() < settings_.places) return true;
  const std::uint64_t under_way = removed_ + ring_.size() - measured_;
  return end_ < wanted_ && under_way < settings_.threads;
}

bool RowStream::read_part() {
  std::unique_ptr<RowOrigin::Part> part;
  Place* place = nullptr;
  {
    const std::lock_guard reading(reading_);
    {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [this] { return over() || has_room(); });
      if (over()) return false;
    }
    try {
      while (!(part = origin_->next(stop_))) {
        if (!begin_pass()) return false;
      }
    } catch (...) {  // before another thread asks for what would follow
      std::unique_lock lock(mutex_);
      settle(lock);  // so that rows before it are given out
      fail(std::current_exception());
      return false;
    }
    const std::lock_guard lock(mutex_);
    place = &ring_.emplace_back();
    place->pass = pass_;
    place->file = part->file;
    place->begins_file = part->begins_file;
    place->lines_before = part->lines_before;
    place->bytes = part->bytes;
  }
  ParsedRows rows = part->parse();
  const std::lock_guard lock(mutex_);
  place->rows = std::move(rows);
  place->complete = true;
  commit();
  return !over();
}

// Until what has been handed out is committed.
void RowStream::settle(std::unique_lock<std::mutex>& lock) {
  settled_.wait(lock,
                [this] { return stopped_ || failure_ || measured_ == removed_ + ring_.size(); });
  if (!numbers_ || stopped_) return;
  numbers_->finish();
  commit();
}

// All parts of the pass have been handed out. False where that was the last.
bool RowStream::begin_pass() {
  std::unique_lock lock(mutex_);
  settle(lock);
  if (over()) return false;
  const bool empty = end_ == pass_begin_;
  if (empty && end_ == 0) {
    fail(std::make_exception_ptr(NoRows(origin_->names().back() + ": there is no row in it")));
    return false;
  }
  if (pass_ == 0) pass_rows_.store(end_, std::memory_order_relaxed);
  pass_begin_ = end_;
  ++pass_;
  if (!empty && pass_ != settings_.passes) {
    lock.unlock();
    if (origin_->rewind()) return true;
    lock.lock();
  }
  ended_ = true;
  more_.notify_all();
  room_.notify_all();
  return false;
}

void RowStream::commit() {
  const std::uint64_t from =
      settings_.window ? first_ / settings_.window * settings_.window : first_;
  while (!failure_ && measured_ < removed_ + ring_.size()) {
    Place& place = ring_[measured_ - removed_];
    if (!place.complete) break;
    measure(place);
  }
  while (committed_ < measured_ && (!numbers_ || numbers_->ready())) {
    Place& place = ring_[committed_ - removed_];
    RowBlock& block = place.rows.block;
    if (numbers_) numbers_->scale(block.x.data(), place.first, block.rows());
    end_ += block.rows();
    place.left = end_ - std::min(end_, std::max(place.first, from));
    ++committed_;
  }
  while (removed_ < committed_ && ring_.front().left == 0) {
    ring_.pop_front();
    ++removed_;
  }
  more_.notify_all();
  room_.notify_all();
  settled_.notify_all();
}

// Of the place whose turn it is: its rows get their numbers.
void RowStream::measure(Place& place) {
  place.first = seen_;
  judge(place);
  const RowBlock& block = place.rows.block;
  seen_ += block.rows();
  ++measured_;
  if (!numbers_) return;
  numbers_->add(block.x.data(), block.rows());
  if (failure_) numbers_->finish();  // no more come
}

// Of a place whose turn it is: its lines get their numbers.
void RowStream::judge(Place& place) {
  ParsedRows& rows = place.rows;
  if (place.begins_file) lines_ = 0;
  lines_ += place.lines_before;
  const std::uint64_t before = lines_;
  lines_ += rows.lines;
  const std::string& file = origin_->names()[place.file];
  if (rows.bad > 0 && !settings_.skip_bad) {
    const BadRow& bad = rows.first_bad.front();
    rows.block.resize(bad.before);
    fail(std::make_exception_ptr(Error(file + ": " + origin_->unit() + " " +
                                       std::to_string(before + bad.number) + ": " + bad.reason +
                                       "; bad=\"skip\" leaves such " + origin_->unit() + "s out")));
  }
  if (place.pass > 0) return;
  counts_.rows += rows.block.rows();
  counts_.lines += place.lines_before + rows.lines;
  counts_.bad += rows.bad;
  counts_.bytes += place.bytes;
  for (BadRow& bad : rows.first_bad) {
    if (counts_.first_bad.size() == ParsedRows::kKept) break;
    counts_.first_bad.push_back({file, std::move(bad.reason), before + bad.number});
  }
}

void RowStream::want(std::uint64_t rows) {
  if (wanted_ >= rows) return;
  wanted_ = rows;
  room_.notify_all();
}

bool RowStream::come(std::uint64_t rows) const {
  if (stopped_) return false;
  if (end_ < rows && failure_) std::rethrow_exception(failure_);
  return true;
}

bool RowStream::wait(std::uint64_t rows, std::unique_lock<std::mutex>& lock, double& waited) {
  const auto known = [&] { return end_ >= rows || over(); };
  if (!known()) {
    const double begin = now();
    want(rows);
    more_.wait(lock, known);
    waited += now() - begin;
  }
  return come(rows);
}

std::uint64_t RowStream::needed(std::uint64_t first, std::size_t count) const {
  const std::uint64_t window = std::max<std::uint64_t>(settings_.window, 1);
  return (first + count + window - 1) / window * window;
}

bool RowStream::has(std::uint64_t row) {
  std::unique_lock lock(mutex_);
  double waited = 0;
  return wait(needed(row, 1), lock, waited) && row < end_;
}

template <class Rows>
bool RowStream::wait_known(const Rows& rows, std::unique_lock<std::mutex>& lock, double seconds) {
  return more_.wait_for(lock, std::chrono::duration<double>(seconds), [&] {
    want(rows());
    return end_ >= rows() || over();
  });
}

std::optional<std::uint64_t> RowStream::rows(std::uint64_t most, double seconds) {
  std::unique_lock lock(mutex_);
  const std::uint64_t rows = needed(0, most);
  if (!wait_known([rows] { return rows; }, lock, seconds)) return std::nullopt;
  return come(rows) ? std::min(most, end_) : 0;
}

bool RowStream::look(std::size_t count, RowBlock& to, double seconds) {
  std::unique_lock lock(mutex_);
  const std::uint64_t rows = needed(first_, count);
  if (!wait_known([rows] { return rows; }, lock, seconds)) return false;
  if (given_) throw Error("the first rows have been taken: look at them before that");
  if (stopped_ || end_ <= first_) return true;
  const std::vector<Piece> pieces =
      pieces_of(first_, std::min<std::uint64_t>(count, end_ - first_));
  lock.unlock();
  for (const Piece& piece : pieces) to.append(piece.place->rows.block, piece.begin, piece.end);
  return true;
}

std::size_t RowStream::take(std::uint64_t first, std::size_t count, RowBlock& to, double& waited) {
  std::unique_lock lock(mutex_);
  return wait(needed(first, count), lock, waited) ? take_known(first, count, to, lock) : 0;
}

bool RowStream::take_next(std::size_t count, RowBlock& to, double seconds) {
  std::unique_lock lock(mutex_);
  // Which rows are next may change meanwhile.
  if (!wait_known([&] { return needed(next_, count); }, lock, seconds)) return false;
  const std::uint64_t first = next_;
  if (!come(needed(first, count))) return true;
  next_ = std::max(first, std::min(first + count, end_));  // while they are copied others go on
  try {
    take_known(first, count, to, lock);
  } catch (...) {  // out of memory: nobody will have these rows
    if (!lock) lock.lock();
    fail(std::current_exception());
    throw;
  }
  return true;
}

std::size_t RowStream::take_known(std::uint64_t first, std::size_t count, RowBlock& to,
                                  std::unique_lock<std::mutex>& lock) {
  if (!begun_) {
    begun_ = true;
    const std::uint64_t window = first_ / settings_.window * settings_.window;
    take_there(window, std::min(first_, end_) - std::min(window, end_), nullptr, lock);
  }
  count = std::min<std::uint64_t>(count, end_ - std::min(end_, first));
  if (numbers_) numbers_->reach(first + count);
  given_ = given_ || count > 0;
  if (count > 0) take_there(first, count, &to, lock);
  return count;
}

void RowStream::rows_at(std::uint64_t first, std::size_t count,
                        std::vector<std::uint64_t>& rows) const {
  const std::uint64_t window = settings_.window;
  for (std::size_t done = 0; done < count;) {
    const std::uint64_t at = first + done, number = at / window, begin = number * window;
    const std::uint64_t size = std::min(window, end_ - begin);  // the last may be smaller
    const std::size_t some = std::min<std::uint64_t>(count - done, begin + size - at);
    rows.resize(done + some);
    Sampler(settings_.seed, size, 1).span(number * size + (at - begin), some, rows.data() + done);
    for (std::size_t i = done; i < done + some; ++i) rows[i] += begin;
    done += some;
  }
}

std::vector<RowStream::Piece> RowStream::pieces_of(std::uint64_t first, std::size_t count) {
  std::vector<Piece> pieces;
  const auto committed = [this] {
    return ring_.begin() + static_cast<std::ptrdiff_t>(committed_ - removed_);
  };
  const auto find = [&](std::uint64_t row) -> Place& {
    return *std::prev(
        std::upper_bound(ring_.begin(), committed(), row,
                         [](std::uint64_t r, const Place& p) { return r < p.first; }));
  };
  if (settings_.window == 0) {
    for (std::uint64_t row = first; row < first + count;) {
      Place& place = find(row);
      const std::uint64_t behind = place.first + place.rows.block.rows();
      const std::uint64_t end = std::min(behind, first + count);
      pieces.push_back({&place, row - place.first, end - place.first});
      row = end;
    }
  } else {
    std::vector<std::uint64_t> rows;
    rows_at(first, count, rows);
    for (const std::uint64_t row : rows) {
      Place& place = find(row);
      pieces.push_back({&place, row - place.first, row - place.first + 1});
    }
  }
  return pieces;
}

void RowStream::take_there(std::uint64_t first, std::size_t count, RowBlock* to,
                           std::unique_lock<std::mutex>& lock) {
  const std::vector<Piece> pieces = pieces_of(first, count);
  lock.unlock();
  // What is in the ring stays where it is while it has rows that are not taken.
  const auto whole = [](const Piece& piece) {
    return piece.begin == 0 && piece.end == piece.place->rows.block.rows();
  };
  if (to && to->rows() == 0 && pieces.size() == 1 && whole(pieces[0])) {
    *to = std::move(pieces[0].place->rows.block);  // whose number of rows others go on reading
  } else if (to) {
    for (const Piece& piece : pieces) to->append(piece.place->rows.block, piece.begin, piece.end);
  }
  lock.lock();
  for (const Piece& piece : pieces) piece.place->left -= piece.end - piece.begin;
  bool removed = false;
  while (removed_ < committed_ && ring_.front().left == 0) {
    ring_.pop_front();
    ++removed_;
    removed = true;
  }
  if (removed) room_.notify_all();
}

}  // namespace leashed

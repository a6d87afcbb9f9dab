/*
 * The index of a growing table: ids that are found without a lock, while others are inserted and
 * evicted and the slots rebuilt (cpp/leashed/table/id_index.h and epochs.h name the same steps).
 * docs/tables.md explains it; tests/protocols/test_id_index_model.py runs this model.
 *
 *   find     how often the shard has begun to be rebuilt, its segment, the slots along which the id may
 *            be, the row; once more, unless it has not begun again meanwhile
 *   hold     find. The row that is found may be anybody's by now: count in its holders, and find again.
 *            If that gives the same row it is the id's for as long as it is held
 *   push     a row that is held is used while the next one is located: count the update in its version,
 *            write; then release it
 *   scan     announce the epoch of scans, find, and read the row, which is not held
 *   insert   under the lock: find again, take a row, begin it, hold it, write it to a slot, then the id
 *   take_row one that has never been used, or one that waits, which nobody holds and then no scanner
 *            can have found
 *   sampled  under the lock: which row and slot is to be evicted, and how often the shard was rebuilt
 *   evict    without the lock: compare the row, whosever it is by now. Under the lock again, unless the
 *            shard was rebuilt, there is room, or the slot is a tomb: it becomes one, the version is
 *            marked, a new epoch of scans begins, and the row waits with its number
 *   rebuild  under the lock: tell that it begins; what lives goes into the memory of the segment before,
 *            whoever still looks there, and that becomes current
 *
 * Changers take the lock or let it be, and read slots under it only. Who finds another row, or none,
 * when he looks again, tries again with that: here by his next look, which may be for the same id. Rows
 * that wait are tried in any order. What is true whenever the lock is free is asserted where it is given
 * back: each row is in one slot, waits, or has never been used. In the end nobody holds any. Every store
 * is seen at once but for the two whose order matters and is only a release: those are steps of their
 * own.
 *
 * Parameters (-D): UPDATERS, SCANNERS, LOOKS (of each), CHANGERS, CHANGES (insertions, evictions and
 * rebuilds, of all together), IDS, ROWS, SLOTS (of a segment), FILLED (slots that may be used; all ids
 * begin at the first), RESERVE (rows: where fewer are unused or wait, one may be evicted).
 * Mutations (-D), each refuted: REUSE_TOMB (an id is put where a tomb is), ID_FIRST (the id is written
 * before its row), UNTOLD (nobody asks whether the shard has begun to be rebuilt), TOLD_LATE (that is
 * told when all has been written), LOADED_FIRST (the segment is loaded before that is asked), UNCHECKED
 * (nobody looks again), CHECKED_FIRST (he looks again before he counts), SAME_SEGMENT (he looks again
 * where he has looked before), HELD (a row is taken though somebody holds it), EARLY (what is held is
 * released before the push), NO_GRACE (a row is taken though a scanner may have found it), LOOK_LATE (a
 * scanner reads the epoch after the lookup), BUMP_FIRST (the epoch begins before the tomb), STALE_SAMPLE
 * (a slot that was sampled before a rebuild becomes a tomb), TWICE (a slot that is a tomb already),
 * OVERFULL (there may be room by then), HELD_LATE (what was inserted, or known, is counted when the lock
 * has been given back).
 */

#ifndef UPDATERS
#define UPDATERS 2
#endif
#ifndef LOOKS
#define LOOKS 2
#endif
#ifndef SCANNERS
#define SCANNERS 0
#endif
#ifndef IDS
#define IDS 2
#endif
#ifndef ROWS
#define ROWS 2
#endif
#ifndef SLOTS
#define SLOTS 3
#endif
#ifndef FILLED
#define FILLED 2
#endif
#ifndef CHANGERS
#define CHANGERS 1
#endif
#ifndef CHANGES
#define CHANGES 5
#endif
#ifndef RESERVE
#define RESERVE ROWS
#endif

#define EMPTY 0
#define TOMB 255
#define NONE 255
#define LEFT 255

/* Memory. */
byte ids[2 * SLOTS];
byte rows[2 * SLOTS];
byte current;
byte rebuilds;       /* that have begun */
byte scan_epoch = 1; /* of rows that are read and are not held */
byte scan_announced[SCANNERS + 1];
byte holders[ROWS];
bool dead[ROWS];

/* Whose row it is, from its beginning until it is taken again; how often a segment has begun anew. */
byte owner[ROWS];
byte life[2];

byte changes;

/* Under the lock. */
bool locked;
byte used;
byte waits[ROWS];    /* the epoch of scans, 0: is in use or never was */
bool unused[ROWS];

hidden byte i, j, n;

#define IS_LIVE(slot) (ids[current * SLOTS + slot] != EMPTY && ids[current * SLOTS + slot] != TOMB)

inline release(row) {
  d_step { assert(holders[row] > 0); holders[row]-- }
}

inline any_id() {
  if
  :: id = 1
#if IDS > 1
  :: id = 2
#endif
#if IDS > 2
  :: id = 3
#endif
  fi
}

/* Along the slots of the segment, of which others may make another one meanwhile: then the other's
   count is seen, too. What is true of a row when it is found. */
inline probe(found, truth) {
  d_step { slot = 0; seen = 0; got = NONE; torn = 0 };
  do
  :: d_step { got != id && got != EMPTY && seen < SLOTS ->
       torn = torn || life[segment] != lived;
       got = ids[segment * SLOTS + slot];
       if :: got != id && got != EMPTY -> slot = (slot + 1) % SLOTS; seen++ :: else fi
     }
  :: d_step { got == id ->
       torn = torn || life[segment] != lived;
       found = rows[segment * SLOTS + slot]
     };
     break
  :: d_step { got == EMPTY || seen == SLOTS -> found = NONE }; break
  od;
  atomic {
    if
#ifndef UNTOLD
    :: rebuilds != begun -> again = NONE
#endif
    :: else ->
      again = 0;
      assert(torn == 0);
      if :: got == id -> assert(found != NONE); assert(truth) :: else fi
    fi
  }
}

inline find(found, truth) {
  do
  ::
#ifdef LOADED_FIRST
    d_step { segment = current; lived = life[segment] };
    begun = rebuilds;
#else
    begun = rebuilds;
    d_step { segment = current; lived = life[segment] };
#endif
    probe(found, truth);
    if :: again == 0 -> break :: else fi
  od
}

/* Of row: NONE, or a row that is counted, and is the id's as long as it is. */
inline hold() {
  find(row, true);
  if
  :: row != NONE -> /* whose it is by now nobody knows */
#ifndef CHECKED_FIRST
    holders[row]++;
#endif
#ifdef UNCHECKED
    other = row;
#else
#ifdef SAME_SEGMENT
    begun = rebuilds;
    probe(other, true);
#else
    find(other, true);
#endif
#endif
#ifdef CHECKED_FIRST
    holders[row]++;
#endif
    if
    :: other == row
    :: else -> release(row); row = NONE
    fi
  :: else
  fi
}

/* Late or applied, the row is that id's. */
inline push() {
  assert(owner[held] == held_id); /* counted */
  assert(owner[held] == held_id)  /* written */
}

/* Push of what was held. */
inline finish() {
  if
  :: held != NONE ->
#ifdef EARLY
    release(held);
    push()
#else
    push();
    release(held)
#endif
  :: else
  fi
}

#if UPDATERS
proctype updater() {
  byte looks, id, segment, lived, slot, seen, got, row, begun, again, other;
  bool torn;
  byte held = NONE, held_id;
  do
  :: looks == LOOKS -> break
  :: else ->
    atomic { looks++; any_id() };
    hold();
    finish();
    d_step {
      held = row;
      held_id = (row == NONE -> 0 : id);
      id = 0; segment = 0; lived = 0; slot = 0; seen = 0; got = 0; row = 0; begun = 0; again = 0; other = 0;
      torn = 0
    }
  od;
  finish()
}
#endif

#if SCANNERS
proctype scanner(byte me) {
  byte looks, id, segment, lived, slot, seen, got, row, begun, again;
  bool torn;
  scan_announced[me] = 0; /* join */
  do
  :: d_step { looks == LOOKS; scan_announced[me] = LEFT };
     break
  :: else ->
    atomic { looks++; any_id() };
#ifndef LOOK_LATE
    row = scan_epoch;
    scan_announced[me] = row;
#endif
    find(row, owner[row] == id);
#ifdef LOOK_LATE
    got = scan_epoch;
    scan_announced[me] = got;
#endif
    if
    :: row != NONE -> assert(owner[row] == id) /* read */
    :: else
    fi;
    d_step {
      id = 0; segment = 0; lived = 0; slot = 0; seen = 0; got = 0; row = 0; begun = 0; again = 0; torn = 0
    }
  od
}
#endif

inline unlock() {
  d_step {
    for (i : 0 .. ROWS - 1) {
      n = unused[i] + (waits[i] != 0);
      for (j : 0 .. SLOTS - 1) {
        if
        :: IS_LIVE(j) && rows[current * SLOTS + j] == i ->
          n++;
          assert(owner[i] == ids[current * SLOTS + j] && !dead[i])
        :: else
        fi
      }
      assert(n == 1) /* nobody else's */
    }
    n = 0;
    for (i : 0 .. ROWS - 1) { if :: waits[i] != 0 -> n++ :: else fi }
    assert(n <= RESERVE); /* so many have a place to */
    n = 0;
    for (j : 0 .. SLOTS - 1) { if :: ids[current * SLOTS + j] != EMPTY -> n++ :: else fi }
    assert(n == used);
    locked = 0
  }
}

/* Of n: rows that are unused or wait. */
inline count_at_hand() {
  n = 0;
  for (i : 0 .. ROWS - 1) { if :: unused[i] || waits[i] != 0 -> n++ :: else fi }
}

/* Where the id goes in that segment; the row before the id. */
inline put(segment, id, row) {
  d_step {
    slot = 0;
#ifdef REUSE_TOMB
    do :: ids[segment * SLOTS + slot] != EMPTY && ids[segment * SLOTS + slot] != TOMB -> slot = (slot + 1) % SLOTS :: else -> break od;
#else
    do :: ids[segment * SLOTS + slot] != EMPTY -> slot = (slot + 1) % SLOTS :: else -> break od;
#endif
    for (i : 0 .. SLOTS - 1) { assert(ids[segment * SLOTS + i] != id) } /* once */
  }
#ifdef ID_FIRST
  ids[segment * SLOTS + slot] = id;
  rows[segment * SLOTS + slot] = row;
#else
  rows[segment * SLOTS + slot] = row;
  ids[segment * SLOTS + slot] = id;
#endif
#ifdef REUSE_TOMB
  d_step {
    used = 0;
    for (i : 0 .. SLOTS - 1) { if :: ids[segment * SLOTS + i] != EMPTY -> used++ :: else fi }
  }
#else
  used++
#endif
}

#ifdef HELD
#define IS_HELD(row) false
#else
#define IS_HELD(row) (holders[row] != 0)
#endif
#define CAN_BE_TAKEN(row) (unused[row] || (waits[row] != 0 && !IS_HELD(row)))

/* Of row: any that can be taken, if no scanner can have found it; NONE: none, or another one would be
   looked at. */
inline take_row() {
  atomic {
    row = NONE;
    for (slot : 0 .. ROWS - 1) {
      if
      :: CAN_BE_TAKEN(slot) -> row = slot
      :: row != NONE || !CAN_BE_TAKEN(slot)
      fi
    }
  }
  d_step {
#ifndef NO_GRACE
    for (i : 0 .. SCANNERS - 1) {
      if :: row != NONE && scan_announced[i] < waits[row] -> row = NONE :: else fi
    }
#endif
    if
    :: row != NONE -> unused[row] = 0; waits[row] = 0; owner[row] = 0
    :: else
    fi
  }
}

inline insert() {
  any_id();
  d_step { /* find */
    row = NONE;
    for (i : 0 .. SLOTS - 1) {
      if
      :: ids[current * SLOTS + i] == id -> row = rows[current * SLOTS + i];
#ifndef HELD_LATE
         holders[row]++
#endif
      :: else
      fi
    }
  }
  if
  :: row == NONE && used < FILLED ->
    take_row();
    if
    :: row != NONE ->
      d_step {
        owner[row] = id;
        dead[row] = 0;
#ifndef HELD_LATE
        holders[row]++
#endif
      };
      put(current, id, row)
    :: else /* refused */
    fi
  :: else
  fi
}

/* Any that lives, where there is no room. */
inline sampled() {
  atomic {
    at = NONE;
    for (slot : 0 .. SLOTS - 1) {
      if
      :: IS_LIVE(slot) -> at = slot
      :: at != NONE || !IS_LIVE(slot)
      fi
    }
    d_step {
      count_at_hand();
      if
      :: at != NONE && n < RESERVE ->
        id = ids[current * SLOTS + at];
        row = rows[current * SLOTS + at];
        was = rebuilds
      :: else -> at = NONE
      fi
    }
  }
}

inline evict() {
  d_step {
    count_at_hand();
    if
#ifndef STALE_SAMPLE
    :: rebuilds != was -> at = NONE
#endif
#ifndef OVERFULL
    :: n >= RESERVE -> at = NONE
#endif
#ifndef TWICE
    :: !IS_LIVE(at) -> at = NONE
#endif
    :: else ->
      assert(ids[current * SLOTS + at] == id);
      assert(rows[current * SLOTS + at] == row)
    fi
  }
  if
  :: at != NONE /* others hold it */
  :: at != NONE ->
#ifdef BUMP_FIRST
    scan_epoch++;
    ids[current * SLOTS + at] = TOMB;
    dead[row] = 1;
#else
    ids[current * SLOTS + at] = TOMB;
    dead[row] = 1;
    scan_epoch++;
#endif
    waits[row] = scan_epoch
  :: else
  fi
}

/* Slot by slot, while others may be looking there. */
inline rebuild() {
#ifndef TOLD_LATE
  rebuilds++;
#endif
  d_step { at = 1 - current; life[at]++; slot = 0 };
  do
  :: slot < SLOTS -> ids[at * SLOTS + slot] = EMPTY; slot++
  :: else -> break
  od;
  atomic { used = 0; was = 0 };
  do
  :: d_step { was < SLOTS && !IS_LIVE(was) -> was++ }
  :: was < SLOTS && IS_LIVE(was) ->
    id = ids[current * SLOTS + was];
    row = rows[current * SLOTS + was];
    put(at, id, row);
    was++
  :: was == SLOTS -> break
  od;
#ifdef TOLD_LATE
  rebuilds++;
#endif
  current = at
}

proctype changer() {
  byte id, slot, row, at, was;
  do
  :: d_step { changes < CHANGES -> changes++ };
    if
    :: atomic { !locked -> locked = 1 };
      if
      :: insert(); unlock();
        if
        :: row != NONE ->
#ifdef HELD_LATE
          holders[row]++;
#endif
          assert(owner[row] == id); /* it is held */
          release(row)
        :: else
        fi
      :: sampled(); unlock();
        if
        :: at != NONE ->
          if
          :: atomic { !locked -> locked = 1 }; evict(); unlock()
          :: else /* the next who inserts sees to it */
          fi
        :: else
        fi
      :: rebuild(); unlock()
      fi
    :: else /* deferred */
    fi;
    d_step { id = 0; slot = 0; row = 0; at = 0; was = 0 }
  :: else -> break
  od
}

init {
  atomic {
    for (i : 0 .. ROWS - 1) { unused[i] = 1 }
    for (i : 0 .. 2 * SLOTS - 1) { rows[i] = NONE }
#if UPDATERS
    for (i : 1 .. UPDATERS) { run updater() }
#endif
#if SCANNERS
    for (i : 0 .. SCANNERS - 1) { scan_announced[i] = LEFT; run scanner(i) }
#endif
    for (i : 1 .. CHANGERS) { run changer() }
  };
  _nr_pr == 1 ->
  d_step { for (i : 0 .. ROWS - 1) { assert(holders[i] == 0) } } /* whoever held one has given it back */
}

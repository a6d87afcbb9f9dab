/*
 * The index of a growing table: ids that are found without a lock, while others are inserted and
 * evicted and the slots rebuilt (cpp/leashed/table/id_index.h and epochs.h name the same steps).
 * docs/tables.md explains it; tests/protocols/test_id_index_model.py runs this model.
 *
 *   hold     join, look, announce (the epoch of segments), load the current one, find: probe its slots.
 *            The row that is found may be anybody's by now: count in its holders, load and find again.
 *            If that gives the same row it is the id's for as long as it is held
 *   push     a row that is held is used while the next one is located: count the update in its version,
 *            write; then release it
 *   scan     announce both epochs, load, find, and read the row, which is not held
 *   insert   under the lock: find again, take a row, begin it, hold it, write it to a slot, then the id
 *   take_row one that has never been used, or one that waits, which nobody holds and then no scanner
 *            can have found
 *   sampled  under the lock: which row and slot is to be evicted, and how often the shard was rebuilt
 *   evict    without the lock: compare the row, whosever it is by now. Under the lock again, unless the
 *            shard was rebuilt, there is room, or the slot is a tomb: it becomes one, the version is
 *            marked, a new epoch of scans begins, and the row waits with its number
 *   rebuild  under the lock: what lives goes into the other segment, which becomes current; a new
 *            epoch of segments begins, and the segment before waits for it
 *   reclaim  a segment that waits for an epoch that everybody has announced is free
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
 * before its row), FULL (the last slot may be used), FREE_SEGMENT (a segment is used again at once),
 * LOADED_FIRST (the segment is loaded before its epoch is announced), UNCHECKED (nobody looks again),
 * CHECKED_FIRST (he looks again before he counts), SAME_SEGMENT (he looks again where he has looked
 * before), HELD (a row is taken though somebody holds it), EARLY (what is held is released before the
 * push), NO_GRACE (a row is taken though a scanner may have found it), LOOK_LATE (a scanner reads the
 * epoch after the lookup), BUMP_FIRST (the epoch begins before the tomb), STALE_SAMPLE (a slot that was
 * sampled before a rebuild becomes a tomb), TWICE (a slot that is a tomb already), OVERFULL (there may be
 * room by then), HELD_LATE (what was inserted, or known, is counted when the lock has been given back).
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
#ifdef FULL
#define FILLED SLOTS
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
byte epoch = 1; /* of segments */
byte announced[UPDATERS + SCANNERS + 1]; /* with one more none is empty */
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
byte rebuilt;
byte waits[ROWS];    /* the epoch of scans, 0: is in use or never was */
bool unused[ROWS];
byte retired;        /* the epoch that the other segment waits for, 0: it is free */

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

/* The segment to look in. */
inline load(which) {
  d_step { segment = which; lived = life[segment]; slot = 0; seen = 0; got = NONE }
}

/* Along its slots; what is true of a row when it is found. */
inline find(found, truth) {
  do
  :: atomic {
       got != id;
       d_step {
         assert(life[segment] == lived); /* nobody has made another segment of it */
         assert(seen < SLOTS);           /* it ends */
         got = ids[segment * SLOTS + slot]
       };
       if
       :: got == EMPTY -> found = NONE; break
       :: got == id
       :: else -> d_step { slot = (slot + 1) % SLOTS; seen++ }
       fi
     }
  :: d_step {
       got == id;
       assert(life[segment] == lived);
       found = rows[segment * SLOTS + slot];
       assert(found != NONE);
       assert(truth)
     };
     break
  od
}

/* Of row: NONE, or a row that is counted, and is the id's as long as it is. */
inline hold() {
#ifndef LOADED_FIRST
  load(current);
#endif
  find(row, true);
  if
  :: row != NONE -> /* whose it is by now nobody knows */
#ifndef CHECKED_FIRST
    holders[row]++;
#endif
#ifdef UNCHECKED
    again = row;
#else
#ifdef SAME_SEGMENT
    load(segment);
#else
    load(current);
#endif
    find(again, true);
#endif
#ifdef CHECKED_FIRST
    holders[row]++;
#endif
    if
    :: again == row
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
proctype updater(byte me) {
  byte looks, id, segment, lived, slot, seen, got, row, again;
  byte held = NONE, held_id;
  do
  :: looks == LOOKS -> break
  :: else ->
#ifdef LOADED_FIRST
    load(current);
#endif
    atomic { looks++; any_id(); announced[me] = 0 }; /* join */
    row = epoch;                                     /* look */
    announced[me] = row;
    hold();
    announced[me] = LEFT;
    finish();
    d_step {
      held = row;
      held_id = (row == NONE -> 0 : id);
      id = 0; segment = 0; lived = 0; slot = 0; seen = 0; got = 0; row = 0; again = 0
    }
  od;
  finish()
}
#endif

#if SCANNERS
proctype scanner(byte me) {
  byte looks, id, segment, lived, slot, seen, got, row;
  d_step { announced[me] = 0; scan_announced[me - UPDATERS] = 0 }; /* join */
  do
  :: d_step {
       looks == LOOKS;
       announced[me] = LEFT;
       scan_announced[me - UPDATERS] = LEFT
     };
     break
  :: else ->
    atomic { looks++; any_id(); row = epoch /* look */ };
    announced[me] = row;
#ifndef LOOK_LATE
    row = scan_epoch;
    scan_announced[me - UPDATERS] = row;
#endif
    load(current);
    find(row, owner[row] == id);
#ifdef LOOK_LATE
    got = scan_epoch;
    scan_announced[me - UPDATERS] = got;
#endif
    if
    :: row != NONE -> assert(owner[row] == id) /* read */
    :: else
    fi;
    d_step { id = 0; segment = 0; lived = 0; slot = 0; seen = 0; got = 0; row = 0 }
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

inline reclaim() {
  d_step {
    n = LEFT;
    for (i : 0 .. UPDATERS + SCANNERS - 1) {
      if :: announced[i] < n -> n = announced[i] :: else fi
    }
#ifdef FREE_SEGMENT
    n = LEFT;
#endif
    if
    :: retired != 0 && retired <= n -> retired = 0
    :: else
    fi
  }
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
  reclaim();
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
        was = rebuilt
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
    :: rebuilt != was -> at = NONE
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

inline rebuild() {
  reclaim();
  if
  :: retired == 0 ->
    d_step {
      used = 0;
      at = 1 - current;
      for (i : 0 .. SLOTS - 1) { ids[at * SLOTS + i] = EMPTY; rows[at * SLOTS + i] = NONE }
      life[at]++;
      for (j : 0 .. SLOTS - 1) {
        id = ids[current * SLOTS + j];
        if
        :: id != EMPTY && id != TOMB ->
          slot = 0;
          do :: ids[at * SLOTS + slot] != EMPTY -> slot = (slot + 1) % SLOTS :: else -> break od;
          rows[at * SLOTS + slot] = rows[current * SLOTS + j];
          ids[at * SLOTS + slot] = id;
          used++
        :: else
        fi
      }
    };
    current = at;
    d_step { epoch++; retired = epoch; rebuilt++ }
  :: else
  fi
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
    for (i : 0 .. UPDATERS - 1) { announced[i] = LEFT; run updater(i) }
#endif
#if SCANNERS
    for (i : UPDATERS .. UPDATERS + SCANNERS - 1) {
      announced[i] = LEFT;
      scan_announced[i - UPDATERS] = LEFT;
      run scanner(i)
    }
#endif
    for (i : 1 .. CHANGERS) { run changer() }
  };
  _nr_pr == 1 ->
  d_step { for (i : 0 .. ROWS - 1) { assert(holders[i] == 0) } } /* whoever held one has given it back */
}

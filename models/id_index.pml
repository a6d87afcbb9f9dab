/*
 * The index of a growing table: ids that are found without a lock, while others are inserted and
 * evicted and the slots rebuilt (cpp/leashed/table/id_index.h and epochs.h name the same steps).
 * docs/tables.md explains it; tests/protocols/test_id_index_model.py runs this model.
 *
 *   locate   look (the epoch), load the current segment, find: probe its slots, then read the row
 *   hold     a row is used while the next one is located, then the epoch of that look is announced
 *   push     count the update in the row's version, which tells whether the row has been evicted
 *   insert   under the lock: find again, take a row, begin it, write it to a slot, then the id
 *   sampled  under the lock: which row and slot is to be evicted, and how often the shard was rebuilt
 *   evict    without the lock: read the row. Under the lock again, unless the shard was rebuilt, there
 *            is room, or the slot is a tomb: it becomes one, the version is marked, a new epoch begins;
 *            the row waits for it
 *   rebuild  under the lock: what lives goes into the other segment, which becomes current; a new
 *            epoch begins, and the segment before waits for it
 *   reclaim  what waits for an epoch that everybody has announced is free
 *
 * Changers take the lock or let it be, and are readers, too. What is true whenever the lock is free is
 * asserted where it is given back: each row is in one slot, waits, or is free. Every store is seen at
 * once but for the two whose order matters and is only a release: those are steps of their own.
 *
 * Parameters (-D): UPDATERS, LOOKS (of each), CHANGERS, CHANGES (insertions, evictions and rebuilds, of
 * all together), IDS, ROWS, SLOTS (of a segment), FILLED (slots that may be used; all ids begin at the
 * first), RESERVE (rows: where fewer are free or wait, one may be evicted; how many are to be kept free
 * changes with the batches that come, and is never more).
 * Mutations (-D), each refuted: REUSE_TOMB (an id is put where a tomb is), NO_GRACE (a row is used
 * again at once), ID_FIRST (the id is written before its row), LOOK_LATE (the epoch is read after the
 * lookup), FREE_SEGMENT (a segment is used again at once), EARLY (the announcement comes before the
 * push of what was held), BUMP_FIRST (the epoch begins before the tomb), FULL (the last slot may be
 * used), STALE_SAMPLE (a slot that was sampled before a rebuild becomes a tomb), TWICE (a slot that is
 * a tomb already), OVERFULL (there may be room by then), UNSEEN (who evicts has announced nothing).
 */

#ifndef UPDATERS
#define UPDATERS 2
#endif
#ifndef LOOKS
#define LOOKS 2
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
byte epoch = 1;
byte announced[UPDATERS + CHANGERS];
bool dead[ROWS];

/* Whose row it is, from its beginning until it is free; how often a segment has begun anew. */
byte owner[ROWS];
byte life[2];

byte changes;

/* Under the lock. */
bool locked;
byte used;
byte rebuilt;
byte waits[ROWS];    /* the epoch, 0: is in use or free */
bool is_free[ROWS];
byte retired;        /* the epoch that the other segment waits for, 0: it is free */

hidden byte i, j, n;

#define IS_LIVE(slot) (ids[current * SLOTS + slot] != EMPTY && ids[current * SLOTS + slot] != TOMB)

proctype updater(byte me) {
  byte looks, id, e, segment, lived, slot, seen, got, row;
  byte held = NONE, held_id;
  do
  :: looks == LOOKS -> break
  :: else ->
    looks++;
    if /* any id */
    :: id = 1
#if IDS > 1
    :: id = 2
#endif
#if IDS > 2
    :: id = 3
#endif
    fi;
#ifndef LOOK_LATE
    e = epoch; /* look */
#endif
    d_step { segment = current; lived = life[segment] };
    slot = 0;
    seen = 0;
    row = NONE;
    do /* find */
    :: d_step {
        assert(life[segment] == lived); /* nobody has made another segment of it */
        assert(seen < SLOTS);           /* it ends */
        got = ids[segment * SLOTS + slot]
       };
       if
       :: got == id ->
         d_step {
           assert(life[segment] == lived);
           row = rows[segment * SLOTS + slot];
           assert(row != NONE);
           assert(owner[row] == id)
         };
         break
       :: got == EMPTY -> break
       :: else -> slot = (slot + 1) % SLOTS; seen++
       fi
    od;
#ifdef LOOK_LATE
    e = epoch;
#endif
#ifdef EARLY
    announced[me] = e;
#endif
    if /* push of what was held */
    :: held != NONE ->
      d_step {
        assert(owner[held] == held_id); /* late or applied, the row is that id's */
      };
      assert(owner[held] == held_id)
    :: else
    fi;
    announced[me] = e;
    held = row;
    held_id = id;
    d_step { slot = 0; seen = 0; got = 0; row = 0; segment = 0; lived = 0; e = 0; id = 0 }
  od;
  if
  :: held != NONE -> assert(owner[held] == held_id)
  :: else
  fi;
  announced[me] = LEFT
}

inline unlock() {
  d_step {
    for (i : 0 .. ROWS - 1) {
      n = is_free[i] + (waits[i] != 0);
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

/* Of n: rows that are free or wait. */
inline count_at_hand() {
  n = 0;
  for (i : 0 .. ROWS - 1) { if :: is_free[i] || waits[i] != 0 -> n++ :: else fi }
}

inline reclaim() {
  d_step {
    least = LEFT;
    for (i : 0 .. UPDATERS + CHANGERS - 1) {
      if :: announced[i] < least -> least = announced[i] :: else fi
    }
#ifdef NO_GRACE
    least = LEFT;
#endif
    for (i : 0 .. ROWS - 1) {
      if
      :: waits[i] != 0 && waits[i] <= least -> waits[i] = 0; is_free[i] = 1; owner[i] = 0
      :: else
      fi
    }
#ifdef FREE_SEGMENT
    least = LEFT;
#endif
    if
    :: retired != 0 && retired <= least -> retired = 0
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

inline insert() {
  reclaim();
  if
  :: id = 1
#if IDS > 1
  :: id = 2
#endif
#if IDS > 2
  :: id = 3
#endif
  fi;
  d_step { /* find, take a row */
    row = NONE;
    for (i : 0 .. ROWS - 1) { if :: is_free[i] -> row = i :: else fi }
    for (i : 0 .. SLOTS - 1) { if :: ids[current * SLOTS + i] == id -> row = NONE :: else fi }
    if :: used >= FILLED -> row = NONE :: else fi
  }
  if
  :: row != NONE ->
    d_step { is_free[row] = 0; dead[row] = 0; owner[row] = id };
    put(current, id, row)
  :: else /* known, or refused */
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
  :: at != NONE /* by now fewer are to be kept free */
  :: at != NONE ->
#ifdef BUMP_FIRST
    epoch++;
    ids[current * SLOTS + at] = TOMB;
    dead[row] = 1;
#else
    ids[current * SLOTS + at] = TOMB;
    dead[row] = 1;
    epoch++;
#endif
    waits[row] = epoch
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

proctype changer(byte me) {
  byte id, slot, row, least, at, was;
  do
  :: d_step { changes < CHANGES -> changes++ };
#ifndef UNSEEN
    announced[me] = epoch;
#endif
    if
    :: atomic { !locked -> locked = 1 };
      if
      :: insert(); unlock()
      :: sampled(); unlock();
        if
        :: at != NONE ->
          assert(owner[row] == id); /* what is compared is still that id's */
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
    d_step { announced[me] = LEFT; id = 0; slot = 0; row = 0; least = 0; at = 0; was = 0 }
  :: else -> break
  od
}

init {
  atomic {
    for (i : 0 .. ROWS - 1) { is_free[i] = 1 }
    for (i : 0 .. 2 * SLOTS - 1) { rows[i] = NONE }
    for (i : 0 .. UPDATERS - 1) { run updater(i) }
    for (i : UPDATERS .. UPDATERS + CHANGERS - 1) { announced[i] = LEFT; run changer(i) }
  }
}

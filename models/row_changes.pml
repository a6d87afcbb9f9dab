/*
 * Which rows of a table that evicts are written to a file of changes, while others update, evict and
 * insert (cpp/leashed/table/saving.cc names the same steps). docs/tables.md explains it;
 * tests/protocols/test_row_changes_model.py runs this model.
 *
 *   changed  along the slots: the rows and the incarnations; then their versions; what is not as it
 *            was saved is noted, and what was saved and has no row is gone
 *   settle   until the updates are over that were under way; or it is given up
 *   copy     where the id has that row, if by another insertion: the version, then the values; the
 *            row is unchanged from here on where its incarnation is the scan's and, it having been
 *            settled, its version too
 *
 * One id; its slots follow each other, as those of a segment do, where the scan may see it in two of
 * them: by the time that it looks at versions all but the last of these rows are dead. (A segment that
 * is made anew meanwhile is scanned again: models/id_index.pml has how that is seen.) A row is used
 * again when nobody holds it who may have found it before, as there. When all is over a last file is
 * written, and then the files have what the table has.
 *
 * Parameters (-D): ROWS, CHANGES (insertions and evictions), UPDATES, SAVES (before the last).
 * Mutations (-D), each refuted: NO_INCARNATION (a row of the same version is unchanged), NOW (the
 * incarnation is that of what is copied), NOT_SETTLED (nobody is waited for), ONE_PASS (each version
 * is looked at with its slot).
 */

#ifndef ROWS
#define ROWS 2
#endif
#ifndef CHANGES
#define CHANGES 5
#endif
#ifndef UPDATES
#define UPDATES 2
#endif
#ifndef SAVES
#define SAVES 2
#endif

#define SLOTS (CHANGES / 2 + 1)
#define NONE 255
#define DIRTY 254
#define SAVER 1
#define UPDATER 2

/* Memory: a slot's row is written before there is an id in it, and its number is the incarnation. */
bool has_id[SLOTS];
byte row_of[SLOTS];
byte version[ROWS], values[ROWS];
bool dead[ROWS];
bool seated;         /* the saver */
byte held = NONE;    /* the updater's row */
byte turn;           /* of the updater */

/* Under the lock. */
byte used;           /* slots */
byte waits[ROWS];    /* for whom a row that was evicted waits */
bool in_use[ROWS];

/* What the files have, and what was saved last of each row. */
bool saved;
byte saved_values;
bool marked[ROWS];
byte marked_version[ROWS], marked_incarnation[ROWS];

byte done;
hidden byte i;

inline find(slot) {
  slot = NONE;
  for (i : 0 .. SLOTS - 1) { if :: has_id[i] -> slot = i :: else fi }
  i = 0
}

inline leave(who) {
  for (i : 0 .. ROWS - 1) { waits[i] = waits[i] & (255 - who) }
  i = 0
}

proctype updater() {
  byte updates, slot;
  do
  :: updates == UPDATES -> break
  :: else ->
    updates++;
    d_step {
      find(slot);
      if :: slot != NONE -> held = row_of[slot] :: else fi
    };
    if
    :: held != NONE ->
      if
      :: d_step { !dead[held] -> version[held]++ };
         values[held]++
      :: d_step { dead[held] -> slot = NONE }
      fi;
      d_step { held = NONE; turn++; slot = 0; leave(UPDATER) }
    :: else
    fi
  od;
  done++
}

proctype changer() {
  byte changes, slot, row;
  do
  :: changes == CHANGES -> break
  :: else ->
    changes++;
    d_step { find(slot) };
    if
    :: slot == NONE -> /* insert */
      d_step {
        row = NONE;
        for (i : 0 .. ROWS - 1) { if :: !in_use[i] && waits[i] == 0 -> row = i :: else fi }
        if
        :: row != NONE ->
          in_use[row] = 1;
          version[row] = 0;
          dead[row] = 0;
          values[row] = 16 * (used + 1)
        :: else
        fi
      };
      if
      :: row != NONE ->
        row_of[used] = row;
        d_step { has_id[used] = 1; used++ }
      :: else /* refused */
      fi
    :: slot != NONE -> /* evict */
      row = row_of[slot];
      has_id[slot] = 0;
      d_step { dead[row] = 1; in_use[row] = 0; waits[row] = (seated -> SAVER : 0) + (held != NONE -> UPDATER : 0) }
    fi;
    d_step { slot = 0; row = 0 }
  od;
  done++
}

inline seen_at() {
  if
  :: d_step { has_id[at] -> seen[at] = row_of[at] + 1 }
  :: !has_id[at]
  fi
}

inline changed() {
  seated = 1;
  at = 0;
#ifndef ONE_PASS
  do
  :: at == SLOTS -> at = 0; break
  :: else -> seen_at(); at++
  od;
#endif
  do
  :: at == SLOTS -> break
  :: else ->
#ifdef ONE_PASS
    seen_at();
#endif
    d_step {
      row = seen[at] - 1;
      if
      :: seen[at] != 0 && !dead[row] ->
        lives[row] = 1;
        if
#ifdef NO_INCARNATION
        :: !(marked_version[row] == version[row]) ->
#else
        :: !(marked_version[row] == version[row] && marked_incarnation[row] == at) ->
#endif
          noted[at] = 1;
          before[at] = version[row]
        :: else
        fi
      :: else
      fi;
      seen[at] = 0;
      row = 0;
      at++
    }
  od;
  at = 0;
  d_step {
    for (i : 0 .. ROWS - 1) {
      if
      :: marked[i] && !lives[i] -> marked[i] = 0; marked_version[i] = NONE; gone = 1
      :: else
      fi;
      lives[i] = 0
    }
  };
  d_step { seated = 0; leave(SAVER) }
}

inline settle() {
#ifdef NOT_SETTLED
  settled = 1;
#else
  began = turn;
  if
  :: settled = 0
  :: held == NONE || turn != began; settled = 1
  fi;
  began = 0
#endif
}

inline copy() {
  seated = 1;
  if :: gone -> d_step { saved = 0; gone = 0 } :: else fi;
  at = 0;
  do
  :: at == SLOTS -> break
  :: else ->
    if
    :: noted[at] ->
      noted[at] = 0;
      d_step {
        row = row_of[at];
        find(found);
        if :: found != NONE && row_of[found] == row -> skip :: else -> row = NONE fi
      };
      if
      :: row != NONE ->
        d_step { now = version[row]; if :: dead[row] -> row = NONE :: else fi };
        if
        :: row != NONE ->
          d_step {
            saved = 1;
            saved_values = values[row];
            marked[row] = 1;
            marked_version[row] = (settled && now == before[at] -> now : DIRTY);
#ifdef NOW
            marked_incarnation[row] = found
#else
            marked_incarnation[row] = at
#endif
          }
        :: else
        fi
      :: else
      fi;
      d_step { before[at] = 0; found = 0; now = 0; row = 0 }
    :: else
    fi;
    at++
  od;
  settled = 0;
  d_step { seated = 0; leave(SAVER); at = 0 }
}

proctype saver() {
  byte saves, at, row, found, now, began;
  bool lives[ROWS], noted[SLOTS];
  byte seen[SLOTS], before[SLOTS];
  bool gone, settled;
  do
  :: saves == SAVES -> break
  :: else ->
    saves++;
    changed();
    settle();
    copy()
  od;
  done == 2; /* all is quiet */
  changed();
  settled = 1;
  copy();
  d_step {
    find(at);
    assert(saved == (at != NONE));
    assert(at == NONE || saved_values == values[row_of[at]])
  }
}

init {
  atomic {
    for (i : 0 .. ROWS - 1) { marked_version[i] = NONE }
    run updater();
    run changer();
    run saver()
  }
}

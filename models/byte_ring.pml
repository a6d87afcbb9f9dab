/*
 * A byte ring between two processes, and how the one that has nothing to do sleeps and is woken
 * (cpp/leashed/net/byte_ring.h names the same steps). docs/transport.md explains it;
 * tests/protocols/test_byte_ring_model.py runs this model.
 *
 *   sleep    store the own flag, then load the other's count: asleep where there is nothing to do
 *   wake     clear the own flag, read the bells; after a bell, or where there was something to do
 *   publish  store the own count, then load the other's flag; where it is set exchange it for 0,
 *            and ring where that has found it set. The reader looks at the flag only once half of
 *            the ring is free, as far as it has seen
 *
 * A store may be seen by its own process only, and by the other at any later moment, unless it is
 * seq_cst, which it is for the other at once. A bell is a byte in a socket and stays there until it
 * is read; reading takes all of them.
 *
 * Parameters (-D): GRAINS (of the ring), BATCH (most that is written or used at once), TOTAL (grains
 * that are sent).
 * Mutations (-D), each refuted: RELAXED_FLAG and RELAXED_COUNT (that store is not seq_cst),
 * CHECK_FIRST (sleep loads the count before it stores the flag), FLAG_FIRST (publish loads the flag
 * before it stores the count), NO_LOOK (sleep does not load the count), NEVER_HALF (the reader does
 * not look before the ring is more than free), PUBLISH_FIRST (the count is stored before the grains
 * are written), USED_FIRST (before they are read).
 */

#ifndef GRAINS
#define GRAINS 2
#endif
#ifndef BATCH
#define BATCH 2
#endif
#ifndef TOTAL
#define TOTAL 5
#endif
#ifndef NEVER_HALF
#define FREE_ENOUGH (seen - mine <= GRAINS / 2)
#else
#define FREE_ENOUGH (seen - mine < 0)
#endif

#define WRITER 0
#define READER 1
#define NONE 255
#define other (1 - me)

/* Memory. */
byte count[2]; /* tail, head */
byte sleeps[2];
byte ring[GRAINS]; /* which grain lies there, from 1 on; 0 once it has been read */
byte bells[2];     /* on their way to each */

/* What each process has stored and the other does not see yet. */
byte kept_count[2] = NONE;
byte kept_flag[2] = NONE;

hidden byte i; /* scratch inside one d_step, no part of the state */

/* The moments at which the other sees it. */
active proctype memory() {
end:
  do
  :: d_step { kept_count[0] != NONE -> count[0] = kept_count[0]; kept_count[0] = NONE }
  :: d_step { kept_count[1] != NONE -> count[1] = kept_count[1]; kept_count[1] = NONE }
  :: d_step { kept_flag[0] != NONE -> sleeps[0] = kept_flag[0]; kept_flag[0] = NONE }
  :: d_step { kept_flag[1] != NONE -> sleeps[1] = kept_flag[1]; kept_flag[1] = NONE }
  od
}

inline load() { seen = count[other] }

/* What the writer may write, the reader read. */
#define todo ((me == WRITER) -> GRAINS - (mine - seen) : seen - mine)

inline store_flag() {
#ifdef RELAXED_FLAG
  kept_flag[me] = 1
#else
  d_step { sleeps[me] = 1; kept_flag[me] = NONE }
#endif
}

inline sleep() {
#ifdef CHECK_FIRST
  load();
  store_flag();
#else
  store_flag();
#ifndef NO_LOOK
  load();
#endif
#endif
  if
  :: todo == 0 -> bells[me] > 0 /* asleep */
  :: else
  fi
}

inline wake() {
  kept_flag[me] = 0;
  bells[me] = 0
}

inline store_count() {
#ifdef RELAXED_COUNT
  kept_count[me] = mine
#else
  count[me] = mine
#endif
}

inline load_flag() { set = sleeps[other] }

inline publish() {
  mine = mine + n;
#ifdef FLAG_FIRST
  load_flag();
  store_count();
#else
  store_count();
  load_flag();
#endif
  if
  :: set && (me == WRITER || FREE_ENOUGH) ->
    d_step { /* exchange */
      set = sleeps[other];
      sleeps[other] = 0
    }
    if
    :: set -> bells[other]++
    :: else
    fi
  :: else
  fi
}

/* n grains behind those that have been. */
inline write() {
  d_step {
    for (i : 0 .. n - 1) {
      assert(ring[(at + i) % GRAINS] == 0); /* nobody reads it any more */
      ring[(at + i) % GRAINS] = at + i + 1
    }
  }
}

inline read() {
  d_step {
    for (i : 0 .. n - 1) {
      assert(ring[(at + i) % GRAINS] == at + i + 1); /* what was sent, once */
      ring[(at + i) % GRAINS] = 0
    }
  }
}

inline use() {
  if
  :: me == WRITER -> write()
  :: else -> read()
  fi
}

proctype side(byte me) {
  byte mine, seen, n, at;
  bool set;
  do
  :: mine == TOTAL -> break
  :: else ->
    load();
    if
    :: todo == 0 ->
      sleep();
      wake()
    :: else ->
      assert(todo <= GRAINS);
      n = 1;
      do /* as many as it likes */
      :: n < BATCH && n < todo && mine + n < TOTAL -> n++
      :: break
      od;
      at = mine;
#if defined(PUBLISH_FIRST)
      if
      :: me == WRITER -> publish(); write()
      :: else -> read(); publish()
      fi
#elif defined(USED_FIRST)
      if
      :: me == WRITER -> write(); publish()
      :: else -> publish(); read()
      fi
#else
      use();
      publish()
#endif
    fi;
    seen = 0;
    n = 0;
    at = 0;
    set = 0
  od
}

init {
  atomic {
    run side(WRITER);
    run side(READER)
  }
}

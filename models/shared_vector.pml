/*
 * The protocol of SharedVector (cpp/leashed/vector/shared_vector.h names the same steps), of which
 * any participant may be killed before any instruction. docs/shared_memory.md explains it;
 * tests/protocols/test_shared_vector_model.py runs this model.
 *
 * P is one word (slot, t). A seat has the identity of its participant (0: free) and one word that
 * announces the slot that is pinned. Each slot has a word for the seat that has claimed it.
 *
 *   join      reap, then CAS of a seat's identity from 0 to one's own
 *   pin       announce: store the slot in the seat's word; load P again; repeat if it has changed
 *   release   store NONE in that word
 *   claim     CAS of a slot's word from 0 to the seat, then look: if the slot is published or
 *             announced, store 0 back and try another
 *   publish   CAS of P from (old, t) to (new, t + 1), then recycle: store 0 in new's word
 *   clear     store NONE in the seat's word, 0 in those of the slots it has claimed, then 0 in its
 *             identity; of one's own seat: leave
 *   reap      CAS of a dead process's seat's identity to one's own, then clear. To call exec is to
 *             die, here; who attaches again is another process
 *
 * A d_step is one atomic instruction together with what is private to the process, and with the
 * assertions. Filling a slot is two steps: whoever dies between them leaves a half-made vector.
 *
 * Parameters (-D): SEATS, PROCESSES (the first SEATS have their seats; the others come after the
 * first kill, and give up where no seat is free), READERS (the last so many of the first only read),
 * UPDATES (gradients per writer), KILLS (the first of two is process 0's), VICTIMS (processes that
 * are killed are among the first so many), SLOTS.
 * Mutations (-D), each refuted: SLOTS=2*SEATS-1, PIN_UNCHECKED (does not load P again),
 * CLAIM_UNCHECKED (does not look again after the CAS), RECYCLE_BEFORE_PUBLISH (gives the claim up
 * before the CAS of P), CLEAR_WITHOUT_SEAT (the reaper does not take the seat over first).
 */

#ifndef SEATS
#define SEATS 2
#endif
#ifndef PROCESSES
#define PROCESSES 2
#endif
#ifndef READERS
#define READERS 0
#endif
#ifndef UPDATES
#define UPDATES 1
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef VICTIMS
#if KILLS > 1
#define VICTIMS PROCESSES
#else
#define VICTIMS 1 /* writers are all alike */
#endif
#endif
#ifndef SLOTS
#define SLOTS (2 * SEATS)
#endif

#define NONE 255
#define HALF 254 /* content of a slot that is being filled, or was when its owner died */

typedef Word {
  byte slot;
  byte t
};

Word P; /* slot 0, version 0 */
byte identity[SEATS];    /* process + 1; 0: free */
byte announced[SEATS] = NONE;
byte claimed[SLOTS];     /* seat + 1; 0: nobody's */
byte t[SLOTS] = HALF;    /* stands for all that the slot holds */

bit dead[PROCESSES];
byte pinned[PROCESSES] = NONE; /* what a process reads: private in C++, here for the assertions */

byte published; /* ghost: successful publishes */
byte kills;     /* so far */
hidden byte i;  /* scratch inside one d_step, no part of the state */
hidden byte n;

/* n = whether a seat announces slot s */
inline count_announced(s) {
  n = 0;
  for (i : 0 .. SEATS - 1) {
    if
    :: announced[i] == s -> n = 1
    :: else
    fi
  }
}

/* No other living process reads slot s, and it is not to be found. */
inline assert_unshared(s) {
  assert(P.slot != s);
  assert(claimed[s] == seat + 1);
  for (i : 0 .. PROCESSES - 1) {
    assert(i == me || dead[i] || pinned[i] != s)
  }
}

/* A slot that a claim could get, at this instant. */
inline assert_one_is_free() {
  word_slot = 0;
  for (k : 0 .. SLOTS - 1) {
    count_announced(k);
    if
    :: claimed[k] == 0 && P.slot != k && n == 0 -> word_slot++
    :: else
    fi
  }
  assert(word_slot > 0);
  word_slot = 0;
  k = 0
}

inline pin() {
  d_step { word_slot = P.slot; word_t = P.t }
  do
  :: announced[seat] = word_slot; /* announce */
    d_step {
#ifdef PIN_UNCHECKED
      k = 1;
#else
      k = (P.slot == word_slot && P.t == word_t -> 1 : 0);
#endif
      if
      :: k == 1 ->
        printf("%d  pin       slot %d, t %d\n", me, word_slot, word_t);
        pinned[me] = word_slot;
        assert(t[word_slot] == word_t) /* complete, and of that version */
      :: else ->
        word_slot = P.slot;
        word_t = P.t
      fi
    }
    if
    :: k == 1 -> k = 0; break
    :: else
    fi
  od
}

inline release() {
  d_step {
    assert(t[pinned[me]] == word_t); /* nobody touched what was pinned */
    printf("%d  release   slot %d\n", me, pinned[me]);
    pinned[me] = NONE;
    announced[seat] = NONE;
    word_slot = 0;
    word_t = 0
  }
}

inline recycle(s) {
  d_step {
    assert(claimed[s] == seat + 1);
    printf("%d  recycle   slot %d\n", me, s);
    claimed[s] = 0
  }
}

inline claim() {
  new = 0;
  do
  :: d_step { /* guesses: three loads, whose moment does not matter */
      assert_one_is_free();
      count_announced(new);
      k = (claimed[new] == 0 && P.slot != new && n == 0 -> 1 : 0)
    }
    if
    :: k == 0 -> new = (new + 1) % SLOTS
    :: else ->
      d_step { /* CAS */
        k = 0;
        if
        :: claimed[new] == 0 ->
          claimed[new] = seat + 1;
          printf("%d  claim     slot %d\n", me, new);
          k = 1
        :: else
        fi
      }
      if
      :: k == 0 -> new = (new + 1) % SLOTS
      :: else ->
#ifndef CLAIM_UNCHECKED
        d_step { k = (P.slot == new -> 0 : 1) }
        do
        :: k == 0 || k > SEATS -> break
        :: else -> d_step { k = (announced[k - 1] == new -> 0 : k + 1) }
        od;
#endif
        if
        :: k == 0 -> recycle(new); new = (new + 1) % SLOTS
        :: else -> k = 0; break
        fi
      fi
    fi
  od
}

/* new = rule(old, gradient) */
inline fill() {
  d_step {
    assert_unshared(new);
    t[new] = HALF
  }
  d_step {
    assert_unshared(new);
    t[new] = word_t + 1
  }
}

inline publish() {
#ifdef RECYCLE_BEFORE_PUBLISH
  recycle(new);
#endif
  d_step { /* CAS */
    k = 0;
    if
    :: P.slot == pinned[me] && P.t == word_t ->
      printf("%d  publish   slot %d, t %d\n", me, new, word_t + 1);
      assert(t[new] == published + 1); /* complete, no update is lost */
      P.slot = new;
      P.t = word_t + 1;
      published++;
      k = 1
    :: else -> printf("%d  publish   fails\n", me)
    fi
  }
#ifdef RECYCLE_BEFORE_PUBLISH
  if
  :: k == 0 -> claimed[new] = seat + 1
  :: else
  fi
#else
  if
  :: k == 1 -> recycle(new)
  :: else
  fi
#endif
}

inline clear(s) {
  announced[s] = NONE;
  k = 0;
  do
  :: k == SLOTS -> break
  :: else ->
    d_step {
      k++;
      if
      :: claimed[k - 1] == s + 1 ->
        claimed[k - 1] = 0;
        printf("%d  clear     slot %d\n", me, k - 1)
      :: else
      fi
    }
  od;
  k = 0;
  d_step { identity[s] = 0; printf("%d  clear     seat %d\n", me, s) }
}

inline reap() {
  s = 0;
  do
  :: s == SEATS -> break
  :: else ->
    d_step { /* load, and ask the system */
      found = identity[s];
      if
      :: found == 0 || !dead[found - 1] -> found = 0
      :: else
      fi
    }
    if
    :: found != 0 ->
      d_step { /* CAS */
        k = 0;
        if
        :: identity[s] == found ->
#ifndef CLEAR_WITHOUT_SEAT
          identity[s] = me + 1;
#endif
          printf("%d  reap      seat %d of process %d\n", me, s, found - 1);
          k = 1
        :: else
        fi
      }
      if
      :: k == 1 -> clear(s)
      :: else
      fi
    :: else
    fi;
    found = 0;
    s++
  od;
  s = 0
}

inline join() {
  reap();
  seat = 0;
  do
  :: seat == SEATS -> break
  :: else ->
    d_step { /* CAS */
      k = 0;
      if
      :: identity[seat] == 0 ->
        identity[seat] = me + 1;
        printf("%d  join      seat %d\n", me, seat);
        k = 1
      :: else
      fi
    }
    if
    :: k == 1 -> k = 0; break
    :: else -> seat++
    fi
  od
}

proctype participant(byte me; byte gradients) {
  byte seat, new, word_slot, word_t;
  byte k, s, found;
  {
    if
    :: me < SEATS -> seat = me
    :: else -> kills > 0 || KILLS == 0 -> join()
    fi;
    if
    :: seat == SEATS -> goto done
    :: else
    fi;
    pin(); /* read */
    release();
    do
    :: gradients == 0 -> break
    :: else ->
      claim();
      do
      :: pin();
        fill();
        publish();
        release();
        if
        :: k == 1 -> k = 0; break
        :: else
        fi
      od;
      gradients--
    od;
    clear(seat) /* leave */
  } unless {
    dead[me] -> printf("%d  is killed\n", me)
  }
done:
  skip
}

/* kill -9, at any time */
proctype killer() {
  byte k;
  do
  :: kills == KILLS -> break
  :: else ->
    k = 0;
    do
    :: k < VICTIMS - 1 && (KILLS == 1 || kills > 0) -> k++
    :: break
    od;
    dead[k] = 1;
    kills++
  od
}

init {
  byte me = PROCESSES, k, s, found, seat;
  atomic {
    t[0] = 0;
    for (k : 0 .. SEATS - 1) {
      identity[k] = k + 1
    }
    for (k : 0 .. PROCESSES - 1) {
      run participant(k, (k < SEATS - READERS || k >= SEATS -> UPDATES : 0))
    }
    k = 0;
    run killer()
  }
  _nr_pr == 1 ->
  /* All are gone. What is published is complete; who comes now finds nothing held by the dead. */
  reap();
  d_step {
    assert(t[P.slot] == published && P.t == published);
    for (k : 0 .. SEATS - 1) {
      assert(identity[k] == 0 && announced[k] == NONE)
    }
    for (k : 0 .. SLOTS - 1) {
      assert(claimed[k] == 0)
    }
    assert(KILLS != 0 || published == (PROCESSES - READERS) * UPDATES)
  }
}

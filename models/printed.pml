/*
 * Leashed-SGD as printed (leashed-sgd, Algorithms 1 and 3), beside models/split_count.pml, which is
 * what we ship. One step is one access to shared memory; line numbers are the paper's.
 *
 * A ParameterVector is a header (t, n_rdrs, stale_flag, deleted) and theta. Three readings of
 * "delete theta" (Algorithm 1, line 9):
 *   default            the header is leaked, one per gradient: holds
 *   -DFREE_HEADERS     the header is freed with theta, and any access to it is an error: refuted
 *   -DRECYCLE_HEADERS  the header may be accessed for ever, but `new` hands it out again: refuted
 *
 * Parameters (-D): WRITERS, UPDATES (gradients per writer), PERSISTENCE (T_p: 0, 1, ... or INF).
 */

#define INF 255
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef UPDATES
#define UPDATES 1
#endif
#ifndef PERSISTENCE
#define PERSISTENCE INF
#endif

#define HEADERS (1 + WRITERS * UPDATES) /* enough even if each is leaked */
#define NONE 255
#define GARBAGE 254

byte P; /* index of the published vector */
bool allocated[HEADERS];
bool stale_flag[HEADERS];
bool deleted[HEADERS];
short n_rdrs[HEADERS];
byte t[HEADERS] = GARBAGE; /* stands for theta too */

byte reading[WRITERS] = NONE; /* vector that latest_pointer() returned, until stop_reading() */
byte created[WRITERS] = NONE; /* new_param, until it is published */

byte published; /* ghosts: successful publishes, */
byte dropped;   /* gradients given up */
hidden byte i;  /* scratch inside one d_step, no part of the state */
hidden byte n;

#define new_param created[me]

#ifdef FREE_HEADERS
#define access(v) assert(allocated[v]) /* no use after free */
#else
#define access(v) skip
#endif

inline assert_unread(v) {
  for (i : 0 .. WRITERS - 1) {
    assert(reading[i] != v)
  }
}

inline new_ParamVector() {
  d_step {
    assert(new_param == NONE);
    for (i : 0 .. HEADERS - 1) {
      if
      :: !allocated[i] && new_param == NONE -> new_param = i
      :: else
      fi
    }
    printf("%d  new ParamVector      v%d\n", me, new_param);
    allocated[new_param] = true;
    stale_flag[new_param] = false;
    deleted[new_param] = false;
    n_rdrs[new_param] = 0
  }
}

inline delete(v) {
  d_step {
    printf("%d  delete               v%d\n", me, v);
    access(v);
    assert_unread(v);
    assert(P != v);
    assert(t[v] != GARBAGE); /* once */
    t[v] = GARBAGE;
#if defined(FREE_HEADERS) || defined(RECYCLE_HEADERS)
    allocated[v] = false
#endif
  }
}

/* Algorithm 1, lines 7-9: each operand of the conjunction is an access of its own. */
inline safe_delete(v) {
  d_step {
    printf("%d  safe_delete          v%d: stale_flag = %d\n", me, v, stale_flag[v]);
    access(v);
    safe = stale_flag[v]
  }
  if
  :: safe ->
    d_step {
      printf("%d  safe_delete          v%d: n_rdrs = %d\n", me, v, n_rdrs[v]);
      access(v);
      safe = (n_rdrs[v] == 0)
    }
  :: else
  fi;
  if
  :: safe ->
    d_step {
      printf("%d  safe_delete          v%d: CAS(deleted), was %d\n", me, v, deleted[v]);
      access(v);
      safe = !deleted[v];
      deleted[v] = true
    }
  :: else
  fi;
  if
  :: safe -> delete(v); safe = false
  :: else
  fi
}

/* Algorithm 1, line 11 */
inline start_reading(v) {
  d_step {
    printf("%d  start_reading        v%d\n", me, v);
    access(v);
    n_rdrs[v]++
  }
}

/* Algorithm 1, lines 13-14 */
inline stop_reading(v) {
  d_step {
    printf("%d  stop_reading         v%d\n", me, v);
    access(v);
    reading[me] = NONE;
    n_rdrs[v]--
  }
  safe_delete(v)
}

/* Algorithm 3, lines 4-12 */
inline latest_pointer() {
  do
  :: d_step { /* line 6 */
      latest_param = P;
      printf("%d  latest_pointer       P = v%d\n", me, P)
    }
    start_reading(latest_param); /* line 7 */
    d_step {                     /* line 8 */
      printf("%d  latest_pointer       v%d: stale_flag = %d\n", me, latest_param,
             stale_flag[latest_param]);
      access(latest_param);
      if
      :: !stale_flag[latest_param] -> reading[me] = latest_param
      :: else
      fi
    }
    if
    :: reading[me] != NONE -> break
    :: else -> stop_reading(latest_param) /* line 10 */
    fi
  od
}

/* Algorithm 3, lines 27, 28 and 30; between them the thread stops reading (line 29), as printed. */
inline update() {
  d_step {
    printf("%d  update               v%d from v%d\n", me, new_param, latest_param);
    access(latest_param);
    assert(t[latest_param] != GARBAGE);
    assert_unread(new_param);
    assert(P != new_param);
    t[new_param] = t[latest_param] + 1
  }
}

inline compare_and_swap() {
  d_step {
    succ = (P == latest_param);
    printf("%d  CAS(P, v%d, v%d)       %d\n", me, latest_param, new_param, succ);
    if
    :: succ ->
      assert(t[new_param] == published + 1); /* no update is lost */
      P = new_param;
      new_param = NONE;
      published++
    :: else
    fi
  }
}

/* Algorithm 3, lines 20-40, one gradient after the other. */
proctype thread(byte me) {
  byte gradients = UPDATES;
  byte latest_param = NONE;
  bool safe, succ;
#if PERSISTENCE != INF
  byte num_tries;
#endif
  do
  :: gradients == 0 -> break
  :: else ->
    latest_pointer(); /* comp_grad(latest_param.theta) */
    stop_reading(latest_param);
    new_ParamVector();
    do
    :: latest_pointer();
      update();
      stop_reading(latest_param);
      compare_and_swap(); /* line 31 */
      if
      :: succ ->
        d_step { /* line 33 */
          printf("%d  stale_flag = true    v%d\n", me, latest_param);
          access(latest_param);
          stale_flag[latest_param] = true
        }
        safe_delete(latest_param);
        break
#if PERSISTENCE == INF
      :: else
#else
      :: else ->
        num_tries++;
        if
        :: num_tries > PERSISTENCE -> /* line 38 */
          delete(new_param);
          new_param = NONE;
          dropped++;
          break
        :: else
        fi
#endif
      fi
    od;
    atomic {
      succ = false;
      latest_param = NONE;
#if PERSISTENCE != INF
      num_tries = 0;
#endif
      gradients--
    }
  od
}

init {
  byte k;
  atomic {
    allocated[0] = true;
    t[0] = 0;
    for (k : 0 .. WRITERS - 1) {
      run thread(k)
    }
  }
  /* All have ended: one theta is left, and every gradient is accounted for. */
  d_step {
    _nr_pr == 1 ->
    n = 0;
    for (i : 0 .. HEADERS - 1) {
      if
      :: t[i] != GARBAGE -> n++
      :: else
      fi
    }
    assert(n == 1 && t[P] == published);
    assert(published + dropped == WRITERS * UPDATES)
  }
}

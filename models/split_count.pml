/*
 * The reclamation protocol of ParameterVector (cpp/leashed/vector/parameter_vector.h names the same
 * steps). docs/reclamation.md explains it; tests/protocols/test_reclamation_model.py runs this model.
 *
 * P is one word (slot, external count). Slots are type-stable: recycled, never freed. A slot's
 * signed counter is 0 whenever nobody uses the slot.
 *
 *   pin       fetch_add(1) on P; the word names the slot, which is now held
 *   release   fetch_sub(1) on the slot's counter; whoever brings it to 0 recycles
 *   claim     take a free slot: fetch_and of the lowest set bit of a word of the free bitmap
 *   publish   with old still pinned, CAS P from (old, count) to (new, 0); repeated as it is where
 *             only the count moved
 *   transfer  fetch_add(count - 1) on old's counter: carries the count over and drops the
 *             publisher's own pin; whoever brings the counter to 0 recycles
 *   recycle   put the slot back: fetch_or of its bit
 *
 * A d_step is one atomic instruction together with what is private to the thread, and with the
 * assertions. Contents (theta, t) are not accessed atomically in C++: assert_unshared proves that nobody
 * else can reach a slot from its claim to its publication, so it does not matter that here they are.
 *
 * Parameters (-D): WRITERS, UPDATES (gradients per writer), KEEPERS (so many of the writers publish
 * without advancing t, as a synchroniser does), READERS (pure readers; each reads once, whenever it
 * likes), PERSISTENCE (T_p: 0, 1, ... or INF), SLOTS (size of the pool), WORD_BITS (slots per word of
 * the free bitmap: 64 in C++).
 * Mutations (-D), each refuted: UNPIN_BEFORE_CAS (as printed in Algorithm 3, line 29),
 * RELEASE_NEVER_RECYCLES, SLOTS=2*WRITERS+READERS-1, COMPARE_T (a publisher takes a vector of the t
 * that it has read for the one that it has read).
 */

#define INF 255
#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef UPDATES
#define UPDATES 1
#endif
#ifndef KEEPERS
#define KEEPERS 0
#endif
#ifndef READERS
#define READERS 0
#endif
#ifndef PERSISTENCE
#define PERSISTENCE INF
#endif
#define BOUND (2 * WRITERS + READERS)
#ifndef SLOTS
#define SLOTS BOUND
#endif

#ifndef WORD_BITS
#define WORD_BITS 8
#endif

#define WORDS ((SLOTS + WORD_BITS - 1) / WORD_BITS)
#define THREADS (WRITERS + READERS)
#define NONE 255
#define GARBAGE 254 /* content of a slot that is free, or claimed and not filled yet */

typedef Word {
  byte slot;
  byte count
};

Word P; /* the published word: slot 0, which nobody has pinned */
byte free_bits[WORDS]; /* bit set: slot free */
short counter[SLOTS];
byte theta[SLOTS] = GARBAGE; /* stands for all that the slot holds: how many publishes made it */
byte t[SLOTS] = GARBAGE;

/* What each thread holds: private in C++, visible here to the assertions. */
byte pinned[THREADS] = NONE;
byte claimed[THREADS] = NONE;
byte expected[THREADS] = NONE; /* the slot which the thread's next CAS expects in P */

byte published; /* ghosts: successful publishes, */
byte advanced;  /* those of them that advanced t, */
byte dropped;   /* gradients given up */
hidden byte i;  /* scratch inside one d_step, no part of the state */
hidden byte n;

#define old pinned[me]
#define new claimed[me]
#define step (me < KEEPERS -> 0 : 1) /* by which this thread's publishes advance t */
#define bit_of(s) (1 << ((s) % WORD_BITS))
#define is_free(s) (free_bits[(s) / WORD_BITS] & bit_of(s))

/* n = number of free slots */
inline count_free() {
  n = 0;
  for (i : 0 .. SLOTS - 1) {
    if
    :: is_free(i) -> n++
    :: else
    fi
  }
}

/* Nobody but this thread can reach slot s. */
inline assert_unshared(s) {
  assert(P.slot != s);
  for (i : 0 .. THREADS - 1) {
    assert(i == me || pinned[i] != s);
    assert(i == me || claimed[i] != s)
  }
}

inline pin() {
  d_step {
    P.count++;
    old = P.slot;
    seen = theta[old];
    printf("%d  pin       slot %d, count %d\n", me, old, P.count);
    assert(seen == published && t[old] == advanced) /* the newest vector, complete */
  }
}

inline release() {
  d_step {
    assert(theta[old] == seen); /* nobody touched what was pinned */
    counter[old]--;
    printf("%d  release   slot %d, counter %d\n", me, old, counter[old]);
    if
    :: counter[old] == 0 -> unused = old
    :: else
    fi;
    old = NONE;
    seen = 0
  }
#ifdef RELEASE_NEVER_RECYCLES
  unused = NONE
#else
  recycle_unused()
#endif
}

/* Word after word, until a bit is won. */
inline claim() {
  do
  :: d_step { /* load */
      new == NONE && bits == 0 ->
      count_free();
      printf("%d  claim     loads word %d\n", me, word);
      assert(n > 0); /* at every instant of a claim there is a free slot */
      bits = free_bits[word];
      if
      :: bits == 0 -> word = (word + 1) % WORDS
      :: else
      fi
    }
  :: d_step { /* fetch_and */
      new == NONE && bits != 0 ->
      i = bits & -bits;
      bits = free_bits[word];
      free_bits[word] = free_bits[word] & ~i;
      if
      :: bits & i -> /* won */
        new = word * WORD_BITS;
        do
        :: i == 1 -> break
        :: else -> i = i >> 1; new++
        od;
        printf("%d  claim     slot %d\n", me, new);
        assert_unshared(new);
        assert(counter[new] == 0);
        count_free();
        assert(SLOTS - n <= BOUND);
        bits = 0;
        word = 0
      :: !(bits & i) && bits == 0 -> word = (word + 1) % WORDS
      :: else
      fi
    }
  :: new != NONE -> break
  od
}

/* new = rule(old, gradient), new.t = old.t + 1; or = transform(old), new.t = old.t */
inline fill() {
  d_step {
    assert_unshared(new);
    theta[new] = theta[old] + 1;
    t[new] = t[old] + step;
    printf("%d  fill      slot %d, t %d, from slot %d\n", me, new, t[new], old);
    expected[me] = old;
#if PERSISTENCE != INF
    if
    :: entered == NONE -> entered = seen
    :: else
    fi
#endif
  }
}

/* Load P, then CAS until it succeeds or P names another slot. */
inline publish() {
  d_step {
    count = P.count;
    printf("%d  publish   loads slot %d, count %d\n", me, P.slot, P.count);
    if
    :: P.slot != expected[me] -> expected[me] = NONE
    :: else
    fi
#ifdef COMPARE_T
    if
    :: expected[me] == NONE && t[P.slot] + step == t[new] -> expected[me] = P.slot
    :: else
    fi
#endif
  }
  do
  :: expected[me] == NONE -> break
  :: d_step { /* the CAS succeeds */
      P.slot == expected[me] && P.count == count ->
      printf("%d  publish   slot %d over slot %d, count %d\n", me, new, P.slot, count);
      assert(theta[new] == published + 1 && t[new] == advanced + step); /* no update is lost */
      for (i : 0 .. THREADS - 1) {
        assert(i == me || expected[i] != new) /* no ABA */
      }
#if PERSISTENCE != INF
      assert(published - entered >= tries); /* a try fails only because another publishes */
      assert(PERSISTENCE != 0 || published == entered); /* tau^s = 0 */
      entered = NONE;
#endif
      replaced = P.slot;
      P.slot = new;
      P.count = 0;
      published++;
      advanced = advanced + step;
      expected[me] = NONE;
      new = NONE
    }
  :: d_step { /* only the count moved: repeated, no failed try */
      P.slot == expected[me] && P.count != count ->
      printf("%d  publish   again: count %d, not %d\n", me, P.count, count);
      count = P.count
    }
  :: d_step { /* another publish came first */
      expected[me] != NONE && P.slot != expected[me] ->
      printf("%d  publish   fails: slot %d, not %d\n", me, P.slot, expected[me]);
      expected[me] = NONE;
      count = 0
    }
  od
}

inline transfer() {
  d_step {
#ifdef UNPIN_BEFORE_CAS
    counter[replaced] = counter[replaced] + count;
#else
    counter[replaced] = counter[replaced] + count - 1;
#endif
    printf("%d  transfer  slot %d, counter %d\n", me, replaced, counter[replaced]);
    if
    :: counter[replaced] == 0 -> unused = replaced
    :: else
    fi;
    replaced = NONE;
    count = 0;
    old = NONE;
    seen = 0
  }
  recycle_unused()
}

inline recycle(s) {
  d_step {
    printf("%d  recycle   slot %d\n", me, s);
    assert_unshared(s);
    assert(!is_free(s)); /* once per use */
    assert(counter[s] == 0);
    theta[s] = GARBAGE;
    t[s] = GARBAGE;
    free_bits[s / WORD_BITS] = free_bits[s / WORD_BITS] | bit_of(s);
    s = NONE
  }
}

inline recycle_unused() {
  if
  :: unused != NONE -> recycle(unused)
  :: else
  fi
}

/* Algorithm 3, one gradient after the other. */
proctype writer(byte me) {
  byte gradients = UPDATES; /* still to come */
  byte seen;                /* what the pinned slot held */
  byte bits, word;          /* claim: what is left of the bitmap's word */
  byte count;               /* external count that the CAS expects */
  byte replaced = NONE;     /* slot that the CAS took out of P */
  byte unused = NONE;       /* slot whose counter this thread brought to 0 */
#if PERSISTENCE != INF
  byte tries;
  byte entered = NONE; /* publishes at the entry to the LAU-SPC loop */
#endif
  do
  :: gradients == 0 -> break
  :: else ->
    pin(); /* compute the gradient at old */
    release();
    claim();
    do
    :: pin();
      fill();
#ifdef UNPIN_BEFORE_CAS
      release();
#endif
      publish();
      if
      :: replaced != NONE -> transfer(); break
      :: else
      fi;
#ifndef UNPIN_BEFORE_CAS
      release();
#endif
#if PERSISTENCE != INF
      tries++;
      if
      :: tries > PERSISTENCE ->
        recycle(new); /* it was never published */
        dropped++;
        entered = NONE;
        break
      :: else
      fi
#endif
    od;
#if PERSISTENCE != INF
    tries = 0;
#endif
    gradients--
  od
}

/* The monitor, a Python view, a checkpoint: may come at any time, also after the last publish. */
proctype reader(byte me) {
  byte seen;
  byte unused = NONE;
  pin(); /* read */
  release()
}

init {
  byte k;
  atomic {
    theta[0] = 0;
    t[0] = 0;
    for (k : 1 .. SLOTS - 1) {
      free_bits[k / WORD_BITS] = free_bits[k / WORD_BITS] | bit_of(k)
    }
    for (k : 0 .. WRITERS - 1) {
      run writer(k)
    }
    for (k : WRITERS .. THREADS - 1) {
      run reader(k)
    }
  }
  /* All have ended: one slot is in use, nothing leaked, every gradient is accounted for. */
  d_step {
    _nr_pr == 1 ->
    count_free();
    assert(n == SLOTS - 1 && !is_free(P.slot));
    assert(counter[P.slot] + P.count == 0);
    assert(theta[P.slot] == published && t[P.slot] == advanced);
    assert(KEEPERS != 0 || advanced == published);
    assert(published + dropped == WRITERS * UPDATES);
    assert(PERSISTENCE != INF || dropped == 0)
  }
}

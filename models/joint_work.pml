/*
 * How the workers of a mode of training do an aggregate's work, or an update's, together
 * (cpp/leashed/base/joint_work.h names the same steps, server/parameter_server.h says what is cut
 * into parts). docs/modes.md explains it; tests/protocols/test_joint_work_model.py runs this model.
 *
 *   open    write what is to be done and how many parts are not done, then the word: a number of
 *           the work and how many parts are left to begin
 *   begin   compare-and-swap of the word to one part less; who has it reads what is to be done, and
 *           does that part of it
 *   end     count the parts that are not done down; the last wakes who has opened
 *   wait    who has opened, once no part is left to begin: load the count; where it is not 0,
 *           sleep, unless the kernel finds another count by now
 *
 * One thread opens one work after the other, by turns of PARTS parts and of one less, and takes
 * part; the others come HELPS times each, at any moment, also too late. A d_step is one atomic
 * instruction together with what is private to the thread, and with the assertions.
 *
 * Parameters (-D): HELPERS, HELPS, WORKS, PARTS.
 * Mutations (-D), each refuted: WORD_FIRST (the word is written before what is to be done),
 * COUNT_LATE (the count after the word), LOAD_AND_STORE (begin does not compare when it writes),
 * END_FIRST (a part is counted as done before it is), NO_WAIT (who has opened goes on when no part
 * is left to begin), NO_LOOK (the kernel does not look again), WAKE_FIRST (the last wakes before it
 * counts), NEVER_WAKE (it does not), READ_BEFORE (what is to be done is read before the word).
 * READ_BETWEEN (it is read before the swap) is refuted with NO_NUMBER alone (the word has none):
 * each of the two does no harm without the other.
 */

#ifndef HELPERS
#define HELPERS 2
#endif
#ifndef HELPS
#define HELPS 2
#endif
#ifndef WORKS
#define WORKS 2
#endif
#ifndef PARTS
#define PARTS 3
#endif

#ifdef NO_NUMBER
#define number_of(k) 0
#else
#define number_of(k) (k)
#endif
#define parts_of(k) (PARTS - ((k) + 1) % 2)

byte number, left; /* the word */
byte work;         /* what is to be done, no atomic in C++ */
byte undone;
bit asleep; /* who has opened, on undone */

byte opened;      /* ghosts: the work that the word is of, */
byte inside;      /* who have begun a part and not ended it, */
byte done[PARTS]; /* how often each part was done */
hidden byte j;    /* scratch inside one d_step, no part of the state */

inline write_work(k) {
  d_step {
    assert(inside == 0); /* nobody reads it */
    work = k;
    for (j : 0 .. PARTS - 1) {
      done[j] = 0
    }
  }
}

inline write_word(k) {
  d_step {
    number = number_of(k);
    left = parts_of(k);
    opened = k
  }
}

inline open(k) {
#ifdef WORD_FIRST
  undone = parts_of(k);
  write_word(k);
  write_work(k)
#else
  write_work(k);
#ifdef COUNT_LATE
  write_word(k);
  undone = parts_of(k)
#else
  undone = parts_of(k);
  write_word(k)
#endif
#endif
}

inline begin() {
#ifdef LOAD_AND_STORE
  won = (number == n && left == l);
  if
  :: won ->
     d_step {
       left = l - 1;
       inside++
     }
  :: else ->
     d_step {
       n = number;
       l = left
     }
  fi
#else
  d_step {
    won = (number == n && left == l);
    if
    :: won ->
       left = l - 1;
       inside++
    :: else ->
       n = number;
       l = left
    fi
  }
#endif
}

inline do_part() {
  d_step {
    assert(what == opened);
    done[l - 1]++;
    assert(done[l - 1] == 1)
  }
}

inline end() {
#ifdef WAKE_FIRST
  if
  :: undone == 1 -> asleep = 0
  :: else
  fi;
#endif
  d_step {
    assert(undone > 0);
    undone--;
    inside--;
    last = (undone == 0)
  }
#ifndef WAKE_FIRST
#ifndef NEVER_WAKE
  if
  :: last -> asleep = 0
  :: else
  fi;
#endif
#endif
  last = 0
}

inline help() {
#ifdef READ_BEFORE
  what = work;
#endif
  d_step {
    n = number;
    l = left
  }
  do
  :: l == 0 -> break
  :: else ->
#ifdef READ_BETWEEN
     what = work;
#endif
     begin();
     if
     :: won ->
#ifndef READ_BEFORE
#ifndef READ_BETWEEN
        what = work;
#endif
#endif
#ifdef END_FIRST
        end();
        do_part();
#else
        do_part();
        end();
#endif
#ifdef READ_BEFORE
        what = work;
#endif
        d_step {
          n = number;
          l = left
        }
     :: else
     fi
  od;
  atomic {
    n = 0;
    what = 0;
    won = 0
  }
}

inline wait() {
#ifndef NO_WAIT
  do
  :: undone == 0 -> break
  :: undone != 0 ->
     seen = undone;
     if
     :: seen == 0
     :: else ->
#ifdef NO_LOOK
        asleep = 1;
#else
        d_step { asleep = (undone == seen) };
#endif
        asleep == 0
     fi;
     seen = 0
  od
#else
  skip
#endif
}

proctype opener() {
  byte n, l, what, seen, k = 1;
  bit won, last;
  do
  :: k > WORKS -> break
  :: else ->
     open(k);
     help();
     wait();
     atomic {
       for (j : 0 .. parts_of(k) - 1) {
         assert(done[j] == 1)
       }
     }
     k++
  od
}

proctype helper() {
  byte n, l, what, helps;
  bit won, last;
  do
  :: helps == HELPS -> break
  :: else ->
     help();
     helps++
  od
}

init {
  byte h;
  atomic {
    do
    :: h == HELPERS -> break
    :: else -> run helper(); h++
    od;
    run opener()
  }
}

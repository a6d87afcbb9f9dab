/*
 * How a worker of a mode of training waits for what is granted to it (cpp/leashed/base/flags.h
 * names the same steps, modes/policy_threads.h says who takes them). docs/modes.md explains it;
 * tests/protocols/test_flags_model.py runs this model.
 *
 *   ask     under the lock: here the last of a round to ask grants to all, as the barrier does; a
 *           grant is written before its flag is raised
 *   raise   set the flag, then wake who sleeps on the word
 *   wait    load the word; where it is 0, sleep, unless the kernel finds that it is not 0 by now
 *   lower   clear the flag, before one asks again
 *   help    who grants asks the others to help before, by a flag of its own; who sees that one alone
 *           clears it, helps and goes on waiting
 *
 * Somebody may stop the run at any moment, without the lock.
 *
 * Parameters (-D): WORKERS, ROUNDS.
 * Mutations (-D), each refuted: ASK_FIRST (a worker lowers the flag after it has asked), NO_LOOK
 * (the kernel does not look again), WAKE_FIRST (raise wakes before it sets the flag), RAISE_FIRST
 * (the grant is written after its flag is raised), STOP_QUIETLY (who stops the run raises nothing),
 * LOWER_ALL (who helps clears all flags, rather than the one that it has seen).
 */

#ifndef WORKERS
#define WORKERS 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif

#define GRANTED 1
#define ENDED 2
#define STOPPED 4
#define ASKED 8

byte word[WORKERS];    /* the flags */
bit asleep[WORKERS];   /* on the word */
byte granted[WORKERS]; /* which round */
byte asked;            /* in this round */
byte round;
bit locked, stopped;

inline raise(w, flag) {
#ifdef WAKE_FIRST
  asleep[w] = 0;
  word[w] = word[w] | flag
#else
  word[w] = word[w] | flag;
  asleep[w] = 0
#endif
}

inline grant(w) {
#ifdef RAISE_FIRST
  raise(w, GRANTED);
  granted[w] = round
#else
  granted[w] = round;
  raise(w, GRANTED)
#endif
}

inline ask() {
  atomic { !locked -> locked = 1 };
  if
  :: stopped
  :: else ->
     asked++;
     if
     :: asked == WORKERS ->
        asked = 0;
        other = 0;
        do
        :: other == WORKERS -> break
        :: other == me -> other++
        :: other < WORKERS && other != me -> raise(other, ASKED); other++
        od;
        round++;
        other = 0;
        do
        :: other == WORKERS -> break
        :: other < WORKERS && round <= ROUNDS -> grant(other); other++
        :: other < WORKERS && round > ROUNDS -> raise(other, ENDED); other++
        od
     :: else
     fi
  fi;
  locked = 0
}

inline wait() {
  do
  :: word[me] != 0 && word[me] != ASKED -> break
  :: word[me] == ASKED -> /* as it was when it was loaded */
#ifdef LOWER_ALL
     word[me] = 0
#else
     word[me] = word[me] & (GRANTED | ENDED | STOPPED)
#endif
  :: word[me] == 0 -> /* as it was when it was loaded */
#ifdef NO_LOOK
     asleep[me] = 1;
#else
     d_step { asleep[me] = (word[me] == 0) };
#endif
     asleep[me] == 0
  od
}

inline lower() { word[me] = word[me] & (ENDED | STOPPED) }

proctype worker(byte me) {
  byte other, seen;
  do
  ::
#ifdef ASK_FIRST
     ask();
     lower();
#else
     lower();
     ask();
#endif
     wait();
     if
     :: word[me] & (ENDED | STOPPED) -> break
     :: else ->
        seen++;
        assert(granted[me] == seen)
     fi
  od
}

proctype stopper() {
  byte other;
  if
  :: true
  :: stopped = 1;
#ifndef STOP_QUIETLY
     do
     :: other == WORKERS -> break
     :: else -> raise(other, STOPPED); other++
     od
#endif
  fi
}

init {
  byte w;
  atomic {
    do
    :: w == WORKERS -> break
    :: else -> run worker(w); w++
    od;
    run stopper()
  }
}

/*
 * A leader and the servers that follow it: each has a part of the parameters, and of every push. What
 * the leader hears is its log, which they carry out in its order, so that they decide as it does.
 *
 *   log      grant (to a life of a worker), push (of a ticket), leave (of lives). The leader's machine
 *            is a function of it: tickets are numbered in its order, the first batch that is free is
 *            granted
 *   journal  what is in the log is written down before a worker or a follower hears of it
 *   push     to the leader and to each follower, in any order. (Gradients of tables' rows are in the
 *            parts, and rows are read under a grant.) A follower carries out the log's push when its
 *            part is there; where it will not come, as one that is missing, and counts it
 *   leave    names lives. A part of such a life that is not there is not waited for, however far
 *            behind the push it stands in the log; one that comes later is refused
 *   cut      what is on its way is lost. A follower tells the leader its position, and is told what is
 *            behind it. A worker tells a follower which ticket is the first whose part may yet come
 *   save     a follower's parameters, its position and who has left, of one moment
 *   killed   a follower goes on from what it has saved, and parts that it had are gone. The leader goes
 *            on from its journal: whoever it knew has left, and comes back as another life
 *
 * A worker dies at any moment, between two parts too; or it is taken for dead, and goes on with its
 * followers until it notices. It computes once all followers have carried out its grant. (The leader's
 * own part of the parameters is as a follower's that is killed with it.)
 *
 * Parameters (-D): W workers, 2 at most, F followers, 2 at most, Q batches, GONES (of workers), KILLS
 * (of followers), RESTARTS (of the leader), CUTS (of a connection of a follower, to the leader or to a
 * worker), SAVES.
 * Mutations (-D), each refuted: JOURNAL_AFTER_SEND (followers are told before it is written),
 * JOURNAL_AFTER_GRANT (workers are), NO_POSITION (the leader goes on behind what it has sent),
 * POSITION_FIRST and POSITION_LATER (the position is saved before the parameters, or after them, while
 * the log goes on), GONE_BY_LEASE (who has no lease leaves without a word), IN_ORDER (a leave counts
 * once the log has got there), BY_NODE (parts are known by their worker; for one worker), NO_HELLO (a
 * worker does not tell which parts may yet come), FORGET_GONE (who has left is not saved), KEEP_LEASES
 * (who had a lease when the leader was killed has not left).
 */
#ifndef W
#define W 1
#endif
#ifndef F
#define F 1
#endif
#ifndef Q
#define Q 2
#endif
#ifndef GONES
#define GONES 0
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif
#ifndef CUTS
#define CUTS 0
#endif
#ifndef SAVES
#define SAVES KILLS
#endif
#define T (Q + GONES + W * RESTARTS + 1) /* tickets, from 1; 8 at most */
#define LIVES (W + GONES + W * RESTARTS) /* 8 at most */
#define LOG (2 * Q + 2 * GONES + (W + 1) * RESTARTS + 1)
#define bit(x) (1 << (x))

mtype = { GRANT, PULL, PUSH, LEAVE, PART, HELLO };

/* The log: of a grant its life, of a push its ticket, of a leave lives. */
mtype kind[LOG];
byte arg[LOG], lines, journalled;
/* What the machine knows by it. */
byte tickets, owner[T], batch_of[T], out, pushed, left; /* tickets, tickets, lives */
byte busy, done;                                        /* batches: out or pushed, pushed */

chan to_L[W] = [2] of { mtype, byte };         /* ticket */
chan to_w[W] = [1] of { byte, byte };          /* ticket, position */
chan told[F] = [LOG] of { mtype, byte };
chan parts[F * W] = [2] of { mtype, byte, byte }; /* life, ticket */

byte life[W], next_life;
bool alive[W], closed[W] = true, /* by the leader; alive: it has not noticed */ cut[F * W], over;
byte gones, kills, restarts, cuts, saves;

/* Of followers. */
byte pos[F], applied[F], missing[F], gone[F];
byte held[F * T];      /* by ticket: lives that have sent it */
byte first[F * LIVES]; /* tickets of that life before this one do not come any more */
byte saved_pos[F], saved_applied[F], saved_missing[F], saved_gone[F];
bool half[F];
byte sent[F]; /* by the leader */
byte now[F];  /* the ticket of the push that it waits for */
mtype acted_kind[LOG]; /* what whoever came first has carried out */
byte acted_arg[LOG];
#define sent_by(f, t) held[(f) * T + (t)]
hidden byte k, b;

/* In a d_step: what one more line of the log makes of the machine. */
inline machine(what, x) {
  if
  :: what == GRANT ->
    b = 0;
    k = 1;
    do
    :: k <= tickets -> b = (((out | pushed) & bit(k)) != 0 -> b | bit(batch_of[k]) : b); k++
    :: else -> break
    od;
    tickets++;
    assert(tickets < T);
    k = 0;
    do
    :: (b & bit(k)) != 0 -> k++
    :: else -> break
    od;
    assert(k < Q);
    batch_of[tickets] = k;
    owner[tickets] = x;
    out = out | bit(tickets);
    busy++
  :: what == PUSH ->
    out = out & ~bit(x);
    pushed = pushed | bit(x);
    done++
  :: what == LEAVE ->
    left = left | x;
    k = 1;
    do
    :: k <= tickets && (out & bit(k)) != 0 && (x & bit(owner[k])) != 0 ->
      out = out & ~bit(k); busy--; k++
    :: k <= tickets && !((out & bit(k)) != 0 && (x & bit(owner[k])) != 0) -> k++
    :: else -> break
    od
  fi;
  k = 0; b = 0
}

inline write(what, x) {
  assert(lines < LOG);
  kind[lines] = what;
  arg[lines] = x;
  lines++;
  machine(what, x)
}

inline clear_two(c) {
  do
  :: nempty(c) -> c?_, _
  :: empty(c) -> break
  od
}

inline clear_three(c) {
  do
  :: nempty(c) -> c?_, _, _
  :: empty(c) -> break
  od
}

#ifdef JOURNAL_AFTER_GRANT
#define may_grant(w) true
#else
#define may_grant(w) (journalled > at[w])
#endif
#ifdef JOURNAL_AFTER_SEND
#define may_tell lines
#else
#define may_tell journalled
#endif

inline known(lives) { /* to b, of lives those that have been granted something; in a d_step */
  b = 0;
  k = 1;
  do
  :: k <= tickets -> b = b | (lives & bit(owner[k])); k++
  :: else -> break
  od;
  k = 0
}

inline grant_who_waits() {
  i = 0;
  do
  :: i < W ->
    if
    :: (waits & bit(i)) != 0 && busy < Q ->
      waits = waits & ~bit(i);
      at[i] = lines;
      write(GRANT, life[i]);
      owed[i] = tickets
    :: else
    fi;
    i++
  :: else -> break
  od;
  i = 0
}

inline hear(w) {
  if
  :: to_L[w]?PULL, _ -> present = present | bit(w); waits = waits | bit(w)
  :: to_L[w]?PUSH, x ->
    if
    :: (out & bit(x)) != 0 && owner[x] == life[w] -> write(PUSH, x)
    :: else /* late */
    fi
  :: (present & bit(w)) != 0 && (!alive[w] || gones < GONES) ->
    if
    :: alive[w] -> gones++
    :: else
    fi;
    closed[w] = true;
    present = present & ~bit(w);
    waits = waits & ~bit(w);
    clear_two(to_L[w]);
    owed[w] = 0;
    d_step {
      known(bit(life[w]));
#ifdef GONE_BY_LEASE
      x = b;
      b = 0;
      k = 1;
      do
      :: k <= tickets -> b = b | (x & ((out & bit(k)) != 0 -> bit(owner[k]) : 0)); k++
      :: else -> break
      od;
      k = 0;
#endif
      x = b; b = 0
    }
    if
    :: x != 0 -> write(LEAVE, x)
    :: else
    fi
  fi;
  x = 0;
  grant_who_waits()
}

#define hears(w) (nempty(to_L[w]) || ((present & bit(w)) != 0 && (!alive[w] || gones < GONES)))

inline subscribe(f) { /* to what is behind its position */
  clear_two(told[f]);
  now[f] = 0;
#ifndef NO_POSITION
  sent[f] = pos[f]
#endif
}

inline restart() {
  d_step {
    lines = journalled;
    tickets = 0; out = 0; pushed = 0; left = 0; busy = 0; done = 0;
    i = 0;
    do
    :: i < T -> owner[i] = 0; batch_of[i] = 0; i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < lines -> machine(kind[i], arg[i]); i++
    :: i >= lines && i < LOG -> kind[i] = 0; arg[i] = 0; i++
    :: else -> break
    od;
    present = 0; waits = 0;
    known(255 & ~left);
    x = b; b = 0;
    i = 0
  }
  do
  :: i < W -> clear_two(to_L[i]); closed[i] = true; owed[i] = 0; at[i] = 0; i++
  :: else -> break
  od;
  i = 0;
  do
  :: i < F -> clear_two(told[i]); now[i] = 0; sent[i] = pos[i]; i++
  :: else -> break
  od;
  i = 0;
#ifndef KEEP_LEASES
  if
  :: x != 0 -> write(LEAVE, x)
  :: else
  fi;
#endif
  x = 0
}

#define carried_out(f) (pos[f] == journalled)

inline tell(f) {
  told[f]!kind[sent[f]], arg[sent[f]];
#ifndef IN_ORDER
  gone[f] = (kind[sent[f]] == LEAVE -> gone[f] | arg[sent[f]] : gone[f]);
#endif
  sent[f]++
}

active proctype leader() {
  byte i, x, present, waits, owed[W], at[W];
  do
  :: atomic { !over && hears(0) -> hear(0) }
#if W > 1
  :: atomic { !over && hears(1) -> hear(1) }
#endif
  :: atomic { journalled < lines -> journalled = lines }
  :: atomic { !over && owed[0] != 0 && may_grant(0) -> to_w[0]!owed[0], at[0]; owed[0] = 0; at[0] = 0 }
#if W > 1
  :: atomic { !over && owed[1] != 0 && may_grant(1) -> to_w[1]!owed[1], at[1]; owed[1] = 0; at[1] = 0 }
#endif
  :: atomic { !over && sent[0] < may_tell -> tell(0) }
#if F > 1
  :: atomic { !over && sent[1] < may_tell -> tell(1) }
#endif
  :: atomic { !over && restarts < RESTARTS -> restarts++; restart() }
  :: atomic {
      !over && done == Q && journalled == lines && carried_out(0) && carried_out(F - 1) ->
      over = true;
      d_step {
        do
        :: i < F ->
          /* of each push, once, a part, or that it is missing; nothing is kept; and missing is what
             has been lost on its way, or is of who has left */
          assert((applied[i] | missing[i]) == pushed && (applied[i] & missing[i]) == 0);
          k = 0;
          do
          :: k < T ->
            assert(sent_by(i, k) == 0);
            assert((missing[i] & bit(k)) == 0 || (left & bit(owner[k])) != 0 || kills + cuts != 0);
            k++
          :: else -> break
          od;
          k = 0;
          i++
        :: else -> break
        od;
        i = 0
      }
      break
    }
  od
}

#define part(f, w) parts[(f) * W + (w)]
#ifdef BY_NODE
#define has_part(f, t) ((sent_by(f, 1) | sent_by(f, 2) | sent_by(f, 3)) != 0)
#else
#define has_part(f, t) ((sent_by(f, t) & bit(owner[t])) != 0)
#endif
#define lost(f, t) ((gone[f] & bit(owner[t])) != 0 || first[(f) * LIVES + owner[t]] > t)

inline take_part(w) {
  if
  :: part(me, w)?PART, l, x ->
    if
#ifdef BY_NODE
    :: true ->
#else
    :: (gone[me] & bit(l)) == 0 ->
#endif
      sent_by(me, x) = sent_by(me, x) | bit(l)
#ifndef BY_NODE
    :: else /* late */
#endif
    fi
  :: part(me, w)?HELLO, l, x -> first[me * LIVES + l] = x
  fi;
  l = 0; x = 0
}

inline act(what, x) { /* whoever gets to this position carries out the same */
  assert(acted_kind[pos[me]] == 0 || (acted_kind[pos[me]] == what && acted_arg[pos[me]] == x));
  acted_kind[pos[me]] = what;
  acted_arg[pos[me]] = x;
  pos[me]++
}

inline apply_part(t) {
#ifdef BY_NODE
  l = 1;
  do
  :: sent_by(me, l) == 0 -> l++
  :: else -> break
  od;
#else
  l = t;
#endif
  assert(l == t && (sent_by(me, l) & bit(owner[t])) != 0); /* of that push */
  sent_by(me, l) = sent_by(me, l) & ~bit(owner[t]);
  l = 1;
  do
  :: l < T ->
    assert((applied[me] & bit(l)) == 0 || batch_of[l] != batch_of[t]); /* nothing twice */
    l++
  :: else -> break
  od;
  applied[me] = applied[me] | bit(t);
  l = 0
}

inline reconnect(w) {
  clear_three(part(me, w));
  cut[me * W + w] = alive[w]
}

proctype follower(byte me) {
  byte l, x;
  do
  :: atomic { over -> break }
  :: atomic { !over && nempty(part(me, 0)) -> take_part(0) }
#if W > 1
  :: atomic { !over && nempty(part(me, 1)) -> take_part(1) }
#endif
  :: atomic { !over && now[me] == 0 && told[me]?[GRANT, _] -> told[me]?GRANT, x; act(GRANT, x); x = 0 }
  :: atomic { !over && now[me] == 0 && told[me]?[PUSH, _] -> told[me]?PUSH, now[me] }
  :: atomic {
      !over && now[me] == 0 && told[me]?[LEAVE, _] ->
      told[me]?LEAVE, x;
      d_step {
        act(LEAVE, x);
        gone[me] = gone[me] | x;
        l = 1;
        do
        :: l < T -> sent_by(me, l) = sent_by(me, l) & ~x; l++
        :: else -> break
        od;
        l = 0; x = 0
      }
    }
  :: atomic {
      !over && now[me] != 0 && (has_part(me, now[me]) || lost(me, now[me])) ->
      d_step {
        x = now[me];
        now[me] = 0;
        act(PUSH, x);
        if
        :: has_part(me, x) -> apply_part(x)
        :: else -> missing[me] = missing[me] | bit(x)
        fi;
        x = 0
      }
    }
  :: d_step {
      !over && saves < SAVES && !half[me] ->
      saves++;
#ifndef POSITION_LATER
      saved_pos[me] = pos[me];
#endif
#ifndef POSITION_FIRST
      saved_applied[me] = applied[me]; saved_missing[me] = missing[me];
#endif
#ifndef FORGET_GONE
      saved_gone[me] = gone[me];
#endif
#ifdef POSITION_FIRST
      half[me] = true
#endif
#ifdef POSITION_LATER
      half[me] = true
#endif
    }
#ifdef POSITION_FIRST
  :: d_step { half[me] -> saved_applied[me] = applied[me]; saved_missing[me] = missing[me]; half[me] = false }
#endif
#ifdef POSITION_LATER
  :: d_step { half[me] -> saved_pos[me] = pos[me]; half[me] = false }
#endif
  :: atomic {
      !over && kills < KILLS && !half[me] ->
      kills++;
      pos[me] = saved_pos[me];
      applied[me] = saved_applied[me];
      missing[me] = saved_missing[me];
      gone[me] = saved_gone[me];
      l = 0;
      do
      :: l < T -> sent_by(me, l) = 0; l++
      :: else -> break
      od;
      l = 0;
      do
      :: l < LIVES -> first[me * LIVES + l] = 0; l++
      :: else -> break
      od;
      l = 0;
      do
      :: l < W -> reconnect(l); l++
      :: else -> break
      od;
      l = 0;
      subscribe(me)
    }
  :: atomic { !over && cuts < CUTS -> cuts++; subscribe(me) }
  :: atomic { !over && cuts < CUTS -> cuts++; reconnect(0) }
  od
}

#define goes_on(w) (!over && alive[w])
#define there(w) (goes_on(w) && !closed[w])
#define got_to(f, p) (pos[f] > (p))

inline send_part(f) {
  part(f, me)!PART, life[me], t;
  todo = todo & ~bit(f)
}

#define first_to_come(f) (t == 0 -> last + 1 : (!computed || (todo & bit(f)) != 0 -> t : t + 1))

inline say_hello(f) {
#ifndef NO_HELLO
  part(f, me)!HELLO, life[me], first_to_come(f);
#endif
  cut[f * W + me] = false
}

proctype worker(byte me) {
  byte t, at, todo, last;
  bool computed;
  do
  :: atomic { over -> break }
  :: atomic { /* another life */
      !over && closed[me] ->
      clear_two(to_w[me]);
      clear_two(to_L[me]);
      closed[me] = false;
      d_step {
        t = 0; at = 0; todo = 0; last = 0; computed = false;
        cut[me] = false;
#if F > 1
        cut[W + me] = false;
#endif
        life[me] = next_life;
        next_life++;
        alive[me] = true
      }
      to_L[me]!PULL, 0
    }
  :: atomic { there(me) && gones < GONES -> gones++; alive[me] = false }
  :: atomic { goes_on(me) && nempty(to_w[me]) -> to_w[me]?t, at }
  :: atomic {
      goes_on(me) && t != 0 && !computed && got_to(0, at) && got_to(F - 1, at) ->
      computed = true;
      at = 0;
      todo = bit(F + 1) - 1
    }
  :: atomic { goes_on(me) && cut[me] && nfull(part(0, me)) -> say_hello(0) }
  :: atomic { goes_on(me) && (todo & bit(0)) != 0 && !cut[me] && nfull(part(0, me)) -> send_part(0) }
#if F > 1
  :: atomic { goes_on(me) && cut[W + me] && nfull(part(1, me)) -> say_hello(1) }
  :: atomic { goes_on(me) && (todo & bit(1)) != 0 && !cut[W + me] && nfull(part(1, me)) -> send_part(1) }
#endif
  :: atomic {
      there(me) && (todo & bit(F)) != 0 && nfull(to_L[me]) ->
      to_L[me]!PUSH, t;
      todo = todo & ~bit(F)
    }
  :: atomic {
      there(me) && computed && todo == 0 && nfull(to_L[me]) ->
      to_L[me]!PULL, 0;
      last = t; t = 0; computed = false
    }
  od
}

init {
  atomic {
    byte i = 0;
    do
    :: i < W -> run worker(i); i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < F -> run follower(i); i++
    :: else -> break
    od
  }
}

/*
 * How a training changes between a parameter server and all-reduce, with tickets, deaths, and rows of
 * tables on a server of their own.
 *
 * PS   a worker pulls, is granted a ticket, computes, sends its rows' gradients to the row server and
 *      its dense gradient to the leader; M of these are one update. The truth is the leader's vector.
 * AR   members have a replica each. A round is an epoch: the leader tells its members the version
 *      that it begins from, and each its ticket. A member computes, sends its rows' gradients, and
 *      gives its gradient to the epoch's sum. When it has the sum, and the row server has said that
 *      its rows are there, it votes. When all have voted the leader writes the update to its log; the
 *      next message to a member says the log's version, and only then it applies the sum.
 *
 *   drain   to AR: no ticket is granted but to make whole updates; when nothing is held or out, those
 *           who are there are members, and take the leader's vector
 *   abort   a member is gone before all have voted: its ticket goes back, a new epoch begins from the
 *           same version; who has a gradient keeps it, and gives it to the new epoch's sum
 *   join    who has no replica of that version takes that of a member of its epoch that has
 *   home    to PS, when no ticket is out: a holder, one that has voted for the last update, sends its
 *           replica; another one, where that is gone meanwhile
 *
 * One row server stands for several: each refuses rows of tickets that are gone and says by itself that a
 * member's rows are there, and a vote waits for all of them, as for the one here.
 *
 * Gone is who has died, and who lives and was taken for dead, and goes on until it notices. Where all
 * holders are gone, what was updated since the leader's vector was the truth is lost, and counted.
 *
 * Parameters (-D): N workers, Q batches, M gradients an update, GONES, CMDS (how often the mode that is
 * wanted changes), START (1: AR is wanted from the start).
 * Mutations (-D), each refuted: OWN_COMMIT (a member applies a sum when it has it), NO_EPOCH (what was
 * given to an aborted sum stays in the next), OLD_VOTE (a vote counts whatever epoch it is of),
 * VOTE_EARLY (before the rows are there), BY_BATCH (rows' gradients are known by their batch, not by
 * their ticket), ANY_HOLDER (whoever is a member counts as a holder), NO_VERSION (who is asked for its
 * replica sends it as it is), BY_LEASE (of who is gone only the ticket that is out counts as gone, not
 * those whose rows are still on their way).
 */
#ifndef N
#define N 2
#endif
#ifndef Q
#define Q 3
#endif
#ifndef M
#define M 2
#endif
#ifndef GONES
#define GONES 1
#endif
#ifndef CMDS
#define CMDS 1
#endif
#ifndef START
#define START 0
#endif
#define T (Q + N * GONES + 1) /* tickets, from 1; 8 at most */
#define E (2 * Q + 2 * GONES + CMDS + 4)

#define bit(x) (1 << (x))
#define ALL (bit(Q) - 1)

#ifdef NO_EPOCH
#define sum_number(e) 0
#else
#define sum_number(e) (e)
#endif

mtype = { PULL, PUSH, VOTE, STATE, GRANT, EPOCH, WANT };

chan to_w[N] = [4] of { mtype, byte, byte, byte }; /* kind, epoch, version, ticket */
chan to_L[N] = [3] of { mtype, byte, byte, byte }; /* kind, epoch or ticket, version, batches */

/* Of workers, what others take from them. */
bool alive[N], closed[N], has[N];
byte ver[N], mask[N], ep[N];
byte gones;

/* Sums, by epoch: who has given, and what. */
byte members_of[E], gave[E];
byte sum_of[E]; /* tickets */

/* The row server. */
byte row_way[N]; /* a ticket, whose rows' gradients are on their way */
byte parts, missing, wrong, gone_tickets;
chan row_log = [3] of { byte, bool }; /* tickets of an update; whether it is AR's */

/* The leader. */
byte free_batches = ALL, log_mask, lost_mask, log_ver, srv_mask, srv_ver;
byte lease[N], lent[N], batch_of[T]; /* lent: all tickets of this life */
byte tickets, epoch, members, holders, votes, present, parked, held, held_count, out_count, asked;
bool ar, home, wanted_ar = START, over;
byte mask_at[E]; /* ghost: the batches in a version */
hidden byte k, b;

inline batches_of(s) { /* to b; inside a d_step */
  b = 0;
  k = 1;
  do
  :: k < T -> b = b | (((s >> k) & 1) << batch_of[k]); k++
  :: else -> break
  od
}

inline log_update(s) {
  d_step {
    batches_of(s);
    assert(s != 0);
    assert((log_mask & b) == 0 && (lost_mask & b) == 0); /* nothing twice */
    log_mask = log_mask | b;
    log_ver++;
    mask_at[log_ver] = log_mask;
    k = 0; b = 0
  }
}

inline lend(w) {
  d_step {
    k = 0;
    do
    :: k < Q && (free_batches & bit(k)) == 0 -> k++
    :: else -> break
    od;
    tickets++;
    assert(tickets < T && k < Q);
    batch_of[tickets] = k;
    free_batches = free_batches & ~bit(k);
    lease[w] = tickets;
    lent[w] = lent[w] | bit(tickets);
    out_count++;
    k = 0
  }
}

inline lose_replicas() { /* all holders are gone */
  d_step {
    lost_mask = lost_mask | (log_mask & ~srv_mask);
    log_mask = srv_mask;
    log_ver = srv_ver;
    mask_at[log_ver] = srv_mask;
    ar = false; home = false; holders = 0; asked = N;
    /* members' tickets go back: they have nothing to compute on */
    k = 0;
    do
    :: k < N && lease[k] != 0 ->
      gone_tickets = gone_tickets | bit(lease[k]);
      free_batches = free_batches | bit(batch_of[lease[k]]);
      lease[k] = 0;
      out_count--;
      k++
    :: k < N && lease[k] == 0 -> k++
    :: k == N -> break
    od;
    parked = parked | present;
    members = 0;
    k = 0
  }
}

inline come_home() {
  d_step {
    ar = false; home = false; asked = N; holders = 0;
    parked = parked | present;
    members = 0
  }
}

inline next_round() { /* AR, and no sum is under way that counts */
  if
  :: holders == 0 && srv_ver != log_ver -> lose_replicas()
  :: else ->
    if
    :: out_count == 0 && (!wanted_ar || free_batches == 0) ->
      if
      :: srv_ver == log_ver -> come_home()
      :: else ->
        home = true;
        d_step {
          asked = 0;
          do
          :: (holders & bit(asked)) == 0 -> asked++
          :: else -> break
          od
        }
        to_w[asked]!WANT(0, log_ver, 0)
      fi
    :: present == 0 -> come_home() /* and srv_ver == log_ver */
    :: else ->
      d_step {
        epoch++;
        assert(epoch < E);
        members = present;
        members_of[epoch] = members;
#ifdef NO_EPOCH
        members_of[0] = members;
#endif
#ifdef ANY_HOLDER
        holders = members;
#endif
        votes = 0;
        parked = 0
      }
      i = 0;
      do
      :: i < N && (members & bit(i)) != 0 ->
        if
        :: lease[i] == 0 && free_batches != 0 && wanted_ar -> lend(i)
        :: else
        fi;
        to_w[i]!EPOCH(epoch, log_ver, lease[i]);
        i++
      :: i < N && (members & bit(i)) == 0 -> i++
      :: i == N -> break
      od;
      i = 0
    fi
  fi
}

inline gone(w) {
  d_step {
    closed[w] = true;
    present = present & ~bit(w);
    parked = parked & ~bit(w);
    holders = holders & ~bit(w);
#ifdef BY_LEASE
    if
    :: lease[w] != 0 -> gone_tickets = gone_tickets | bit(lease[w])
    :: else
    fi;
#else
    gone_tickets = gone_tickets | lent[w];
#endif
    lent[w] = 0;
    if
    :: lease[w] != 0 ->
      free_batches = free_batches | bit(batch_of[lease[w]]);
      lease[w] = 0;
      out_count--
    :: else
    fi;
    do
    :: nempty(to_L[w]) -> to_L[w]?_, _, _, _
    :: empty(to_L[w]) -> break
    od
  }
  if
  :: ar && (members & bit(w)) != 0 ->
    members = members & ~bit(w);
    if
    :: !home || asked == w -> home = false; next_round()
    :: else
    fi
  :: else
  fi
}

inline progress() { /* PS: whatever can happen now */
  if
  :: !ar && held != 0 && (held_count == M || (free_batches == 0 && out_count == 0)) ->
    log_update(held);
    d_step { srv_mask = log_mask; srv_ver = log_ver }
    row_log!held, false;
    held = 0; held_count = 0
  :: else
  fi;
  if
  :: !ar && wanted_ar && held_count == 0 && out_count == 0 && present != 0 && free_batches != 0 ->
    ar = true;
    holders = 0;
    next_round()
  :: else
  fi;
  i = 0;
  do
  :: i < N ->
    if
    :: !ar && (parked & bit(i)) != 0 && free_batches != 0 && (!wanted_ar || (held_count + out_count) % M != 0) ->
      parked = parked & ~bit(i);
      lend(i);
      to_w[i]!GRANT(0, srv_ver, lease[i])
    :: else
    fi;
    i++
  :: i == N -> break
  od;
  i = 0
}

inline hear(w) {
  if
  :: to_L[w]?PULL(_, _, _) ->
    present = present | bit(w);
    parked = parked | bit(w);
    progress()
  :: to_L[w]?PUSH(x, _, _) ->
    if
    :: lease[w] == x && !ar ->
      d_step {
        lease[w] = 0;
        out_count--;
        held = held | bit(x);
        held_count++
      }
    :: else /* late */
    fi;
    parked = parked | bit(w);
    progress()
  :: to_L[w]?VOTE(x, _, _) ->
    if
#ifdef OLD_VOTE
    :: ar && !home ->
#else
    :: ar && !home && x == epoch ->
#endif
      votes = votes | bit(w);
      if
      :: (votes & members) == members ->
        log_update(sum_of[sum_number(epoch)]);
        row_log!sum_of[sum_number(epoch)], true;
        d_step {
          k = 0;
          do
          :: k < N && lease[k] != 0 && (sum_of[sum_number(epoch)] & bit(lease[k])) != 0 ->
            lease[k] = 0;
            out_count--;
            k++
          :: k < N && !(lease[k] != 0 && (sum_of[sum_number(epoch)] & bit(lease[k])) != 0) -> k++
          :: k == N -> break
          od;
          k = 0;
#ifdef NO_EPOCH
          sum_of[0] = 0;
          gave[0] = 0;
#endif
          holders = members
        }
        next_round();
        progress()
      :: else
      fi
    :: else
    fi
  :: to_L[w]?STATE(_, x, y) ->
    if
    :: home && asked == w ->
      assert(x == log_ver && y == log_mask); /* what comes home is the truth */
      d_step { srv_ver = x; srv_mask = y }
      come_home();
      progress()
    :: else
    fi
  :: present & bit(w) && !alive[w] ->
    gone(w);
    progress()
  :: present & bit(w) && alive[w] && !closed[w] && gones < GONES ->
    gones++;
    gone(w);
    progress()
  fi
}

#define hears(w) (nempty(to_L[w]) || ((present & bit(w)) != 0 && (!alive[w] || gones < GONES)))

active proctype leader() {
  byte i, x, y, commands;
  asked = N;
  do
  :: atomic {
      free_batches == 0 && out_count == 0 && held == 0 && !ar ->
      assert(srv_mask == log_mask && srv_ver == log_ver);
      assert((log_mask | lost_mask) == ALL);
      over = true;
      break
    }
  :: atomic { !over && hears(0) -> hear(0); x = 0; y = 0 }
  :: atomic { !over && hears(1) -> hear(1); x = 0; y = 0 }
#if N > 2
  :: atomic { !over && hears(2) -> hear(2); x = 0; y = 0 }
#endif
  :: atomic {
      !over && commands < CMDS ->
      commands++;
      wanted_ar = !wanted_ar;
      progress()
    }
  od
}

#define donor(w) (alive[w] && has[w] && ep[w] == ep[me] && ver[w] == ver[me])

proctype worker(byte me) {
  byte t, e, v, s, sent, j;
  bool in_ar, gave_it, voted;
  do
  :: atomic { over -> break }
  /* another life */
  :: atomic {
      !over && closed[me] ->
      d_step {
        t = 0; s = 0; sent = 0; in_ar = false; gave_it = false; voted = false;
        has[me] = false; ver[me] = 0; mask[me] = 0; ep[me] = 0; row_way[me] = 0;
        do
        :: nempty(to_w[me]) -> to_w[me]?_, _, _, _
        :: empty(to_w[me]) -> break
        od;
        do
        :: nempty(to_L[me]) -> to_L[me]?_, _, _, _
        :: empty(to_L[me]) -> break
        od;
        closed[me] = false;
        alive[me] = true
      }
      to_L[me]!PULL(0, 0, 0)
    }
  :: atomic {
      !over && alive[me] && !closed[me] && gones < GONES ->
      gones++;
      alive[me] = false;
      has[me] = false
    }
  :: atomic {
      !over && alive[me] && !closed[me] && to_w[me]?[GRANT, _, _, _] ->
      to_w[me]?GRANT(_, v, t);
      d_step {
        in_ar = false; has[me] = false; gave_it = false; voted = false; s = 0; ep[me] = 0;
        ver[me] = 0; mask[me] = 0; v = 0
      }
    }
  :: atomic {
      !over && alive[me] && !closed[me] && to_w[me]?[EPOCH, _, _, _] ->
      to_w[me]?EPOCH(e, v, j);
      d_step {
        if
        :: has[me] && in_ar && voted && v == ver[me] + 1 -> /* the sum that it voted for counts */
#ifndef OWN_COMMIT
          batches_of(s);
          mask[me] = mask[me] | b;
          k = 0; b = 0;
#endif
          ver[me] = v
        :: else ->
          if
          :: has[me] && ver[me] != v -> has[me] = false
          :: else
          fi
        fi;
        if
        :: !has[me] -> ver[me] = v; mask[me] = 0 /* wanted */
        :: else -> assert(mask[me] == mask_at[v]) /* replicas of a version are alike */
        fi;
        if
        :: j != t -> t = j; sent = 0
        :: else
        fi;
        in_ar = true; ep[me] = e; gave_it = false; voted = false; s = 0; v = 0; e = 0; j = 0
      }
    }
  :: atomic {
      !over && alive[me] && !closed[me] && to_w[me]?[WANT, _, _, _] ->
      to_w[me]?WANT(_, v, _);
      d_step {
#ifndef NO_VERSION
        if
        :: voted && v == ver[me] + 1 ->
#ifndef OWN_COMMIT
          batches_of(s);
          mask[me] = mask[me] | b;
          k = 0; b = 0;
#endif
          ver[me] = v
        :: else
        fi;
#endif
        voted = false; gave_it = true; s = 0; t = 0; sent = 0; v = 0
      }
      to_L[me]!STATE(0, ver[me], mask[me])
    }
  /* PS */
  :: atomic {
      !over && alive[me] && !closed[me] && !in_ar && t != 0 && sent == 0 && row_way[me] == 0 ->
      row_way[me] = t;
      sent = 1
    }
  :: atomic {
      !over && alive[me] && !closed[me] && !in_ar && t != 0 && sent == 1 && nfull(to_L[me]) ->
      to_L[me]!PUSH(t, 0, 0);
      t = 0; sent = 0
    }
  /* AR */
  :: atomic {
      !over && alive[me] && !closed[me] && in_ar && !has[me] && srv_ver == ver[me] && ep[me] == epoch ->
      mask[me] = srv_mask;
      has[me] = true
    }
  :: atomic {
      !over && alive[me] && !closed[me] && in_ar && !has[me] && srv_ver != ver[me] &&
      (donor(0) || donor(1) || donor(N - 1)) ->
      if
      :: donor(0) -> mask[me] = mask[0]
      :: donor(1) -> mask[me] = mask[1]
#if N > 2
      :: donor(2) -> mask[me] = mask[2]
#endif
      fi;
      has[me] = true;
      assert(mask[me] == mask_at[ver[me]])
    }
  :: atomic {
      !over && alive[me] && !closed[me] && in_ar && has[me] && !gave_it && row_way[me] == 0 ->
      if
      :: t != 0 && sent == 0 -> row_way[me] = t; sent = 1
      :: else
      fi;
      d_step {
        gave[sum_number(ep[me])] = gave[sum_number(ep[me])] | bit(me);
        if
        :: t != 0 -> sum_of[sum_number(ep[me])] = sum_of[sum_number(ep[me])] | bit(t)
        :: else
        fi;
        gave_it = true
      }
    }
  :: atomic {
      !over && alive[me] && !closed[me] && in_ar && gave_it && !voted && ep[me] != 0 &&
      (gave[sum_number(ep[me])] & members_of[sum_number(ep[me])]) == members_of[sum_number(ep[me])] &&
#ifndef VOTE_EARLY
      (t == 0 || (parts & bit(t)) != 0) &&
#endif
      nfull(to_L[me]) && !home ->
      s = sum_of[sum_number(ep[me])];
#ifdef OWN_COMMIT
      d_step {
        batches_of(s);
        mask[me] = mask[me] | b;
        k = 0; b = 0
      }
#endif
      voted = true;
      to_L[me]!VOTE(ep[me], 0, 0)
    }
  od
}

inline arrive(w) {
  if
#ifdef BY_BATCH
  :: (gone_tickets & bit(row_way[w])) != 0 ->
    d_step {
      k = row_way[w] + 1;
      do
      :: k < T && k <= tickets && batch_of[k] == batch_of[row_way[w]] ->
        parts = parts | bit(k); wrong = wrong | bit(k); k++
      :: k < T && k <= tickets && batch_of[k] != batch_of[row_way[w]] -> k++
      :: else -> break
      od;
      k = 0
    }
#else
  :: (gone_tickets & bit(row_way[w])) != 0 -> skip /* late */
#endif
  :: else -> parts = parts | bit(row_way[w])
  fi;
  row_way[w] = 0
}

active proctype rows() {
  byte s;
  bool of_ar;
  do
  :: atomic { over && empty(row_log) -> break }
  :: atomic { row_way[0] != 0 -> arrive(0) }
  :: atomic { row_way[1] != 0 -> arrive(1) }
#if N > 2
  :: atomic { row_way[2] != 0 -> arrive(2) }
#endif
  :: atomic {
      nempty(row_log) && s == 0 -> row_log?s, of_ar
    }
  :: atomic {
      s != 0 && (s & ~parts & ~gone_tickets) == 0 ->
      assert(!of_ar || (s & ~parts) == 0); /* of AR's updates nothing is missing */
      assert((s & wrong) == 0);
      missing = missing | (s & ~parts);
      s = 0; of_ar = false
    }
  od
}

init {
  atomic {
    byte i = 0;
    do
    :: i < N -> closed[i] = true; run worker(i); i++
    :: else -> break
    od;
    mask_at[0] = 0
  }
}

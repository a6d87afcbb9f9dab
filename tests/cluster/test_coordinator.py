"""What the master decides where no schedule of accidents leads: ends, refusals, latecomers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from leashed.cluster import run_table
from leashed.cluster.coordinator import Coordinator
from leashed.cluster.master import _say
from leashed.cluster.measures import counted, lives
from leashed.cluster.messages import (
    OVER,
    REST,
    SAVED,
    STILL,
    Beat,
    Bye,
    Cut,
    FromMaster,
    Gone,
    Join,
    Kept,
    Lease,
    Rejoin,
    Report,
    Saved,
    Servers,
    ToMaster,
    Welcome,
)
from leashed.cluster.state import Change, Entry, State, Terms
from leashed.cluster.switchboard import Close, Output, Send

_NOBODY = "; all batches are trained, and no trainer that was there at the end has all of them"


class Talk:
    """A master that is told the time, and what it says to whom."""

    def __init__(self, **given: int | None) -> None:
        terms = Terms(**{"total": 10, "batch_size": 4, "trainers": 2, **given})  # type: ignore[arg-type]
        self.master = Coordinator(terms, "run", State.of(terms), 0.0)
        self.now = 0.0

    def say(self, connection: int, message: ToMaster) -> list[FromMaster]:
        """What it answers."""
        if connection not in self.master.board.lines:
            self.master.opened(connection, self.now)
        self.master.heard(connection, message, self.now)
        return self.answers(connection)

    def answers(self, connection: int) -> list[FromMaster]:
        actions = self.master.take().actions
        return [a.message for a in actions if isinstance(a, Send) and a.connection == connection]

    def closed(self) -> list[int]:
        return [a.connection for a in self.master.take().actions if isinstance(a, Close)]

    def join(self, connection: int, index: int = 0, **told: Any) -> int:
        (welcome, *_) = self.say(connection, Join("trainer", index, "", **told))
        assert isinstance(welcome, Welcome)
        return welcome.id

    def wait(self, seconds: float, *speaking: int) -> None:
        """Some speak all the while, and have nothing to say."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + 0.5, end)
            for connection in speaking:
                self.master.heard(connection, Report(), self.now)
            self.master.tick(self.now)

    def train(self, connection: int) -> None:
        """All that there is."""
        for want in range(1, 100):
            said = self.say(connection, Report(want=want, batches=99))
            for lease in [message for message in said if isinstance(message, Lease)]:
                self.say(connection, Report(used=[(lease.ticket, lease.count)]))


def test_a_run_without_trainers_waits_for_the_first() -> None:
    talk = Talk()
    talk.wait(500)
    assert talk.master.over is None


def test_all_have_finished() -> None:
    talk = Talk()
    for index in range(2):
        talk.join(index + 1, index)
    talk.train(1)
    assert Bye("finished") in talk.say(1, Report(left=True, summary={"loss": 1.0}))
    assert talk.master.over is None
    assert talk.say(2, Report(summary={})) == [Bye("finished"), Bye("all trainers have finished")]
    assert talk.master.over == "all trainers have finished"
    assert talk.master.standing(talk.now)["state"] == "ended"
    assert talk.say(3, Join("trainer", 0, "")) == [Bye("all trainers have finished")]


def led(*, returns: bool = False) -> Talk:
    """By a policy server, whose connection is 2, of one trainer; the mode is done with 3 of 10 batches."""
    talk = Talk(trainers=1, policy_ps=1)
    talk.join(1)
    talk.say(2, Join("policy-ps", 0, "h:1", returns=returns))
    talk.wait(1, 1, 2)
    (lease,) = [m for m in talk.say(2, Report(want=1, batches=10)) if isinstance(m, Lease)]
    assert (lease.ticket, lease.count) == (1, 10)
    talk.say(2, Report(used=[(1, 3)], metrics={"mode_late": 8.0}))
    return talk


def test_a_process_in_the_place_of_one_that_led_ends_the_run_and_is_not_welcomed() -> None:
    talk = led()
    talk.master.closed(2, talk.now)
    told = talk.say(3, Join("policy-ps", 0, "h:3"))
    assert not [m for m in told if isinstance(m, Welcome)]  # it would write over what was recorded
    assert [m.reason for m in told if isinstance(m, Bye)] == [talk.master.over]
    assert talk.master.over.startswith("policy server 0 is lost (another process has its place)")


def test_who_led_is_started_again_and_goes_on_from_what_it_has_kept() -> None:
    talk = led(returns=True)
    talk.master.closed(2, talk.now)
    talk.wait(14, 1)  # timeout and grace are 15 s
    assert talk.master.over is None
    (welcome, *_) = talk.say(3, Join("policy-ps", 0, "h:3", kept=Kept("run", 1), returns=True))
    assert isinstance(welcome, Welcome)
    ledger = talk.master.standing(talk.now)["ledger"]
    assert (ledger["complete"], ledger["undone"], ledger["again"]) == (1, 2, 0)
    (lease,) = [m for m in talk.say(3, Report(want=1, batches=9)) if isinstance(m, Lease)]
    assert lease.count == 9
    talk.say(3, Report(used=[(lease.ticket, 9)]))
    talk.say(1, Report(left=True, summary={"loss": 1.0}))
    talk.wait(5, 3)
    standing = talk.master.standing(talk.now)
    assert standing["state"] == "ended"
    assert standing["reason"] == (
        "all trainers have finished; 2 batches were trained anew, since a policy server was lost with what "
        "they had led to"
    )


def test_a_policy_server_that_has_kept_more_than_was_told_of_goes_on_from_that() -> None:
    talk = led(returns=True)
    talk.master.closed(2, talk.now)
    talk.say(3, Join("policy-ps", 0, "h:3", kept=Kept("run", 5), returns=True))
    ledger = talk.master.standing(talk.now)["ledger"]
    assert (ledger["complete"], ledger["undone"], ledger["free"]) == (5, 0, 5)


def test_a_policy_server_that_was_killed_behind_the_end_is_at_the_end_again() -> None:
    talk = led(returns=True)
    talk.say(2, Report(used=[(1, 10)]))
    assert talk.master._told_end
    talk.master.closed(2, talk.now)
    talk.say(3, Join("policy-ps", 0, "h:3", kept=Kept("run", 10), returns=True))
    assert talk.master._told_end
    assert talk.master.standing(talk.now)["ledger"]["complete"] == 10


@pytest.mark.parametrize(
    "kept",
    [None, Kept("another", 1), Kept("run", 11)],
    ids=["nothing", "of another run", "of more batches than there are"],
)
def test_a_policy_server_that_has_kept_nothing_of_the_run_ends_it(kept: Kept | None) -> None:
    talk = led(returns=True)
    talk.master.closed(2, talk.now)
    told = talk.say(3, Join("policy-ps", 0, "h:3", kept=kept, returns=True))
    assert not [m for m in told if isinstance(m, Welcome)]
    assert talk.master.over is not None
    assert talk.master.over.startswith("policy server 0 is lost (another process has its place)")


def test_a_policy_server_that_does_not_come_back_ends_the_run() -> None:
    talk = led(returns=True)
    talk.master.closed(2, talk.now)
    talk.wait(16, 1)
    assert talk.master.over == (
        "policy server 0 is lost (it did not come back to the master), and with it all that was trained; 7 of "
        "10 batches are left"
    )


def test_of_several_who_lead_each_is_told_where_the_others_are() -> None:
    talk = Talk(trainers=1, policy_ps=2)
    talk.join(1)
    talk.say(2, Join("policy-ps", 0, "h:1"))
    talk.say(3, Join("policy-ps", 1, "h:2"))
    (servers,) = [m for m in talk.say(3, Report()) if isinstance(m, Servers)]
    assert servers.addresses["policy-ps"] == {0: "h:1", 1: "h:2"}
    assert not [m for m in talk.say(3, Report(servers=servers.number)) if isinstance(m, Servers)]
    alone = led()
    assert not [m for m in alone.say(2, Report()) if isinstance(m, Servers)]


def test_a_run_waits_for_the_last_counts_of_each_of_several_who_lead() -> None:
    talk = Talk(trainers=1, policy_ps=2)
    talk.join(1)
    talk.say(2, Join("policy-ps", 0, "h:1"))
    talk.say(3, Join("policy-ps", 1, "h:2"))
    talk.wait(1, 1, 2, 3)
    talk.say(2, Report(want=1, batches=10))
    talk.say(2, Report(used=[(1, 10)], metrics={"grants": 1.0}))
    talk.say(1, Report(left=True, summary={"batches_used": 10.0}))
    talk.wait(1.5, 2, 3)
    talk.say(2, Report(metrics={"grants": 1.0}))
    talk.wait(0.5, 2, 3)
    assert talk.master.over is None
    talk.say(3, Report(metrics={"grants": 2.0}))
    talk.wait(0.5, 2, 3)
    assert str(talk.master.over).startswith("all trainers have finished")


@pytest.mark.parametrize("tells", [True, False])
def test_who_leads_tells_of_the_last_batches_before_the_run_ends_early(tells: bool) -> None:
    talk = led()
    talk.say(1, Report(left=True, summary={"batches_used": 5.0}))
    talk.wait(0.5, 2)
    talk.say(2, Report(used=[(1, 4)], metrics={"mode_late": 8.0}))
    talk.wait(0.4, 2)
    assert talk.master.over is None
    talk.wait(0.5, 2)
    if tells:
        talk.say(2, Report(used=[(1, 5)], metrics={"mode_late": 12.0}))
    assert (talk.master.over is not None) == tells
    talk.wait(2, 2)
    assert str(talk.master.over).startswith("all trainers have finished")
    ledger = talk.master.standing(talk.now)["ledger"]
    assert ledger["complete"] == 4 + tells
    assert ledger["twice"] == 2 + tells


def test_who_leads_comes_back_where_its_connection_has_ended() -> None:
    """As a network may have it: the run goes on."""
    talk = led()
    (leads,) = [m for m in talk.master.state.membership.members.values() if m.role == "policy-ps"]
    talk.master.closed(2, talk.now)
    talk.wait(talk.master.terms.timeout - 0.5, 1)
    assert isinstance(talk.say(3, Rejoin("run", leads.id))[0], Welcome)
    talk.say(3, Report(used=[(1, 10)], metrics={"grants": 10.0}))
    talk.wait(10, 1, 3)
    talk.say(1, Report(left=True, summary={"batches_used": 10.0}))
    assert str(talk.master.over).startswith("all trainers have finished")
    assert talk.master.standing(talk.now)["ledger"]["complete"] == 10


@pytest.mark.parametrize("comes", [True, False])
def test_a_master_started_again_at_the_end_hears_who_leads_before_it_says_so(comes: bool) -> None:
    """It knows no counter: the report would tell nothing of the mode."""
    talk = led()
    talk.say(2, Report(used=[(1, 10)], metrics={"grants": 10.0}))
    state = talk.master.state
    leads, trains = (
        next(m for m in state.membership.members.values() if m.role == role)
        for role in ("policy-ps", "trainer")
    )
    leads.counters, leads.counted = {}, None  # which no journal has
    talk.master = Coordinator(talk.master.terms, "run", state, talk.now)
    talk.say(2, Rejoin("run", trains.id))
    talk.say(2, Report(left=True, summary={"batches_used": 10.0}))
    talk.wait(0.5)
    assert talk.master.over is None
    if comes:
        talk.say(3, Rejoin("run", leads.id))
        talk.say(3, Report(metrics={"grants": 10.0}))
    assert (talk.master.over is not None) == comes
    talk.wait(3)
    assert str(talk.master.over).startswith("all trainers have finished")
    (told,) = [m for m in talk.master.standing(talk.now)["members"] if m["role"] == "policy-ps"]
    assert told["counters"] == ({"grants": 10.0} if comes else {})


@pytest.mark.parametrize("leaving", [True, False])
def test_without_who_leads_a_run_fails_unless_all_are_told_to_end(leaving: bool) -> None:
    talk = led()
    talk.master.leaving = leaving
    talk.master.closed(2, talk.now)
    talk.wait(talk.master.terms.timeout + 0.5, 1)
    assert (talk.master.over is None) == leaving
    if leaving:
        talk.master = Coordinator(talk.master.terms, "run", talk.master.state, talk.now)
        talk.wait(0.5)
    assert "policy server 0 is lost (it did not come back" in str(talk.master.over)
    assert talk.master.standing(talk.now)["state"] == "failed"


@pytest.mark.parametrize("crashed", [1, 2])
def test_a_run_that_all_trainers_have_crashed_in_has_failed(crashed: int) -> None:
    talk = Talk()
    for k in (1, 2):
        talk.join(k, index=k - 1)
    for k in (1, 2):
        talk.say(k, Report(summary={"crashed": float(k <= crashed)}))
    told = talk.master.standing(talk.now)
    assert told["state"] == ("failed" if crashed == 2 else "ended")
    assert ("all have crashed" if crashed == 2 else "; trainer-0 has crashed") in told["reason"]


def test_one_that_died_after_the_end_is_waited_for_as_long_as_the_grace() -> None:
    talk = Talk()
    for index in range(2):
        talk.join(index + 1, index)
    talk.train(1)
    talk.say(1, Report(left=True, summary={}))
    talk.master.closed(2, talk.now)
    talk.wait(9.5)
    assert talk.master.over is None
    talk.wait(1)
    assert talk.master.over == "no trainer is left; 1 of 2 have finished"
    assert talk.master.standing(talk.now)["state"] == "ended"  # all batches are complete


def test_one_that_died_in_the_middle_is_waited_for_with_patience() -> None:
    talk = Talk()
    talk.join(1)
    talk.master.closed(1, talk.now)
    talk.wait(59.5)
    assert talk.master.over is None
    talk.wait(1)
    assert talk.master.over == (
        "no trainer is left; 0 of 2 have finished; 10 of 10 batches are left"
    )
    assert talk.master.standing(talk.now)["state"] == "failed"


def test_a_run_is_incomplete_that_nobody_is_left_for_whoever_has_finished() -> None:
    talk = Talk()
    for index in range(2):
        talk.join(index + 1, index)
    talk.say(1, Report(summary={}))  # by a stop rule of its own
    talk.master.closed(2, talk.now)
    talk.wait(11)
    told = talk.master.standing(talk.now)
    assert (told["state"], told["reason"]) == (
        "incomplete", "no trainer is left; 1 of 2 have finished; 10 of 10 batches are left"
    )  # fmt: skip
    assert told["ledger"]["complete"] < told["ledger"]["total"]


@pytest.mark.parametrize(
    ("interrupted", "how", "reason"),
    [
        ((), "ended", "all trainers have finished; 10 of 10 batches are left"),
        ((1,), "incomplete",
         "stopped before its end: trainer-0; 10 of 10 batches are left"),
        ((1, 2), "incomplete",
         "stopped before its end: trainer-0, trainer-1; 10 of 10 batches are left"),
    ],
)  # fmt: skip
def test_batches_are_left_by_rules_of_their_own_or_by_who_was_told_to_end(
    interrupted: tuple[int, ...], how: str, reason: str
) -> None:
    talk = Talk()
    for k in (1, 2):
        talk.join(k, index=k - 1)
    for k in (1, 2):
        talk.say(k, Report(summary={"interrupted": float(k in interrupted)}))
    told = talk.master.standing(talk.now)
    assert (told["state"], told["reason"]) == (how, reason)


@pytest.mark.parametrize("back", [True, False])
def test_trainers_that_are_told_to_end_with_the_master_do_not_end_the_run(back: bool) -> None:
    """As where the machine that all are on is shut down: it has ``patience`` seconds to be back."""
    talk = Talk()
    for k in (1, 2):
        talk.join(k, index=k - 1)
    talk.master.leaving = True
    for k in (1, 2):
        talk.say(k, Report(left=True))
        assert talk.master.handing_in
        assert Bye("finished") in talk.say(k, Report(summary={"interrupted": 1.0}))
    assert not talk.master.handing_in
    talk.wait(1)
    assert talk.master.over is None
    talk.master = Coordinator(talk.master.terms, "run", talk.master.state, talk.now)
    talk.wait(59)
    assert talk.master.over is None
    if back:
        talk.join(1)
        talk.say(1, Report(summary={"interrupted": 1.0}))
    else:
        talk.wait(2)
    assert talk.master.over == (
        "stopped before its end: trainer-0, trainer-1; 10 of 10 batches are left"
    )


def test_nor_does_the_run_end_without_who_is_elsewhere() -> None:
    talk = Talk()
    for k in (1, 2):
        talk.join(k, index=k - 1)
    talk.master.leaving = True
    talk.say(1, Report(summary={"interrupted": 1.0}))
    talk.master = Coordinator(talk.master.terms, "run", talk.master.state, talk.now)
    talk.wait(59)  # its place is given up, as it does not come back to this master
    assert talk.master.over is None
    assert not talk.master.state.membership.members
    talk.join(2, index=1)
    talk.train(2)
    talk.say(2, Report(left=True, summary={}))
    assert talk.master.over == "all trainers have finished"


def test_who_was_told_to_end_and_is_back_has_not_ended() -> None:
    """It is waited for when it dies, as one that never was told to."""
    talk = Talk()
    for k in (1, 2):
        talk.join(k, index=k - 1)
    talk.say(1, Report(summary={"interrupted": 1.0}))
    talk.join(3, index=0)
    talk.say(2, Report(summary={"interrupted": 1.0}))
    talk.master.closed(3, talk.now)
    talk.wait(59)
    assert talk.master.over is None
    talk.wait(2)
    assert talk.master.over == "no trainer is left; 1 of 2 have finished; 10 of 10 batches are left"
    assert talk.master.state.how == "incomplete"


def test_who_was_told_to_end_leaves_a_run_complete_whose_batches_others_train() -> None:
    talk = Talk()
    for k in (1, 2):
        talk.join(k, index=k - 1)
    talk.say(1, Report(summary={"interrupted": 1.0}))
    talk.train(2)
    talk.say(2, Report(left=True, summary={}))
    told = talk.master.standing(talk.now)
    assert (told["state"], told["reason"]) == ("ended", "all trainers have finished")


def test_a_run_is_incomplete_whose_trainers_are_all_told_to_end_when_all_is_trained() -> None:
    """None has what the others had computed since they were last in step."""
    talk = Talk()
    for k in (1, 2):
        talk.join(k, index=k - 1)
    talk.train(1)
    for k in (1, 2):
        talk.say(k, Report(left=True, summary={"interrupted": 1.0}))
    told = talk.master.standing(talk.now)
    assert (told["state"], told["reason"]) == (
        "incomplete", f"stopped before its end: trainer-0, trainer-1{_NOBODY}"
    )  # fmt: skip


def test_who_was_told_to_end_when_all_is_trained_has_not_all_of_it() -> None:
    """The others die before they hand anything in: the run goes back, and is trained again."""
    talk = Talk()
    for k in (1, 2):
        talk.join(k, index=k - 1, summing=True)
    talk.wait(20, 1, 2)
    epoch = talk.master.state.membership.epoch.number
    for k in (1, 2):
        talk.say(k, Report(settled=epoch))
    talk.train(1)
    talk.say(1, Report(left=True, summary={"interrupted": 1.0}))
    talk.master.closed(2, talk.now)
    talk.join(3, index=1, summing=True)
    talk.wait(20, 3)
    ledger = talk.master.state.ledger
    assert (ledger.restored, ledger.lost, ledger.complete) == (1, 10, 0)
    epoch = talk.master.state.membership.epoch.number
    talk.say(3, Report(settled=epoch))
    talk.train(3)
    talk.say(3, Report(left=True, summary={}))
    assert talk.master.standing(talk.now)["state"] == "ended"


@pytest.mark.parametrize("summing", [True, False])
@pytest.mark.parametrize("there", [True, False])
def test_who_stood_still_while_others_trained_the_rest_was_not_there_at_the_end(
    there: bool, summing: bool
) -> None:
    """As where its machine slept: it wakes when all is trained, with parameters of long ago."""
    talk = Talk()
    first = talk.join(1, summing=summing)
    talk.join(2, index=1, summing=summing)
    if there:
        talk.train(2)
    talk.wait(6, 2)
    talk.train(2)
    assert [past.why for past in talk.master.state.membership.past] == ["silent for 5 s"]
    early = {"left_early": 0.0}
    talk.say(2, Report(left=True, summary=early))
    talk.join(3, before=Rejoin("run", first), summing=summing)
    talk.wait(2, 3)
    talk.say(3, Report(settled=talk.master.state.membership.epoch.number))  # it is alone in it
    talk.say(3, Report(left=True, summary=early))
    told = talk.master.standing(talk.now)
    assert told["state"] == "ended"
    assert told["summaries"]["trainer-1"]["left_early"] == 0
    assert told["summaries"]["trainer-0"]["left_early"] == (not there)


@pytest.mark.parametrize("summing", [True, False])
def test_who_is_behind_is_so_whenever_it_comes_back(summing: bool) -> None:
    talk = Talk()
    first = talk.join(1, summing=summing)
    talk.join(2, index=1, summing=summing)
    talk.wait(6, 2)
    talk.train(2)
    talk.say(2, Report(left=True, summary={"left_early": 0.0}))
    for connection in (3, 4):  # its connection breaks once more
        first = talk.join(connection, before=Rejoin("run", first), summing=summing)
        if connection == 3:
            talk.wait(6)
    talk.say(4, Report(left=True, summary={"left_early": 0.0}))
    told = talk.master.standing(talk.now)
    assert told["state"] == "ended"
    assert [told["summaries"][f"trainer-{k}"]["left_early"] for k in (0, 1)] == [1.0, 0.0]


def test_who_comes_back_before_the_last_batch_has_not_what_others_trained() -> None:
    """Where parameters are summed: it has not summed since."""
    talk = Talk()
    first = talk.join(1, summing=True)
    talk.join(2, index=1, summing=True)
    talk.wait(20, 1, 2)
    for k in (1, 2):
        talk.say(k, Report(settled=1))
    said = talk.say(2, Report(want=1, batches=99))
    (lease,) = [each for each in said if isinstance(each, Lease)]
    talk.say(2, Report(used=[(lease.ticket, lease.count)]))
    talk.wait(6, 2)
    talk.join(3, before=Rejoin("run", first), summing=True)
    talk.train(2)
    talk.master.closed(2, talk.now)
    talk.say(3, Report(left=True, summary={}))
    talk.wait(12)
    assert talk.master.standing(talk.now)["state"] == "incomplete"


def test_what_is_settled_counts_in_the_report_in_which_it_is_left() -> None:
    talk = Talk()
    first = talk.join(1, summing=True)
    talk.join(2, index=1, summing=True)
    talk.wait(20, 1, 2)
    for k in (1, 2):
        talk.say(k, Report(settled=1))
    talk.wait(6, 2)
    talk.train(2)
    talk.join(3, before=Rejoin("run", first), summing=True)
    talk.wait(2, 2, 3)
    epoch = talk.master.state.membership.epoch.number
    talk.say(2, Report(settled=epoch))
    talk.say(3, Report(settled=epoch, left=True, summary={"left_early": 0.0}))
    assert talk.master.state.whole == {"trainer-0"}


@pytest.mark.parametrize("how", ["told to end", "its file"])
def test_a_sole_trainer_has_everything(how: str) -> None:
    talk = Talk(trainers=1)
    talk.join(1)
    talk.train(1)
    if how == "its file":
        talk.master.closed(1, talk.now)
        talk.join(2, kept=Kept("run", 10, []))
    at, told = (2, 0.0) if how == "its file" else (1, 1.0)
    talk.say(at, Report(left=True, summary={"interrupted": told}))
    assert talk.master.standing(talk.now)["state"] == "ended"
    assert talk.master.over == "all trainers have finished"


def test_trainers_with_sync_servers_that_die_when_all_is_trained_begin_anew_with_it() -> None:
    talk = Talk()
    for k in (1, 2):
        talk.join(k, index=k - 1)
    talk.train(1)
    for k in (1, 2):
        talk.say(k, Report(left=True))
        talk.master.closed(k, talk.now)
    for k in (3, 4):
        talk.join(k, index=k - 3, kept=Kept("run", 9, [(3, 1)]))
    for k in (3, 4):
        talk.say(k, Report(left=True, summary={"left_early": 0.0}))
    told = talk.master.standing(talk.now)
    assert (told["state"], told["reason"]) == ("ended", "all trainers have finished")
    assert [told["summaries"][f"trainer-{k}"]["left_early"] for k in (0, 1)] == [0.0, 0.0]


def test_a_run_is_incomplete_whose_last_trainer_has_crashed_when_all_is_trained() -> None:
    talk = Talk()
    for k in (1, 2):
        talk.join(k, index=k - 1)
    talk.say(1, Report(left=True, summary={}))  # by a rule of its own
    talk.train(2)
    talk.say(2, Report(left=True, summary={"crashed": 1.0}))
    told = talk.master.standing(talk.now)
    assert (told["state"], told["reason"]) == (
        "incomplete", f"all trainers have finished{_NOBODY}; trainer-1 has crashed"
    )  # fmt: skip


def test_a_run_that_is_stopped_is_incomplete_where_nobody_has_all() -> None:
    talk = Talk()
    for k in (1, 2):
        talk.join(k, index=k - 1)
    talk.train(2)
    talk.say(1, Report(left=True, summary={"interrupted": 1.0}))
    talk.master.closed(2, talk.now)
    talk.master.stop("stopped by SIGTERM", talk.now)
    assert talk.master.standing(talk.now)["state"] == "incomplete"


@pytest.mark.parametrize(
    ("trains", "finished", "there", "how"),
    [
        (False, 0, True, "incomplete"),
        (True, 1, True, "ended"),
        (True, 0, True, "failed"),  # no model
        (False, 0, False, "failed"),
        (False, 1, False, "incomplete"),
    ],
)
def test_who_stops_a_run_leaves_it_as_it_is(
    trains: bool, finished: int, there: bool, how: str
) -> None:
    talk = Talk()
    for k in (1, 2):
        talk.join(k, index=k - 1)
    if trains:
        talk.train(1)
    if finished:
        talk.say(1, Report(left=True, summary={"loss": 1.0}))
    if not there:
        for k in (1 + finished, 2):
            talk.master.closed(k, talk.now)
    talk.master.stop("stopped by SIGTERM", talk.now)
    assert talk.master.standing(talk.now)["state"] == how


def test_a_member_that_beats_and_reports_nothing_is_alive_and_told_nothing_twice() -> None:
    talk = Talk(trainers=1)
    assert talk.say(1, Beat()) == []  # of nobody yet
    talk.join(1)
    for _ in range(60):
        talk.wait(1.0)
        talk.answers(1)
        assert talk.say(1, Beat()) == []
    assert talk.master.state.membership.past == []
    talk.wait(5.5)
    assert [past.why for past in talk.master.state.membership.past] == ["silent for 5 s"]


def test_a_last_evaluation_is_waited_for_as_long_as_its_trainer_lives() -> None:
    talk = Talk()
    talk.join(1)
    talk.wait(10.5, 1)  # the other may yet come
    talk.train(1)
    talk.wait(3600, 1)
    assert talk.master.over is None
    talk.wait(5.5)
    assert [past.why for past in talk.master.state.membership.past] == ["silent for 5 s"]
    talk.wait(50)
    assert talk.master.over is None  # it may come back, or be started again
    talk.wait(10)
    assert talk.master.over == f"no trainer is left; 0 of 2 have finished{_NOBODY}"
    assert talk.master.standing(talk.now)["state"] == "failed"


def test_stopping_tells_everybody() -> None:
    talk = Talk()
    talk.join(1)
    talk.master.opened(2, talk.now)
    talk.master.take()
    talk.master.stop("enough", talk.now)
    actions = talk.master.take().actions
    assert actions == [Send(1, Bye("enough")), Close(1), Send(2, Bye("enough")), Close(2)]


def test_who_proves_the_key_and_says_nothing_is_cut_off() -> None:
    talk = Talk()
    talk.join(1)
    talk.master.opened(2, talk.now)
    talk.wait(4.5, 1)
    assert talk.closed() == []
    talk.wait(1, 1)
    assert talk.closed() == [2]


def test_a_rejoin_that_cannot_be() -> None:
    talk = Talk()
    id_ = talk.join(1)
    assert talk.say(2, Rejoin("another", id_)) == [Gone("this is run run, not another")]
    assert talk.say(2, Rejoin("run", 77)) == [Gone("it has not joined")]
    assert talk.say(2, Report()) == [Gone("it has not joined")]
    other = talk.join(2, 1)
    assert Gone(f"the connection of member {id_} says it is {other}") in talk.say(
        1, Rejoin("run", other)
    )
    assert talk.master.malformed == 1
    assert talk.say(3, Rejoin("run", id_)) == [
        Gone(f"the connection of member {id_} says it is {other}")
    ]


def test_a_finished_member_is_told_again() -> None:
    talk = Talk()
    id_ = talk.join(1)
    talk.say(1, Report(summary={}))
    assert talk.say(1, Report(summary={})) == [Bye("finished")]
    assert talk.say(2, Rejoin("run", id_)) == [Bye("finished")]


def test_a_member_that_has_finished_does_not_join_by_a_first_word_that_comes_late() -> None:
    talk = Talk()
    talk.join(1)
    talk.say(1, Report(summary={}))
    assert talk.say(1, Join("trainer", 0, "")) == [Bye("finished")]
    assert not talk.master.state.membership.members


@pytest.mark.parametrize("speaks", [True, False])
def test_a_living_place_is_kept_and_a_dead_one_is_not(speaks: bool) -> None:
    talk = Talk()
    talk.join(1)
    talk.wait(6, *([1] if speaks else []))
    (answer,) = talk.say(2, Join("trainer", 0, ""))[-1:]
    assert isinstance(answer, Gone) == speaks


def replayed(talk: Talk, changes: list[Change]) -> Coordinator:
    """The master that reads them."""
    state = State.of(talk.master.terms)
    for change in changes:
        state.apply(msgspec.json.decode(msgspec.json.encode(change), type=Entry))  # type: ignore[arg-type]
    return Coordinator(talk.master.terms, "run", state, talk.now)


def test_what_a_life_had_counted_survives_it_and_the_master() -> None:
    talk = Talk()
    changes: list[Change] = []
    take = talk.master.take

    def recorded() -> Output:
        output = take()
        changes.extend(output.changes)
        return output

    talk.master.take = recorded  # type: ignore[method-assign]
    talk.join(1)
    talk.now = 2.0
    talk.say(1, Report(metrics={"examples": 400.0}))
    talk.now = 3.0
    talk.master.closed(1, talk.now)
    talk.join(2)
    talk.now = 5.0
    talk.say(2, Report(metrics={"examples": 100.0}))
    assert counted(talk.master.standing(talk.now), "trainer") == {0: {"examples": 500.0}}
    again = replayed(talk, changes)
    told = again.standing(talk.now)
    assert counted(told, "trainer") == {0: {"examples": 400.0}}  # until the living one reports
    assert [life.seconds for life in lives(told, "trainer")[0]] == [2.0, 0.0]
    again.opened(1, talk.now)
    again.heard(1, Rejoin("run", 2), talk.now)
    again.heard(1, Report(metrics={"examples": 150.0}), talk.now)
    assert counted(again.standing(talk.now), "trainer") == {0: {"examples": 550.0}}
    # One that dies while there is no master has told what it counted to nobody who lives.
    lost = replayed(talk, changes)
    for second in range(5, 20):
        lost.tick(float(second))
    told = {**lost.standing(20.0), "terms": {"batch_size": 4}}
    assert counted(told, "trainer") == {0: {"examples": 400.0}}
    assert "trainer 0 (3.00 s to 16.0 s): gone before the master was told" in run_table.render(told)


def test_a_process_that_was_taken_for_dead_is_the_same_one() -> None:
    talk = Talk()
    id_ = talk.join(1)
    talk.say(1, Report(metrics={"examples": 400.0}))
    talk.master.closed(1, talk.now)
    talk.say(2, Join("trainer", 0, "", Rejoin("run", id_)))
    talk.now = 4.0
    talk.say(2, Report(metrics={"examples": 700.0}))
    told = talk.master.standing(talk.now)
    assert counted(told, "trainer") == {0: {"examples": 700.0}}
    assert len(lives(told, "trainer")[0]) == 1


@pytest.mark.parametrize("was", [Rejoin("another", 1), Rejoin("run", 7)])
def test_what_a_process_was_elsewhere_counts_for_nothing(was: Rejoin) -> None:
    talk = Talk()
    talk.join(1)
    talk.say(1, Report(metrics={"examples": 400.0}))
    talk.master.closed(1, talk.now)
    talk.say(2, Join("trainer", 0, "", was))
    assert len(lives(talk.master.standing(0.0), "trainer")[0]) == 2


@pytest.mark.parametrize("early", [True, False])
def test_only_who_left_when_all_was_complete_has_all_that_is(early: bool) -> None:
    """Where those who trained the rest have died, the run goes back to what one had kept."""
    talk = Talk()
    for index in range(2):
        talk.say(index + 1, Join("trainer", index, "", summing=True))
    if early:
        talk.say(1, Report(left=True, summary={"handed_in": 1.0, "left_early": 0.0}))
    talk.train(2)
    if not early:
        talk.say(1, Report(left=True, summary={"handed_in": 1.0, "left_early": 0.0}))
    assert talk.master.state.ledger.done
    talk.master.closed(2, talk.now)
    talk.wait(6)
    talk.say(3, Join("trainer", 1, "", summing=True, kept=Kept("run", 4)))
    talk.wait(11, 3)
    ledger = talk.master.state.ledger
    assert (ledger.restored, ledger.complete) == ((1, 4) if early else (0, 10))
    told = talk.master.standing(talk.now)
    assert told["summaries"]["trainer-0"]["left_early"] == early
    assert ledger.lost == (6 if early else 0)


def test_what_was_kept_may_be_more_than_the_master_knows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As where it was killed, and all trainers with it: no batch is trained anew, and none is said to be."""
    talk = Talk()
    for index in range(2):
        talk.say(index + 1, Join("trainer", index, "", summing=True))
    for want in (1, 2):
        said = talk.say(2, Report(want=want, batches=2))
        (lease,) = [message for message in said if isinstance(message, Lease)]
        if want == 1:
            talk.say(2, Report(used=[(lease.ticket, lease.count)]))
    for connection in (1, 2):
        talk.master.closed(connection, talk.now)
    ledger = talk.master.state.ledger
    known = ledger.complete
    assert known < ledger.next
    kept = Kept("run", ledger.next)
    for index in range(2):
        talk.master.opened(index + 3, talk.now)
        join = Join("trainer", index, "", summing=True, kept=None if index else kept)
        talk.master.heard(index + 3, join, talk.now)
    assert (ledger.restored, ledger.lost, ledger.complete) == (1, 0, ledger.next)
    caplog.set_level("WARNING", "leashed")
    for change in talk.master.take().changes:
        _say(change, talk.master.state)
    (said_so,) = caplog.messages
    assert said_so.startswith(
        "all who had what was trained are gone: the trainers go on from what "
    )
    assert said_so.endswith(f" trainer-0 has kept, with {ledger.complete} batches complete")
    talk.train(3)
    for connection in (3, 4):
        talk.say(connection, Report(summary={}))
    over = talk.master.over
    assert over is not None
    assert "trained anew" not in over
    assert "; all trainers were lost, and went on from what one had kept" in over


def test_who_lives_and_is_to_begin_anew_is_told_so() -> None:
    """It came while there was one that had the parameters, and was given batches."""
    talk = Talk()
    for index in range(2):
        talk.say(index + 1, Join("trainer", index, "", summing=True))
    said = talk.say(2, Report(want=1, batches=2))
    (lease,) = [message for message in said if isinstance(message, Lease)]
    talk.say(2, Report(used=[(lease.ticket, lease.count)]))
    talk.master.closed(1, talk.now)
    (welcome, *_) = talk.say(3, Join("trainer", 0, "", summing=True))
    assert isinstance(welcome, Welcome)
    assert any(isinstance(each, Lease) for each in talk.say(3, Report(want=1, batches=2)))
    talk.master.closed(2, talk.now)
    talk.say(4, Join("trainer", 1, "", summing=True))
    gone = [Gone("it begins anew: the parameters with which it was to go on are lost")]
    assert talk.say(3, Report()) == gone
    assert talk.say(3, Join("trainer", 0, "", summing=True)) == gone  # its first word, late
    again = Join("trainer", 0, "", Rejoin("run", welcome.id), summing=True)
    assert isinstance(talk.say(3, again)[0], Welcome)


def test_who_comes_while_the_first_batches_are_trained_does_not_have_them() -> None:
    talk = Talk()
    talk.say(1, Join("trainer", 0, "", summing=True))
    talk.wait(11, 1)
    said = talk.say(1, Report(want=1, batches=99))
    (lease,) = [message for message in said if isinstance(message, Lease)]
    talk.say(2, Join("trainer", 1, "", summing=True))
    talk.wait(1, 1, 2)
    talk.say(1, Report(used=[(lease.ticket, lease.count)]))
    assert talk.master.state.ledger.complete == lease.count
    talk.master.closed(1, talk.now)
    talk.wait(17, 2)
    ledger = talk.master.state.ledger
    assert (ledger.restored, ledger.complete, ledger.lost) == (1, 0, lease.count)


class Cuts(Talk):
    """Of a run of two trainers and a sync server that is brought to a cut every 10 s."""

    def __init__(self) -> None:
        super().__init__(total=1000, sync_ps=1, checkpoint_every=10.0, grace=5.0, timeout=1000.0)
        self.ids = [self.join(1, 0), self.join(2, 1)]
        self.say(3, Join("sync-ps", 0, "127.0.0.1:1"))
        self.wait(1.0)
        (lease,) = [m for m in self.say(1, Report(epoch=1, want=1, batches=4)) if type(m) is Lease]
        self.lease = lease

    def until(self, now: float) -> dict[int, list[Cut]]:
        """What is said of cuts."""
        self.now = now
        self.master.tick(now)
        return self.cuts()

    def cuts(self) -> dict[int, list[Cut]]:
        found: dict[int, list[Cut]] = {}
        for action in self.master.take().actions:
            if isinstance(action, Send) and isinstance(action.message, Cut):
                found.setdefault(action.connection, []).append(action.message)
        return found

    def reach(self, connection: int, stage: int, number: int = 1, **told: Any) -> dict:
        self.master.heard(connection, Report(epoch=1, cut=(number, stage), **told), self.now)
        return self.cuts()

    @property
    def told(self) -> dict[str, Any]:
        return self.master.standing(self.now)["checkpoints"]


_FILES = [Saved("trainer-0.safetensors", 3, "0" * 64)]


def test_a_cut_comes_when_all_rest_and_nothing_is_under_way() -> None:
    talk = Cuts()
    assert talk.until(9.0) == {}
    assert talk.until(10.5) == {k: [Cut(1, REST, 4, [(0, 4)])] for k in (1, 2)}
    # Nobody gets batches, and who has some uses them.
    said = talk.say(2, Report(epoch=1, want=1, batches=4, cut=(1, REST)))
    assert not any(isinstance(each, Lease) for each in said)
    told = talk.reach(1, REST, used=[(talk.lease.ticket, 4)])
    assert told == {k: [Cut(1, STILL, 4)] for k in (1, 2)}
    assert talk.reach(2, STILL) == {}
    assert talk.reach(1, STILL) == {k: [Cut(1, SAVED, 4)] for k in (1, 2, 3)}
    talk.reach(1, SAVED, saved=_FILES)
    talk.reach(3, SAVED)
    assert talk.master.checkpoint is None
    talk.reach(2, SAVED)
    number, saved = talk.master.checkpoint
    assert (number, saved["trainer-0"], sorted(saved)) == (
        1, _FILES, ["sync-ps-0", "trainer-0", "trainer-1"],
    )  # fmt: skip
    talk.master.written(1, talk.now)
    actions = [a.message for a in talk.master.take().actions]
    assert sum(isinstance(each, Cut) and each.stage == OVER for each in actions) == 3
    # What was wanted meanwhile is given.
    assert any(isinstance(each, Lease) for each in actions)
    assert talk.told == {"whole": 1, "made": 1, "given_up": 0, "why": ""}


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("gone", "trainer-1 is gone"),
        ("come", "trainer-2 has come"),
        ("failed", "trainer-0 has saved nothing: no space left"),
        ("late", "trainer-0, trainer-1: not at rest in 5 s"),
        ("manifest", "its manifest cannot be written"),
    ],
)
def test_a_cut_that_cannot_become_whole_is_given_up(what: str, why: str) -> None:
    talk = Cuts()
    talk.until(10.5)
    if what == "gone":
        talk.master.closed(2, talk.now)
    elif what == "come":
        talk.master.opened(4, talk.now)
        talk.master.heard(4, Join("trainer", 2, ""), talk.now)
    elif what == "failed":
        talk.reach(1, STILL, cut_failed="no space left")
    elif what == "late":
        talk.until(16.0)
    else:
        talk.master.written(1, talk.now, why)
    assert talk.told == {"whole": 0, "made": 0, "given_up": 1, "why": why}
    # Training goes on, and the next one comes when it is due.
    assert any(type(each) is Lease for each in talk.say(1, Report(epoch=1, want=2, batches=4)))
    if what != "gone":
        assert talk.until(27.0)[1][0].number == 2


def test_a_master_that_is_started_again_gives_the_cut_up() -> None:
    talk = Cuts()
    talk.until(10.5)
    state = msgspec.json.decode(msgspec.json.encode(talk.master.state), type=State)
    again = Coordinator(talk.master.terms, "run", state, 11.0)
    told = again.standing(11.0)["checkpoints"]
    assert (told["given_up"], told["why"]) == (1, "the master was started again")
    assert state.cuts.begun == 1


def test_what_is_told_of_an_older_cut_counts_for_nothing() -> None:
    talk = Cuts()
    talk.until(10.5)
    talk.until(16.0)
    assert talk.until(27.0)[2][0].number == 2
    assert talk.reach(1, SAVED, 1) == {1: [Cut(2, REST, 4, [(0, 4)])]}
    assert talk.reach(2, REST, 2) == {}

"""ShadowSync's page: what each claim tells of records, of runs as small as can be."""

from __future__ import annotations

import json

import pytest

import leashed as lsh
from bench import shadowsync_paced as paced
from bench import shadowsync_sockets as sockets
from bench.papers.claim import End
from bench.papers.shadowsync import CLAIMS
from leashed.cluster.shadowsync.panels import VirtualFigure6, VirtualFigure8
from leashed.cluster.shadowsync.served import VirtualServed
from leashed.cluster.shadowsync.virtual import VirtualTable2, VirtualTable2b

CLICKS = lsh.datasets.synthetic_clicks(600, seed=0, test=200, cardinalities=1000)
SMALL = {"examples": 600, "repeats": 2}
STUDIES = {
    "shadowsync-table2a": VirtualTable2(threads=2, gaps=(2, 5), **SMALL),
    "shadowsync-table2b": VirtualTable2b(threads=2, gaps=(2, 5), **SMALL),
    "shadowsync-figure6": VirtualFigure6(trainers=(2, 4), threads=2, **SMALL),
    "shadowsync-figure8": VirtualFigure8(trainers=(2,), threads=(1, 12, 24, 64), **SMALL),
    "shadowsync-embedding-servers": VirtualServed(trainers=(2, 4), gaps=(2, 5), **SMALL),
    "shadowsync-embedding-servers-more": VirtualServed(
        panel=(VirtualServed.TABLE_3, VirtualServed.FIGURE_8), trainers=(2, 4), **SMALL
    ),
}


@pytest.fixture(scope="module")
def records():
    return {
        name: [json.loads(study.line(study.run(one, CLICKS))) for one in study.settings()]
        for name, study in STUDIES.items()
    }


@pytest.mark.parametrize(
    "claim", [one for one in CLAIMS if one.results in STUDIES], ids=lambda one: one.at
)
def test_a_claim_tells_of_its_runs(claim, records) -> None:
    told = claim.tell(records[claim.results])
    assert told.end in (End.COMES_OUT, End.COMES_OUT_UNDER, End.REFUTED)
    assert told.words
    assert told.table is not None
    assert told.table.rows


def of(table: str, losses: dict[tuple[float, int | None], list[float]]):
    """Records of Table 2 with these losses by (α, gap), seed by seed."""
    records = []
    for (alpha, gap), values in losses.items():
        for repeat, loss in enumerate(values):
            setting = {"repeat": repeat, "sync": "easgd", "gap": gap, "settings": {"alpha": alpha}}
            names = ("train_loss", "eval_loss", "eval_loss_mean", "eval_loss_best", "eval_accuracy")
            measured = {**dict.fromkeys(names, loss), "gap": gap or 5.2, "syncs": 1, "eps": 1.0}
            measured |= {"gap_by_bytes_in": 1.0, "gap_by_bytes_out": 1.0}
            conditions = STUDIES[table].conditions(CLICKS)
            records.append({"setting": setting, "conditions": conditions, "measured": measured})
    return records


AHEAD = {(0.3, None): [0.50, 0.51], (0.3, 5): [0.52, 0.53], (0.3, 10): [0.53, 0.54]}


def claim(at: str):
    return next(one for one in CLAIMS if one.at == at)


def test_table_2_a_comes_out_where_the_shadow_is_ahead_of_every_fixed_rate() -> None:
    told = claim("Table 2(a)").tell(of("shadowsync-table2a", AHEAD))
    assert str(told) == "comes out under α = 0.3, of gaps of 5, 10"
    behind = {gap: [0.50, 0.49] if gap[1] else of_gap for gap, of_gap in AHEAD.items()}
    assert claim("Table 2(a)").tell(of("shadowsync-table2a", behind)).end is End.REFUTED
    barely = claim("Table 2(a)").tell(of("shadowsync-table2a", {**AHEAD, (0.3, 5): [0.49, 0.53]}))
    assert str(barely) == "comes out under α = 0.3, of gaps of 10"


def test_table_2_b_comes_out_where_a_longer_gap_is_best_and_the_shadow_behind() -> None:
    at = claim("Table 2(b)")
    assert at.tell(of("shadowsync-table2b", AHEAD)).end is End.REFUTED
    longer = {**AHEAD, (0.3, 10): [0.49, 0.50]}
    assert str(at.tell(of("shadowsync-table2b", longer))) == "comes out under α = 0.3"
    barely = {**AHEAD, (0.3, 10): [0.49, 0.51]}
    assert at.tell(of("shadowsync-table2b", barely)).end is End.REFUTED


def test_over_sockets_it_comes_out_where_no_shadow_is_behind() -> None:
    records = [
        {"model": "dlrm", "arm": f"{arm}, 1 server", "seed": seed, "test_auc": auc + seed / 100}
        for arm, auc in (("S-EASGD", 0.7), ("FR-EASGD-5", 0.69))
        for seed in range(2)
    ]
    at = claim("Section 4, over sockets")
    assert at.tell(records).end is End.COMES_OUT
    for record in records[:2]:
        record["test_auc"] -= 0.02
    told = at.tell(records)
    assert str(told) == "refuted by dlrm, 1 server"


def test_table_3_compares_rises() -> None:
    def run(gap: int | None, trainers: int, seed: int, loss: float):
        setting = {"panel": "Table 3", "repeat": seed, "trainers": trainers, "gap": gap}
        study = STUDIES["shadowsync-embedding-servers"]
        names = (
            "train_loss",
            "eval_loss",
            "eval_loss_mean",
            "eval_loss_best",
            "eps",
            "gap",
            "row_wait",
        )
        setting |= {"sync": "easgd", "seconds": None, "settings": {"alpha": 0.3}}
        measured = dict.fromkeys(names, loss)
        return {"setting": setting, "conditions": study.conditions(CLICKS), "measured": measured}

    at = claim("Table 3, rows at servers")
    rises = {None: 0.01, 5: 0.02, 30: 0.03}
    for gap, end in ((None, End.REFUTED), (5, End.COMES_OUT_UNDER), (30, End.COMES_OUT)):
        found = at.tell(
            [
                run(
                    arm,
                    n,
                    seed,
                    0.5 * (1 + (0.05 if arm is None and gap is None else rise) * (n == 4)),
                )
                for arm, rise in (rises if gap != 5 else {**rises, 5: 0.005}).items()
                for n in (2, 4)
                for seed in range(2)
            ]
        )
        assert found.end is end, gap


def test_a_panel_without_runs_is_not_judged(records) -> None:
    at, name = claim("Figure 8, rows at servers"), "shadowsync-embedding-servers"
    others = [one for one in records[name] if one["setting"]["panel"] != VirtualServed.FIGURE_8]
    assert others
    assert at.tell(others) is None


def over_sockets(loss):
    """Records over sockets with these losses, by arm, trainers, threads and seed."""
    return [
        {"arm": arm[0], "trainers": arm[1], "threads": arm[2], "seed": seed, "test_auc": 0.7}
        | {
            "train_loss": loss(*arm, seed),
            "eval_loss": loss(*arm, seed),
            "gap": 5.0,
            "row_bytes": 1.0,
        }
        for seed in range(3)
        for arm in sockets.arms()
    ]


SMALL_CLAIMS = [one for one in CLAIMS if one.results == sockets.RESULTS]


def test_over_sockets_all_comes_out_where_the_shadow_is_ahead_and_rises_least() -> None:
    def ahead(arm, trainers, threads, seed):
        behind = {sockets.S_EASGD: 0.0, f"S-{sockets.WIDE}": 0.01}.get(arm, 0.02)
        behind += 0.005 if arm.startswith("FR") else 0.0
        return 0.5 + 0.001 * seed + (behind + 1e-4 * threads) * trainers

    records = over_sockets(ahead)
    ends = {one.at.partition(",")[0]: one.tell(records).end for one in SMALL_CLAIMS}
    assert set(ends) == {"Table 2", "Table 3", "Figure 6(a)", "Figure 7", "Figure 8"}
    assert set(ends.values()) == {End.COMES_OUT}
    page = sockets.page(records)
    assert page.count("over sockets: comes out.") == len(SMALL_CLAIMS)


def test_over_sockets_a_fixed_rate_that_is_ahead_refutes() -> None:
    def behind(arm, trainers, threads, seed):
        return 0.5 + 0.001 * seed + (0.01 + 0.01 * threads) * trainers * arm.startswith("S")

    records = over_sockets(behind)
    assert {one.tell(records).end for one in SMALL_CLAIMS} == {End.REFUTED}
    words = claim("Figure 6(a), over sockets").tell(records).of
    assert words == "a fixed rate: MA, 2 trainers; MA, 4 trainers; " + "; ".join(
        f"{sockets.BMUF}, {n} trainers" for n in sockets.TRAINERS
    )


@pytest.mark.process
def test_a_run_over_sockets_tells_losses_rounds_and_bytes() -> None:
    told = sockets.run(("FR-EASGD-30", 2, 1), 0)
    assert 0.4 < told["eval_loss"] < 0.7
    assert 29 < told["gap"] < 40
    assert 1.0 <= told["row_bytes"] < 1.03


def test_examples_a_second_over_sockets_come_out_where_each_arm_grows() -> None:
    def records(slow: float):
        return [
            {"arm": arm, "trainers": n, "repeat": repeat, "eps": 600.0 * n + repeat}
            | ({"eps": slow * n} if arm.startswith("FR") and n == 4 else {})
            for arm in paced.arms()
            for n in sockets.TRAINERS
            for repeat in range(2)
        ]

    at = claim("Figure 6(b), over sockets")
    assert at.tell(records(600.0)).end is End.COMES_OUT
    assert at.tell(records(500.0)).of == "FR-MA, which grows 1.67 times"
    assert "over sockets: comes out." in sockets.page(records(600.0), paced.RESULTS)


@pytest.mark.process
@pytest.mark.long
def test_trainers_that_wait_tell_their_examples_a_second() -> None:
    told = paced.run("S-MA", 2, 0)
    assert told["eps"] > 0
    assert told | {"eps": 0} == {"arm": "S-MA", "trainers": 2, "repeat": 0, "eps": 0}

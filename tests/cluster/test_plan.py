"""Plans: to TOML and back, and what is wrong with them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from cluster import written
from hypothesis import given
from hypothesis import strategies as st
from warned import once

import leashed as lsh
from leashed.cluster import plan as plans
from leashed.cluster.plan import Cluster, Plan, Sync, Train
from leashed.training import spelled

HERE = Path("/somewhere")
_DLRM = "[cluster]\nembedding_ps = 2\n[train]\nmodel = 'dlrm'\n"
POSITIVE = st.floats(1e-3, 1e3)


@st.composite
def drawn(draw):
    """Any plan as it is after reading: with absolute paths."""
    when = st.one_of(
        st.just("background"),
        st.builds(lambda n: {"iterations": n}, st.integers(1, 10**6)),
        st.builds(lambda s: {"seconds": s}, POSITIVE),
        st.just({"iterations": {"0": 5, "1000": 30}}),
    )
    share = st.floats(0.0, 1.0)
    parts = st.integers(1, 9)
    kinds = st.sampled_from(
        [
            ("easgd", {"alpha": share, "symmetric": st.booleans(), "parts": parts}),
            ("ma", {"alpha": share, "difference": st.booleans()}),
            ("bmuf", {"eta": POSITIVE, "momentum": st.just(0.5), "nesterov": st.booleans()}),
            ("none", {}),
        ]
    )
    kind, known = draw(kinds)
    settings = st.fixed_dictionaries({}, optional=known)
    spelt = settings.map(lambda given: spelled.with_settings(kind, given))
    paths = st.text("ab\"\\' é\x7f🙂.", min_size=1, max_size=8).map(lambda name: HERE / f"x{name}")
    cluster = st.builds(
        Cluster,
        master=st.sampled_from(["127.0.0.1:7000", "[::1]:7001", "head.example:1"]),
        trainers=st.integers(1, 64),
        sync_ps=st.integers(1, 8) if kind == "easgd" else st.just(0),
        run=paths,
        key=st.none() | paths,
        transport=st.sampled_from(["auto", "tcp", "shm"]),
        restarts=st.integers(0, 100),
        patience=POSITIVE,
        snapshot_every=POSITIVE,
        ports=st.none() | st.integers(20_000, 60_000),
        prometheus=st.none() | st.integers(1, 9999) | st.just("10.0.0.1:9100"),
    )
    train = st.builds(
        Train,
        data=st.just("digits") | paths.map(str),
        model=st.sampled_from(["mlp", "cnn", "lenet", "logistic_regression", "fm"]),
        test=st.none() | paths.map(str),
        format=st.sampled_from([None, "libsvm", "libffm", "criteo"]),
        zero_based=st.booleans(),
        hash_bits=st.none() | st.integers(1, 20),
        factors=st.none() | st.integers(1, 20),
        l2=st.none() | POSITIVE,
        evaluate_every=st.none() | POSITIVE,
        loss=st.none() | POSITIVE,
        updates=st.none() | st.integers(1, 1000),
        discipline=st.none() | st.sampled_from(["leashed:persistence=2", "hogwild:copy=false"]),
        rule=st.sampled_from(["sgd", "adam:beta1=0.8,amsgrad=true"]),
        lr=st.none() | POSITIVE,
        schedule=st.sampled_from([(), ("cosine:total=1000", "warmup:steps=5")]),
        staleness=st.sampled_from(["none", "power:k=2"]),
        threads=st.integers(1, 8) | st.just("auto"),
        epochs=st.none() | POSITIVE,
        seconds=st.none() | POSITIVE,
        seed=st.integers(0, 2**31),
        output=st.sampled_from(plans.OUTPUTS),
    )
    sync = st.builds(Sync, kind=spelt, when=when)
    return Plan(draw(cluster), draw(sync), draw(train))


@given(drawn())
def test_a_plan_written_is_read_as_it_was(plan):
    assert plans.parse(plan.text(), HERE) == plan


def test_an_empty_file_is_a_plan_of_defaults(tmp_path):
    file = tmp_path / "plan.toml"
    file.write_text("")
    plan = plans.read(file)
    assert plan.train.epochs == 10.0
    assert plan.cluster.run == tmp_path / "run"
    assert plan.cluster.key_file == tmp_path / "run" / "key"
    assert plan.cluster.address == ("127.0.0.1", 0)
    plans.write(file, plan)
    assert plans.read(file) == plan


def test_paths_are_relative_to_the_plan(tmp_path, monkeypatch):
    (tmp_path / "plan.toml").write_text(
        '[cluster]\nrun = "out"\nkey = "/etc/key"\n[train]\ndata = "mnist"\nseconds = 2\n'
    )
    monkeypatch.chdir(tmp_path)
    plan = plans.read("plan.toml")
    assert plan.cluster.run == tmp_path / "out"
    assert plan.cluster.key_file == Path("/etc/key")
    assert plan.train.data == str(tmp_path / "mnist")
    assert (plan.train.epochs, plan.train.seconds) == (None, 2)


def test_the_master_comes_first_and_trainers_last():
    assert Cluster(trainers=2, sync_ps=1).processes() == [
        ("master", 0),
        ("sync-ps", 0),
        ("trainer", 0),
        ("trainer", 1),
    ]


def test_ports_are_those_of_servers_and_behind_them_those_of_trainers():
    some = Cluster(trainers=2, sync_ps=2, embedding_ps=1, ports=7000)
    assert {which: some.port(*which) for which in some.processes()[1:]} == {
        ("sync-ps", 0): 7000,
        ("sync-ps", 1): 7001,
        ("embedding-ps", 0): 7002,
        ("trainer", 0): 7003,
        ("trainer", 1): 7004,
    }
    assert Cluster().port("trainer", 1) == 0  # any that is free


def test_there_are_as_many_sync_servers_as_are_needed():
    for kind, count in (("easgd", 1), ("ma", 0), ("bmuf", 0), ("diloco", 0), ("none", 0)):
        assert plans.parse(f"[sync]\nkind = '{kind}'", HERE).cluster.sync_ps == count
    assert plans.parse("[cluster]\nsync_ps = 3", HERE).cluster.sync_ps == 3


def test_a_model_of_clicks_is_trained_for_a_pass_with_embedding_servers():
    plan = plans.parse(f"{_DLRM}data = 'clicks'\ndim = 8\nrows = 500", HERE)
    assert (plan.cluster.embedding_ps, plan.cluster.ahead) == (2, 1)
    assert (plan.train.data, plan.train.epochs) == ("clicks", 1.0)
    assert plans.parse(plan.text(), HERE) == plan
    assert plans.parse(f"{_DLRM}epochs = 3", HERE).train.epochs == 3.0


@given(
    st.builds(
        Cluster,
        embedding_ps=st.integers(1, 8),
        embedding_loops=st.none() | st.integers(1, 256),
        embedding_mib=st.none() | st.floats(1.0, 1e6),
        look_ahead=st.integers(0, 5),
        pooling=st.sampled_from(["auto", "rows", "servers"]),
    )
)
def test_a_plan_with_embedding_servers_is_read_as_it_was_written(cluster):
    plan = plans.Plan(cluster, plans.Sync(), Train(model="dlrm", data="clicks", dim=8, rows=500))
    assert plans.parse(plan.text(), HERE) == plans.parse(
        plans.parse(plan.text(), HERE).text(), HERE
    )
    assert plans.parse(plan.text(), HERE).cluster.look_ahead == cluster.look_ahead


def test_a_synchroniser_is_made_of_its_words():
    assert Sync("none").synchroniser() is None
    words = Sync("bmuf:eta=0.5", {"iterations": {"0": 5, "100": 30}})
    gaps = lsh.sync.every(iterations={0: 5, 100: 30})
    assert words.synchroniser() == lsh.sync.BMUF(eta=0.5, when=gaps)
    assert Sync().synchroniser() == lsh.sync.EASGD()
    assert Sync("diloco:iterations=9").synchroniser() == lsh.sync.diloco(iterations=9)


def test_the_words_make_what_they_make_on_the_command_line():
    train = Train(
        rule="adam:beta1=0.8", lr=0.1, staleness="power:k=2", discipline="leashed:persistence=3"
    )
    assert spelled.rule_of(train) == lsh.Adam(0.1, 0.8)
    assert spelled.staleness_of(train) == lsh.staleness.power(2)
    assert spelled.discipline_of(train.discipline) == lsh.Leashed(3)


def test_what_was_spelled_otherwise_goes_on_with_a_warning():
    text = (
        "[sync]\nkind = 'bmuf:momentum=0.5'\neta = 0.5\nnesterov = true\nwhen = {iterations = 5}\n"
        "[train]\ndiscipline = 'leashed'\npersistence = 2\n"
    )
    with once(
        'sync.eta, sync.nesterov: spelled kind = "bmuf:',
        'sync.when = { iterations = 5 } is spelled when = "every:iterations=5" now',
        "train.persistence = 2 is spelled train.discipline = ",
    ) as told:
        plan = plans.parse(text, HERE)
    assert plan.sync == Sync("bmuf:momentum=0.5,eta=0.5,nesterov=true", "every:iterations=5")
    assert plan.sync.synchroniser() == lsh.sync.BMUF(
        eta=0.5, momentum=0.5, nesterov=True, when=lsh.sync.every(iterations=5)
    )
    assert plan.train.discipline == "leashed:persistence=2"
    assert [str(each.message) for each in told] == [
        'sync.eta, sync.nesterov: spelled kind = "bmuf:momentum=0.5,eta=0.5,nesterov=true" now',
        'sync.when = { iterations = 5 } is spelled when = "every:iterations=5" now',
        'train.persistence = 2 is spelled train.discipline = "leashed:persistence=2" now',
    ]
    assert plans.parse(plan.text(), HERE) == plan  # and is written as it is spelled now


def test_settings_of_no_synchroniser_say_nothing_as_before():
    with once(': kind = "none" has no settings; leave out what says nothing'):
        plan = plans.parse("[sync]\nkind = 'none'\nalpha = 0.5\nparts = 2\n", HERE)
    assert plan.sync == Sync("none")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "[sync]\nkind = 'easgd:alpha=0.5'\nalpha = 0.2",
            "sync.alpha and sync.kind easgd:alpha=0.5",
        ),
        (
            "[train]\ndiscipline = 'leashed:persistence=1'\npersistence = 2",
            'train.persistence = 2 and train.discipline = "leashed:persistence=1"',
        ),
    ],
)
def test_a_setting_in_both_spellings_is_refused(text, names):
    with pytest.raises(ValueError, match=f"{names} both give .*; give the second alone"):
        plans.parse(text, HERE)


def test_files_of_rows(tmp_path):
    written.rows(tmp_path / "rows.svm", 0)
    written.rows(tmp_path / "test.svm", 1, count=50)
    lines = "[train]\ndata = 'rows.svm'\nmodel = '{}'\nbatch_size = 15\nepochs = 2\n"

    def of(model: str, more: str = "") -> plans.Train:
        return plans.parse(lines.format(model) + more, tmp_path).train

    model, data, test = of("fm", "test = 'test.svm'\nfactors = 3\nl2 = 0.5").problem()
    assert model == lsh.models.fm(30, 3, l2=0.5)
    assert (len(data), len(test)) == (400, 50)
    train = of("linear_svm")
    model, data, test = train.problem()
    assert model == lsh.models.linear_svm(30, 2)
    assert (len(data), len(test)) == (320, 80)
    assert train.batches(data) == 2 * math.ceil(320 / 15)
    for more, why in (
        ("hash_bits = 3", "train.hash_bits goes with train.format criteo or csv"),
        ("factors = 3", "train.factors goes with train.model fm or ffm"),
        ("bad = 'skip'", "train.bad goes with train.stream, or train.format criteo"),
        ("schema = 'no'\nformat = 'libsvm'", "train.schema is of train.format csv, not of libsvm"),
    ):
        with pytest.raises(ValueError, match=why):
            of("linear_svm", more).problem()
    with pytest.raises(ValueError, match=r"train\.model fm takes train\.data FILE"):
        Train(model="fm").problem()
    with pytest.raises(ValueError, match=r"train\.l2 goes with train\.model linear_regression"):
        Train(l2=0.1).problem()


def test_data_and_network(digits):
    train = Train(batch_size=64, epochs=1.5)
    model, data, test = train.problem()
    assert model.dimension == 134_794
    assert min(len(data), len(test)) > 0
    assert train.batches(digits) == math.ceil(1.5 * 1000 / 64)
    assert Train(seconds=1.0).batches(digits) is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[cluster", "this is no TOML"),
        ("[other]\na = 1", "other is unknown; a plan has the tables"),
        ("sync = 1", "sync must be a table"),
        ("[cluster]\ntrainer = 2", "cluster.trainer is unknown; it may have master, trainers"),
        (
            "[cluster]\npolicy_ps = 0\n[train]\nmode = 'gba'",
            "cluster without a policy server is not for runs with a mode, since",
        ),
        ("[cluster]\npolicy_ps = 1", "a run with policy servers is for runs with a mode"),
        (
            "[cluster]\nsync_ps = 1\n[train]\nmode = 'gba'",
            "cluster.sync_ps must be 0 with train.mode, got 1: the policy server has",
        ),
        ("[sync]\nkind = 'ma'\n[train]\nmode = 'gba'", "sync is not for runs with a mode"),
        (
            "[cluster]\nsync_ps = 2\n[sync]\nkind = 'none'",
            "cluster.sync_ps must be 0 with sync.kind none, to which no sync server is of use, got 2",
        ),
        ("[cluster]\nsync_ps = 1\n[sync]\nkind = 'ma:alpha=0.5'", "must be 0 with sync.kind ma,"),
        ("[train]\nmode = 'swarm:h=1'", "a mode without a server is not for runs with policy"),
        (
            "[cluster]\nembedding_ps = 1\n[train]\nmode = 'gba'\nmodel = 'dlrm'\ndata = 'clicks'",
            "a run with embedding servers is not for runs with policy servers",
        ),
        (
            "[train]\nmode = 'gba'\nmodel = 'dlrm'\ndays = ['a']",
            "train.days are not for train.model dlrm with train.mode",
        ),
        (
            "[train]\nmode = 'easgd:alpha=0.5,gap=2'\nmodel = 'dlrm'\ndata = 'clicks'",
            "a model that reads tables is not for modes whose workers send models",
        ),
        ("[train]\nstream = true", "cluster is not for streams, since"),
        ("[train]\ndays = ['a']", "train.days must be a list of files, of models of clicks"),
        (
            "[train]\nmodel = 'dlrm'",
            "cluster.embedding_ps must be at least 1 with train.model dlrm",
        ),
        ("[cluster]\nembedding_ps = 1", "cluster.embedding_ps must be 0 with train.model mlp"),
        ("[cluster]\nembedding_ps = -1", "cluster.embedding_ps must be at least 0"),
        ("[cluster]\nembedding_loops = 0", "cluster.embedding_loops must be at least 1"),
        ("[cluster]\nembedding_mib = 0", "cluster.embedding_mib must be greater than 0"),
        ("[cluster]\nlook_ahead = 6", "cluster.look_ahead must be at most 5"),
        (
            "[cluster]\nlook_ahead = 2",
            "cluster.look_ahead is for embedding servers and modes; give",
        ),
        ("[cluster]\nembedding_loops = 1", "cluster.embedding_loops is for embedding servers"),
        ("[cluster]\nembedding_mib = 1", "cluster.embedding_mib is for embedding servers"),
        ('[cluster]\npooling = "rows"', "cluster.pooling is for embedding servers"),
        ('[cluster]\npooling = "nowhere"', "cluster.pooling must be "),
        (
            f"{_DLRM}threads = 'auto'",
            'threads="auto" is not for runs with embedding servers, since',
        ),
        (
            f"{_DLRM}discipline = 'synchronous'",
            "embedding servers is not for disciplines in lockstep, since",
        ),
        ("[train]\nfactors = 'x'", "train.factors must be a whole number"),
        ("[train]\nl2 = 'x'", "train.l2 must be a number"),
        ("[train]\nzero_based = 1", "train.zero_based must be True or False"),
        ("[train]\nformat = 'xml'", "train.format must be one of libsvm, libffm, criteo, csv"),
        ("[train]\nthreads = 'some'", "train.threads must be a whole number"),
        ("[sync]\nkind = 'none:alpha=1'", "sync.kind none:alpha=1: none has no 'alpha'"),
        ("[cluster]\ntrainers = 0", "cluster.trainers must be at least 1"),
        ("[cluster]\ntrainers = 2.5", "cluster.trainers must be a whole number"),
        ("[cluster]\ntrainers = true", "cluster.trainers must be a whole number"),
        ("[cluster]\nmaster = '::1'", "cluster.master"),
        ("[cluster]\nmaster = 5", "cluster.master must be a str"),
        ("[cluster]\nmaster = '10.0.0.1:0'", "cluster.master must name a port"),
        ("[cluster]\nrun = 5", "cluster.run must be a path"),
        ("[cluster]\ntransport = 'udp'", "cluster.transport must be one of auto, tcp, shm"),
        ("[cluster]\ntimeout = 0.1", "cluster.timeout must be at least three beats (1.5 s)"),
        ("[cluster]\nsnapshot_every = 0", "cluster.snapshot_every must be greater than 0"),
        ("[cluster]\nprometheus = 70000", "cluster.prometheus must be at most 65535"),
        ("[cluster]\nprometheus = '10.0.0.1'", "cluster.prometheus must be 'host:port'"),
        ("[cluster]\nprometheus = ':9'", "cluster.prometheus must be 'host:port'"),
        ("[cluster]\nprometheus = '10.0.0.1:0'", "cluster.prometheus must be at least 1"),
        ("[cluster]\nprometheus = true", "cluster.prometheus must be a whole number"),
        ("[cluster]\nports = 0", "cluster.ports must be at least 1"),
        ("[cluster]\nports = '7000'", "cluster.ports must be a whole number"),
        ("[cluster]\nports = 65534", "cluster.ports must be at most 65533, so that the 3 ports of"),
        ("[cluster]\nmaster = '10.0.0.1:7002'\nports = 7000", "cluster.ports: 7000 to 7002 are"),
        ("[cluster]\nprometheus = 7000\nports = 7000", "cluster.ports: 7000 to 7002 are"),
        ("[sync]\nkind = 3", "sync.kind must be a text"),
        (
            "[sync]\nkind = 'x'",
            "sync.kind 'x' is unknown; choose one of easgd, ma, bmuf, diloco, none",
        ),
        ("[sync]\nkind = 'easgd:alpha=2'", "sync.alpha must be from 0 to 1"),
        ("[sync]\nkind = 'easgd:eta=1'", "sync.kind easgd:eta=1: easgd has no 'eta'; it has "),
        ("[sync]\nkind = 'diloco'\nwhen = 'every:seconds=1'", "sync.kind diloco: "),
        ("[sync]\nwhen = {iterations = {5 = 5}}", "sync.when: iterations must tell the gap from"),
        ("[sync]\nwhen = {iterations = {x = 5}}", "sync.when: "),
        ("[cluster]\nsync_ps = 0", "cluster.sync_ps must be at least 1 with easgd"),
        ("[sync]\nalpha = 'x'", "sync.alpha must be a number"),
        ("[sync]\n'a b' = 1", "sync.a b is unknown"),
        ("[sync]\nwhen = 'often'", "sync.when must be"),
        ("[sync]\nwhen = {iterations = 5, seconds = 1}", "sync.when must be"),
        ("[sync]\nwhen = {hours = 5}", "sync.when must be"),
        ("[sync]\nwhen = 'every:iterations=0'", "sync.when: iterations must be at least 1"),
        ("[sync]\nwhen = 'every:seconds=0'", "sync.when: seconds must be greater than 0"),
        (
            "[sync]\nkind = 'none'\ncompression = 'int8'",
            "sync.compression is of what a synchroniser sends, and there is none, got 'int8'",
        ),
        ("[sync]\ncompression = 'zip'", "sync.compression must be one of none, bfloat16, int8"),
        ("[train]\ndata = 5", "train.data must be a text"),
        ("[train]\nmodel = 'rnn'", "train.model must be one of mlp, cnn, lenet"),
        ("[train]\ndiscipline = 'other'", "train.discipline 'other' is unknown; choose one of"),
        (
            "[train]\ndiscipline = 'locked:persistence=1'",
            "train.discipline locked:persistence=1: locked has no",
        ),
        ("[train]\nrule = 'sdg'", "train.rule 'sdg' is unknown"),
        ("[train]\nrule = 'adam:beta9=1'", "train.rule adam:beta9=1: "),
        ("[train]\nstaleness = 'x'", "train.staleness 'x' is unknown"),
        ("[train]\nschedule = 'cosine'", "train.schedule must be a list of texts"),
        ("[train]\nschedule = [1]", "train.schedule must be a text"),
        ("[train]\nlr = -1", "lr must"),
        ("[train]\nepochs = 0", "epochs must"),
        ("[train]\nthreads = 0", "train.threads must be at least 1"),
        *(
            (f"[train]\n{name} = {value}", f"train.{name} must be {wanted}")
            for name in ("updates", "batch_size", "features", "hash_bits", "factors")
            for value, wanted in (
                ("'auto'", "a whole number, got 'auto'"),
                (0, "at least 1"),
                (-1, "at least 1"),
            )
        ),
        ("[train]\noutput = 'last'", "train.output must be one of first, average, best"),
    ],
)
def test_what_is_wrong_is_told_with_its_name_and_file(text, complaint, tmp_path):
    file = tmp_path / "plan.toml"
    file.write_text(text)
    with pytest.raises((TypeError, ValueError)) as error:
        plans.read(file)
    assert str(error.value).startswith(f"{file}: {complaint}") or complaint in str(error.value)
    assert str(file) in str(error.value)


def test_a_look_ahead_that_says_nothing_is_left_out_and_told():
    """As plans of all kinds had one once."""
    with once("look_ahead = 1: there are neither embedding servers", here=False):
        plan = plans.parse("[cluster]\nlook_ahead = 1\n[sync]\nkind = 'easgd'", HERE)
    assert plan.cluster.look_ahead is None

"""Rank, size and address from what launchers put into the environment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leashed.cluster import placing
from leashed.cluster.placing import PORT, Place, address, find, hosts

# As torchrun 2.13, Open MPI 5, MPICH 5 and Slurm 23 set them.
TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "10.0.0.7",
    "MASTER_PORT": "29500",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
MPICH = {"PMI_RANK": "0", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "3"}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_NODELIST": "gpu[03-04,12],login",
}


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        (TORCHRUN, Place(3, 4, "10.0.0.7", PORT, 1, "torchrun")),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "4"}, Place(3, 4, "127.0.0.1", PORT, 1, "torchrun")),
        (OPEN_MPI, Place(1, 2, "127.0.0.1", PORT, 1, "Open MPI")),
        (
            {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "MASTER_ADDR": "head"},
            Place(1, 2, "head", PORT, 1, "Open MPI"),
        ),
        (MPICH, Place(0, 3, "127.0.0.1", PORT, 0, "MPICH")),
        (SLURM, Place(5, 8, "gpu03", PORT, 1, "Slurm")),
        ({**SLURM, "SLURM_JOB_NODELIST": "one"}, Place(5, 8, "127.0.0.1", PORT, 1, "Slurm")),
        (
            {
                **SLURM,
                "SLURM_STEP_NODELIST": "gpu[12]",
                "SLURM_NTASKS": "12",
                "SLURM_STEP_NUM_TASKS": "6",
            },
            Place(5, 6, "127.0.0.1", PORT, 1, "Slurm"),
        ),
        # mpirun and torchrun within an allocation of Slurm: theirs are the processes.
        ({**SLURM, **MPICH}, Place(0, 3, "127.0.0.1", PORT, 0, "MPICH")),
        ({**SLURM, **TORCHRUN}, Place(3, 4, "10.0.0.7", PORT, 1, "torchrun")),
        (
            {**SLURM, **OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"},
            Place(1, 2, "gpu03", PORT, 1, "Open MPI"),
        ),
        # As of srun --mpi=pmi2, which does not tell what MPICH's own launcher tells of a machine.
        (
            {**SLURM, "PMI_RANK": "5", "PMI_SIZE": "8"},
            Place(5, 8, "gpu03", PORT, 1, "Slurm"),
        ),
    ],
)
def test_each_launcher_tells_a_place(environment, place):
    assert find(environment) == place


def test_arguments_come_before_the_environment():
    place = find(TORCHRUN, rank=1, size=2, rendezvous="host:7000")
    assert place == Place(1, 2, "host", 7000, 0, "arguments")
    assert find({}, rank=0, size=1).host == "127.0.0.1"


def test_a_rendezvous_comes_before_what_the_launcher_says():
    assert find(TORCHRUN, rendezvous="[fe80::1]:7000").host == "fe80::1"
    assert find(MPICH, rendezvous="other").host == "other"


@pytest.mark.parametrize(
    ("environment", "arguments", "complaint"),
    [
        ({}, {}, "torchrun, mpirun or srun"),
        ({"RANK": "0"}, {}, "WORLD_SIZE"),
        ({"RANK": "x", "WORLD_SIZE": "2"}, {}, "RANK must be a whole number, got 'x'"),
        # As in the script of a job of several tasks.
        (
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "2"},
            {},
            "by srun, and not by the job's script itself",
        ),
        ({"PMI_RANK": "2", "PMI_SIZE": "2"}, {"rendezvous": "a"}, "rank must be at most 1"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, {}, "where rank 0 is \\(MPICH does not\\)"),
        ({}, {"rank": 0}, "rank and size go together"),
        ({}, {"rank": 0, "size": 2}, "give rendezvous"),
        ({}, {"rank": 0, "size": 2, "rendezvous": "a:b"}, "HOST:PORT"),
    ],
)
def test_what_is_missing_is_told(environment, arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        find(environment, **arguments)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("host", ("host", PORT)),
        ("host.example:80", ("host.example", 80)),
        ("127.0.0.1:65535", ("127.0.0.1", 65_535)),
        ("[::1]", ("::1", PORT)),
        ("[fe80::1]:7", ("fe80::1", 7)),
    ],
)
def test_addresses(text, found):
    assert address(text) == found


@pytest.mark.parametrize("text", ["", ":80", "host:", "host:0", "host:65536", "::1", "a b", "[]:1"])
def test_what_is_no_address_is_told(text):
    with pytest.raises(ValueError, match="an address is HOST"):
        address(text)


@pytest.mark.parametrize(
    ("listed", "found"),
    [
        ("one", ["one"]),
        ("a,b", ["a", "b"]),
        ("node[01-03,7],other", ["node01", "node02", "node03", "node7", "other"]),
        ("node[9-11]", ["node9", "node10", "node11"]),
        ("node[09-11]", ["node09", "node10", "node11"]),
        ("r[1-2]n[0-1]", ["r1n0", "r1n1", "r2n0", "r2n1"]),
        ("n[1].site,m", ["n1.site", "m"]),
    ],
)
def test_node_lists(listed, found):
    assert hosts(listed) == found


@pytest.mark.parametrize(
    "listed",
    [
        "",
        "a,",
        "a[1",
        "a]1[",
        "a[]",
        "a[1-]",
        "a[3-1]",
        "a[x]",
        "a[1,[2]]",
        "a[0-70000]",
        "a b",
        "a[0-999]b[0-999]",
    ],
)
def test_what_is_no_node_list_is_told(listed):
    with pytest.raises(ValueError, match=r"list|range|brackets"):
        hosts(listed)


NAME = st.from_regex(r"[a-z][a-z-]{0,5}", fullmatch=True).filter(lambda name: name[-1] != "-")
NUMBER = st.tuples(st.integers(0, 300), st.integers(0, 12), st.integers(1, 5))  # first, more, width


@st.composite
def lists(draw):
    """A node list, and the hosts it stands for."""
    listed, names = [], []
    for _ in range(draw(st.integers(1, 4))):
        name = draw(NAME)
        ranges = draw(st.lists(NUMBER, max_size=3))
        if not ranges:
            listed.append(name)
            names.append(name)
            continue
        written = []
        for first, more, width in ranges:
            low, high = f"{first:0{width}}", f"{first + more:0{width}}"
            written.append(low if not more else f"{low}-{high}")
            names += [f"{name}{number:0{width}}" for number in range(first, first + more + 1)]
        listed.append(f"{name}[{','.join(written)}]")
    return ",".join(listed), names


@given(lists())
def test_a_node_list_gives_the_hosts_it_was_written_from(case):
    listed, names = case
    assert hosts(listed) == names


@given(st.text("ab01[]-, ", max_size=12))
def test_any_text_is_a_list_of_names_or_refused(text):
    try:
        found = hosts(text)
    except ValueError:
        return
    assert found
    assert all(name and not set(name) & set("[], ") for name in found)
    assert len(found) <= placing._MOST_HOSTS

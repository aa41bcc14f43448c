"""Collectives of MPI on device memory under the shim: every byte right, and by polypath where the
ranks agree to that, by MPI where they do not (intercept/src/mpi/comm_state.hpp). This Open MPI
takes no device memory: what goes to it is staged in host memory."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import BUILD, NODE, ROOT, _run, _shim_settings, environment

# With POLYPATH_MPICH_PREFIX as the build had it (CMakeLists.txt).
MPICH = Path(os.environ.get("POLYPATH_MPICH_PREFIX", ""), "bin", "mpiexec")

# Between "nodes" TCP, as it would be.
TCP = {"UCX_TLS": "tcp,self"}

FUNCTIONS = (
    "MPI_Allreduce",
    "MPI_Reduce_scatter_block",
    "MPI_Allgather",
    "MPI_Bcast",
    "MPI_Alltoall",
)


@dataclass
class Ranks:
    """What the ranks called with elements, by function, and what the shim of each counted."""

    calls: Counter
    statistics: list[dict]

    def counted(self, what: str) -> Counter:
        """The first rank's counts, by function, for counts of any width."""
        counts: Counter = Counter()
        for function, entry in self.statistics[0]["calls"].items():
            counts[function.removesuffix("_c")] += entry[what]
        return +counts

    def reasons(self, rank: int = 0) -> Counter:
        """Why calls of a rank with elements went to MPI."""
        counts: Counter = Counter()
        for entry in self.statistics[rank]["calls"].values():
            counts.update(entry["to_mpi"])
        del counts["no elements"]
        return counts


Output = Callable[..., tuple[int, str]]


@pytest.fixture
def output_of(tmp_path) -> Output:
    """output_of(RANKS, CASE, SEED, mpich=None, nodes="", last={}, options=[], SETTING=value...):
    exit code and output of mpi_collectives under the shim; `mpich`: with MPICH, and the handles of
    "mpich" or "standard"; `nodes`: a letter for each rank, by which this machine is several nodes;
    `last`: settings of the last rank alone; `options`: of mpirun."""

    def run(
        ranks: int,
        case: str,
        seed: int = 1,
        mpich: str | None = None,
        nodes: str = "",
        last: dict[str, str] | None = None,
        options: Sequence[str] = (),
        **settings: str,
    ) -> tuple[int, str]:
        under_shim = _shim_settings(tmp_path, tmp_path)
        command: list[object] = [ROOT / "scripts" / "mpi_env.sh", "mpirun"]
        program = [BUILD / "bin" / "mpi_collectives", case, seed]
        words: list[str] = []  # for env
        if mpich is not None:
            program[0] = program[0].with_name(f"mpi_collectives_{mpich}")
            command = [MPICH]
            words = [f"LD_PRELOAD={under_shim.pop('LD_PRELOAD')}"]
            if NODE != "real":
                settings["LD_LIBRARY_PATH"] = str(BUILD / "simulated-driver")
                settings["POLYPATH_SIM_MODE"] = "functional"
        alone: list[dict[str, str]] = [{"POLYPATH_COMM_NODE": name} for name in nodes]
        if last is not None:
            alone = [*(alone or [{}] * ranks)[:-1], {**(alone[-1] if alone else {}), **last}]
        command += options
        for of_rank in alone:
            assignments = [f"{name}={value}" for name, value in of_rank.items()]
            command += ["-n", 1, "env", *words, *assignments, *program, ":"]
        if alone:
            del command[-1]
        else:
            command += ["-n", ranks, "env", *words, *program]
        written = tmp_path / "output"  # by ranks of programs that mpirun ends
        written.unlink(missing_ok=True)
        settings["POLYPATH_TEST_OUTPUT"] = str(written)
        code, output = _run(
            [str(part) for part in command], environment({**under_shim, **settings})
        )
        return code, output + (written.read_text() if written.exists() else "")

    return run


@pytest.fixture
def collectives(tmp_path, output_of) -> Callable[..., Ranks]:
    """As output_of(), which must succeed: what the ranks reported."""

    def run(ranks: int, case: str, *arguments: int, **settings) -> Ranks:
        code, output = output_of(ranks, case, *arguments, **settings)
        assert code == 0, output
        reports = [json.loads(line) for line in output.splitlines() if line.startswith('{"rank"')]
        assert len(reports) == ranks, output
        reports.sort(key=lambda report: report["rank"])
        statistics = [
            json.loads((tmp_path / f"statistics.{report['pid']}.json").read_text())["mpi"]
            for report in reports
        ]
        return Ranks(Counter(reports[0]["calls"]), statistics)

    return run


def check_alike(ran: Ranks) -> None:
    """Ranks of the same communicators took the same calls."""
    for statistics in ran.statistics[1:]:
        for function, entry in statistics["calls"].items():
            assert entry["taken"] == ran.statistics[0]["calls"][function]["taken"]


EVERY_KIND = ",".join(FUNCTIONS)


def test_every_kind(collectives):
    ran = collectives(2, EVERY_KIND)
    assert ran.calls.keys() == set(FUNCTIONS)
    assert ran.counted("taken") == ran.calls
    assert not ran.reasons()
    for function in FUNCTIONS:
        assert ran.statistics[0]["calls"][function]["to_mpi"]["no elements"] > 0
    assert ran.statistics[0]["communicators"] == 1
    check_alike(ran)


@pytest.mark.parametrize("ranks, seed", [(2, 3), (4, 4)])
def test_random_calls_and_late_ranks(collectives, ranks, seed):
    ran = collectives(ranks, "random", seed, POLYPATH_SIM_SEED=str(seed))
    assert ran.counted("taken") == ran.calls
    assert ran.statistics[0]["communicators"] == 2


def test_communicators_come_and_go(collectives):
    ran = collectives(3, "communicators")
    # The last rank is alone in some.
    alone = ran.counted("staged")
    assert ran.counted("taken") + alone == ran.calls
    assert ran.statistics[0]["communicators"] == 4
    assert ran.statistics[0]["refused"] == 0


def test_communicators_are_freed_in_any_order(output_of):
    """A rank that waited in MPI_Comm_free for the others would do so for longer than this test."""
    code, output = output_of(3, "freed-in-any-order", POLYPATH_COMM_TIMEOUT_MS="1000000")
    assert code == 0, output
    assert "warning" not in output
    assert output.count('{"rank"') == 3


def test_multi_node_comms_are_freed_in_any_order(output_of):
    code, output = output_of(
        4, "freed-in-any-order", nodes="aabb", POLYPATH_COMM_TIMEOUT_MS="1000000", **TCP
    )
    assert code == 0, output
    assert "warning" not in output
    assert output.count('{"rank"') == 4


def test_host_memory_stays_with_mpi(collectives):
    ran = collectives(3, "host-memory")
    assert not ran.counted("taken")
    assert not ran.counted("staged")
    assert ran.reasons().keys() == {"host memory", "not asked after host memory"}
    assert ran.reasons().total() == ran.calls.total()
    # Ranks ask each other ever less often.
    assert ran.reasons()["host memory"] == ran.statistics[0]["agreements"]
    assert ran.reasons()["not asked after host memory"] > ran.reasons()["host memory"]
    assert ran.statistics[0]["communicators"] == 0


def test_large_host_memory_is_asked_about_ever_less(collectives):
    ran = collectives(2, "large-host-memory")
    assert ran.calls.total() == 40
    assert ran.reasons()["host memory"] == ran.statistics[0]["agreements"] < 16
    assert ran.reasons()["not asked after host memory"] > 24


def test_ranks_ask_no_more_where_none_has_gpu_memory(collectives):
    ran = collectives(2, "ever-host-memory")
    assert ran.statistics[0]["agreements"] == 256
    assert ran.reasons() == {
        "host memory": 255,
        "never GPU memory": ran.calls.total() - 255,
    }
    assert ran.counted("staged").total() == 1


def test_more_ranks_than_a_node_may_have(collectives):
    """Found before any rank is asked; on two nodes they are not too many."""
    ran = collectives(9, "large", POLYPATH_NODE="dgx-h200-x8")
    assert ran.reasons() == {"too many ranks on a node": 1}
    assert ran.statistics[0]["agreements"] == 0
    assert ran.counted("staged") == ran.calls


def test_device_memory_is_taken_between_host_memory(collectives):
    ran = collectives(2, "alternating")
    assert ran.counted("taken").total() == ran.calls.total() / 2
    assert ran.reasons() == {"host memory": ran.calls.total() / 2}


def test_a_rank_resets_its_gpu(collectives):
    ran = collectives(3, "reset")
    assert ran.counted("taken").total() == 5
    for rank in range(3):
        assert ran.reasons(rank) == {"communicator lost": 5}
    assert ran.counted("staged").total() == 5


def test_a_reset_waits_for_no_other_rank(collectives):
    """Nor does it for the time limit, which is longer than the test's."""
    ran = collectives(2, "reset-while-freed", POLYPATH_COMM_TIMEOUT_MS="3600000")
    assert ran.counted("taken").total() == 1


def test_ranks_that_differ(collectives):
    """One rank has other memory than the others, or another datatype: never wrong, never stuck."""
    ran = collectives(3, "mixed", 2)
    assert not ran.counted("taken")
    for rank in range(3):
        assert ran.reasons(rank).keys() <= {
            *("host memory", "derived datatype", "another rank could not"),
            "not asked after host memory",
        }
        assert ran.reasons(rank)["another rank could not"] > 0
    check_alike(ran)


@pytest.mark.parametrize("case, taken", [("random", True), ("others", False), ("mixed", False)])
def test_an_mpi_that_takes_device_memory(output_of, tmp_path, case, taken):
    """It gets the program's own addresses of what polypath leaves to it, and nothing else."""
    shim = BUILD / "libpolypath_preload.so"
    aware = BUILD / "bin" / "libcuda_aware_mpi.so"
    code, output = output_of(2, case, LD_PRELOAD=f"{shim}:{aware}")
    assert code == 0, output
    matches = re.findall(r"GPU memory came to MPI (\d+) times in (\d+)", output)
    arrivals = {int(pid): int(times) for times, pid in matches}
    reports = [json.loads(line) for line in output.splitlines() if line.startswith('{"rank"')]
    assert len(reports) == 2, output
    for report in reports:
        file = tmp_path / f"statistics.{report['pid']}.json"
        ran = Ranks(Counter(report["calls"]), [json.loads(file.read_text())["mpi"]])
        assert ran.statistics[0]["takes_device_memory"] is True
        assert not ran.counted("staged")
        assert ran.counted("taken") == (ran.calls if taken else Counter())
        if case == "mixed":  # host memory as well
            assert arrivals[report["pid"]] > 0
        else:
            assert arrivals[report["pid"]] == ran.reasons().total()


def test_what_polypath_does_not_do(collectives):
    ran = collectives(3, "others")
    assert not ran.counted("taken")
    assert ran.reasons() == {"operator": 2, "datatype not reduced": 2, "one rank": 1}
    assert ran.counted("staged") == ran.calls


OFF = {"POLYPATH_MPI_COLLECTIVES": "off"}


def test_switched_off(collectives):
    """No rank asks twice, and no communicator is made."""
    ran = collectives(2, "random", **OFF)
    assert ran.reasons() == {"switched off": ran.calls.total()}
    assert ran.counted("staged") == ran.calls
    assert ran.statistics[0]["communicators"] == 0
    assert ran.statistics[0]["agreements"] == 2  # of the world, and of its half


def test_switched_off_on_one_rank(collectives):
    """The others learn it: all go to MPI, and no rank waits for another."""
    ran = collectives(3, "MPI_Allgather", last=OFF)
    for rank in range(3):
        assert ran.reasons(rank) == {"switched off": ran.calls.total()}
        assert ran.statistics[rank]["agreements"] == 1
    assert ran.counted("staged") == ran.calls


@pytest.mark.parametrize("nodes, seed", [("aabb", 5), ("abab", 6), ("abcd", 7)])
def test_several_nodes(collectives, nodes, seed):
    """Ranks in a row on their nodes, in turn on them, and alone."""
    ran = collectives(4, "random", seed, nodes=nodes, **TCP)
    assert ran.counted("taken") == ran.calls
    check_alike(ran)
    between = [statistics["between_nodes"] for statistics in ran.statistics]
    # Halves of the ranks are of one node in the first.
    assert [entry["communicators"] for entry in between] == [1 if nodes == "aabb" else 2] * 4
    assert all(entry["bytes"] > 0 for entry in between)


def test_every_kind_on_several_nodes(collectives):
    ran = collectives(4, EVERY_KIND, nodes="aabb", **TCP)
    assert ran.calls.keys() == set(FUNCTIONS)
    assert ran.counted("taken") == ran.calls


@pytest.mark.parametrize("nodes", ["aabb", "abcd", "aaaa"])
def test_each_node_sends_its_ranks_slices_once(collectives, nodes):
    """2 (n - 1) / n of a slice each, in bytes by MPI between n nodes; not the whole message. Each
    of these messages begins with 16 bytes that say of which call it is."""
    ran = collectives(4, "large", nodes=nodes, **TCP)
    assert ran.counted("taken") == ran.calls
    count = len(set(nodes))
    piece = 4 * 2**16 // 4  # of the slice of each rank, what each of the nodes sums
    for statistics in ran.statistics:
        assert statistics["between_nodes"]["bytes"] == 2 * (count - 1) * (piece + 16)


def test_a_rank_resets_its_gpu_on_one_of_several_nodes(collectives):
    ran = collectives(4, "reset", nodes="aabb", **TCP)
    assert ran.counted("taken").total() == 5
    for rank in range(4):
        assert ran.reasons(rank) == {"communicator lost": 5}


def test_unequal_nodes_stay_with_mpi(collectives):
    ran = collectives(3, "large", nodes="aab")
    assert not ran.counted("taken")
    assert ran.reasons().keys() == {"no communicator"}
    assert "start equally many on each" in ran.statistics[0]["refusal"]


def test_types_that_are_not_looked_at_or_lie_backwards(collectives):
    ran = collectives(2, "unusual-types")
    assert not ran.counted("taken")
    assert ran.counted("staged") == {"MPI_Bcast": 1}


@pytest.mark.parametrize("mpich", [None, "mpich", "standard"])
@pytest.mark.parametrize("case", ["derived-types", "gaps-in-use"])
def test_derived_types(collectives, case, mpich):
    """As MPI has them in host memory, for any layout."""
    if mpich and not MPICH.is_file():
        pytest.skip("POLYPATH_MPICH_PREFIX names no MPICH")
    ran = collectives(2, case, mpich=mpich)
    assert not ran.counted("taken")
    # What "derived-types" does in host memory first is not staged.
    half = 2 if case == "derived-types" else 1
    assert ran.counted("staged").total() * half == ran.calls.total()


def test_intercommunicators_stay_with_mpi(collectives):
    """In groups of three and two ranks. The first is in that which gathers nothing in the end."""
    ran = collectives(5, "intercommunicator")
    no_elements = ran.statistics[0]["calls"]["MPI_Allgather"]["to_mpi"]["no elements"]
    assert no_elements == 2
    assert ran.reasons() == {"intercommunicator": ran.calls.total() - no_elements}
    assert ran.calls.keys() == set(FUNCTIONS)
    # Half of them are on GPUs; of the broadcast's buffer nothing is this rank's to give or to take.
    assert ran.counted("staged") == {
        "MPI_Allreduce": 1,
        "MPI_Reduce_scatter_block": 1,
        "MPI_Allgather": 2,
        "MPI_Alltoall": 1,
    }
    assert ran.statistics[0]["agreements"] == 0


@pytest.mark.skipif(
    not os.environ.get("POLYPATH_TEST_LARGE"), reason="POLYPATH_TEST_LARGE is not set"
)
@pytest.mark.parametrize("mpich", [None, "mpich"])
def test_more_than_2_gib(collectives, mpich):
    """Takes 5 GiB of memory, and minutes."""
    if mpich and not MPICH.is_file():
        pytest.skip("POLYPATH_MPICH_PREFIX names no MPICH")
    ran = collectives(2, "huge", mpich=mpich)
    assert ran.counted("taken") == ran.calls
    assert ran.calls.total() == (4 if mpich else 2)


ENDING = {"POLYPATH_DRIVER_LIBRARY": str(BUILD / "bin" / "libending_driver.so")}


@pytest.mark.skipif(NODE == "real", reason="what ends a rank there stands for the simulated driver")
class TestRanksThatEnd:
    """The last of three ranks ends, or stops, just before its kernel of a call that all agreed to;
    the kernels of the others wait for it."""

    def others(self, output: str) -> list[dict]:
        lines = [line for line in output.splitlines() if line.startswith('{"ended"')]
        return sorted((json.loads(line)["ended"] for line in lines), key=lambda end: end["rank"])

    def test_killed_the_others_get_an_error(self, output_of):
        """Long before the time limit. mpirun is told to let them live."""
        code, output = output_of(
            3,
            "killed",
            last=ENDING,
            options=["--enable-recovery"],
            POLYPATH_COMM_TIMEOUT_MS="200000",
        )
        assert code != 0
        ends = self.others(output)
        assert [(end["rank"], end["error"]) for end in ends] == [
            (0, "MPI_ERR_OTHER"),
            (1, "MPI_ERR_OTHER"),
        ]
        assert all(end["seconds"] < 100 for end in ends)
        assert re.search(
            r"MPI_Allreduce of rank 0 of 3: .*rank 2 \(process \d+\) has ended", output
        )

    def test_killed_mpirun_ends_the_others(self, output_of):
        code, output = output_of(3, "killed", last=ENDING, POLYPATH_COMM_TIMEOUT_MS="200000")
        assert code != 0
        assert "signal 9" in output

    def test_stopped_the_others_get_an_error_at_the_time_limit(self, output_of):
        code, output = output_of(3, "stopped", last=ENDING, POLYPATH_COMM_TIMEOUT_MS="15000")
        assert code != 0
        # mpirun lets the stopped one go on before it ends it: it may still say something.
        ends = [end for end in self.others(output) if end["rank"] != 2]
        assert [(end["rank"], end["error"]) for end in ends] == [
            (0, "MPI_ERR_OTHER"),
            (1, "MPI_ERR_OTHER"),
        ]
        assert re.search(r"kernel 2 waited for rank 2 past the time limit", output)

    def test_stopped_the_program_ends_where_errors_are_fatal(self, output_of):
        code, output = output_of(
            3, "stopped-fatally", last=ENDING, POLYPATH_COMM_TIMEOUT_MS="15000"
        )
        assert code != 0
        assert self.others(output) == []
        assert "kernel 2 waited for rank 2 past the time limit" in output
        assert "MPI_ERRORS_ARE_FATAL" in output

    @pytest.mark.parametrize("seconds", [1, 33] if os.environ.get("POLYPATH_TEST_LARGE") else [1])
    def test_stopped_for_a_while_the_others_wait(self, output_of, seconds):
        """Longer than the time limit that polypath sets for its own communicators, by default."""
        code, output = output_of(3, "paused", last=ENDING, POLYPATH_TEST_PAUSE=str(seconds))
        assert code == 0, output
        assert output.count('{"rank"') == 3


@pytest.mark.skipif(not MPICH.is_file(), reason="POLYPATH_MPICH_PREFIX names no MPICH")
@pytest.mark.parametrize("handles, name", [("mpich", "MPICH"), ("standard", "standard ABI")])
def test_mpich(collectives, handles, name):
    """Half of the calls are those with 64-bit counts."""
    ran = collectives(2, "random", mpich=handles)
    assert ran.statistics[0]["library"] == name
    assert any(function.endswith("_c") for function in ran.statistics[0]["calls"])
    assert ran.counted("taken") == ran.calls
    ran = collectives(2, "others", mpich=handles)
    assert ran.reasons() == {"operator": 2, "datatype not reduced": 2, "one rank": 1}
    ran = collectives(2, "mixed", mpich=handles)
    assert not ran.counted("taken")
    assert ran.counted("staged").total() > 0
    ran = collectives(5, "intercommunicator", mpich=handles)
    assert ran.counted("staged").total() == 5
    ran = collectives(4, "random", mpich=handles, nodes="abab")
    assert ran.counted("taken") == ran.calls
    assert ran.statistics[0]["between_nodes"]["bytes"] > 0


@pytest.mark.skipif(NODE == "real", reason="a node without peer access is simulated")
def test_a_node_without_peer_access_meets_in_host_memory(collectives, tmp_path):
    node = tmp_path / "alone.toml"
    node.write_text(
        "\n".join(
            [
                'schema = 1\nname = "alone"\ntitle = "No peer access"\nsource = "made up"',
                '[[gpu]]\ncount = 2\nname = "NVIDIA A100-SXM4-40GB"\nmemory_gib = 40',
                "[[host]]\nnuma = 0\nmemory_gib = 64",
                '[[link]]\nfrom = "gpu*"\nto = "host*"\nboth_directions = true\ntype = "pcie"',
                "gbps = 25",
            ]
        )
    )
    ran = collectives(2, "MPI_Allreduce", POLYPATH_NODE=str(node))
    assert ran.counted("taken") == ran.calls
    assert not ran.counted("staged")

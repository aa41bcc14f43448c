"""Ctrl-C while ranks are at work on threads: nothing is freed under them."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest
from polypath.comm import on_all
from polypath.errors import InvalidArgument
from simulated import machine_settings


class Rank:
    """As a communicator."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.aborted = threading.Event()

    def abort(self, reason: str) -> None:
        self.reason = reason
        self.aborted.set()


def interrupt() -> None:
    ident = threading.main_thread().ident
    assert ident is not None
    signal.pthread_kill(ident, signal.SIGINT)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_aborts_all_ranks_and_waits_for_them():
    ranks = [Rank(0), Rank(1), Rank(2)]
    left, ended = threading.Event(), []
    begun = threading.Barrier(len(ranks))

    def body(comm):
        begun.wait()
        if comm.rank == 1:
            interrupt()
        comm.aborted.wait()
        if not left.wait(0.2):  # else no thread waited for this one
            ended.append(comm.rank)
        raise InvalidArgument(comm.reason)

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        on_all(ranks, body)
    left.set()
    assert sorted(ended) == [0, 1, 2]
    assert {comm.reason.partition(" raised")[0] for comm in ranks} == {"rank 0", "rank 1", "rank 2"}
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_rank_that_is_closed_already_is_no_second_error():
    class Closed(Rank):
        def abort(self, reason: str) -> None:
            raise InvalidArgument("the communicator is closed")

    def body(comm):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        on_all([Closed(0)], body)


@pytest.mark.usefixtures("interruptible")
def test_on_another_thread_nothing_is_changed():
    handlers = []
    handler = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(
        target=lambda: on_all([Rank(0)], lambda _: handlers.append(signal.getsignal(signal.SIGINT)))
    )
    thread.start()
    thread.join()
    assert handlers == [handler]


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_measurement_which_then_keeps_nothing(polypath_program, tmp_path):
    node = Path(__file__).parent / "two_gpus.toml"
    settings = machine_settings(tmp_path, node)
    profile = tmp_path / "profile.toml"
    settings["POLYPATH_PROFILE"] = str(profile)
    program = f"""
import contextlib, os, signal, sys
import polypath.cli.nodes

@contextlib.contextmanager
def progress(title):
    def step(done, total, what):
        print(done)
        sys.stdout.flush()
        if done == 2:
            os.kill(os.getpid(), signal.SIGINT)

    yield step
    print("as before")
    sys.stdout.flush()

polypath.cli.nodes.progress = progress
os.environ |= {settings!r}
sys.argv[1:] = ["topo", "--measure"]
polypath.cli.app()
"""
    done = polypath_program(program)
    assert (done.stderr, done.returncode) == ("polypath: interrupted\n", 130)
    assert done.stdout.split("\n") == ["0", "1", "2", "as before", ""]
    assert not profile.exists()

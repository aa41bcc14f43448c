"""Starts commands of polypath without paying for imports: a process that has imported Python
modules forks a child for each command. A child is a process of its own with its own environment,
folder, output and exit code, as `python -m polypath` is; only the modules were imported before. The
server never loads libpolypath.so and starts no threads, so that a child reads its environment at
its first use.

    python fork_server.py DESCRIPTOR     serves requests from that socket until its other end closes

A request is one JSON message, with the descriptors of stdout and stderr. Its answers are the
process id of the child and, when the child has ended, its exit code and CPU seconds.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

_MESSAGE_BYTES = 1 << 20
#: Imported before the first fork. What is not installed is left out.
_MODULES = (
    *("argparse", "difflib", "numpy", "rich.console", "rich.progress", "rich.table", "tempfile"),
    *("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg", "matplotlib.figure"),
    *("polypath.plots", "polypath.node_plot", "polypath.launch.measure", "polypath.doctor.trials"),
    *("polypath.mpi.runs", "polypath.comm", "polypath.context", "polypath.uniconn"),
)


class ForkServer:
    """The client: one server process, started at its first use."""

    def __init__(self, on_child: Callable[[float], None]) -> None:
        """``on_child`` is told the CPU seconds of each child that has ended, and at the end of the
        server minus their sum: then they count as those of a child of this process."""
        self._on_child = on_child
        self._told = 0.0
        #: Held while a command runs: answers come in the order of requests. A command that finds
        #: it taken is started by itself.
        self.lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def run(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        timeout: float,
    ) -> subprocess.CompletedProcess[str]:
        """Runs Python with ``-m MODULE ...`` or ``-c PROGRAM ...``, as `subprocess.run` does.
        Raises `subprocess.TimeoutExpired`."""
        connection = self._connection()
        request = {
            "arguments": list(arguments),
            "folder": str(folder),
            "environment": dict(environment),
            "ignores_interrupts": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        }
        pipes = [os.pipe() for _ in range(2)]
        socket.send_fds(connection, [json.dumps(request).encode()], [end for _, end in pipes])
        for _, end in pipes:
            os.close(end)
        process = json.loads(connection.recv(_MESSAGE_BYTES))["process"]
        try:
            output = _read_to_end([end for end, _ in pipes], timeout)
        except TimeoutError:
            os.kill(process, signal.SIGKILL)
            self._receive_end(connection)
            raise subprocess.TimeoutExpired(list(arguments), timeout) from None
        finally:
            for end, _ in pipes:
                os.close(end)
        code = self._receive_end(connection)
        texts = [part.decode().replace("\r\n", "\n") for part in output]
        return subprocess.CompletedProcess(list(arguments), code, *texts)

    def close(self) -> None:
        if self._process is None or self._socket is None:
            return
        self._socket.close()
        self._process.wait(timeout=60)
        self._on_child(-self._told)

    def _receive_end(self, connection: socket.socket) -> int:
        ended = json.loads(connection.recv(_MESSAGE_BYTES))
        self._told += ended["cpu_seconds"]
        self._on_child(ended["cpu_seconds"])
        return ended["code"]

    def _connection(self) -> socket.socket:
        if self._socket is None:
            self._socket, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for end in (self._socket, child_socket):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MESSAGE_BYTES)
            with child_socket:
                self._process = subprocess.Popen(
                    [sys.executable, __file__, str(child_socket.fileno())],
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                    pass_fds=[child_socket.fileno()],
                    stdout=subprocess.DEVNULL,
                )
        return self._socket


def _read_to_end(pipes: Sequence[int], timeout: float) -> list[bytes]:
    """What comes out of each until all its writers have closed it."""
    output = {pipe: bytearray() for pipe in pipes}
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            for key, _ in selector.select(left):
                if part := os.read(key.fd, 1 << 16):
                    output[key.fd] += part
                else:
                    selector.unregister(key.fd)
    return [bytes(output[pipe]) for pipe in pipes]


# ---- The server ----------------------------------------------------------------------------------


def serve(connection: socket.socket) -> dict[str, Any]:
    """Forks a child for each request. Returns in each child, with the request that it is for."""
    for module in _MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    gc.collect()
    gc.freeze()
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 2)
        if not message:
            sys.exit()
        child = os.fork()
        if child == 0:
            for number, descriptor in enumerate(descriptors, start=1):
                os.dup2(descriptor, number)
                os.close(descriptor)
            connection.close()
            request: dict[str, Any] = json.loads(message)
            return request
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(json.dumps({"process": child}).encode())
        _, status, usage = os.wait4(child, 0)
        ended = {
            "code": os.waitstatus_to_exitcode(status),
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
        }
        connection.send(json.dumps(ended).encode())


def become(request: dict[str, Any]) -> None:
    """Makes this process what the request asks for, and runs its program to its end."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    ignored = signal.SIG_IGN if request["ignores_interrupts"] else signal.default_int_handler
    signal.signal(signal.SIGINT, ignored)
    kind, what, *arguments = request["arguments"]
    sys.path[0] = request["folder"] if kind == "-m" else ""
    if kind == "-m":
        from polypath.cli import app

        assert what == "polypath", "no other module is run"
        sys.argv[1:] = arguments
        try:
            app(prog_name="polypath")
        except SystemExit as left:
            _leave(left.code)
    sys.argv[:] = ["-c", *arguments]
    program = types.ModuleType("__main__")
    sys.modules["__main__"] = program
    exec(compile(what, "<string>", "exec"), program.__dict__)


def _leave(code: Any) -> NoReturn:
    """Ends the process as Python does, with its functions and the libraries' at exit, but leaves
    the modules as they are: to take them down costs as much as most commands."""
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    ctypes.CDLL(None).exit(code or 0)
    raise AssertionError("exit() does not return")


if __name__ == "__main__":
    try:
        _request = serve(socket.socket(fileno=int(sys.argv[1])))
    except KeyboardInterrupt:
        sys.exit(130)
    become(_request)

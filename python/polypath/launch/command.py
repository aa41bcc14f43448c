"""Will a command run, and will the shim be loaded into it? Answered before it is started, from its
files alone."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import PolypathError

#: Exit codes of `CommandRefused`, as shells and env(1) have them.
NOT_CAUGHT, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127

_SCRIPTS_IN_SCRIPTS = 5  # as many as Linux follows
_HEAD = 256  # bytes of a first line that Linux reads
#: Start programs in an environment that is not theirs: what to do instead.
_ELSEWHERE = {
    "docker": "install polypath in the image and start `polypath run` in the container",
    "podman": "install polypath in the image and start `polypath run` in the container",
    "ssh": "start `polypath run` on the other machine",
}
_PT_INTERP = 3
_MACHINES = {
    3: "x86",
    20: "ppc",
    21: "ppc64",
    40: "arm",
    62: "x86-64",
    183: "aarch64",
    243: "riscv",
    258: "loongarch",
}


class Elf(NamedTuple):
    bits: int
    """32 or 64."""
    byte_order: str
    """ "<" or ">", as `struct` has it."""
    machine: int
    """e_machine of the ELF specification."""
    loader: str | None
    """Path of the dynamic loader (PT_INTERP); None for libraries and statically linked programs."""

    @property
    def architecture(self) -> str:
        """For people: "64-bit aarch64"."""
        return f"{self.bits}-bit {_MACHINES.get(self.machine, f'machine {self.machine}')}"

    def can_load(self, library: Elf) -> bool:
        """Whether a process of this program can load this library, as far as headers tell."""
        return self[:3] == library[:3]


def read_elf(file: Path) -> Elf | None:
    """The header of ``file``; None when it is no ELF file, or a damaged one. Raises `OSError`."""
    with file.open("rb") as stream:
        identity = stream.read(16)
        if identity[:4] != b"\x7fELF" or len(identity) < 16:
            return None
        bits = {1: 32, 2: 64}.get(identity[4])
        order = {1: "<", 2: ">"}.get(identity[5])
        if bits is None or order is None:
            return None
        address = "Q" if bits == 64 else "I"
        header = struct.Struct(f"{order}HHI{address}{address}{address}IHHH")
        # p_flags follows p_type in the 64-bit form, and comes near the end in the other.
        segment = struct.Struct(f"{order}I{'I' if bits == 64 else ''}{address * 4}")
        try:
            (_, machine, _, _, table, _, _, _, entry_size, entries) = header.unpack(
                stream.read(header.size)
            )
            loader = None
            for index in range(entries):
                stream.seek(table + index * entry_size)
                kind, *fields = segment.unpack(stream.read(segment.size))
                if kind == _PT_INTERP:
                    offset, _, _, size = fields[-4:]
                    stream.seek(offset)
                    loader = stream.read(size).rstrip(b"\0").decode()
                    break
        except (struct.error, UnicodeDecodeError):
            return None
    return Elf(bits, order, machine, loader)


class CommandRefused(PolypathError):
    """A command that does not exist, cannot run, or would not be caught."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def find_program(name: str) -> Path:
    """The file that executing ``name`` opens, looked up as by a shell. Raises `CommandRefused`."""
    if os.sep in name:
        candidate = Path(name)
        if not candidate.exists():
            raise CommandRefused(f"{name}: there is no such file", NOT_FOUND)
    else:
        places = [Path(place or ".") / name for place in os.get_exec_path()]
        path = shutil.which(name)
        candidate = (
            Path(path) if path else next((file for file in places if file.is_file()), Path())
        )
        if not candidate.name:
            raise CommandRefused(
                f"{name}: there is no such program in PATH; give its path, such as ./{name}",
                NOT_FOUND,
            )
    if candidate.is_dir():
        raise CommandRefused(f"{candidate} is a folder, not a program", NOT_EXECUTABLE)
    if not os.access(candidate, os.X_OK):
        raise CommandRefused(f"{candidate} is not executable: chmod +x {candidate}", NOT_EXECUTABLE)
    return candidate


def why_not_caught(program: Path, arguments: Sequence[str], shim: Elf) -> str | None:
    """One line that says why the loader would not preload ``shim`` into ``program``, started with
    these arguments, and what to do; None when it will, or when the file may not be read.

    A script is judged by its interpreter, and env(1) by the program that it starts. Programs that
    these start in turn inherit the environment, and are not looked at. Raises `CommandRefused` for
    files that cannot be executed."""
    arguments = list(arguments)
    for _ in range(_SCRIPTS_IN_SCRIPTS):
        if program.name in _ELSEWHERE:
            return f"{program.name} passes no environment on: {_ELSEWHERE[program.name]}"
        try:
            with program.open("rb") as file:
                head = file.read(_HEAD)
            elf = read_elf(program)
        except PermissionError:
            return None
        if head.startswith(b"#!"):
            script = program
            interpreter, *option = _first_line(head, script).split(maxsplit=1)
            program, arguments = Path(interpreter), [*option, str(script), *arguments]
            if not os.access(program, os.X_OK):
                raise CommandRefused(
                    f"{script}: its interpreter {program} is missing or not executable",
                    NOT_EXECUTABLE,
                )
            continue
        if elf is None:
            raise CommandRefused(
                f"{program} is neither a program nor a script that starts with #!", NOT_EXECUTABLE
            )
        reason = _reason(program, elf, shim)
        if reason is not None or program.name != "env":
            return reason
        started = _behind_env(arguments)
        if isinstance(started, str):
            return started
        if not started:
            return None
        program, arguments = find_program(started[0]), started[1:]
    return None


def _first_line(head: bytes, script: Path) -> str:
    line = head[2:].split(b"\n", 1)[0].decode(errors="surrogateescape").strip()
    if not line:
        raise CommandRefused(f"{script} names no interpreter after #!", NOT_EXECUTABLE)
    return line


def _reason(program: Path, elf: Elf, shim: Elf) -> str | None:
    if elf.loader is None:
        return (
            f"{program} is statically linked, and has no loader that would preload: link it "
            "dynamically"
        )
    if not elf.can_load(shim):
        return (
            f"{program} is a {elf.architecture} program, and the library to preload is "
            f"{shim.architecture}: build it for that"
        )
    if Path(elf.loader).name.startswith("ld-musl"):
        return (
            f"{program} is linked with musl, and the library to preload with glibc: link it with "
            "glibc"
        )
    if not Path(elf.loader).exists():
        raise CommandRefused(f"{program}: its loader {elf.loader} is missing", NOT_EXECUTABLE)
    if _gains_privileges(program):
        return (
            f"{program} is setuid or has capabilities, and the loader preloads nothing into such a "
            "program: start `polypath run` behind it"
        )
    return None


def _gains_privileges(program: Path) -> bool:
    """Whether the kernel will mark the process (AT_SECURE): by execve(2), when it gets another
    user, another group or, other than root, capabilities from the file."""
    if os.statvfs(program).f_flag & os.ST_NOSUID:
        return False
    status = program.stat()
    if status.st_mode & stat.S_ISUID and status.st_uid != os.getuid():
        return True
    changes_group = stat.S_ISGID | stat.S_IXGRP
    if status.st_mode & changes_group == changes_group and status.st_gid != os.getgid():
        return True
    return os.getuid() != 0 and "security.capability" in os.listxattr(program)


def _behind_env(arguments: Sequence[str]) -> list[str] | str:
    """The command that env(1) starts with these arguments, empty when none; or why it would not be
    caught."""
    dropped = "env takes LD_PRELOAD out of the environment: start `polypath run` behind it"
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word in ("-", "-i", "--ignore-environment"):
            return dropped
        if word in ("-u", "--unset") and rest:
            word = f"--unset={rest.pop(0)}"
        if word in ("--unset=LD_PRELOAD", "-uLD_PRELOAD") or word.startswith("LD_PRELOAD="):
            return dropped
        if word in ("-C", "--chdir") and rest:
            rest.pop(0)
        elif word.startswith(("-S", "--split-string")):
            text = word.removeprefix("--split-string").removeprefix("-S").removeprefix("=")
            rest = shlex.split(text or (rest.pop(0) if rest else "")) + rest
        elif not word.startswith("-") and "=" not in word:
            return [word, *rest]
    return []

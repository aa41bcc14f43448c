"""What `polypath run` does not start, with one line that says why and what to do."""

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from polypath._library import find_library
from polypath.launch.command import read_elf, why_not_caught
from polypath.launch.environment import find_shim
from test_command_line_errors import the_one_line

MAIN = "int main(void) { return 3; }\n"


@pytest.fixture
def compiled(tmp_path):
    """Builds a program that exits with 3, with these flags; skips where the compiler cannot."""

    def build(name, *flags):
        compiler = os.environ.get("CC", "cc")
        if shutil.which(compiler) is None:
            pytest.skip(f"no C compiler ({compiler})")
        source = tmp_path / "main.c"
        source.write_text(MAIN)
        done = subprocess.run(
            [compiler, *flags, str(source), "-o", str(tmp_path / name)],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            pytest.skip(f"{compiler} {' '.join(flags)} fails: {done.stderr}")
        return tmp_path / name

    return build


@pytest.fixture
def script(tmp_path):
    def write(name, text):
        file = tmp_path / name
        file.write_text(text)
        file.chmod(0o755)
        return file

    return write


def refused(polypath, code, *command, **settings):
    return the_one_line(polypath("run", "--", *(str(word) for word in command), **settings), code)


def test_a_program_that_does_not_exist(polypath):
    assert "nowhere: there is no such program in PATH" in refused(polypath, 127, "nowhere")
    assert "./nowhere: there is no such file" in refused(polypath, 127, "./nowhere")
    assert "nowhere: there is no such program" in refused(polypath, 127, "env", "A=1", "nowhere")


def test_a_file_that_is_not_executable(polypath, tmp_path):
    file = tmp_path / "data"
    file.write_text(MAIN)
    assert f"chmod +x {file}" in refused(polypath, 126, file)
    assert f"chmod +x {file}" in refused(polypath, 126, "data", PATH=str(tmp_path))
    assert "is a folder" in refused(polypath, 126, tmp_path)
    file.chmod(0o755)
    assert "neither a program nor a script" in refused(polypath, 126, file)


def test_a_statically_linked_program(polypath, compiled):
    program = compiled("static", "-static")
    for command in ((program,), ("env", "-u", "A", "B=1", program), ("env", "-C", "/", program)):
        assert f"{program} is statically linked" in refused(polypath, 125, *command)
    assert polypath("run", "--anyway", "--", str(program)).returncode == 3


def test_a_dynamically_linked_program_is_caught(polypath, compiled):
    for flags in (["-pie"], ["-no-pie"]):
        assert polypath("run", "--", str(compiled("dynamic", *flags))).returncode == 3


def test_a_script_is_judged_by_its_interpreter(polypath, compiled, script):
    program = compiled("static", "-static")
    for first_line in (f"#!{program}", f"#! {program} -x", f"#!/usr/bin/env -S A=1 {program} -x"):
        file = script("script", first_line + "\n")
        assert f"{program} is statically linked" in refused(polypath, 125, file)
    outer = script("outer", f"#!{file}\n")
    assert f"{program} is statically linked" in refused(polypath, 125, outer)


def test_a_script_with_a_good_interpreter_runs(polypath, script):
    file = script("good", "#!/usr/bin/env sh\nexit 4\n")
    assert polypath("run", "--", str(file)).returncode == 4
    assert polypath("run", "--", "good", PATH=f"{file.parent}:{os.environ['PATH']}").returncode == 4


def test_a_script_without_its_interpreter(polypath, script):
    file = script("script", "#!/nowhere/python\n")
    assert f"{file}: its interpreter /nowhere/python" in refused(polypath, 126, file)
    assert "names no interpreter" in refused(polypath, 126, script("empty", "#! \n"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["-i"],
        ["-"],
        ["--ignore-environment"],
        ["-u", "LD_PRELOAD"],
        ["-uLD_PRELOAD"],
        ["--unset=LD_PRELOAD"],
        ["A=1", "LD_PRELOAD="],
    ],
)
def test_env_that_drops_what_is_preloaded(polypath, arguments):
    assert "takes LD_PRELOAD out" in refused(polypath, 125, "env", *arguments, sys.executable)


def test_a_program_that_passes_no_environment_on(polypath, script):
    docker = script("docker", "#!/bin/sh\nexit 6\n")
    line = refused(polypath, 125, docker, "run", "image")
    assert "start `polypath run` in the container" in line
    assert polypath("run", "--anyway", "--", str(docker)).returncode == 6


def test_a_setuid_program(polypath, compiled):
    if os.getuid() != 0:
        pytest.skip("only root can make a program of another user setuid")
    program = compiled("setuid")
    if os.statvfs(program).f_flag & os.ST_NOSUID:
        pytest.skip(f"{program.parent} is mounted nosuid")
    for owner, mode in ((65534, 0o4755), (65534, 0o2755)):
        os.chown(program, owner, owner)
        program.chmod(mode)
        assert f"{program} is setuid" in refused(polypath, 125, program)
    # The loader does preload into these: no user or group changes.
    program.chmod(0o755)
    assert polypath("run", "--", str(program)).returncode == 3
    program.chmod(0o2745)
    assert polypath("run", "--", str(program)).returncode == 3
    os.chown(program, 0, 0)
    program.chmod(0o6755)
    assert polypath("run", "--", str(program)).returncode == 3


def test_the_systems_own_setuid_program(polypath):
    program = shutil.which("su")
    if os.getuid() == 0 or program is None or not Path(program).stat().st_mode & 0o4000:
        pytest.skip("needs a user other than root, and a setuid su")
    assert "is setuid" in refused(polypath, 125, program)


def test_a_program_with_capabilities(polypath, compiled, monkeypatch):
    program = compiled("capable")
    setcap = shutil.which("setcap", path=f"{os.environ['PATH']}:/sbin:/usr/sbin")
    if setcap is None or os.getuid() != 0:
        pytest.skip("needs root and setcap")
    done = subprocess.run([setcap, "cap_net_raw+ep", str(program)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"setcap fails: {done.stderr}")
    # Root gains nothing by them.
    assert polypath("run", "--", str(program)).returncode == 3
    shim = read_elf(find_shim())
    assert why_not_caught(program, [], shim) is None
    monkeypatch.setattr(os, "getuid", lambda: 65534)
    assert "has capabilities" in why_not_caught(program, [], shim)


def changed(program, offset, value):
    """Writes a 16-bit number into the header of an ELF file."""
    contents = bytearray(program.read_bytes())
    struct.pack_into("<H", contents, offset, value)
    program.write_bytes(contents)


@pytest.mark.parametrize(("machine", "name"), [(20, "64-bit ppc"), (999, "64-bit machine 999")])
def test_a_program_of_another_architecture(polypath, compiled, machine, name):
    program = compiled("foreign")
    changed(program, 18, machine)
    assert f"{program} is a {name} program" in refused(polypath, 125, program)


def test_a_32_bit_program(polypath, tmp_path):
    program = tmp_path / "narrow"
    # Header and one PT_INTERP segment of the 32-bit form.
    loader = b"/lib/ld-linux.so.2\0"
    identity = b"\x7fELF\1\1\1" + bytes(9)
    header = struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, 0, 52, 0, 0, 52, 32, 1, 0, 0, 0)
    segment = struct.pack("<IIIIIIII", 3, 84, 0, 0, len(loader), len(loader), 4, 1)
    program.write_bytes(identity + header + segment + loader)
    program.chmod(0o755)
    assert f"{program} is a 32-bit x86 program" in refused(polypath, 125, program)


def test_a_program_of_musl(polypath, compiled):
    program = compiled("musl", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1")
    assert f"{program} is linked with musl" in refused(polypath, 125, program)


def test_a_program_without_its_loader(polypath, compiled):
    program = compiled("lost", "-Wl,--dynamic-linker=/nowhere/ld.so")
    assert "its loader /nowhere/ld.so is missing" in refused(polypath, 126, program)


def test_a_damaged_program(polypath, compiled):
    program = compiled("damaged")
    program.write_bytes(program.read_bytes()[:40])
    assert "neither a program nor a script" in refused(polypath, 126, program)


def copy_of_the_library(folder):
    folder.mkdir()
    return Path(shutil.copy(find_library(), folder / "libpolypath.so"))


def test_no_shim(polypath, tmp_path):
    library = copy_of_the_library(tmp_path / "bare")
    line = refused(polypath, 2, "true", POLYPATH_LIBRARY=str(library))
    assert f"{library.with_name('libpolypath_preload.so')} is missing" in line


@pytest.mark.parametrize("name", ["with space", "with:colon"])
def test_a_path_that_cannot_be_preloaded(polypath, tmp_path, name):
    library = copy_of_the_library(tmp_path / name)
    library.with_name("libpolypath_preload.so").touch()
    line = refused(polypath, 2, "true", POLYPATH_LIBRARY=str(library))
    assert "space or colon" in line


def test_no_simulated_driver(polypath, tmp_path):
    library = copy_of_the_library(tmp_path / "bare")
    library.with_name("libpolypath_preload.so").touch()
    done = polypath("run", "--node", "narval", "true", POLYPATH_LIBRARY=str(library))
    assert f"{library.with_name('simulated-driver')} is missing" in the_one_line(done, 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ["give the program to run"]),
        (["--routes", "sea", "true"], ["routes 'sea'", "direct, gpu, host"]),
        (["--emulate-mesh", "fast", "true"], ["emulate_mesh 'fast'", "off, or 1 to 1000"]),
        (["--setting", "chunks=0", "true"], ["chunks '0'", "1 to 4096"]),
        (["--setting", "profile=.", "true"], ["is no regular file"]),
        (["--setting", "speed=11", "true"], ["'speed'", "routes, max_routes, chunk_size"]),
        (["--setting", "chunks", "true"], ["--setting", "'chunks' is not NAME=VALUE"]),
        (["--stats", "here", "true"], ["--stats", "'here' is neither text nor"]),
        (["--stats", "no/here.json", "true"], ["--stats", "there is no folder"]),
        (["--node", "atlantis", "true"], ["atlantis", "narval"]),
        (
            ["--node", "narval", "--emulate-mesh", "46", "true"],
            ["emulate_mesh is for this machine"],
        ),
    ],
)
def test_options(polypath, options, words):
    line = the_one_line(polypath("run", *options), 2)
    for word in words:
        assert word in line


def test_a_setting_of_the_environment_is_checked_too(polypath):
    assert "POLYPATH_CHUNKS" in refused(polypath, 2, "true", POLYPATH_CHUNKS="0")

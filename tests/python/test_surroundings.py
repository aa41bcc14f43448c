"""Locales, names that are no UTF-8, missing homes and folders: what they must not change."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from polypath.doctor import statistics
from polypath.doctor.program import Outcome, program_findings
from simulated import machine_settings
from test_command_line_errors import the_one_line
from test_doctor_program import NATIVE, ROUND_TRIP
from test_run_measures import PROGRAM, SAYS

HERE = Path(__file__).parent
#: Not UTF-8: an "e" with an accent in Latin-1, as Python has such bytes in text.
LATIN = "\udce9"


def test_decimal_comma_leaves_statistics_json(started_polypath, tmp_path):
    locale = tmp_path / "de_DE.UTF-8"
    subprocess.run(
        ["localedef", "-c", "-i", "de_DE", "-f", "UTF-8", "--no-archive", str(locale)], check=False
    )
    assert locale.is_dir()
    program = (
        "import locale, runpy, sys; locale.setlocale(locale.LC_ALL, 'de_DE.UTF-8'); "
        "assert locale.localeconv()['decimal_point'] == ','; sys.argv[:] = sys.argv[1:]; "
        "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=False)"
    )
    done = started_polypath(
        *("doctor", "--node", "narval", "--json", "out.json", "--"),
        *(sys.executable, "-c", program, *ROUND_TRIP[2:]),
        LOCPATH=str(tmp_path),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (process,) = json.loads((tmp_path / "out.json").read_text())["processes"]
    assert process["rates"] and all(rate["gbps"] > 0 for rate in process["rates"])


def test_argument_that_is_no_utf8(started_polypath, tmp_path):
    done = started_polypath(
        *("doctor", "--node", "narval", "--json", "out.json", "--"),
        *(sys.executable, "-c", NATIVE, f"caf{LATIN}.dat", "caf\u00e9", "cut\udcc3"),
    )
    assert "Traceback" not in done.stderr
    (process,) = json.loads((tmp_path / "out.json").read_text())["processes"]
    assert process["command"].endswith("caf\u00e9.dat caf\u00e9 cut\u00c3")
    assert process["calls"]


def test_long_command_ends_with_a_whole_character(started_polypath, tmp_path):
    for shift in range(3):
        done = started_polypath(
            *("doctor", "--node", "narval", "--json", "out.json", "--"),
            *(sys.executable, "-c", NATIVE, "x" * shift + "\u20ac" * 2000),
        )
        assert "Traceback" not in done.stderr
        (process,) = json.loads((tmp_path / "out.json").read_text())["processes"]
        assert process["command"].endswith("\u20ac")
        assert len(process["command"].encode()) > 4090


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (("gpu0", "gpu1", "64M", "--node", f"x{LATIN}.toml"), {}),
        (("gpu0", "gpu1", "64M", "--node", "narval"), {"POLYPATH_ROUTES": LATIN}),
        ((f"gpu{LATIN}", "gpu1", "64M", "--node", "narval"), {}),
    ],
)
def test_errors_name_what_is_no_utf8(started_polypath, arguments, settings):
    line = the_one_line(started_polypath("plan", *arguments, **settings), 2)
    assert "\\xe9" in line or "\\udce9" in line, line


@pytest.mark.parametrize("home", ["", "relative"])
def test_without_home_no_profile_is_kept_or_believed(polypath, tmp_path, home):
    here = {**machine_settings(tmp_path, HERE / "two_gpus.toml"), "XDG_CACHE_HOME": home}
    (tmp_path / "relative").mkdir()
    before = sorted(tmp_path.rglob("*"))
    show = PROGRAM + "\nwith Context() as context: print(context.devices()['profile']['state'])"
    done = polypath("run", "--", sys.executable, "-c", show, **here, HOME=home)
    assert done.returncode == 0, done.stderr
    capacities, state = done.stdout.splitlines()
    assert capacities == "defaults"
    assert "HOME" in state
    assert [file for file in sorted(tmp_path.rglob("*")) if file.suffix in (".toml", ".lock")] == [
        file for file in before if file.suffix in (".toml", ".lock")
    ]


def test_folder_of_profiles_in_latin_1(started_polypath, tmp_path):
    home = tmp_path / f"J{LATIN}r"
    here = machine_settings(tmp_path, HERE / "two_gpus.toml")
    before = {os.fsencode(file.name) for file in tmp_path.iterdir()}
    done = started_polypath(
        *("run", "--", sys.executable, "-c", PROGRAM), **{**here, "XDG_CACHE_HOME": str(home)}
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "measured\n", SAYS)
    assert {os.fsencode(file.name) for file in tmp_path.iterdir()} - before == {b"J\xe9r"}
    assert len(list((home / "polypath").glob("*.toml"))) == 1


def test_doctor_without_a_temporary_folder(started_program):
    program = """
import runpy, sys, tempfile
def refuse(*arguments, **named):
    raise FileNotFoundError(2, "No usable temporary directory found")
tempfile.TemporaryDirectory = refuse
sys.argv = ["polypath", "doctor", "--node", "narval"]
runpy.run_module("polypath", run_name="__main__", alter_sys=True)
"""
    done = started_program(program)
    assert done.returncode == 1
    for words in ("driver", "peer access", "routes", "not tried: no temporary folder"):
        assert words in done.stdout, (words, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr


def test_statistics_that_cannot_be_read_are_a_finding(tmp_path):
    (tmp_path / "7.json").write_text('{"pid": 7, "rate": 1,2}')
    unread = []
    assert statistics.read(tmp_path, unread) == []
    (finding,) = program_findings(Outcome(0, [], unread))
    assert (finding.what, finding.state) == ("statistics", "wrong")
    assert "7.json" in finding.text


_PLUGIN = """
int MPI_Allreduce(const void *, void *, int, void *, void *, void *);
#ifdef WITH_MPI
int PMPI_Allreduce(const void *send, void *recv, int n, void *type, void *op, void *comm) {
  for (int i = 0; i < n; ++i) ((int *)recv)[i] = 2 * ((const int *)send)[i];
  return 0;
}
__attribute__((weak, alias("PMPI_Allreduce")))
int MPI_Allreduce(const void *, void *, int, void *, void *, void *);
#endif
int sum(const int *send, int *recv, int n) { return MPI_Allreduce(send, recv, n, 0, 0, 0); }
"""
_CALLS = """
import ctypes, sys
plugin = ctypes.CDLL(sys.argv[1])
send, recv = (ctypes.c_int * 3)(1, 2, 3), (ctypes.c_int * 3)(7, 7, 7)
print(plugin.sum(send, recv, 3), plugin.sum(send, recv, 3), list(recv))
"""


@pytest.mark.parametrize("has_mpi", [True, False])
def test_mpi_in_a_plugin(started_polypath, tmp_path, has_mpi):
    """Loaded for itself, under a name of its own: the call reaches it, or is an error."""
    source, plugin = tmp_path / "plugin.c", tmp_path / "libplugin.so"
    source.write_text(_PLUGIN)
    options = ["-DWITH_MPI"] if has_mpi else []
    subprocess.run(["cc", "-shared", "-fPIC", *options, "-o", plugin, source], check=True)
    done = started_polypath(
        *("run", "--node", "narval", "--"), *(sys.executable, "-c", _CALLS, str(plugin))
    )
    assert done.returncode == 0, done.stderr
    if has_mpi:
        assert (done.stdout, done.stderr) == ("0 0 [2, 4, 6]\n", "")
    else:
        assert done.stdout == "16 16 [7, 7, 7]\n"
        (line,) = done.stderr.splitlines()
        assert "no object of this process defines PMPI_Allreduce" in line


def test_another_dlsym_is_named(started_polypath, tmp_path):
    """As of a library that limits a container's memory; one without is not."""
    for name, text in (("vgpu", "void *dlsym(void *, const char *);"), ("other", "")):
        body = "#include <stddef.h>\n" + text
        if text:
            body += """
void *dlvsym(void *, const char *, const char *);
void *dlsym(void *handle, const char *name) {
  static void *(*next)(void *, const char *);
  if (!next) next = dlvsym((void *)-1L, "dlsym", "GLIBC_2.2.5");
  return next(handle, name);
}
"""
        (tmp_path / f"{name}.c").write_text(body + "\nint any_name(void) { return 0; }\n")
        command = ["cc", "-shared", "-fPIC", "-o", f"{name}.so", f"{name}.c", "-ldl"]
        subprocess.run(command, check=True, cwd=tmp_path)
    vgpu, other = tmp_path / "vgpu.so", tmp_path / "other.so"
    run = ("run", "--no-measure", "--node", "narval", "--", sys.executable, "-c", "print(1)")
    done = started_polypath(*run, LD_PRELOAD=f"{vgpu}:{other}")
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"polypath: {vgpu} in LD_PRELOAD replaces dlsym, and is passed over")
    doctor = started_polypath(
        *("doctor", "--node", "narval", "--json", "-", "--", *ROUND_TRIP), LD_PRELOAD=str(vgpu)
    )
    texts = [finding["text"] for finding in json.loads(doctor.stdout)["findings"]]
    assert any("replaces dlsym" in text for text in texts), texts

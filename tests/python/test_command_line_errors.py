"""Bad input: one line that says what to do, the exit code, no traceback."""

import ctypes.util
from pathlib import Path

import pytest


def the_one_line(done, code):
    lines = done.stderr.splitlines()
    assert done.returncode == code, done.stderr
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("polypath: ")
    assert "Traceback" not in done.stderr
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["xyzzy"], ["there is no command xyzzy", "`polypath --help` lists them"]),
        (["bnech"], ["there is no command bnech; did you mean bench?"]),
        (
            ["plan", "all_reduce", "1M"],
            ["plan all_reduce; did you mean plan allreduce?"],
        ),
        (["bench", "AllToAll"], ["did you mean bench all_to_all?"]),
        (["allgather"], ["did you mean plan all_gather or bench all_gather or tune all_gather?"]),
        (["plan", "backend", "all-reduce", "1M"], ["'all-reduce'", "did you mean allreduce?"]),
        (
            ["tune", "backend", "--ops", "post,all_reduce"],
            ["'all_reduce'", "did you mean allreduce?"],
        ),
        (["--node", "narval", "topo"], ["--node: options stand behind the command"]),
        (["bench", "p2p", "--sizes", "-1K"], ["--sizes: '-1K' is negative"]),
        (["plan", "gpu0", "gpu1", "-5"], ["SIZE: '-5' is negative"]),
        (["bench", "jacobi-solver"], ["OPERATION"]),
        (["--verison"], ["there is no option --verison; did you mean --version?"]),
        (["--sizes"], ["there is no option --sizes", "`polypath --help`"]),
        (["bench", "p2p", "--size", "4M"], ["no option --size; did you mean --sizes?"]),
        (["run", "--no-mesure", "--", "true"], ["did you mean --no-measure?"]),
        (["topo", "narval"], ["narval is one argument too many"]),
        (["topo", "--nope"], ["--nope"]),
        (["plan", "gpu0"], ["DST"]),
        (["plan", "gpu0", "gpu1", "64X"], ["SIZE", "'64X'", "64K, 1.5M, 64MB, 64 MiB, 2G or 1T"]),
        (["bench", "p2q"], ["OPERATION", "'p2q'", "p2p, h2d, d2h, bidir, ring, pageable; did you"]),
        (["bench", "p2p", "--sizes", "8K:4K"], ["--sizes", "'8K:4K'", "1M:1G"]),
        (["bench", "p2p", "--iterations", "0"], ["--iterations", "1"]),
        (["bench", "p2p", "--warmup", "-1"], ["--warmup", "1"]),
        (["bench", "p2p", "--executor", "x"], ["--executor", "auto", "stream", "graph"]),
        (["bench", "p2p", "--window", "0"], ["--window", "'0'", "1 to 64, such as 1,4,16"]),
        (["bench", "p2p", "--window", "65"], ["--window", "'65'", "1 to 64"]),
        (["bench", "p2p", "--window", "4,x"], ["--window", "'4,x'", "1 to 64"]),
        (["bench", "p2p", "--window", ""], ["--window", "1 to 64"]),
        (["bench", "p2p", "--plot", "x.txt"], ["--plot", "'x.txt'", ".png, .svg, .pdf"]),
        (["bench", "graph-phases", "--nodes", "2,3"], ["--nodes", "'3'", "even", "2 to 256"]),
        (["bench", "graph-phases", "--nodes", "512"], ["--nodes", "'512'", "even", "2 to 256"]),
        (["bench", "graph-phases", "--nodes", "8:4"], ["--nodes", "'8:4'", "2:64"]),
        (["bench", "graph-phases", "--sizes", "0"], ["--sizes", "'0'"]),
        (["bench", "graph-phases", "--iterations", "0"], ["--iterations", "1"]),
        (["bench", "graph-phases", "p2p"], ["p2p"]),
    ],
)
def test_arguments(polypath, arguments, words):
    line = the_one_line(polypath(*arguments), 2)
    for word in words:
        assert word in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench", "p2p", "--src", "host0"], ["--src 'host0'", "gpu0, gpu1, gpu2, gpu3"]),
        (["bench", "h2d", "--dst", "gpu7"], ["--dst 'gpu7'", "gpu0, gpu1, gpu2, gpu3"]),
        (["bench", "ring", "--dst", "gpu1"], ["--src and --dst are not for ring"]),
        (["bench", "p2p", "--both-directions"], ["--both-directions is for ring"]),
        (["bench", "ring", "--window", "4"], ["--window is for p2p and bidir, not for ring"]),
        (["bench", "h2d", "--window", "4"], ["--window is for p2p and bidir, not for h2d"]),
        (["bench", "p2p", "--routes", "sea"], ["routes 'sea'", "direct, gpu, host"]),
        (
            ["bench", "p2p", "--emulate-mesh", "46"],
            ["emulate_mesh is for this machine's GPUs", "--node narval"],
        ),
        (
            ["bench", "p2p", "--emulate-mesh", "fast"],
            ["emulate_mesh 'fast'", "off, or 1 to 1000"],
        ),
        (["bench", "graph-phases", "--src", "moon"], ["--src 'moon'", "gpu3, host0"]),
        (["bench", "graph-phases", "--dst", "gpu0"], ["--dst 'gpu0'", "gpu1, gpu2"]),
        (["plan", "gpu0", "gpu9", "1M"], ["gpu9"]),
        (["plan", "gpu0", "moon", "1M"], ["moon"]),
    ],
)
def test_arguments_on_a_node(polypath, arguments, words):
    line = the_one_line(polypath(*arguments, "--node", "narval"), 2)
    for word in words:
        assert word in line


@pytest.mark.parametrize("option", ["--plot", "--json"])
@pytest.mark.parametrize(
    "command",
    ["topo", "bench p2p --sizes 1M", "bench graph-phases", "tune", "bench mpi", "bench jacobi"],
)
def test_unwritable_file_is_refused_before_the_run(polypath, tmp_path, command, option):
    suffix = {"--plot": "png", "--json": "json"}[option]
    (tmp_path / f"folder.{suffix}").mkdir()
    places = {
        f"no/x.{suffix}": ["there is no folder no"],
        f"/proc/x.{suffix}": ["cannot be written"],
        f"folder.{suffix}": ["is a folder"],
    }
    for place, words in places.items():
        # One line on stderr: no progress, so nothing has run.
        line = the_one_line(polypath(*command.split(), "--node", "narval", option, place), 2)
        for word in (option, f"'{place}'", *words):
            assert word in line
    assert [file.name for file in tmp_path.iterdir()] == [f"folder.{suffix}"]


def test_two_options_do_not_name_one_file(polypath, tmp_path):
    names = ("--plot", "same.png", "--json", str(tmp_path / "same.png"))
    line = the_one_line(polypath("bench", "p2p", "--node", "narval", *names), 2)
    assert "--plot and --json name one file" in line


@pytest.mark.parametrize(
    "command", ["topo", "info -d", "plan gpu0 gpu1 1M", "bench p2p", "bench graph-phases", "tune"]
)
def test_no_gpu_and_no_node(polypath, command):
    done = polypath(*command.split(), CUDA_VISIBLE_DEVICES="")
    assert "--node" in the_one_line(done, 2)


@pytest.mark.parametrize("command", ["topo", "nodes", "plan gpu0 gpu1 1M", "bench p2p", "info"])
def test_unknown_node(polypath, command):
    line = the_one_line(polypath(*command.split(), "--node", "atlantis"), 2)
    assert "atlantis" in line
    assert "narval" in line


def test_setting_out_of_range(polypath):
    line = the_one_line(polypath("topo", "--node", "narval", POLYPATH_CHUNKS="0"), 2)
    for word in ("chunks", "'0'", "POLYPATH_CHUNKS", "1 to 4096"):
        assert word in line


def test_a_profile_that_is_named_and_not_there_is_told(polypath):
    node = str(Path(__file__).parent / "two_gpus.toml")
    named = {"POLYPATH_PROFILE": "typo.toml", "POLYPATH_NODE": node}
    for command in ("plan gpu0 gpu1 1M", "topo --json -", "tune --show"):
        done = polypath(*command.split(), **named)
        assert done.returncode == 0
        assert done.stderr.startswith("polypath: warning: POLYPATH_PROFILE: there is no file typo")
    done = polypath("tune", "--show", "--profile", "other.toml", "--node", node)
    assert "--profile: there is no file other.toml" in done.stderr
    for command in ("info -d", "doctor --json -"):
        words = polypath(*command.split(), **named).stdout
        assert "POLYPATH_PROFILE names typo.toml, and there is no such file" in words
    done = polypath("topo", "--measure", **named)
    assert done.returncode == 0
    assert "warning" not in done.stderr


def test_broken_node_file(polypath, tmp_path):
    file = tmp_path / "broken.toml"
    good = (Path(__file__).parent / "two_gpus.toml").read_text()
    file.write_text(good.replace("gbps = 50\n", "gbps = -50\n", 1))
    line = good[: good.index("gbps = 50\n")].count("\n") + 1
    assert f"{file}:{line}: " in the_one_line(polypath("topo", "--node", str(file)), 2)


def test_missing_library(polypath):
    done = polypath("topo", "--node", "narval", POLYPATH_LIBRARY="/nowhere/libpolypath.so")
    assert "POLYPATH_LIBRARY" in the_one_line(done, 2)


def test_library_that_is_none(polypath, tmp_path):
    file = tmp_path / "libpolypath.so"
    file.write_text("not a library")
    done = polypath("topo", "--node", "narval", POLYPATH_LIBRARY=str(file))
    assert "cannot be loaded" in the_one_line(done, 2)


@pytest.mark.parametrize("command", ["nodes", "topo --node narval", "info"])
def test_another_file_than_the_library_is_told(polypath, command):
    line = the_one_line(polypath(*command.split(), POLYPATH_LIBRARY="/bin/true"), 2)
    assert "/true" in line
    another = ctypes.util.find_library("c")
    library = next(Path("/").glob(f"lib*/**/{another}"))
    line = the_one_line(polypath(*command.split(), POLYPATH_LIBRARY=str(library)), 2)
    words = "no node files lie beside it" if command == "nodes" else "is no libpolypath.so"
    assert words in line


def test_a_call_that_fails_is_told_in_words(polypath, tmp_path):
    node = (Path(__file__).parent / "two_gpus.toml").read_text()
    (tmp_path / "small.toml").write_text(node.replace("memory_gib = 4", "memory_gib = 0.5"))
    done = polypath("bench", "p2p", "--node", "small.toml", "--sizes", "512M")
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith(
        "polypath: cuMemAlloc_v2 failed: out of memory, CUDA_ERROR_OUT_OF_MEMORY"
    )
    assert "&" not in line
    assert "->" not in line

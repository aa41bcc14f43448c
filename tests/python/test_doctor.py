"""`polypath doctor` without a program: checks and real copies, on simulated nodes in real time."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from polypath._library import find_library
from polypath.doctor.checks import registry
from test_command_line_errors import the_one_line

WAYS = ["reference", "dlsym", "cuGetProcAddress", "cuGetProcAddress_v2"]
TWO_GPUS = Path(__file__).with_name("two_gpus.toml")


@pytest.fixture
def doctor(polypath):
    """Runs `polypath doctor --json -`: `(exit code, result)`."""

    def run(*arguments, **settings):
        done = polypath("doctor", "--json", "-", *arguments, **settings)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


def wrong(result):
    """What is wrong, of checks and copies: text by what."""
    findings = [*result["findings"], *(row["finding"] for row in result.get("copies", []))]
    return {finding["what"]: finding["text"] for finding in findings if finding["state"] == "wrong"}


def test_all_is_well_on_a_mesh(doctor):
    code, result = doctor("--node", "narval")
    assert (code, result["well"], wrong(result)) == (0, True, {})
    texts = {finding["what"]: finding["text"] for finding in result["findings"]}
    assert texts["GPUs"] == "4 x NVIDIA A100-SXM4-40GB"
    assert texts["peer access"] == "all 12 pairs"
    assert texts["communicator"] == "of 4 ranks, with collectives"
    assert texts["routes gpu0 to gpu1"].startswith("direct ")
    legs = [("host", "gpu0"), ("gpu0", "gpu1"), ("gpu1", "host")]
    expected = [(way, *leg) for way in WAYS for leg in legs] + [("import", "gpu1", "gpu0")]
    assert [(row["way"], row["src"], row["dst"]) for row in result["copies"]] == expected
    for row in result["copies"]:
        assert row["verified"] is True
        assert row["caught"] is True
        assert sum(row["routes"].values()) == row["bytes"]
        assert len(row["routes"]) >= 4
        assert row["routes"]["direct"] < row["bytes"]


def test_the_tables(polypath):
    done = polypath("doctor", "--node", "narval")
    assert done.returncode == 0, done.stderr
    for words in ("peer access ok all 12 pairs", "gpu1 to gpu0 import ok yes yes direct"):
        assert words in " ".join(done.stdout.split())
    assert "doctor: 5/5 memory of another process" in done.stderr


def test_a_node_without_peer_access(doctor):
    code, result = doctor("--node", "pcie-4gpu")
    assert (code, wrong(result)) == (0, {})
    findings = {finding["what"]: finding for finding in result["findings"]}
    assert "12 of 12 pairs" in findings["peer access"]["text"]
    assert findings["peer access"]["state"] == "note"
    assert findings["communicator"]["state"] == "well"
    assert findings["communicator"]["text"] == "of 4 ranks, with collectives, through host memory"
    by_leg = {(row["src"], row["dst"]): row for row in result["copies"]}
    assert set(by_leg["gpu0", "gpu1"]["routes"]) == {"direct", "via host0"}
    assert by_leg["host", "gpu0"]["routes"] == {}
    assert "native: no other route" in by_leg["host", "gpu0"]["finding"]["text"]
    assert all(row["way"] != "import" for row in result["copies"])


def test_one_gpu(doctor, tmp_path):
    blocks = TWO_GPUS.read_text().replace("count = 2", "count = 1").split("[[link]]")
    file = tmp_path / "one.toml"
    file.write_text("[[link]]".join(block for block in blocks if 'to = "gpu*"' not in block))
    code, result = doctor("--node", str(file))
    assert code == 1
    assert set(wrong(result)) == {"GPUs", "routes"}
    assert "no other path" in wrong(result)["GPUs"]
    assert len(result["copies"]) == 2 * len(WAYS)
    assert all(row["verified"] and row["caught"] for row in result["copies"])


def test_no_gpu(doctor):
    code, result = doctor(CUDA_VISIBLE_DEVICES="", POLYPATH_DRIVER_LIBRARY="/nowhere/libcuda.so")
    assert code == 1
    assert "no GPU here" in wrong(result)["driver"]
    assert result["copies"] == []


def test_routes_that_settings_forbid(doctor):
    code, result = doctor("--node", str(TWO_GPUS), POLYPATH_ROUTES="direct")
    assert code == 1
    assert "none of these copies is split" in wrong(result)["routes"]
    notes = [
        finding
        for finding in result["findings"]
        if "not allowed by the settings" in finding["text"]
    ]
    assert {finding["what"] for finding in notes} == {
        "routes host to gpu0",
        "routes gpu0 to gpu1",
        "routes gpu1 to host",
    }
    assert all("POLYPATH_ROUTES=all" in finding["advice"] for finding in notes)
    assert all(row["routes"] == {} for row in result["copies"])


def test_a_registry_that_is_off(doctor):
    code, result = doctor("--node", str(TWO_GPUS), POLYPATH_REGISTRY="off")
    assert code == 1
    (imported,) = (row for row in result["copies"] if row["way"] == "import")
    assert imported["verified"] is True
    assert imported["routes"] == {}
    assert wrong(result) == {
        "registry": "off: memory of other processes is copied natively",
        "import, gpu1 to gpu0": "native: memory of a process without polypath",
    }


def test_registry_folders(tmp_path, monkeypatch):
    def state(folder):
        finding = registry({"value": str(folder), "environment": "POLYPATH_REGISTRY"})
        return finding.state, finding.text

    good = tmp_path / "good"
    assert state(good) == ("well", str(good))
    good.mkdir(mode=0o700)
    assert state(good) == ("well", str(good))
    good.chmod(0o750)
    assert state(good) == (
        "wrong",
        f"{good} has not mode 0700: memory of other processes is copied natively",
    )
    file = tmp_path / "file"
    file.touch()
    assert "is not a folder" in state(file)[1]
    link = tmp_path / "link"
    link.symlink_to(good)
    assert "is not a folder" in state(link)[1]
    assert "is missing and cannot be made" in state(tmp_path / "no" / "folder")[1]
    good.chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1023, f_frsize=4096))
        assert f"{tmp_path} is full" in state(good)[1]
        patch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1024, f_frsize=4096))
        assert state(good)[0] == "well"
    if os.getuid() == 0:
        os.chown(good, 65534, 65534)
        assert "belongs to another user" in state(good)[1]


@pytest.fixture
def library(tmp_path):
    """A copy of the library and the simulated driver, without the shim; its folder."""
    built = find_library().parent
    folder = tmp_path / "library"
    folder.mkdir()
    for name in ("libpolypath.so", "libpolypath_sim.so", "libpolypath_references.so"):
        shutil.copy(built / name, folder)
    shutil.copytree(built / "simulated-driver", folder / "simulated-driver", symlinks=True)
    return folder


def on(library):
    return {"POLYPATH_LIBRARY": str(library / "libpolypath.so")}


def test_no_shim(doctor, library):
    code, result = doctor("--node", str(TWO_GPUS), **on(library))
    assert code == 1
    assert "libpolypath_preload.so is missing" in wrong(result)["preload"]
    assert result["copies"] == []


def test_a_shim_that_cannot_be_loaded(doctor, library):
    (library / "libpolypath_preload.so").write_text("not a library")
    code, result = doctor("--node", str(TWO_GPUS), **on(library))
    assert code == 1
    assert "is not loaded: ERROR: ld.so" in wrong(result)["preload"]
    assert result["copies"] == []


def test_a_shim_that_catches_nothing(doctor, library):
    # Some other library: it loads, and replaces nothing.
    shutil.copy(find_library().with_name("libpolypath.so"), library / "libpolypath_preload.so")
    code, result = doctor("--node", str(TWO_GPUS), **on(library))
    assert code == 1
    assert len(result["copies"]) == 3 * len(WAYS) + 1
    for row in result["copies"]:
        assert (row["caught"], row["verified"]) == (False, True)
        assert row["finding"]["text"] == "not caught"


def test_a_way_that_is_not_there(doctor, library):
    (library / "libpolypath_references.so").unlink()
    shutil.copy(find_library().with_name("libpolypath_preload.so"), library)
    (library / "libpolypath.so.0").symlink_to("libpolypath.so")
    code, result = doctor("--node", str(TWO_GPUS), **on(library))
    assert code == 1
    assert {what.partition(",")[0] for what in wrong(result)} == {"reference", "import"}
    assert all("libpolypath_references.so" in text for text in wrong(result).values())
    assert all(row["routes"] for row in result["copies"] if row["way"] == "dlsym")


def test_options(polypath):
    assert "atlantis" in the_one_line(polypath("doctor", "--node", "atlantis"), 2)
    assert "chunks '0'" in the_one_line(
        polypath("doctor", "--node", "narval", POLYPATH_CHUNKS="0"), 2
    )

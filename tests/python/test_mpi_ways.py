"""The two environments that `polypath bench mpi` and `polypath bench jacobi` compare."""

import os

import pytest
import values
from polypath import InvalidArgument
from polypath.launch.environment import find_simulated_driver, preloaded_libraries
from polypath.mpi import runs as module

PRELOADED = ":".join(map(str, preloaded_libraries()))


@pytest.fixture
def ways(monkeypatch):
    """`ways` on a machine with GPUs, or on a simulated node; the environment is as it was then."""
    for variable in (
        *("POLYPATH_ROUTES", "POLYPATH_EMULATE_MESH", "LD_PRELOAD", "POLYPATH_PREPARE"),
        *("CUDA_DEVICE_MAX_COPY_CONNECTIONS", "CUDA_DEVICE_MAX_CONNECTIONS"),
    ):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)

    class FakeContext:
        def __init__(self, node, emulate_mesh):
            assert emulate_mesh == "off"  # the links are not measured by the parent
            self._simulated = node is not None

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def topology(self):
            return {**values.topology(), "simulated": self._simulated}

        def devices(self):
            return {"driver": {}}

    monkeypatch.setattr(module, "Context", FakeContext)
    return module.ways


def difference(environment, other):
    """What `environment` has differently from `other`, or that `other` has not."""
    return {name: value for name, value in environment.items() if other.get(name) != value}


def test_baseline_is_the_program_as_it_is(ways):
    before = dict(os.environ)
    chosen = ways(None, {"routes": "direct,gpu"})
    assert (chosen.name, chosen.baseline) == ("stock", before)
    assert difference(chosen.polypath, before) == {
        "LD_PRELOAD": PRELOADED,
        "CUDA_DEVICE_MAX_COPY_CONNECTIONS": "32",
        "POLYPATH_ROUTES": "direct,gpu",
        "POLYPATH_PREPARE": "wait",
    }
    assert chosen.settings["routes"] == "direct,gpu"
    assert (chosen.simulated, chosen.node["emulated_mesh_gbps"]) == (False, None)


def test_on_an_emulated_mesh_the_baseline_is_direct(ways):
    chosen = ways(None, {"emulate_mesh": "91", "routes": "direct,gpu"})
    assert (chosen.name, chosen.node["emulated_mesh_gbps"]) == ("direct", 91)
    assert difference(chosen.baseline, chosen.polypath) == {"POLYPATH_ROUTES": "direct"}
    assert chosen.baseline["POLYPATH_EMULATE_MESH"] == chosen.polypath["POLYPATH_EMULATE_MESH"]
    assert chosen.baseline["LD_PRELOAD"] == PRELOADED


def test_a_mesh_of_the_environment_counts_too(ways, monkeypatch):
    monkeypatch.setenv("POLYPATH_EMULATE_MESH", "46")
    assert ways(None, {}).baseline["POLYPATH_ROUTES"] == "direct"


def test_on_a_simulated_node_both_have_its_driver(ways):
    chosen = ways("narval", {})
    assert (chosen.name, chosen.simulated) == ("stock", True)
    for way in (chosen.baseline, chosen.polypath):
        assert way["LD_LIBRARY_PATH"].startswith(str(find_simulated_driver()))
        assert (way["POLYPATH_NODE"], way["POLYPATH_SIM_MODE"]) == ("narval", "functional")
    assert set(difference(chosen.polypath, chosen.baseline)) == {
        "LD_PRELOAD",
        "CUDA_DEVICE_MAX_COPY_CONNECTIONS",
        "POLYPATH_PREPARE",
    }
    with pytest.raises(InvalidArgument, match="needs GPUs"):
        ways("narval", {"emulate_mesh": "46"})


def test_settings_are_checked_first(ways):
    with pytest.raises(InvalidArgument, match="routes"):
        ways(None, {"routes": "nonsense"})

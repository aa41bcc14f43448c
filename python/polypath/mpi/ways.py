"""The two environments that are compared."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..benchmark import describe_machine
from ..context import Context
from ..context import settings as settings_table
from ..errors import InvalidArgument
from ..launch.environment import assignments
from ..launch.settings import settings_environment

STOCK = "stock"
DIRECT = "direct"


class Ways(NamedTuple):
    """Environments for the same program."""

    name: str
    """Of the baseline: "stock", without the shim; or "direct", under it, but by the direct route
    alone."""
    baseline: dict[str, str]
    polypath: dict[str, str]
    node: dict[str, Any]
    """"node" of the document of a benchmark."""
    machine: dict[str, Any]
    """"machine" of it."""
    settings: dict[str, str]
    """"settings" of it: of programs under the shim, those that are not at their default."""

    @property
    def simulated(self) -> bool:
        """On a simulated node: bytes and routes are real, times are not."""
        return bool(self.node["simulated"])


def ways(node: str | None, settings: Mapping[str, str]) -> Ways:
    """For this machine, or a simulated node. ``settings``: of programs under the shim, by name.
    With an emulated mesh the baseline is emulated too, and so is under the shim.

    Raises `InvalidArgument` for settings that are not allowed, `NoDevice`, and `LibraryNotFound`
    where the shim was not built."""
    before = dict(os.environ)
    with Context(node=node, emulate_mesh="off") as context:
        topology = context.topology()
        machine = describe_machine(context)
    mesh = settings.get("emulate_mesh", before.get("POLYPATH_EMULATE_MESH", "off"))
    if mesh != "off" and topology["simulated"]:
        raise InvalidArgument("--emulate-mesh needs GPUs: a simulated node runs no kernels")
    shim = assignments(before, node)
    environment = {**before, **shim, **settings_environment(settings)}
    # A first transfer that waits for its routes is not worth a benchmark's time in every run.
    environment.setdefault("POLYPATH_PREPARE", "wait")
    if mesh != "off":
        baseline = {**environment, "POLYPATH_ROUTES": DIRECT}
    else:
        baseline = {**before, **{name: shim[name] for name in shim if name != "LD_PRELOAD"}}
    described = {
        **{key: topology[key] for key in ("name", "simulated", "fingerprint")},
        "emulated_mesh_gbps": None if mesh == "off" else float(mesh),
    }
    chosen = {row["name"]: row["value"] for row in settings_table() if row["origin"] != "default"}
    name = STOCK if mesh == "off" else DIRECT
    return Ways(name, baseline, environment, described, machine, chosen)

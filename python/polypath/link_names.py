"""Words for links and ports, as the matrix of `polypath topo` and the drawing of a node use
them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from .sizes import short_figure


class LinkType(NamedTuple):
    short: str
    """In the matrix, before the width."""
    title: str
    meaning: str


LINK_TYPES = {
    "nvlink": LinkType("NV", "NVLink", "NVLink, point to point, and how many links"),
    "nvswitch": LinkType("SW", "NVSwitch", "NVLink by an NVSwitch, and how many links"),
    "pcie": LinkType("PCIE", "PCIe", "PCI Express, and its width"),
    "c2c": LinkType("C2C", "NVLink-C2C", "NVLink between a Grace CPU and a GPU"),
    "bounce": LinkType("BNC", "no peer access", "no peer access: the driver goes by host memory"),
}


def shared_capacities(topology: dict[str, Any]) -> list[str]:
    """ "pcie.gpu0 ... gpu3, each 101 GB/s": the ports, those of one family and capacity
    together."""

    def family(port: dict[str, Any]) -> tuple[str, float]:
        return port["name"].split(".")[0], port["gbps"]

    def span(ports: Iterable[dict[str, Any]]) -> str:
        return _span(sorted((port["name"] for port in ports), key=_by_number))

    return [
        f"{span(ports)} {short_figure(gbps)} GB/s"
        for (_, gbps), ports in groupby(sorted(topology["ports"], key=family), family)
    ]


def _by_number(name: str) -> tuple[str, int]:
    """gpu10 after gpu9."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or -1)


def _span(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    between = " ... " if len(names) > 2 else ", "
    return f"{names[0]}{between}{names[-1].partition('.')[2]}, each"

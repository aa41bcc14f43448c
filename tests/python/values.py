"""Values in the shapes of polypath.h, made by hand, for tests of what presents them."""

from __future__ import annotations

from itertools import permutations
from typing import Any


def link(start: str, end: str, kind: str, width: int, gbps: float, *ports: str) -> dict[str, Any]:
    return {
        "from": start,
        "to": end,
        "type": kind,
        "width": width,
        "gbps": gbps,
        "nominal_gbps": gbps,
        "ports": list(ports),
    }


def topology(
    gpus: int = 4, hosts: int = 1, kind: str = "nvlink", gbps: float = 93
) -> dict[str, Any]:
    """GPUs all linked with each other, divided between the hosts."""
    names = [f"gpu{i}" for i in range(gpus)]
    numa = {gpu: i * hosts // gpus for i, gpu in enumerate(names)}
    links = [link(a, b, kind, 4, gbps) for a, b in permutations(names, 2)]
    for gpu in names:
        host = f"host{numa[gpu]}"
        links.append(link(gpu, host, "pcie", 16, 25, f"pcie.{gpu}"))
        links.append(link(host, gpu, "pcie", 16, 24.5, f"pcie.{gpu}", "host-read"))
    return {
        "name": "made-up",
        "title": "A node made up [for tests]",
        "source": "tests",
        "simulated": True,
        "virtual_time": True,
        "fingerprint": "0123456789abcdef",
        "capacities": "node file",
        "gpus": [
            {
                "id": gpu,
                "name": "NVIDIA A100-SXM4-40GB",
                "pci": "",
                "uuid": "",
                "numa": numa[gpu],
                "memory_bytes": 40 << 30,
                "pcie_generation": 4,
                "pcie_width": 16,
            }
            for gpu in names
        ],
        "hosts": [{"id": f"host{i}", "numa": i, "memory_bytes": 1 << 38} for i in range(hosts)],
        "links": links,
        "ports": [{"name": f"pcie.{gpu}", "gbps": 25.0} for gpu in names]
        + [{"name": "host-read", "gbps": 89.0}],
        "costs": {"copy_start_us": 5.5},
        "emulated_mesh": None,
    }


def emulated_mesh() -> dict[str, Any]:
    """Two GPUs, as the library shows them while a mesh is emulated."""
    mesh = topology(2, 1, "nvlink", 46)
    mesh["name"] = mesh["title"] = "2 x NVIDIA H200 (emulated mesh, 46 GB/s a link)"
    mesh["simulated"] = False
    mesh["emulated_mesh"] = {
        "gbps": 46.0,
        "links": [
            {"from": "gpu0", "to": "gpu1", "lanes": 1, "gbps": 45.61},
            {"from": "gpu1", "to": "gpu0", "lanes": 2, "gbps": 46.2},
        ],
    }
    return mesh


def plan(size: int = 64 << 20) -> dict[str, Any]:
    half = size // 2
    return {
        "bytes": size,
        "predicted_us": 400.0,
        "predicted_gbps": 167.8,
        "native_us": 730.0,
        "native_gbps": 91.9,
        "limit_gbps": 186.0,
        "transfers": [
            {
                "src": "gpu0",
                "dst": "gpu1",
                "bytes": size,
                "native": False,
                "reason": "",
                "routes": [
                    {
                        "route": "direct",
                        "kind": "direct",
                        "via": None,
                        "bytes": size - half,
                        "share": 0.5,
                        "chunks": 1,
                        "chunk_bytes": size - half,
                        "rate_gbps": 93.0,
                    },
                    {
                        "route": "via gpu2",
                        "kind": "gpu",
                        "via": "gpu2",
                        "bytes": half,
                        "share": 0.5,
                        "chunks": 8,
                        "chunk_bytes": half // 8,
                        "rate_gbps": 74.8,
                    },
                ],
                "excluded": [{"route": "via host0", "reason": "not allowed [routes]"}],
            }
        ],
    }


def report(size: int = 64 << 20, **changes: Any) -> dict[str, Any]:
    """What Context.bench answers."""
    return {
        "bytes": size,
        "window": 1,
        "native_us": 730.0,
        "polypath_us": 400.0,
        "native_gbps": 91.9,
        "polypath_gbps": 167.8,
        "speedup": 1.826,
        "limit_gbps": 186.0,
        "limit_from": "flow",
        "verified": True,
        "executor": "stream",
        "issue_us": 30.0,
        "native_issue_us": 1.7,
        "copies": 17,
        "routes": [
            {
                "src": "gpu0",
                "dst": "gpu1",
                "route": "direct",
                "share": 0.5,
                "chunks": 1,
                "bytes": size - size // 2,
            },
            {
                "src": "gpu0",
                "dst": "gpu1",
                "route": "via gpu2",
                "share": 0.5,
                "chunks": 8,
                "bytes": size // 2,
            },
        ],
        "counted": {
            "split": 4,
            "graphs": 0,
            "native_share": 0.0,
            "routes": [
                {"src": "gpu0", "dst": "gpu1", "route": "direct", "share": 0.5},
                {"src": "gpu0", "dst": "gpu1", "route": "via gpu2", "share": 0.5},
            ],
        },
        "native": False,
        "reason": "",
        **changes,
    }


def row(size: int = 64 << 20, **changes: Any) -> dict[str, Any]:
    return {"src": "gpu0", "dst": "gpu1", **report(size, **changes)}


def document(*sizes: int) -> dict[str, Any]:
    return {
        "schema": 1,
        "op": "p2p",
        "node": {
            "name": "made-up",
            "simulated": True,
            "virtual_time": True,
            "fingerprint": "0123456789abcdef",
            "emulated_mesh_gbps": None,
        },
        "rows": [row(size) for size in sizes],
        "command": "polypath bench p2p",
        "date": "2026-01-01T00:00:00+00:00",
        "version": "0.1.0",
    }


def graph_phases(size: int = 64 << 20, nodes: int = 8, **changes: Any) -> dict[str, Any]:
    """What Context.graph_phases answers."""
    return {
        "bytes": size,
        "nodes": nodes,
        "via": "gpu2",
        "create_us": 2.0,
        "construct_us": 8.0,
        "instantiate_us": 20.0,
        "first_launch_us": 10.0,
        "launch_us": 5.0,
        "patch_us": 4.0,
        "destroy_us": 3.0,
        "first_latency_us": 80.0,
        "latency_us": 50.0,
        "patched_latency_us": 54.0,
        "stream_issue_us": 16.0,
        "stream_latency_us": 64.0,
        "gpu_bytes": None,
        "verified": True,
        **changes,
    }

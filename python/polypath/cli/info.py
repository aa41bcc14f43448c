"""`polypath info`: settings, devices and libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from rich.markup import escape

from ..context import Context
from ..context import settings as default_settings
from ..launch.environment import missing_profile
from ..sizes import rounded_size
from . import options
from .arguments import Option
from .output import PlainTable, console, print_lines, write_json


def info(
    *,
    config: Annotated[
        bool, Option("--config", "Settings: value, origin, meaning.", short="-c")
    ] = False,
    devices: Annotated[
        bool, Option("--devices", "Devices, driver, libraries, profile.", short="-d")
    ] = False,
    node: options.Node = None,
    json: options.Json = None,
) -> None:
    """Show the settings (-c, needs no GPU) and the devices (-d); without either, both."""
    both = not config and not devices
    result: dict[str, Any] = {}
    out = console(json)
    if config or both:
        result["settings"] = _settings(node)
        out.print(settings_table(result["settings"]))
    if devices or both:
        with Context(node=node) as context:
            result["devices"] = context.devices()
        print_lines(out, *driver_lines(result["devices"]))
        out.print(devices_table(result["devices"]["devices"]))
    write_json(result, json)


def _settings(node: str | None) -> list[dict[str, Any]]:
    if node is None:
        return default_settings()
    with Context(node=node) as context:
        return context.settings()


def settings_table(settings: Sequence[dict[str, Any]]) -> PlainTable:
    """Two lines a setting: its name, value, origin and meaning; its environment variable, what is
    allowed and the default."""
    table = PlainTable("setting", "value", "origin", "meaning", wrap=("meaning",), is_apart=True)
    for setting in settings:
        value = escape(setting["value"] or "-")
        default = f"; default {setting['default']}" if setting["default"] else ""
        table.add_row(
            f"{setting['name']}\n[dim]{setting['environment']}[/dim]",
            value if setting["origin"] == "default" else f"[bold]{value}[/bold]",
            setting["origin"],
            escape(f"{setting['meaning']}\n{setting['allowed']}{default}"),
        )
    return table


def driver_lines(devices: dict[str, Any]) -> list[str]:
    """Driver, NVML, library and profile, a line each."""
    driver, profile = devices["driver"], devices["profile"]
    graphs = devices["graphs"]
    counts = ", ".join(f"{count} {name}" for name, count in graphs["counts"].items() if count)
    profile_line = profile["state"] + (f", {profile['file']}" if profile["file"] else "")
    if (named := missing_profile()) is not None:
        profile_line = f"POLYPATH_PROFILE names {named}, and there is no such file: defaults serve"
    major, minor = divmod(driver["cuda_version"], 1000)  # as cuDriverGetVersion counts: 13000
    return [
        f"driver    {driver['driver_version'] or 'unknown'}, "
        f"CUDA {major}.{minor // 10}, {driver['library']}",
        f"NVML      {'yes' if devices['nvml'] else 'no: links come from the driver alone'}",
        f"polypath  {devices['version']}, {devices['library']}"
        + ("" if devices["kernels"] else ", built without kernels: no emulated mesh"),
        f"graphs    {'supported' if graphs['supported'] else 'not supported by this driver'}, "
        f"cache of {graphs['cache_size']}: {counts or 'none used yet'}",
        f"profile   {profile_line}",
    ]


def devices_table(devices: Sequence[dict[str, Any]]) -> PlainTable:
    """The GPUs, their memory, and whether this process has a context on each."""
    table = PlainTable("GPU", "name", "memory", "free", "context", right=("memory", "free"))
    for device in devices:
        free = device["free_bytes"]
        table.add_row(
            device["id"],
            escape(device["name"]),
            rounded_size(device["memory_bytes"]),
            "-" if free is None else rounded_size(free),
            "active" if device["context_active"] else "none",
        )
    return table

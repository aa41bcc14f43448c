"""Settings for a child process: checked here, so that a wrong one is an error before it starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..context import settings as settings_table
from ..errors import InvalidArgument

#: The shim's own variable; all others are of the settings table.
STATISTICS = "POLYPATH_STATS"


def settings_environment(given: Mapping[str, str]) -> dict[str, str]:
    """The environment variables of these settings, by name as `polypath info -c` lists them.

    Sets them in this process as well: the library checks its own environment. Raises
    `InvalidArgument` for a setting that there is not, and for a value that is not allowed, given
    here or in the environment."""
    variables = {row["name"]: row["environment"] for row in settings_table()}
    for name in given:
        if name not in variables:
            raise InvalidArgument(f"there is no setting '{name}': {', '.join(variables)}")
    environment = {variables[name]: value for name, value in given.items()}
    os.environ.update(environment)
    settings_table()
    return environment


def parse_setting(text: str) -> tuple[str, str]:
    """Reads NAME=VALUE. `ValueError` says what is allowed."""
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ValueError(f"'{text}' is not NAME=VALUE, such as staging_size=128M")
    return name, value


def statistics_target(text: str) -> str:
    """Reads where statistics go: "text", or a file as an absolute path, since processes may change
    their folder. `ValueError` says what is allowed."""
    if text == "text":
        return text
    file = Path(text).absolute()
    if file.suffix != ".json":
        raise ValueError(f"'{text}' is neither text nor the name of a file that ends in .json")
    if not file.parent.is_dir():
        raise ValueError(f"there is no folder {file.parent}")
    return str(file)

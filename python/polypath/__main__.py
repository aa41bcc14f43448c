"""``python -m polypath``: the command line."""

from .cli import app

app(prog_name="polypath")

"""Lets `python -m runlane.cli` be the command."""

from runlane.cli import main

main()

"""A small real network on loopback addresses, with a manifest of the truth about it.

`scenario.py` (with `sites.py`) describes the network once, in the words of `model.py`. The servers
(`nameserver.py`, `listeners.py`) serve that description and `truth.py` derives the manifest from it, through
the same pure functions (`zonedata.py`, `content.py`): what is served and what is expected cannot differ.
`server.py` opens it all; `python -m runlane.lab` is its process.
"""

"""Connectors: tools that come as an image. What a manifest may say, and the tool that it makes. Pure.

A manifest is read with `read_manifest` wherever it arrives: by the server when it is added, and again by the
host that is to run it, which believes nobody.
"""

from runlane.connectors.limits import Limits
from runlane.connectors.manifest import Connector, Manifest, Network
from runlane.connectors.reading import MAX_SOURCE_BYTES, load_manifest, read_manifest

__all__ = ["MAX_SOURCE_BYTES", "Connector", "Limits", "Manifest", "Network", "load_manifest", "read_manifest"]

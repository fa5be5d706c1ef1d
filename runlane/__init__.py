"""Runlane: a durable job registry, event bridge and work queue on Temporal."""

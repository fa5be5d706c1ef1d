"""The inventory: what is known of every asset, merged from the results of scans."""

from runlane.db.inventory.merging import MERGES, merge
from runlane.db.inventory.primary import ensure_primary_assets
from runlane.db.inventory.sightings import MergeJob, MergeSummary
from runlane.db.inventory.subjects import lock_subjects

__all__ = [
    "MERGES",
    "MergeJob",
    "MergeSummary",
    "ensure_primary_assets",
    "lock_subjects",
    "merge",
]

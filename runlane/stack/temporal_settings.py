"""What Runlane asks of every Temporal server, embedded or not."""

from collections.abc import Mapping
from typing import Final

from runlane import names

SEARCH_ATTRIBUTES: Final[Mapping[str, str]] = {
    names.SA_WORKSPACE: "Keyword",
    names.SA_PROJECT: "Keyword",
    names.SA_RUN_KIND: "Keyword",
    names.SA_RUN_STATUS: "Keyword",
    names.SA_TOOLS: "KeywordList",
}
DYNAMIC_CONFIG: Final[Mapping[str, str]] = {
    # Without it fairness keys are accepted and ignored: one busy workspace starves the others.
    "matching.enableFairness": "true",
    # Priority is exact only inside one partition.
    "matching.numTaskqueueReadPartitions": "1",
    "matching.numTaskqueueWritePartitions": "1",
    # Cancel reaches an activity at once, not with its next heartbeat.
    "frontend.WorkerCommandsEnabled": "true",
    "system.enableCancelActivityWorkerCommand": "true",
    # By default a shard looks for new tasks 20 times a second: with few shards each hop waits up to 50 ms.
    "history.transferProcessorMaxPollRPS": "1000",
}
"""Same values as deploy/temporal-dynamicconfig.yaml."""

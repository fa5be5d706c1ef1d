"""Brings the schema to its newest revision, as the owner role."""

import asyncio
from importlib import resources
from pathlib import Path

from alembic import command
from alembic.config import Config

from runlane.db.pool import Pool
from runlane.tools import TOOLS

_SEED_TOOLS = """
INSERT INTO tools (id, category, fans_out, toolset, shape, version, wall_s, parallelism, max_batch,
                   large_max_batch)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::float8[],
                     $8::int[], $9::int[], $10::int[])
ON CONFLICT (id) DO UPDATE SET
  category = excluded.category, fans_out = excluded.fans_out, toolset = excluded.toolset,
  shape = excluded.shape, version = excluded.version, wall_s = excluded.wall_s,
  parallelism = excluded.parallelism, max_batch = excluded.max_batch,
  large_max_batch = excluded.large_max_batch
WHERE tools.workspace_id IS NULL
"""


def _config(url: str) -> Config:
    root = Path(str(resources.files("runlane"))).parent
    config = Config()
    config.set_main_option("script_location", str(root / "migrations"))
    config.attributes["url"] = url
    return config


async def upgrade(url: str) -> None:
    """Runs all missing migrations; safe to repeat. Runs in a thread: Alembic brings its own loop."""
    await asyncio.to_thread(command.upgrade, _config(url), "head")


async def seed_tools(pool: Pool) -> None:
    """Writes the built-in tools of this program into `tools`; safe to repeat."""
    tools = sorted(TOOLS.values(), key=lambda tool: tool.name)
    columns = (
        [t.name for t in tools],
        [t.category for t in tools],
        [t.fans_out for t in tools],
        [t.toolset for t in tools],
        [t.shape for t in tools],
        [t.version for t in tools],
        [t.wall_s for t in tools],
        [t.parallelism for t in tools],
        [t.max_batch for t in tools],
        [t.large_max_batch for t in tools],
    )
    await pool.execute(_SEED_TOOLS, *columns)

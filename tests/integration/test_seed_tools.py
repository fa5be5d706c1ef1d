"""The built-in tools, as each start of a new version writes them."""

import pytest

from runlane.db.migrate import seed_tools
from runlane.db.pool import Pool
from runlane.tools import TOOLS

pytestmark = pytest.mark.integration


async def test_start_of_a_new_version_renews_tools_and_leaves_a_switched_off_one_off(pool: Pool) -> None:
    await pool.execute("UPDATE tools SET enabled = false, version = 'old' WHERE id = 'dnsprobe'")

    await seed_tools(pool)

    row = await pool.fetchrow("SELECT enabled, version FROM tools WHERE id = 'dnsprobe'")
    assert tuple(row or ()) == (False, TOOLS["dnsprobe"].version)
    assert await pool.fetchval("SELECT count(*) FROM tools") == len(TOOLS)

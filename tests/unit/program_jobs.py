"""Jobs that tests of foreign programs are about, and what they ask of an adapter."""

import json

from runlane.tools import Category, parse_records
from runlane.tools.adapters import ADAPTERS
from runlane.tools.adapters.adapter import Command, Each, Many, Raw, ToolJob, Workplace
from runlane.tools.adapters.options import Options

APP = ToolJob("j1", "app.lab.test", "127.7.0.11", 18080, "http://app.lab.test:18080/", False)
SIX = ToolJob("j2", "::1", "::1", 8443, "https://[::1]:8443/", True)
PLACE = Workplace("/private")


def is_readable(category: Category, *raws: Raw) -> bool:
    return parse_records(category, [json.loads(json.dumps(dict(raw))) for raw in raws]).quarantined == 0


def first_command(name: str, job: ToolJob = APP, options: Options | None = None) -> Command:
    way = ADAPTERS[name].way
    chosen = options or Options()
    match way:
        case Each(stages):
            return stages[0](job, chosen, PLACE)[0]
        case Many():
            return way.command([job], chosen, PLACE)

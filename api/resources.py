"""What the API process opens at its start and closes at its end."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine
from temporalio.client import Client

from api.control import ControlHub
from api.feeds import FeedHub
from api.schema_gate import SchemaGate
from api.starter import Starter
from api.tails import TailHub
from runlane.db.engine import open_engine
from runlane.db.feeds import BusFeed, NotificationFeed
from runlane.db.keys import check_pepper
from runlane.db.pool import Pool, open_pool
from runlane.db.views.tally import Tallies
from runlane.integrations import Kind
from runlane.keyring import Keyring
from runlane.outbound.reach import Reach
from runlane.outbound.transport import Transport
from runlane.outbound.transports import transports
from runlane.settings import Settings
from runlane.storage import Storage, StorageConfig
from workflows.dispatching import Limits

ENGINE_SIZE: Final = 10
SYSTEM_POOL_SIZE: Final = 10
DOWNLOADS: Final = 1
"""Results at once: each is that of a whole batch, in memory."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Connections of the process, shared by all requests."""

    settings: Settings
    engine: AsyncEngine
    """Role runlane_api: every request of a workspace."""
    system_pool: Pool
    """Role runlane_system: keys, and the worker endpoints."""
    schema: SchemaGate
    storage: Storage
    pictures: Storage
    temporal: Client
    """Connects when first used: the API serves while Temporal is away."""
    starter: Starter
    control: ControlHub
    pepper: bytes
    keyring: Keyring
    tallies: Tallies
    tails: TailHub
    events: FeedHub
    notifications: FeedHub
    transports: Mapping[Kind, Transport]
    """They judge how an endpoint is configured; nothing is sent from here."""
    downloads: asyncio.Semaphore
    """Held while a result is read for a download."""


@asynccontextmanager
async def open_resources(settings: Settings) -> AsyncIterator[Resources]:
    """Opens everything, and closes it in reverse order. Every server may be away.

    Raises:
        Invalid: the pepper is too short, or a key of secrets is.
    """
    pepper = check_pepper(settings.key_pepper.get_secret_value())
    keyring = Keyring.of(settings.secret_key_texts)
    async with AsyncExitStack() as stack:
        engine = open_engine(settings.database_api_url, size=ENGINE_SIZE)
        stack.push_async_callback(engine.dispose)
        pool = await open_pool(
            settings.database_system_url, size=SYSTEM_POOL_SIZE, name="runlane-api-system", at_once=0
        )
        stack.push_async_callback(pool.close)
        schema = SchemaGate(pool)
        temporal = await Client.connect(
            settings.temporal_address, namespace=settings.temporal_namespace, lazy=True
        )
        starter = Starter(temporal, pool, Limits(**settings.dispatch_limits))
        stack.push_async_callback(starter.close)
        control = ControlHub(pool, grace_s=settings.worker_grace_s)
        stack.push_async_callback(control.close)
        beginning = asyncio.create_task(_begin(control, schema))
        stack.callback(beginning.cancel)
        tails = TailHub(pool, settings.tail_share)
        stack.push_async_callback(tails.close)
        events, notifications = FeedHub(pool, BusFeed()), FeedHub(pool, NotificationFeed())
        stack.push_async_callback(events.close)
        stack.push_async_callback(notifications.close)
        storage = Storage(StorageConfig(**settings.bucket))
        yield Resources(
            settings,
            engine,
            pool,
            schema,
            storage,
            storage.of_pictures(),
            temporal,
            starter,
            control,
            pepper,
            keyring,
            Tallies(),
            tails,
            events,
            notifications,
            transports(Reach.of(**settings.reach)),
            asyncio.Semaphore(DOWNLOADS),
        )


async def _begin(control: ControlHub, schema: SchemaGate) -> None:
    await schema.until_current()
    await control.start()

"""Serves the API over HTTP until the process is told to stop."""

import socket
from typing import Final

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from api.resources import Resources
from runlane.settings import Settings

STOP_GRACE_S: Final = 5
"""Requests in flight at the stop get this long."""


def serve(settings: Settings) -> None:
    """Runs the server in this process; returns after SIGINT or SIGTERM.

    Raises:
        SystemExit: the address is taken, or a setting is of no use; the log says which.
    """
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.api_host,
        port=settings.api_port,
        loop="uvloop",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_GRACE_S,
    )
    _Server(config, app).run()


class _Server(uvicorn.Server):
    """Ends the streams of workers and onlookers first: they have no end of their own to wait for."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        resources: Resources = self._app.state.resources
        resources.control.begin_shutdown()
        resources.tails.begin_shutdown()
        resources.events.begin_shutdown()
        resources.notifications.begin_shutdown()
        await super().shutdown(sockets)

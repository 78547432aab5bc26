"""A worker of Gunicorn's that serves with Uvicorn on a loop of ours; see the guide to serving."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from uvicorn.workers import UvicornWorker


class WhorlWorker(UvicornWorker):
    """Uvicorn's worker, with a loop of ours."""

    CONFIG_KWARGS = {"loop": "whorl:server_loop", "http": "httptools"}  # noqa: RUF012 (Uvicorn's)

"""A Gunicorn worker that serves with Uvicorn on a Whorl loop; see the guide to serving."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from uvicorn.workers import UvicornWorker


class WhorlWorker(UvicornWorker):
    """Uvicorn's worker, with a Whorl loop."""

    CONFIG_KWARGS = {"loop": "whorl:server_loop", "http": "httptools"}  # noqa: RUF012 (Uvicorn's)

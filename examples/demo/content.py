"""The content of requests and replies: service and client derive it from the request's number."""

import random

PAGE_BYTES = 16 * 1024
UPLOAD_BYTES = 4 * 1024
WAIT_SECONDS = 0.010

_PERIOD = 65521
_NOISE = random.Random(1).randbytes(_PERIOD + PAGE_BYTES)


def page(number: int) -> bytes:
    """Return the body of the page with this number: a window into one block of noise."""
    begin = number % _PERIOD
    return _NOISE[begin : begin + PAGE_BYTES]


def upload(number: int) -> bytes:
    """Return the body that the client sends with the upload of this number."""
    begin = number * 7 % _PERIOD
    return _NOISE[begin : begin + UPLOAD_BYTES]

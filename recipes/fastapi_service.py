"""FastAPI, served by uvicorn.

$ uvicorn --loop whorl:new_event_loop --port 8000 fastapi_service:app
$ curl http://127.0.0.1:8000/
"""

# /// script
# dependencies = ["fastapi", "uvicorn", "whorl-loop"]
# ///

import asyncio

from fastapi import FastAPI

app = FastAPI()


@app.get("/")
async def hello() -> dict[str, str]:
    return {"hello from": type(asyncio.get_running_loop()).__module__}

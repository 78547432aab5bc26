"""Django's ASGI application, served by uvicorn.

$ uvicorn --loop whorl:new_event_loop --port 8000 django_service:app
$ curl http://127.0.0.1:8000/
"""

# /// script
# dependencies = ["django", "uvicorn", "whorl-loop"]
# ///

import asyncio

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], SECRET_KEY="only for this recipe")


async def hello(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"Hello from {type(asyncio.get_running_loop()).__module__}")


urlpatterns = [path("", hello)]
app = get_asgi_application()

"""A shop of Django's for the tests: its settings, its model and its view."""

from __future__ import annotations

import django
from django.conf import settings
from django.db import models, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path

import eosdb
from eosdb.integrations.django import join

settings.configure(
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["testserver"],
    SECRET_KEY="only-for-these-tests",
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": ":memory:",
            "OPTIONS": {"transaction_mode": "IMMEDIATE"},
        }
    },
)
django.setup()


class Order(models.Model):  # type: ignore[misc]
    what = models.CharField(max_length=100)

    class Meta:
        app_label = "shop"


def order(request: HttpRequest) -> HttpResponse:
    """A row and a record in one transaction; a bad order is refused behind both."""
    what = request.GET["what"]
    with transaction.atomic():
        made = Order.objects.create(what=what)
        sent = join().publish("orders", what, key=str(made.pk), idempotency_key=what)
        if sent.duplicate:
            transaction.set_rollback(True)
        if what.startswith("bad"):
            raise ValueError(what)
    return HttpResponse(f"{sent.offset} {sent.duplicate}")


urlpatterns = [path("orders", order)]


def records(db: eosdb.Database) -> list[str]:
    query = "SELECT CAST(value AS TEXT) FROM committed_records"
    return [what for (what,) in db.query(query).rows]


def rows() -> list[str]:
    return [order.what for order in Order.objects.order_by("pk")]

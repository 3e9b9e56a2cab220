"""Asking servers: many requests at once, each answered exactly once or reported failed."""

from rmlab.servers.client import Answer, Client, Spent, require_http
from rmlab.servers.wire import Reply, Request

__all__ = ["Answer", "Client", "Reply", "Request", "Spent", "require_http"]

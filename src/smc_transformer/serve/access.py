"""Bearer tokens: who may ask."""

import hmac
from collections.abc import Sequence
from pathlib import Path

from fastapi import HTTPException, Request

from smc_transformer.serve.errors import problem

LOOPBACK = ("127.0.0.1", "::1", "localhost")
SHORTEST = 16
"""Characters of a token that can be guessed no more."""


class TokenError(ValueError):
    """Tokens that cannot be used, and why."""


def read_tokens(path: Path) -> tuple[str, ...]:
    """The tokens in a file, one on each line; blank lines and those that begin with # are left out."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    tokens = tuple(line for line in lines if line and not line.startswith("#"))
    if not tokens:
        raise TokenError(f"{path} holds no token")
    for number, token in enumerate(tokens, start=1):
        if len(token) < SHORTEST or not token.isascii() or any(sign.isspace() for sign in token):
            raise TokenError(f"{path}: token {number} must have at least {SHORTEST} ASCII characters, without spaces")
    return tokens


def check_binding(host: str, tokens: Sequence[str]) -> None:
    """That nobody from outside may ask without a token."""
    if not tokens and host not in LOOPBACK:
        raise TokenError(f"on {host} others can ask too: give a file with --tokens, or listen on 127.0.0.1")


class Access:
    """A dependency of routes that only those with a token may use; without tokens everybody may."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = [token.encode() for token in tokens]

    async def __call__(self, request: Request) -> None:
        """Let a request pass, or refuse it."""
        if not self._tokens:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        sent = given.strip().encode("latin-1", "replace")
        # All are compared, each in a time that does not depend on where they differ.
        found = [hmac.compare_digest(sent, token) for token in self._tokens]
        if scheme.lower() != "bearer" or not any(found):
            reason = "give a token: Authorization: Bearer ..." if not given else "this token is not known"
            headers = {"WWW-Authenticate": "Bearer"}
            raise HTTPException(401, problem("unauthorized", reason), headers)

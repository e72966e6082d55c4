"""Accounts: where a Table service is, and what proves to it who asks. No secret is in a repr or a message."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from inspect import iscoroutinefunction
from typing import Any, Protocol
from urllib.parse import urlsplit

import attrs

from ....errors import NotAStore, safe_repr

# The emulator's, which everybody knows.
_EMULATOR = "devstoreaccount1"
_EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_SCOPE = "https://storage.azure.com/.default"
_COSMOS = re.compile(r"\.table\.cosmos(db)?\.")
"""The hosts of Cosmos DB, which differs as its page *Frequently asked questions about Azure Cosmos DB for Table* says."""
_PORTS = {"https": 443, "http": 80}
_PUBLIC = re.compile(r"[\w./-]{0,40}").fullmatch
"""What may be a name that is mistyped; anything else may be a secret."""
_EARLY = 120  # seconds before its end at which a token is replaced
_PARTS = {
    name.lower(): name
    for name in (
        "DefaultEndpointsProtocol", "AccountName", "AccountKey", "TableEndpoint", "EndpointSuffix",
        "SharedAccessSignature", "UseDevelopmentStorage", "BlobEndpoint", "QueueEndpoint", "FileEndpoint",
        "DevelopmentStorageProxyUri",
    )
}  # fmt: skip


class Signature(Protocol):
    """The proof of who asks."""

    def headers(self, path: str, date: str) -> Mapping[str, str]:
        """Return headers of a request, by its path as it is sent and its date."""
        ...

    @property
    def query(self) -> str:
        """The text that is added to the query of each request."""
        ...


@attrs.frozen
class _Key:
    """The key of an account, which signs each request."""

    account: str
    key: bytes = attrs.field(repr=False)
    query: str = ""

    def headers(self, path: str, date: str) -> Mapping[str, str]:
        text = f"{date}\n/{self.account}{path}".encode()
        signature = base64.b64encode(hmac.new(self.key, text, hashlib.sha256).digest()).decode()
        return {"Authorization": f"SharedKeyLite {self.account}:{signature}"}


@attrs.frozen
class _Sas:
    """A shared access signature."""

    query: str = attrs.field(repr=False)

    def headers(self, path: str, date: str) -> Mapping[str, str]:
        return {}


class _CredentialKey:
    """The key of an `AzureNamedKeyCredential`, as it is when a request is sent: its owner may update it."""

    query = ""

    def __init__(self, credential: Any) -> None:
        self._credential = credential

    def headers(self, path: str, date: str) -> Mapping[str, str]:
        account, key = self._credential.named_key
        return _Key(account, _decoded(key)).headers(path, date)


class _CredentialSas:
    """The signature of an `AzureSasCredential`, as it is when a request is sent: its owner may update it."""

    def __init__(self, credential: Any) -> None:
        self._credential = credential

    @property
    def query(self) -> str:
        return str(self._credential.signature).lstrip("?")

    def headers(self, path: str, date: str) -> Mapping[str, str]:
        return {}


class _Token:
    """A source of tokens, as those of azure-identity are; each token is used until shortly before its end."""

    query = ""

    def __init__(self, credential: Any, clock: Callable[[], float] = time.time) -> None:
        self._credential = credential
        self._clock = clock
        self._access_token: Any = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<tokens of {type(self._credential).__name__}>"

    def headers(self, path: str, date: str) -> Mapping[str, str]:
        with self._lock:
            if self._access_token is None or self._access_token.expires_on - _EARLY < self._clock():
                self._access_token = self._credential.get_token(_SCOPE)
            return {"Authorization": f"Bearer {self._access_token.token}"}


@attrs.frozen
class Account:
    """A Table service, and what proves to it who asks."""

    scheme: str
    host: str
    port: int
    path: str
    """What comes before the tables in the paths of requests: nothing on Azure, the account on an emulator."""
    signature: Signature

    @property
    def url(self) -> str:
        """The address, without a secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{host}{port}{self.path}"

    @property
    def is_emulator(self) -> bool:
        """Whether it is an emulator: on this machine, or whoever asks has the key that everybody knows."""
        is_local = self.host == "localhost" or self.host == "::1" or self.host.startswith("127.")
        return is_local or self.signature == _Key(_EMULATOR, base64.b64decode(_EMULATOR_KEY))

    def __str__(self) -> str:
        return self.url


def account_of(text: str, credential: Any = None) -> Account:
    """Return the account that a connection string names.

    Args:
        text: as the portal of Azure shows it.
        credential: as for `tablemapper.open`, where the text has none.

    Raises:
        NotAStore: it is none; what is secret in it is not repeated.
    """
    parts = _parts(text)
    if parts.get("UseDevelopmentStorage", "").lower() == "true":
        proxy = parts.get("DevelopmentStorageProxyUri", "http://127.0.0.1").rstrip("/")
        endpoint = f"{proxy}:10002/{_EMULATOR}"
        parts = {"AccountName": _EMULATOR, "AccountKey": _EMULATOR_KEY, "TableEndpoint": endpoint} | parts
    name, endpoint = parts.get("AccountName", ""), parts.get("TableEndpoint", "")
    if not name and not endpoint:
        raise NotAStore("the connection string names no AccountName and no TableEndpoint")
    if not endpoint:
        scheme = parts.get("DefaultEndpointsProtocol", "https")
        endpoint = f"{scheme}://{name}.table.{parts.get('EndpointSuffix', 'core.windows.net')}"
    name = name or endpoint.partition("://")[2].partition(".")[0]
    if key := parts.get("AccountKey"):
        signature: Signature = _Key(name, _decoded(key))
    elif sas := parts.get("SharedAccessSignature"):
        signature = _Sas(sas.lstrip("?"))
    else:
        signature = _signature(name, credential, "the connection string has no AccountKey and no SharedAccessSignature")
    return _account(endpoint, signature)


def named_account(name: str, credential: Any = None) -> Account:
    """Return the account of Azure with a name; see `account_of`."""
    if not name.isalnum() or not name.islower() or not name.isascii() or not 3 <= len(name) <= 24:
        shown_name = safe_repr(name) if _PUBLIC(name) else "this"
        raise NotAStore(f"azure://…: {shown_name} is no name of an account: 3 to 24 letters a-z and digits")
    signature = _signature(name, credential, f"azure://{name} has no credential")
    return _account(f"https://{name}.table.core.windows.net", signature)


def _signature(name: str, credential: Any, lack: str) -> Signature:
    if hasattr(credential, "get_token"):
        if iscoroutinefunction(credential.get_token):
            kind = type(credential)
            raise NotAStore(
                f"credential={kind.__module__}.{kind.__name__}: it gives tokens to a program for asyncio, so it is for "
                f"tm.open_async; here pass {kind.__name__} of azure.identity"
            )
        return _Token(credential)
    if hasattr(credential, "named_key"):
        account = credential.named_key[0]
        if account != name:
            raise NotAStore(f"credential= is the key of {safe_repr(account)}, and the store is in {safe_repr(name)}")
        return _CredentialKey(credential)
    if hasattr(credential, "signature"):
        return _CredentialSas(credential)
    if isinstance(credential, str) and credential:
        return _Sas(credential.lstrip("?")) if "sig=" in credential else _Key(name, _decoded(credential))
    if credential is None:
        raise NotAStore(
            f"{lack}; pass credential=: DefaultAzureCredential() of azure-identity, or the account's key, or a shared "
            "access signature"
        )
    raise NotAStore(
        "credential=: expected an object with get_token, an AzureNamedKeyCredential, an AzureSasCredential, or text, got "
        f"{type(credential).__name__}"
    )


def _parts(text: str) -> dict[str, str]:
    parts = {}
    for part in filter(None, text.strip().split(";")):
        name, equals, value = part.partition("=")
        part_name = _PARTS.get(name.strip().lower())
        if part_name is None or not equals:
            raise NotAStore(
                "the connection string cannot be read: expected parts as in AccountName=…;AccountKey=…, each up to a "
                "semicolon; what has AccountKey=, TableEndpoint= or sig= in it is no path, and a signature alone is the "
                "credential= of azure://account"
            )
        parts[part_name] = value.strip()
    return parts


def _decoded(key: str) -> bytes:
    with suppress(binascii.Error, ValueError):
        return base64.b64decode(key, validate=True)
    raise NotAStore("the key of the account is no base64 text; copy it again")


def _account(endpoint: str, signature: Signature) -> Account:
    parts = port = None
    with suppress(ValueError):  # (whose text may have a secret, which no context of an error is to hold)
        parts = urlsplit(endpoint)
        port = parts.port or _PORTS.get(parts.scheme)
    if parts is None or port is None or not parts.hostname or parts.query or parts.username is not None:
        raise NotAStore(
            "the endpoint of the account cannot be read: it is no URL of the form https://account.table.core.windows.net"
        )
    if _COSMOS.search(parts.hostname):
        raise NotAStore(
            f"{parts.hostname} is of Azure Cosmos DB, whose API for Table does not return entities in the order of their keys, "
            "on which ranges and pages rely; use an account of Azure Table storage"
        )
    account = Account(parts.scheme, parts.hostname, port, parts.path.rstrip("/"), signature)
    if parts.scheme == "http" and not account.is_emulator:
        raise NotAStore(
            f"{account}: without https anybody on the way could read what is sent; use https (http is for an emulator, on "
            f"this machine or with the account {_EMULATOR} and its well-known key)"
        )
    return account

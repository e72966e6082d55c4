"""What names an account, and that no secret is ever shown."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import pickle
from typing import Any

import attrs
import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential

import tablemapper as tm
from tablemapper.engines.azure.tables.accounts import _EMULATOR_KEY, _Key, _Token, account_of, named_account
from tablemapper.engines.azure.tables.service import ErrorResponse
from tablemapper.engines.azure.tables.wire import Wire

SECRET = "c2VjcmV0IG9mIHRoZSBhY2NvdW50"


def test_a_connection_string_is_read_whatever_the_case_of_its_names() -> None:
    account = account_of(f"defaultEndpointsProtocol=https; accountname=shop;AccountKey={SECRET};")
    assert account.url == "https://shop.table.core.windows.net"
    account = account_of(f"AccountName=shop;AccountKey={SECRET};EndpointSuffix=core.chinacloudapi.cn")
    assert account.host == "shop.table.core.chinacloudapi.cn"
    account = account_of("UseDevelopmentStorage=true")
    assert account.url == "http://127.0.0.1:10002/devstoreaccount1"
    account = account_of("TableEndpoint=http://[::1]:99/a;AccountName=a;AccountKey=YQ==")
    assert account.url == "http://[::1]:99/a"


def test_a_key_signs_the_date_and_the_path() -> None:
    account = account_of(f"AccountName=shop;AccountKey={SECRET}")
    expected = hmac.new(base64.b64decode(SECRET), b"today\n/shop/Users()", hashlib.sha256).digest()
    said = account.signature.headers("/Users()", "today")
    assert said == {"Authorization": f"SharedKeyLite shop:{base64.b64encode(expected).decode()}"}


def test_a_shared_access_signature_is_a_part_of_the_query() -> None:
    account = account_of("TableEndpoint=https://shop.table.core.windows.net;SharedAccessSignature=?sv=1&sig=x%3D")
    assert account.signature.query == "sv=1&sig=x%3D"
    assert account.signature.headers("/Users()", "today") == {}
    assert named_account("shop", "?sv=1&sig=y").signature.query == "sv=1&sig=y"


@attrs.frozen
class Token:
    token: str
    expires_on: float


class Tokens:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def get_token(self, scope: str) -> Token:
        self.asked.append(scope)
        return Token(f"{SECRET} {len(self.asked)}", 1000.0 * len(self.asked))


def test_a_token_is_used_until_shortly_before_its_end() -> None:
    now, tokens = [0.0], Tokens()
    signature = _Token(tokens, clock=lambda: now[0])
    for now[0], number in ((0.0, 1), (800.0, 1), (900.0, 2), (1850.0, 2), (1900.0, 3)):
        assert signature.headers("/", "") == {"Authorization": f"Bearer {SECRET} {number}"}
    assert set(tokens.asked) == {"https://storage.azure.com/.default"}
    assert named_account("shop", tokens).url == "https://shop.table.core.windows.net"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"AccountKey={SECRET}", "names no AccountName"),
        (f"AccountName=shop;AccountKey={SECRET}!", "no base64 text"),
        (f"AccountName=shop;{SECRET}", "cannot be read"),
        (f"AccountName=shop;AccountKay={SECRET}", "cannot be read"),
        ("AccountName=shop", "pass credential="),
        (f"AccountName=shop;AccountKey={SECRET};DefaultEndpointsProtocol=ftp", "no URL of the form"),
        (f"AccountName=shop;AccountKey={SECRET};DefaultEndpointsProtocol=http", "use https"),
        (f"AccountName=shop;AccountKey={SECRET};TableEndpoint=https://shop:port/", "cannot be read"),
        (f"AccountName=shop;AccountKey={SECRET};TableEndpoint=https://shop.table.cosmos.azure.com:443/", "Cosmos DB"),
        (
            f"AccountName=shop;AccountKey={SECRET};TableEndpoint=https://Shop.table.cosmosdb.azure.cn/",
            "order of their keys",
        ),
    ],
)
def test_what_names_no_account_is_refused_without_its_secret(text: str, said: str) -> None:
    with pytest.raises(tm.NotAStore) as caught:
        account_of(text)
    assert said in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", ["a", "Shop", "shop/x", "shöp", ""])
def test_a_name_that_no_account_can_have_is_refused(name: str) -> None:
    with pytest.raises(tm.NotAStore, match="no name of an account"):
        named_account(name, "key")


def test_what_is_no_credential_is_refused() -> None:
    with pytest.raises(tm.NotAStore, match="expected an object with get_token, .* got int"):
        named_account("shop", 7)


def test_a_credential_of_the_sdk_is_asked_for_each_request() -> None:
    key = AzureNamedKeyCredential("shop", "YQ==")
    signature = named_account("shop", key).signature
    assert signature.headers("/Users()", "today") == _Key("shop", b"a").headers("/Users()", "today")
    key.update("shop", SECRET)
    assert signature.headers("/Users()", "today") == _Key("shop", base64.b64decode(SECRET)).headers("/Users()", "today")
    sas = AzureSasCredential("?sv=1&sig=a")
    account = account_of("TableEndpoint=https://shop.table.core.windows.net", sas)
    assert account.signature.query == "sv=1&sig=a"
    sas.update(f"sv=1&sig={SECRET}")
    assert (account.signature.query, account.signature.headers("/", "today")) == (f"sv=1&sig={SECRET}", {})
    for shown in (account, signature):
        assert SECRET not in f"{shown!r}"
    with pytest.raises(tm.NotAStore, match="the key of 'other', and the store is in 'shop'"):
        named_account("shop", AzureNamedKeyCredential("other", SECRET))


class AsyncTokens(Tokens):
    async def get_token(self, scope: str) -> Token:  # type: ignore[override]
        self.asked.append(f"{asyncio.get_running_loop()!r}")
        return Token(SECRET, 1e12)


def test_a_credential_for_asyncio_is_asked_in_the_loop_and_refused_elsewhere() -> None:
    with pytest.raises(
        tm.NotAStore, match=r"test_accounts\.AsyncTokens: .* for tm\.open_async; here .* azure\.identity"
    ):
        tm.open("azure://shop", models=[Thing], credential=AsyncTokens())
    seen, tokens = list[str](), AsyncTokens()

    def send(wire: Wire, request: Any, *wait: float) -> Any:
        seen.append(wire._account.signature.headers("/", "")["Authorization"])
        raise ErrorResponse(403, "Forbidden")

    async def opened() -> str:
        with pytest.raises(tm.StoreError, match="refuses the key"):
            await tm.open_async("azure://shop", models=[Thing], credential=tokens)
        return f"{asyncio.get_running_loop()!r}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Wire, "send", send)
        loop = asyncio.run(opened())
    assert set(seen) == {f"Bearer {SECRET}"}
    assert tokens.asked == [loop]


class Thing(tm.Entity, table="Things"):
    id: tm.Field[str]
    key = tm.Key[str](partition="{id}")


def test_the_emulator_in_a_container_needs_no_https() -> None:
    emulator = f"AccountName=devstoreaccount1;AccountKey={_EMULATOR_KEY}"
    account = account_of(f"{emulator};TableEndpoint=http://azurite:10002/devstoreaccount1")
    assert (account.url, account.is_emulator) == ("http://azurite:10002/devstoreaccount1", True)
    account = account_of("UseDevelopmentStorage=true;DevelopmentStorageProxyUri=http://azurite")
    assert (account.url, account.is_emulator) == ("http://azurite:10002/devstoreaccount1", True)
    for other in (emulator.replace("1", "2"), emulator.replace("Eby8", "Eby9")):
        with pytest.raises(tm.NotAStore, match="use https"):
            account_of(f"{other};TableEndpoint=http://azurite:10002/devstoreaccount1")
    assert not account_of(f"AccountName=shop;AccountKey={SECRET}").is_emulator


@pytest.mark.parametrize(
    "account",
    [
        account_of(f"AccountName=shop;AccountKey={SECRET}"),
        account_of(f"TableEndpoint=https://x.y;SharedAccessSignature=sig={SECRET}"),
        named_account("shop", Tokens()),
    ],
    ids=["key", "signature", "token"],
)
def test_no_secret_is_shown(account: Any) -> None:
    account.signature.headers("/", "")
    assert SECRET not in f"{account} {account!r} {account.signature!r}"
    assert "secret" not in f"{account!r} {account.signature!r}"  # (as the decoded key would be)
    if "token" not in repr(account.signature):
        assert repr(pickle.loads(pickle.dumps(account))) == repr(account)

"""What names an account, and that no secret is ever shown."""

from __future__ import annotations

import base64
import hashlib
import hmac
import pickle
from typing import Any

import attrs
import pytest

import tablemapper as tm
from tablemapper.engines.azure.tables.accounts import _Token, account_of, named_account

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
    with pytest.raises(tm.NotAStore, match="get_token, or text, got int"):
        named_account("shop", 7)


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

"""The commands over an account of Azure in place of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.cli.app import Exit, run
from tablemapper.engines import locations
from tablemapper.engines.azure.tables.reserved_names import CATALOGUE
from tablemapper.engines.azure.tables.service import CreateTable, GroupTransaction, RowChange

from ..classes import Other, entity, grouped
from ..engines.azure.memory import Memory
from ..engines.azure.place import AzurePlace

SECRET = "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2U="
TEXT = f"AccountName=shop;AccountKey={SECRET}"


class Part(tm.Entity, table="Parts"):
    bin: tm.Field[str]
    number: tm.Field[int]
    color: tm.Field[str] = tm.field(default="red")

    key = tm.Key[str, int](partition="{bin}", row="{number}")
    by_color = tm.Index[str](partition="{color}")


Colors = grouped("Colors", Part, "color", number=tm.count())


MODELS = f"{__name__}:ALL"
ALL = [Part, Colors]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Memory:
    """An account with a store, which every account is here."""
    memory, place_of = Memory(), locations.place_of

    def place(where: Any, credential: Any = None, prefix: str | None = None) -> Any:
        is_account = isinstance(where, str) and locations.is_account(where)
        return AzurePlace(memory=memory, catalogue=prefix or CATALOGUE) if is_account else place_of(where)

    monkeypatch.setattr(locations, "place_of", place)
    monkeypatch.setenv("STORE", TEXT)
    monkeypatch.setenv("AZURE_STORAGE_KEY", SECRET)
    monkeypatch.chdir(tmp_path)
    with tm.open(TEXT, models=ALL) as store:
        store.insert_many(Part("a", n, ["red", "blue"][n % 2]) for n in range(6))
    return memory


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: Exit = Exit.OK) -> str:
    ended = run(arguments)
    out, err = capsys.readouterr()
    assert ended == code, out + err
    assert SECRET not in out + err
    return out + err


@pytest.mark.parametrize("place", ["env:STORE", "azure://shop", TEXT], ids=["environment", "named", "text"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "{}", "Part", "--where", "bin==a", "--where", "number>3"], "2 shown"),
        (["show", "{}", "Colors"], "2 shown"),
        (["show", "{}", "Part", "--where", "color==blue", "--explain"], "by_color"),
        (["get", "{}", "Part", "a", "3"], "blue"),
        (["status", "{}"], "Part.by_color"),
        (["diagram", "{}", "--format", "text"], "Colors"),
        (["check", "{}", "--models", MODELS], "6 entities, 6 index rows, 2 groups: ok"),
        (["repair", "{}", "--models", MODELS], "6 entities, 0 problems repaired, 0 left"),
        (["sweep", "{}", "--models", MODELS], "0 writes finished or undone"),
        (["freeze", "{}"], ": frozen, and only read"),
        (["unfreeze", "{}"], ": programs write again"),
        (["advise", "{}"], "nothing to advise"),
        (["stats", "{}", "Part"], "6 entities in 1 partition"),
        (["backup", "{}", "copy.db", "--models", MODELS], "copy.db: a copy of"),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else "",
)
def test_a_command_takes_an_account(
    memory: Memory, capsys: pytest.CaptureFixture[str], place: str, arguments: list[str], said: str
) -> None:
    assert said in printed(capsys, *[place if one == "{}" else one for one in arguments])


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["compact", "env:STORE"], "possible for the file of a store only", Exit.STORE),
        (["backup", "env:STORE", "copy.db"], "needs the models", Exit.USAGE),
        (["status", "env:NOTHING"], "there is no environment variable NOTHING", Exit.STORE),
        (["status", "env:NONE_THERE"], "there is no store", Exit.STORE),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else "",
)
def test_what_is_not_possible_is_refused_by_name(
    memory: Memory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: Any,
    said: str,
    code: Exit,
) -> None:
    monkeypatch.setenv("NONE_THERE", "none.db")
    assert said in printed(capsys, *arguments, code=code)


def next_version() -> tuple[Any, Any]:
    """Return `Part` with a field more, and the script that computes it, which one entity does not allow."""
    fields = {"bin": str, "number": int, "size": int, "color": str}
    key = tm.Key[str, int](partition="{bin}", row="{number}")
    by_color = tm.Index[str](partition="{color}")
    new = entity("Part", "Parts", fields, key, by_color=by_color, color=tm.field(default="red"))

    @tm.migration(after=None, old=[Part, Colors], new=[new])
    def sizes(m: tm.Migration) -> None:
        m.fill(new.size, lambda part: 7 // part.number)
        m.drop(Colors)

    return new, sizes


def test_scripts_are_tried_over_a_copy_of_an_account_and_change_nothing(
    memory: Memory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, sizes = next_version()
    monkeypatch.setattr("tablemapper.cli.migration_commands._load", lambda _: [sizes])
    before = {name: dict(rows) for name, rows in memory.tables.items()}
    report = tm.migrate(TEXT, [sizes], dry_run=True)
    assert [fault.key for fault in report.faults] == [("a", "a0")]
    assert not report.applied
    said = printed(capsys, "migrate", "env:STORE", "--scripts", "x", "--dry-run", code=Exit.FINDINGS)
    assert "ZeroDivisionError" in said
    assert "sizes" in printed(capsys, "migrations", "plan", "env:STORE", "--scripts", "x")
    assert {name: dict(rows) for name, rows in memory.tables.items()} == before


def test_a_script_that_renames_runs_on_an_account(
    memory: Memory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tm.Key[str, int](partition="{bin}", row="{number}")
    members = {"bin": str, "number": int, "paint": str}
    new = entity("Part", "Parts", members, key, by_color=tm.Index[str](partition="{paint}"))

    @tm.migration(after=None, old=[Part, Colors], new=[new])
    def paint(m: tm.Migration) -> None:
        m.rename(Part.color, new.paint)
        m.drop(Colors)

    monkeypatch.setattr("tablemapper.cli.migration_commands._load", lambda _: [paint])
    assert "migrated paint" in printed(capsys, "migrate", "env:STORE", "--scripts", "x")
    assert "paint" in printed(capsys, "status", "env:STORE")
    with tm.open(TEXT, models=[new]) as store:
        assert len(list(store.query(new.by_color("red")))) == 3
    assert "undid paint" in printed(capsys, "migrate", "env:STORE", "--scripts", "x", "--to", "")
    with tm.open(TEXT, models=ALL) as store:
        assert store[Colors.key("red")].number == 3


def test_an_account_is_migrated_by_way_of_a_file(memory: Memory, tmp_path: Path) -> None:
    new, sizes = next_version()
    with tm.open(TEXT, models=ALL) as account:
        account.delete(Part.key("a", 0))
        account.backup(tmp_path / "parts.db")
    assert tm.migrate(tmp_path / "parts.db", [sizes]).done
    with tm.open(tmp_path / "parts.db", models=[new]) as file, tm.open(AzurePlace(), models=[new]) as other:  # type: ignore[arg-type]
        assert tm.copy(file, other).inserted == 5
        assert [one.size for one in other.query(new).allow_scan()] == [7, 3, 2, 1, 1]


def test_a_table_is_adopted_and_a_prefix_names_a_store(memory: Memory, capsys: pytest.CaptureFixture[str]) -> None:
    memory.send(CreateTable("StagingParts"))
    for number in range(3):
        put = RowChange("insert", Part.key("a", number).row, {"color": "green"})
        memory.send(GroupTransaction("StagingParts", "a", (put,)))
    said = printed(capsys, "status", "env:STORE/Staging", code=Exit.STORE)
    assert "it has no catalogue Staging; open it with models to create one, or adopt tables that are there" in said
    options = ("--models", MODELS, "--table", "Parts")
    assert "Part.by_color  index" in printed(capsys, "adopt", "env:STORE/Staging", *options)
    assert "3 entities, 3 index rows, 1 groups: ok" in printed(capsys, "check", "env:STORE/Staging", "--models", MODELS)
    assert "ready" in printed(capsys, "adopt", "env:STORE/Staging", *options, "--json")
    assert "no class has the table 'Nothing'" in printed(
        capsys, "adopt", "env:STORE", "--models", MODELS, "--table", "Nothing", code=Exit.USAGE
    )
    for arguments, text in {
        ("adopt", "shop.db", "--models", MODELS): "this command is for tables of an account of Azure",
        ("status", "env:STORE/no-name"): '"no-name" is not a table name',
        (
            "status",
            "env:FILE/Staging",
        ): "env:FILE/Staging: a prefix is for an account of Azure, and env:FILE names a file",
    }.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FILE", "shop.db")
            assert text in printed(capsys, *arguments, code=Exit.STORE)
    assert not Path("shop.db").exists()


def test_a_command_creates_no_store(memory: Memory, capsys: pytest.CaptureFixture[str]) -> None:
    memory.tables.clear()
    for command in (["status"], ["show"], ["check", "--models", MODELS], ["sweep", "--models", MODELS]):
        place = ["env:STORE", "Part"] if command == ["show"] else ["env:STORE"]
        said = printed(capsys, command[0], *place, *command[1:], code=Exit.STORE)
        assert "there is no store in this account" in said
    assert memory.tables == {}


def test_who_says_nothing_of_who_asks_is_told_how(
    memory: Memory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_KEY")
    assert "set AZURE_STORAGE_KEY or" in printed(capsys, "status", "azure://shop", code=Exit.STORE)


def test_the_inspector_says_that_it_asks_an_account_before_it_waits_for_it(
    memory: Memory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uvicorn = pytest.importorskip("uvicorn")
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: None)
    said = printed(capsys, "inspect", "env:STORE")
    assert said.startswith("http://127.0.0.1:")
    assert said.endswith("tablemapper: asking env:STORE, which may take a while to answer\n")


def test_a_file_is_copied_into_an_account_and_back(
    memory: Memory, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with tm.open(tmp_path / "parts.db", models=ALL) as store:
        store.insert_many(Part("b", n) for n in range(3))
    copied = json.loads(printed(capsys, "copy", "parts.db", "env:STORE", "--models", MODELS, "--json"))
    assert (copied["inserted"], copied["deleted"]) == (3, 6)
    assert "3 inserted, 0 replaced, 0 deleted" in printed(capsys, "copy", "env:STORE", "new.db", "--models", MODELS)
    with tm.open(tmp_path / "new.db", models=ALL) as store:
        assert store[Colors.key("red")].number == 3
    only = "copy", "new.db", "other.db", "--models", MODELS, "--class"
    assert "3 inserted" in printed(capsys, *only, "Part")
    for name, text in (
        ("Nothing", "no class 'Nothing' in this store"),
        ("Colors", "it follows Part; name that in only="),
    ):
        assert run([*only, name]) != 0
        assert text in capsys.readouterr().err


def test_a_store_that_is_only_read_follows_and_writes_nothing(memory: Memory) -> None:
    with tm.open(TEXT, read_only=True) as bare, tm.open(TEXT, models=ALL, read_only=True) as store:
        memory.sent.clear()
        assert store.check().ok
        assert bare.query(bare.classes["Part"]).allow_scan().count() == 6
        for call in (
            lambda: store.insert(Part("c", 1)),
            lambda: store.insert_many([Part("c", 1)]),
            lambda: store.sweep(),
        ):
            with pytest.raises(tm.StoreReadOnly, match="opened with read_only=True"):
                call()
        assert not [one for one in memory.sent if isinstance(one, GroupTransaction | CreateTable)]
        with tm.open(TEXT, models=[entity("New", "News", {"id": str}, tm.Key[str](partition="{id}"))]):
            sent = len(memory.sent)
        bare._engine.catch_up()
        assert bare.get(bare.classes["Part"].key("a", 1)) is not None
        assert not [one for one in memory.sent[sent:] if isinstance(one, GroupTransaction | CreateTable)]


def test_what_lacks_something_is_not_opened_to_be_read(memory: Memory) -> None:
    with pytest.raises(tm.SchemaMismatch, match=r"opened with read_only=True[\s\S]*Other is new"):
        tm.open(TEXT, models=[Part, Other], read_only=True)

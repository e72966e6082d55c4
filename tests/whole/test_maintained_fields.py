"""Fields of an ordinary entity that the store maintains from other entities."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tablemapper as tm
from tablemapper.engines.sqlite.online import apply_schema

from ..classes import entity
from ..sql import run_sql
from ..stores import repaired, sound_store


class Employee(tm.Entity, table="Company"):
    department: tm.Field[str]
    number: tm.Field[int]
    age: tm.Field[int]
    salary: tm.Field[Decimal]
    team: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str, int](partition="{department}", row="{number:05d}")


def department(**indexes: Any) -> Any:
    body = {
        "employees": tm.count(of=Employee),
        "salaries": tm.sum(Employee.salary, of=Employee),
        "oldest": tm.max(Employee.age, of=Employee),
        "retiring": tm.count(of=Employee, where=Employee.age > 60, name="Retiring"),
        "note": tm.field(default=None),
    }
    kinds = {"department": str, "name": str, "employees": int, "salaries": Decimal, "oldest": int | None}
    kinds |= {"retiring": int, "note": str | None}
    key = tm.Key[str](partition="{department}", row="Department")
    annotations = {name: tm.Field[kind] for name, kind in kinds.items()}
    names = {"__annotations__": annotations, "__module__": __name__, "key": key}
    return type(tm.Entity)("Department", (tm.Entity,), names | body | indexes, table="Company")


Department = department(
    by_size=tm.Index[int, str](partition="all", row=("{employees}", "{name}"), include=("oldest",)),
    by_oldest=tm.Index[int](partition="{oldest}", where=lambda d: d.retiring > 0),
)


class Plain(tm.Entity, table="Company"):
    department: tm.Field[str]
    name: tm.Field[str]
    note: tm.Field[str | None] = tm.field(default=None)

    key = tm.Key[str](partition="{department}", row="Department")


Plain.__name__ = "Department"
MODELS = [Employee, Department]


@pytest.fixture
def store(tmp_path: Path, lacks: Callable[[str], bool], monkeypatch: pytest.MonkeyPatch) -> Iterator[tm.Store]:
    """A store, whose departments have indexes over their maintained fields, if the engine can have these."""
    if lacks("kept_indexes"):
        monkeypatch.setitem(globals(), "Department", department())
    with tm.open(tmp_path / "store.db", models=[Employee, Department]) as opened:
        yield opened


@pytest.mark.needs("across_partitions")
def test_an_entity_with_maintained_fields_is_moved_and_has_those_of_its_new_key(store: tm.Store) -> None:
    store.insert_many([person("a", 1, age=40), person("b", 1), person("b", 2), Department("a", "A")])
    one = store[Department.key("a")]
    store.move(one, Department.key("b"))
    assert (one.name, one.employees, one.oldest) == ("A", 2, 30)
    assert kept(store, "b") == (2, Decimal("21.00"), 30, 0)
    assert not store.exists(Department.key("a"))


def person(department: str, number: int, age: int = 30, salary: str = "10.50") -> Employee:
    return Employee(department, number, age, Decimal(salary))


def kept(store: tm.Store, department: str) -> tuple[Any, ...]:
    """Return the maintained fields of a department, each way of reading it compared."""
    one = store[Department.key(department)]
    values = (one.employees, one.salaries, one.oldest, one.retiring)
    query = store.query(Department).where(Department.department == department)
    assert list(query) == [one] == store.get_many([Department.key(department)])
    (selected,) = query.select(Department.employees, Department.salaries, Department.oldest, Department.retiring)
    assert selected == values
    assert (
        next(one for one in store.partition(Department.department == department) if isinstance(one, Department)) == one
    )
    assert query.columns()["employees"] == [one.employees]
    if hasattr(Department, "by_size"):
        assert one in list(store.query(Department.by_size(one.employees, one.name)))
        assert [one.retiring > 0] == [one in list(store.query(Department.by_oldest(one.oldest or 0)))]
    assert store.check().ok
    return values


NOTHING = (0, Decimal(0), None, 0)


def test_a_field_is_right_whichever_comes_first(store: tm.Store, lacks: Callable[[str], bool]) -> None:
    store.insert(Department("a", "First"))
    assert kept(store, "a") == NOTHING
    store.insert(person("a", 1, 61))
    store.insert(person("a", 2, salary="1"))
    assert kept(store, "a") == (2, Decimal("11.50"), 61, 1)
    store.insert(person("b", 1, 70))
    late = Department("b", "Second")
    assert (late.employees, late.salaries, late.oldest) == (0, Decimal(0), None)
    store.insert(late)
    assert (late.employees, late.oldest) == ((0, None) if lacks("one_commit") else (1, 70))
    assert kept(store, "b") == (1, Decimal("10.50"), 70, 1)


def test_a_department_that_comes_again_has_the_fields_that_its_people_make(store: tm.Store) -> None:
    first = Department("a", "First")
    store.insert(first)
    store.insert(person("a", 1))
    store.delete(first, if_match="*")
    store.insert(person("a", 2, 50))
    assert store.check().ok
    store.insert(Department("a", "Again"))
    assert kept(store, "a") == (2, Decimal("21.00"), 50, 0)


def test_a_change_of_a_maintained_field_moves_no_etag_and_conflicts_with_nobody(store: tm.Store) -> None:
    department = Department("a", "First")
    store.insert(department)
    before = tm.info(department)
    read = store[Department.key("a")]
    store.insert(person("a", 1))
    assert tm.info(store[Department.key("a")]) == before
    read.name = "Renamed"
    store.replace(read)
    assert kept(store, "a")[0] == 1
    assert tm.info(store[Department.key("a")]).etag != before.etag
    with pytest.raises(tm.PreconditionFailed):
        store.replace(department)
    store.insert(person("a", 2))
    store.delete(read)
    assert store.check().ok


def test_what_an_entity_held_when_it_was_read_is_never_written_back(store: tm.Store) -> None:
    department = Department("a", "First")
    store.insert(department)
    store.insert_many([person("a", number) for number in range(5)])
    for write in (
        lambda: store.replace(department),
        lambda: store.upsert(Department("a", "Second")),
        lambda: store.upsert(Department("a", "Third"), merge=True),
        lambda: store.merge(Department.key("a"), name="Fourth"),
        lambda: store.query(Department).where(Department.department == "a").update(name="Fifth"),
    ):
        write()
        assert kept(store, "a")[0] == 5
    assert store.merge(Department.key("a"), name="Sixth", returning=True).employees == 5
    assert department.replace(name="Seventh").employees == department.employees


@pytest.mark.needs("across_partitions")
def test_one_transaction_changes_people_and_departments(store: tm.Store) -> None:
    store.insert_many([Department("a", "First"), person("a", 1), Department("b", "Second")])
    with store.transaction(across_partitions=True) as tx:
        tx.merge(Department.key("a"), name="Renamed")
        tx.insert(person("a", 2, 80))
        tx.insert(person("b", 1))
        tx.delete(Department.key("b"))
        tx.insert(Department("c", "Third"))
        tx.insert(person("c", 1))
    assert kept(store, "a") == (2, Decimal("21.00"), 80, 1)
    assert kept(store, "c")[0] == 1
    with pytest.raises(tm.EntityExists), store.transaction() as tx:
        tx.insert(person("a", 3))
        tx.insert(Department("a", "Again"))
    assert kept(store, "a")[0] == 2


@pytest.mark.needs("all_or_none_load", when=lambda atomic: atomic)
@pytest.mark.parametrize("atomic", [False, True])
def test_many_at_once_in_any_order(store: tm.Store, atomic: bool) -> None:
    store.insert_many([Department("a", "First"), person("a", 1), person("b", 1)])
    people = [person(department, number, 30 + number) for department in "abc" for number in range(10, 40)]
    store.insert_many([people[0], Department("c", "Third"), *people[1:], Department("b", "Second")], atomic=atomic)
    assert [kept(store, name)[:1] for name in "abc"] == [(31,), (31,), (30,)]


def test_columns_are_written_without_the_fields(store: tm.Store) -> None:
    store.insert(person("a", 1, 70))
    assert store.insert_columns(Department, {"department": ["a", "b"], "name": ["First", "Second"]}) == 2
    assert [kept(store, "a")[0], kept(store, "b")] == [1, NOTHING]


def test_clearing_the_people_leaves_departments_of_nobody(store: tm.Store) -> None:
    store.insert_many([Department("a", "First"), *[person("a", number, 70) for number in range(9)]])
    assert store.clear(Employee) == 9
    assert kept(store, "a") == NOTHING
    store.insert(person("a", 1))
    assert store.clear(Department) == 1
    store.insert(Department("a", "First"))
    assert kept(store, "a")[0] == 1


@pytest.mark.needs("sorts")
def test_a_sum_of_more_digits_than_a_value_may_have_is_read_and_sorted_and_is_no_damage() -> None:
    members = {"name": str, "number": int, "units": int, "money": Decimal}
    Account = entity("Account", "Accounts", members, tm.Key[str, int](partition="{name}", row="{number}"))

    class Owner(tm.Entity, table="Owners"):
        name: tm.Field[str]
        units: tm.Field[int] = tm.sum(Account.units, of=Account)
        money: tm.Field[Decimal] = tm.sum(Account.money, of=Account)
        key = tm.Key[str](partition="{name}")

    much = Decimal("9999999999999999999999999999999999"), Decimal("1E-20")
    with tm.open(":memory:", models=[Account, Owner]) as store:
        store.insert_many([Owner("a"), *[Account("a", at, 2**63 - 1, one) for at, one in enumerate(much)]])
        owner = store[Owner.key("a")]
        assert (owner.units, owner.money) == (2**64 - 2, Decimal(f"{much[0]}.00000000000000000001"))
        assert str(store.check()).endswith("ok")
        store.insert_many([Owner("b"), Account("b", 0, 2**63 - 1, much[0])])
        query = store.query(Owner).order_by(Owner.units.desc()).allow_scan()
        assert [one.name for one in query] == ["a", "b"]
        assert [one.name for page in query.pages(1) for one in page.items] == ["a", "b"]
        assert query.select(Owner.units).first() == (2**64 - 2,)


@pytest.mark.needs("kept_indexes")
def test_a_sum_of_both_infinities_is_none_in_the_field_in_conditions_and_in_an_index() -> None:
    members = {"device": str, "number": int, "value": float}
    Reading = entity("Reading", "Readings", members, tm.Key[str, int](partition="{device}", row="{number}"))
    members = {"device": str, "total": (float, tm.sum(Reading.value, of=Reading))}
    key = tm.Key[str](partition="{device}")
    Device = entity("Device", "Devices", members, key, by_total=tm.Index[float](partition="all", row="{total}"))
    with sound_store(":memory:", models=[Reading, Device]) as store:
        store.insert_many([Device("a"), Reading("a", 0, math.inf), Reading("a", 1, -math.inf)])
        assert store[Device.key("a")].total is None
        assert not store.query(Device).where(Device.total == 0).allow_scan().exists()
        assert not store.query(Device.by_total()).exists()
        assert store.check().ok, store.check()
        store.delete(Reading.key("a", 0))
        assert [one.total for one in store.query(Device.by_total())] == [-math.inf]
        store.delete(Reading.key("a", 1))
        assert [one.total for one in store.query(Device.by_total())] == [0.0]


# ---------------------------------------------------------------------------------------------- it is read only


def test_nobody_sets_a_maintained_field(store: tm.Store) -> None:
    department: Any = Department("a", "First")
    store.insert(department)
    message = "employees: the store maintains it from Employee; write Employee entities instead"
    for write in (
        lambda: setattr(department, "employees", 3),
        lambda: department.replace(employees=3),
        lambda: department.replace(Department.employees.set(3)),
        lambda: store.merge(Department.key("a"), employees=3),
        lambda: store.merge(Department.key("a"), Department.employees.add(1)),
        lambda: store.query(Department).where(Department.department == "a").update(employees=3),
        lambda: store.insert_columns(Department, {"department": ["b"], "name": ["x"], "employees": [3]}),
    ):
        with pytest.raises(tm.InvalidEntity, match=message):
            write()
    with pytest.raises(TypeError, match="employees"):
        Department("a", "First", employees=3)  # type: ignore[call-arg]
    assert kept(store, "a") == NOTHING


def test_json_has_it_for_those_who_read(store: tm.Store) -> None:
    store.insert_many([Department("a", "First"), person("a", 1)])
    read = store[Department.key("a")]
    assert tm.to_dict(read)["employees"] == 1
    back = tm.from_json(Department, tm.to_json(read, etag=True))
    assert (back.name, back.employees) == ("First", 0)
    store.replace(back)
    assert kept(store, "a")[0] == 1
    schema = tm.json_schema(Department)
    assert schema["properties"]["employees"] == {"type": "integer", "readOnly": True}
    assert schema["required"] == ["department", "name"]


def _class(base: Any = tm.Entity, /, *, table: str = "Faulty", key: Any = None, of: Any = None, **body: Any) -> Any:
    annotations = {"department": tm.Field[str], **{name: tm.Field[one[0]] for name, one in body.items()}}
    fields = {name: one[1] for name, one in body.items() if len(one) > 1}
    key = key or tm.Key(partition="{department}", row="Department")
    made = {"__annotations__": annotations, "__module__": __name__, "key": key, **fields}
    return type(tm.Entity)("Faulty", (base,), made, table=table, **({} if of is None else {"of": of}))


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: _class(n=(int, tm.count())), r"n: count\(…\) belongs in an Aggregate, .* n = tm.count\(of=…\)"),
        (lambda: _class(n=(int | None, tm.max(Employee.age))), r"n = tm.max\(Employee.age, of=…\)"),
        (lambda: _class(n=(str, tm.group_by(Employee.team))), r"group_by\(…\) belongs in an Aggregate"),
        (lambda: _class(n=(int, tm.count(of=3))), "n: of=3: expected the class of the entities that it measures"),  # type: ignore[call-overload]
        (lambda: _class(n=(str, tm.count(of=Employee))), "n: a count is an int, not str"),
        (lambda: _class(n=(int, tm.max(Employee.age, of=Employee))), r"n: .* make it Field\[int \| None\]"),
        (lambda: _class(n=(int | None, tm.max(Employee.age, of=Department))), "n: Employee.age is not a field of Department"),
        (lambda: _class(n=(int, tm.sum(Department.employees, of=Department))), "a maintained field itself; measure its source"),
        (
            lambda: _class(n=(int, tm.count(of=Employee)), city=(str,), key=tm.Key(partition="{city}", row="{department}")),
            "n: it is over the entities with the values of this key, but Employee has no field city",
        ),
        (
            lambda: _class(n=(int, tm.count(of=Employee)), key=tm.Key(partition="{department:fold}", row="x")),
            "n: its key must hold department without loss",
        ),
        (
            lambda: _class(n=(int, tm.count(of=Employee)), key=tm.Key(partition="{department}", row="{n}")),
            r"\{n\} is maintained by the store, and a key stays as it is; an index can be made of it",
        ),
        (
            lambda: _class(tm.Aggregate, of=Department, n=(int, tm.count(of=Employee))),
            "n: of= is for a field of an entity; the class statement of an aggregate says what",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_maintained_is_refused_with_the_class(declare: Callable[[], Any], message: str) -> None:
    with pytest.raises(tm.InvalidModel, match=message):
        declare()


def test_a_store_without_the_source_is_refused() -> None:
    with pytest.raises(
        tm.InvalidModel, match="Department:employees is maintained from Employee, which is not among them"
    ):
        tm.open(":memory:", models=[Department])


# ---------------------------------------------------------------------------------------------- stores that are there


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "old.db"
    with tm.open(path, models=[Employee, Plain]) as store:
        store.insert_many([person(name, number, 20 + number) for name in "abc" for number in range(30)])
        store.insert_many([Plain("a", "First"), Plain("b", "Second"), Plain("d", "Empty")])
    return path


@pytest.mark.file
def test_a_field_that_is_new_is_built_when_the_store_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_schema, "_AT_ONCE", 10)
    with sound_store(path, models=MODELS, build=False) as store:
        with pytest.raises(tm.NotReady, match="Department:"):
            store[Department.key("a")]
        with pytest.raises(tm.NotReady, match="Department:"):
            list(store.query(Department).where(Department.department == "a"))
        store.insert(person("a", 99))
        store.merge(Department.key("b"), name="Renamed")
        store.insert(Department("c", "Third"))
        assert store.build(limit=40) is not None
        store.delete(Employee.key("a", 3))
        store.delete(Employee.key("c", 3))
    with tm.open(path, models=MODELS) as store:
        assert [kept(store, name)[0] for name in "abcd"] == [30, 30, 29, 0]


@pytest.mark.file
def test_an_older_version_goes_on_without_the_field(path: Path) -> None:
    class Counted(tm.Entity, table="Company"):
        department: tm.Field[str]
        name: tm.Field[str]
        note: tm.Field[str | None] = tm.field(default=None)
        employees: tm.Field[int] = tm.count(of=Employee)

        key = tm.Key[str](partition="{department}", row="Department")

    Counted.__name__ = "Department"
    with tm.open(path, models=[Employee, Plain]) as old, tm.open(path, models=[Employee, Counted]) as new:
        old.insert(person("a", 99))
        old.merge(Plain.key("a"), name="Renamed")
        old.insert(Plain("c", "Third"))
        old.delete(Employee.key("b", 1))
        assert [new[Counted.key(name)].employees for name in "abcd"] == [31, 29, 30, 0]
        assert old.check().ok
        assert new.check().ok
        new.delete(Counted.key("a"))
        old.insert(Plain("a", "Again"))
        assert new[Counted.key("a")].employees == 31


@pytest.mark.file
def test_an_older_version_maintains_an_index_over_a_field_that_it_does_not_know(path: Path) -> None:
    with (
        tm.open(path, models=[Employee, Plain]) as old,
        tm.open(path, models=[Employee]) as people,
        tm.open(path, models=MODELS) as new,
    ):
        old.insert(person("a", 99, 90))
        people.insert(person("b", 99))
        people.insert_many([person("d", number, 70) for number in range(3)])
        people.delete(Employee.key("b", 3))
        old.insert(Plain("c", "Third"))
        old.merge(Plain.key("a"), name="Renamed")
        with old.transaction(across_partitions=True) as tx:
            tx.merge(Plain.key("b"), name="Other")
            tx.insert(person("b", 100, 80))
        assert [kept(new, name)[0] for name in "abcd"] == [31, 31, 30, 3]
        assert old.check().ok
        assert people.check().ok
        old.delete(Plain.key("a"))
        assert people.clear(Employee) == 95
        assert kept(new, "d") == NOTHING


@pytest.mark.file
def test_what_is_damaged_is_found_and_repaired(place: Path) -> None:
    with tm.open(place, models=MODELS) as store:
        store.insert_many([Department("a", "First"), person("a", 1, 70), person("a", 2, 80)])
    damage = "UPDATE CompanyDepartmentEmployees SET employees = 7"
    run_sql(place, damage, "DELETE FROM CompanyDepartmentOldest", "DELETE FROM CompanyBySize")
    with tm.open(place, models=MODELS) as store:
        assert {problem.where for problem in store.check().problems} >= {"Department:employees", "Department.by_size"}
        report = repaired(store)
        assert report.ok, report
        assert kept(store, "a") == (2, Decimal("21.00"), 80, 2)


class Floor(enum.Enum):
    FIRST = "1"
    SECOND = "2"


class Room(tm.Entity, table="Rooms"):
    floor: tm.Field[Floor]
    number: tm.Field[int]

    key = tm.Key[Floor, int](partition="{floor}", row="{number}")


def _storey(**fields: Any) -> Any:
    body = dict.fromkeys(fields, tm.field(default=None))
    fields = {"floor": Floor, "rooms": int, **fields}
    return entity("Storey", "Storeys", fields, tm.Key[Floor](partition="{floor}"), rooms=tm.count(of=Room), **body)


@pytest.mark.file
def test_an_older_version_with_an_enum_in_its_key_goes_on_beside_a_field_that_it_does_not_know(tmp_path: Path) -> None:
    older, newer = _storey(), _storey(color=str | None)
    with sound_store(tmp_path / "s.db", models=[Room, older]) as old, tm.open(tmp_path / "s.db", models=[Room, newer]):
        old.insert(Room(Floor.SECOND, 1))
        old.insert(older(Floor.SECOND))
        assert old[older.key(Floor.SECOND)].rooms == 1

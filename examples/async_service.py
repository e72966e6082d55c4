"""A service that takes readings from many devices at once, over TCP, a JSON object a line.

``python examples/async_service.py [--port 8600]`` serves; with ``--try`` fifty devices
send, and the answers are shown. Each reading is on the disk before the service answers; devices that send at the same time
share a commit.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import tablemapper as tm


class Reading(tm.Entity, table="Readings"):
    device: tm.Field[str]
    taken_at: tm.Field[datetime]
    temperature: tm.Field[float]

    key = tm.Key[str, datetime](partition="{device}", row="{taken_at}")


class Day(tm.Aggregate, of=Reading, table="Days"):
    device: tm.Field[str] = tm.group_by(Reading.device)
    day: tm.Field[date] = tm.group_by(Reading.taken_at.date())
    readings: tm.Field[int] = tm.count()
    mean: tm.Field[float | None] = tm.avg(Reading.temperature)

    key = tm.Key[str, date](partition="{device}", row="{day}")


class Service:
    """Answers lines: a reading is stored, ``{"device": …, "last": n}`` gives the newest ones."""

    def __init__(self, store: tm.AsyncStore) -> None:
        self.store = store

    async def answer(self, line: bytes) -> object:
        try:
            asked = json.loads(line)
            if "last" in asked:
                query = self.store.query(Reading).where(Reading.device == asked["device"])
                newest = query.order_by(Reading.taken_at.desc()).limit(asked["last"])
                return [
                    [reading.taken_at.isoformat(), reading.temperature]
                    async for reading in newest
                ]
            taken_at = datetime.fromisoformat(asked["taken_at"])
            await self.store.insert(
                Reading(asked["device"], taken_at, asked["temperature"])
            )
        except tm.EntityExists:
            return {
                "ok": True,
                "known": True,
            }  # the device did not hear the first answer, and sent again
        except (
            tm.InvalidEntity,
            tm.InvalidQuery,
            ValueError,
            KeyError,
            TypeError,
        ) as error:
            return {"ok": False, "error": f"{type(error).__name__}: {error}"}
        return {"ok": True}

    async def serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async for line in reader:
            writer.write(json.dumps(await self.answer(line)).encode() + b"\n")
            await writer.drain()
        writer.close()


async def ask(port: int, *questions: object) -> list[object]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers: list[object] = []
    for question in questions:
        writer.write(json.dumps(question).encode() + b"\n")
        answers.append(json.loads(await reader.readline()))
    writer.close()
    return answers


async def try_it(port: int, store: tm.AsyncStore) -> None:
    start = datetime(2024, 1, 1, tzinfo=UTC)

    def reading(device: int, hour: int) -> dict[str, object]:
        taken_at = start + timedelta(hours=hour)
        return {
            "device": f"d-{device}",
            "taken_at": taken_at.isoformat(),
            "temperature": 20.0 + hour % 5,
        }

    told = await asyncio.gather(
        *[ask(port, *[reading(device, hour) for hour in range(24)]) for device in range(50)]
    )
    print(
        sum(answer == {"ok": True} for answers in told for answer in answers),
        "readings stored",
    )
    print("sent again:", *await ask(port, reading(7, 3)))
    print("no time:", *await ask(port, {"device": "d-1"}))
    print("the newest of d-7:", *await ask(port, {"device": "d-7", "last": 2}))
    day = await store[Day.key("d-7", start.date())]
    print(f"d-7 on {day.day}: {day.readings} readings, mean {day.mean:.2f}")
    print("check:", "ok" if (await store.check()).ok else "problems")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8600)
    parser.add_argument("--store", type=Path, default=Path("readings.db"))
    parser.add_argument("--try", action="store_true", dest="trying")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "readings.db" if chosen.trying else chosen.store
        async with tm.open_async(path, models=[Reading, Day]) as store:
            server = await asyncio.start_server(
                Service(store).serve, "127.0.0.1", 0 if chosen.trying else chosen.port
            )
            async with server:
                if chosen.trying:
                    await try_it(server.sockets[0].getsockname()[1], store)
                else:
                    print(
                        f"listening on 127.0.0.1:{chosen.port}; Ctrl-C ends it", flush=True
                    )
                    await server.serve_forever()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())

"""`tenure schedules`."""

from __future__ import annotations

import pytest

MORE = """

@jobs.task(interval=3600)
async def hourly() -> None:
    pass


jobs.schedules.declare("greet", hello.bind("you"), cron="0 7 * * *", timezone="Europe/Berlin")
"""


@pytest.fixture
def shop(tenure):
    app = tenure.folder / "app.py"
    app.write_text(app.read_text() + MORE)
    return tenure


def lines(tenure, *arguments: str):
    return tenure("schedules", *arguments).stdout.splitlines()


def test_sync_and_list(shop):
    assert lines(shop, "sync", "app:jobs") == ["created: greet, hourly"]
    assert shop.json("schedules", "sync", "app:jobs") == {
        "created": [],
        "kept": ["greet", "hourly"],
        "replaced": [],
        "retired": [],
        "rejected": {},
    }
    title, greet, hourly = lines(shop, "list", "app:jobs")
    assert lines(shop, "app:jobs") == [title, greet, hourly]
    assert title.split() == ["NAME", "STATE", "TASK", "APP", "NEXT", "LAST", "RULE"]
    assert greet.split()[:4] == ["greet", "active", "hello", "app"]
    assert greet.endswith("0 7 * * * Europe/Berlin")
    assert hourly.endswith("every 3600 s")


def test_a_url_knows_no_definition(shop):
    lines(shop, "sync", "app:jobs")
    assert [line.split()[1] for line in lines(shop, "list", shop.url)[1:]] == ["unknown"] * 2
    shop("schedules", "sync", shop.url, code=2)


def test_none(shop):
    shop("migrate", "app:jobs")
    result = shop("schedules", "list", "app:jobs")
    assert result.stdout == ""
    assert "there are no schedules" in result.stderr


def test_preview(shop):
    lines(shop, "sync", "app:jobs")
    ticks = lines(shop, "preview", "app:jobs", "greet", "-n", "3")
    assert len(ticks) == 3
    assert all(tick.endswith(":00:00Z") for tick in ticks)
    assert len(lines(shop, "preview", "app:jobs", "greet", "--json")) == 5


def test_run_now(shop):
    lines(shop, "sync", "app:jobs")
    [job_id] = lines(shop, "run-now", "app:jobs", "greet")
    shown = shop.json("job", "show", "app:jobs", job_id)
    assert (shown["schedule"], shown["tick"], shown["arguments"]) == (
        "greet",
        None,
        {"name": "you"},
    )
    assert "schedule  greet" in shop("job", "show", "app:jobs", job_id).stdout
    assert "id" in shop.json("schedules", "run-now", "app:jobs", "greet")


def test_pause_and_resume(shop):
    lines(shop, "sync", "app:jobs")
    assert lines(shop, "pause", "app:jobs", "greet") == ["greet: paused"]
    assert shop.json("schedules", "pause", "app:jobs", "greet")["state"] == "paused"
    [resumed] = lines(shop, "resume", "app:jobs", "greet")
    assert resumed.startswith("greet: active, next at ")


def test_remove(shop):
    lines(shop, "sync", "app:jobs")
    assert shop.json("schedules", "remove", "app:jobs", "greet") == {"removed": "greet"}
    assert "hourly is removed" in shop("schedules", "remove", "app:jobs", "hourly").stderr
    assert lines(shop, "list", "app:jobs") == []


@pytest.mark.parametrize("command", ["preview", "run-now", "pause", "resume", "remove"])
def test_no_such_schedule(shop, command: str):
    lines(shop, "sync", "app:jobs")
    result = shop("schedules", command, "app:jobs", "nobody", code=3)
    assert "no schedule is named 'nobody'" in result.stderr
    shop("schedules", command, "app:jobs", code=2)


def test_what_is_rejected_is_a_failure(shop):
    app = shop.folder / "app.py"
    app.write_text(app.read_text() + '\njobs.schedules.declare("bad", "nobody", interval=5)\n')
    result = shop("schedules", "sync", "app:jobs", code=1)
    assert "rejected: bad: no task is named 'nobody'" in result.stderr
    assert "created: greet, hourly" in result.stdout

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.leases.kit import Desk
from tests.leases.service import Service


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.keeper.close()


@pytest.fixture
def service(desk: Desk) -> Service:
    return Service(desk.clock)

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.leases.kit import Desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.keeper.close()

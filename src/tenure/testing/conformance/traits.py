"""What an engine says of itself, and that it keeps to it."""

from __future__ import annotations

import pytest

from tenure.engines.protocol import ALL_FACETS, Engine
from tenure.errors import ConfigurationError
from tenure.testing.conformance.kit import Conformance


class TestTraits(Conformance):
    """`traits`, `url`, `migrate()`"""

    async def test_they_are_named_and_bounded(self, engine: Engine) -> None:
        traits = engine.traits
        assert traits.name
        assert engine.url.startswith(f"{traits.name}://")
        assert traits.facets <= ALL_FACETS
        assert traits.max_payload >= 1024

    async def test_a_side_handle_is_of_the_same_kind(self, engine: Engine) -> None:
        side = engine.side()
        assert (side.traits, side.url) == (engine.traits, engine.url)

    async def test_migrating_again_changes_nothing(self, engine: Engine) -> None:
        version = await engine.migrate()
        assert version >= 1
        assert await engine.migrate() == version

    async def test_migrating_needs_no_open_handle(self, engine: Engine) -> None:
        assert await engine.side().migrate() == await engine.migrate()

    async def test_what_cannot_be_joined_is_refused(self, engine: Engine) -> None:
        """Also where transactions can be joined: this is no connection of anything."""
        with pytest.raises(ConfigurationError):
            engine.join(object())

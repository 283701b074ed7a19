"""From a place to a connection: to the server, or to the one that sentinels or nodes name."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from redis import exceptions
from redis.asyncio import connection as connections
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot

from tenure.engines.redis.faults import summary
from tenure.engines.redis.place import Address, Place
from tenure.errors import ConfigurationError, EngineUnavailable


class Connection(Protocol):
    """What is used of the driver's connections."""

    async def connect(self) -> None: ...

    async def disconnect(self, nowait: bool = False) -> None: ...

    async def send_command(self, *words: Any, **options: Any) -> None: ...

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None: ...

    async def read_response(
        self,
        disable_decoding: bool = False,
        timeout: float | None = None,
        *,
        disconnect_on_error: bool = True,
    ) -> Any: ...


Make = Callable[[Place, Address | None, float, Mapping[str, Any]], Connection]
"""Makes a connection, not connected yet: to an address, within seconds, with other options."""


class Unreachable(Exception):
    """No server could be asked; nothing was sent."""


async def ask(connection: Connection, *words: str | bytes | int) -> Any:
    """Send one command and read its answer, on a connection that nobody else uses."""
    await connection.send_command(*words)
    return await connection.read_response()


def options_of(place: Place, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of every connection, whatever it is made of."""
    return {
        "db": place.db,
        "username": place.username,
        "password": place.password,
        "protocol": 2,
        "socket_timeout": None,
        **given,
    }


def address_of(place: Place, address: Address, seconds: float) -> dict[str, Any]:
    """The options of a connection to an address."""
    host, port = address
    found: dict[str, Any] = {"host": host, "port": port, "socket_connect_timeout": seconds}
    found["socket_keepalive"] = True
    if place.is_tls:
        found["ssl_cert_reqs"] = "required" if place.verify else "none"
        found["ssl_check_hostname"] = place.verify
        found["ssl_ca_certs"] = place.cafile
    return found


def awaited(
    place: Place, address: Address | None, seconds: float, given: Mapping[str, Any]
) -> Connection:
    """A connection of the driver's async kind."""
    options = options_of(place, given) | {"retry": Retry(NoBackoff(), 0)}
    if address is None:
        return cast(Connection, connections.UnixDomainSocketConnection(path=place.path, **options))
    kind = connections.SSLConnection if place.is_tls else connections.Connection
    return cast(Connection, kind(**address_of(place, address, seconds), **options))


class Dialler:
    """Makes connections to the server that has the keys, wherever that is now."""

    def __init__(self, place: Place, make: Make = awaited) -> None:
        self._place = place
        self._make = make
        self._moved: Address | None = None
        self._nodes: list[Address] = []

    def moved(self, error: Exception) -> None:
        """Remember where a refusal said that the keys are."""
        if isinstance(error, exceptions.MovedError):
            self._moved = (error.host, error.port)

    async def dial(self, seconds: float) -> Connection:
        """A new connection. Raises `Unreachable`, or `ConfigurationError` for a refused user."""
        place = self._place
        if place.is_sentinel:
            return await self._through_sentinels(seconds)
        if place.is_cluster:
            return await self._through_nodes(seconds)
        return await self._open(place.hosts[0] if place.hosts else None, seconds)

    async def _open(self, address: Address | None, seconds: float, **given: Any) -> Connection:
        connection = self._make(self._place, address, seconds, given)
        try:
            await connection.connect()
        except exceptions.AuthenticationError as error:
            raise ConfigurationError(
                f"{self._place.shown}: the server refuses this user: {summary(error)}"
            ) from error
        except exceptions.BusyLoadingError as error:
            await connection.disconnect(nowait=True)
            raise Unreachable(f"the server is starting: {summary(error)}") from error
        except (exceptions.RedisError, OSError, ssl.SSLError) as error:
            await connection.disconnect(nowait=True)
            raise Unreachable(summary(error)) from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def _through_sentinels(self, seconds: float) -> Connection:
        place = self._place
        problems = []
        for address in place.hosts:
            try:
                master = await self._asked_sentinel(address, seconds)
                if master is None:
                    problems.append(f"{address[0]}:{address[1]} knows no {place.service!r}")
                    continue
                connection = await self._open(master, seconds)
                role = await ask(connection, "ROLE")
                if role[0] == b"master":
                    return connection
                await connection.disconnect(nowait=True)
                problems.append(f"{master[0]}:{master[1]} is no master any more")
            except (Unreachable, exceptions.RedisError, OSError) as error:
                problems.append(summary(error))
        raise Unreachable("; ".join(problems))

    async def _asked_sentinel(self, address: Address, seconds: float) -> Address | None:
        place = self._place
        own = {
            "db": 0,
            "username": place.sentinel_username,
            "password": place.sentinel_password,
        }
        connection = await self._open(address, seconds, **own)
        try:
            found = await ask(connection, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", place.service)
        finally:
            await connection.disconnect(nowait=True)
        return None if found is None else (found[0].decode(), int(found[1]))

    async def _through_nodes(self, seconds: float) -> Connection:
        moved, self._moved = self._moved, None
        if moved is not None:
            try:
                return await self._open(moved, seconds)
            except Unreachable:
                pass  # the others may know more
        problems = []
        for address in dict.fromkeys((*self._place.hosts, *self._nodes)):
            try:
                return await self._open(await self._owner(address, seconds), seconds)
            except (Unreachable, exceptions.RedisError, OSError) as error:
                problems.append(summary(error))
        raise Unreachable("; ".join(problems))

    async def _owner(self, address: Address, seconds: float) -> Address:
        """The node that has our slot, as the node at `address` knows it."""
        connection = await self._open(address, seconds)
        try:
            slots = await ask(connection, "CLUSTER", "SLOTS")
        except exceptions.ResponseError as error:
            if "cluster support disabled" in str(error):
                raise ConfigurationError(
                    f"{self._place.shown}: this server is no cluster; use redis://"
                ) from error
            raise
        finally:
            await connection.disconnect(nowait=True)
        slot = key_slot(self._place.prefix.encode())
        self._nodes = [_node(node, address) for part in slots for node in part[2:]]
        for part in slots:
            if part[0] <= slot <= part[1]:
                return _node(part[2], address)
        raise Unreachable(f"no node has the slot {slot}")


def _node(node: Sequence[Any], asked: Address) -> Address:
    """An address in an answer; without a host it is that of the node asked."""
    host = node[0].decode() if isinstance(node[0], bytes) else node[0]
    return (host or asked[0], int(node[1]))


def closed(place: Place) -> EngineUnavailable:
    """What is raised for a handle that is closing."""
    return EngineUnavailable(f"the engine on {place.shown} is closing")

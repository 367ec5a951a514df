"""Limits the number of open connections, in all and from one address.

A full server closes the connection that has been idle for the longest time. If none is idle, the new connection
joins a reserve. In the reserve the server answers only probes, so that a busy server does not look like one that is
down.
"""

from __future__ import annotations

import ipaddress
import resource
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from app.errors import SettingsError

# The maximum number of connections in the reserve. If it is full and none of them is idle, the server refuses a further
# connection without reading its request, even a probe. If larger, a full server uses more open files.
NUM_RESERVED = 256
# The maximum number of connections of the port that serves only probes.
NUM_PROBING = 64
# The maximum number of connections that wait to be accepted. The event loop accepts all of them in one turn. If larger,
# such a turn takes longer. If smaller, the kernel drops connections that arrive at the same time.
BACKLOG = 2048
# Open files beside the connections: libraries, graphs, workers, glossaries, documents. If smaller, the server may fail
# to accept connections. If larger, it may refuse to start although it has enough open files.
NUM_OTHER_FILES = 128


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of one connection.

    read_timeout_s: seconds in which a request must arrive, unless its body arrives steadily (`MIN_BODY_RATE`).
    stall_s: seconds for which a client may read nothing of a response.
    max_header_bytes: maximum bytes of the request line, headers and trailers of a request together.
    """

    read_timeout_s: float
    stall_s: float
    max_header_bytes: int


class Admission(Enum):
    """What a new connection may do. SERVED: send requests. RESERVED: send probes. REFUSED: nothing, it is closed."""

    SERVED = "served"
    RESERVED = "reserved"
    REFUSED = "refused"


class Connection(Protocol):
    """The methods of a connection that the table calls."""

    def is_quiet(self) -> bool:
        """Whether all bytes of the last response are sent, and no byte of a next request has arrived."""

    def is_answering(self) -> bool:
        """Whether a request that has arrived has no complete response, or the client has not received all of it."""

    def make_room(self) -> None:
        """Close, so that another connection can be admitted."""


@dataclass(eq=False)
class Group:
    """Connections that share a limit.

    members: each connection with its address. idle: the connections without a request, the longest idle first. An
    admitted connection removes itself from `idle` when a request begins, and adds itself again after the response.
    """

    max_members: int
    members: dict[Connection, str] = field(default_factory=dict)
    idle: dict[Connection, None] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return len(self.members) >= self.max_members


@dataclass(frozen=True)
class ConnectionCounts:
    """The open connections of one port.

    num_active, num_idle: served connections with and without a request, together at most max_connections.
    num_reserve: connections in the reserve, on which the server answers only probes.
    """

    num_active: int
    num_idle: int
    num_reserve: int
    max_connections: int


class ConnectionTable:
    """The open connections of one port. Every method is called on the event loop."""

    def __init__(
        self,
        max_connections: int,
        max_per_address: int,
        *,
        num_reserved: int = NUM_RESERVED,
        is_for_probes: bool = False,
        proxies: Iterable[str] = (),
    ) -> None:
        """max_connections, max_per_address: the two limits on served connections.

        num_reserved: maximum number of connections in the reserve. is_for_probes: whether the port serves only probes.
        proxies: addresses and networks to which the limit per address does not apply.
        """
        self.is_for_probes = is_for_probes
        self.is_draining = False  # each connection then ends with the answer to its next request
        self._served = Group(max_connections)
        self._reserve = Group(num_reserved)
        self._max_per_address = max_per_address
        self._proxies = tuple(ipaddress.ip_network(proxy) for proxy in proxies)
        self._num_by_address: Counter[str] = Counter()

    def counts(self) -> ConnectionCounts:
        """The number of connections by their state."""
        served, num_idle = self._served, len(self._served.idle)
        return ConnectionCounts(
            len(served.members) - num_idle, num_idle, len(self._reserve.members), served.max_members
        )

    def is_answering(self) -> bool:
        """Whether any connection is answering a request."""
        members = (*self._served.members, *self._reserve.members)
        return any(connection.is_answering() for connection in members)

    def admit(self, connection: Connection, host: str) -> tuple[Admission, dict[Connection, None]]:
        """Add a new connection. Returns what it may do, and its group's idle connections, itself included.

        host: the caller's address. If the address has reached its limit, its longest idle connection is closed. If
        the server has reached its limit, the longest idle one of all is closed.
        """
        address = address_of(host)
        if self._make_room(address, is_limited=not self._is_proxy(host)):
            return self._join(Admission.SERVED, self._served, connection, address)
        if not self._reserve.is_full or self._close_idle(self._reserve):
            return self._join(Admission.RESERVED, self._reserve, connection, address)
        return Admission.REFUSED, {}

    def leave(self, connection: Connection) -> None:
        """Remove a connection, if the table has it."""
        for group in (self._served, self._reserve):
            group.idle.pop(connection, None)
            address = group.members.pop(connection, None)
            if address is not None and group is self._served:
                self._num_by_address[address] -= 1
                if not self._num_by_address[address]:
                    del self._num_by_address[address]

    def _make_room(self, address: str, *, is_limited: bool) -> bool:
        """Close an idle connection if a limit is reached. Returns whether there is room for another one.

        is_limited: whether the limit per address applies.
        """
        if is_limited and self._num_by_address[address] >= self._max_per_address:
            return self._close_idle(self._served, address)
        return not self._served.is_full or self._close_idle(self._served)

    def _is_proxy(self, host: str) -> bool:
        # The host is empty if the caller has reset the connection already.
        return bool(host) and any(ipaddress.ip_address(host) in network for network in self._proxies)

    def _join(
        self, admission: Admission, group: Group, connection: Connection, address: str
    ) -> tuple[Admission, dict[Connection, None]]:
        group.members[connection] = address
        group.idle[connection] = None
        if group is self._served:
            self._num_by_address[address] += 1
        return admission, group.idle

    def _close_idle(self, group: Group, address: str | None = None) -> bool:
        """Close the longest idle connection, of this address or of all. Returns False if none is idle."""
        for connection in list(group.idle):
            if address is not None and group.members[connection] != address:
                continue
            del group.idle[connection]
            if connection.is_quiet():  # otherwise its request is about to be read
                self.leave(connection)
                connection.make_room()
                return True
        return False


def plain_host(host: str) -> str:
    """The IPv4 address inside an address such as ::ffff:192.0.2.1; any other host unchanged.

    An IPv6 socket reports IPv4 clients by such addresses.
    """
    if ":" not in host:
        return host
    try:
        mapped = ipaddress.IPv6Address(host).ipv4_mapped
    except ValueError:
        return host
    return host if mapped is None else str(mapped)


def address_of(host: str) -> str:
    """The key of the limit per address: an IPv4 address, or the 64-bit network of an IPv6 address."""
    host = plain_host(host)
    if ":" not in host:
        return host
    try:
        return str(ipaddress.IPv6Address(int(ipaddress.IPv6Address(host)) >> 64 << 64))
    except ValueError:
        return host


def max_per_address(max_connections: int, setting: int) -> int:
    """The limit per address. setting: 0 for nine tenths of all, so that one address cannot take them all."""
    return setting or max(1, max_connections * 9 // 10)


def reserve_open_files(max_connections: int) -> None:
    """Raise the process's limit of open files to what its connections need.

    Raises SettingsError if the hard limit is below that.
    """
    needed = max_connections + NUM_RESERVED + NUM_PROBING + NUM_OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = needed + BACKLOG if hard == resource.RLIM_INFINITY else min(hard, needed + BACKLOG)
    if most < needed:
        problem = (
            f"TRANSDUCE_MAX_CONNECTIONS ({max_connections}) needs {needed} open files, and this process may have "
            f"{hard} (ulimit -Hn): lower the first or raise the second"
        )
        raise SettingsError([problem])
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))

"""Reasons why requests fail."""

from typing import ClassVar


class Error(Exception):
    """A request failed. The text is the reason: spind's own words for a refused request."""

    code: ClassVar[int] = 13
    """Number of the reason, as in `enum spin_status` of libspin for C. The numbers do not change."""


class InvalidValueError(Error, ValueError):
    """An option is out of range, or not one of the valid words."""

    code = 3


class ConnectError(Error):
    """spind cannot be reached."""

    code = 5


class ClosedError(Error):
    """The connection is closed: connect again."""

    code = 6


class RefusedError(Error):
    """spind refused the request."""

    code = 7


class ProtocolError(Error):
    """The answer was not understood: spind has another version of the protocol."""

    code = 8


class NotFoundError(Error):
    """No context has that name or id."""

    code = 9


class AmbiguousError(Error):
    """Several contexts have that name."""

    code = 10


class SharedMemoryError(Error):
    """Shared memory cannot be mapped."""

    code = 11


class ResourceError(Error):
    """The system has no descriptor, thread or memory left."""

    code = 14


class InternalError(Error):
    """A bug in this library, or a client that was used in a forked process."""

    code = 13

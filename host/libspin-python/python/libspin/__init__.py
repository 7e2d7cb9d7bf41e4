"""The application's side of spind: install execution contexts, and share host memory with their handlers.

    import libspin

    with libspin.Client() as spind:
        context = spind.install("handler.elf", ["udp dport 9999"], host_mem=4096)
        assert context.host is not None
        print(context.host.u32(0))
"""

from ._client import Client, Context, alloc
from ._errors import (
    AmbiguousError,
    ClosedError,
    ConnectError,
    Error,
    InternalError,
    InvalidValueError,
    NotFoundError,
    ProtocolError,
    RefusedError,
    ResourceError,
    SharedMemoryError,
)
from ._events import Events
from ._libspin import DEFAULT_SOCKET, Event, HostMemory
from ._libspin import VERSION as __version__
from ._values import (
    Area,
    Areas,
    Bill,
    Capabilities,
    ContextInfo,
    Counters,
    Fault,
    FaultInfo,
    Guarantees,
    LatencyInfo,
    LimitsInfo,
    MachineInfo,
    Replayed,
    RunInfo,
    SourceLine,
    Stats,
    ThreadInfo,
    TierInfo,
    UserInfo,
    Users,
)

__all__ = [
    "DEFAULT_SOCKET",
    "AmbiguousError",
    "Area",
    "Areas",
    "Bill",
    "Capabilities",
    "Client",
    "ClosedError",
    "ConnectError",
    "Context",
    "ContextInfo",
    "Counters",
    "Error",
    "Event",
    "Events",
    "Fault",
    "FaultInfo",
    "Guarantees",
    "HostMemory",
    "InternalError",
    "InvalidValueError",
    "LatencyInfo",
    "LimitsInfo",
    "MachineInfo",
    "NotFoundError",
    "ProtocolError",
    "RefusedError",
    "Replayed",
    "ResourceError",
    "RunInfo",
    "SharedMemoryError",
    "SourceLine",
    "Stats",
    "ThreadInfo",
    "TierInfo",
    "UserInfo",
    "Users",
    "__version__",
    "alloc",
]

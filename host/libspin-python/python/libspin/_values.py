"""What spind tells about itself and its contexts. The fields have the names of docs/protocol.md."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, is_dataclass
from functools import cache
from itertools import repeat
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

Abi = Literal["wire", "pspin", "fpspin"]
Checks = Literal["page", "exact"]
Early = Literal["wait", "drop"]
Engine = Literal["interp", "jit", "check"]
Full = Literal["drop", "wait", "mark", "kill"]
Isolation = Literal["context", "message"]
Lifetime = Literal["connection", "daemon", "persistent"]
Placement = Literal["home", "any"]
Tier = Literal["auto", "user", "kernel"]

Counters = dict[str, int]
"""Values by the names that `spinctl stats --explain` lists. A context has only those that are not 0."""


class Area(NamedTuple):
    """A range of NIC memory. Empty when the part does not exist."""

    address: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Areas:
    """Locations of a context's parts in NIC memory."""

    handlers: tuple[Area, Area, Area]
    """Header, payload and completion handler."""
    handler_mem: Area


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineInfo:
    """Clusters, HPUs and memories. Sizes are in bytes."""

    clusters: int
    hpus_per_cluster: int
    l1: int
    scratchpad: int
    """Largest scratchpad of a context, part of L1."""
    l2_data: int
    handler_mem: int
    """Handler memory, for image and context together."""
    l2_packet: int
    program: int
    stack: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsInfo:
    """Limits for contexts."""

    contexts: int
    queues: int
    hers: int
    host_mem: int
    """Most host memory of a context, in bytes."""
    watchdog_us: int
    instruction_limit: int | None
    image: int
    """Largest image file, in bytes."""
    connections: int
    """Most open connections of a user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """Guarantees for packets and handlers."""

    header_first: bool
    in_order_delivery: bool
    in_order: bool
    reliable: bool
    unmatched_to_kernel: bool
    matched_to_kernel: bool
    clock_hz: int | None
    """Frequency of the handlers' cycle counter. None: it counts instructions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Capabilities of spind and its machine. They do not change while spind runs."""

    version: str
    protocol: int
    nic: str
    machine: MachineInfo
    threads: int
    units: int = 1
    max_frame: int
    """Longest frame from the Ethernet header on, without FCS, in bytes."""
    max_payload: int
    limits: LimitsInfo
    engine: str
    checks: tuple[Checks, ...]
    isolation: tuple[Isolation, ...]
    placement: tuple[Placement, ...]
    compat: Literal["none", "fpspin"]
    guarantees: Guarantees


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """Execution parameters of a context's handlers."""

    engine: Engine
    abi: Abi
    checks: Checks
    isolation: Isolation
    placement: Placement
    watchdog_us: int
    instruction_limit: int | None
    message_timeout_us: int | None
    doorbell_us: int | None
    weight: int
    full: Full
    hpus: int
    verdicts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault: what happened, at which instruction, on which address."""

    cause: str
    pc: int
    address: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """Position in a handler's source."""

    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInfo:
    """A fault, with the image's symbols."""

    fault: Fault
    unit: int = 0
    handler: Literal["header", "payload", "completion"]
    symbol: str
    line: SourceLine | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyInfo:
    """Distribution of a latency, in nanoseconds."""

    name: Literal["total", "queueing", "handler"]
    count: int
    sum_ns: int
    min_ns: int
    max_ns: int
    p50_ns: int
    p99_ns: int
    p999_ns: int
    ranges: tuple[tuple[int, int], ...] = ()
    """Ascending upper bounds, and the number of samples up to each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierInfo:
    """Where a context's handlers run, if the tier "auto" or "kernel" was requested."""

    kernel: bool
    """Whether they run in the kernel's XDP hook."""
    reason: str
    """Why they run in user space. Empty if they do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextInfo:
    """A context. An ordinary user sees only a part of other users' contexts: `hidden`."""

    context: int
    """Id of the context."""
    own: bool = False
    hidden: bool = False
    name: str
    uid: int
    rules: tuple[str, ...]
    eom: str
    key: str
    header: tuple[str, Early] | None = None
    handlers: tuple[bool, bool, bool]
    host_mem: int
    lifetime: Lifetime
    units: tuple[int, int] = (0, 0)
    """First and last unit that run it."""
    run: RunInfo
    interpreted: str | None = None
    """Why its handlers are interpreted. None: they are translated."""
    tier: TierInfo | None = None
    """Where its handlers run. None: user space was requested."""
    counters: Counters
    latencies: tuple[LatencyInfo, ...] = ()
    faults: tuple[FaultInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadInfo:
    """Counters of an engine thread."""

    unit: int = 0
    clusters: tuple[int, int]
    """First and last cluster of the thread, in its unit."""
    core: int | None = None
    node: int = 0
    counters: Counters


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """All counters."""

    nic: str
    engine: Counters
    threads: tuple[ThreadInfo, ...]
    nic_counters: Counters
    latencies: tuple[LatencyInfo, ...]
    contexts: tuple[ContextInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """Bytes that a user's contexts and requests take, by kind."""

    host_memory: int
    context_memory: int
    images: int
    translations: int
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UserInfo:
    """A user's bill."""

    uid: int
    bill: Bill
    limit: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """The bills of users: of all for root, else of the user who asks."""

    users: tuple[UserInfo, ...]
    limit: int | None
    own: int
    """Bytes that spind itself took before it served users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Counts of a replay, in frames."""

    arrived: int
    unmatched: int
    too_long: int
    too_short: int
    sent: int


T = TypeVar("T")


def decode(kind: type[T], text: str) -> T:
    """Makes a value of one of the types above from the native part's JSON."""
    value: T = _build(kind, json.loads(text))
    return value


def _build(kind: Any, value: Any) -> Any:
    is_record = kind is Area or is_dataclass(kind)
    if is_record:
        hints = _hints(kind)
        return kind(**{name: _build(hints[name], part) for name, part in value.items() if name in hints})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is dict:
        return dict(value)
    if origin is tuple:
        kinds: Iterable[Any] = repeat(arguments[0]) if arguments[-1] is Ellipsis else arguments
        return tuple(_build(part, item) for part, item in zip(kinds, value))
    if origin is UnionType and value is not None:
        return _build(arguments[0], value)
    return value


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)

"""Servers that cannot hear each other: a network namespace each, joined by a router that drops what it is told to.

Every server's packets to another pass the router, a namespace of its own, where ``ip rule`` drops them by source and
target: a direction at a time, silently or with an ICMP error. Nothing beyond iproute2 is needed, and nothing of the
machine's own network is touched but one link to the router, by which writers and observers reach every server,
whatever is cut between the servers.

with apart(3) as network:
    ServerProcess(folder, host=network.address(0), namespace=network.namespace(0), …)
    network.cut(0, 1)
    network.heal()

Names are numbered, so that runs may go side by side; what a run left that was killed is removed by the next.
"""

import ctypes
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fcntl import LOCK_EX, flock
from pathlib import Path

LINK = "dafault"
"""Names of the links to the routers begin with it, and a number follows; so do those of namespaces."""
NUMBERS = 200
NAMESPACES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
LOCK = Path(tempfile.gettempdir()) / f"{LINK}.lock"


@dataclass
class Network:
    """``count`` namespaces and their router.

    Attributes:
        number: Of the network on this machine; decides names and addresses (10.213.<number>.0/24).
        count: How many servers it has room for, at most 60.
    """

    number: int
    count: int
    _rules: dict[tuple[int, int], str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def router(self) -> str:
        return f"{LINK}{self.number}-router"

    def namespace(self, server: int) -> str:
        return f"{LINK}{self.number}-{server}"

    def prefix(self, server: int) -> tuple[str, ...]:
        """What runs a command in the server's namespace."""
        return ("ip", "netns", "exec", self.namespace(server))

    def address(self, server: int) -> str:
        """Where others reach the server."""
        return f"{self._net}.{4 * server + 6}"

    @property
    def _net(self) -> str:
        return f"10.213.{self.number}"

    def cut(self, source: int, target: int, *, silently: bool = True) -> None:
        """Packets of ``source`` do not reach ``target`` any more; the other direction stays as it is.

        Not ``silently``: the router says so (ICMP), and connecting fails at once instead of after a timeout.
        """
        with self._lock:
            if (source, target) in self._rules:
                return
            how = "blackhole" if silently else "unreachable"
            rule = f"from {self.address(source)} to {self.address(target)} {how}"
            _ip("-n", self.router, "rule", "add", *rule.split())
            self._rules[source, target] = rule

    def mend(self, source: int, target: int) -> None:
        """Packets of ``source`` reach ``target`` again."""
        with self._lock:
            rule = self._rules.pop((source, target), None)
            if rule is not None:
                _ip("-n", self.router, "rule", "del", *rule.split())

    def heal(self) -> None:
        """Everybody reaches everybody."""
        for source, target in list(self._rules):
            self.mend(source, target)

    def set_up(self) -> None:
        """Make what is inside; the link to the router is there already and is what claims the number."""
        link = f"{LINK}{self.number}"
        _ip("netns", "add", self.router)
        _ip("link", "set", f"{link}p", "netns", self.router)
        _ip("addr", "add", f"{self._net}.1/30", "dev", link)
        _ip("link", "set", "dev", link, "up")
        _inside(self.router, f"addr add {self._net}.2/30 dev {link}p", f"link set dev {link}p up")
        forward = "echo 1 > /proc/sys/net/ipv4/ip_forward"
        _run("ip", "netns", "exec", self.router, "sh", "-c", forward)
        _ip("route", "add", f"{self._net}.0/24", "via", f"{self._net}.2")
        for server in range(self.count):
            own, gate = self.namespace(server), f"{self._net}.{4 * server + 5}"
            _ip("netns", "add", own)
            _inside(
                self.router,
                f"link add dev to{server} type veth peer name out netns {own}",
                f"addr add {gate}/30 dev to{server}",
                f"link set dev to{server} up",
            )
            _inside(
                own,
                "link set dev lo up",
                f"addr add {self.address(server)}/30 dev out",
                "link set dev out up",
                f"route add default via {gate}",
            )

    def tear_down(self) -> None:
        """Remove it, with whatever still runs in it; the link last, which frees the number."""
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
        for name in re.findall(rf"^{LINK}{self.number}-\S+", listed, re.MULTILINE):
            inside = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout
            for process in inside.split():
                with suppress(ProcessLookupError):
                    os.kill(int(process), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", "dev", f"{LINK}{self.number}"], capture_output=True, check=False)


def enter(namespace: Path) -> None:
    """Let this thread's network be another namespace's, which is named by its file."""
    setns = ctypes.CDLL(None, use_errno=True).setns
    file = os.open(namespace, os.O_RDONLY)
    try:
        if setns(file, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(file)


@contextmanager
def apart(count: int) -> Iterator[Network]:
    """A network of ``count`` namespaces, as root.

    Raises:
        OSError: The machine does not make them.
    """
    with _alone():
        _remove_left_behind()
        network = _claimed(count)
    try:
        network.set_up()
        yield network
    finally:
        network.tear_down()


@contextmanager
def _alone() -> Iterator[None]:
    """No other run looks for a number or for what was left meanwhile."""
    with LOCK.open("w") as file:
        flock(file, LOCK_EX)
        yield


def _remove_left_behind() -> None:
    for link in Path("/sys/class/net").glob(f"{LINK}*"):
        with suppress(OSError, ValueError):
            process, began = (link / "ifalias").read_text().split()
            if _began(int(process)) != began:
                Network(int(link.name.removeprefix(LINK)), 0).tear_down()


def _claimed(count: int) -> Network:
    fault = ""
    for number in range(NUMBERS):
        link = f"{LINK}{number}"
        if (Path("/sys/class/net") / link).exists():
            continue
        try:
            _ip("link", "add", "dev", link, "type", "veth", "peer", "name", f"{link}p")
        except OSError as error:  # somebody else was faster, or it cannot be done here
            fault = str(error)
            continue
        _ip("link", "set", "dev", link, "alias", f"{os.getpid()} {_began(os.getpid())}")
        return Network(number, count)
    raise OSError(f"no network of namespaces can be made: {fault}")


def _began(process: int) -> str | None:
    """When a process began, which its number does not say alone; None if there is none."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def _ip(*words: str) -> None:
    _run("ip", *words)


def _inside(namespace: str, *commands: str) -> None:
    _run("ip", "-n", namespace, "-batch", "-", lines="".join(f"{command}\n" for command in commands))


def _run(*command: str, lines: str = "") -> None:
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")

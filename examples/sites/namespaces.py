"""Two sites in one machine: a network namespace each, a firewall with NAT before each, and a WAN of a rate and a length.

```
 site A ── firewall of A ── 192.0.2.1 ══ line of a delay ══ 192.0.2.2 ── firewall of B ── site B
 10.81.1.2   lets port 443 out,                            192.0.2.3   lets port 443 in   10.81.2.2
             and nothing in                                            and nothing out    10.81.2.3
```

Needs root, `ip`, `tc`, `nft` and `cc`. Whatever it makes has names of this process, and goes with it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).parent

A_INSIDE = "10.81.1.2"
# Site B has two hosts, which is two addresses here; the world sees them under the other two.
B_INSIDE, B_OTHER_INSIDE = "10.81.2.2", "10.81.2.3"
PROXY = "http://10.81.1.1:3128"
A_OUTSIDE = "192.0.2.1"
B_OUTSIDE, B_OTHER_OUTSIDE = "192.0.2.2", "192.0.2.3"

# Packets stay packets: what the network card would do later never happens on a line like this.
_PLAIN = """
import fcntl, socket, struct, sys
SIOCETHTOOL, SET = 0x8946, {"rx": 0x15, "tx": 0x17, "tso": 0x1F, "gso": 0x24, "gro": 0x2C}
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    import array
    for code in SET.values():
        value = array.array("B", struct.pack("II", code, 0))
        request = struct.pack("16sP", sys.argv[1].encode(), value.buffer_info()[0])
        try:
            fcntl.ioctl(any_socket, SIOCETHTOOL, request)
        except OSError:
            pass
"""


def missing() -> str:
    """Why there can be no such sites here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "tc", "nft", "cc"):
        if shutil.which(program) is None:
            return f"there is no {program}"
    name = f"tw{os.getpid()}probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode != 0:
        return f"no network namespace is made: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


class TwoSites:
    """The sites. Use it in a `with` block."""

    def __init__(
        self,
        *,
        rate: str = "1gbit",
        delay_ms: float = 10,
        lose_one_in: int = 0,
        proxied: bool = False,
    ) -> None:
        """`rate` is that of the WAN, each way, as tc writes it; `delay_ms` how long a packet takes, one way. With
        `proxied` nothing gets out of site A but by a proxy, at `PROXY`.
        """
        self._proxied = proxied
        self._proxy: subprocess.Popen[bytes] | None = None
        prefix = f"tw{os.getpid()}"
        self._names = {part: f"{prefix}{part}" for part in ("a", "ga", "w", "gb", "b")}
        self._rate = rate
        self._line = [str(int(delay_ms * 1000)), str(lose_one_in)]
        self._delay: subprocess.Popen[bytes] | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="two-sites-")

    def inside(self, site: str, *command: str) -> list[str]:
        """What runs a command in site `a` or `b`."""
        return ["ip", "netns", "exec", self._names[site], *command]

    def cut(self) -> None:
        """From now on the WAN loses everything, and says nothing."""
        assert self._delay is not None
        self._delay.send_signal(signal.SIGUSR1)

    def mend(self) -> None:
        assert self._delay is not None
        self._delay.send_signal(signal.SIGUSR2)

    def __enter__(self) -> TwoSites:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def _make(self) -> None:
        for name in self._names.values():
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "dev", "lo", "up")
        self._wire(("a", "in"), ("ga", "in"))
        self._wire(("ga", "out"), ("w", "a"))
        self._wire(("w", "b"), ("gb", "out"))
        self._wire(("gb", "in"), ("b", "in"))
        for part, interface, address in (
            ("a", "in", A_INSIDE),
            ("ga", "in", "10.81.1.1"),
            ("ga", "out", A_OUTSIDE),
            ("gb", "out", B_OUTSIDE),
            ("gb", "in", "10.81.2.1"),
            ("gb", "out", B_OTHER_OUTSIDE),
            ("b", "in", B_INSIDE),
            ("b", "in", B_OTHER_INSIDE),
        ):
            _run("ip", "-n", self._names[part], "addr", "add", f"{address}/24", "dev", interface)
        _run("ip", "-n", self._names["a"], "route", "add", "default", "via", "10.81.1.1")
        _run("ip", "-n", self._names["b"], "route", "add", "default", "via", "10.81.2.1")
        self._firewall("ga", {})
        self._firewall("gb", {B_OUTSIDE: B_INSIDE, B_OTHER_OUTSIDE: B_OTHER_INSIDE})
        for gate in ("ga", "gb"):
            bucket = ["tbf", "rate", self._rate, "burst", "1mb", "latency", "50ms"]
            _run(*self.inside(gate, "tc", "qdisc", "add", "dev", "out", "root", *bucket))
        program = Path(self._directory.name) / "delay"
        _run("cc", "-O2", "-o", str(program), str(HERE / "delay.c"))
        self._delay = subprocess.Popen(self.inside("w", str(program), "a", "b", *self._line))
        if self._proxied:
            command = self.inside("ga", "python3", str(HERE / "proxy.py"))
            self._proxy = subprocess.Popen(command, stdout=subprocess.PIPE)
            assert self._proxy.stdout is not None
            self._proxy.stdout.readline()

    def _wire(self, one: tuple[str, str], other: tuple[str, str]) -> None:
        (a, at_a), (b, at_b) = ((self._names[part], name) for part, name in (one, other))
        ends = ["type", "veth", "peer", "name", at_b, "netns", b, "mtu", "9000"]
        _run("ip", "-n", a, "link", "add", "name", at_a, "mtu", "9000", *ends)
        for name, interface in ((a, at_a), (b, at_b)):
            _run("ip", "-n", name, "link", "set", "dev", interface, "up")
            _run("ip", "netns", "exec", name, "python3", "-c", _PLAIN, interface)

    def _firewall(self, gate: str, servers: dict[str, str]) -> None:
        """Site A's lets out port 443, site B's nothing; and in comes port 443 to `servers`, by what the world calls them."""
        is_open = gate == "ga" and not self._proxied
        let_out = 'iifname "in" oifname "out" tcp dport 443 accept' if is_open else ""
        let_in = 'iifname "out" tcp dport 443 accept' if servers else ""
        leads = "".join(
            f'iifname "out" ip daddr {outside} tcp dport 443 dnat ip to {inside}\n'
            for outside, inside in servers.items()
        )
        _run(*self.inside(gate, "sysctl", "-qw", "net.ipv4.ip_forward=1"))
        rules = f"""
            table ip firewall {{
                chain passing {{
                    type filter hook forward priority 0; policy drop;
                    ct state established,related accept
                    {let_out}
                    {let_in}
                }}
                chain own {{
                    type filter hook input priority 0; policy drop;
                    ct state established,related accept
                    iifname {{ "in", "lo" }} accept
                }}
                chain leading {{
                    type nat hook prerouting priority -100;
                    {leads}
                }}
                chain leaving {{
                    type nat hook postrouting priority 100;
                    oifname "out" masquerade
                }}
            }}
        """
        subprocess.run(self.inside(gate, "nft", "-f", "-"), input=rules, text=True, check=True)

    def _remove(self) -> None:
        for process in (self._delay, self._proxy):
            if process is not None:
                process.kill()
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()
        for name in self._names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        self._directory.cleanup()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")

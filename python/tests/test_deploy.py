"""The files of examples/deploy say what Kubernetes, systemd, bash and the command take."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import thalweg

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "examples" / "deploy"
SCRIPT = DEPLOY / "slurm.sh"
MANIFESTS = DEPLOY / "kubernetes.yaml"
DROP_IN = DEPLOY / "systemd-cluster.conf"
# The first that has the label of a pod's ordinal, and the last whose schemas the package has.
KUBERNETES = ("1.28", "1.37")


def run(
    arguments: list[str], environment: dict[str, str], directory: Path
) -> subprocess.CompletedProcess[str]:
    """Runs the command `thalweg` with these variables and none of the tests' own."""
    variables = {"PATH": os.environ["PATH"], "HOME": str(directory), **environment}
    return subprocess.run(
        [thalweg.executable(), *arguments],
        cwd=directory,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def check_serves(
    arguments: list[str], environment: dict[str, str], directory: Path, server: str
) -> None:
    """A start with these settings would be this server of a cluster, and nothing is in its way.

    Ports are chosen by the system here, and absolute paths lie below `directory`.
    """

    def here(text: str) -> str:
        text = re.sub(r"(//[^/:]+):\d+", r"\1:0", text)
        return re.sub(r"(^|=)/(?!/)", rf"\1{directory}/", text)

    known = run(["serve", "--help"], {}, directory).stdout
    unknown = [name for name in environment if f"[env: {name}]" not in known and name[:8] == "THALWEG_"]
    assert unknown == []
    for path in [*arguments, *environment.values()]:
        # Volumes are there before a server starts.
        if found := re.search(r"(?:^|=)(/(?!/).+)", path):
            Path(here(found[1])).parent.mkdir(parents=True, exist_ok=True)
    done = run(
        [*map(here, arguments), "--check"],
        {name: here(value) for name, value in environment.items()},
        directory,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"cluster: {server}" in done.stdout


def check_parses(arguments: list[str], directory: Path) -> None:
    """The command knows all of these options: `--help` behind one that it does not know is not reached."""
    done = run([*arguments, "--help"], {}, directory)
    assert done.returncode == 0, f"{arguments}: {done.stderr}"


def commands(script: str) -> list[list[str]]:
    """The arguments of each `thalweg` in a shell script, with its variables as they stand there."""
    text = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^\s*#.*$", "", script))
    found = re.findall(r"(?<![\w./-])thalweg ([a-z][^\n|&;>')]*)", text)
    return [shlex.split(command.replace("2>", "")) for command in found]


def manifests() -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in yaml.safe_load_all(MANIFESTS.read_text())}


def container() -> dict[str, Any]:
    only: list[dict[str, Any]] = manifests()["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert len(only) == 1
    return only[0]


def environment_of(container: dict[str, Any], ordinal: int) -> dict[str, str]:
    """The variables of a container of the pod of this ordinal."""

    def value(one: dict[str, Any]) -> str:
        if "value" in one:
            return str(one["value"])
        assert one["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['apps.kubernetes.io/pod-index']"
        return str(ordinal)

    return {one["name"]: value(one) for one in container["env"]}


def test_the_batch_script_is_bash() -> None:
    subprocess.run(["bash", "-n", SCRIPT], check=True)


def test_the_batch_script_starts_a_cluster(tmp_path: Path) -> None:
    found = [one for one in commands(SCRIPT.read_text()) if one[0] == "serve"]
    assert len(found) == 1
    values = {"data": "/local/data", "shared": "/home/shared"}
    arguments = [re.sub(r"\$(\w+)", lambda name: values[name[1]], one) for one in found[0]]
    environment = {"SLURM_PROCID": "1", "SLURM_NTASKS": "3", "THALWEG_GROUP_FILE": "/home/shared/thalweg.json"}
    check_serves(arguments, environment, tmp_path, "server 1 of 3, as SLURM_PROCID says")


def test_the_batch_script_gives_commands_what_they_take(tmp_path: Path) -> None:
    found = commands(SCRIPT.read_text())
    names = {one[0] for one in found}
    assert names == {"serve", "nodes", "topic", "produce", "consume"}
    for arguments in found:
        check_parses(arguments, tmp_path)


def test_an_option_that_is_misspelt_is_found(tmp_path: Path) -> None:
    wrong = SCRIPT.read_text().replace("--if-missing", "--if-mising").replace("--cluster ", "--clustre ")
    refused = []
    for arguments in commands(wrong):
        try:
            check_parses(arguments, tmp_path)
        except AssertionError:
            refused.append(arguments[0])
    assert sorted(refused) == ["serve", "topic"]


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_manifests_are_what_kubernetes_takes(version: str) -> None:
    kubernetes_validate = pytest.importorskip(
        "kubernetes_validate", reason="the schemas of Kubernetes are not installed (kubernetes-validate)"
    )
    documents = list(yaml.safe_load_all(MANIFESTS.read_text()))
    assert len(documents) == 4
    for document in documents:
        assert kubernetes_validate.validate(document, version, strict=True) == version
    # Strict: what Kubernetes does not know is refused, wherever it is.
    documents[-1]["spec"]["template"]["spec"]["containers"][0]["comand"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="comand"):
        kubernetes_validate.validate(documents[-1], version, strict=True)


def test_the_manifests_belong_together() -> None:
    found = manifests()
    servers = found["StatefulSet"]["spec"]
    pod = servers["template"]["spec"]
    labels = servers["template"]["metadata"]["labels"]
    for selector in [
        servers["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        pod["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ]:
        assert selector.items() <= labels.items()
    # Pods have names by a Service without an address, and before they are ready.
    assert servers["serviceName"] == found["Service"]["metadata"]["name"]
    assert found["Service"]["spec"]["clusterIP"] == "None"
    assert found["Service"]["spec"]["publishNotReadyAddresses"] is True
    assert pod["setHostnameAsFQDN"] is True
    # Founders wait for each other.
    assert servers["podManagementPolicy"] == "Parallel"
    claims = {one["metadata"]["name"] for one in servers["volumeClaimTemplates"]}
    shared = {one["name"]: one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"]}
    claim = found["PersistentVolumeClaim"]
    assert list(shared.values()) == [claim["metadata"]["name"]]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert {one["name"] for one in container()["volumeMounts"]} == claims | set(shared)
    ports = {one["name"] for one in container()["ports"]}
    assert {one["targetPort"] for one in found["Service"]["spec"]["ports"]} == ports
    variables = environment_of(container(), 0)
    assert int(variables["THALWEG_VOTERS"]) <= servers["replicas"] <= int(variables["THALWEG_SIZE"])


@pytest.mark.parametrize("ordinal", [0, 2, 3])
def test_a_pod_is_the_server_of_its_ordinal(tmp_path: Path, ordinal: int) -> None:
    server = f"server {ordinal} of 16, as --rank says"
    check_serves(container()["args"], environment_of(container(), ordinal), tmp_path, server)


def test_the_probe_of_a_pod_is_a_command(tmp_path: Path) -> None:
    probe = container()["readinessProbe"]["exec"]["command"]
    assert probe[0] == "thalweg"
    check_parses(probe[1:], tmp_path)


def unit_with_drop_in(directory: Path, drop_in: str) -> Path:
    """The unit that `make install` writes, for this command, with a drop-in beside it."""
    program = directory / "prefix" / "bin" / "thalweg"
    program.parent.mkdir(parents=True)
    program.symlink_to(Path(thalweg.executable()).resolve())
    template = (ROOT / "packaging" / "thalweg.service.in").read_text()
    unit = directory / "thalweg.service"
    unit.write_text(template.replace("@prefix@", str(directory / "prefix")))
    beside = directory / "thalweg.service.d"
    beside.mkdir()
    (beside / "cluster.conf").write_text(drop_in)
    return unit


def verified(unit: Path) -> str:
    """What systemd has to say about a unit."""
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_takes_the_drop_in(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    text = DROP_IN.read_text()
    assert "cluster.conf" not in verified(unit_with_drop_in(right, text))
    misspelt = text.replace("EnvironmentFile=", "EnviromentFile=")
    assert "Unknown key" in verified(unit_with_drop_in(wrong, misspelt))


def test_the_drop_in_has_settings_of_a_server(tmp_path: Path) -> None:
    text = DROP_IN.read_text()
    environment = dict(re.findall(r"(?m)^Environment=(\w+)=(.*)$", text))
    # What its head has in the file that differs from host to host.
    rank = re.search(r"echo (\w+)=(\d+) >/etc/thalweg/rank.env", text)
    assert rank is not None and "EnvironmentFile=%E/thalweg/rank.env" in text
    environment[rank[1]] = rank[2]
    shutil.copy(ROOT / "packaging" / "thalweg.toml", tmp_path)
    arguments = ["serve", "--config=thalweg.toml"]
    check_serves(arguments, environment, tmp_path, "server 0 of 3, as --rank says")

"""What is in deploy/: its settings are taken, its probes are answered, and nothing is written where nothing may be."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvota.app.config import read_config
from kvota.app.gateway_process import GatewayProcess, free_port_range

DEPLOY = Path(__file__).parents[3] / "deploy"
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def manifest(kind: str) -> dict[str, Any]:
    (found,) = [one for one in MANIFESTS if one["kind"] == kind]
    return found


POD: dict[str, Any] = manifest("StatefulSet")["spec"]["template"]["spec"]
CONTAINER: dict[str, Any] = POD["containers"][0]


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its folders, with its files in them; paths in the settings lead there."""
    monkeypatch.setenv("POD_NAME", "kvota-gateway-0")
    monkeypatch.setenv("POD_NAMESPACE", "kafka")
    settings, secrets = tmp_path / "etc/kvota", tmp_path / "etc/kvota-secrets"
    for mount in CONTAINER["volumeMounts"]:
        (tmp_path / mount["mountPath"].lstrip("/")).mkdir(parents=True)
    for name, text in manifest("ConfigMap")["data"].items():
        inside = re.sub(r'(?<=["{:])/(etc|run|var)/', rf"{tmp_path}/\1/", text)
        (settings / name).write_text(inside)
    for name, text in manifest("Secret")["stringData"].items():
        (secrets / name).write_text(text)
    return tmp_path


def test_the_settings_in_the_config_map_are_taken(pod: Path) -> None:
    config, faults = read_config(pod / "etc/kvota/gateway.toml")

    assert faults == []
    assert config.name == "kvota-gateway-0"
    assert config.gateway.advertised.host == "kvota-gateway-0.kvota-gateway.kafka.svc"
    assert 'password="change-me"' in config.kafka.volumes.admin["sasl.jaas.config"]


def test_all_that_is_written_is_written_to_a_volume(pod: Path) -> None:
    config, _ = read_config(pod / "etc/kvota/gateway.toml")
    writable = [
        pod / mount["mountPath"].lstrip("/")
        for mount in CONTAINER["volumeMounts"]
        if not mount.get("readOnly")
    ]
    assert config.record.folder is not None
    written = [config.pid_file, config.record.folder]
    written += [config.quotas.saved_ids] if config.quotas.saved_ids else []

    for path in written:
        assert any(path.is_relative_to(folder) for folder in writable), path


def test_a_pod_may_do_as_little_as_it_needs() -> None:
    names = {volume["name"] for volume in POD["volumes"]}
    names |= {one["metadata"]["name"] for one in manifest("StatefulSet")["spec"]["volumeClaimTemplates"]}  # fmt: skip

    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == names
    assert POD["securityContext"]["runAsNonRoot"] is True
    assert POD["automountServiceAccountToken"] is False
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    labels = manifest("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    for kind in ("StatefulSet", "PodDisruptionBudget"):
        assert manifest(kind)["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert manifest("Service")["spec"]["selector"].items() <= labels.items()


def test_a_gateway_with_these_settings_answers_the_probes_and_opens_the_ports(pod: Path) -> None:
    file = pod / "etc/kvota/gateway.toml"
    said = tomllib.loads(file.read_text())
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    assert ports["bootstrap"] == said["gateway"]["bootstrap_port"]
    assert ports["http"] == said["http"]["port"]
    assert {port["port"] for port in manifest("Service")["spec"]["ports"]} == set(ports.values())
    first, http = free_port_range(12), free_port_range(1)
    text = file.read_text().replace("port = 9180", f"port = {http}")
    text = text.replace("9192", str(first)).replace("9200", str(first + 1))
    text = text.replace('"0.0.0.0"', '"127.0.0.1"').replace("kafka-bootstrap:9092", "127.0.0.1:9")

    gateway = GatewayProcess(file.parent, config=text, quotas=manifest("ConfigMap")["data"]["quotas.toml"])  # fmt: skip
    with gateway:
        for probe in PROBES:
            ask = CONTAINER[probe]["httpGet"]
            assert ask["port"] in ports
            # No broker is there.
            expected = 503 if ask["path"] == "/readyz" else 200
            assert status_of(f"http://127.0.0.1:{http}{ask['path']}") == expected


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_image_is_of_nobody_who_may_do_more_and_runs_the_gateway() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    last = lines[max(number for number, line in enumerate(lines) if line.startswith("FROM ")) :]

    (user,) = [line.split()[1] for line in last if line.startswith("USER ")]
    assert int(user.split(":")[0]) == POD["securityContext"]["runAsUser"] > 0
    assert 'ENTRYPOINT ["/opt/kvota/bin/kvota", "gateway"]' in last
    # The settings have a login of the gateway's own, and a certificate may be a PKCS #12 file.
    assert "requirements/image.txt" in "\n".join(lines)
    assert CONTAINER["args"] == ["-c", "/etc/kvota/gateway.toml"]


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine"
)
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "kvota-gateway.service"
    text = (DEPLOY / "kvota-gateway.service").read_text()
    unit.write_text(text.replace("/opt/kvota/bin/kvota", sys.executable))

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )

    assert (done.returncode, done.stderr) == (0, "")

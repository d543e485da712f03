"""What is in deploy/: its settings are taken, its probes are answered, and nothing is written where nothing may be."""

import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvota.app.check_login import check_own_login
from kvota.app.config import read_config
from kvota.app.gateway_process import GatewayProcess, free_port_range
from kvota.client import Security, Tls
from kvota.client.properties import security_of
from kvota.localkafka.cluster.certificates import Authority
from kvota.tls.certificate import read_certificate

DEPLOY = Path(__file__).parents[3] / "deploy"
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
TLS: dict[str, Any] = yaml.safe_load((DEPLOY / "kubernetes-tls.yaml").read_text())
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def manifest(kind: str) -> dict[str, Any]:
    (found,) = [one for one in MANIFESTS if one["kind"] == kind]
    return found


POD: dict[str, Any] = manifest("StatefulSet")["spec"]["template"]["spec"]
CONTAINER: dict[str, Any] = POD["containers"][0]


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its folders, with its files in them; paths in the settings lead there."""
    return made_pod(tmp_path, monkeypatch, manifest("ConfigMap"))


@pytest.fixture
def tls_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same with TLS; both Secrets are mounted."""
    root = made_pod(tmp_path, monkeypatch, TLS)
    authority = Authority(tmp_path / "ca")
    mount(root / "etc/kvota-brokers-ca", {"ca.crt": authority.certificate})
    mount_certificate(root, authority, "first")
    return root


def mount_certificate(root: Path, authority: Authority, name: str) -> None:
    issued = authority.issue(name, hosts=["kvota-gateway-0.kvota-gateway.kafka.svc"])
    mount(root / "etc/kvota-tls", {"tls.crt": issued.certificate, "tls.key": issued.key})


def mount(folder: Path, files: dict[str, Path]) -> None:
    """As kubelet does: a folder of its own, to which another link leads from one moment to the next."""
    inside = folder / f"..{len(list(folder.iterdir()))}"
    inside.mkdir()
    for name, file in files.items():
        (inside / name).write_bytes(file.read_bytes())
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data") / name)
    link = folder / "..data_tmp"
    link.symlink_to(inside.name)
    link.replace(folder / "..data")


def made_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config_map: dict[str, Any]) -> Path:
    monkeypatch.setenv("POD_NAME", "kvota-gateway-0")
    monkeypatch.setenv("POD_NAMESPACE", "kafka")
    settings, secrets = tmp_path / "etc/kvota", tmp_path / "etc/kvota-secrets"
    for mount in CONTAINER["volumeMounts"]:
        (tmp_path / mount["mountPath"].lstrip("/")).mkdir(parents=True)
    for name, text in config_map["data"].items():
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


@pytest.mark.timeout(150)
def test_a_gateway_with_these_settings_answers_the_probes_and_opens_the_ports(pod: Path) -> None:
    said = tomllib.loads((pod / "etc/kvota/gateway.toml").read_text())
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    assert ports["bootstrap"] == said["gateway"]["bootstrap_port"]
    assert ports["http"] == said["http"]["port"]
    assert {port["port"] for port in manifest("Service")["spec"]["ports"]} == set(ports.values())

    gateway, _, http = gateway_of(pod)
    with gateway:
        for probe in PROBES:
            ask = CONTAINER[probe]["httpGet"]
            assert ask["port"] in ports
            # No broker is there.
            expected = 503 if ask["path"] == "/readyz" else 200
            assert status_of(f"http://127.0.0.1:{http}{ask['path']}") == expected


def gateway_of(pod: Path) -> tuple[GatewayProcess, int, int]:
    """The gateway at ports that are free here, of which two are returned: to bootstrap at, and HTTP."""
    file = pod / "etc/kvota/gateway.toml"
    first, http = free_port_range(12), free_port_range(1)
    text = file.read_text().replace("port = 9180", f"port = {http}")
    text = text.replace("9192", str(first)).replace("9200", str(first + 1))
    text = re.sub(r"kafka-bootstrap:909\d", "127.0.0.1:9", text).replace("0.0.0.0", "127.0.0.1")
    quotas = manifest("ConfigMap")["data"]["quotas.toml"]
    return GatewayProcess(file.parent, config=text, quotas=quotas), first, http


def test_with_tls_nothing_else_is_another_setting(tls_pod: Path) -> None:
    plain, tls = (
        tomllib.loads(one["data"]["gateway.toml"]) for one in (manifest("ConfigMap"), TLS)
    )
    admin = "client.quota.callback.static.kafka.admin"
    assert tls["gateway"].pop("tls").keys() == {"certfile", "keyfile"}
    assert tls["upstream"].pop("tls").keys() == {"cafile"}
    assert tls["kafka"].pop(f"{admin}.ssl.truststore.location")
    assert tls["kafka"].pop(f"{admin}.security.protocol") == "SASL_SSL"
    del plain["kafka"][f"{admin}.security.protocol"]
    assert tls.pop("upstream") != plain.pop("upstream")  # another port of the brokers
    assert tls == plain
    assert {key: TLS[key] for key in ("kind", "metadata")} == {
        key: manifest("ConfigMap")[key] for key in ("kind", "metadata")
    }
    assert TLS["data"]["quotas.toml"] == manifest("ConfigMap")["data"]["quotas.toml"]

    config, faults = read_config(tls_pod / "etc/kvota/gateway.toml")
    assert faults == []
    check_own_login(config)
    trusted = tls_pod / "etc/kvota-brokers-ca/ca.crt"
    assert config.gateway.upstream_tls == Tls(cafile=trusted)
    own = security_of(config.kafka.volumes.admin)
    assert own == Security.scram("kvota", "change-me", tls=Tls(cafile=trusted))


@pytest.mark.timeout(150)
def test_with_tls_a_renewed_secret_is_shown_without_a_restart(tls_pod: Path) -> None:
    authority = Authority(tls_pod / "ca")
    mount_certificate(tls_pod, authority, "first")
    trusting = ssl.create_default_context(cafile=authority.certificate)
    gateway, bootstrap, _ = gateway_of(tls_pod)
    with gateway:
        assert shown_by(bootstrap, trusting) == "CN=first"

        mount_certificate(tls_pod, authority, "second")

        end = time.monotonic() + 60
        while shown_by(bootstrap, trusting) == "CN=first" and time.monotonic() < end:
            time.sleep(0.1)
        assert shown_by(bootstrap, trusting) == "CN=second"

        said_bytes, trusted = len(gateway.log), tls_pod / "etc/kvota-brokers-ca"
        mount(trusted, {"ca.crt": authority.certificate})
        gateway.reload(TLS["data"]["quotas.toml"])
        said, end = "", time.monotonic() + 60
        while "in shadow mode" not in said and time.monotonic() < end:  # the last line of it
            said = gateway.log[said_bytes:]
        # Of the reload, or of the look at files that came before it.
        assert f"upstream.tls: trusts {trusted / 'ca.crt'}" in said
        assert "needs a restart" not in said


def shown_by(port: int, trusting: ssl.SSLContext) -> str:
    """The name in the certificate, which has to be for the address that clients are told."""
    host = "kvota-gateway-0.kvota-gateway.kafka.svc"
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        trusting.wrap_socket(plain, server_hostname=host) as by_tls,
    ):
        shown = by_tls.getpeercert(binary_form=True)
        assert shown is not None
        return read_certificate(shown).subject


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

"""A Java producer that logs in by SASL: its settings, and a run of it through the gateway."""

from pathlib import Path

from tests.integration.tapped_gateway import TappedGateway

PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
RECORDS = 100

_MODULES = "org.apache.kafka.common.security"
SCRAM = f"{_MODULES}.scram.ScramLoginModule"
BEARER = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"


def login_file(
    folder: Path, mechanism: str, module: str, options: str, *, cafile: Path | None = None
) -> Path:
    """The settings of a client called java, in a file; ``cafile``: it logs in inside TLS, and trusts whom that names."""
    path = folder / "client.properties"
    lines = {
        "security.protocol": "SASL_SSL" if cafile else "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "client.id": "java",
        "sasl.jaas.config": f"{module} required {options};",
    }
    if cafile:
        lines |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(cafile)}
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return path


def produced_by_java(gateway: TappedGateway, topic: str, settings: Path) -> str:
    """Have it produce some records; returns what it says."""
    done = gateway.kafka.run_tool(
        PERFORMANCE,
        *("--topic", topic, "--num-records", str(RECORDS), "--record-size", "100"),
        *("--throughput", "-1", "--bootstrap-server", gateway.bootstrap_servers),
        *("--command-config", str(settings)),
    )
    return done.stdout + done.stderr

"""A Java producer that logs in by SASL: its settings, and a run of it through the gateway."""

from pathlib import Path

from tests.integration.tapped_gateway import TappedGateway

PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
RECORDS = 100

_MODULES = "org.apache.kafka.common.security"
SCRAM = f"{_MODULES}.scram.ScramLoginModule"
BEARER = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"


def login_file(folder: Path, mechanism: str, module: str, options: str) -> Path:
    """The settings of a client called java, in a file."""
    path = folder / "client.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nclient.id=java\n"
        f"sasl.jaas.config={module} required {options};\n"
    )
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

"""KafkaUsers for Strimzi: what is removed is said, too."""

from pathlib import Path

import pytest

from kvota.app.cli.main import main
from kvota.app.quotas_as_code.other_formats import users_changed, users_wanted
from kvota.app.quotas_as_code.plan import QuotaPlan
from kvota.model.client_quotas import ClientQuotas
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.planning.wanted_quotas import Difference, WantedQuotas

PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
ANN, BOB, EACH = QuotaEntity("ann"), QuotaEntity("bob"), QuotaEntity(DEFAULT)


def document(name: str, *quotas: str) -> str:
    head = f'apiVersion: kafka.strimzi.io/v1\nkind: KafkaUser\nmetadata:\n  name: "{name}"\n'
    cluster = '  labels:\n    strimzi.io/cluster: "k"\n'
    return head + cluster + "\n".join(("spec:", *quotas)) + "\n"


def test_a_removal_is_a_user_without_quotas() -> None:
    plan = QuotaPlan(
        in_force=ClientQuotas({ANN: {PRODUCE: 1.0, CONSUME: 2.0}, BOB: {PRODUCE: 3.0}}),
        differences=(
            Difference(ANN, PRODUCE, 1.0, None),
            Difference(BOB, PRODUCE, 3.0, None),
        ),
    )

    users = users_changed(plan, cluster="k")

    ann = document("ann", "  quotas:", "    consumerByteRate: 2")
    assert users.text == f"{ann}---\n{document('bob', '  quotas: {}')}"
    assert not users.left_out


def test_a_removal_that_no_user_can_say_is_left_out_by_name() -> None:
    plan = QuotaPlan(
        in_force=ClientQuotas({EACH: {PRODUCE: 1.0}}),
        differences=(Difference(EACH, PRODUCE, 1.0, None),),
    )

    users = users_changed(plan, cluster="k")

    assert users.text == ""
    (sentence,) = users.left_out
    assert sentence.startswith("every user: ")


def test_what_a_file_wants_none_of_is_a_user_without_quotas() -> None:
    wanted = WantedQuotas.of([(ANN, PRODUCE, 1.0), (ANN, CONSUME, None), (BOB, PRODUCE, None)])

    users = users_wanted(wanted, cluster="k")

    ann = document("ann", "  quotas:", "    producerByteRate: 1")
    assert users.text == f"{ann}---\n{document('bob', '  quotas: {}')}"


def test_export_of_a_file_has_its_removals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(
        "quotas:\n  - user: bob\n    producer_byte_rate: none\n"
        "  - user: default\n    client_id: c\n    producer_byte_rate: none\n"
    )
    words = ["quotas", "export", "--from", str(file), "--format", "strimzi"]

    assert main([*words, "--kafka-resource", "k"]) == 0

    out, err = capsys.readouterr()
    assert out == document("bob", "  quotas: {}")
    assert "left out: user default, client c: " in err


def test_kafkas_tool_gets_no_key_that_it_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "quotas.yaml"
    file.write_text(
        "quotas:\n  - user: bob\n    producer_byte_rate: 1000000\n    producer_ids_rate: 100\n"
        "  - user: ann\n    producer_ids_rate: none\n"
    )

    assert main(["quotas", "export", "--from", str(file), "--format", "kafka-configs"]) == 0

    out, err = capsys.readouterr()
    (line,) = out.splitlines()
    assert line.endswith("--entity-name bob --add-config producer_byte_rate=1000000")
    assert "left out: user bob: kafka-configs.sh does not know producer_ids_rate" in err
    assert "left out: user ann: kafka-configs.sh does not know producer_ids_rate" in err

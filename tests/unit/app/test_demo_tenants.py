"""What the demo's tenants count of what their clients are told."""

from confluent_kafka import KafkaError

from kvota.app.demo.tenants import TenantReport


def test_what_is_given_up_at_the_end_is_neither_delivered_nor_failed() -> None:
    report = TenantReport()

    report.delivered(None, None)
    report.delivered(KafkaError(KafkaError._MSG_TIMED_OUT), None)
    report.delivered(KafkaError(KafkaError._PURGE_QUEUE), None)
    report.delivered(KafkaError(KafkaError._PURGE_INFLIGHT), None)

    assert (report.delivered_records, report.failed_records) == (1, 1)

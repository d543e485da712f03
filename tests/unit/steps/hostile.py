"""Messages at the limits of what the gateway takes: each with as many parts as fit, however senseless.

An attack is a function that plays one connection, both its client and its broker.
"""

import struct
from collections.abc import Callable

from tests.unit.steps.stand import House, Measure, Stand

from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import QuotaType
from kvota.testing.frames import split
from kvota.testing.manual_clock import START_MS
from kvota.testing.stage import ALL_TYPES, Cluster, quotas
from kvota.wire.address_rewrite import BROKERS_MAX, COORDINATORS_MAX
from kvota.wire.error_texts import RESOURCES_MAX
from kvota.wire.varint import uvarint

MIB = 2**20
CHUNK = 256_000
NO_LIMIT = 1e12
HOST = b"broker-1.inside"


def request(
    key: int, version: int, body: bytes, *, correlation: int = 1, client: bytes = b"a"
) -> bytes:
    head = struct.pack(">hhih", key, version, correlation, len(client)) + client
    return struct.pack(">i", len(head) + len(body)) + head + body


def answer(body: bytes, *, correlation: int = 1) -> bytes:
    """``body`` with the tags of a flexible header."""
    return struct.pack(">ii", 4 + len(body), correlation) + body


def filled(part: bytes, size: int = CHUNK) -> bytes:
    """As many of them as fit."""
    return part * (size // len(part))


def text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def compact(value: bytes) -> bytes:
    return uvarint(len(value) + 1) + value


def cluster(
    *, enforced: frozenset[QuotaType] = ALL_TYPES, bucket: bool = False, **limits: float
) -> Cluster:
    given = {"PRODUCE": NO_LIMIT, "FETCH": NO_LIMIT, "CONTROLLER_MUTATION": 1e9} | limits
    buckets = (
        {QuotaType.PRODUCE: BucketSettings(), QuotaType.FETCH: BucketSettings()} if bucket else {}
    )
    return Cluster(quotas(**given), enforced=enforced, buckets=buckets)


Attack = Callable[[Measure], Stand]
ATTACKS: dict[str, Attack] = {}


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__] = function
    return function


def stand(measure: Measure, shared: Cluster | None = None) -> Stand:
    return Stand(House(shared or cluster()), measure)


# ------------------------------------------------------------------ many requests in one segment


def _many(
    measure: Measure, frame: bytes, reply: bytes | None = None, shared: Cluster | None = None
) -> Stand:
    made = stand(measure, shared)
    up = made.client(filled(frame))
    if reply is not None:
        for _ in range(20):
            if not up:
                break
            made.broker(reply * len(split(up)))
            up = made.client(b"")
    return made


@attack
def many_heartbeats(measure: Measure) -> Stand:
    return _many(measure, request(12, 0, b"", client=b""), answer(b""))


@attack
def many_newer_api_versions(measure: Measure) -> Stand:
    return _many(measure, request(18, 99, b"", client=b""))


@attack
def many_api_versions(measure: Measure) -> Stand:
    reply = answer(struct.pack(">hi", 0, 1) + struct.pack(">hhh", 18, 0, 3))
    return _many(measure, request(18, 0, b"", client=b""), reply)


@attack
def many_metadata(measure: Measure) -> Stand:
    brokers = struct.pack(">i", 1) + struct.pack(">i", 1) + text(HOST) + struct.pack(">i", 9092)
    return _many(measure, request(3, 0, bytes(4), client=b""), answer(brokers + bytes(4)))


@attack
def many_find_coordinator(measure: Measure) -> Stand:
    reply = answer(struct.pack(">hi", 0, 1) + text(HOST) + struct.pack(">i", 9092))
    return _many(measure, request(10, 0, text(b""), client=b""), reply)


@attack
def many_describe_configs(measure: Measure) -> Stand:
    return _many(measure, request(32, 0, bytes(4), client=b""), answer(bytes(8)))


@attack
def many_alter_configs(measure: Measure) -> Stand:
    return _many(measure, request(33, 0, bytes(5), client=b""), answer(bytes(8)))


def _produce(
    version: int, *, acks: int = 1, tags: bytes = b"", transactional: bytes | None = None
) -> bytes:
    if version >= 9:
        name = b"\0" if transactional is None else compact(transactional)
        return request(0, version, (tags or b"\0") + name + struct.pack(">hi", acks, 0) + b"\1\0")
    name = struct.pack(">h", -1) if transactional is None else text(transactional)
    return request(0, version, name + struct.pack(">hii", acks, 0, 0))


@attack
def many_produces(measure: Measure) -> Stand:
    return _many(measure, _produce(8), answer(bytes(8)))


@attack
def many_produces_by_bucket(measure: Measure) -> Stand:
    return _many(measure, _produce(8), answer(bytes(8)), cluster(bucket=True))


@attack
def many_produces_without_acks(measure: Measure) -> Stand:
    return _many(measure, _produce(8, acks=0))


@attack
def many_produces_with_tags(measure: Measure) -> Stand:
    return _many(
        measure, _produce(9, tags=b"\1\5\0", transactional=b"t"), answer(b"\0\1" + bytes(5))
    )


@attack
def many_produces_over_the_limit_in_shadow_mode(measure: Measure) -> Stand:
    shared = cluster(enforced=frozenset(), bucket=True, PRODUCE=1)
    return _many(measure, _produce(8), answer(bytes(8)), shared)


@attack
def many_failed_produces(measure: Measure) -> Stand:
    partition = (
        bytes(4)
        + struct.pack(">h", 3)
        + struct.pack(">qqq", -1, -1, -1)
        + b"\1"
        + compact(b"no")
        + b"\0"
    )
    reply = answer(b"\0\2" + compact(b"t") + b"\2" + partition + b"\0" + bytes(4) + b"\0")
    return _many(measure, _produce(9), reply)


def _fetch(version: int) -> bytes:
    if version >= 16:
        body = (
            b"\0" + struct.pack(">iii", 0, 0, 100) + b"\0" + struct.pack(">ii", 0, -1) + b"\1\1\1\0"
        )
    else:
        body = struct.pack(">iiii", -1, 0, 0, 100) + b"\0" + struct.pack(">i", 0)
    return request(1, version, body, client=b"")


@attack
def many_fetches_in_shadow_mode(measure: Measure) -> Stand:
    return _many(measure, _fetch(4), answer(bytes(8)), cluster(enforced=frozenset()))


@attack
def many_empty_fetches_with_endpoints(measure: Measure) -> Stand:
    reply = answer(b"\0" + bytes(10) + b"\1\0")
    return _many(measure, _fetch(16), reply, cluster(enforced=frozenset()))


@attack
def many_fetches_one_by_one(measure: Measure) -> Stand:
    return _many(measure, _fetch(4), answer(bytes(8)))


# ------------------------------------------------------------------ logins


def _login(measure: Measure, mechanism: bytes, token: bytes) -> Stand:
    made = stand(measure)
    made.client(request(17, 1, text(mechanism)))
    made.broker(answer(struct.pack(">hi", 0, 1) + text(mechanism)))
    made.client(request(36, 0, struct.pack(">i", len(token)) + token))
    made.broker(answer(struct.pack(">h", 58) + text(b"no") + struct.pack(">i", 0)))
    return made


TOKEN_BYTES = 512 * 1024 - 50


@attack
def plain_of_zeros(measure: Measure) -> Stand:
    return _login(measure, b"PLAIN", bytes(TOKEN_BYTES))


@attack
def scram_of_commas(measure: Measure) -> Stand:
    return _login(measure, b"SCRAM-SHA-256", b"n,,n=a,r=b" + b"," * (TOKEN_BYTES - 10))


@attack
def scram_of_escapes(measure: Measure) -> Stand:
    return _login(measure, b"SCRAM-SHA-256", b"n,,n=" + filled(b"=2C", TOKEN_BYTES - 20) + b",r=b")


# ------------------------------------------------------------------ large requests


@attack
def produce_of_many_partitions(measure: Measure) -> Stand:
    made = stand(measure)
    partitions = filled(bytes(4) + b"\1\0", 100 * MIB - 100)
    body = b"\0\0" + struct.pack(">hi", 1, 0) + b"\2" + compact(b"t")
    body += uvarint(len(partitions) // 6 + 1) + partitions + b"\0\0"
    made.client(request(0, 11, body))
    return made


@attack
def fetch_of_forgotten_topics(measure: Measure) -> Stand:
    made = stand(measure)
    body = struct.pack(">iiii", -1, 0, 0, 100) + b"\0" + struct.pack(">iii", 0, 0, 0)
    topics = filled(text(b"t") + struct.pack(">i", 0), 8 * MIB - 100)
    made.client(request(1, 7, body + struct.pack(">i", len(topics) // 7) + topics))
    made.broker(answer(bytes(14)))
    return made


@attack
def fetch_of_forgotten_topics_without_room(measure: Measure) -> Stand:
    made = stand(measure, cluster(FETCH=100_000))
    for _ in range(2):
        made.client(_fetch(4))
        made.broker(answer(bytes(500_000)))
    body = struct.pack(">iiii", -1, 0, 0, 10_000_000) + b"\0" + struct.pack(">iii", 0, 0, 0)
    topics = filled(text(b"t") + struct.pack(">i", 0), 8 * MIB - 100)
    made.client(request(1, 7, body + struct.pack(">i", len(topics) // 7) + topics))
    assert made.driver.machine.is_in_line
    return made


def _large(measure: Measure, key: int, version: int, body: bytes, reply: bytes) -> Stand:
    made = stand(measure)
    made.client(request(key, version, body))
    made.broker(reply)
    return made


@attack
def alter_configs_of_8_mib(measure: Measure) -> Stand:
    resource = b"\2" + text(b"t") + struct.pack(">i", 1) + text(b"k") + text(b"v" * 32_000)
    resources = filled(resource, 8 * MIB - 100)
    body = struct.pack(">i", len(resources) // len(resource)) + resources + b"\0"
    return _large(measure, 33, 0, body, answer(bytes(8)))


@attack
def describe_configs_of_many(measure: Measure) -> Stand:
    resource = b"\2" + text(b"t") + struct.pack(">i", -1)
    body = struct.pack(">i", 30_000) + resource * 30_000
    return _large(measure, 32, 0, body, answer(bytes(8)))


@attack
def describe_configs_of_many_settings(measure: Measure) -> Stand:
    body = (
        struct.pack(">i", 1)
        + b"\2"
        + text(b"t")
        + struct.pack(">i", 29_999)
        + text(b"x" * 250) * 29_999
    )
    return _large(measure, 32, 0, body, answer(bytes(8)))


# ------------------------------------------------------------------ large answers


@attack
def metadata_of_64_mib(measure: Measure) -> Stand:
    topic = struct.pack(">h", 0) + text(b"t") + struct.pack(">i", 0)
    brokers = struct.pack(">i", 1) + struct.pack(">i", 1) + text(HOST) + struct.pack(">i", 9092)
    topics = filled(topic, measure.most(64 * MIB) - 200)
    reply = answer(brokers + struct.pack(">i", len(topics) // len(topic)) + topics)
    return _large(measure, 3, 0, bytes(4), reply)


@attack
def metadata_of_many_brokers(measure: Measure) -> Stand:
    one = struct.pack(">i", 1) + text(HOST) + struct.pack(">i", 9092)
    brokers = struct.pack(">i", BROKERS_MAX) + one * BROKERS_MAX
    return _large(measure, 3, 0, bytes(4), answer(brokers + bytes(4)))


@attack
def describe_cluster_of_many_brokers(measure: Measure) -> Stand:
    one = struct.pack(">i", 1) + compact(HOST) + struct.pack(">i", 9092) + b"\0\0"
    body = b"\0" + bytes(6) + b"\0" + compact(b"cluster") + bytes(4)
    body += uvarint(BROKERS_MAX + 1) + one * BROKERS_MAX
    return _large(measure, 60, 0, b"\0\0\0", answer(body + struct.pack(">i", 0) + b"\0"))


@attack
def find_coordinators_of_many(measure: Measure) -> Stand:
    one = compact(b"g") + struct.pack(">i", 1) + compact(HOST) + struct.pack(">i", 9092) + bytes(4)
    body = b"\0" + bytes(4) + uvarint(COORDINATORS_MAX + 1) + one * COORDINATORS_MAX + b"\0"
    return _large(measure, 10, 4, b"\0\0" + uvarint(1) + b"\0", answer(body))


def _refused(measure: Measure, text_of_error: bytes, count: int) -> Stand:
    one = struct.pack(">h", 40) + text(text_of_error) + b"\2" + text(b"t")
    reply = answer(bytes(4) + struct.pack(">i", count) + one * count)
    return _large(measure, 33, 0, bytes(5), reply)


@attack
def alter_configs_errors_of_many(measure: Measure) -> Stand:
    return _refused(measure, b"@", RESOURCES_MAX)


@attack
def alter_configs_errors_of_addresses(measure: Measure) -> Stand:
    return _refused(measure, filled(b"a://h:1 ", 32_000), measure.most(15 * MIB) // 32_100)


@attack
def alter_configs_errors_of_traces(measure: Measure) -> Stand:
    return _refused(measure, b"://" + b"x" * 31_000, measure.most(15 * MIB) // 32_100)


@attack
def describe_configs_of_a_broker(measure: Measure) -> Stand:
    one = text(b"listeners") + text(b"v") + bytes(3)
    body = bytes(4) + struct.pack(">i", 1) + bytes(2) + text(b"") + b"\4" + text(b"1")
    body += struct.pack(">i", 9_990) + one * 9_990
    asked = struct.pack(">i", 1) + b"\4" + text(b"1") + struct.pack(">i", -1)
    return _large(measure, 32, 0, asked, answer(body))


@attack
def describe_configs_of_a_broker_of_4_mib(measure: Measure) -> Stand:
    one = text(b"a" * 200) + text(b"port" * 50) + bytes(3)
    body = bytes(4) + struct.pack(">i", 1) + bytes(2) + text(b"") + b"\4" + text(b"1")
    body += struct.pack(">i", 9_900) + one * 9_900
    asked = struct.pack(">i", 1) + b"\4" + text(b"1") + struct.pack(">i", -1)
    return _large(measure, 32, 0, asked, answer(body))


def _streamed(measure: Measure, frame: bytes, body: bytes) -> Stand:
    made = stand(measure)
    made.client(frame)
    made.broker(answer(body))
    return made


@attack
def produce_answer_of_record_errors(measure: Measure) -> Stand:
    errors = filled(bytes(4) + b"\0\0", measure.most(MIB))
    partition = bytes(30) + uvarint(len(errors) // 6 + 1) + errors + b"\0\0"
    body = b"\0\2" + compact(b"t") + b"\2" + partition + b"\0" + bytes(4) + b"\0"
    return _streamed(measure, _produce(9), body)


@attack
def produce_answer_of_topics(measure: Measure) -> Stand:
    one = compact(b"t") + b"\2" + bytes(30) + b"\1\0\0" + b"\0"
    topics = filled(one, measure.most(MIB))
    body = b"\0" + uvarint(len(topics) // len(one) + 1) + topics + bytes(4) + b"\0"
    return _streamed(measure, _produce(9), body)


@attack
def produce_answer_of_empty_topics(measure: Measure) -> Stand:
    one = compact(b"") + b"\1\0"
    topics = filled(one, measure.most(MIB))
    body = b"\0" + uvarint(len(topics) // len(one) + 1) + topics + bytes(4) + b"\0"
    return _streamed(measure, _produce(9), body)


@attack
def produce_answer_of_tags(measure: Measure) -> Stand:
    partition = bytes(30) + b"\1\0" + uvarint(1_000) + b"\5\0" * 1_000
    partitions = filled(partition, measure.most(MIB))
    body = b"\0\2" + compact(b"t") + uvarint(len(partitions) // len(partition) + 1) + partitions
    return _streamed(measure, _produce(9), body + b"\0" + bytes(4) + b"\0")


@attack
def produce_answer_of_endpoints(measure: Measure) -> Stand:
    one = struct.pack(">i", 1) + compact(HOST) + struct.pack(">i", 9092) + b"\0\0"
    content = uvarint(BROKERS_MAX + 1) + one * BROKERS_MAX
    body = b"\0\1" + bytes(4) + b"\1\0" + uvarint(len(content)) + content
    return _streamed(measure, _produce(10), body)


def _fetch_body(topics: bytes, count: int) -> bytes:
    return b"\0" + bytes(10) + uvarint(count + 1) + topics + b"\0"


@attack
def fetch_answer_of_empty_topics(measure: Measure) -> Stand:
    one = bytes(16) + b"\1\0"
    topics = filled(one, measure.most(MIB))
    return _streamed(measure, _fetch(16), _fetch_body(topics, len(topics) // len(one)))


@attack
def fetch_answer_of_topics(measure: Measure) -> Stand:
    one = bytes(16) + b"\2" + bytes(30) + b"\1" + bytes(4) + b"\1\0" + b"\0"
    topics = filled(one, measure.most(MIB))
    return _streamed(measure, _fetch(16), _fetch_body(topics, len(topics) // len(one)))


@attack
def fetch_answer_of_partitions(measure: Measure) -> Stand:
    one = bytes(30) + b"\1" + bytes(4) + b"\1\0"
    partitions = filled(one, measure.most(MIB))
    topic = bytes(16) + uvarint(len(partitions) // len(one) + 1) + partitions + b"\0"
    return _streamed(measure, _fetch(16), _fetch_body(topic, 1))


@attack
def fetch_answer_of_aborted_transactions(measure: Measure) -> Stand:
    aborted = filled(bytes(17), measure.most(MIB))
    one = bytes(30) + uvarint(len(aborted) // 17 + 1) + aborted + bytes(4) + b"\1\0"
    return _streamed(measure, _fetch(16), _fetch_body(bytes(16) + b"\2" + one + b"\0", 1))


@attack
def fetch_answer_of_tags(measure: Measure) -> Stand:
    one = bytes(30) + b"\1" + bytes(4) + b"\1" + uvarint(1_000) + b"\5\0" * 1_000
    partitions = filled(one, measure.most(MIB))
    topic = bytes(16) + uvarint(len(partitions) // len(one) + 1) + partitions + b"\0"
    return _streamed(measure, _fetch(16), _fetch_body(topic, 1))


@attack
def api_versions_of_many(measure: Measure) -> Stand:
    made = stand(measure)
    made.client(request(18, 0, b""))
    made.broker(answer(struct.pack(">hi", 0, 1_000) + struct.pack(">hhh", 18, 0, 3) * 1_000))
    return made


# ------------------------------------------------------------------ topic mutations

NAMES = 20_000


def _names(name_bytes: int = 188, count: int = NAMES) -> list[bytes]:
    return [f"{number:05}".ljust(name_bytes, "x").encode() for number in range(count)]


def _metadata_v4(topics: bytes, count: int, correlation: bytes) -> bytes:
    brokers = (
        struct.pack(">i", 1)
        + struct.pack(">i", 1)
        + text(HOST)
        + struct.pack(">i", 9092)
        + struct.pack(">h", -1)
    )
    body = (
        bytes(4)
        + brokers
        + struct.pack(">h", -1)
        + struct.pack(">i", 1)
        + struct.pack(">i", count)
        + topics
    )
    return struct.pack(">i", len(body) + 4) + correlation + body


def _unknown(names: list[bytes]) -> bytes:
    return b"".join(
        struct.pack(">h", 3) + text(name) + b"\0" + struct.pack(">i", 0) for name in names
    )


def _known(names: list[bytes], partitions: int = 1) -> bytes:
    one = struct.pack(">hiiii", 0, 0, 1, 1, 1) + struct.pack(">ii", 1, 1)
    return b"".join(
        struct.pack(">h", 0) + text(name) + b"\0" + struct.pack(">i", partitions) + one * partitions
        for name in names
    )


def _delete(names: list[bytes]) -> bytes:
    return request(20, 1, struct.pack(">i", len(names)) + b"".join(map(text, names)) + bytes(4))


def _deleted(names: list[bytes], error: int) -> bytes:
    topics = b"".join(text(name) + struct.pack(">h", error) for name in names)
    return answer(bytes(4) + struct.pack(">i", len(names)) + topics)


@attack
def delete_unknown_topics(measure: Measure) -> Stand:
    made, names = stand(measure), _names()
    up = made.client(_delete(names))
    made.broker(_metadata_v4(_unknown(names), NAMES, up[8:12]))
    made.broker(_deleted(names, 3))
    return made


@attack
def delete_known_topics(measure: Measure) -> Stand:
    made, names = stand(measure), _names()
    up = made.client(_delete(names))
    made.broker(_metadata_v4(_known(names), NAMES, up[8:12]))
    made.broker(_deleted(names, 0))
    return made


@attack
def delete_topics_that_fail(measure: Measure) -> Stand:
    made, names = stand(measure), _names()
    up = made.client(_delete(names))
    made.broker(_metadata_v4(_known(names), NAMES, up[8:12]))
    made.broker(_deleted(names, 41))
    return made


@attack
def delete_known_topics_and_go(measure: Measure) -> Stand:
    made, names = stand(measure), _names()
    up = made.client(_delete(names))
    made.broker(_metadata_v4(_known(names), NAMES, up[8:12]))
    made.leave()
    return made


@attack
def delete_topics_made_meanwhile_and_go(measure: Measure) -> Stand:
    made, names = stand(measure), _names()
    up = made.client(_delete(names))
    made.broker(_metadata_v4(_unknown(names), NAMES, up[8:12]))
    for name in names:
        made.house.cluster.shared.facts.topics.happened(name.decode(), 1, START_MS)
    made.leave()
    return made


@attack
def create_topics_and_go(measure: Measure) -> Stand:
    made, names = stand(measure), _names()[: NAMES // 2]  # as many as may be created at once
    up = made.client(_create(names))
    made.broker(_metadata_v4(_unknown(names), len(names), up[8:12]))
    made.leave()
    return made


@attack
def delete_topics_of_many_partitions(measure: Measure) -> Stand:
    made, names = stand(measure), _names(5, 10)
    up = made.client(_delete(names))
    topics = _known(names, measure.most(100_000))
    made.broker(_metadata_v4(topics, 10, up[8:12]))
    made.broker(_deleted(names, 0))
    return made


@attack
def delete_by_ids(measure: Measure) -> Stand:
    made = stand(measure)
    ids = [number.to_bytes(16, "big") for number in range(1, NAMES + 1)]
    body = (
        b"\0" + uvarint(NAMES + 1) + b"".join(b"\0" + one + b"\0" for one in ids) + bytes(4) + b"\0"
    )
    made.client(request(20, 6, body))
    brokers = uvarint(2) + struct.pack(">i", 1) + compact(HOST) + struct.pack(">i", 9092) + b"\0\0"
    topics = b"".join(
        struct.pack(">h", 100) + b"\0" + one + b"\0\1" + bytes(4) + b"\0" for one in ids
    )
    meta = b"\0" + bytes(4) + brokers + b"\0" + bytes(4) + uvarint(NAMES + 1) + topics + b"\0"
    made.broker(answer(meta, correlation=0x6B_76_6F_74))
    results = b"".join(b"\0" + one + struct.pack(">h", 100) + b"\0\0" for one in ids)
    made.broker(answer(b"\0" + bytes(4) + uvarint(NAMES + 1) + results + b"\0"))
    return made


def _create(
    names: list[bytes], *, version: int = 4, partitions: int = 1, assignments: bytes = bytes(4)
) -> bytes:
    topics = b"".join(
        text(name) + struct.pack(">ih", partitions, 1) + assignments + bytes(4) for name in names
    )
    return request(19, version, struct.pack(">i", len(names)) + topics + bytes(4) + b"\0")


def _created(names: list[bytes], error: int = 0) -> bytes:
    topics = b"".join(text(name) + struct.pack(">hh", error, -1) for name in names)
    return answer(bytes(4) + struct.pack(">i", len(names)) + topics)


@attack
def create_topics(measure: Measure) -> Stand:
    names = _names(180, 10_000)
    made = stand(measure)
    up = made.client(_create(names))
    made.broker(_metadata_v4(_unknown(names), len(names), up[8:12]))
    made.broker(_created(names))
    return made


@attack
def create_topics_beyond_the_limit(measure: Measure) -> Stand:
    names = _names(180)
    made = stand(measure)
    made.client(_create(names))
    return made


@attack
def create_topics_over_the_quota(measure: Measure) -> Stand:
    names = _names(180, 10_000)
    topics = b"".join(compact(name) + struct.pack(">ih", 1, 1) + b"\1\1\0" for name in names)
    made = stand(measure, cluster(CONTROLLER_MUTATION=1))
    up = made.client(request(19, 5, b"\0" + uvarint(len(names) + 1) + topics + bytes(4) + b"\0\0"))
    made.broker(_metadata_v4(_unknown(names), len(names), up[8:12]))
    return made


@attack
def create_topics_with_assignments(measure: Measure) -> Stand:
    names = _names(180, 10)
    one = struct.pack(">i", 0) + struct.pack(">ii", 1, 1)
    made = stand(measure)
    up = made.client(_create(names, partitions=-1, assignments=struct.pack(">i", 900) + one * 900))
    made.broker(_metadata_v4(_unknown(names), len(names), up[8:12]))
    made.broker(_created(names))
    return made


@attack
def create_topics_with_configs(measure: Measure) -> Stand:
    configs = struct.pack(">i", 40_000) + (text(b"k") + text(b"v")) * 40_000
    body = (
        struct.pack(">i", 1)
        + text(b"t")
        + struct.pack(">ih", 1, 1)
        + bytes(4)
        + configs
        + bytes(4)
        + b"\0"
    )
    made = stand(measure)
    up = made.client(request(19, 4, body))
    made.broker(_metadata_v4(_unknown([b"t"]), 1, up[8:12]))
    made.broker(_created([b"t"]))
    return made


@attack
def created_with_configs(measure: Measure) -> Stand:
    """The broker answers with a million settings of one topic."""
    made = stand(measure)
    body = b"\0\2" + compact(b"t") + struct.pack(">ih", 1, 1) + b"\1\1\0" + bytes(4) + b"\0\0"
    up = made.client(request(19, 5, body))
    made.broker(_metadata_v4(_unknown([b"t"]), 1, up[8:12]))
    count = measure.most(1_000_000)
    configs = b"\1\0\0\0\0\0" * count
    result = compact(b"t") + struct.pack(">h", 0) + b"\0" + struct.pack(">ih", 1, 1)
    result += uvarint(count + 1) + configs + b"\0"
    made.broker(answer(b"\0" + bytes(4) + b"\2" + result + b"\0"))
    return made


@attack
def grow_topics(measure: Measure) -> Stand:
    names = _names(180)
    topics = b"".join(text(name) + struct.pack(">ii", 2, -1) for name in names)
    made = stand(measure)
    up = made.client(request(37, 0, struct.pack(">i", len(names)) + topics + bytes(4) + b"\0"))
    up = made.broker(_metadata_v4(_known(names), len(names), up[8:12]))
    results = b"".join(text(name) + struct.pack(">hh", 0, -1) for name in names)
    made.broker(answer(bytes(4) + struct.pack(">i", len(names)) + results))
    return made


@attack
def metadata_for_a_mutation_of_64_mib(measure: Measure) -> Stand:
    made = stand(measure)
    up = made.client(_delete([b"t"]))
    topics = filled(
        struct.pack(">h", 0) + text(b"t") + b"\0" + struct.pack(">i", 0),
        measure.most(64 * MIB) - 300,
    )
    made.broker(_metadata_v4(topics, len(topics) // 10, up[8:12]))
    return made

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.admin.StreamsGroupMemberDescription;
import org.apache.kafka.clients.admin.StreamsGroupSubtopologyDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * A streams group (KIP-1071) that counts numbers by their remainder, exactly once: two members, a topic to repartition and one
 * that its store can be made from again. A line says what came of each step.
 *
 * <p>Arguments: bootstrap servers, the group's name, with which its topics begin, and how many numbers there are.
 */
public final class StreamsCounting {
    private static final int REMAINDERS = 7;
    private static final int PARTITIONS = 3;
    private static final long PATIENCE_MS = 90_000;

    private final Properties properties = new Properties();
    private final String group;
    private final int numbers;

    private StreamsCounting(String[] args) {
        group = args[1];
        numbers = Integer.parseInt(args[2]);
        properties.put("bootstrap.servers", args[0]);
        for (String side : List.of("key", "value")) {
            properties.put(side + ".serializer", "org.apache.kafka.common.serialization.StringSerializer");
            properties.put(side + ".deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        }
    }

    public static void main(String[] args) throws Exception {
        new StreamsCounting(args).run();
    }

    private void run() throws Exception {
        try (Admin admin = Admin.create(properties)) {
            NewTopic in = new NewTopic(group + "-in", PARTITIONS, (short) 1);
            NewTopic out = new NewTopic(group + "-out", PARTITIONS, (short) 1);
            admin.createTopics(List.of(in, out)).all().get();
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
                for (int number = 0; number < numbers; number++) {
                    producer.send(new ProducerRecord<>(in.name(), number % PARTITIONS, null, Integer.toString(number)));
                }
            }
            try (KafkaStreams streams = counting(in.name(), out.name())) {
                streams.start();
                say("counted", counted(out.name()).toString());
                describe(admin);
            }
            Set<String> groups = new TreeSet<>();
            admin.listGroups(new ListGroupsOptions().withTypes(Set.of(GroupType.STREAMS))).all().get()
                .forEach(one -> groups.add(one.groupId()));
            say("listed", Boolean.toString(groups.contains(group)));
            Map<String, Long> committed = new TreeMap<>();
            admin.listStreamsGroupOffsets(Map.of(group, new org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec()))
                .partitionsToOffsetAndMetadata(group).get()
                .forEach((partition, at) -> committed.merge(partition.topic(), at.offset() > 0 ? 1L : 0L, Long::sum));
            say("committed", committed.toString());
            Set<String> topics = new TreeSet<>(admin.listTopics().names().get());
            topics.removeIf(topic -> !topic.startsWith(group));
            say("topics", topics.toString());
            admin.deleteStreamsGroups(List.of(group)).all().get();
            admin.deleteTopics(topics).all().get();
            say("deleted", "all");
        }
    }

    private KafkaStreams counting(String in, String out) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(in, Consumed.with(Serdes.String(), Serdes.String()))
            .selectKey((key, value) -> Integer.toString(Integer.parseInt(value) % REMAINDERS))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()).withName("remainders"))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(out, Produced.with(Serdes.String(), Serdes.String()));
        Properties own = new Properties();
        own.put("bootstrap.servers", properties.get("bootstrap.servers"));
        own.put("application.id", group);
        own.put("group.protocol", "streams");
        own.put("processing.guarantee", "exactly_once_v2");
        own.put("num.stream.threads", "2");
        own.put("commit.interval.ms", "100");
        own.put("auto.offset.reset", "earliest");
        own.put("state.dir", System.getProperty("java.io.tmpdir") + "/" + group);
        return new KafkaStreams(builder.build(), own);
    }

    /** The last count of each remainder, once they are of all numbers. */
    private Map<String, Long> counted(String out) {
        Properties own = new Properties();
        own.putAll(properties);
        own.put("group.id", group + "-reader");
        own.put("auto.offset.reset", "earliest");
        own.put("isolation.level", "read_committed");
        Map<String, Long> counts = new TreeMap<>();
        long end = System.currentTimeMillis() + PATIENCE_MS;
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(own)) {
            consumer.subscribe(List.of(out));
            while (counts.values().stream().mapToLong(Long::longValue).sum() < numbers
                && System.currentTimeMillis() < end) {
                for (ConsumerRecord<String, String> one : consumer.poll(Duration.ofMillis(200))) {
                    counts.put(one.key(), Long.parseLong(one.value()));
                }
            }
        }
        return counts;
    }

    /** What the group is when each member has its tasks: 3 of each of two parts. */
    private void describe(Admin admin) throws Exception {
        StreamsGroupDescription found;
        Map<String, Integer> tasks;
        long end = System.currentTimeMillis() + PATIENCE_MS;
        do {
            found = admin.describeStreamsGroups(List.of(group)).all().get(30, TimeUnit.SECONDS).get(group);
            tasks = new TreeMap<>();
            for (StreamsGroupMemberDescription member : found.members()) {
                for (var one : member.assignment().activeTasks()) {
                    tasks.merge(one.subtopologyId(), one.partitions().size(), Integer::sum);
                }
            }
        } while (!found.groupState().toString().equals("Stable") && System.currentTimeMillis() < end);
        Map<String, String> parts = new HashMap<>();
        for (StreamsGroupSubtopologyDescription part : found.subtopologies()) {
            parts.put(part.subtopologyId(), part.sourceTopics() + " " + part.repartitionSourceTopics().keySet() + " "
                + part.stateChangelogTopics().keySet());
        }
        say("described", found.groupState() + ", members " + found.members().size() + ", tasks " + tasks + ", "
            + new TreeMap<>(parts));
    }

    private static void say(String step, String result) {
        System.out.println(step + ": " + result);
    }
}

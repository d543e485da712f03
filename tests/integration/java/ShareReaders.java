import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Consumers of one share group that read a topic from its beginning until each of so many values has been settled, and
 * on for a moment. A line says what each delivery was: value, how often delivered so far, what was made of it.
 *
 * <p>Arguments: bootstrap servers, client id, group, topic, how many values, how many consumers, and what they do:
 * implicit (all is accepted with the next poll), sync (accepted, committed each time), mixed (the first delivery of every
 * 7th value is released, every 11th rejected).
 */
public final class ShareReaders {
    private static final long END_AFTER_MS = 100_000;
    private static final long ON_FOR_MS = 1_500;

    private final Set<Long> settled = ConcurrentHashMap.newKeySet();
    private final AtomicLong settledAt = new AtomicLong();
    private final String[] args;
    private final int values;
    private final String way;

    private ShareReaders(String[] args) {
        this.args = args;
        this.values = Integer.parseInt(args[4]);
        this.way = args[6];
    }

    public static void main(String[] args) throws Exception {
        new ShareReaders(args).run();
    }

    private void run() throws Exception {
        Properties properties = properties();
        try (Admin admin = Admin.create(properties)) {
            ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, args[2]);
            Collection<AlterConfigOp> earliest = List.of(new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET));
            admin.incrementalAlterConfigs(Map.of(group, earliest)).all().get();
        }
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < Integer.parseInt(args[5]); number++) {
            threads.add(new Thread(this::read));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.println("end " + settled.size());
    }

    private Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", args[0]);
        properties.put("client.id", args[1]);
        properties.put("group.id", args[2]);
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return properties;
    }

    private void read() {
        Properties properties = properties();
        properties.put("share.acknowledgement.mode", way.equals("implicit") ? "implicit" : "explicit");
        properties.put("max.poll.records", "100");
        long begun = System.currentTimeMillis();
        try (KafkaShareConsumer<byte[], String> consumer = new KafkaShareConsumer<>(properties)) {
            consumer.setAcknowledgementCommitCallback((offsets, failure) -> {
                if (failure != null) {
                    say("failed " + failure);
                }
            });
            consumer.subscribe(List.of(args[3]));
            while (System.currentTimeMillis() - begun < END_AFTER_MS && !isOver()) {
                ConsumerRecords<byte[], String> records = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<byte[], String> record : records) {
                    take(consumer, record);
                }
                if (way.equals("implicit") || records.isEmpty()) {
                    continue;
                }
                for (Map.Entry<TopicIdPartition, ?> done : consumer.commitSync().entrySet()) {
                    if (!done.getValue().toString().equals("Optional.empty")) {
                        say("failed " + done);
                    }
                }
            }
        } catch (KafkaException failure) {
            say("failed " + failure);
        }
    }

    private boolean isOver() {
        long since = settledAt.get();
        return since != 0 && System.currentTimeMillis() - since > ON_FOR_MS;
    }

    private void take(KafkaShareConsumer<byte[], String> consumer, ConsumerRecord<byte[], String> record) {
        long value = Long.parseLong(record.value().trim());
        AcknowledgeType type = AcknowledgeType.ACCEPT;
        if (way.equals("mixed") && value % 11 == 0) {
            type = AcknowledgeType.REJECT;
        } else if (way.equals("mixed") && value % 7 == 0 && record.deliveryCount().get() == 1) {
            type = AcknowledgeType.RELEASE;
        }
        if (!way.equals("implicit")) {
            consumer.acknowledge(record, type);
        }
        say(value + " " + record.deliveryCount().get() + " " + type.name());
        if (type != AcknowledgeType.RELEASE && settled.add(value) && settled.size() == values) {
            settledAt.set(System.currentTimeMillis());
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
    }
}

import java.io.FileReader;
import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Copies a topic in transactions, exactly once, until standard input ends and all is copied.
 *
 * <p>{@code Copying BOOTSTRAP SOURCE TARGET NAME PROTOCOL}: what is read in one go goes to the target in one transaction with
 * the group's offsets, PROTOCOL (classic or consumer) is the group's. "began" behind the first; "copied COUNT" at the end.
 * The clients' properties are added to by a file, which the variable CLIENT_PROPERTIES of the environment names.
 */
public final class Copying {
    private static volatile boolean ended;

    private final Properties base = new Properties();
    private final String source, target, name;
    private final KafkaConsumer<String, String> consumer;
    private KafkaProducer<String, String> producer;

    private Copying(String[] args) throws IOException {
        if (System.getenv("CLIENT_PROPERTIES") != null)
            try (FileReader added = new FileReader(System.getenv("CLIENT_PROPERTIES"))) {
                base.load(added);
            }
        base.put("bootstrap.servers", args[0]);
        source = args[1];
        target = args[2];
        name = args[3];
        base.put("client.id", name);
        Properties settings = new Properties();
        settings.putAll(base);
        settings.put("group.id", name);
        settings.put("group.protocol", args[4]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(source));
    }

    public static void main(String[] args) throws Exception {
        Thread end = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
                ended = true;
            } catch (java.io.IOException error) {
                throw new java.io.UncheckedIOException(error);
            }
        });
        end.setDaemon(true);
        end.start();
        new Copying(args).run();
    }

    private void run() {
        int copied = 0;
        while (!(ended && hasAll())) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
            if (records.isEmpty() || !hasCopied(records))
                continue;
            if (copied == 0)
                System.out.println("began");
            copied += records.count();
        }
        consumer.close();
        if (producer != null)
            producer.close();
        System.out.println("copied " + copied);
    }

    /** Whether it stands at the end of each partition. */
    private boolean hasAll() {
        Map<TopicPartition, Long> ends;
        try {
            ends = consumer.endOffsets(consumer.assignment());
            return !ends.isEmpty() && ends.entrySet().stream().allMatch(end -> consumer.position(end.getKey()) >= end.getValue());
        } catch (TimeoutException error) {
            return false;
        }
    }

    private boolean hasCopied(ConsumerRecords<String, String> records) {
        try {
            if (producer == null) {
                Properties settings = new Properties();
                settings.putAll(base);
                settings.put("transactional.id", name);
                producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
                untilItIsDone(producer::initTransactions);
            }
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> behind = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(target, record.partition(), null, record.value()));
                behind.put(new TopicPartition(source, record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            untilItIsDone(() -> producer.sendOffsetsToTransaction(behind, consumer.groupMetadata()));
            untilItIsDone(producer::commitTransaction);
            return true;
        } catch (KafkaException error) {
            try {
                untilItIsDone(producer::abortTransaction);
            } catch (KafkaException fatal) {
                producer.close(Duration.ZERO);
                producer = null;
            }
            goBack();
            return false;
        }
    }

    /** To what the group has committed. */
    private void goBack() {
        untilItIsDone(() -> consumer.committed(consumer.assignment()).forEach((partition, committed) -> {
            if (consumer.assignment().contains(partition))
                consumer.seek(partition, committed == null ? 0 : committed.offset());
        }));
    }

    private static void untilItIsDone(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                continue;
            }
        }
    }
}

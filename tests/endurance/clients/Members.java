import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/** The same as members.py, with Kafka's own client: {@code Members PROTOCOL BOOTSTRAP TOPIC GROUP MEMBERS}. */
public final class Members {
    private static final Set<Integer> HAVE_BEGUN = new HashSet<>();
    private static volatile boolean ended;

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[1]);
        settings.put("client.id", args[3]);
        settings.put("group.id", args[3]);
        settings.put("group.protocol", args[0]);
        settings.put("auto.offset.reset", "earliest");
        int count = Integer.parseInt(args[4]);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            threads.add(new Thread(() -> consume(settings, args[2], number, count)));
            threads.get(i).start();
        }
        while (System.in.read() >= 0) {
        }
        ended = true;
        for (Thread thread : threads)
            thread.join();
    }

    private static void consume(Properties settings, String topic, int number, int count) {
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (!ended)
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100)))
                    say(number, record.value(), count);
        }
    }

    private static synchronized void say(int number, String value, int count) {
        HAVE_BEGUN.add(number);
        if (HAVE_BEGUN.size() == count)
            System.out.println("began");
        System.out.println("got " + value);
    }
}

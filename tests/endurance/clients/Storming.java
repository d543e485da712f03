import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

/** The same as storming.py, with Kafka's own client; without the name of a library. */
public final class Storming {
    private static final int PATIENCE_MS = 240_000;
    private static volatile boolean ended;

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("security.protocol", "SASL_PLAINTEXT");
        settings.put("sasl.mechanism", "PLAIN");
        settings.put("sasl.jaas.config", String.format(
                "org.apache.kafka.common.security.plain.PlainLoginModule required username=\"%s\" password=\"%s\";",
                args[1], args[2]));
        settings.put("batch.size", "1");
        settings.put("max.in.flight.requests.per.connection", "5");
        settings.put("delivery.timeout.ms", String.valueOf(PATIENCE_MS));
        settings.put("max.block.ms", String.valueOf(PATIENCE_MS));
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args[5]); i++) {
            int slot = i;
            threads.add(new Thread(() -> {
                for (int made = 0; !ended; made++)
                    run(settings, slot + "." + made, args[3], Integer.parseInt(args[4]), Integer.parseInt(args[6]));
            }));
            threads.get(i).start();
        }
        while (System.in.read() >= 0) {
        }
        ended = true;
        for (Thread thread : threads)
            thread.join();
    }

    private static void run(Properties settings, String name, String topic, int partitions, int records) {
        Map<String, String> told = new ConcurrentHashMap<>();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < records; n++) {
                String value = name + "-" + n;
                producer.send(new ProducerRecord<>(topic, n % partitions, null, value),
                        (metadata, error) -> told.put(value, error == null ? "" : error.getClass().getSimpleName()));
            }
            producer.flush();
        } catch (KafkaException error) {
            say("restart " + name + " " + error.getClass().getSimpleName());
        }
        if (told.containsValue(""))
            say("began");
        told.forEach((value, error) -> {
            if (!error.isEmpty())
                say("failed " + value + " " + error);
        });
        say("sent " + name + " " + records + " " + told.size());
    }

    private static void say(String line) {
        synchronized (System.out) {
            System.out.println(line);
        }
    }
}

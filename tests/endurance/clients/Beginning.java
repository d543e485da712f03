import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** The same as beginning.py, with Kafka's own client; without the name of a library. */
public final class Beginning {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("batch.size", "1");
        settings.put("max.in.flight.requests.per.connection", args[4]);
        settings.put("request.timeout.ms", "5000");
        settings.put("delivery.timeout.ms", args[5] + "000");
        int records = Integer.parseInt(args[3]);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < Integer.parseInt(args[2]); i++) {
            int partition = i;
            threads.add(new Thread(() -> run(settings, args[1], partition, records)));
            threads.get(i).start();
        }
        for (Thread thread : threads)
            thread.join();
    }

    private static void run(Properties settings, String topic, int partition, int records) {
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < records; n++) {
                String value = partition + "-" + n;
                producer.send(new ProducerRecord<>(topic, partition, null, value),
                        (metadata, error) -> say(error == null ? "delivered " + value
                                : "failed " + value + " " + error.getClass().getSimpleName()));
            }
            producer.flush();
        }
    }

    private static void say(String line) {
        synchronized (System.out) {
            System.out.println(line);
        }
    }
}

import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The same as resuming.py, with Kafka's own client; each producer has a thread. */
public final class Resuming {
    private static final int VALUE_BYTES = 1000, PAUSE_MS = 50;

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[2]);
        AtomicInteger marks = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            Thread thread = new Thread(() -> produce(args[0], args[1], number, marks));
            thread.setDaemon(true);
            thread.start();
            threads.add(thread);
        }
        int read;
        while ((read = System.in.read()) >= 0)
            if (read == '\n')
                marks.incrementAndGet();
    }

    private static void produce(String servers, String topic, int number, AtomicInteger marks) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("client.id", "java");
        AtomicInteger told = new AtomicInteger(-1);
        var serializer = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, serializer, serializer)) {
            while (true) {
                producer.send(new ProducerRecord<>(topic, new byte[VALUE_BYTES]), (metadata, error) -> {
                    int mark = marks.get();
                    if (error != null)
                        say("failed " + number + " " + error.getClass().getSimpleName());
                    else if (told.getAndSet(mark) != mark)
                        say("served " + mark + " " + number);
                });
                Thread.sleep(PAUSE_MS);
            }
        } catch (InterruptedException ended) {
            Thread.currentThread().interrupt();
        }
    }

    private static void say(String line) {
        synchronized (System.out) {
            System.out.println(line);
        }
    }
}

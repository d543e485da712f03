import java.io.FileReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** The same as producing.py, with Kafka's own client. */
public final class Producing {
    private static final int ROUND_MS = 20;

    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        int count = Integer.parseInt(args[4]);
        int each = Math.max(1, Integer.parseInt(args[5]) * ROUND_MS / 1000 / count);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("client.id", args[3]);
        if (System.getenv("CLIENT_PROPERTIES") != null)
            try (FileReader added = new FileReader(System.getenv("CLIENT_PROPERTIES"))) {
                settings.load(added);
            }
        List<KafkaProducer<String, String>> producers = new ArrayList<>();
        AtomicInteger[] delivered = new AtomicInteger[count], told = new AtomicInteger[count];
        int[] sent = new int[count];
        for (int i = 0; i < count; i++) {
            producers.add(new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer()));
            delivered[i] = new AtomicInteger();
            told[i] = new AtomicInteger();
        }
        Thread end = new Thread(Producing::readToTheEnd);
        end.start();
        boolean hasBegun = false;
        while (end.isAlive()) {
            long next = System.nanoTime() + ROUND_MS * 1_000_000L;
            boolean all = true;
            for (int i = 0; i < count; i++) {
                int producer = i;
                for (int n = 0; n < each; n++) {
                    String value = i + "-" + sent[i];
                    producers.get(i).send(new ProducerRecord<>(topic, sent[i]++ % partitions, null, value),
                            (metadata, error) -> {
                                told[producer].incrementAndGet();
                                if (error == null)
                                    delivered[producer].incrementAndGet();
                                else
                                    say("failed " + value + " " + error.getClass().getSimpleName());
                            });
                }
                all &= delivered[i].get() > 0;
            }
            if (all && !hasBegun) {
                hasBegun = true;
                say("began");
            }
            Thread.sleep(Math.max(0, (next - System.nanoTime()) / 1_000_000));
        }
        for (int i = 0; i < count; i++) {
            producers.get(i).flush();
            say("sent " + i + " " + sent[i] + " " + told[i].get());
            producers.get(i).close();
        }
    }

    private static void readToTheEnd() {
        try {
            while (System.in.read() >= 0) {
            }
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    private static void say(String line) {
        synchronized (System.out) {
            System.out.println(line);
        }
    }
}

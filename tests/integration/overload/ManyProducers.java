import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The same as producers.py, with Kafka's own client: one line "delivered KEY" or "failed KEY ERROR" each. */
public final class ManyProducers {
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        int producers = Integer.parseInt(args[3]);
        int records = Integer.parseInt(args[4]);
        long pauseMs = (long) (Double.parseDouble(args[5]) * 1000);
        byte[] value = new byte[Integer.parseInt(args[6])];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("client.id", args[2]);
        settings.put("enable.idempotence", args[7]);
        List<KafkaProducer<String, byte[]>> all = new ArrayList<>();
        for (int i = 0; i < producers; i++)
            all.add(new KafkaProducer<>(settings, new StringSerializer(), new ByteArraySerializer()));
        CountDownLatch pending = new CountDownLatch(producers * records);
        for (int number = 0; number < records; number++) {
            for (int i = 0; i < producers; i++) {
                String key = i + "-" + number;
                all.get(i).send(new ProducerRecord<>(topic, key, value), (metadata, error) -> {
                    String line = error == null
                            ? "delivered " + key
                            : "failed " + key + " " + error.getClass().getSimpleName();
                    synchronized (System.out) {
                        System.out.println(line);
                    }
                    pending.countDown();
                });
            }
            Thread.sleep(pauseMs);
        }
        pending.await();
        for (KafkaProducer<String, byte[]> producer : all)
            producer.close();
    }
}

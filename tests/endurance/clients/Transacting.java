import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringSerializer;

/** The same as transacting.py, with Kafka's own client. */
public final class Transacting {
    private static final int RECORDS = 10;
    private static final AtomicInteger HAVE_BEGUN = new AtomicInteger();
    private static volatile boolean ended;

    private final Properties settings = new Properties();
    private final String topic;
    private final int partitions;
    private KafkaProducer<String, String> producer;

    private Transacting(String[] args, int number) {
        settings.put("bootstrap.servers", args[0]);
        settings.put("client.id", args[3]);
        settings.put("transactional.id", args[3] + "-" + number);
        topic = args[1];
        partitions = Integer.parseInt(args[2]);
    }

    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[4]);
        long pauseMs = (long) (Double.parseDouble(args[5]) * 1000);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            threads.add(new Thread(() -> new Transacting(args, number).run(args[3] + "-" + number, pauseMs, count)));
            threads.get(i).start();
        }
        while (System.in.read() >= 0) {
        }
        ended = true;
        for (Thread thread : threads)
            thread.join();
    }

    private void run(String name, long pauseMs, int count) {
        boolean hasBegun = false;
        for (int made = 0; !ended; made++) {
            String transaction = name + "-" + made;
            String outcome = outcome(transaction, made % 5 == 4);
            say(outcome.replace("ID", transaction));
            if (!hasBegun && outcome.startsWith("committed")) {
                hasBegun = true;
                if (HAVE_BEGUN.incrementAndGet() == count)
                    say("began");
            }
            try {
                Thread.sleep(pauseMs);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
        if (producer != null)
            producer.close();
    }

    private String outcome(String transaction, boolean isAborted) {
        if (producer == null) {
            producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
            untilItIsDone(producer::initTransactions);
        }
        try {
            producer.beginTransaction();
            for (int i = 0; i < RECORDS; i++)
                producer.send(new ProducerRecord<>(topic, i % partitions, null, transaction + "." + i));
            producer.flush();
            if (isAborted) {
                untilItIsDone(producer::abortTransaction);
                return "aborted ID";
            }
            untilItIsDone(producer::commitTransaction);
            return "committed ID";
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException
                | InvalidProducerEpochException error) {
            producer.close();
            producer = null;
            return "unknown ID " + error.getClass().getSimpleName();
        } catch (KafkaException error) {
            untilItIsDone(producer::abortTransaction);
            return "aborted ID";
        }
    }

    /** Again, where the client has waited for long enough and may be asked to wait on. */
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

    private static synchronized void say(String line) {
        System.out.println(line);
    }
}

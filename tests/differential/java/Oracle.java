import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.function.Supplier;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.utils.Time;

/** Asks Kafka's own classes: one operation per line in (words between tabs), one answer per line out. */
public final class Oracle {

    /** What is asked; keeps its state from line to line until the operation "new". */
    interface Subject {
        String answer(String[] op);
    }

    /** A clock that shows what an operation says. */
    static final class ManualTime implements Time {
        private long nowMs = 0;

        void set(long nowMs) {
            this.nowMs = nowMs;
        }

        @Override
        public long milliseconds() {
            return nowMs;
        }

        @Override
        public long nanoseconds() {
            return nowMs * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            nowMs += ms;
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException("nothing here waits");
        }
    }

    static Quota bound(String limit) {
        return Quota.upperBound(limit.equals("none") ? Long.MAX_VALUE : number(limit));
    }

    static double number(String text) {
        return switch (text) {
            case "inf" -> Double.POSITIVE_INFINITY;
            case "-inf" -> Double.NEGATIVE_INFINITY;
            case "nan" -> Double.NaN;
            default -> Double.parseDouble(text);
        };
    }

    static IllegalArgumentException unknown(String[] op) {
        return new IllegalArgumentException("unknown operation: " + String.join(" ", op));
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // loggers must not write between the answers
        Subject subject = switch (args[0]) {
            case "token_bucket" -> new TokenBucketSubject();
            case "rate" -> new RateSubject();
            case "sensor" -> new SensorSubject();
            case "client_quota_manager" -> new ClientQuotaManagerSubject();
            case "controller_mutation_quota_manager" -> new MutationManagerSubject();
            default -> throw new IllegalArgumentException(args[0]);
        };
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            answers.print(subject.answer(line.split("\t", -1)));
            answers.print('\n');
        }
        answers.flush();
        System.exit(0); // quota managers leave threads behind
    }
}

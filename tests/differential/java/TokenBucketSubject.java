import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.stats.TokenBucket;

/** new samples sample_ms limit | configure samples sample_ms limit | record value t | measure t */
final class TokenBucketSubject implements Oracle.Subject {
    private TokenBucket bucket;
    private MetricConfig config;

    @Override
    public String answer(String[] op) {
        switch (op[0]) {
            case "new":
                bucket = new TokenBucket();
                config = config(op);
                return "ok";
            case "configure":
                config = config(op);
                return "ok";
            case "record":
                bucket.record(config, Oracle.number(op[1]), Long.parseLong(op[2]));
                return "ok";
            case "measure":
                return Double.toString(bucket.measure(config, Long.parseLong(op[1])));
            default:
                throw Oracle.unknown(op);
        }
    }

    private static MetricConfig config(String[] op) {
        return new MetricConfig()
            .samples(Integer.parseInt(op[1]))
            .timeWindow(Long.parseLong(op[2]), TimeUnit.MILLISECONDS)
            .quota(Oracle.bound(op[3]));
    }
}

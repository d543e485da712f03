import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.stats.Rate;

/** new samples sample_ms | record value t | measure t */
final class RateSubject implements Oracle.Subject {
    private Rate rate;
    private MetricConfig config;

    @Override
    public String answer(String[] op) {
        switch (op[0]) {
            case "new":
                rate = new Rate();
                config = new MetricConfig()
                    .samples(Integer.parseInt(op[1]))
                    .timeWindow(Long.parseLong(op[2]), TimeUnit.MILLISECONDS);
                return "ok";
            case "record":
                rate.record(config, Oracle.number(op[1]), Long.parseLong(op[2]));
                return "ok";
            case "measure":
                return Double.toString(rate.measure(config, Long.parseLong(op[1])));
            default:
                throw Oracle.unknown(op);
        }
    }
}

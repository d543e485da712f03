import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaUtils;

/**
 * A sensor as the quota managers make them: expires after 3600 s and is then made anew.
 * new rate|bucket samples sample_ms limit | limit x | record value t | charge value t | take value t
 */
final class SensorSubject implements Oracle.Subject {
    private final Oracle.ManualTime time = new Oracle.ManualTime();
    private Metrics metrics;
    private Sensor sensor;
    private MetricName name;
    private MetricConfig config;
    private boolean isBucket;

    @Override
    public String answer(String[] op) {
        switch (op[0]) {
            case "new":
                if (metrics != null)
                    metrics.close();
                metrics = new Metrics(new MetricConfig(), List.of(), time);
                name = metrics.metricName("measured", "group");
                isBucket = op[1].equals("bucket");
                config = new MetricConfig()
                    .samples(Integer.parseInt(op[2]))
                    .timeWindow(Long.parseLong(op[3]), TimeUnit.MILLISECONDS)
                    .quota(Oracle.bound(op[4]));
                sensor = null;
                return "ok";
            case "limit":
                config = new MetricConfig()
                    .samples(config.samples())
                    .timeWindow(config.timeWindowMs(), TimeUnit.MILLISECONDS)
                    .quota(Oracle.bound(op[1]));
                KafkaMetric metric = metrics.metric(name);
                if (metric != null)
                    metric.config(config);
                return "ok";
            case "record":
                sensorAt(op[2]).record(Oracle.number(op[1]), time.milliseconds(), false);
                return "ok";
            case "charge":
                return throttle(() -> sensorAt(op[2]).record(Oracle.number(op[1]), time.milliseconds(), true));
            case "take":
                return throttle(() -> {
                    sensorAt(op[2]).checkQuotas(time.milliseconds());
                    sensor.record(Oracle.number(op[1]), time.milliseconds(), false);
                });
            default:
                throw Oracle.unknown(op);
        }
    }

    private String throttle(Runnable step) {
        try {
            step.run();
            return "0";
        } catch (QuotaViolationException e) {
            long throttleMs = isBucket
                ? ControllerMutationQuotaManager.throttleTimeMs(e)
                : QuotaUtils.throttleTime(e, time.milliseconds());
            return Integer.toString((int) throttleMs);
        }
    }

    private Sensor sensorAt(String t) {
        time.set(Long.parseLong(t));
        if (sensor != null && sensor.hasExpired()) {
            metrics.removeSensor(sensor.name());
            sensor = null;
        }
        if (sensor == null) {
            sensor = metrics.sensor("sensor", new MetricConfig(), 3600, Sensor.RecordingLevel.INFO);
            sensor.add(name, isBucket ? new TokenBucket() : new Rate(), config);
        }
        return sensor;
    }
}

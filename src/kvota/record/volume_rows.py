"""What one look at the volumes is as rows of the record."""

from kvota.model.volume_row import VolumeRow
from kvota.volumes import Observation, VolumeThrottle


def volume_rows(
    observation: Observation, throttle: VolumeThrottle, *, observer: str, source: str, ts_us: int
) -> list[VolumeRow]:
    """One row for each volume that counts after this look; of one without volumes a row without a volume.

    Args:
        observation: the look.
        throttle: that has taken it.
        observer: the gateway's name.
        source: where it looked: "local", "cluster", or the name of a class of one's own.
        ts_us: when it had ended, Unix microseconds.
    """
    status, factors = observation.status.value, throttle.factors
    of_all = factors[None]
    if not observation.succeeded or observation.factor is not None:
        return [
            VolumeRow(
                observer=observer,
                ts_us=ts_us,
                broker_id=None,
                log_dir=None,
                source=source,
                status=status,
                device=None,
                total_bytes=None,
                usable_bytes=None,
                cached=False,
                factor=throttle.factor,
            )
        ]
    seen = {(volume.broker_id, volume.log_dir) for volume in observation.volumes}
    return [
        VolumeRow(
            observer=observer,
            ts_us=ts_us,
            broker_id=volume.broker_id if volume.broker_id >= 0 else None,
            log_dir=volume.log_dir,
            source=source,
            status=status,
            device=volume.device,
            total_bytes=volume.total_bytes,
            usable_bytes=volume.available_bytes,
            cached=(volume.broker_id, volume.log_dir) not in seen,
            factor=factors.get(volume.broker_id, of_all),
        )
        for volume in throttle.volumes
    ]

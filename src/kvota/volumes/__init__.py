"""Disks of the cluster → a factor for what may be produced (Strimzi's volume quota, proposals 047 and before).

Pure: observations come in with their time, a factor goes out. Who observes, and whom the factor throttles,
is decided elsewhere.
"""

from kvota.volumes.limit import PerVolumeLimit, SummedUsedLimit, Threshold, Verdict, VolumeLimit
from kvota.volumes.observation import Observation, Status
from kvota.volumes.sources import ThrottleFactorSource, VolumeSource
from kvota.volumes.throttle_factor import ThrottleFactor
from kvota.volumes.volume import Volume
from kvota.volumes.volume_cache import VolumeCache
from kvota.volumes.volume_throttle import VolumeThrottle

__all__ = [
    "Observation",
    "PerVolumeLimit",
    "Status",
    "SummedUsedLimit",
    "Threshold",
    "ThrottleFactor",
    "ThrottleFactorSource",
    "Verdict",
    "Volume",
    "VolumeCache",
    "VolumeLimit",
    "VolumeSource",
    "VolumeThrottle",
]

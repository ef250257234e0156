"""Watermarks: timestamps of records, and the progress of event time."""

from headgate.source.watermark.assigner import TimestampAssigner
from headgate.source.watermark.generator import (
    MAX_WATERMARK,
    MIN_WATERMARK,
    WatermarkGenerator,
    WatermarkOutput,
)
from headgate.source.watermark.strategy import WatermarkAlignment, WatermarkStrategy

__all__ = [
    "MAX_WATERMARK",
    "MIN_WATERMARK",
    "TimestampAssigner",
    "WatermarkAlignment",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
]

"""Watermarks: where records have their times from, and how far time has come."""

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

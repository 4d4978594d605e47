"""Sections of the report: functions from a run's story to HTML."""

"""Exploring stored content without a database: lines, searches and JSON paths over a text in memory."""

package main

import (
	"log/slog"
	"os"
	"strings"
)

// logToStderr writes one JSON object a line, with the keys that the other services use for time and event.
func logToStderr() {
	rename := func(groups []string, attribute slog.Attr) slog.Attr {
		switch attribute.Key {
		case slog.MessageKey:
			attribute.Key = "event"
		case slog.TimeKey:
			attribute.Key = "timestamp"
		case slog.LevelKey:
			attribute.Value = slog.StringValue(strings.ToLower(attribute.Value.String()))
		}
		return attribute
	}
	handler := slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: rename})
	slog.SetDefault(slog.New(handler).With("service", "gateway"))
}

package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"headrace/gateway/internal/gateway"
)

const prefix = "HEADRACE_GATEWAY_"

// settings are read from HEADRACE_GATEWAY_* variables, once; deploy/compose.yaml shows them all.
type settings struct {
	listen, orchestrator, memory, tools string
	certificate, key                    string
	drain                               time.Duration
	handlers                            gateway.Settings
	// all of them as they were given or are by default; none is a secret
	inForce map[string]string
}

// readSettings reports all problems together; an unknown variable with our prefix is nearly always a typo.
func readSettings(environment []string) (settings, error) {
	given := map[string]string{
		"LISTEN": "127.0.0.1:8080", "ORCHESTRATOR_ADDRESS": "127.0.0.1:7001", "MEMORY_ADDRESS": "127.0.0.1:7003",
		"TOOLS_ADDRESS": "127.0.0.1:7004", "TLS_CERTIFICATE": "", "TLS_KEY": "", "HEARTBEAT_S": "15",
		"SLOW_READER_S": "60", "DRAIN_S": "10",
	}
	var problems []error
	for _, pair := range environment {
		name, value, _ := strings.Cut(pair, "=")
		short, ours := strings.CutPrefix(name, prefix)
		if !ours {
			continue
		}
		if _, known := given[short]; !known {
			problems = append(problems, fmt.Errorf("%s: is not a setting", name))
			continue
		}
		given[short] = value
	}
	seconds := func(name string) time.Duration {
		value, err := strconv.ParseFloat(given[name], 64)
		if err != nil || value <= 0 {
			problems = append(problems, fmt.Errorf("%s%s: %q: expected seconds, more than 0", prefix, name, given[name]))
		}
		return time.Duration(value * float64(time.Second))
	}
	if (given["TLS_CERTIFICATE"] == "") != (given["TLS_KEY"] == "") {
		problems = append(problems, fmt.Errorf("%sTLS_CERTIFICATE and %[1]sTLS_KEY: give both or neither", prefix))
	}
	read := settings{
		listen: given["LISTEN"], orchestrator: given["ORCHESTRATOR_ADDRESS"], memory: given["MEMORY_ADDRESS"],
		tools: given["TOOLS_ADDRESS"], certificate: given["TLS_CERTIFICATE"], key: given["TLS_KEY"],
		drain: seconds("DRAIN_S"), inForce: given,
		handlers: gateway.Settings{
			Heartbeat: seconds("HEARTBEAT_S"), SlowReader: seconds("SLOW_READER_S"),
		},
	}
	return read, errors.Join(problems...)
}

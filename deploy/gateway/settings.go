package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings are HEADRACE_GATEWAY_* variables and the few that all services share, given or default, by their names without
// HEADRACE_; deploy/compose.yaml shows them all.
type settings map[string]string

// readSettings reports all problems together; an unknown variable with our prefix is nearly always a typo.
func readSettings(environment []string) (settings, error) {
	given := map[string]string{
		"GATEWAY_LISTEN": "127.0.0.1:8080", "GATEWAY_ORCHESTRATOR_ADDRESS": "127.0.0.1:7001",
		"GATEWAY_MEMORY_ADDRESS": "127.0.0.1:7003", "GATEWAY_TOOLS_ADDRESS": "127.0.0.1:7004",
		"GATEWAY_TLS_CERTIFICATE": "", "GATEWAY_TLS_KEY": "", "TLS_CERT": "", "TLS_KEY": "", "TLS_CA": "",
		"INTERNAL_TOKEN": "", "GATEWAY_HEARTBEAT_S": "15", "GATEWAY_SLOW_READER_S": "60", "GATEWAY_DRAIN_S": "10",
		"GATEWAY_FACADE_ADDRESS": "127.0.0.1:8081", "GATEWAY_METRICS_LISTEN": "", "AUTH": "none",
	}
	var problems []error
	report := func(format string, values ...any) {
		problems = append(problems, fmt.Errorf("HEADRACE_"+format, values...))
	}
	for _, pair := range environment {
		name, value, _ := strings.Cut(pair, "=")
		name, isOurs := strings.CutPrefix(name, "HEADRACE_")
		if _, isKnown := given[name]; isOurs && isKnown {
			given[name] = strings.TrimSpace(value)
		} else if isOurs && strings.HasPrefix(name, "GATEWAY_") {
			report("%s: is not a setting", name)
		}
	}
	for name, value := range given {
		if seconds, err := strconv.ParseFloat(value, 64); strings.HasSuffix(name, "_S") && (err != nil || seconds <= 0) {
			report("%s: %q: expected seconds, more than 0", name, value)
		}
		if err := checkAddress(value); strings.HasSuffix(name, "_ADDRESS") && err != nil {
			report("%s: %w", name, err)
		}
	}
	if (given["GATEWAY_TLS_CERTIFICATE"] == "") != (given["GATEWAY_TLS_KEY"] == "") {
		report("GATEWAY_TLS_CERTIFICATE, HEADRACE_GATEWAY_TLS_KEY: expected both or neither")
	}
	cert, key, ca := given["TLS_CERT"] != "", given["TLS_KEY"] != "", given["TLS_CA"] != ""
	if cert != key || (ca && !cert) {
		report("TLS_CERT, HEADRACE_TLS_KEY, HEADRACE_TLS_CA: expected none, the first two, or all three")
	}
	if !slices.Contains([]string{"jwt", "api_key", "jwt,api_key", "api_key,jwt"}, strings.ReplaceAll(given["AUTH"], " ", "")) {
		report("AUTH: %q: the gateway is for callers who show credentials: expected jwt, api_key or jwt,api_key", given["AUTH"])
	}
	if token := given["INTERNAL_TOKEN"]; token != "" && len(token) < 32 { // as in services/runtime/auth/settings.py
		report("INTERNAL_TOKEN: expected 32 ASCII characters or more")
	}
	return given, errors.Join(problems...)
}

// seconds returns a setting that has been checked.
func (s settings) seconds(name string) time.Duration {
	value, _ := strconv.ParseFloat(s[name], 64)
	return time.Duration(value * float64(time.Second))
}

// checkAddress reports an invalid address; gRPC would take a name without a port for port 443.
func checkAddress(address string) error {
	for part := range strings.SplitSeq(strings.TrimPrefix(address, "dns:///"), ",") {
		host, port, err := net.SplitHostPort(part)
		_, notNumber := strconv.ParseUint(port, 10, 16)
		if !strings.HasPrefix(part, "unix:/") && (err != nil || host == "" || notNumber != nil || strings.Contains(host, "/")) {
			return fmt.Errorf("%q: expected host:port, unix:/path, dns:///host:port, or a list of the first two", address)
		}
	}
	return nil
}

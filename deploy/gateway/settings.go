package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"headrace/gateway/internal/channels"
	"headrace/gateway/internal/gateway"
)

const (
	prefix = "HEADRACE_"
	own    = prefix + "GATEWAY_"
	// tokenCharsMin is the minimum of services/runtime/auth/settings.py.
	tokenCharsMin = 32
)

// settings are read once from HEADRACE_GATEWAY_* variables and the few that all services share; deploy/compose.yaml
// shows them all.
type settings struct {
	listen, metricsListen, orchestrator, memory, tools string
	// certificate and key are shown to browsers.
	certificate, key string
	// suiteCert and suiteKey are shown to the services; suiteCA has signed theirs.
	suiteCert, suiteKey, suiteCA, token string
	drain                               time.Duration
	handlers                            gateway.Settings
	// effective has every setting, given or default, with the secret masked.
	effective map[string]string
}

// readSettings reports all problems together; an unknown variable with our prefix is nearly always a typo.
func readSettings(environment []string) (settings, error) {
	given := map[string]string{
		"GATEWAY_LISTEN": "127.0.0.1:8080", "GATEWAY_ORCHESTRATOR_ADDRESS": "127.0.0.1:7001",
		"GATEWAY_MEMORY_ADDRESS": "127.0.0.1:7003", "GATEWAY_TOOLS_ADDRESS": "127.0.0.1:7004",
		"GATEWAY_TLS_CERTIFICATE": "", "GATEWAY_TLS_KEY": "", "TLS_CERT": "", "TLS_KEY": "", "TLS_CA": "",
		"INTERNAL_TOKEN": "", "GATEWAY_HEARTBEAT_S": "15", "GATEWAY_SLOW_READER_S": "60", "GATEWAY_DRAIN_S": "10",
		"GATEWAY_HOSTS": "", "GATEWAY_FACADE_ADDRESS": "", "GATEWAY_METRICS_LISTEN": "", "AUTH": "none",
		"ALLOW_UNAUTHENTICATED": "false",
	}
	var problems []error
	for _, pair := range environment {
		name, value, _ := strings.Cut(pair, "=")
		if _, known := given[strings.TrimPrefix(name, prefix)]; known && strings.HasPrefix(name, prefix) {
			given[strings.TrimPrefix(name, prefix)] = value
		} else if strings.HasPrefix(name, own) {
			problems = append(problems, fmt.Errorf("%s: is not a setting", name))
		}
	}
	problems = append(problems, checkSettings(given)...)
	seconds := func(name string) time.Duration {
		value, err := strconv.ParseFloat(given[name], 64)
		if err != nil || value <= 0 {
			problems = append(problems, fmt.Errorf("%s%s: %q: expected seconds, more than 0", prefix, name, given[name]))
		}
		return time.Duration(value * float64(time.Second))
	}
	result := settings{
		listen: given["GATEWAY_LISTEN"], metricsListen: given["GATEWAY_METRICS_LISTEN"],
		orchestrator: given["GATEWAY_ORCHESTRATOR_ADDRESS"],
		memory:       given["GATEWAY_MEMORY_ADDRESS"], tools: given["GATEWAY_TOOLS_ADDRESS"],
		certificate: given["GATEWAY_TLS_CERTIFICATE"], key: given["GATEWAY_TLS_KEY"],
		suiteCert: given["TLS_CERT"], suiteKey: given["TLS_KEY"], suiteCA: given["TLS_CA"],
		token: given["INTERNAL_TOKEN"], drain: seconds("GATEWAY_DRAIN_S"), effective: given,
		handlers: gateway.Settings{
			Heartbeat: seconds("GATEWAY_HEARTBEAT_S"), SlowReader: seconds("GATEWAY_SLOW_READER_S"),
			Hosts:                gateway.Hosts{Credentials: given["AUTH"] != "none", Names: splitNames(given["GATEWAY_HOSTS"])},
			Facade:               given["GATEWAY_FACADE_ADDRESS"],
			AllowUnauthenticated: slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(given["ALLOW_UNAUTHENTICATED"])),
		},
	}
	if result.token != "" {
		given["INTERNAL_TOKEN"] = "***"
	}
	return result, errors.Join(problems...)
}

// checkSettings reports the problems of settings that are not numbers.
func checkSettings(given map[string]string) (problems []error) {
	if (given["GATEWAY_TLS_CERTIFICATE"] == "") != (given["GATEWAY_TLS_KEY"] == "") {
		problems = append(problems, fmt.Errorf("%sTLS_CERTIFICATE and %[1]sTLS_KEY: give both or neither", own))
	}
	cert, key, ca := given["TLS_CERT"] != "", given["TLS_KEY"] != "", given["TLS_CA"] != ""
	if cert != key || (ca && !cert) {
		problems = append(problems, fmt.Errorf(
			"%sTLS_CERT, %[1]sTLS_KEY, %[1]sTLS_CA: expected none, the first two, or all three", prefix))
	}
	for method := range strings.SplitSeq(given["AUTH"], ",") {
		if !slices.Contains([]string{"none", "peers", "jwt", "api_key"}, strings.TrimSpace(method)) {
			problems = append(problems, fmt.Errorf("%sAUTH: %q: expected none, peers, jwt, api_key or jwt,api_key", prefix, given["AUTH"]))
		}
	}
	if token := given["INTERNAL_TOKEN"]; token != "" && len(token) < tokenCharsMin {
		problems = append(problems, fmt.Errorf("%sINTERNAL_TOKEN: expected %d ASCII characters or more", prefix, tokenCharsMin))
	}
	for _, name := range []string{"GATEWAY_ORCHESTRATOR_ADDRESS", "GATEWAY_MEMORY_ADDRESS", "GATEWAY_TOOLS_ADDRESS"} {
		if err := channels.CheckAddress(given[name]); err != nil {
			problems = append(problems, fmt.Errorf("%s%s: %w", prefix, name, err))
		}
	}
	if facade := given["GATEWAY_FACADE_ADDRESS"]; facade != "" && !strings.HasPrefix(facade, "unix:/") {
		if _, _, err := net.SplitHostPort(facade); err != nil {
			problems = append(problems, fmt.Errorf("%sFACADE_ADDRESS: %q: expected host:port or unix:/path", own, facade))
		}
	}
	return problems
}

// splitNames returns the names in a list with commas between, in lower case.
func splitNames(list string) []string {
	var names []string
	for _, name := range strings.Split(list, ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
			names = append(names, name)
		}
	}
	return names
}

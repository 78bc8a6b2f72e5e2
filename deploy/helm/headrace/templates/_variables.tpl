{{/* The variables of each service's container; a value's `env` goes before them. Each takes list ROOT NAME SERVICE VALUES. */}}

{{- define "headrace.variables" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $service := index . 2 }}{{ $values := index . 3 -}}
{{- $full := include "headrace.fullname" $root -}}
{{- $prefix := printf "HEADRACE_%s" ($name | upper | replace "-" "_") -}}
{{- include (printf "headrace.variables.%s" $name) . }}
- {name: HEADRACE_DRAIN_S, value: {{ $values.drainSeconds | quote }}}
{{- if ne $name "facade" }}
- {name: {{ $prefix }}_LISTEN, value: "[::]:{{ $service.port }},plain:[::]:7000"}   # both families; 7000: the kubelet's probes
- {name: {{ $prefix }}_METRICS_LISTEN, value: "[::]:9464"}
- {name: HEADRACE_CONNECTION_AGE_S, value: "300"}
{{- end }}
{{- range without $service.calls $name }}
- {name: {{ $prefix }}_{{ . | upper | replace "-" "_" }}_ADDRESS, value: "dns:///{{ $full }}-{{ . }}:{{ (get (include "headrace.services" $root | fromYaml) .).port }}"}
{{- end }}
{{- if and $service.config (ne $name "orchestrator") }}
- {name: HEADRACE_CONFIG_DIR, value: {{ $service.config.path }}}
{{- end }}
{{- $jwt := and (not (empty $root.Values.jwt.jwksUrl)) (ne $name "llm-gateway") }}
- {name: HEADRACE_AUTH, value: {{ $jwt | ternary "jwt,api_key" "api_key" | quote }}}
- {name: HEADRACE_AUTH_API_KEYS_FILE, value: /run/credentials/api-keys.json}
- {name: HEADRACE_AUTH_TRUST_DOMAIN, value: {{ include "headrace.trustDomain" $root | quote }}}
{{- include "headrace.tlsVariables" $root }}
{{- if $jwt }}
- {name: HEADRACE_AUTH_JWKS_URL, value: {{ $root.Values.jwt.jwksUrl | quote }}}
- {name: HEADRACE_AUTH_JWT_ISSUER, value: {{ $root.Values.jwt.issuer | quote }}}
- {name: HEADRACE_AUTH_JWT_AUDIENCE, value: {{ $root.Values.jwt.audience | quote }}}
{{- end }}
{{- with $root.Values.traces.endpoint }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- end -}}

{{- define "headrace.tlsVariables" }}
- {name: HEADRACE_TLS_CERT, value: /run/tls/tls.crt}
- {name: HEADRACE_TLS_KEY, value: /run/tls/tls.key}
- {name: HEADRACE_TLS_CA, value: /run/tls/ca.crt}
{{- end -}}

{{- define "headrace.variables.facade" -}}
- {name: HEADRACE_FACADE_HOST, value: "::"}
{{- if (index . 0).Values.gateway.enabled }}
- {name: HEADRACE_FACADE_PORT, value: "8081"}
- {name: HEADRACE_FACADE_METRICS_LISTEN, value: "[::]:9465"}   # the gateway sees all requests
{{- else }}
- {name: HEADRACE_FACADE_METRICS_LISTEN, value: "[::]:9464"}
{{- end }}
{{- end -}}

{{- define "headrace.variables.orchestrator" -}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- name: HEADRACE_ORCHESTRATOR_ADVERTISE
  value: "$(POD_NAME).{{ include "headrace.fullname" (index . 0) }}-orchestrator-peers.{{ (index . 0).Release.Namespace }}.svc:7001"
- {name: HEADRACE_CONFIG_DIR, value: /etc/headrace}
{{- end -}}

{{- define "headrace.variables.llm-gateway" -}}
{{- $values := index . 3 -}}
# The most there can be: the providers' quotas hold however many there are.
- {name: HEADRACE_LLM_GATEWAY_REPLICAS, value: {{ $values.autoscaling.enabled | ternary $values.replicas.max $values.replicas.min | quote }}}
{{- end -}}

{{- define "headrace.variables.memory" -}}
{{- $root := index . 0 -}}
- {name: HEADRACE_DATABASE_URL, valueFrom: {secretKeyRef: {name: {{ include "headrace.secret" (list $root "database" "database") | quote }}, key: url}}}
{{- if $root.Values.encryption.existingSecret }}
- {name: HEADRACE_MEMORY_ENCRYPTION_KEYS, value: "file:/run/master-keys/master-keys"}
{{- end }}
{{- if $root.Values.bucket.url }}
{{ include "headrace.bucket" (dict "bucket" $root.Values.bucket "urlName" "HEADRACE_MEMORY_BLOBS") }}
{{- end }}
{{- end -}}

{{- define "headrace.variables.tools" -}}
- {name: HEADRACE_DATA_DIR, value: /data}
{{- with (index . 3).runtimeClassName }}
- {name: HEADRACE_TOOLS_SANDBOX, value: external}   # the runtime class is the sandbox of what models run
{{- end }}
{{- end -}}

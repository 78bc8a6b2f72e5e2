{{/* list ROOT NAME SERVICE VALUES: the pod template of a service. */}}
{{- define "headrace.pod" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $service := index . 2 }}{{ $values := index . 3 -}}
{{- $full := include "headrace.fullname" $root -}}
{{- $gateway := and (eq $name "facade") $root.Values.gateway.enabled -}}
{{- $port := $gateway | ternary 8081 $service.port -}}
{{- $scraped := $root.Values.serviceMonitor.enabled | ternary dict (dict "prometheus.io/scrape" "true" "prometheus.io/port" "9464") -}}
metadata: {{- include "headrace.podMetadata" (list $root $name $values $scraped) | nindent 2 }}
spec:
  {{- include "headrace.podDefaults" (list $root $values) | nindent 2 }}
  serviceAccountName: {{ $full }}-{{ $name }}
  # Longer than preStop and the drain, so that no run and no stream is cut.
  terminationGracePeriodSeconds: {{ add $root.Values.preStopSeconds (mul $values.drainSeconds ($service.drains | default 1)) 20 }}
  {{- with $values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- $selector := dict "labelSelector" (dict "matchLabels" (include "headrace.selector" (list $root $name) | fromYaml)) }}
    {{- range . }}
    - {{- hasKey . "labelSelector" | ternary . (merge (deepCopy .) $selector) | toYaml | nindent 6 }}
    {{- end }}
  {{- end }}
  {{- if or $service.config (eq $name "memory") }}
  initContainers:
    {{- if $service.config }}
    # A file that the service would refuse stops the rollout here, while the old pods continue with the last good one.
    - name: check
      args: [headrace, check, /etc/headrace]
    {{- else }}
    # Brings the tables to this version while the old pods serve, for as long as it takes: no probe limits its time.
    - name: migrate
      args: [python, -m, services.memory.migration]
    {{- end }}
      {{- include "headrace.container" . | nindent 6 }}
  {{- end }}
  containers:
    - name: {{ $name }}
      args: [python, -m, services.{{ $name | replace "-" "_" }}]
      {{- include "headrace.container" . | nindent 6 }}
      ports:
        {{- if $gateway }}
        - {name: facade, containerPort: 8081}
        {{- else }}
        - {name: {{ $service.portName }}, containerPort: {{ $service.port }}}
        - {name: metrics, containerPort: 9464}
        {{- end }}
      # Callers learn from DNS that a pod stops; until all of them have, it still serves.
      {{- include "headrace.preStop" $root | nindent 6 }}
      # It serves once its database or memory has answered, which may take a failover.
      {{- if eq $name "facade" }}
      {{- include "headrace.httpProbes" $port | nindent 6 }}
      {{- else }}
      startupProbe: {grpc: {port: 7000, service: live}, periodSeconds: 2, timeoutSeconds: 5, failureThreshold: 150}
      readinessProbe: {grpc: {port: 7000}, periodSeconds: 5, timeoutSeconds: 5}
      livenessProbe: {grpc: {port: 7000, service: live}, timeoutSeconds: 5, failureThreshold: 6}
      {{- end }}
    {{- if $gateway }}
    {{- include "headrace.gateway" . | nindent 4 }}
    {{- end }}
  volumes:
    - {name: tmp, emptyDir: {sizeLimit: 1Gi}}
    - {name: tls, secret: {secretName: {{ $values.tlsSecret | default (printf "%s-%s-tls" $full $name) | quote }}, defaultMode: 0440}}
    - {name: api-keys, secret: {secretName: {{ include "headrace.secret" (list $root "credentials" "credentials") | quote }}, defaultMode: 0440}}
    {{- with $service.config }}
    - {name: config, configMap: {name: {{ $full }}-{{ .name }}}}
    {{- end }}
    {{- if eq $name "tools" }}
    - {name: workspaces, persistentVolumeClaim: {claimName: {{ $full }}-workspaces}}
    {{- end }}
    {{- if and (eq $name "memory") $root.Values.encryption.existingSecret }}
    - {name: master-keys, secret: {secretName: {{ $root.Values.encryption.existingSecret | quote }}, defaultMode: 0440}}
    {{- end }}
    {{- with $values.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* list ROOT NAME SERVICE VALUES: image, rights, resources, variables and volumes, which a service and its init container share. */}}
{{- define "headrace.container" -}}
{{- $root := index . 0 }}{{ $name := index . 1 }}{{ $service := index . 2 }}{{ $values := index . 3 -}}
{{- $env := include "headrace.variables" . | fromYamlArray -}}
image: {{ include "headrace.image" $root }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext: {{ include "headrace.containerSecurity" $root }}
resources: {{- toYaml $values.resources | nindent 2 }}
env: {{- include "headrace.env" (list $env $values.env) | nindent 2 }}
{{- $keys := dict "secretRef" (dict "name" (include "headrace.secret" (list $root "providerKeys" "provider-keys"))) }}
{{- with concat (eq $name "llm-gateway" | ternary (list $keys) list) $values.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: tls, mountPath: /run/tls, readOnly: true}
  - {name: api-keys, mountPath: /run/credentials, readOnly: true}
  {{- with $service.config }}
  - {name: config, mountPath: {{ .path }}}
  {{- end }}
  {{- if eq $name "tools" }}
  - {name: workspaces, mountPath: /data}
  {{- end }}
  {{- if and (eq $name "memory") $root.Values.encryption.existingSecret }}
  - {name: master-keys, mountPath: /run/master-keys, readOnly: true}
  {{- end }}
  {{- with $values.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* The gateway (deploy/gateway) in front of the facade: it serves JSON and runs' events, and passes on everything else. */}}
{{- define "headrace.gateway" -}}
{{- $root := index . 0 }}{{ $service := index . 2 }}{{ $values := index . 3 -}}
- name: gateway
  image: {{ include "headrace.image" $root }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy }}
  args: [headrace-gateway]
  securityContext: {{ include "headrace.containerSecurity" $root }}
  env: {{- include "headrace.env" (list (include "headrace.gatewayVariables" . | fromYamlArray) $root.Values.gateway.env) | nindent 4 }}
  ports: [{name: http, containerPort: 8080}, {name: metrics, containerPort: 9464}]
  volumeMounts: [{name: tls, mountPath: /run/tls, readOnly: true}]
  resources: {{- toYaml $root.Values.gateway.resources | nindent 4 }}
  {{- include "headrace.preStop" $root | nindent 2 }}
  {{- include "headrace.httpProbes" 8080 | nindent 2 }}
{{- end -}}

{{- define "headrace.gatewayVariables" -}}
{{- $root := index . 0 }}{{ $service := index . 2 }}{{ $values := index . 3 -}}
- {name: HEADRACE_GATEWAY_LISTEN, value: ":8080"}
- {name: HEADRACE_GATEWAY_METRICS_LISTEN, value: ":9464"}
- {name: HEADRACE_GATEWAY_DRAIN_S, value: {{ $values.drainSeconds | quote }}}
- {name: HEADRACE_GATEWAY_FACADE_ADDRESS, value: "127.0.0.1:8081"}
{{- range $service.calls }}
- {name: HEADRACE_GATEWAY_{{ upper . }}_ADDRESS, value: "dns:///{{ include "headrace.fullname" $root }}-{{ . }}:{{ (get (include "headrace.services" $root | fromYaml) .).port }}"}
{{- end }}
- {name: HEADRACE_AUTH, value: api_key}   # callers show credentials, which the services check
{{- include "headrace.tlsVariables" $root }}
{{- end -}}

{{/* Kubernetes before 1.33 refuses a sleep of no seconds. */}}
{{- define "headrace.preStop" -}}
{{- with .Values.preStopSeconds -}}
lifecycle: {preStop: {sleep: {seconds: {{ . }}}}}
{{- end }}
{{- end -}}

{{- define "headrace.httpProbes" -}}
startupProbe: {httpGet: {path: /healthz, port: {{ . }}}, periodSeconds: 2, timeoutSeconds: 5, failureThreshold: 60}
readinessProbe: {httpGet: {path: /readyz, port: {{ . }}}, periodSeconds: 5, timeoutSeconds: 5}
livenessProbe: {httpGet: {path: /healthz, port: {{ . }}}, timeoutSeconds: 5, failureThreshold: 6}
{{- end -}}

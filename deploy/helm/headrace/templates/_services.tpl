{{/*
What each service is: its port, the services that it calls, the ports of public addresses that it may reach (`web`), the
files that it reads (`config`), how often it drains, and the metric of its autoscaler. Its variables are in its own file.
*/}}
{{- define "headrace.services" -}}
facade:
  values: facade
  port: 8080
  portName: http
  calls: [orchestrator, memory, tools]
  metric: {name: headrace_facade_open_streams}
orchestrator:
  values: orchestrator
  port: 7001
  portName: grpc
  calls: [orchestrator, llm-gateway, memory, tools]
  web: [443, 8443]   # remote agents
  config: {name: agents, path: /etc/headrace/agents}
  drains: 2   # runs end or are handed over, then calls
  metric: {name: headrace_runs, selector: {matchLabels: {state: running}}}
llm-gateway:
  values: llmGateway
  port: 7002
  portName: grpc
  calls: []
  web: [443]   # model providers
  config: {name: providers, path: /etc/headrace}
  metric: {name: headrace_llm_open_streams}
memory:
  values: memory
  port: 7003
  portName: grpc
  calls: [llm-gateway]
  web: [443, 8443]   # webhooks, and the bucket
tools:
  values: tools
  port: 7004
  portName: grpc
  calls: [llm-gateway, memory]
  web: [443, 80]
  config: {name: tools, path: /etc/headrace}
{{- end -}}

{{/* The services that are started as pods of their own: none if one pod has them all. */}}
{{- define "headrace.started" -}}
{{ .Values.single.enabled | ternary "{}" (include "headrace.services" .) }}
{{- end -}}

{{/* list ROOT NAME: the values of one service: its own, over those of all pods. */}}
{{- define "headrace.valuesOf" -}}
{{- $root := index . 0 -}}
{{- $service := get (include "headrace.services" $root | fromYaml) (index . 1) -}}
{{- $own := get $root.Values $service.values -}}
{{- $values := mustMergeOverwrite (deepCopy $root.Values.pods) (deepCopy $own) -}}
{{- $_ := set $values "env" (include "headrace.env" (list $root.Values.pods.env $own.env) | fromYamlArray) -}}
{{- range $key := list "envFrom" "volumes" "volumeMounts" "egress" }}
{{- $_ := set $values $key (concat (get $root.Values.pods $key | default list) (get $own $key | default list) | default list) -}}
{{- end -}}
{{- $_ := set $values "autoscaling" (mustMergeOverwrite (deepCopy $root.Values.autoscaling) (deepCopy $own.autoscaling)) -}}
{{- with $values.replicas }}
{{- if and $values.autoscaling.enabled (gt (int .min) (int .max)) }}
{{- fail (printf "%s.replicas: min is greater than max" $service.values) }}
{{- end }}
{{- end -}}
{{- toYaml $values -}}
{{- end -}}

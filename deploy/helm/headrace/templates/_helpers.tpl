{{/* The prefix of all names. A StatefulSet's name may have 52 characters, of which "-orchestrator" takes 13. */}}
{{- define "headrace.fullname" -}}
{{- $name := .Values.fullnameOverride | default (contains "headrace" .Release.Name | ternary .Release.Name (printf "%s-headrace" .Release.Name)) -}}
{{- $name | trunc 39 | trimSuffix "-" -}}
{{- end -}}

{{/* By which the services' certificates tell this release from others that share its authority. */}}
{{- define "headrace.trustDomain" -}}
{{ include "headrace.fullname" . }}.{{ .Release.Namespace }}
{{- end -}}

{{- define "headrace.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{/* list ROOT COMPONENT: the labels by which pods are selected; they never change. */}}
{{- define "headrace.selector" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* list ROOT COMPONENT */}}
{{- define "headrace.labels" -}}
{{ include "headrace.selector" . }}
{{- with index . 0 }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: headrace
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* list ROOT COMPONENT SUFFIX [ANNOTATIONS]: an object's metadata. */}}
{{- define "headrace.metadata" -}}
name: {{ include "headrace.fullname" (index . 0) }}{{ index . 2 }}
namespace: {{ (index . 0).Release.Namespace }}
labels: {{- include "headrace.labels" . | nindent 2 }}
{{- with merge (dict) (gt (len .) 3 | ternary (last .) dict) (index . 0).Values.annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* list ROOT NAME DEFAULT: a Secret that exists before the release. */}}
{{- define "headrace.secret" -}}
{{ get (index . 0).Values.existingSecrets (index . 1) | default (printf "%s-%s" (include "headrace.fullname" (index . 0)) (index . 2)) }}
{{- end -}}

{{- define "headrace.containerSecurity" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end -}}

{{/* list ROOT VALUES: the part of a pod's spec that is the same everywhere. */}}
{{- define "headrace.podDefaults" -}}
{{- $values := index . 1 -}}
automountServiceAccountToken: false
enableServiceLinks: false   # their variables look like settings: a Service headrace-facade makes HEADRACE_FACADE_PORT
securityContext: {{- toYaml $values.securityContext | nindent 2 }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" "runtimeClassName" }}
{{- with get $values $key }}
{{ $key }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with (index . 0).Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* list OWN GIVEN: both lists of variables, each name once, as the user gives it. */}}
{{- define "headrace.env" -}}
{{- $given := index . 1 | default list -}}
{{- $names := list -}}
{{- range $given }}{{ $names = append $names .name }}{{ end -}}
{{- $all := list -}}
{{- range index . 0 }}{{ if not (has .name $names) }}{{ $all = append $all . }}{{ end }}{{ end -}}
{{- concat $all $given | toYaml -}}
{{- end -}}

{{/* dict of url, region, endpoint and existingSecret; urlName: what a bucket's variables are. */}}
{{- define "headrace.bucket" -}}
- {name: {{ .urlName }}, value: {{ .bucket.url | quote }}}
{{- with .bucket.region }}
- {name: AWS_REGION, value: {{ . | quote }}}
{{- end }}
{{- with .bucket.endpoint }}
- {name: AWS_ENDPOINT_URL, value: {{ . | quote }}}
{{- end }}
{{- with .bucket.existingSecret }}
- {name: AWS_ACCESS_KEY_ID, valueFrom: {secretKeyRef: {name: {{ . }}, key: access-key-id}}}
- {name: AWS_SECRET_ACCESS_KEY, valueFrom: {secretKeyRef: {name: {{ . }}, key: secret-access-key}}}
{{- end }}
{{- end -}}

// Package envelope encodes answers that are not streams: {"code":0,"msg":"success","data":…}, or a failure with the
// HTTP status of its gRPC code and `error` {code, retriable, details}.
package envelope

import (
	"math"
	"net/http"
	"slices"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"headrace/gateway/internal/jsonform"
)

// ContentType is the media type of every answer in the envelope.
const ContentType = "application/json; charset=utf-8"

// Domain is ErrorInfo.domain of the suite's errors.
const Domain = "headrace"

// Status maps gRPC codes to HTTP statuses as google/rpc/code.proto does; 499 is nginx's "client closed request".
var Status = map[codes.Code]int{
	codes.OK:                 200,
	codes.InvalidArgument:    400,
	codes.FailedPrecondition: 400,
	codes.OutOfRange:         400,
	codes.Unauthenticated:    401,
	codes.PermissionDenied:   403,
	codes.NotFound:           404,
	codes.Aborted:            409,
	codes.AlreadyExists:      409,
	codes.ResourceExhausted:  429,
	codes.Canceled:           499,
	codes.Unknown:            500,
	codes.Internal:           500,
	codes.DataLoss:           500,
	codes.Unimplemented:      501,
	codes.Unavailable:        503,
	codes.DeadlineExceeded:   504,
}

// safeMessages replace the texts of statuses without a reason of the suite, which may reveal internals.
var safeMessages = map[codes.Code]string{
	codes.Unimplemented:     "this version does not do that",
	codes.DeadlineExceeded:  "a service did not answer in time; try again",
	codes.ResourceExhausted: "the request or its answer is too large",
	codes.Canceled:          "the request was cancelled",
}

// codeNames are the values of error.code for statuses without a reason.
var codeNames = map[codes.Code]string{
	codes.Canceled: "CANCELLED", codes.Unknown: "UNKNOWN", codes.InvalidArgument: "INVALID_ARGUMENT",
	codes.DeadlineExceeded: "DEADLINE_EXCEEDED", codes.NotFound: "NOT_FOUND", codes.AlreadyExists: "ALREADY_EXISTS",
	codes.PermissionDenied: "PERMISSION_DENIED", codes.ResourceExhausted: "RESOURCE_EXHAUSTED",
	codes.FailedPrecondition: "FAILED_PRECONDITION", codes.Aborted: "ABORTED", codes.OutOfRange: "OUT_OF_RANGE",
	codes.Unimplemented: "UNIMPLEMENTED", codes.Internal: "INTERNAL", codes.Unavailable: "UNAVAILABLE",
	codes.DataLoss: "DATA_LOSS", codes.Unauthenticated: "UNAUTHENTICATED",
}

// Failure is an error answer.
type Failure struct {
	Status     int
	Reason     string
	Message    string
	Retriable  bool
	Details    map[string]string
	Data       []byte // JSON; nil stands for {}
	RetryAfter string // seconds, rounded up; empty if unknown
}

// WrapResponse encodes an RPC's response; responseBody names the field that becomes `data`, and the others stand before
// it.
func WrapResponse(response proto.Message, responseBody string) []byte {
	if responseBody == "" {
		return WrapData(jsonform.Encode(response))
	}
	data, beside := jsonform.Split(response, responseBody)
	out := []byte(`{"code":0,"msg":"success",`)
	if len(beside) > 0 {
		out = append(append(out, beside...), ',')
	}
	out = append(append(out, `"data":`...), data...)
	return append(out, '}')
}

// WrapData encodes a success whose data, in JSON, comes from no RPC.
func WrapData(data []byte) []byte {
	return append(append([]byte(`{"code":0,"msg":"success","data":`), data...), '}')
}

// FromError returns the failure of an error: one of the suite's, an invalid request, or a bare status.
func FromError(err error) Failure {
	if invalid, ok := err.(*jsonform.Invalid); ok {
		details := map[string]string{"field": invalid.Field, "rule": invalid.Rule}
		return Failure{Status: 400, Reason: "INVALID_REQUEST", Message: invalid.Error(), Details: details}
	}
	received := status.Convert(err)
	code := received.Code()
	if code == codes.Unavailable && len(received.Details()) == 0 {
		// Callers treat this like a provider that cannot be reached.
		message := "a service of the suite cannot be reached; try again"
		return Failure{Status: Status[code], Reason: "PROVIDER_UNAVAILABLE", Message: message, Retriable: true}
	}
	failure := Failure{Status: Status[code], Reason: codeNames[code], Message: "internal error"}
	failure.Retriable = code == codes.Unavailable || code == codes.DeadlineExceeded
	if safe, ok := safeMessages[code]; ok {
		failure.Message = safe
	}
	for _, detail := range received.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == Domain {
				failure.Reason, failure.Message = detail.GetReason(), received.Message()
				failure.Details = map[string]string{}
				for key, value := range detail.GetMetadata() {
					if key != "retriable" {
						failure.Details[key] = value
					}
				}
				failure.Retriable = detail.GetMetadata()["retriable"] == "true"
			}
		case *errdetails.RetryInfo:
			failure.RetryAfter = strconv.Itoa(int(math.Ceil(detail.GetRetryDelay().AsDuration().Seconds())))
		}
	}
	return failure
}

// failureRecorder is a response writer that keeps how a request has failed.
type failureRecorder interface {
	RecordFailure(status int, reason string)
}

// Record has the request counted and logged as failed, even if its answer has begun with a success.
func (f Failure) Record(w http.ResponseWriter) {
	if recorder, ok := w.(failureRecorder); ok {
		recorder.RecordFailure(f.Status, f.Reason)
	}
}

// Encode returns the failure as the JSON of an answer.
func (f Failure) Encode() []byte {
	out := append([]byte(`{"code":`), strconv.Itoa(f.Status)...)
	out = jsonform.AppendString(append(out, `,"msg":`...), f.Message)
	out = append(out, `,"data":`...)
	if f.Data != nil {
		out = append(out, f.Data...)
	} else {
		out = append(out, "{}"...)
	}
	out = jsonform.AppendString(append(out, `,"error":{"code":`...), f.Reason)
	out = strconv.AppendBool(append(out, `,"retriable":`...), f.Retriable)
	out = append(out, `,"details":{`...)
	keys := make([]string, 0, len(f.Details))
	for key := range f.Details {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for i, key := range keys {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(jsonform.AppendString(out, key), ':')
		out = jsonform.AppendString(out, f.Details[key])
	}
	return append(out, "}}}"...)
}

// Write sends the failure.
func (f Failure) Write(w http.ResponseWriter) {
	f.Record(w)
	if f.RetryAfter != "" {
		w.Header().Set("Retry-After", f.RetryAfter)
	}
	if f.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer") // https://www.rfc-editor.org/rfc/rfc9110#section-11.6.1
	}
	WriteJSON(w, f.Status, f.Encode())
}

// WriteJSON sends a JSON body.
func WriteJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", ContentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

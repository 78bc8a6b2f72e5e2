// Code generated from headrace/errors.py by `make gateway`. DO NOT EDIT.

package envelope

import "google.golang.org/grpc/codes"

var reasons = map[string]codes.Code{
	"BAD_FRAME":               codes.Unavailable,
	"BUDGET_EXCEEDED":         codes.ResourceExhausted,
	"CHAT_BUSY":               codes.Aborted,
	"CONTENT_FILTERED":        codes.FailedPrecondition,
	"CONTEXT_LENGTH_EXCEEDED": codes.FailedPrecondition,
	"INTERRUPTED":             codes.Aborted,
	"INVALID_REQUEST":         codes.InvalidArgument,
	"LOG_DAMAGED":             codes.DataLoss,
	"NOT_FOUND":               codes.NotFound,
	"NO_ANSWER":               codes.FailedPrecondition,
	"OUT_OF_RANGE":            codes.OutOfRange,
	"OVERLOADED":              codes.Unavailable,
	"PERMISSION_DENIED":       codes.PermissionDenied,
	"PLAN_MISSING":            codes.FailedPrecondition,
	"PROVIDER_AUTHENTICATION": codes.FailedPrecondition,
	"PROVIDER_UNAVAILABLE":    codes.Unavailable,
	"QUEUE_FULL":              codes.ResourceExhausted,
	"QUOTA_EXCEEDED":          codes.ResourceExhausted,
	"RATE_LIMITED":            codes.ResourceExhausted,
	"SKILL_UNAVAILABLE":       codes.FailedPrecondition,
	"STALE_LEASE":             codes.Aborted,
	"STREAM_STALLED":          codes.DeadlineExceeded,
	"TOOL_REQUIRED":           codes.FailedPrecondition,
	"UNAUTHENTICATED":         codes.Unauthenticated,
	"UNKNOWN_PLACEHOLDER":     codes.InvalidArgument,
	"UNPAIRED_MESSAGES":       codes.InvalidArgument,
	"UNSUPPORTED":             codes.Unimplemented,
}
